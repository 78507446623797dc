//! Writes the contents of the rings while the program runs. Running threads stop for a moment; the
//! records of threads that wait in the kernel are complete up to their system calls.

use super::engine::Engine;
use super::process::Process;
use super::thread::{Doing, Thread};
use crate::capture::Error;
use crate::capture::error::gone_is_fine;
use crate::common::{Pid, Tid};
use crate::tracee::{Stop, Tracee, state};
use std::collections::BTreeSet;

impl Engine {
    /// Writes a snapshot: the records that the rings contain, of all threads. Running threads are
    /// stopped for it and resumed.
    pub(super) fn snapshot(&mut self) -> Result<(), Error> {
        self.processes.values_mut().for_each(|process| process.recorder.begin_snapshot());
        self.hold_running()?;
        for thread in self.threads.values_mut() {
            if let Some(process) = self.processes.get_mut(&thread.pid()) {
                process.take_snapshot(thread);
            }
        }
        for (pid, process) in &mut self.processes {
            // Buffers may be overwritten once threads go on.
            process.tracer.settle(Tid(pid.0));
            process.write_packets()?;
            process.recorder.end_snapshot()?;
        }
        let standing = self.threads.values().filter(|thread| thread.doing == Doing::Standing);
        let tids: Vec<Tid> = standing.map(Thread::tid).collect();
        tids.into_iter().try_for_each(|tid| self.with(tid, Process::go_on_in_cache))
    }

    /// Stops all running threads outside the cache.
    fn hold_running(&mut self) -> Result<(), Error> {
        let mut awaited: BTreeSet<Tid> =
            self.threads.values().filter(|thread| runs(thread)).map(Thread::tid).collect();
        for tid in &awaited {
            gone_is_fine(Tracee(*tid).interrupt())?;
        }
        loop {
            let stands = |t: &Thread| matches!(t.doing, Doing::Standing | Doing::AtEnd);
            awaited.retain(|tid| self.threads.get(tid).is_some_and(|thread| !stands(thread)));
            if awaited.is_empty() {
                return Ok(());
            }
            let Some((tid, stop)) = self.wait()? else { continue };
            if matches!(stop, Stop::Group(_)) {
                // Job control stopped the thread: its records are complete.
                awaited.remove(&tid);
                self.handle(tid, stop)?;
            } else if !self.bring_out(tid, stop, Process::halt)? {
                self.handle(tid, stop)?;
            }
        }
    }
}

/// Returns true if a thread executes code, or is at a stop that was not handled yet. The records of
/// other threads, which wait in the kernel, are complete.
fn runs(thread: &Thread) -> bool {
    let letter = state(Pid(thread.tid().0)).map(|state| state.letter);
    thread.doing == Doing::Running && matches!(letter, Some('R' | 't'))
}

impl Process {
    /// Sends all records of a thread so far to the encoder.
    fn take_snapshot(&mut self, thread: &mut Thread) {
        if thread.doing == Doing::Running {
            self.note_so_far(thread);
        }
        self.send_kept_so_far(thread.tid());
    }
}
