//! Random programs of several threads, interpreted, recorded and walked: compares the timeline with
//! the interpreter's notes. No real program runs here.

mod cpus;
mod cuts;
mod damage;
mod digests;
mod machine;
mod program;
mod recorded;
mod saved;
mod walks;
mod whole_traces;
