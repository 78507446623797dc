//! `contraflow rm`: removes recordings.

use super::{Failure, arguments};
use crate::recording::Store;
use std::process::ExitCode;

/// Removes the recordings, in the order of their names on the command line, up to the first one
/// that cannot be removed.
pub(super) fn run(arguments: &arguments::Remove) -> Result<ExitCode, Failure> {
    let store = Store::of_user();
    for name in &arguments.recordings {
        store.remove(&store.find(Some(name))?)?;
    }
    Ok(ExitCode::SUCCESS)
}
