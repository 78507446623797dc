//! Record a run of an unmodified program once, then step through it in both directions.
//!
//! The control flow of a run is an Intel Processor Trace packet stream, and everything that moves
//! through time reads that stream. Each layer can be used separately: [`pt`] packets, [`flow`]
//! blocks and events, [`timeline`] positions, [`state`] registers and memory.
//! `docs/architecture.md` shows the rooms and their dependencies.
//!
//! Linux on x86-64 only.

pub mod ask;
pub mod capture;
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
pub mod tracee;
pub mod translate;
pub mod values;
