//! Steps back by source lines and functions, for debuggers that, unlike gdb, do not do so
//! themselves. This needs registers and memory, so an exact recording.
//!
//! A step is a walk of single steps back ([`BackWalk::step_one_back`]). Where one arrives at the
//! RET of a function that is not to be entered, the walk goes back to that function's call at once
//! ([`BackWalk::reach_call`]): with the breakpoints of the user, and one at each call instruction
//! that could have pushed the return address. Such a call counts only with the right stack pointer.

use super::{
    Action, BreakpointKind, Conditions, Direction, Order, Register, Run, Session, Stop, StopReason,
};
use crate::common::{Addr, Tid};
use crate::insn::{Class, ExecMode, MAX_INSN_BYTES, decode};
use std::collections::BTreeSet;

/// The size of the longest call instruction that compilers and linkers write.
const MAX_CALL_BYTES: u64 = 9;

/// A step backwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackStep {
    /// To the beginning of the current source line, or from there to that of the line executed
    /// before. Enters called functions that have line information, at their last line.
    Into,
    /// The same, but over called functions.
    Over,
    /// To the call of a function, which is about to execute then.
    Out(Activation),
}

/// A function that was called, as a debugger's unwinder sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Activation {
    /// The stack pointer before the call: the canonical frame address.
    pub cfa: u64,
    /// The address to which the function returns.
    pub returns_to: Addr,
}

/// A file's name without directories, and a line.
type Line = (String, u32);

/// The result of one step back, by the instruction that is about to execute then.
enum BackMove {
    /// One of the same function, perhaps the call of a function that was skipped.
    InFunction,
    /// The RET of a called function, which is entered.
    IntoCallee,
    /// The call of the function, in its caller.
    ToCaller,
    /// Any: this stop ends the walk, such as a breakpoint or an interrupt.
    Ended(Stop),
}

/// A [`BackStep`] in progress, made of single steps and of runs to calls.
struct BackWalk<'a, R> {
    session: &'a mut Session<R>,
    thread: Tid,
    /// True to enter called functions that have line information.
    enters_callees: bool,
    interrupted: &'a dyn Fn() -> bool,
}

impl<R: Run> Session<R> {
    /// Steps a thread back in an exact recording, and waits for the stop. The reason of the stop is
    /// [`StopReason::Step`] if the step is complete; otherwise a breakpoint, a signal, an interrupt
    /// or the beginning of the history ended it on the way. [`StopReason::Moved`] means that the
    /// last move, to the beginning of the line, failed. If the call of a [`BackStep::Out`] is not
    /// found, the step goes back to another stop. The session's last stop may have another reason
    /// than the returned one: that of the last part of the step.
    pub fn step_back(
        &mut self,
        thread: Tid,
        step: BackStep,
        interrupted: &dyn Fn() -> bool,
    ) -> Stop {
        let enters_callees = step == BackStep::Into;
        let mut walk = BackWalk { session: self, thread, enters_callees, interrupted };
        match step {
            BackStep::Into | BackStep::Over => walk.go_to_line_start(),
            BackStep::Out(activation) => walk.reach_call(activation),
        }
    }
}

impl<R: Run> BackWalk<'_, R> {
    /// Goes back to the beginning of the current line; from its beginning, to the beginning of the
    /// line executed before. A line also begins where control entered it in its middle, so a walk
    /// that begins right there leaves it, too. Returns the stop there, or the one that ended the
    /// walk earlier.
    fn go_to_line_start(&mut self) -> Stop {
        let start = self.session.run().position();
        if !self.is_inside_line()
            && let Some(stop) = self.go_to_line_before()
        {
            return stop;
        }
        let mut line = self.line_here();
        while self.is_inside_line() {
            let left = self.session.run().position();
            match self.step_one_back() {
                BackMove::Ended(stop) => return stop,
                BackMove::IntoCallee => line = self.line_here(),
                BackMove::InFunction if self.line_here() == line => {}
                // Control entered the line in its middle, at `left`. A walk that began right there
                // goes on, to the beginning of the line executed before; others end at `left`.
                BackMove::InFunction if left == start => {
                    if self.line_here().is_none()
                        && let Some(stop) = self.go_to_line_before()
                    {
                        return stop;
                    }
                    line = self.line_here();
                }
                BackMove::ToCaller if left == start => line = self.line_here(),
                BackMove::InFunction | BackMove::ToCaller => {
                    if let Some(Err(_)) = left.map(|left| self.session.seek(left.at)) {
                        // The run is one instruction before the line.
                        return Stop { reason: StopReason::Moved, ..self.step_complete() };
                    }
                    break;
                }
            }
        }
        self.step_complete()
    }

    /// Goes back to the last instruction that has a line, or to the caller, which may have no
    /// lines: a function without lines is left as a whole. Returns the stop if one ends the walk
    /// earlier.
    fn go_to_line_before(&mut self) -> Option<Stop> {
        loop {
            match self.step_one_back() {
                BackMove::Ended(stop) => return Some(stop),
                BackMove::ToCaller => return None,
                _ if self.line_here().is_some() => return None,
                _ => {}
            }
        }
    }

    /// Goes back by one instruction. If that is the RET of a function that is not to be entered,
    /// goes on to the call of that function. Unknown code counts as that of the same function.
    fn step_one_back(&mut self) -> BackMove {
        let from = self.pc();
        let stop = self.resume(Action::Step);
        if stop.reason != StopReason::Step || stop.thread != self.thread {
            return BackMove::Ended(stop);
        }
        if (self.interrupted)() {
            return BackMove::Ended(Stop { reason: StopReason::Interrupted, ..stop });
        }
        let Some(pc) = self.pc() else { return BackMove::InFunction };
        match self.class_at(pc) {
            Some((Class::Ret, _)) if !self.enters_callees || self.line_here().is_none() => {
                let stop = self.skip_callee();
                stop.map_or(BackMove::InFunction, BackMove::Ended)
            }
            Some((Class::Ret, _)) => BackMove::IntoCallee,
            // Code that asks for its own address calls the next instruction.
            Some((Class::Call { .. } | Class::CallIndirect, length))
                if from != Some(pc.wrapping_add(length)) =>
            {
                BackMove::ToCaller
            }
            _ => BackMove::InFunction,
        }
    }

    /// Goes back from the RET of a called function to its call. Returns `None` at the call, and
    /// also, without a move, if the stack pointer is unknown. Otherwise returns the stop that ends
    /// the walk: one on the way, or at the RET if the return address cannot be read.
    fn skip_callee(&mut self) -> Option<Stop> {
        let stack = self.register(Register::RSP)?;
        let mut word = [0; 8];
        if self.session.run().read_memory(self.thread, Addr(stack), &mut word) < word.len() {
            return Some(self.step_complete());
        }
        let returns_to = Addr(u64::from_le_bytes(word));
        let stop = self.reach_call(Activation { cfa: stack.wrapping_add(8), returns_to });
        (stop != self.step_complete()).then_some(stop)
    }

    /// Goes back to the call of an activation, by breakpoints at the call instructions before its
    /// return address. Returns [`Self::step_complete`] there, or another stop: the user's
    /// breakpoints still stop the run, and without such a call it ends at the beginning of the
    /// history. At the call, the session's last stop is that of the breakpoint.
    fn reach_call(&mut self, activation: Activation) -> Stop {
        let Activation { cfa, returns_to } = activation;
        let calls: BTreeSet<Addr> = (2..=MAX_CALL_BYTES)
            .filter_map(|length| returns_to.0.checked_sub(length).map(|at| (Addr(at), length)))
            .filter(|(at, length)| self.is_call(*at, *length))
            .map(|(at, _)| at)
            .collect();
        let user_breakpoints = self.session.breakpoints().clone();
        let user_conditions = user_breakpoints.conditions().clone();
        let mut wanted = user_breakpoints.clone();
        for addr in &calls {
            wanted.insert(BreakpointKind::Software, *addr);
        }
        let is_of_user = move |addr| user_breakpoints.kind_at(addr).is_some();
        let at = calls.clone();
        // A cache of the replay keys results by conditions: this condition needs a separate key.
        let key = user_conditions.key().rotate_left(1) ^ cfa ^ returns_to.0.rotate_left(32);
        wanted.set_conditions(Conditions::new(key, move |addr, registers, read| {
            let is_the_call = at.contains(&addr)
                && registers.get(Register::RSP).is_some_and(|sp| sp == u128::from(cfa));
            is_the_call || is_of_user(addr) && user_conditions.hold(addr, registers, read)
        }));
        let stop =
            self.session.resume_with(self.order(Action::Continue), &wanted, self.interrupted);
        let is_there = stop.thread == self.thread
            && self.pc().is_some_and(|pc| calls.contains(&pc))
            && self.register(Register::RSP) == Some(cfa);
        if is_there { self.step_complete() } else { stop }
    }

    /// Returns true if a call instruction of this length is at `at`; false if the code is unknown.
    fn is_call(&self, at: Addr, length: u64) -> bool {
        let class = self.class_at(at);
        let is_call = |class| matches!(class, Class::Call { .. } | Class::CallIndirect);
        class.is_some_and(|(class, whole)| is_call(class) && whole == length)
    }

    /// Returns the class and the length of the instruction at an address; `None` if it is unknown.
    fn class_at(&self, addr: Addr) -> Option<(Class, u64)> {
        let mut code = [0; MAX_INSN_BYTES];
        let known = self.session.run().read_memory(self.thread, addr, &mut code);
        let insn = decode(&code[..known], addr, ExecMode::Bits64)?;
        Some((insn.class, u64::from(insn.len)))
    }

    /// Returns an order for the walk's thread to go backward, with no thread locked.
    fn order(&self, action: Action) -> Order {
        let (direction, thread) = (Direction::Backward, self.thread);
        Order { action, direction, thread, locked: false, signal: 0 }
    }

    fn resume(&mut self, action: Action) -> Stop {
        self.session.resume(self.order(action), self.interrupted)
    }

    /// Returns the stop of a complete step; the session's last stop is left as it is.
    fn step_complete(&self) -> Stop {
        Stop { thread: self.thread, reason: StopReason::Step }
    }

    fn register(&self, register: Register) -> Option<u64> {
        let value = self.session.run().registers(self.thread).get(register)?;
        u64::try_from(value).ok()
    }

    fn pc(&self) -> Option<Addr> {
        self.session.run().pc(self.thread)
    }

    fn line_here(&self) -> Option<Line> {
        self.pc().and_then(|pc| self.line_of(pc))
    }

    /// Returns the line of the code at an address; `None` if it is unknown.
    fn line_of(&self, addr: Addr) -> Option<Line> {
        self.session.run().location_of(addr)?.line
    }

    /// Returns true if the byte before this instruction is code of the same line of the same
    /// function; false if this instruction has no line.
    fn is_inside_line(&self) -> bool {
        let Some(pc) = self.pc() else { return false };
        let Some(here) = self.session.run().location_of(pc) else { return false };
        here.offset > 0 && here.line.is_some() && self.line_of(Addr(pc.0 - 1)) == here.line
    }
}
