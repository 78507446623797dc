//! Exporters: a recording as other tools read it. Decodes none of it.

mod perf;
mod symfs;
mod taken;

pub use perf::{ExportedPerf, export_perf};

/// The vdso's name for perf, which would take its own by the kernel's.
pub(super) const VDSO_NAME: &str = "/[vdso]";

/// The file of all code that has none.
pub(super) const CODE_NAME: &str = "/[code]";
