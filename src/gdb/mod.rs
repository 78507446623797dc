//! The gdb remote serial protocol over a [`Session`](crate::session::Session).
//!
//! This room owns the socket. It frames packets itself. It answers the packets that gdbstub does
//! not support or would end the session for (run control, thread choice, `qXfer`, branch traces),
//! and passes the rest to gdbstub's state machine, which writes to a buffer. No packet, however
//! broken, ends the server. The scripts for gdb's side are in `gdb-scripts/`; see [`SCRIPT`].
//!
//! It never reaches below the session, and listens only at the requested address.

mod agent;
mod allocation;
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
mod inquiry;
mod keep_alive;
mod listener;
mod lldb;
mod lldb_trace;
mod memory;
mod monitor;
mod numbers;
mod peer;
mod remedies;
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

pub use inquiry::{Inquired, Inquirer, Inquiries};
pub use listener::{Bound, Listener};
pub(crate) use monitor::about::position_text;
pub(crate) use monitor::clock::date;
pub(crate) use peer::is_own_client;
pub use server::{Error, OnDisconnect, Options, serve, serve_streams};

/// The Python script for LLDB: the `cf-` commands. LLDB 22 or newer loads it with `command script
/// import`.
pub const LLDB_SCRIPT: &str = include_str!("../../gdb-scripts/contraflow_lldb.py");

/// The Python script for gdb: the unwinder over the call history, and the `cf-` commands. gdb 13 or
/// newer loads it with `source`.
pub const SCRIPT: &str = include_str!("../../gdb-scripts/contraflow.py");

/// The Python script for a gdb whose sysroot has a recording's files: runs none of their scripts,
/// and loads those installed on this machine.
pub const SYSROOT_SCRIPT: &str = include_str!("../../gdb-scripts/contraflow_sysroot.py");
