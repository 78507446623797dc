//! Exports of a recording to the formats of other tools. Nothing is decoded.

mod converter;
mod perf;
mod symfs;
mod trace_settings;

pub use perf::{ExportedPerf, export_perf};

/// The name of the vdso in an export. Under the kernel's name `[vdso]`, perf would use the vdso of
/// the machine that it runs on.
pub(super) const VDSO_NAME: &str = "/[vdso]";

/// The name of the exported file with all code that was in no file.
pub(super) const CODE_NAME: &str = "/[code]";

/// The name of the exported file with code from the core file, for tools without the core file. An
/// importer that has the core file skips mappings of it.
pub(super) const CORE_NAME: &str = "/[core]";

/// The name of mappings whose code only the core file contains, and that lie over earlier mappings.
/// They map no exported file, not even [`CORE_NAME`]: an importer takes their code from the core
/// file.
pub(super) const CORE_MAP_NAME: &str = "[core]";

/// The name of executable mappings without a file. Where their code is known, mappings of parts of
/// [`CODE_NAME`] lie over them.
pub(super) const ANONYMOUS_NAME: &str = "[anon]";
