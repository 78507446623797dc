//! Random programs with a known path, traced by the model of the PT unit and decoded.

mod binding;
mod errata;
mod libipt;
mod machine;
mod pace;
mod paths;
mod processes;
mod program;
mod trace;
