//! A thread of an exactly recorded program.

use super::debug_session::DebugState;
use super::effects::Before;
use super::scratch::Scratch;
use crate::common::Tid;
use crate::engine::{Running, TranslatedThread};
use crate::image::core;
use crate::insn::Registers;
use crate::recording::log::Bytes;
use crate::syscalls::{Call, OpenCall, Registered};
use crate::tracee::{Rseq, SiginfoBytes, Stop, Tracee};

/// The activity of a thread.
#[derive(Debug)]
pub(super) enum Doing {
    /// It executes the program, when it has the token.
    Runs,
    /// It is in a system call.
    Calls(Box<Calling>),
    /// It is at its exit stop.
    AtEnd,
}

/// A system call that a thread has begun.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "facts that hold independently of each other")]
pub(super) struct Calling {
    pub(super) call: Call,
    /// The effects of the call, as far as they are known before it.
    pub(super) open: OpenCall,
    /// The thread's registers before the call.
    pub(super) registers: Registers,
    /// The memory before a call whose effects the model does not know.
    pub(super) before: Option<Before>,
    /// The size in bytes, before the call, of the file that it changes; 0 if that does not matter.
    pub(super) size_before: u64,
    /// True if the kernel may use foreign memory until the call returns.
    pub(super) uses_foreign: bool,
    /// True if foreign memory may have been closed since the call was begun.
    pub(super) was_closed: bool,
    /// True if it is made once more, with all foreign memory open.
    pub(super) is_repeated: bool,
    /// The buffers that the kernel fills in place of the program's.
    pub(super) scratch: Scratch,
    /// The extended state before the call, if the call may block while others run: it cannot be
    /// read in the call.
    pub(super) extended: Option<Bytes>,
    /// True once the log has the call's `Enters`: other threads may run before it is done.
    pub(super) is_logged: bool,
    /// The SIGSYS by which a filter of the program answered the call.
    pub(super) trapped: Option<SiginfoBytes>,
}

/// The last state of a thread, at its exit stop.
#[derive(Clone, Debug)]
pub(super) struct Ending {
    pub(super) state: core::Thread,
    /// The number of the system call in which it was killed, if the log has the call's `Enters`.
    pub(super) call: Option<u64>,
}

/// A recorded thread.
#[derive(Debug)]
pub(in crate::capture) struct Thread {
    pub(super) translated: TranslatedThread,
    pub(super) doing: Doing,
    /// A run in the code cache that is to go on, after a stop that was not the program's.
    pub(super) running: Option<Running>,
    /// A stop that was seen, and not handled yet.
    pub(super) stop: Option<Stop>,
    /// The ticks that it executed since its last entry in the log.
    pub(super) ticks: u64,
    /// The pointers that it registered with the kernel, which writes through them when it ends.
    pub(super) registered: Registered,
    /// The number of the call that its `restart_syscall(2)` makes again.
    pub(super) restarts: Option<u64>,
    /// The restartable sequences (rseq(2)) to register again when the recording ends.
    pub(super) rseq: Option<Rseq>,
    /// The last signal that was delivered to it.
    pub(super) siginfo: Option<SiginfoBytes>,
    pub(super) ending: Option<Ending>,
    /// The program's registers where a signal killed the thread.
    pub(super) killed_at: Option<Registers>,
    pub(super) debug: DebugState,
}

impl Thread {
    /// Creates a thread that is stopped in the program.
    pub(super) fn new(translated: TranslatedThread) -> Self {
        Self {
            translated,
            doing: Doing::Runs,
            running: None,
            stop: None,
            ticks: 0,
            registered: Registered::default(),
            restarts: None,
            rseq: None,
            siginfo: None,
            ending: None,
            killed_at: None,
            debug: DebugState::default(),
        }
    }

    pub(super) fn tracee(&self) -> Tracee {
        self.translated.tracee
    }

    pub(super) fn tid(&self) -> Tid {
        self.tracee().0
    }

    /// Returns true if the thread can use the token now: it runs the program, or a stop or signal
    /// in its call is to be handled.
    pub(super) fn can_go(&self) -> bool {
        match self.doing {
            Doing::Runs => true,
            Doing::Calls(_) => self.stop.is_some() || self.debug.held.is_some(),
            Doing::AtEnd => false,
        }
    }

    pub(super) fn calling(&self) -> Option<&Calling> {
        if let Doing::Calls(calling) = &self.doing { Some(calling) } else { None }
    }

    /// Takes the thread out of its system call, and returns that; `None` if it is in none.
    pub(super) fn take_call(&mut self) -> Option<Box<Calling>> {
        match std::mem::replace(&mut self.doing, Doing::Runs) {
            Doing::Calls(calling) => Some(calling),
            other => {
                self.doing = other;
                None
            }
        }
    }
}
