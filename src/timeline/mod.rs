//! A recording as a line that can be walked in both directions: the segments of its traces, an
//! index of the segments, a bounded cache of decoded segments, and one order of the instructions of
//! all threads.
//!
//! A *segment* is the part of a trace from one PSB (the packet at which a decoder can start) to the
//! next. A *piece* is the part of a trace that one thread executed: all of the thread's trace, or a
//! part of a CPU's trace. In an *epoch* (not one of an exact recording), the mapped code stays the
//! same. A *position*, `global` in the code, is the number of an instruction in the order of all
//! threads; `index` counts the instructions of one thread, from 0.
//!
//! This is the only room that joins flow, sideband and recording. It handles no signals and prints
//! nothing.

mod birth;
mod block_code;
mod block_counts;
mod blocks;
mod call_stack;
mod call_trace;
mod cut;
mod digest;
mod effects;
mod error;
mod functions;
mod images;
mod index;
mod kernel;
mod line;
mod miscounts;
mod open;
mod order;
mod parallel;
mod piece;
mod runs;
mod saved;
mod search;
mod segment;
mod stack;
mod totals;
mod trace_between;
mod trace_until;
mod visit;
mod visit_trace;
mod walk;

pub use block_code::BlockCode;
pub use block_counts::{BlockKey, CountedBlock, CountedBlocks};
pub use call_stack::MissingFrames;
pub use call_trace::{Arrival, ArrivalKind, CallTrace};
pub use cut::{ThreadPart, divide_among_threads};
pub use error::Error;
pub use images::{Epoch, Images};
pub use kernel::{Delivery, KernelEntries};
pub use line::Timeline;
pub use miscounts::Miscount;
pub use open::{Options, Progress, errata_of, pt_cpu_of};
pub use search::{Direction, Found, Search};
pub use stack::Frame;
pub use totals::Totals;
pub use visit::Visit;
pub use visit_trace::RawTrace;

#[cfg(test)]
mod tests;
