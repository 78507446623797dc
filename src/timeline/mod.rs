//! A recording as a line that can be walked in both directions: the segments of its traces, an
//! index of the segments, a bounded cache of decoded segments, and one order of the instructions of
//! all threads.
//!
//! A *segment* is the part of a trace from one PSB to the next. A *piece* is the part of a trace
//! that one thread executed: all of the thread's trace, or a part of a CPU's trace. In an *epoch*,
//! the mapped code stays the same. The number `index` of an instruction counts per thread, `global`
//! over all threads.
//!
//! This is the only room that joins flow, sideband and recording. It handles no signals and prints
//! nothing.

mod birth;
mod block_code;
mod blocks;
mod call_trace;
mod calls;
mod count;
mod counted;
mod cut;
mod digest;
mod effects;
mod error;
mod functions;
mod images;
mod index;
mod kernel;
mod line;
mod open;
mod order;
mod parallel;
mod piece;
mod runs;
mod saved;
mod search;
mod segment;
mod since;
mod stack;
mod totals;
mod upto;
mod visit;
mod visit_trace;
mod walk;

pub use block_code::BlockCode;
pub use call_trace::{Arrival, CallTrace, How};
pub use calls::Older;
pub use count::Miscount;
pub use counted::{BlockKey, CountedBlock, CountedBlocks};
pub use cut::{Share, share_out};
pub use error::Error;
pub use images::{Epoch, Images};
pub use kernel::{Delivery, KernelEntries};
pub use line::Timeline;
pub use open::{Options, Progress, errata_of};
pub use search::{Direction, Found, Search};
pub use stack::Frame;
pub use totals::Totals;
pub use visit::Visit;
pub use visit_trace::RawTrace;

#[cfg(test)]
mod tests;
