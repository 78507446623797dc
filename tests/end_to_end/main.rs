//! The whole of contraflow as a user has it: real programs recorded by the binary, walked by real
//! gdb. One small program and one test each; what a machine lacks is skipped, and said.

mod attach;
mod btrace;
mod circles;
mod cut;
mod damage;
mod dump;
mod equality;
mod errors;
mod filter;
mod import;
mod passthrough;
mod session;
mod soft;
mod support;
mod walk;
