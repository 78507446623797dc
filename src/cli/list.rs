//! `contraflow list`: the recordings of the store, oldest first, with the start time and ID of each
//! process, which distinguish the forks of one run.

use super::Failure;
use super::record::signal_name;
use crate::common::Visible;
use crate::gdb::date;
use crate::recording::{BackendName, Exit, Reader, Store, StoredRecording};
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

/// The number of characters of a date up to its minute: `2000-02-29 12:34`.
const MINUTE_CHARS: usize = 16;
/// The maximum number of bytes of a thread's name (`TASK_COMM_LEN` without its NUL): the kernel
/// cuts longer names.
const NAME_BYTES: usize = 15;

/// Prints a line for each recording. One that cannot be opened is no error: its line has the
/// reason.
pub(super) fn run() -> Result<ExitCode, Failure> {
    let mut out = std::io::stdout().lock();
    for entry in Store::of_user().list()? {
        let name = Visible(&entry.name).to_string();
        writeln!(out, "{name:<20} {}", Visible(line(&entry)))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the line of a recording without its name: its start in UTC, process, ending and command,
/// or why it cannot be opened.
fn line(entry: &StoredRecording) -> String {
    match &entry.opened {
        Ok(reader) => {
            let manifest = reader.manifest();
            let started = date(manifest.started_unix_ns);
            let (minute, _) = started.split_at_checked(MINUTE_CHARS).unwrap_or((&started, ""));
            let command = manifest.argv.join(" ");
            let name = last_name(reader).map(|name| format!(" (ended as {name})"));
            let name = name.unwrap_or_default();
            format!("{minute}  pid {}  {}  {command}{name}", manifest.pid, ending_text(reader))
        }
        Err(error) => format!("cannot be opened: {}", error.kind),
    }
}

/// Returns the name that the process had at its end: a forked process begins with the arguments of
/// its parent, and executes another program. `None` if it is that of its program, or the beginning
/// of that, to which the kernel cuts longer names; also if it is unknown.
fn last_name(reader: &Reader) -> Option<&str> {
    let manifest = reader.manifest();
    let threads = &manifest.end.as_ref()?.threads;
    let name = &threads.iter().find(|thread| thread.tid.0 == manifest.pid.0)?.name;
    let program = Path::new(&manifest.program).file_name()?.to_str()?;
    (!name.is_empty() && !is_name_of(name, program)).then_some(name)
}

/// Returns true if the kernel gives this name to a process that executes the file `program`.
fn is_name_of(name: &str, program: &str) -> bool {
    name == program || name.len() == NAME_BYTES && program.starts_with(name)
}

/// Returns how the run ended, and its length in instructions, or in entries and ticks of the log,
/// such as `exit 0, 1234 instructions`. Says so if the recording is cut, or was imported. An exact
/// recording without a log has no length.
pub(super) fn ending_text(reader: &Reader) -> String {
    let Some(end) = &reader.manifest().end else {
        return "cut: the recorder was killed, or is still running".to_owned();
    };
    let how = match end.exit {
        Some(Exit::Code(code)) => format!("exit {code}"),
        Some(Exit::Signal(signal)) => signal_name(signal),
        None if reader.manifest().capture.import.is_some() => "imported".to_owned(),
        None => "detached".to_owned(),
    };
    match end.log {
        Some(log) => format!("{how}, {} entries, {} ticks", log.entries, log.ticks),
        None if reader.manifest().capture.backend == BackendName::Exact => how,
        None => format!("{how}, {} instructions", end.instructions),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_name_that_the_kernel_cuts_is_a_part_of_the_programs() {
        for (name, program, expected) in [
            ("ls", "ls", true),
            ("ls", "lsx", false),
            ("python3", "python3.11", false),
            ("a-program-with-a", "a-program-with-a-long-name", false),
            ("a-program-with-", "a-program-with-a-long-name", true),
        ] {
            assert_eq!(is_name_of(name, program), expected, "{name} {program}");
        }
    }
}
