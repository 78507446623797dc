//! Questions about whole histories: every execution of a line with its values, every call, the
//! instructions of each function, the lines that were executed.
//!
//! The path says what was executed, in which order and by which calls. Where values are wanted, an
//! exact recording is replayed once from front to back, beside the path. Paths and values are
//! streamed: no question keeps a list of all that was executed.

mod blocks;
mod calls;
mod chart;
mod chrome;
mod clock;
mod coverage;
mod dataset;
mod diff;
mod error;
mod executed;
mod export;
mod functions;
mod hits;
mod machine;
mod merge;
mod opened;
mod origin;
mod perfetto;
mod place;
mod profile;
mod proto;
mod scale;
mod sites;
mod slices;
mod speedscope;
mod stacks;
mod tracker;
mod walk;
mod wanted;

pub use calls::{Call, CallKind, CallsQuestion};
pub use chart::{Chart, ChartQuestion, ChartSlice, ChartThread};
pub use coverage::FileCoverage;
pub use dataset::{Dataset, DatasetQuestion, Exported, SCHEMA_VERSION};
pub use diff::{Cause, Compared, Difference, Pair, Step};
pub use error::Error;
pub use export::CallFormat;
pub use hits::{Hit, HitsQuestion};
pub use opened::{Asked, Recorded};
pub use origin::{FollowedValue, Input, OriginEffect, OriginQuestion, OriginStep, SystemCall};
pub use place::Place;
pub use profile::{FunctionCost, LineCost, Profile};
