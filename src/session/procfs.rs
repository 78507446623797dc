//! The files of /proc from which gdb reads the mappings of a process: for `info proc mappings`, and
//! for the core file that it writes.

use crate::common::Pid;
use crate::sideband::Mapping;
use std::fmt::Write;
use std::path::Path;

/// Returns true if `path` is the list of a process's mappings: `/proc/PID/maps`, or that of its
/// first thread, `/proc/PID/task/PID/maps`.
pub(super) fn is_maps_path(path: &Path, pid: Pid) -> bool {
    let names = [format!("/proc/{0}/maps", pid.0), format!("/proc/{0}/task/{0}/maps", pid.0)];
    names.iter().any(|name| path == Path::new(name))
}

/// Returns the text of `/proc/PID/maps` for these mappings, in their order. Every line has the
/// device 00:00: that of the recorded run is not known.
pub(super) fn maps_text(mappings: &[Mapping]) -> String {
    let mut text = String::new();
    for mapping in mappings {
        let (range, protection) = (mapping.range, mapping.protection);
        let letter = |is_set, letter| if is_set { letter } else { '-' };
        // Writes to a string cannot fail.
        let _ = write!(
            text,
            "{:08x}-{:08x} {}{}{}{} {:08x} 00:00 {} ",
            range.start.0,
            range.end.0,
            letter(protection.read, 'r'),
            letter(protection.write, 'w'),
            letter(protection.execute, 'x'),
            if protection.shared { 's' } else { 'p' },
            mapping.offset,
            mapping.inode,
        );
        if !mapping.name.is_empty() {
            let _ = write!(text, "{:26}{}", "", mapping.name);
        }
        text.push('\n');
    }
    text
}
