//! Looks at what other processes map: memory that they may write is foreign.

use crate::common::Pid;
use crate::sideband::{Mapping, parse_maps};
use crate::tracee::{real_user, started};
use std::fs;
use std::io;

/// Memory that other processes can write.
#[derive(Debug, Default)]
pub(super) struct Written {
    /// Of the mappings that were asked for, those that another process has.
    pub mappings: Vec<Mapping>,
    /// True if the mappings of a process cannot be read that may be a child of the program's.
    pub is_partly_unknown: bool,
}

/// Returns which of some shared mappings processes other than `own` can write.
pub(super) fn written_by_others(own: Pid, mappings: &[Mapping]) -> Written {
    let mut written = Written::default();
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
        // Another recorder closes it for its program.
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

/// Returns true if a process may be a copy of `parent`, as far as users and times tell: only the
/// superuser's copies change their user, and the superuser may read all mappings.
fn may_be_child(pid: Pid, parent: Pid) -> bool {
    let is_later = match (started(pid), started(parent)) {
        (Some(started), Some(parent)) => started >= parent,
        _ => true,
    };
    is_later && real_user(pid) == real_user(parent)
}
