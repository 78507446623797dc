//! A finished run: a position that moves along a [`History`]. Nothing is executed or changed.
//!
//! A resume searches, in the order's direction, for a breakpoint of any thread, or a requested
//! system call or signal; up to an instruction of the thread for a step, or an end of the history.
//! Several stops may belong to one position, ranked by [`StopRank`]; those that the last stop has
//! not reported yet come before any move. With a locked order (gdb's scheduler locking), only the
//! order's thread may stop the run.

use super::kernel_events::StopRank;
use super::{
    Action, Breakpoints, CallFrame, Catches, Description, Direction, Edge, Ending, Error,
    EventSearch, FileBytes, Found, GapInfo, History, KnownRegisters, Library, MissingFrames, Order,
    Position, Region, Register, RequestedEvents, Run, Search, Stop, StopReason, ThreadInfo, Value,
};
use crate::common::{Addr, Tid};
use std::cell::Cell;
use std::path::{Path, PathBuf};

/// A history and a position in it.
#[derive(Debug)]
pub struct Recorded<H> {
    history: H,
    position: u64,
    /// The system calls and signals that stop the run.
    wanted: RequestedEvents,
    /// The number of system calls that the last resume skipped because their numbers are unknown.
    unknown_calls: Cell<u64>,
    /// Set if the last resume was a step back of one thread alone; each resume takes it.
    lone_step: Option<LoneStepBack>,
}

/// A step back of one thread alone, to its previous instruction. The run's position is that of this
/// thread then; the other threads have not moved, and count as still at `others`. So the next
/// search backwards begins there. gdb steps like this to pass a breakpoint of another thread.
#[derive(Clone, Copy, Debug)]
struct LoneStepBack {
    thread: Tid,
    /// The position of the other threads.
    others: u64,
}

/// The inputs of one resume ([`Run::resume`]).
struct ResumeInputs<'a> {
    order: &'a Order,
    /// The current stop, which is not reported again.
    last: &'a Stop,
    breakpoints: &'a Breakpoints,
    interrupted: &'a dyn Fn() -> bool,
    /// Set if the last resume was a step back of one thread alone ([`LoneStepBack`]).
    lone_step: Option<LoneStepBack>,
}

impl ResumeInputs<'_> {
    /// Returns the order's thread if the order is locked, so that no other may stop the run.
    fn locked_thread(&self) -> Option<Tid> {
        self.order.locked.then_some(self.order.thread)
    }

    fn stop(&self, reason: StopReason) -> Stop {
        Stop { thread: self.order.thread, reason }
    }
}

impl<H: History> Recorded<H> {
    /// Returns a run at the end of its history.
    pub fn at_end(history: H) -> Self {
        let position = history.total();
        let (wanted, unknown_calls) = (RequestedEvents::default(), Cell::new(0));
        Self { history, position, wanted, unknown_calls, lone_step: None }
    }

    /// Returns the history.
    pub fn history(&self) -> &H {
        &self.history
    }

    /// Returns the history, without the position.
    pub fn into_history(self) -> H {
        self.history
    }

    /// Moves back to the previous instruction of the order's thread, or to a stop on the way there.
    /// If the thread has none, returns a stop at the beginning without a move. After a step with a
    /// locked order, the other threads count as still where they were ([`LoneStepBack`]).
    fn step_back(&mut self, inputs: &ResumeInputs<'_>) -> Stop {
        let tid = inputs.order.thread;
        let executed = self.history.index_of(tid, self.position);
        let previous = executed.checked_sub(1).and_then(|i| self.history.position_of(tid, i));
        let Some(target) = previous.filter(|target| *target < self.position) else {
            return inputs.stop(StopReason::Edge(Edge::Begin));
        };
        // Other threads ran between the two instructions, and may stop at their breakpoints.
        if let Some(stop) = self.move_to_stop(inputs, Direction::Backward, target + 1) {
            return stop;
        }
        if inputs.order.locked {
            let before = inputs.lone_step.filter(|lone_step| lone_step.thread == tid);
            let others = before.map_or(self.position, |lone_step| lone_step.others);
            self.lone_step = Some(LoneStepBack { thread: tid, others });
        }
        self.finish_step(inputs, Direction::Backward, target)
    }

    /// Moves past the next instruction of the order's thread, or to a stop on the way there. If the
    /// thread ends with it, or has no more instructions, does the same as [`Self::run_others`].
    fn step_forward(&mut self, inputs: &ResumeInputs<'_>) -> Stop {
        let tid = inputs.order.thread;
        let index = self.history.index_of(tid, self.position);
        let ahead = self.position..self.history.total();
        let next = self.history.position_of(tid, index).filter(|next| ahead.contains(next));
        let Some(executes) = next else { return self.run_others(inputs) };
        // Only other threads run up to there, and may stop at their breakpoints.
        if let Some(stop) =
            self.move_to_stop(inputs, Direction::Forward, executes.saturating_sub(1))
        {
            return stop;
        }
        self.position = executes + 1;
        if self.is_alive(tid) {
            self.finish_step(inputs, Direction::Forward, executes + 1)
        } else {
            self.run_others(inputs)
        }
    }

    /// Moves to the position at which a step ends, and returns the stop: the first one there in
    /// `direction` if the stepping thread executes next, else a complete step.
    fn finish_step(
        &mut self,
        inputs: &ResumeInputs<'_>,
        direction: Direction,
        position: u64,
    ) -> Stop {
        self.position = position;
        let tid = inputs.order.thread;
        let next = self.history.running_at(position) == Some(tid);
        inputs.stop(if next { self.first_stop_reason(inputs, direction) } else { StopReason::Step })
    }

    /// Returns the reason of the first stop in `direction` at the current position, for the thread
    /// that executes there; [`StopReason::Step`] if there is none.
    fn first_stop_reason(&self, inputs: &ResumeInputs<'_>, direction: Direction) -> StopReason {
        let tid = self.history.running_at(self.position);
        let pc = tid.and_then(|tid| self.history.pc(tid, self.position));
        let kind = pc.and_then(|pc| inputs.breakpoints.kind_at(pc));
        let start = match direction {
            Direction::Forward => StopRank::Before,
            Direction::Backward => StopRank::After,
        };
        let met = self.history.events_at(self.position, &self.wanted);
        let met = met.next_after(start, direction);
        let is_first = |rank| match direction {
            Direction::Forward => rank < StopRank::Instruction,
            Direction::Backward => rank > StopRank::Instruction,
        };
        match (met, kind) {
            (Some((rank, reason)), kind) if kind.is_none() || is_first(rank) => reason,
            (_, Some(kind)) => StopReason::Breakpoint(kind),
            _ => StopReason::Step,
        }
    }

    /// Runs the other threads after the stepping thread's last instruction, to their next stop or
    /// to the end. With a locked order, returns a stop at the end without a move.
    fn run_others(&mut self, inputs: &ResumeInputs<'_>) -> Stop {
        if inputs.order.locked {
            return inputs.stop(StopReason::Edge(Edge::End));
        }
        let end = self.history.total();
        self.move_to_stop(inputs, Direction::Forward, end.saturating_sub(1))
            .unwrap_or_else(|| self.stop_at_edge(inputs, Edge::End, end))
    }

    /// Runs back to a stop, else to the beginning: that of the thread if the order is locked.
    fn continue_back(&mut self, inputs: &ResumeInputs<'_>) -> Stop {
        let first = inputs.locked_thread().and_then(|tid| self.history.position_of(tid, 0));
        let begin = first.unwrap_or(0).min(self.position);
        self.move_to_stop(inputs, Direction::Backward, begin)
            .unwrap_or_else(|| self.stop_at_edge(inputs, Edge::Begin, begin))
    }

    /// Runs forward to a stop, else to the end: that of the thread if the order is locked.
    fn continue_forward(&mut self, inputs: &ResumeInputs<'_>) -> Stop {
        let end =
            inputs.locked_thread().map_or(self.history.total(), |tid| self.end_of_thread(tid));
        let end = end.max(self.position);
        self.move_to_stop(inputs, Direction::Forward, end.saturating_sub(1))
            .unwrap_or_else(|| self.stop_at_edge(inputs, Edge::End, end))
    }

    /// Returns the position after the last instruction of a thread; the current one if it has none.
    fn end_of_thread(&self, tid: Tid) -> u64 {
        let count = self.history.index_of(tid, self.history.total());
        let last = count.checked_sub(1).and_then(|index| self.history.position_of(tid, index));
        last.map_or(self.position, |last| last + 1)
    }

    /// Searches for a stop from here to `until`, included: first one at the current position that
    /// was not reported yet. Moves to it and returns it; `None`, without a move, if there is none.
    /// If interrupted, moves to where the search was, and returns a stop there.
    fn move_to_stop(
        &mut self,
        inputs: &ResumeInputs<'_>,
        direction: Direction,
        until: u64,
    ) -> Option<Stop> {
        if let Some(stop) = self.unreported_stop(inputs, direction) {
            return Some(stop);
        }
        let is_ahead = match direction {
            Direction::Forward => self.position < until,
            Direction::Backward => until < self.position,
        };
        if !is_ahead {
            return None;
        }
        match self.find_stop(inputs, direction, until) {
            Found::Nothing => None,
            Found::At(position) => {
                self.position = position;
                let thread = self.running_or(inputs.order.thread);
                Some(Stop { thread, reason: self.first_stop_reason(inputs, direction) })
            }
            Found::Interrupted(position) => {
                self.position = position;
                let thread = self.running_or(inputs.order.thread);
                Some(Stop { thread, reason: StopReason::Interrupted })
            }
        }
    }

    /// Returns the nearest position up to `until` with a breakpoint or a requested call or signal.
    /// If no thread is locked, a search back after a [`LoneStepBack`] begins where the others are,
    /// and skips the instructions over which the lone thread has gone back already.
    fn find_stop(&self, inputs: &ResumeInputs<'_>, direction: Direction, until: u64) -> Found {
        let goes_on = direction == Direction::Backward && !inputs.order.locked;
        let Some(lone_step) = inputs.lone_step.filter(|_| goes_on) else {
            return self.find_stop_from(self.position, inputs, direction, until);
        };
        let mut from = lone_step.others;
        loop {
            let running = |position| self.history.running_at(position);
            match self.find_stop_from(from, inputs, direction, until) {
                Found::At(at) if at >= self.position && running(at) == Some(lone_step.thread) => {
                    from = at;
                }
                found => return found,
            }
        }
    }

    /// Returns the nearest such position from `from`, excluded, to `until`, included.
    fn find_stop_from(
        &self,
        from: u64,
        inputs: &ResumeInputs<'_>,
        direction: Direction,
        until: u64,
    ) -> Found {
        let addrs = inputs.breakpoints.addrs();
        let only = inputs.locked_thread();
        let search = Search::beyond(from, until, direction, only, addrs);
        let found = if addrs.is_empty() {
            Found::Nothing
        } else {
            self.history.find(&search, inputs.interrupted)
        };
        let until = match found {
            Found::At(position) | Found::Interrupted(position) => position,
            Found::Nothing => until,
        };
        let (wanted, unknown_calls) = (&self.wanted, &self.unknown_calls);
        let search = EventSearch { from, until, direction, only, wanted, unknown_calls };
        match self.history.find_event(&search, inputs.interrupted) {
            Found::Nothing => found,
            nearer => nearer,
        }
    }

    /// Returns the next stop here in `direction` that the last stop has not reported, of the thread
    /// that executes next; breakpoints count only as [`Self::unreported_breakpoint`]. `None` also
    /// if another thread is locked, and backwards if the last stop was another thread's.
    fn unreported_stop(&self, inputs: &ResumeInputs<'_>, direction: Direction) -> Option<Stop> {
        let thread = self.history.running_at(self.position)?;
        let is_own = thread == inputs.last.thread;
        if (inputs.order.locked && thread != inputs.order.thread)
            || (direction == Direction::Backward && !is_own)
        {
            return None;
        }
        let reported = if is_own { StopRank::of(inputs.last.reason) } else { StopRank::Before };
        let events = self.history.events_at(self.position, &self.wanted);
        let next = events.next_after(reported, direction);
        let stop = |reason| Stop { thread, reason };
        match next {
            Some((rank, reason)) if rank < StopRank::Instruction => Some(stop(reason)),
            _ => self
                .unreported_breakpoint(inputs, direction)
                .or_else(|| next.map(|(_, reason)| stop(reason))),
        }
    }

    /// Returns the breakpoint at the current position, if the thread there is neither that of the
    /// last stop, which has reported it, nor the order's. Only forwards, and if all threads run.
    fn unreported_breakpoint(
        &self,
        inputs: &ResumeInputs<'_>,
        direction: Direction,
    ) -> Option<Stop> {
        let thread = self.history.running_at(self.position)?;
        let reported = thread == inputs.last.thread || thread == inputs.order.thread;
        if direction == Direction::Backward || reported || inputs.order.locked {
            return None;
        }
        let kind = inputs.breakpoints.kind_at(self.history.pc(thread, self.position)?)?;
        Some(Stop { thread, reason: StopReason::Breakpoint(kind) })
    }

    /// Moves to `position`, an end of the history or of the locked thread, and returns the stop.
    fn stop_at_edge(&mut self, inputs: &ResumeInputs<'_>, edge: Edge, position: u64) -> Stop {
        self.position = position;
        let thread = if inputs.order.locked {
            inputs.order.thread
        } else {
            self.running_or(inputs.order.thread)
        };
        Stop { thread, reason: StopReason::Edge(edge) }
    }

    /// Returns the thread that executes next, else `otherwise` if it exists, else another one.
    fn running_or(&self, otherwise: Tid) -> Tid {
        let running = self.history.running_at(self.position).filter(|tid| self.is_alive(*tid));
        running.unwrap_or_else(|| {
            if self.is_alive(otherwise) { otherwise } else { self.default_thread() }
        })
    }

    fn is_alive(&self, tid: Tid) -> bool {
        self.threads().iter().any(|thread| thread.tid == tid)
    }
}

impl<H: History> Run for Recorded<H> {
    fn threads(&self) -> Vec<ThreadInfo> {
        let all = self.history.threads();
        let alive: Vec<_> =
            all.iter().filter(|thread| thread.is_alive_at(self.position)).cloned().collect();
        // A debugger cannot show a process without threads.
        if alive.is_empty() { all.into_iter().rev().take(1).collect() } else { alive }
    }

    fn default_thread(&self) -> Tid {
        let threads = self.threads();
        let running = self.history.running_at(self.position);
        let listed = threads.iter().find(|thread| Some(thread.tid) == running);
        listed.or_else(|| threads.first()).map_or(Tid(1), |thread| thread.tid)
    }

    fn position(&self) -> Option<Position> {
        Some(Position { at: self.position, total: self.history.total() })
    }

    fn resume(
        &mut self,
        order: &Order,
        last: &Stop,
        breakpoints: &Breakpoints,
        interrupted: &dyn Fn() -> bool,
    ) -> Stop {
        let lone_step = self.lone_step.take();
        let inputs = ResumeInputs { order, last, breakpoints, interrupted, lone_step };
        self.unknown_calls.set(0);
        match (order.action, order.direction) {
            (Action::Step, Direction::Forward) => self.step_forward(&inputs),
            (Action::Step, Direction::Backward) => self.step_back(&inputs),
            (Action::Continue, Direction::Forward) => self.continue_forward(&inputs),
            (Action::Continue, Direction::Backward) => self.continue_back(&inputs),
        }
    }

    fn seek(&mut self, position: u64) -> Result<(), Error> {
        let total = self.history.total();
        if position > total {
            return Err(Error::NoSuchPosition { position, total });
        }
        (self.position, self.lone_step) = (position, None);
        Ok(())
    }

    fn pc(&self, tid: Tid) -> Option<Addr> {
        self.history.pc(tid, self.position)
    }

    fn stays_in_activation(&self, tid: Tid) -> bool {
        self.history.stays_in_activation(tid, self.position)
    }

    fn registers(&self, tid: Tid) -> KnownRegisters {
        let mut registers = self.history.registers(tid, self.position);
        if let Some(pc) = self.pc(tid) {
            registers.set(Register::RIP, Some(u128::from(pc.0)));
        }
        registers
    }

    fn read_memory(&self, tid: Tid, addr: Addr, buf: &mut [u8]) -> usize {
        self.history.read_memory(tid, self.position, addr, buf).min(buf.len())
    }

    fn write_register(&mut self, _: Tid, _: Register, _: Value) -> Result<(), Error> {
        Err(Error::PastIsFixed)
    }

    fn write_memory(&mut self, _: Tid, _: Addr, _: &[u8]) -> Result<(), Error> {
        Err(Error::PastIsFixed)
    }

    fn call_stack(&self, tid: Tid) -> Vec<CallFrame> {
        let mut stack = self.history.call_stack(tid, self.position);
        // The function that made the outermost call is around it.
        if stack.last().is_none_or(|frame| frame.call_site.is_some()) {
            stack.push(CallFrame::default());
        }
        stack
    }

    fn missing_frames(&self, tid: Tid) -> MissingFrames {
        self.history.missing_frames(tid, self.position)
    }

    fn time_ns(&self) -> Option<u64> {
        self.history.time_ns(self.position)
    }

    fn fatal_signal(&self) -> Option<(Tid, i32)> {
        let Ending::Signal(number) = self.history.describe().ending else { return None };
        let at_end = self.position == self.history.total();
        at_end.then(|| (self.default_thread(), number))
    }

    fn gaps(&self) -> Vec<GapInfo> {
        self.history.gaps()
    }

    fn describe(&self) -> Description {
        self.history.describe()
    }

    fn auxv(&self) -> Option<Vec<u8>> {
        self.history.auxv()
    }

    fn exec_file(&self) -> Option<PathBuf> {
        self.history.exec_file()
    }

    fn libraries(&self) -> Option<Vec<Library>> {
        self.history.libraries()
    }

    fn siginfo(&self, tid: Tid) -> Option<Vec<u8>> {
        self.history.siginfo(tid, self.position)
    }

    fn file(&self, path: &Path) -> Option<Box<dyn FileBytes>> {
        self.history.file(path)
    }

    fn pt_trace(&self, tid: Tid, since: u64) -> Option<Vec<u8>> {
        self.history.pt_trace(tid, since, self.position)
    }

    fn pt_cpu(&self) -> Option<(u16, u8, u8)> {
        self.history.pt_cpu()
    }

    fn regions(&self) -> Option<Vec<Region>> {
        self.history.regions(self.position)
    }

    fn path_history(&self) -> Option<&dyn History> {
        Some(&self.history)
    }

    fn set_passed_signals(&mut self, signals: u64) {
        self.wanted.passed_signals = signals;
    }

    fn can_catch_calls(&self) -> bool {
        self.history.knows_kernel_events()
    }

    fn catch_calls(&mut self, catches: Catches) {
        self.wanted.calls = catches;
    }

    fn unknown_calls(&self) -> u64 {
        self.unknown_calls.get()
    }
}
