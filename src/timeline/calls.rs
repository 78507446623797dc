//! The call stack while the path is walked from segment to segment.

use super::effects::{Effect, Left};
use super::functions::Function;
use super::stack::{Frame, Stack};
use crate::common::Addr;
use serde::{Deserialize, Serialize};

/// What is around the outermost frame that a path tells of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Older {
    /// The function that the path begins in.
    #[default]
    Nothing,
    /// Frames whose calls are before the recorded history.
    BeforeHistory,
    /// Frames whose calls are before a hole in the path.
    Hole,
    /// Frames of a stack that is not known: the stack pointer was loaded, as coroutines,
    /// longjmp(3) and exceptions do.
    Switched,
    /// Frames that are not known: a return led where no call of the path expected it.
    StrayReturn,
}

/// The stack, and how control left what came before.
#[derive(Clone, Debug, Default)]
pub(super) struct Calls {
    pub(super) stack: Stack,
    pub(super) left: Option<Left>,
    pub(super) older: Older,
    /// The thread has been on another stack than its first.
    pub(super) has_switched: bool,
    /// How many of the process's exec(2) calls are over.
    pub(super) execs: usize,
}

/// Gives the function of an address; none where that is not known.
pub(super) type FunctionAt<'a> = &'a dyn Fn(Addr) -> Option<Function>;

/// Frames in which an active function is looked for, at most.
const SEARCHED_FRAMES: usize = 1 << 14;

impl Calls {
    /// Does what a segment did, whose first instruction has the number `first` in its thread.
    pub(super) fn apply(&mut self, effects: &[Effect], first: u64, function_at: FunctionAt<'_>) {
        for effect in effects {
            self.step(*effect, first, function_at);
        }
    }

    fn step(&mut self, effect: Effect, first: u64, function_at: FunctionAt<'_>) {
        match effect {
            Effect::Push(mut frame) => {
                frame.index += first;
                self.stack.push(frame);
            }
            Effect::Return(ip) => self.return_to(ip),
            Effect::Sigreturn(ip) => {
                // A handler may change where the program goes on.
                if !self.stack.leave(|frame| frame.is_resumed_at(ip)) {
                    self.stack.leave(|frame| frame.signal);
                }
            }
            Effect::Land(ip) => self.land(ip, function_at),
            Effect::Switch => self.switch(),
            Effect::Hole { index } if first + index == 0 => self.lose(Older::BeforeHistory),
            Effect::Hole { .. } => self.lose(Older::Hole),
            Effect::Arrive { ip, index } => {
                if let Some(effect) = self.left.take().and_then(|l| l.arrive(ip, first + index)) {
                    // Its instructions are counted from the thread's start already.
                    self.step(effect, 0, function_at);
                }
            }
            Effect::Left(left) => self.left = left,
            Effect::Execs(over) if over > self.execs => {
                *self = Self { execs: over, ..Self::default() };
            }
            Effect::Execs(_) => {}
        }
    }

    fn return_to(&mut self, ip: Addr) {
        let innermost = self.stack.frames().next();
        match innermost {
            // Behind the function that the path began in.
            None if self.older == Older::Nothing => self.older = Older::BeforeHistory,
            None => {}
            Some(_) if self.stack.leave(|frame| frame.is_returned_from(ip)) => {}
            // A handler returns to the code that makes the system call.
            Some(frame) if frame.signal => {}
            Some(_) => self.lose(Older::StrayReturn),
        }
    }

    /// The stack pointer was loaded, and control went on at `ip`. On the same stack that is further
    /// out: in the function of `ip`, which is known if it is active once. Whoever has been on
    /// another stack may be there again.
    fn land(&mut self, ip: Addr, function_at: FunctionAt<'_>) {
        let Some(innermost) = self.stack.frames().next().filter(|_| !self.has_switched) else {
            return self.lose(Older::Switched);
        };
        // As if it had returned: so does another coroutine that waits in the same function.
        if innermost.is_returned_from(ip) {
            return self.switch();
        }
        let Some(function) = function_at(ip) else { return self.lose(Older::Switched) };
        let is_in_it =
            |frame: &Frame| function_at(frame.site).is_some_and(|other| other.is_same(&function));
        let active: Vec<Frame> =
            self.stack.frames().take(SEARCHED_FRAMES).filter(is_in_it).take(2).collect();
        let is_all = self.stack.depth() <= SEARCHED_FRAMES;
        match active.as_slice() {
            [frame] if is_all => {
                self.stack.leave(|other| other == frame);
            }
            [] if is_all && self.older == Older::Nothing => self.switch(),
            _ => self.lose(Older::Switched),
        }
    }

    fn switch(&mut self) {
        self.has_switched = true;
        self.lose(Older::Switched);
    }

    fn lose(&mut self, why: Older) {
        self.stack = Stack::default();
        self.older = why;
    }
}
