//! The tools `back` and `forward`: moves to code, to a change of memory, or by steps.

use super::answer::Answer;
use super::machine::ThreadMachine;
use super::open_recording::OpenRecording;
use super::requests::{Step, Travel};
use crate::common::{Addr, AddrRange, Tid};
use crate::session::{
    Access, Action, Activation, BackStep, BreakpointKind, Direction, LastChange, Order, Stop,
    StopReason, Watchpoint,
};
use crate::symbols::FrameRegisters;
use crate::values::Question;
use std::collections::BTreeSet;

/// The call of the current function that a step begins in, by which the ends of steps over lines
/// and out of functions are recognized.
struct SteppedFunction {
    /// The canonical frame address: the stack pointer before its call.
    cfa: u64,
    /// The return address; `None` if the function has no caller.
    returns_to: Option<Addr>,
}

impl OpenRecording {
    /// Answers `back` and `forward`: moves as `wanted` says, and returns the new position, also if
    /// something else stopped the move first, such as the end of the history. Removes the
    /// breakpoints and watchpoints that the move inserted, also if it fails.
    pub(super) fn travel(
        &mut self,
        direction: Direction,
        wanted: &Travel,
        interrupted: &dyn Fn() -> bool,
    ) -> Answer {
        let Travel { until, when, watch, step, count } = wanted;
        if [until.is_some(), watch.is_some(), step.is_some()].iter().filter(|is| **is).count() > 1 {
            return Err("give one of `until`, `watch` and `step`".to_owned());
        }
        if when.is_some() && until.is_none() {
            return Err("`when` needs `until`".to_owned());
        }
        let count = count.unwrap_or(1).max(1);
        if count > 1 && until.is_none() && step.is_none() {
            return Err("`count` needs `until` or `step`".to_owned());
        }
        let moved = match (until, watch, step) {
            (Some(code), ..) => {
                self.move_to_code(direction, code, when.as_deref(), count, interrupted)
            }
            (_, Some(value), _) => self.move_to_change(direction, value, interrupted),
            (.., Some(step)) => self.steps(direction, *step, count, interrupted),
            _ => self.resume(direction, Action::Continue, interrupted).map(|_| ()),
        };
        self.session.clear_breakpoints();
        self.has_stepped = step.is_some();
        moved?;
        Ok(self.here())
    }

    /// Resumes the session with the thread that stopped last, until the next stop of any kind.
    /// Fails if the session refuses.
    fn resume(
        &mut self,
        direction: Direction,
        action: Action,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<Stop, String> {
        let thread = self.session.last_stop().thread;
        let order = Order { action, direction, thread, locked: false, signal: 0 };
        match self.session.refusal(&order) {
            Some(error) => Err(error.to_string()),
            None => Ok(self.session.resume(order, interrupted)),
        }
    }

    /// Moves until `code` is about to execute for the `count`th time, counting only executions at
    /// which the expression `when` is true, if there is one. Any other stop, such as the end of the
    /// history, ends the move too. Fails if there is no such code, or if `when` cannot be evaluated
    /// there: the session then remains at that execution. Leaves its breakpoints to the caller.
    fn move_to_code(
        &mut self,
        direction: Direction,
        code: &str,
        when: Option<&str>,
        count: u32,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<(), String> {
        let when = when.map(Question::parse).transpose().map_err(|error| error.to_string())?;
        for addr in self.asked.addresses_of_code(code).map_err(|error| error.to_string())? {
            self.session.insert_breakpoint(BreakpointKind::Software, addr);
        }
        let mut left = count;
        while left > 0 {
            let stop = self.resume(direction, Action::Continue, interrupted)?;
            if !matches!(stop.reason, StopReason::Breakpoint(_)) {
                break;
            }
            let is_true =
                when.as_ref().map(|when| self.is_condition_true(stop.thread, when)).transpose()?;
            left -= u32::from(is_true.unwrap_or(true));
        }
        Ok(())
    }

    /// Moves back to before the last change of the memory of the expression `value`, or forward to
    /// after the next one; forward, any other stop ends the move too. A write of the same bytes
    /// does not stop a move forward. Fails if there is no earlier change; forward, also in path
    /// recordings and for ranges that cannot be watched. Leaves its watchpoint to the caller.
    fn move_to_change(
        &mut self,
        direction: Direction,
        value: &str,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<(), String> {
        let range = self.memory_range(value)?;
        if direction == Direction::Backward {
            let found = self.session.go_to_last_change(range, interrupted);
            return match found.map_err(|error| error.to_string())? {
                LastChange::Nowhere => {
                    Err(format!("{value} was not changed before, as far as the recording goes"))
                }
                LastChange::Here | LastChange::Interrupted => Ok(()),
            };
        }
        if !self.run().is_exact() {
            return Err("only an exact recording has the values of the past".to_owned());
        }
        let watchpoint =
            Watchpoint { addr: range.start, size_bytes: range.size_bytes(), access: Access::Write };
        if !self.session.insert_watchpoint(watchpoint) {
            return Err(format!("{value} cannot be watched: watch a part of it"));
        }
        loop {
            let before = self.bytes_at(range);
            let stop = self.resume(direction, Action::Continue, interrupted)?;
            let is_write = matches!(stop.reason, StopReason::Watchpoint(_));
            if !is_write || self.bytes_at(range) != before {
                return Ok(());
            }
        }
    }

    /// Returns the bytes in a range of memory, up to the first unknown one.
    fn bytes_at(&self, range: AddrRange) -> Vec<u8> {
        let mut bytes = vec![0; usize::try_from(range.size_bytes()).unwrap_or(0)];
        let thread = self.session.last_stop().thread;
        let known = self.run().read_memory(thread, range.start, &mut bytes);
        bytes.truncate(known);
        bytes
    }

    /// Makes `count` steps of the thread that stopped last, or fewer if one does not change the
    /// position, as at an end of the history, or if the user interrupts it. Fails as [`Self::step`]
    /// does, after the steps before that one. Removes their breakpoints.
    fn steps(
        &mut self,
        direction: Direction,
        step: Step,
        count: u32,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<(), String> {
        for _ in 0..count {
            let before = self.run().position();
            let stepped = self.step(direction, step, interrupted);
            // The next step has other ends.
            self.session.clear_breakpoints();
            stepped?;
            if interrupted() || self.run().position() == before {
                break;
            }
        }
        Ok(())
    }

    /// Makes one step of the thread that stopped last: one instruction, to another line (over
    /// calls), or out of the function. Steps of lines and out of functions fail in path recordings
    /// and in code without unwind tables, and out of a function without a caller. Leaves its
    /// breakpoints to the caller.
    fn step(
        &mut self,
        direction: Direction,
        step: Step,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<(), String> {
        let is_out = match step {
            Step::Instruction => {
                return self.resume(direction, Action::Step, interrupted).map(|_| ());
            }
            Step::Line => false,
            Step::Out => true,
        };
        let tid = self.session.last_stop().thread;
        let current = self.stepped_function(tid)?;
        match (direction, is_out) {
            (Direction::Backward, true) => {
                let returns_to = current.returns_to.ok_or("the function was not called")?;
                let activation = Activation { cfa: current.cfa, returns_to };
                self.session.step_back(tid, BackStep::Out(activation), interrupted);
                Ok(())
            }
            (Direction::Backward, false) => {
                self.session.step_back(tid, BackStep::Over, interrupted);
                Ok(())
            }
            (Direction::Forward, true) => {
                current.returns_to.ok_or("the function was not called")?;
                self.run_to_lines(tid, &BTreeSet::new(), &current, interrupted)
            }
            (Direction::Forward, false) => {
                self.run_to_lines(tid, &self.other_lines(tid), &current, interrupted)
            }
        }
    }

    /// Runs forward until thread `tid` reaches one of the addresses `lines` in activation `current`
    /// or in a caller of it, or returns from it, or until a stop that is no breakpoint. Inner
    /// activations, as of a recursion, and other threads do not stop it. Leaves its breakpoints to
    /// the caller.
    fn run_to_lines(
        &mut self,
        tid: Tid,
        lines: &BTreeSet<Addr>,
        current: &SteppedFunction,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<(), String> {
        for addr in lines.iter().copied().chain(current.returns_to) {
            self.session.insert_breakpoint(BreakpointKind::Software, addr);
        }
        loop {
            let stop = self.resume(Direction::Forward, Action::Continue, interrupted)?;
            if !matches!(stop.reason, StopReason::Breakpoint(_)) {
                return Ok(());
            }
            if stop.thread != tid {
                continue;
            }
            let pc = self.run().pc(tid);
            let is_line = pc.is_some_and(|pc| lines.contains(&pc));
            let machine = ThreadMachine::new(self.run(), tid);
            let registers = FrameRegisters::innermost(&machine);
            // At the return address, the stack pointer is the CFA of the function that has
            // returned. Inner activations have lower ones: the stack grows down. In a recursion,
            // the function itself reaches this address too, where another line of it may begin.
            let cfa = if is_line {
                self.asked.symbols().cfa_of(&registers, &machine)
            } else {
                registers.get(crate::symbols::RSP)
            };
            if cfa.is_none_or(|cfa| cfa >= current.cfa) {
                return Ok(());
            }
        }
    }

    /// Returns the current function of a thread, as its call. Fails in recordings that are not
    /// exact, and in code without unwind tables.
    fn stepped_function(&self, tid: Tid) -> Result<SteppedFunction, String> {
        let not_here = "lines and functions are stepped in exact recordings, in code with unwind \
                        tables: give `until`, or the step \"instruction\"";
        if !self.run().is_exact() {
            return Err(not_here.to_owned());
        }
        let machine = ThreadMachine::new(self.run(), tid);
        let registers = FrameRegisters::innermost(&machine);
        let symbols = self.asked.symbols();
        let cfa = symbols.cfa_of(&registers, &machine).ok_or(not_here)?;
        let caller = symbols.caller_of(&registers, &machine);
        Ok(SteppedFunction { cfa, returns_to: caller.and_then(|caller| caller.pc()) })
    }

    /// Returns the addresses at which other lines of the thread's current function begin. Returns
    /// none if the function or its lines are unknown.
    fn other_lines(&self, tid: Tid) -> BTreeSet<Addr> {
        let symbols = self.asked.symbols();
        let Some(pc) = self.run().pc(tid) else { return BTreeSet::new() };
        let Some(function) = symbols.function_at(pc) else { return BTreeSet::new() };
        let here = symbols.location_at(pc).map(|at| (at.file, at.line));
        let all = AddrRange::sized(function.start, function.size_bytes);
        let lines = symbols.source_lines_in(all).into_iter();
        let lines = lines.filter(|line| all.contains(line.range.start));
        let others = lines.filter(|line| {
            here.as_ref().is_none_or(|(file, number)| (&line.file, line.line) != (file, *number))
        });
        others.map(|line| line.range.start).collect()
    }
}
