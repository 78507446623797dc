//! Valid inputs to begin with, made by the library's own writers: no file of anybody else.

mod bundles;
mod images;
mod perf;
mod sessions;
mod traces;

pub use bundles::{imports, switches};
pub use images::images;
pub use perf::perf_data;
pub use sessions::sessions;
pub use traces::{CODE, CODE_AT, START_TSC, traces};
