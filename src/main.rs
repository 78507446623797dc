//! The `contraflow` command.

fn main() {}
