//! Exports of a recording to the formats of other tools. Nothing is decoded.

mod converter;
mod perf;
mod symfs;
mod taken;

pub use perf::{ExportedPerf, export_perf};

/// The name of the vdso for perf, which would use its own under the kernel's name.
pub(super) const VDSO_NAME: &str = "/[vdso]";

/// The name of the file with all code that was in no file.
pub(super) const CODE_NAME: &str = "/[code]";

/// The name of the file with code from the core file, for tools without the core file.
pub(super) const CORE_NAME: &str = "/[core]";

/// The name of mappings that the core file contains, over others.
pub(super) const CORE_MAP_NAME: &str = "[core]";

/// The name of mappings whose code comes in pieces of [`CODE_NAME`], if at all.
pub(super) const ANONYMOUS_NAME: &str = "[anon]";
