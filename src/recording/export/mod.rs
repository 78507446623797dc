//! Exporters: a recording as other tools read it. Decodes none of it.

mod perf;
mod symfs;
mod taken;
mod telling;

pub use perf::{ExportedPerf, export_perf};

/// The vdso's name for perf, which would take its own by the kernel's.
pub(super) const VDSO_NAME: &str = "/[vdso]";

/// The file of all code that has none.
pub(super) const CODE_NAME: &str = "/[code]";

/// The file of the code that the core holds, for who has no core.
pub(super) const CORE_NAME: &str = "/[core]";

/// A mapping as the core holds it, over others.
pub(super) const CORE_MAP_NAME: &str = "[core]";

/// A mapping of nothing: what was executed there is told by pieces of [`CODE_NAME`].
pub(super) const ANONYMOUS_NAME: &str = "[anon]";
