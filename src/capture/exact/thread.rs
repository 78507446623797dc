//! A thread of an exactly recorded program, and the system call that it is in.
//!
//! The thread that executes has the *token*. A thread is *in the program* or *in the cache*: it
//! executes the program's own code, or its translation. An *exit stop* is the last stop of a
//! thread, before it is gone. *Foreign* memory is shared memory that processes outside the
//! recording may write.

use super::debug_session::DebugState;
use super::effects::MemoryBefore;
use super::scratch::Scratch;
use crate::common::Tid;
use crate::engine::{Running, TranslatedThread};
use crate::image::core;
use crate::insn::Registers;
use crate::recording::log::Bytes;
use crate::syscalls::{Call, OpenCall, Registered};
use crate::tracee::{Rseq, SiginfoBytes, Stop, Tracee};

/// The activity of a thread, whether it is resumed or stopped at the time.
#[derive(Debug)]
pub(super) enum Activity {
    /// It executes the program, when it has the token.
    Runs,
    /// It is in a system call that stopped it (`calls`): from before the call until the call's end
    /// is logged.
    InCall(Box<CurrentCall>),
    /// It is at its exit stop (`PTRACE_EVENT_EXIT`), and stays there until all threads are.
    AtExitStop,
}

/// The system call that a thread is in.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "facts that hold independently of each other")]
pub(super) struct CurrentCall {
    pub(super) call: Call,
    /// The effects of the call, as far as they are known before it.
    pub(super) effects: OpenCall,
    /// The thread's registers before the call.
    pub(super) registers: Registers,
    /// The memory before the call, if the effects can only be found by comparing it.
    pub(super) memory_before: Option<MemoryBefore>,
    /// The size in bytes, before the call, of the file that it changes; 0 if that does not matter.
    pub(super) file_size_before: u64,
    /// True if the kernel may use foreign memory until the call returns.
    pub(super) uses_foreign: bool,
    /// True if foreign memory may have been closed since the call was begun.
    pub(super) was_foreign_closed: bool,
    /// True if the call failed with EFAULT, and is made once more with all foreign memory open.
    pub(super) is_repeated: bool,
    /// The buffers that the kernel fills in place of the program's.
    pub(super) scratch: Scratch,
    /// The extended state before the call, if the call may block while others run: it cannot be
    /// read in the call.
    pub(super) extended: Option<Bytes>,
    /// True once the log has an entry of the call's beginning (`LogEvent::Enters`): other threads
    /// may run before it is done.
    pub(super) is_logged: bool,
    /// The SIGSYS by which a filter of the program answered the call (seccomp(2)).
    pub(super) filter_signal: Option<SiginfoBytes>,
}

/// The last state of a thread, taken at its exit stop.
#[derive(Clone, Debug)]
pub(super) struct LastState {
    pub(super) state: core::Thread,
    /// The number of the system call in which it was killed, if the log has the call's beginning
    /// (`CurrentCall::is_logged`).
    pub(super) call: Option<u64>,
}

/// A recorded thread.
#[derive(Debug)]
pub(in crate::capture) struct Thread {
    /// Its part in the code cache: its place, memory and signal state.
    pub(super) translated: TranslatedThread,
    pub(super) activity: Activity,
    /// A run in the code cache that is to go on, after a stop that was not the program's.
    pub(super) paused_run: Option<Running>,
    /// A stop that was reported for it, and is not handled yet.
    pub(super) noted_stop: Option<Stop>,
    /// The ticks that it executed since its last entry in the log.
    pub(super) ticks: u64,
    /// The pointers that it registered with the kernel, which writes through them when it ends.
    pub(super) registered: Registered,
    /// The number of the call that its next call, a `restart_syscall(2)`, makes again.
    pub(super) restarted_call: Option<u64>,
    /// The restartable sequences (rseq(2)) to register again when the recording ends.
    pub(super) rseq: Option<Rseq>,
    /// The last signal that was delivered to it.
    pub(super) last_siginfo: Option<SiginfoBytes>,
    /// Its last state, once it is at its exit stop and if the state is known.
    pub(super) last_state: Option<LastState>,
    /// The program's registers where a signal killed the thread.
    pub(super) killed_at: Option<Registers>,
    /// Its state in the debugger session.
    pub(super) debug: DebugState,
}

impl Thread {
    /// Creates a thread that is stopped in the program.
    pub(super) fn new(translated: TranslatedThread) -> Self {
        Self {
            translated,
            activity: Activity::Runs,
            paused_run: None,
            noted_stop: None,
            ticks: 0,
            registered: Registered::default(),
            restarted_call: None,
            rseq: None,
            last_siginfo: None,
            last_state: None,
            killed_at: None,
            debug: DebugState::default(),
        }
    }

    /// Returns the thread, for ptrace requests.
    pub(super) fn tracee(&self) -> Tracee {
        self.translated.tracee
    }

    /// Returns the thread's number.
    pub(super) fn tid(&self) -> Tid {
        self.tracee().0
    }

    /// Returns true if the thread can use the token now: it is in no call, or it has a noted stop
    /// or a signal held by the debugger in its call. A thread at its exit stop cannot.
    pub(super) fn can_go(&self) -> bool {
        match self.activity {
            Activity::Runs => true,
            Activity::InCall(_) => self.noted_stop.is_some() || self.debug.held_signal.is_some(),
            Activity::AtExitStop => false,
        }
    }

    /// Returns the system call that the thread is in; `None` if it is in none.
    pub(super) fn current_call(&self) -> Option<&CurrentCall> {
        if let Activity::InCall(current) = &self.activity { Some(current) } else { None }
    }

    /// Removes and returns the system call that the thread is in, so that it counts as executing
    /// the program again; `None` if it is in none. Does not change the thread itself.
    pub(super) fn take_call(&mut self) -> Option<Box<CurrentCall>> {
        match std::mem::replace(&mut self.activity, Activity::Runs) {
            Activity::InCall(current) => Some(current),
            other => {
                self.activity = other;
                None
            }
        }
    }
}
