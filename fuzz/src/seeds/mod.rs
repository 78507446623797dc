//! Valid inputs to begin with, made by the library's own writers: no file of anybody else.

mod bundles;
mod images;
mod logs;
mod made;
mod perf;
mod records;
mod sessions;
mod traces;

pub use bundles::{imports, switches};
pub use images::{core_file, images};
pub use logs::logs;
pub use made::{MADE, files, has_core, made};
pub use perf::perf_data;
pub use records::{Program, dictionary, records};
pub use sessions::sessions;
pub use traces::{CODE, CODE_AT, START_TSC, traces};
