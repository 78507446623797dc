//! The logic of programs under a debugger that all backends share: which thread's event (a
//! [`Report`]) is reported, and when. Each backend runs and stops the threads itself.
//!
//! Between two requests of the debugger ([`Go`]), all threads are stopped. For a request, a backend
//! does the following, in this order:
//!
//! 1. If the program is gone, or all its threads are at their exit stops, it reports the end
//!    ([`Debugged::take_end`]). An *exit stop* is the last stop of a thread, before it is gone; if
//!    its process ends, it is kept there until all threads are, and the debugger has seen them.
//! 2. It reports an event that is left from before, and resumes nothing: one that the requested
//!    thread is to report on resuming ([`Debugged::take_report_on_resume`]), an unreported one of
//!    that thread ([`Debugged::take_unreported`]), or, unless that thread is to run alone, one of
//!    another thread ([`Debugged::take_report_of_others`]).
//! 3. It resumes threads, and handles their stops, until [`Debugged::take_report`] returns an
//!    event.
//! 4. It stops all threads. Some may have other events by then: these stay *unreported* until a
//!    later request. It returns [`Debugged::report_after_halt`].

use super::Error;
use super::contract::{Go, Report};
use super::culprit::Culprit;
use super::error::gone_is_fine;
use crate::common::{Addr, Pid, Tid};
use crate::image::core;
use crate::recording::Exit;
use crate::tracee::{SiginfoBytes, Signo, Tracee, is_first_thread_gone, siginfo};
use std::collections::{BTreeMap, BTreeSet};

/// The events of one thread for the debugger, and the signals of the debugger for it.
#[derive(Debug, Default)]
pub(super) struct Pending {
    /// An event that was not reported yet.
    pub(super) unreported: Option<Report>,
    /// The event to report as soon as the thread is to be resumed: the end of a step during which a
    /// child was born; or that birth, if the end of the step was reported first.
    pub(super) report_on_resume: Option<Report>,
    /// A signal that the recorder sent for the debugger, so that it is delivered without a stop; 0
    /// for none.
    pub(super) sent_signal: Signo,
    /// The address at which the thread is stopped, if that stop was reported.
    pub(super) reported_stop: Option<Addr>,
    /// The information (`siginfo_t`) that the debugger set for the next signal that it delivers.
    pub(super) next_siginfo: Option<SiginfoBytes>,
}

impl Pending {
    /// Returns true if the thread stops for `signal`: unless it is in the mask `passed` (signal 1
    /// in bit 0), or is the one that was sent for the debugger. That one is forgotten then, so call
    /// this once for each stop: a second call may return true.
    pub(super) fn stops_for_signal(&mut self, signal: Signo, passed: u64) -> bool {
        if self.sent_signal == signal {
            self.sent_signal = 0;
            return false;
        }
        passed & 1 << (signal - 1).clamp(0, 63) == 0
    }

    /// Notes that the thread is resumed with `signal`: forgets the unreported event and the
    /// reported stop. If `signal` is 0 (none), also forgets the debugger's siginfo.
    pub(super) fn note_resumed(&mut self, signal: Signo) {
        (self.unreported, self.reported_stop) = (None, None);
        if signal == 0 {
            self.next_siginfo = None;
        }
    }

    /// Takes and returns the siginfo that the debugger wrote, if it is for `signal` and that signal
    /// was sent for the debugger; otherwise returns `None`, and the siginfo stays. Call this before
    /// [`Self::stops_for_signal`], which forgets that the signal was sent.
    pub(super) fn take_written_siginfo(&mut self, signal: Signo) -> Option<SiginfoBytes> {
        let is_sent = self.sent_signal == signal;
        self.next_siginfo.take_if(|info| is_sent && siginfo::signal_of(info) == signal)
    }

    /// Forgets the events of this thread that report a child.
    fn forget_births(&mut self) {
        self.unreported.take_if(|report| report.is_birth());
        self.report_on_resume.take_if(|report| report.is_birth());
    }
}

/// A thread of a program under a debugger.
pub(super) trait DebuggedThread {
    /// Returns the thread's process.
    fn process(&self) -> Pid;

    /// Returns the thread's events and signals for the debugger.
    fn pending(&mut self) -> &mut Pending;

    /// Returns true if the thread is at its exit stop.
    fn is_at_exit_stop(&self) -> bool;

    /// Returns true while the thread is in an execve(2) that starts another program.
    fn is_in_execve(&self) -> bool {
        false
    }

    /// Returns the address of the next instruction if the thread is stopped at the program's own
    /// code; `None` otherwise.
    fn next_ip(&self) -> Option<Addr>;

    /// Returns the information of the signal for which the thread stopped; `None` for other stops.
    fn held_siginfo(&mut self) -> Option<&mut SiginfoBytes>;

    /// Returns the thread's registers, and the siginfo of the signal for which it stopped; `None`
    /// if it is gone, or its state at its exit stop is unknown.
    fn state(&self) -> Option<core::Thread>;
}

/// A recorder of a program under a debugger, and of other processes beside it.
pub(super) trait Debugged {
    type Thread: DebuggedThread;

    /// Returns the process that is debugged.
    fn program(&self) -> Pid;

    /// Returns the threads of all recorded processes.
    fn threads(&self) -> &BTreeMap<Tid, Self::Thread>;

    /// Returns the threads of all recorded processes, to change them.
    fn threads_mut(&mut self) -> &mut BTreeMap<Tid, Self::Thread>;

    /// Returns the thread that ended or is ending the program, as far as known; `None` if the
    /// program is gone.
    fn culprit(&self) -> Option<Culprit>;

    /// Returns the exit of the program; `None` if it is not gone, or its exit is unknown.
    fn exit(&self) -> Option<Exit>;

    /// Resumes all threads of the program from their exit stops, and waits until it is gone.
    fn let_program_end(&mut self) -> Result<(), Error>;

    /// Detaches from the program, whose threads are all stopped, so that it goes on natively.
    /// Completes its recording.
    fn detach_from_program(&mut self) -> Result<(), Error>;

    /// Returns true if a process's first thread is gone, while others are at their exit stops: the
    /// kernel does not report the end of that thread then.
    fn has_lost_first_thread(&self, pid: Pid) -> bool {
        let first = self.threads().get(&Tid(pid.0));
        let is_at_end = |thread: &Self::Thread| thread.process() == pid && thread.is_at_exit_stop();
        first.is_some_and(|thread| !thread.is_at_exit_stop())
            && self.threads().values().any(is_at_end)
            && is_first_thread_gone(pid)
    }

    /// Returns true if the program is gone ([`Self::culprit`]).
    fn is_gone(&self) -> bool {
        self.culprit().is_none()
    }

    /// Returns the threads of the program, without those of other processes.
    fn tids(&self) -> Vec<Tid> {
        let of_program = |(tid, thread): (&Tid, &Self::Thread)| {
            (thread.process() == self.program()).then_some(*tid)
        };
        self.threads().iter().filter_map(of_program).collect()
    }

    /// Returns true if all threads of the program are at their exit stops; false if it has none.
    fn all_are_at_exit_stops(&self) -> bool {
        let tids = self.tids();
        let at_end = |tid| self.threads().get(tid).is_some_and(Self::Thread::is_at_exit_stop);
        !tids.is_empty() && tids.iter().all(at_end)
    }

    /// Returns the threads of recorded processes other than the program.
    fn tids_beside(&self) -> impl Iterator<Item = (Tid, Pid)> {
        let all = self.threads().iter().map(|(tid, thread)| (*tid, thread.process()));
        all.filter(|(_, pid)| *pid != self.program())
    }

    /// Returns the event for the end of the program if it is gone, or if all its threads are at
    /// their exit stops: lets it end then, and waits for that. Returns `None` otherwise.
    fn take_end(&mut self) -> Result<Option<(Tid, Report)>, Error> {
        if !self.is_gone() {
            if !self.all_are_at_exit_stops() {
                return Ok(None);
            }
            self.let_program_end()?;
        }
        Ok(Some(self.end_report()))
    }

    /// Returns the event for the end of the program, with its process ID as the thread.
    fn end_report(&self) -> (Tid, Report) {
        (Tid(self.program().0), Report::Ended(self.exit()))
    }

    /// Takes the event that `go.thread` reports instead of being resumed, and returns it; drops it
    /// if it is the end of a step, and `go` is no step without a signal.
    fn take_report_on_resume(&mut self, go: &Go) -> Option<(Tid, Report)> {
        let owed = self.threads_mut().get_mut(&go.thread)?.pending().report_on_resume.take()?;
        (go.step && go.signal == 0 || owed.is_reported_before_resuming())
            .then_some((go.thread, owed))
    }

    /// Takes and returns the event that `go.thread` has not reported yet, since it happened while
    /// all threads were halted for another one. Drops stops at addresses and ends of steps. If the
    /// thread steps alone, keeps a fork until its next resumption. If it returns an event, the
    /// thread is not resumed, so the signal of `go` is sent to it.
    fn take_unreported(&mut self, go: &Go) -> Result<Option<(Tid, Report)>, Error> {
        let program = self.program();
        let Some(thread) = self.threads_mut().get_mut(&go.thread) else { return Ok(None) };
        if thread.process() != program {
            return Ok(None);
        }
        let pending = thread.pending();
        match pending.unreported.take() {
            None | Some(Report::Breakpoint | Report::Stepped) => Ok(None),
            // gdb steps over a breakpoint this way, and accepts only the end of the step as an
            // answer.
            Some(birth @ Report::Forked(_)) if go.step && go.locked => {
                pending.report_on_resume = Some(birth);
                Ok(None)
            }
            Some(report) => {
                if go.signal != 0 {
                    pending.sent_signal = go.signal;
                    gone_is_fine(Tracee(go.thread).send(program, go.signal))?;
                }
                Ok(Some((go.thread, report)))
            }
        }
    }

    /// Marks the stop of a thread at its address as reported, if that is one of `stops`. Returns
    /// true if it is one, and was not reported before.
    fn mark_stop_reported(&mut self, tid: Tid, stops: &BTreeSet<Addr>) -> bool {
        let Some(thread) = self.threads_mut().get_mut(&tid) else { return false };
        let here = thread.next_ip().filter(|ip| stops.contains(ip));
        let is_new = here.is_some() && thread.pending().reported_stop != here;
        thread.pending().reported_stop = here.or(thread.pending().reported_stop);
        is_new
    }

    /// Sets the information of the signal for which a thread is stopped, or else of the next signal
    /// that the debugger delivers to it. Returns an error if the thread is gone, or at its exit
    /// stop.
    fn set_siginfo(&mut self, tid: Tid, info: &SiginfoBytes) -> Result<(), Error> {
        let thread = self.threads_mut().get_mut(&tid).filter(|thread| !thread.is_at_exit_stop());
        let thread = thread.ok_or(Error::ThreadEnded { tid })?;
        let Some(held) = thread.held_siginfo() else {
            thread.pending().next_siginfo = Some(*info);
            return Ok(());
        };
        *held = *info;
        gone_is_fine(Tracee(tid).set_signal_info(info))
    }

    /// Forgets that a thread reported a stop at its address, since the debugger moved it.
    fn forget_reported_stop(&mut self, tid: Tid) {
        if let Some(thread) = self.threads_mut().get_mut(&tid) {
            thread.pending().reported_stop = None;
        }
    }

    /// Takes and returns an unreported event of another thread than `go.thread`: one that happened
    /// while all were being stopped, a birth or a call's return that it is to report on resuming,
    /// or its stop at one of `go.stops` that was not reported. Drops ends of steps.
    fn take_report_of_others(&mut self, go: &Go) -> Option<(Tid, Report)> {
        let program = self.program();
        let others = self.threads_mut().iter_mut();
        for (tid, thread) in others.filter(|(tid, t)| t.process() == program && **tid != go.thread)
        {
            if let Some(owed) =
                thread.pending().report_on_resume.take_if(|owed| owed.is_reported_before_resuming())
            {
                return Some((*tid, owed));
            }
            match thread.pending().unreported.take() {
                Some(Report::Breakpoint) | None => {
                    let here = thread.next_ip().filter(|ip| go.stops.contains(ip));
                    if here.is_some() && thread.pending().reported_stop != here {
                        thread.pending().reported_stop = here;
                        return Some((*tid, Report::Breakpoint));
                    }
                }
                Some(Report::Stepped) => {}
                Some(report) => return Some((*tid, report)),
            }
        }
        None
    }

    /// Takes and returns an event of the program: its end, or an unreported event of any thread,
    /// preferably of `first`. If `alone`, `first` is the only thread that was resumed, and only its
    /// events, its end, and an execve(2) count. Returns `None` if there is none.
    fn take_report(&mut self, first: Tid, alone: bool) -> Option<(Tid, Report)> {
        let Some(culprit) = self.culprit() else { return Some(self.end_report()) };
        let program = self.program();
        if self.all_are_at_exit_stops() {
            let known = culprit.known().map(|(tid, _)| tid);
            let known = known.filter(|tid| self.threads().contains_key(tid));
            return Some((known.unwrap_or(Tid(program.0)), Report::Ending));
        }
        let threads = self.threads_mut().iter_mut();
        // A thread that executes a program gets its process's number.
        let is_reported = |tid: Tid, report: Option<Report>| {
            report.is_some() && (!alone || tid == first || report == Some(Report::Executed))
        };
        let of_program = threads.filter(|(_, thread)| thread.process() == program);
        let reported = of_program.filter_map(|(tid, thread)| {
            let pending = thread.pending();
            is_reported(*tid, pending.unreported).then_some((*tid, pending))
        });
        match reported.min_by_key(|(tid, _)| *tid != first) {
            Some((tid, pending)) => pending.unreported.take().map(|report| (tid, report)),
            None => self.only_thread_ended(first).filter(|_| alone),
        }
    }

    /// Returns [`Report::NoneRuns`] if the thread `only`, the only one that was resumed, has ended
    /// while others exist; `None` otherwise.
    fn only_thread_ended(&self, only: Tid) -> Option<(Tid, Report)> {
        let begins = self.threads().values().any(DebuggedThread::is_in_execve);
        let is_gone = !begins && !self.threads().contains_key(&only);
        let left = self.tids().first().copied().filter(|_| is_gone)?;
        Some((left, Report::NoneRuns))
    }

    /// Returns the event to report, now that all threads are stopped, in place of the one that came
    /// first, which is given. An interrupt is replaced by an event that happened while threads were
    /// being stopped, if there is one; any event by the program's end if it is gone; the thread by
    /// another one if it is gone. Marks the thread's stop as reported if it stopped at an address
    /// or after a step.
    fn report_after_halt(&mut self, go: &Go, (tid, report): (Tid, Report)) -> (Tid, Report) {
        let came = (report == Report::Interrupted).then(|| self.take_report(go.thread, go.locked));
        let (tid, report) = came.flatten().unwrap_or((tid, report));
        if matches!(report, Report::Breakpoint | Report::Stepped) {
            self.mark_stop_reported(tid, &go.stops);
        }
        match report {
            Report::Ended(_) => (tid, report),
            _ if self.is_gone() => self.end_report(),
            _ if self.threads().contains_key(&tid) => (tid, report),
            _ => (self.tids().first().copied().unwrap_or(tid), report),
        }
    }

    /// Forgets all births of children that were not reported.
    fn forget_births(&mut self) {
        self.threads_mut().values_mut().for_each(|thread| thread.pending().forget_births());
    }

    /// Leaves the program, all of whose threads are stopped: lets it end if they are at their exit
    /// stops, and detaches otherwise. Does nothing if the program is gone.
    fn leave_program(&mut self) -> Result<(), Error> {
        match (self.is_gone(), self.all_are_at_exit_stops()) {
            (true, _) => Ok(()),
            (_, true) => self.let_program_end(),
            _ => self.detach_from_program(),
        }
    }
}
