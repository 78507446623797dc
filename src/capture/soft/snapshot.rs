//! Writes the contents of the rings while the program runs, when a requester asks for it
//! (`crate::capture::snapshot`): counts the snapshot as started, stops the threads that execute
//! code, sends the records in all rings to the encoder, waits for their packets, writes them,
//! counts the snapshot as written, and resumes the threads.
//!
//! The records of threads that wait in the kernel are complete up to their system calls, so these
//! are not stopped.

use super::engine::Engine;
use super::process::Process;
use super::thread::{Activity, Thread};
use crate::capture::Error;
use crate::capture::error::gone_is_fine;
use crate::common::{Pid, Tid};
use crate::tracee::{Stop, Tracee, process_status};
use std::collections::BTreeSet;

impl Engine {
    /// Writes a snapshot: encodes the records that the rings of all threads contain, and writes
    /// them. Threads that execute code are stopped for it, and resumed. Reports start and end to
    /// the requester.
    pub(super) fn snapshot(&mut self) -> Result<(), Error> {
        self.processes.values_mut().for_each(|process| process.recorder.begin_snapshot());
        self.stop_running_threads()?;
        for thread in self.threads.values_mut() {
            if let Some(process) = self.processes.get_mut(&thread.pid()) {
                process.send_snapshot(thread);
            }
        }
        for (pid, process) in &mut self.processes {
            // Buffers may be overwritten once threads go on.
            process.tracer.wait_until_encoded(Tid(pid.0));
            process.write_packets()?;
            process.recorder.end_snapshot()?;
        }
        let stopped = self.threads.values().filter(|thread| thread.activity == Activity::Stopped);
        let tids: Vec<Tid> = stopped.map(Thread::tid).collect();
        tids.into_iter().try_for_each(|tid| self.with_thread(tid, Process::resume_in_cache))
    }

    /// Stops all threads that execute code: each waits outside the cache as [`Activity::Stopped`],
    /// at its exit stop, or in a group stop. Waits until they are there. Handles all other stops
    /// that come.
    fn stop_running_threads(&mut self) -> Result<(), Error> {
        let mut awaited: BTreeSet<Tid> =
            self.threads.values().filter(|thread| executes_code(thread)).map(Thread::tid).collect();
        for tid in &awaited {
            gone_is_fine(Tracee(*tid).interrupt())?;
        }
        loop {
            let is_stopped =
                |t: &Thread| matches!(t.activity, Activity::Stopped | Activity::AtExitStop);
            awaited.retain(|tid| self.threads.get(tid).is_some_and(|thread| !is_stopped(thread)));
            if awaited.is_empty() {
                return Ok(());
            }
            let Some((tid, stop)) = self.wait()? else { continue };
            if matches!(stop, Stop::Group(_)) {
                // Job control stopped the thread: its records are complete.
                awaited.remove(&tid);
                self.handle(tid, stop)?;
            } else if !self.move_out_if_interrupted(tid, stop, Process::halt)? {
                self.handle(tid, stop)?;
            }
        }
    }
}

/// Returns true if a thread executes code, or is at a stop that was not handled yet. The records of
/// other threads, which wait in the kernel, are complete.
fn executes_code(thread: &Thread) -> bool {
    let letter = process_status(Pid(thread.tid().0)).map(|state| state.letter);
    thread.activity == Activity::Running && matches!(letter, Some('R' | 't'))
}

impl Process {
    /// Sends all records of a thread so far to the encoder.
    fn send_snapshot(&mut self, thread: &mut Thread) {
        if thread.activity == Activity::Running {
            self.send_known_records(thread);
        }
        self.send_kept_so_far(thread.tid());
    }
}
