//! Random programs with a known path, traced by the model of the PT unit and decoded again.

mod libipt;
mod machine;
mod paths;
mod program;
