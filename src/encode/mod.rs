//! Records of the code cache to PT packets: a pure core, which reads what a program may have
//! damaged, so it takes every record for input.
//!
//! [`Trace`] writes the trace of one thread from its records, which mean the edges of a
//! [`Dictionary`]. What the tracer saw itself (a signal, an instruction that it stepped) comes by
//! methods of its own. Where not all code is traced, and where each instruction is stepped,
//! [`Path`] goes instruction by instruction through the model of the PT unit.
//!
//! Around that core, [`Tracer`] takes the records out of the trace buffers of a process that runs
//! translated, a [`Lane`] of buffers a thread, and encodes them on a thread of its own.

mod dictionary;
mod encoder;
mod feed;
mod filtered;
mod lane;
mod path;
mod ranges;
mod ring;
mod sample;
mod stopping;
mod trace;
mod tracer;

pub use dictionary::{Dictionary, News, Paths};
pub use encoder::{BadRecord, Chains};
pub use feed::{Item, Packets, Tally};
pub use lane::Lane;
pub use path::Path;
pub use ranges::{MOST_RANGES, Ranges};
pub use sample::Sampler;
pub use trace::Trace;
pub use tracer::{BadPointer, Tracer};
