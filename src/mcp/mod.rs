//! The Model Context Protocol: a recording as tools for programs and agents, on the standard
//! streams.
//!
//! `server` speaks the protocol, by the official SDK. `worker` is the thread that owns the opened
//! recording, as traced processes belong to a thread. `open_recording` is that recording, with a
//! place in its history: the session moves there, [`crate::ask`] answers questions about the whole,
//! and [`crate::values`] reads expressions. The [`Host`] opens recordings, and asks gdb for
//! expressions that need more than the debug information.
//!
//! Answers are JSON, short and in pages. Unknown values are null. No request ends the server.

mod answer;
mod frames;
mod host;
mod machine;
mod open_recording;
mod print;
mod questions;
mod requests;
mod server;
mod source;
mod tools;
mod travel;
mod worker;

pub use host::{GdbQuestion, Host, Opened};
pub use server::serve;
