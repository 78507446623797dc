//! The call stack during a walk of the path from segment to segment: [`Calls`] has the stack at one
//! place, and applies the [`Effect`]s of the instructions that follow.

use super::effects::{Effect, PendingTransfer};
use super::functions::Function;
use super::stack::{Frame, Stack};
use crate::common::Addr;
use serde::{Deserialize, Serialize};

/// The kind of the frames that are missing outside the outermost known frame of a call stack, which
/// is the reason why they are missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum MissingFrames {
    /// None: the outermost function is the one in which the path begins.
    #[default]
    Nothing,
    /// Frames whose calls precede the recorded history.
    BeforeHistory,
    /// Frames whose calls precede a gap in the path.
    Gap,
    /// Frames of an unknown stack: the stack pointer was loaded, as in coroutines, longjmp(3) and
    /// exceptions.
    OtherStack,
    /// Unknown frames: a return led to an address that no call of the path expected.
    StrayReturn,
}

/// The call stack of a thread at a place of its path, with the state needed to follow the path on.
#[derive(Clone, Debug, Default)]
pub(super) struct Calls {
    pub(super) stack: Stack,
    /// The last transfer of control, whose target is not reached yet; `None` if it does not matter
    /// or is unknown.
    pub(super) pending: Option<PendingTransfer>,
    pub(super) missing: MissingFrames,
    /// True if the thread has run on another stack than its first: from then on, each load of the
    /// stack pointer may switch stacks.
    pub(super) has_switched: bool,
    /// The number of the thread's exec(2) calls so far.
    pub(super) execs: usize,
}

/// A lookup of the function at an address; `None` if that is unknown.
pub(super) type FunctionAt<'a> = &'a dyn Fn(Addr) -> Option<Function>;

/// The maximum number of frames searched for an active function.
const SEARCHED_FRAMES: usize = 1 << 14;

impl Calls {
    /// Applies the effects of a segment. `first` is the number of the segment's first instruction,
    /// counted per thread.
    pub(super) fn apply(&mut self, effects: &[Effect], first: u64, function_at: FunctionAt<'_>) {
        for effect in effects {
            self.apply_one(*effect, first, function_at);
        }
    }

    /// Applies one effect of the segment whose first instruction has the number `first`.
    fn apply_one(&mut self, effect: Effect, first: u64, function_at: FunctionAt<'_>) {
        match effect {
            Effect::Push(mut frame) => {
                frame.index += first;
                self.stack.push(frame);
            }
            Effect::Return(ip) => self.return_to(ip),
            Effect::Sigreturn(ip) => {
                // A handler may change the address at which the program resumes.
                if !self.stack.pop_through(|frame| frame.is_resumed_at(ip)) {
                    self.stack.pop_through(|frame| frame.signal);
                }
            }
            Effect::ArriveAfterSpLoad(ip) => self.arrive_after_sp_load(ip, function_at),
            Effect::SwitchStack => self.switch_stack(),
            Effect::Gap { index } if first + index == 0 => {
                self.drop_frames(MissingFrames::BeforeHistory);
            }
            Effect::Gap { .. } => self.drop_frames(MissingFrames::Gap),
            Effect::Arrive { ip, index } => {
                if let Some(effect) = self
                    .pending
                    .take()
                    .and_then(|pending| pending.effect_of_arrival(ip, first + index))
                {
                    // The instructions of this effect are already counted from the thread's start.
                    self.apply_one(effect, 0, function_at);
                }
            }
            Effect::Pending(pending) => self.pending = pending,
            Effect::Execs(count) if count > self.execs => {
                *self = Self { execs: count, ..Self::default() };
            }
            Effect::Execs(_) => {}
        }
    }

    /// Processes a return to `ip`: pops the frame with this return address, and all frames inside
    /// it. Without such a frame, all frames are lost, unless a signal handler returns.
    fn return_to(&mut self, ip: Addr) {
        let innermost = self.stack.frames().next();
        match innermost {
            // A return out of the function in which the path began.
            None if self.missing == MissingFrames::Nothing => {
                self.missing = MissingFrames::BeforeHistory;
            }
            None => {}
            Some(_) if self.stack.pop_through(|frame| frame.is_returned_from(ip)) => {}
            // A signal handler returns to the trampoline, which calls sigreturn(2).
            Some(frame) if frame.signal => {}
            Some(_) => self.drop_frames(MissingFrames::StrayReturn),
        }
    }

    /// Processes an arrival at `ip` after a load of the stack pointer. On an unchanged stack this
    /// leaves all frames inside that of the function at `ip`, if the function is active exactly
    /// once. Otherwise the frames are unknown. A return to the innermost caller, or an arrival at a
    /// function that is not active, shows that the thread has switched stacks; it may do so again
    /// at each later load.
    fn arrive_after_sp_load(&mut self, ip: Addr, function_at: FunctionAt<'_>) {
        let Some(innermost) = self.stack.frames().next().filter(|_| !self.has_switched) else {
            return self.drop_frames(MissingFrames::OtherStack);
        };
        // This looks like a return, but another coroutine may wait in the same function.
        if innermost.is_returned_from(ip) {
            return self.switch_stack();
        }
        let Some(function) = function_at(ip) else {
            return self.drop_frames(MissingFrames::OtherStack);
        };
        let is_in_it =
            |frame: &Frame| function_at(frame.site).is_some_and(|other| other.is_same(&function));
        let active: Vec<Frame> =
            self.stack.frames().take(SEARCHED_FRAMES).filter(is_in_it).take(2).collect();
        let is_all = self.stack.depth() <= SEARCHED_FRAMES;
        match active.as_slice() {
            [frame] if is_all => {
                self.stack.pop_through(|other| other == frame);
            }
            [] if is_all && self.missing == MissingFrames::Nothing => self.switch_stack(),
            _ => self.drop_frames(MissingFrames::OtherStack),
        }
    }

    /// Drops all frames, since the thread has switched stacks.
    fn switch_stack(&mut self) {
        self.has_switched = true;
        self.drop_frames(MissingFrames::OtherStack);
    }

    /// Drops all frames, since they are unknown. `why` is the kind of the missing frames from then
    /// on.
    fn drop_frames(&mut self, why: MissingFrames) {
        self.stack = Stack::default();
        self.missing = why;
    }
}
