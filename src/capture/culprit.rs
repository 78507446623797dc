//! Determines the thread that ended a process, from the exit stops of its threads
//! (`PTRACE_EVENT_EXIT` of ptrace(2)). If one thread ends all of them, the exit stops of others may
//! precede its own.

use crate::common::{Pid, Tid};
use crate::recording::Exit;
use crate::tracee::call_numbers::{EXECVE, EXECVEAT, EXIT, EXIT_GROUP};
use crate::tracee::siginfo::signal_of;
use crate::tracee::{SiginfoBytes, Signo, Stop, current_call};

/// The exit stop of a thread.
#[derive(Clone, Copy, Debug)]
pub(super) struct ExitStop {
    pub(super) tid: Tid,
    /// The message of the stop: the thread's exit status, as in wait(2).
    pub(super) status: u64,
    /// The number of the system call that the thread is in; `None` for none.
    pub(super) call: Option<u64>,
    /// The information of the last signal that the thread got.
    pub(super) siginfo: Option<SiginfoBytes>,
}

/// The thread that ended its process, as far as known.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Culprit {
    known: Option<(Tid, Signo)>,
    /// True if the known thread certainly ended the process. Otherwise it may have been ended by
    /// another one.
    is_sure: bool,
}

impl Culprit {
    /// Handles the exit stop of a thread. Returns whether its process ends with it:
    ///
    /// - False if the thread made the system call `exit`, and ends alone.
    /// - False if `any_is_in_execve` returns true: another thread executes a program, which ends
    ///   this one. The noted thread is forgotten then. The closure waits for running threads, so it
    ///   is not called in the first case, in which others keep running.
    /// - True otherwise. Notes the thread as the one that ended the process if none is noted, or if
    ///   only this one did so for certain.
    pub(super) fn note_exit_stop(
        &mut self,
        stop: &ExitStop,
        any_is_in_execve: impl FnOnce() -> bool,
    ) -> bool {
        let signal = Signo::try_from(stop.status & 0x7f).unwrap_or(0);
        let chose_to_end = signal == 0 && stop.call == Some(EXIT);
        if chose_to_end {
            return false;
        }
        if any_is_in_execve() {
            *self = Self::default();
            return false;
        }
        let has_signal = || stop.siginfo.is_some_and(|info| signal_of(&info) == signal);
        let is_sure = stop.call == Some(EXIT_GROUP) || signal != 0 && has_signal();
        if self.known.is_none() || is_sure && !self.is_sure {
            *self = Self { known: Some((stop.tid, signal)), is_sure };
        }
        true
    }

    /// Returns the thread that ended the process, and the signal that did so (0 for none); `None`
    /// if unknown.
    pub(super) fn known(&self) -> Option<(Tid, Signo)> {
        self.known
    }
}

/// Returns the exit of a process whose last stop was `stop`; `None` if that is not an end.
pub(super) fn exit_of(stop: Stop) -> Option<Exit> {
    match stop {
        Stop::Exited(code) => Some(Exit::Code(code)),
        Stop::Killed { signal, .. } => Some(Exit::Signal(signal)),
        _ => None,
    }
}

/// Returns true if one of the threads `tids` of a process executes a program: it waits in the
/// kernel until all others are gone, so they must not be kept at their exit stops. Blocks while one
/// of them runs, for up to a second each.
pub(super) fn any_is_in_execve(pid: Pid, mut tids: impl Iterator<Item = Tid>) -> bool {
    tids.any(|tid| matches!(current_call(pid, tid), Some(EXECVE | EXECVEAT)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tracee::call_numbers::FUTEX;

    fn stop(tid: i32, status: u64, call: Option<u64>, signal: Option<u8>) -> ExitStop {
        let siginfo = signal.map(|signal| {
            let mut info: SiginfoBytes = [0; size_of::<libc::siginfo_t>()];
            info[0] = signal;
            info
        });
        ExitStop { tid: Tid(tid), status, call, siginfo }
    }

    const NO_EXEC: fn() -> bool = || false;

    #[test]
    fn an_end_that_a_thread_chose_asks_nothing_of_the_others() {
        let asked = || unreachable!("to ask waits for threads that run");
        assert!(!Culprit::default().note_exit_stop(&stop(1, 0, Some(EXIT), None), asked));
    }

    #[test]
    fn threads_that_make_way_for_a_program_end_nothing() {
        let mut culprit = Culprit::default();
        assert!(!culprit.note_exit_stop(&stop(1, 9, Some(FUTEX), None), || true));
        assert_eq!(culprit.known(), None);
    }

    #[test]
    fn whoever_called_exit_group_ended_the_process() {
        let mut culprit = Culprit::default();
        assert!(!culprit.note_exit_stop(&stop(1, 0, Some(EXIT), None), NO_EXEC));
        assert_eq!(culprit.known(), None);
        assert!(culprit.note_exit_stop(&stop(2, 3 << 8, Some(FUTEX), None), NO_EXEC));
        assert!(culprit.note_exit_stop(&stop(3, 3 << 8, None, None), NO_EXEC));
        assert!(culprit.note_exit_stop(&stop(4, 3 << 8, Some(EXIT_GROUP), None), NO_EXEC));
        assert!(culprit.note_exit_stop(&stop(5, 3 << 8, Some(EXIT_GROUP), None), NO_EXEC));
        assert_eq!(culprit.known(), Some((Tid(4), 0)));
    }

    #[test]
    fn whoever_had_the_signal_ended_the_process() {
        let mut culprit = Culprit::default();
        assert!(culprit.note_exit_stop(&stop(1, 11, Some(EXIT), None), NO_EXEC));
        assert_eq!(culprit.known(), Some((Tid(1), 11)));
        assert!(culprit.note_exit_stop(&stop(2, 0x8b, None, Some(11)), NO_EXEC));
        assert!(culprit.note_exit_stop(&stop(3, 11, None, Some(10)), NO_EXEC));
        assert_eq!(culprit.known(), Some((Tid(2), 11)));
    }
}
