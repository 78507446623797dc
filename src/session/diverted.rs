//! Functions of the program that the debugger calls in the past, by changing a thread's registers
//! and resuming it. They run in a *diversion* of the replay: in its process, but apart from the
//! recorded run. The state before it is restored when the run moves.

use super::replayed::Replayed;
use super::{Action, Breakpoints, Order, Stop, StopReason};
use crate::replay::{self, DiversionEnd, Goals};
use std::io::Write;

impl Replayed {
    /// Steps or continues a thread in a diversion, in a function that the debugger calls, and
    /// returns the stop. The session's position in the recorded run stays. Watchpoints and
    /// requested system calls do not stop the function; any signal does, before its delivery. If it
    /// cannot go on, reports an interrupt; after an error, also ends the diversion. Fails only if
    /// the diversion cannot be ended.
    pub(super) fn resume_diverted(
        &mut self,
        order: &Order,
        goals: &Goals<'_>,
        breakpoints: &Breakpoints,
    ) -> Result<Stop, replay::Error> {
        let thread = order.thread;
        let replay = self.replay.get_mut();
        let end = match order.action {
            Action::Step => replay.step_diverted(thread, &mut print_to_stderr),
            Action::Continue => replay.run_diverted(thread, goals, &mut print_to_stderr),
        };
        let reason = match end {
            Ok(DiversionEnd::Stop | DiversionEnd::Step) => {
                return Ok(self.stop_after_step(thread, breakpoints));
            }
            Ok(DiversionEnd::Signal(number)) => StopReason::Signal(number),
            Ok(DiversionEnd::Stuck | DiversionEnd::Interrupted) => StopReason::Interrupted,
            // An error of the diversion does not affect the recorded run.
            Err(_) => {
                replay.end_diversion()?;
                StopReason::Interrupted
            }
        };
        Ok(Stop { thread, reason })
    }
}

/// Prints to standard error what a called function writes to its standard output or error: the
/// server's standard output may be the connection to the debugger.
fn print_to_stderr(bytes: &[u8]) {
    let mut output = std::io::stderr();
    // If the output is closed, no one reads it.
    let _ = output.write_all(bytes).and_then(|()| output.flush());
}
