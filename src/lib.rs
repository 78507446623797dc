//! Record a run of an unmodified program once, then step through it in both directions.
//!
//! The control flow of a run is an Intel Processor Trace packet stream, and everything that moves
//! through time reads that stream. Each layer can be used separately: [`pt`] packets, [`flow`]
//! blocks and events, [`timeline`] positions, [`state`] registers and memory.
//! `docs/architecture.md` shows the rooms and their dependencies.
//!
//! The packets of a trace:
//!
//! ```
//! use contraflow::pt::{Packet, Packets, Tnt, encode};
//!
//! let mut trace = Vec::new();
//! let taken_then_not = Packet::TntShort(Tnt { bits: 0b10, len: 2 });
//! encode(&taken_then_not, &mut trace);
//! let packets: Vec<_> = Packets::new(&trace).map(|(_, packet)| packet).collect();
//! assert_eq!(packets, [Ok(taken_then_not)]);
//! ```
//!
//! The end of a recorded run; `examples/` shows more:
//!
//! ```no_run
//! use contraflow::session::{History, Recording};
//! use std::path::Path;
//!
//! let recording = Recording::open(Path::new("contraflow.out"))?;
//! let end = recording.total();
//! let last = recording.running_at(end.saturating_sub(1));
//! println!("{end} instructions, the last one of thread {last:?}");
//! # Ok::<(), contraflow::session::OpenError>(())
//! ```
//!
//! Linux on x86-64 only.

pub mod ask;
pub mod capture;
#[doc(hidden)]
pub mod cli;
pub mod common;
pub mod dap;
#[doc(hidden)]
pub mod encode;
#[doc(hidden)]
pub mod engine;
pub mod flow;
pub mod gdb;
pub mod image;
pub mod insn;
pub mod mcp;
pub mod pt;
pub mod recording;
pub mod replay;
pub mod session;
pub mod sideband;
pub mod state;
pub mod symbols;
pub mod syscalls;
pub mod timeline;
#[doc(hidden)]
pub mod tracee;
pub mod translate;
pub mod values;
