//! The call stack while the path is walked from segment to segment.

use super::effects::{Effect, Left};
use super::stack::Stack;

/// The stack, and how control left what came before.
#[derive(Clone, Debug, Default)]
pub(super) struct Calls {
    pub(super) stack: Stack,
    pub(super) left: Option<Left>,
    /// How many of the process's exec(2) calls are over.
    pub(super) execs: usize,
}

impl Calls {
    /// Does what a segment did, whose first instruction has the number `first` in its thread.
    pub(super) fn apply(&mut self, effects: &[Effect], first: u64) {
        for effect in effects {
            self.step(*effect, first);
        }
    }

    fn step(&mut self, effect: Effect, first: u64) {
        match effect {
            Effect::Push(mut frame) => {
                frame.index += first;
                self.stack.push(frame);
            }
            Effect::Return(ip) => {
                self.stack.leave(|frame| frame.is_returned_from(ip));
            }
            Effect::Sigreturn(ip) => {
                // A handler may change where the program goes on.
                if !self.stack.leave(|frame| frame.is_resumed_at(ip)) {
                    self.stack.leave(|frame| frame.signal);
                }
            }
            Effect::Arrive { ip, index } => {
                if let Some(effect) = self.left.take().and_then(|l| l.arrive(ip, first + index)) {
                    // Its instructions are counted from the thread's start already.
                    self.step(effect, 0);
                }
            }
            Effect::Left(left) => self.left = left,
            Effect::Execs(over) if over > self.execs => {
                *self = Self { execs: over, ..Self::default() };
            }
            Effect::Execs(_) => {}
        }
    }
}
