//! Lists of the program's mappings that it opens itself (proc(5)): without the recorder's mappings,
//! whose addresses and bytes a replay does not have.

use super::files::Opened;
use super::process::Process;
use super::thread::Thread;
use crate::capture::Error;
use crate::common::{Addr, AddrRange};
use crate::syscalls::Call;
use crate::tracee::call_numbers::{CLOSE, DUP3, MEMFD_CREATE, OPEN, OPENAT, OPENAT2};
use std::fs::{self, OpenOptions};
use std::io::Write;

const LISTS: [&str; 2] = ["maps", "smaps"];
const CLOEXEC: u64 = libc::O_CLOEXEC as u64;

impl Process {
    /// Puts a copy without the recorder's mappings in the place of a list that a call opened.
    pub(super) fn hide_own_mappings(
        &self,
        thread: &Thread,
        call: &Call,
        opened: Option<&Opened>,
    ) -> Result<(), Error> {
        let name = match call.number {
            OPEN => call.args[0],
            OPENAT | OPENAT2 => call.args[1],
            _ => return Ok(()),
        };
        let Some(Opened { fd, path }) = opened else { return Ok(()) };
        let is_list = LISTS.iter().any(|list| path.ends_with(list));
        if !is_list || !path.starts_with(format!("/proc/{}", self.pid())) {
            return Ok(());
        }
        let Ok(list) = fs::read_to_string(format!("/proc/{}/fd/{fd}", self.pid())) else {
            return Ok(());
        };
        let (tracee, gadget) = (thread.tracee(), self.engine.gadget());
        let Ok(copy) = u64::try_from(tracee.inject(gadget, MEMFD_CREATE, [name, 0, 0, 0, 0, 0])?)
        else {
            return Ok(());
        };
        let to = OpenOptions::new().write(true).open(format!("/proc/{}/fd/{copy}", self.pid()));
        let hidden = self.engine.space.hidden();
        let written = to.and_then(|mut to| to.write_all(without(&list, hidden).as_bytes()));
        if written.is_ok() {
            let flags = self.flags_of(*fd).unwrap_or(0) & CLOEXEC;
            tracee.inject(gadget, DUP3, [copy, *fd, flags, 0, 0, 0])?;
        }
        tracee.inject(gadget, CLOSE, [copy, 0, 0, 0, 0, 0])?;
        Ok(())
    }
}

/// Returns a list of mappings without some, and without the lines about those.
fn without(list: &str, hidden: &[AddrRange]) -> String {
    let mut is_hidden = false;
    let kept = list.split_inclusive('\n').filter(|line| {
        if let Some(range) = range_of(line) {
            is_hidden = hidden.iter().any(|hidden| hidden.overlaps(range));
        }
        !is_hidden
    });
    kept.collect()
}

/// Returns the addresses that begin a line; none if it is about the mapping of a line before it.
fn range_of(line: &str) -> Option<AddrRange> {
    let (start, end) = line.split_once(' ')?.0.split_once('-')?;
    let number = |text| u64::from_str_radix(text, 16).ok().map(Addr);
    Some(AddrRange::new(number(start)?, number(end)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_of_hidden_mappings_are_left_out() {
        let smaps = "1000-3000 r-xp 0 00:00 0 /a\nSize: 8 kB\nVmFlags: rd ex\n\
                     3000-5000 rw-s 0 00:01 7 /memfd:x\nSize: 8 kB\nVmFlags: rd wr\n\
                     5000-6000 rw-p 0 00:00 0 \nSize: 4 kB\n";
        let hidden = [AddrRange::new(Addr(0x3000), Addr(0x5000))];
        let left = "1000-3000 r-xp 0 00:00 0 /a\nSize: 8 kB\nVmFlags: rd ex\n\
                    5000-6000 rw-p 0 00:00 0 \nSize: 4 kB\n";
        assert_eq!(without(smaps, &hidden), left);
        assert_eq!(without("", &hidden), "");
    }
}
