//! The Debug Adapter Protocol: contraflow as a debugger in IDEs.
//!
//! The adapter runs gdb as a child, whose target is the server of this process ([`crate::gdb`]).
//! gdb's machine interface (MI) runs the program and reports its stops. A Python module in that gdb
//! answers requests about values, one round trip a request ([`DAP_SCRIPTS`]). The session itself
//! answers questions about the history, without gdb ([`crate::gdb::Inquirer`]). Other threads
//! answer questions about the whole of it ([`crate::ask`]); each opens the recording once more for
//! that.
//!
//! This room knows neither how recordings are stored nor how programs are started: its [`Host`]
//! does. No message of a client ends it.

mod adapter;
mod breakpoints;
mod child;
mod here;
mod hits;
mod host;
mod inbox;
mod launch;
mod mi;
mod moves;
mod ours;
mod protocol;
mod questions;
mod stops;

pub use adapter::serve;
pub use host::{Debuggee, ForeignTrace, Host, OpenAsked, OutputLine, Program, Recorder, Target};
pub use inbox::output_chunks;

/// Python modules for the adapter's gdb, by file name. They are in one directory with the gdb
/// room's script, and [`DAP_MODULE`] imports the others.
pub const DAP_SCRIPTS: [(&str, &str); 3] = [
    ("contraflow_dap.py", include_str!("../../gdb-scripts/contraflow_dap.py")),
    ("contraflow_values.py", include_str!("../../gdb-scripts/contraflow_values.py")),
    ("contraflow_breakpoints.py", include_str!("../../gdb-scripts/contraflow_breakpoints.py")),
];

/// The name of the Python module that the adapter's gdb has to import.
pub const DAP_MODULE: &str = "contraflow_dap";
