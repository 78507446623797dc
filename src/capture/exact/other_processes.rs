//! Looks at what other processes map. Shared memory that they may write is foreign (`foreign`).

use crate::common::Pid;
use crate::sideband::{Mapping, parse_maps};
use crate::tracee::{real_user_id, start_time};
use std::fs;
use std::io;

/// Memory that other processes can write.
#[derive(Debug, Default)]
pub(super) struct WritableElsewhere {
    /// The given mappings whose file another process can write, by a mapping of that file.
    pub mappings: Vec<Mapping>,
    /// True if there is a process whose mappings cannot be read, and which may be a child of the
    /// program, so that `mappings` may lack some.
    pub is_partly_unknown: bool,
}

/// Reads the mappings of all processes (/proc/PID/maps), and returns which of some shared mappings
/// of the process `own` others can write. A shared mapping that may not even be read counts as one
/// that can be written, since another recorder may have closed it. Skips processes whose mappings
/// cannot be read, but sets `is_partly_unknown` if one of them may be a child. Takes long where
/// there are many processes.
pub(super) fn written_by_others(own: Pid, mappings: &[Mapping]) -> WritableElsewhere {
    let mut written = WritableElsewhere::default();
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    for pid in pids.map(Pid).filter(|pid| *pid != own) {
        let text = match fs::read_to_string(format!("/proc/{pid}/maps")) {
            Ok(text) => text,
            Err(error) => {
                let is_refused = error.kind() == io::ErrorKind::PermissionDenied;
                written.is_partly_unknown |= is_refused && may_be_child(pid, own);
                continue;
            }
        };
        let Ok(maps) = parse_maps(&text) else { continue };
        // A mapping that cannot be read may be foreign memory that another recorder closed: made
        // inaccessible while its program executes.
        let may_write =
            |m: &Mapping| m.protection.shared && (m.protection.write || !m.protection.read);
        for mapping in mappings {
            if maps.iter().any(|m| may_write(m) && m.is_same_file(mapping))
                && !written.mappings.contains(mapping)
            {
                written.mappings.push(mapping.clone());
            }
        }
    }
    written
}

/// Returns true if a process may be a forked child of `parent`, by its user and its start time:
/// they have the same real user, and the child started no earlier. (Only the superuser's children
/// change their user, and the superuser may read all mappings.)
fn may_be_child(pid: Pid, parent: Pid) -> bool {
    let is_later = match (start_time(pid), start_time(parent)) {
        (Some(started), Some(parent)) => started >= parent,
        _ => true,
    };
    is_later && real_user_id(pid) == real_user_id(parent)
}
