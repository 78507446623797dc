//! `contraflow snapshot`: makes a running recorder write the contents of its rings, the trace
//! buffers that keep the end of a history only, to the recording.

use super::{Failure, arguments, quoted, say};
use crate::capture::{recorder_of, snapshot};
use crate::recording::Store;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

pub(super) fn run(arguments: &arguments::Snapshot) -> Result<ExitCode, Failure> {
    let store = Store::of_user();
    let dir = match &arguments.recording {
        Some(name) => store.find(Some(name))?,
        None => latest(&store)?,
    };
    snapshot(&dir, Duration::from_secs(arguments.timeout))?;
    say(&format!("the history of {} up to now is on the disk", dir.display()));
    let in_store = dir.parent().is_some_and(|parent| store.is_at(parent));
    let name = dir.file_name().filter(|_| in_store).unwrap_or(dir.as_os_str());
    say(&format!("step through it with: contraflow replay {}", quoted::for_user(name)));
    Ok(ExitCode::SUCCESS)
}

/// Returns the latest recording of the store that is still being recorded.
fn latest(store: &Store) -> Result<PathBuf, Failure> {
    let entries = store.list()?.into_iter().rev();
    let found = entries.map(|entry| entry.path).find(|dir| recorder_of(dir).is_some());
    found.ok_or_else(|| {
        "no recording of the store is being recorded; name the directory of one that is elsewhere".into()
    })
}
