//! The whole of contraflow as a user has it: real programs recorded by the binary, walked by real
//! gdb. One small program and one test each; what a machine lacks is skipped, and said.

mod attach;
mod btrace;
mod circles;
mod comparison;
mod counting;
mod cut;
mod damage;
mod death;
mod decoders;
mod doctor;
mod dump;
mod ends;
mod equality;
mod errors;
mod filter;
mod forks;
mod generated;
mod import;
mod introspection;
mod limits;
mod passthrough;
mod perf;
mod perf_large;
mod protocol;
mod real;
mod scenarios;
mod serve;
mod session;
mod snapshots;
mod soft;
mod storm;
mod support;
mod thread_local;
mod walk;
mod wander;
