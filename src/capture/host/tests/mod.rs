//! Tests the findings on machines of several kinds, by trees of their files.

mod lines;
mod machine;
mod programs;
