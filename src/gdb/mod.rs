//! The gdb remote serial protocol over a [`Session`](crate::session::Session).
//!
//! This room owns the socket. It frames packets itself, answers those that gdbstub lacks or ends
//! the session over (run control, thread choice, `qXfer`, branch traces), and feeds the rest to
//! gdbstub's state machine, which writes into a buffer. No packet, however broken, ends the
//! server. The scripts for gdb's side are in `gdb-scripts/`; see [`SCRIPT`].
//!
//! It never reaches below the session, and listens only where it is told to.

mod agent;
mod arch;
mod btrace;
mod catches;
mod chosen;
mod client;
mod conditions;
mod door;
mod files;
mod finish;
mod frame;
mod hex;
mod hints;
mod listener;
mod lldb;
mod lldb_trace;
mod memory;
mod monitor;
mod patience;
mod peer;
mod resume;
mod saved;
mod search;
mod server;
mod signals;
mod source_line;
mod stack;
mod start;
mod stop_reply;
mod stub;
mod supported;
mod target;
mod target_xml;
mod thread_id;
mod thread_local;
mod transport;
mod xfer;

#[cfg(test)]
mod tests;

pub use listener::{Bound, Listener};
pub(crate) use monitor::clock::date;
pub use server::{Error, OnDisconnect, Options, serve, serve_streams};

/// The Python script for LLDB: the `cf-` commands. LLDB 22 or newer loads it with
/// `command script import`.
pub const LLDB_SCRIPT: &str = include_str!("../../gdb-scripts/contraflow_lldb.py");

/// The Python script for gdb: the unwinder over the call history, and the `cf-` commands. gdb 13
/// or newer loads it with `source`.
pub const SCRIPT: &str = include_str!("../../gdb-scripts/contraflow.py");

/// Python for a gdb that has a recording's files from its sysroot: runs none of their scripts, and
/// finds those that are installed for them.
pub const SYSROOT_SCRIPT: &str = include_str!("../../gdb-scripts/contraflow_sysroot.py");
