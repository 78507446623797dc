//! Processes that are left to themselves: taken out of the code cache, without a trace of the
//! recorder, and detached from.

use super::engine::Engine;
use super::exact::Registers;
use super::feed::Item;
use super::process::Process;
use super::thread::Thread;
use crate::capture::Error;
use crate::common::{Addr, AddrRange, Pid, Tid};
use crate::tracee::{Signo, Stop, executable, wait_for};

const SETRLIMIT: u64 = 160;
const PRCTL: u64 = 157;
const PRLIMIT64: u64 = 302;
const SECCOMP: u64 = 317;
/// The calls after which a process may have to be left.
pub(super) const LEAVING_CALLS: [u64; 4] = [SETRLIMIT, PRCTL, PRLIMIT64, SECCOMP];
const PR_SET_DUMPABLE: u64 = 4;
const PR_SET_SECCOMP: u64 = 22;
const SECCOMP_SET_MODE_FILTER: u64 = 1;
const RLIMIT_AS: u64 = libc::RLIMIT_AS as u64;
const EVERYWHERE: AddrRange = AddrRange::new(Addr(0), Addr(u64::MAX));

/// What a thread that stands before a system call is about to do that no recorder may be in the
/// way of.
pub(super) fn reason_to_leave(number: u64, r: &Registers) -> Option<&'static str> {
    let limits_space = match number {
        SETRLIMIT => r.rdi == RLIMIT_AS,
        PRLIMIT64 => r.rsi == RLIMIT_AS && r.rdx != 0,
        _ => false,
    };
    let filters = match number {
        PRCTL => r.rdi == PR_SET_SECCOMP,
        SECCOMP => r.rdi <= SECCOMP_SET_MODE_FILTER,
        _ => false,
    };
    if limits_space {
        return Some("limits its address space, which the recorder needs a part of,");
    }
    if filters {
        // Those that the recorder makes it do would be filtered as well.
        return Some("filters its system calls (seccomp)");
    }
    // What is mapped where is hidden then even from a tracer (`__ptrace_may_access` in the kernel).
    let hides = number == PRCTL && r.rdi == PR_SET_DUMPABLE && r.rsi == 0;
    let may_look = nix::unistd::geteuid().is_root();
    (hides && !may_look).then_some("forbids that it is looked into (PR_SET_DUMPABLE)")
}

impl Engine<'_> {
    /// The process does something that cannot be recorded: its recording ends here, and it goes on
    /// by itself.
    pub(super) fn leave_alone(&mut self, pid: Pid, why: &str) -> Result<(), Error> {
        let path = executable(pid).map(|path| path.display().to_string()).unwrap_or_default();
        self.notes.push(format!("process {pid} {why} ({path}) and is recorded up to there"));
        self.release(pid);
        let of_process = self.threads.values().filter(|thread| thread.pid == pid);
        let tids: Vec<Tid> = of_process.map(Thread::tid).collect();
        self.threads.retain(|_, thread| thread.pid != pid);
        if let Some(process) = self.processes.get_mut(&pid) {
            for tid in tids {
                process.thread_ended(tid, None);
            }
        }
        // The recorder's own child tells of its end even now.
        let is_child = pid == self.program && self.leaving.is_none();
        if is_child { Ok(()) } else { self.finish(pid, None) }
    }

    /// Takes a process out of the cache and detaches from it.
    pub(super) fn release(&mut self, pid: Pid) {
        let Some(process) = self.processes.get_mut(&pid) else { return };
        let threads = self.threads.values_mut().filter(|thread| thread.pid == pid);
        // What is gone cannot be detached from, and need not be.
        let stopped: Vec<_> = threads
            .filter_map(|thread| stop(process, thread).ok().map(|signal| (thread.tracee, signal)))
            .collect();
        if let Some((tracee, _)) = stopped.iter().find(|(_, signal)| *signal != libc::SIGKILL) {
            let masked = process.space.masked_in(EVERYWHERE);
            let mut pages = masked.into_iter();
            let unprotected = pages.try_for_each(|page| process.unprotect(*tracee, page));
            // If that fails, it is as it is.
            let _ = unprotected.and_then(|()| process.window.leave(*tracee, &process.memory));
        }
        for (tracee, signal) in stopped {
            let _ = tracee.detach(signal);
        }
    }
}

/// Stops a thread and gives it its own registers. Gives the signal that it is to have.
fn stop(process: &mut Process, thread: &mut Thread) -> Result<Signo, Error> {
    let tracee = thread.tracee;
    let mut signal = 0;
    if tracee.interrupt().is_ok() && tracee.registers().is_err() {
        match wait_for(tracee.0)? {
            Stop::Signal(libc::SIGTRAP) => {}
            Stop::Signal(number) => signal = number,
            _ => {}
        }
    }
    if process.make_exact(thread).is_err() {
        signal = libc::SIGKILL;
    } else {
        let ip = tracee.registers()?.rip;
        process.tell(thread.tid(), Item::Leave { ip });
    }
    Ok(signal)
}
