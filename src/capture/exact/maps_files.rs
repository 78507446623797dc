//! The files with the program's mappings that it opens itself (/proc/PID/maps and smaps, proc(5)).
//! It gets copies without the recorder's mappings, whose addresses and bytes a replay does not
//! have.

use super::files::Opened;
use super::process::Process;
use super::thread::Thread;
use crate::capture::Error;
use crate::syscalls::Call;
use crate::tracee;
use crate::tracee::call_numbers::{CLOSE, DUP3, MEMFD_CREATE, OPEN, OPENAT, OPENAT2};
use std::fs::{self, OpenOptions};
use std::io::Write;

const LISTS: [&str; 2] = ["maps", "smaps"];
const CLOEXEC: u64 = libc::O_CLOEXEC as u64;

impl Process {
    /// Puts a copy without the recorder's mappings in the place of a list that a completed call of
    /// `thread` opened: its descriptor then refers to a file without a name, which the thread is
    /// made to create. Does nothing after other calls, or if the copy cannot be made.
    pub(super) fn hide_recorder_mappings(
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
        let written =
            to.and_then(|mut to| to.write_all(tracee::list_without(&list, hidden).as_bytes()));
        if written.is_ok() {
            let flags = self.flags_of(*fd).unwrap_or(0) & CLOEXEC;
            tracee.inject(gadget, DUP3, [copy, *fd, flags, 0, 0, 0])?;
        }
        tracee.inject(gadget, CLOSE, [copy, 0, 0, 0, 0, 0])?;
        Ok(())
    }
}
