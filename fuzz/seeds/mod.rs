//! Valid inputs to begin with, made by the library's own writers: no file of anybody else.

mod bundles;
mod images;
mod logs;
mod made;
mod perf;
mod records;
mod sessions;
mod traces;

pub(crate) use bundles::{imports, switches};
pub(crate) use images::{core_file, images};
pub(crate) use logs::logs;
pub(crate) use made::{MADE, files, has_core, made};
pub(crate) use perf::perf_data;
pub(crate) use records::{Program, dictionary, records};
pub(crate) use sessions::sessions;
pub(crate) use traces::{CODE, CODE_AT, START_TSC, traces};
