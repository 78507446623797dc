//! Functions of the program that the debugger calls in the past. They run in a diversion of the
//! replay: in its process, whose former state is restored before the run moves.

use super::replayed::Replayed;
use super::{Action, Breakpoints, Order, Stop, StopReason};
use crate::replay::{self, DiversionEnd, Goals};
use std::io::Write;

impl Replayed {
    /// Resumes a thread in a diversion, in a function that the debugger calls. A failure ends the
    /// diversion, not the run.
    pub(super) fn go_diverted(
        &mut self,
        order: &Order,
        goals: &Goals<'_>,
        breakpoints: &Breakpoints,
    ) -> Result<Stop, replay::Error> {
        let thread = order.thread;
        let replay = self.replay.get_mut();
        let end = match order.action {
            Action::Step => replay.step_diverted(thread, &mut print),
            Action::Continue => replay.run_diverted(thread, goals, &mut print),
        };
        let reason = match end {
            Ok(DiversionEnd::Stop | DiversionEnd::Step) => {
                return Ok(self.stepped(thread, breakpoints));
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

/// Prints what a called function writes to its standard output, or error. The standard output may
/// be the connection to the debugger.
fn print(bytes: &[u8]) {
    let mut output = std::io::stderr();
    // If the output is closed, no one reads it.
    let _ = output.write_all(bytes).and_then(|()| output.flush());
}
