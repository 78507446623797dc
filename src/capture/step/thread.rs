//! A thread that is being stepped.

use super::trap::{Ignored, Trap};
use crate::capture::debug_registers::Watched;
use crate::capture::debugged::{DebuggedThread, Pending};
use crate::capture::error::gone_is_fine;
use crate::capture::{Error, final_state};
use crate::common::{Addr, Pid, Tid};
use crate::encode::Path;
use crate::image::core;
use crate::insn::Insn;
use crate::tracee::call_numbers::EXECVE;
use crate::tracee::{SiginfoBytes, Signo, Tracee};

/// What a thread is doing, as far as its tracer knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doing {
    /// Stands still, ready to be stepped.
    Ready,
    /// Executes an instruction of the program: its stop comes soon.
    Stepping,
    /// Executes a system call: its stop comes when the call is done.
    InCall,
    /// Stopped with its process by job control.
    Stopped,
    /// Stands at its end, with its registers read, until all of its process do.
    AtEnd,
}

/// A system call that a thread entered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call {
    pub(super) number: u64,
    pub(super) args: [u64; 6],
    /// Whether the kernel has begun it.
    pub(super) entered: bool,
    /// What it makes of SIGTRAP, if it does.
    pub(super) ignores: Option<Ignored>,
    /// Whether the path has the instruction already.
    pub(super) retired: bool,
}

impl Call {
    /// The execve(2) that a launched program begins in, of which its path tells nothing.
    pub(super) fn executing() -> Self {
        let number = EXECVE;
        let args = [0; 6];
        Self { number, args, entered: true, ignores: None, retired: true }
    }
}

/// A stepped thread.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each becomes true and false at its own time")]
pub(in crate::capture) struct Thread {
    pub(super) tracee: Tracee,
    pub(super) pid: Pid,
    pub(super) doing: Doing,
    /// The address of the next instruction.
    pub(super) ip: Addr,
    /// The instruction there, once it was looked at.
    pub(super) insn: Option<Insn>,
    pub(super) path: Path,
    /// The signal to deliver when it goes on; 0: none.
    pub(super) deliver: Signo,
    pub(super) siginfo: Option<SiginfoBytes>,
    pub(super) call: Option<Call>,
    /// Where the system call stands that the kernel is about to make again, unless a handler runs.
    pub(super) restarts: Option<Addr>,
    pub(super) trap: Trap,
    pub(super) ending: Option<core::Thread>,
    /// It has executed something, or entered a handler, since a debugger let it go on.
    pub(super) moved: bool,
    /// It executes what it stands at, even where it is to stop.
    pub(super) passes: bool,
    /// It is to stand still: no system call of it is made again.
    pub(super) halts: bool,
    /// It was taken out of a stop by job control, to which it goes back.
    pub(super) group_stopped: bool,
    /// Another program begins in it.
    pub(super) executed: bool,
    /// The signal to deliver waits for the debugger.
    pub(super) held: bool,
    /// What the debugger is to hear of it.
    pub(super) pending: Pending,
    pub(super) watched: Watched,
    /// The system call before which the debugger looked at it.
    pub(super) caught: Option<u64>,
    /// The system call that it has made.
    pub(super) returned: Option<u64>,
    /// The debugger was told of that call's beginning.
    pub(super) reported_entry: bool,
    /// The child that its call has made.
    pub(super) forked: Option<Pid>,
    /// It stands or is in a call that waits for its child.
    pub(super) waits: bool,
}

impl Thread {
    pub(super) fn new(tid: Tid, pid: Pid, ip: Addr, path: Path) -> Self {
        Self {
            tracee: Tracee(tid),
            pid,
            doing: Doing::Ready,
            ip,
            insn: None,
            path,
            deliver: 0,
            siginfo: None,
            call: None,
            restarts: None,
            trap: Trap::default(),
            ending: None,
            moved: false,
            passes: false,
            halts: false,
            group_stopped: false,
            executed: false,
            held: false,
            pending: Pending::default(),
            watched: Watched::default(),
            caught: None,
            returned: None,
            reported_entry: false,
            forked: None,
            waits: false,
        }
    }

    pub(super) fn tid(&self) -> Tid {
        self.tracee.0
    }

    /// The instruction that the last step was about was executed.
    pub(super) fn retire(&mut self, insn: &Insn, next: Addr) {
        self.path.retire(insn, next);
        self.ip = next;
        self.insn = None;
        (self.moved, self.passes, self.pending.reported) = (true, false, None);
    }

    /// The thread goes on at `ip`, by no instruction of its own.
    pub(super) fn divert(&mut self, ip: Addr) {
        self.path.interrupt(self.ip);
        self.ip = ip;
        (self.insn, self.caught) = (None, None);
        (self.moved, self.passes, self.pending.reported) = (true, false, None);
    }

    /// Job control stops the process.
    pub(super) fn stop_with_process(&mut self) -> Result<(), Error> {
        if self.halts {
            self.group_stopped = true;
            return Ok(());
        }
        self.doing = Doing::Stopped;
        gone_is_fine(self.tracee.listen())
    }
}

impl DebuggedThread for Thread {
    fn process(&self) -> Pid {
        self.pid
    }

    fn pending(&mut self) -> &mut Pending {
        &mut self.pending
    }

    fn is_at_end(&self) -> bool {
        self.doing == Doing::AtEnd
    }

    fn begins_program(&self) -> bool {
        self.executed
    }

    fn next_ip(&self) -> Option<Addr> {
        self.is_in_program().then_some(self.ip)
    }

    fn held(&mut self) -> Option<&mut SiginfoBytes> {
        self.siginfo.as_mut().filter(|_| self.held)
    }

    fn state(&self) -> Option<core::Thread> {
        if self.doing == Doing::AtEnd || self.waits && self.doing == Doing::InCall {
            return self.ending.clone();
        }
        let held = self.siginfo.filter(|_| self.held);
        final_state::thread(self.tracee, held.or(self.pending.siginfo))
    }
}
