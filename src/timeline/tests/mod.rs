//! Random programs of several threads, interpreted, recorded and walked: the timeline against the
//! interpreter's own notes. No real program runs here.

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
