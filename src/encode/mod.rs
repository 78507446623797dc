//! Encodes records of the code cache as PT packets. The traced program may have damaged its
//! records, so they are untrusted input.
//!
//! A *record* is what translated code writes to its thread's trace buffer when it leaves a
//! superblock: the number of an *edge*, the path from the superblock's start to that exit.
//! [`Trace`] writes the trace of one thread from its records. A [`Dictionary`] has the edges.
//! Events that the tracer saw (a signal, an instruction that it stepped) have their own methods.
//! For filtered traces and for single-stepping, [`Path`] passes each instruction through the model
//! of the PT unit.
//!
//! Around that core, [`Tracer`] takes the records out of the trace buffers of a process that runs
//! translated ([`ThreadBuffers`]), and encodes them on another thread. [`InlineTracer`] encodes
//! them where it is called.

mod dictionary;
mod encoder;
mod feed;
mod filtered;
mod inline;
mod path;
mod ranges;
mod ring;
mod sample;
mod stopping;
mod thread_buffers;
mod trace;
mod tracer;

pub use dictionary::{Dictionary, NewEdges, Paths};
pub use encoder::{BadRecord, Chains};
pub use feed::{Packets, TraceItem, TraceResult};
pub use inline::InlineTracer;
pub use path::Path;
pub use ranges::{MOST_RANGES, Ranges};
pub use sample::Sampler;
pub use thread_buffers::ThreadBuffers;
pub use trace::Trace;
pub use tracer::{BadPointer, Tracer};
