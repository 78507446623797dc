//! Decodes packets and code bytes to blocks, events and gaps. Does no I/O.
//!
//! [`Decoder`] reads a trace and a [`Code`] (an image with a block cache) and yields [`FlowItem`]s.
//! Decoding cannot fail: where the path is lost it yields a [`Gap`] and resumes at the next PSB.
//!
//! *Executing* a block means to follow what the traced CPU did: nothing runs here. A step executes
//! one block: `fast` does so from cached data, `follow` in all other cases, and `bind` handles the
//! packets between blocks. `lane` executes several blocks at once, a *chain*, for
//! [`Decoder::skim`] and [`Decoder::list`]. `walk` executes the blocks up to the instruction that a
//! packet binds to; `off` handles the packets at which no code is executed.

mod bind;
mod block;
mod chain;
mod chain_walk;
mod chains;
mod code;
mod cursor;
mod decoder;
mod errata;
mod fast;
mod follow;
mod item;
mod lane;
mod list;
mod off;
mod outline;
mod pace;
mod psb;
mod retstack;
mod skim;
mod tally;
mod tnt;
mod walk;

pub use block::BlockCache;
pub use code::{Addrs, Code, Insns, Last};
pub use decoder::{Config, Decoder};
pub use item::{Event, EventKind, Exit, FlowItem, Gap, GapReason, Span};
pub use outline::{OutlineKind, OutlinePoint, outline};
pub use pace::{Meter, Pace, Timing};
pub use skim::{CallWatch, Leaving};
pub use tally::{Bounds, Tally};

#[cfg(test)]
mod tests;
