//! Attaches to a running process, whose threads are all stopped anywhere in the program, and
//! records it from there:
//!
//! 1. Threads that are in a system call are moved out of it: before a call that the kernel would
//!    *restart* (make again, `crate::capture::restart`), otherwise after it.
//! 2. Their restartable sequences (rseq(2)) are ended, since the kernel would set the thread's IP
//!    to the program's code. An area for trace buffers is prepared for each thread.
//! 3. Each thread enters the code cache. None is resumed before all have.

use super::engine::Engine;
use super::process::Process;
use super::thread::Thread;
use crate::capture::Error;
use crate::capture::recorder::Prepared;
use crate::capture::restart::registers_outside_call;
use crate::capture::unrecordable::{FORBIDS_TIME, PR_TSC_SIGSEGV};
use crate::common::{Pid, Tid};
use crate::engine::Place;
use crate::tracee::{self, Tracee, USER_CS_64};

impl Engine {
    /// Begins to record the program, whose threads `tids` are all stopped anywhere in it, and
    /// resumes them in the code cache. Returns an error, and removes the recording, if a thread
    /// runs 32-bit code. Without threads, removes it and returns `Ok`. After any later error, such
    /// as that of a thread that forbade itself the time-stamp counter, the recording stays, and is
    /// the store's latest.
    pub(super) fn record_running(&mut self, prepared: Prepared, tids: &[Tid]) -> Result<(), Error> {
        let pid = self.program;
        let refused = tids.iter().try_for_each(|&tid| move_outside_call(Tracee(tid), pid));
        let Some(&first) = tids.first().filter(|_| refused.is_ok()) else {
            prepared.give_up();
            return refused;
        };
        prepared.set_latest(&self.request.store)?;
        let mut process = Process::start(prepared, &self.request, pid, Tracee(first), None)?;
        let mut sequences = Vec::new();
        for &tid in tids {
            sequences.push(process.engine.forbid_rseq(Tracee(tid))?);
            process.engine.prepare_area(Tracee(first))?;
        }
        // The engine keeps each prepared area for its thread until it is settled. Now there is one
        // for each thread, which `add_thread` takes below.
        for _ in tids {
            process.engine.settle_prepared_area();
        }
        process.engine.read_actions(Tracee(first))?;
        process.was_running = true;
        self.processes.insert(pid, process);
        for (&tid, rseq) in tids.iter().zip(sequences) {
            self.add_thread(tid, pid, Place::Program)?;
            self.with_thread(tid, |process, thread| {
                thread.rseq = rseq;
                process.check_tsc_allowed(thread)?;
                process.trace_and_enter(thread)
            })?;
        }
        // No thread runs before all are in the cache: it could change code that another one
        // executes.
        tids.iter().try_for_each(|&tid| {
            self.with_thread(tid, |_, thread| Ok(thread.tracee().resume(0)?))
        })
    }
}

impl Process {
    /// Returns an error if a thread forbade itself the time-stamp counter, which the code cache
    /// reads.
    fn check_tsc_allowed(&self, thread: &Thread) -> Result<(), Error> {
        if self.engine.tsc_mode(&thread.translated)? == Some(PR_TSC_SIGSEGV) {
            let why = format!("thread {} of it {FORBIDS_TIME}", thread.tid());
            return Err(tracee::Error::NotAttachable { pid: thread.pid(), why }.into());
        }
        Ok(())
    }
}

/// Sets the registers of a stopped thread as if it were outside of the system call that it is in,
/// if any: before one that the kernel would restart, otherwise after it. Does not resume it.
/// Returns an error if the thread runs 32-bit code.
fn move_outside_call(tracee: Tracee, pid: Pid) -> Result<(), Error> {
    let registers = tracee.registers()?;
    if registers.cs != USER_CS_64 {
        let why = "it runs 32-bit code".to_owned();
        return Err(tracee::Error::NotAttachable { pid, why }.into());
    }
    Ok(tracee.set_registers(&registers_outside_call(&registers))?)
}
