//! Decodes packets and code bytes to blocks, events and gaps. Does no I/O.
//!
//! [`Decoder`] reads a trace and a [`Code`] (an image with a block cache) and yields [`FlowItem`]s.
//! Decoding cannot fail: where the path is lost it yields a [`Gap`] and resumes at the next PSB.
//!
//! *Executing* a block means to follow what the traced CPU did: nothing runs here. A step executes
//! one block: `run_cached` does so from cached data, `run_block` in all other cases, and `bind`
//! handles the packets between blocks. `run_chains` executes several blocks at once, a *chain*, for
//! [`Decoder::collect_code`] and [`Decoder::list_spans`]. `walk` executes the blocks up to the
//! instruction that a packet binds to; `off` handles the packets at which no code is executed.

mod bind;
mod block;
mod chain;
mod chain_walk;
mod chains;
mod code;
mod collect;
mod cursor;
mod decoder;
mod errata;
mod executed_code;
mod item;
mod list_spans;
mod off;
mod outline;
mod pace;
mod psb;
mod retstack;
mod run_block;
mod run_cached;
mod run_chains;
mod tnt;
mod walk;

pub use block::BlockCache;
pub use code::{Addrs, Code, Insns, Last};
pub use collect::{CallWatch, Leaving};
pub use decoder::{Config, Decoder};
pub use executed_code::{Bounds, ExecutedCode};
pub use item::{Event, EventKind, Exit, FlowItem, Gap, GapReason, Span};
pub use outline::{OutlineKind, OutlinePoint, outline};
pub use pace::{Meter, Pace, Timing};

#[cfg(test)]
mod tests;
