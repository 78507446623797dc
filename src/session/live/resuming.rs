//! Resumes of a live program at its live end. A *passed* signal is delivered without a stop; a
//! *queued* one is delivered by the next resume, besides the signal of the order.
//!
//! A signal that stopped the program is kept in `stop_signal`, and is delivered only if the next
//! order names it. The debugger may not know of it: another stop was reported in its place, or the
//! debugger has been in the past since. Then `repeats_signal` is set, and the next resume executes
//! nothing, but reports that signal, unless its order delivers one.

use super::Live;
use crate::capture::{Go, Report};
use crate::common::Tid;
use crate::session::watch_split::split;
use crate::session::{Action, Breakpoints, Ending, Order, Stop, StopReason};
use crate::tracee::Watch;

impl Live {
    /// Resumes the program at the live end, and waits for a stop. Returns another stop instead,
    /// without a resume: that the program is gone; the signal of the last live stop, if
    /// `repeats_signal` is set and the order delivers no signal; or a new breakpoint at the address
    /// of a thread that is to continue without a signal, which also drops the queued signals.
    pub(super) fn resume_live(
        &mut self,
        order: &Order,
        breakpoints: &Breakpoints,
        interrupted: &dyn Fn() -> bool,
    ) -> Stop {
        if let Some(ending) = self.ended {
            return Stop { thread: self.stopped_thread, reason: StopReason::Gone(ending) };
        }
        self.drop_outdated_history();
        let repeats_signal = std::mem::take(&mut self.repeats_signal);
        if let Some(number) = self.stop_signal.filter(|_| repeats_signal && order.signal == 0) {
            return Stop { thread: self.stopped_thread, reason: StopReason::Signal(number) };
        }
        // To step over a breakpoint silently, a debugger removes it first, so one inserted at the
        // thread's address is to be reported.
        if order.action == Action::Continue
            && order.signal == 0
            && self.program.get_mut().mark_stop_reported(order.thread, breakpoints.addrs())
        {
            self.queued_signals.clear();
            let reason = self.stop_reason(order.thread, Report::Breakpoint, breakpoints);
            self.stopped_thread = order.thread;
            return Stop { thread: order.thread, reason };
        }
        match split(breakpoints.watchpoints()).unwrap_or_default() {
            split if split.software.is_empty() => {
                self.resume_program(order, breakpoints, &split.hardware, 0, interrupted)
            }
            split => self.step_with_software_watch(order, breakpoints, &split, interrupted),
        }
    }

    /// Resumes the program and waits for a stop, which becomes the last live stop. Delivers the
    /// queued signals. `watches` are the watchpoints of the debug registers; those of `breakpoints`
    /// are not watched. `passed_to_stepper` are the signals that do not stop the stepping thread,
    /// signal 1 in bit 0. If the program cannot be resumed, it counts as gone, and the error for
    /// the user is in `failure`.
    pub(in crate::session) fn resume_program(
        &mut self,
        order: &Order,
        breakpoints: &Breakpoints,
        watches: &[Watch],
        passed_to_stepper: u64,
        interrupted: &dyn Fn() -> bool,
    ) -> Stop {
        let go = Go {
            thread: order.thread,
            step: order.action == Action::Step,
            locked: order.locked,
            signal: order.signal,
            signals: std::mem::take(&mut self.queued_signals),
            stops: breakpoints.addrs().clone(),
            passed: self.passed_signals,
            passed_to_stepper,
            watches: watches.to_vec(),
            catches: self.catches.clone(),
            forks: self.forks,
        };
        let result = self.resume_past_known_reports(&go, interrupted);
        let (thread, reason) = match result {
            Ok((thread, report)) => (thread, self.stop_reason(thread, report, breakpoints)),
            Err(error) => {
                self.failure.replace(Some(error.to_string()));
                self.ended = Some(Ending::Unknown);
                let first = Tid(self.program.borrow().pid().0);
                (first, StopReason::Gone(Ending::Unknown))
            }
        };
        self.stopped_thread = thread;
        self.stop_signal =
            if let StopReason::Signal(number) = reason { Some(number) } else { None };
        Stop { thread, reason }
    }

    /// Makes the next resume report the signal of the last live stop, if it was one, since this
    /// stop is reported to the debugger as something else. The report takes the place of that
    /// resume. It is omitted if the order delivers a signal.
    pub(in crate::session) fn report_signal_later(&mut self) {
        self.repeats_signal = true;
    }

    /// Returns the signals that are delivered without a stop; signal 1 in bit 0.
    pub(in crate::session) fn passed_signals(&self) -> u64 {
        self.passed_signals
    }
}
