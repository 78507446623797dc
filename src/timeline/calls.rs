//! The call stack while the path is walked from segment to segment.

use super::effects::{Effect, Left};
use super::stack::Stack;
use crate::common::Addr;
use std::collections::HashSet;

/// The stack, and how control left what came before.
#[derive(Clone, Debug, Default)]
pub(super) struct Calls {
    pub(super) stack: Stack,
    pub(super) left: Option<Left>,
    /// How many of the process's exec(2) calls are over.
    pub(super) execs: usize,
}

/// Where returns led that left no frame, as long as none is there that they would leave. Programs
/// that push return addresses by themselves (java's interpreter) and leave functions by jumps have
/// stacks of thousands of frames, which need not be searched again for each such return.
#[derive(Debug, Default)]
pub(super) struct Absent(HashSet<Addr>);

/// Addresses beyond which they are forgotten.
const ABSENT_LIMIT: usize = 1 << 16;

impl Calls {
    /// Does what a segment did, whose first instruction has the number `first` in its thread.
    pub(super) fn apply(&mut self, effects: &[Effect], first: u64, absent: &mut Absent) {
        for effect in effects {
            self.step(*effect, first, absent);
        }
    }

    fn step(&mut self, effect: Effect, first: u64, absent: &mut Absent) {
        match effect {
            Effect::Push(mut frame) => {
                frame.index += first;
                absent.0.remove(&frame.return_address);
                self.stack.push(frame);
            }
            Effect::Return(ip) if absent.0.contains(&ip) => {}
            Effect::Return(ip) => {
                if !self.stack.leave(|frame| frame.is_returned_from(ip)) {
                    if absent.0.len() >= ABSENT_LIMIT {
                        absent.0.clear();
                    }
                    absent.0.insert(ip);
                }
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
                    self.step(effect, 0, absent);
                }
            }
            Effect::Left(left) => self.left = left,
            Effect::Execs(over) if over > self.execs => {
                *self = Self { execs: over, ..Self::default() };
                absent.0.clear();
            }
            Effect::Execs(_) => {}
        }
    }
}
