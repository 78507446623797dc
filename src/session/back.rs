//! Steps back by source lines and functions, for debuggers that, unlike gdb, do not do so
//! themselves. This needs registers and memory, so an exact recording.

use super::{
    Action, BreakpointKind, Conditions, Direction, Order, Register, Run, Session, Stop, StopReason,
};
use crate::common::{Addr, Tid};
use crate::insn::{Class, ExecMode, MAX_INSN_BYTES, decode};
use std::collections::BTreeSet;

/// The longest call instruction that compilers and linkers write, in bytes.
const LONGEST_CALL: u64 = 9;

/// A step backwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackStep {
    /// To the beginning of a source line. Enters called functions that have line information.
    Into,
    /// To the beginning of a source line, over called functions.
    Over,
    /// To the call of a function.
    Out(Activation),
}

/// A function that was called, as a debugger's unwinder sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Activation {
    /// The stack pointer before the call: the canonical frame address.
    pub frame: u64,
    /// The address to which the function returns.
    pub returns_to: Addr,
}

/// A file's name and a line.
type Line = (String, u32);

/// The result of one step back.
enum Moved {
    /// To an instruction of the same function, perhaps over a call.
    Within,
    /// To the last instruction of a called function.
    IntoCallee,
    /// To the call of the function.
    ToCaller,
    /// To a stop that ends the walk.
    Ended(Stop),
}

/// A step back in progress, made of single steps and of runs to calls.
struct Walk<'a, R> {
    session: &'a mut Session<R>,
    thread: Tid,
    /// True to enter called functions that have line information.
    enters: bool,
    interrupted: &'a dyn Fn() -> bool,
}

impl<R: Run> Session<R> {
    /// Steps a thread back. Stops at breakpoints on the way. The reason of the stop is
    /// [`StopReason::Step`] if the step is complete.
    pub fn step_back(
        &mut self,
        thread: Tid,
        step: BackStep,
        interrupted: &dyn Fn() -> bool,
    ) -> Stop {
        let enters = step == BackStep::Into;
        let mut walk = Walk { session: self, thread, enters, interrupted };
        match step {
            BackStep::Into | BackStep::Over => walk.line(),
            BackStep::Out(activation) => walk.reach_call(activation),
        }
    }
}

impl<R: Run> Walk<'_, R> {
    /// Goes back to the beginning of the current line; from its beginning, to the beginning of the
    /// line executed before.
    fn line(&mut self) -> Stop {
        if !self.is_amid_line() {
            loop {
                match self.back() {
                    Moved::Ended(stop) => return stop,
                    // The caller may have no lines. A function without lines is left as a whole.
                    Moved::ToCaller => break,
                    _ if self.line_here().is_some() => break,
                    _ => {}
                }
            }
        }
        let mut line = self.line_here();
        while self.is_amid_line() {
            let here = self.session.run().position();
            match self.back() {
                Moved::Ended(stop) => return stop,
                Moved::IntoCallee => line = self.line_here(),
                Moved::Within if self.line_here() == line => {}
                // Control entered this line in its middle, at the place left last: return there.
                Moved::Within | Moved::ToCaller => {
                    let came_back = here.map(|here| self.session.seek(here.at));
                    return came_back.and_then(Result::ok).unwrap_or_else(|| self.arrived());
                }
            }
        }
        self.arrived()
    }

    /// Goes back by one instruction, or over a function that is not to be entered to its call.
    fn back(&mut self) -> Moved {
        let from = self.pc();
        let stop = self.resume(Action::Step);
        if stop.reason != StopReason::Step || stop.thread != self.thread {
            return Moved::Ended(stop);
        }
        if (self.interrupted)() {
            return Moved::Ended(Stop { reason: StopReason::Interrupted, ..stop });
        }
        let Some(pc) = self.pc() else { return Moved::Within };
        match self.class_at(pc) {
            Some((Class::Ret, _)) if !self.enters || self.line_here().is_none() => {
                let stop = self.over_callee();
                stop.map_or(Moved::Within, Moved::Ended)
            }
            Some((Class::Ret, _)) => Moved::IntoCallee,
            // Code that asks for its own address calls the next instruction.
            Some((Class::Call { .. } | Class::CallIndirect, length))
                if from != Some(pc.wrapping_add(length)) =>
            {
                Moved::ToCaller
            }
            _ => Moved::Within,
        }
    }

    /// Goes back from the return of a called function to its call. Returns another stop that ended
    /// the way there; `None` at the call.
    fn over_callee(&mut self) -> Option<Stop> {
        let stack = self.register(Register::RSP)?;
        let mut word = [0; 8];
        if self.session.run().read_memory(self.thread, Addr(stack), &mut word) < word.len() {
            return Some(self.arrived());
        }
        let returns_to = Addr(u64::from_le_bytes(word));
        let stop = self.reach_call(Activation { frame: stack.wrapping_add(8), returns_to });
        (stop != self.arrived()).then_some(stop)
    }

    /// Goes back to the call of an activation, by breakpoints at the calls that may return there.
    /// The user's breakpoints still stop the run.
    fn reach_call(&mut self, activation: Activation) -> Stop {
        let Activation { frame, returns_to } = activation;
        let calls: BTreeSet<Addr> = (2..=LONGEST_CALL)
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
        let is_of_user = move |addr| user_breakpoints.at(addr).is_some();
        let at = calls.clone();
        // A cache of the replay keys results by conditions: this condition needs a separate key.
        let key = user_conditions.key().rotate_left(1) ^ frame ^ returns_to.0.rotate_left(32);
        wanted.set_conditions(Conditions::new(key, move |addr, registers, read| {
            let is_the_call = at.contains(&addr)
                && registers.get(Register::RSP).is_some_and(|sp| sp == u128::from(frame));
            is_the_call || is_of_user(addr) && user_conditions.hold(addr, registers, read)
        }));
        let stop =
            self.session.resume_with(self.order(Action::Continue), &wanted, self.interrupted);
        let is_there = stop.thread == self.thread
            && self.pc().is_some_and(|pc| calls.contains(&pc))
            && self.register(Register::RSP) == Some(frame);
        if is_there { self.arrived() } else { stop }
    }

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

    fn order(&self, action: Action) -> Order {
        let (direction, thread) = (Direction::Backward, self.thread);
        Order { action, direction, thread, locked: false, signal: 0 }
    }

    fn resume(&mut self, action: Action) -> Stop {
        self.session.resume(self.order(action), self.interrupted)
    }

    fn arrived(&self) -> Stop {
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

    fn line_of(&self, addr: Addr) -> Option<Line> {
        self.session.run().place(addr)?.line
    }

    /// Returns true if the code before this instruction is of the same line of the same function.
    fn is_amid_line(&self) -> bool {
        let Some(pc) = self.pc() else { return false };
        let Some(here) = self.session.run().place(pc) else { return false };
        here.offset > 0 && here.line.is_some() && self.line_of(Addr(pc.0 - 1)) == here.line
    }
}
