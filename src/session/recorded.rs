//! A finished run: a position that moves along a [`History`]. Nothing is executed and nothing can
//! be changed.

use super::happenings::Rank;
use super::{
    Action, Breakpoints, CallFrame, Catches, Description, Direction, Edge, Ending, Error,
    FileBytes, Found, GapInfo, HappeningSearch, History, KnownRegisters, Library, MissingFrames,
    Order, Position, Region, Register, Run, Search, Stop, StopReason, ThreadInfo, Value, Wanted,
};
use crate::common::{Addr, Tid};
use std::cell::Cell;
use std::path::{Path, PathBuf};

/// A history and a position in it.
#[derive(Debug)]
pub struct Recorded<H> {
    history: H,
    position: u64,
    wanted: Wanted,
    /// The number of system calls that the last resume skipped because their numbers are unknown.
    unknown: Cell<u64>,
    /// Set if the last resume was a step back of one thread alone.
    alone: Option<Alone>,
}

/// A step back of one thread alone, to its previous instruction. The run's position is that of this
/// thread then; the other threads have not moved, and count as still at `others`. So the next
/// search backwards begins there. gdb steps like this to pass a breakpoint of another thread.
#[derive(Clone, Copy, Debug)]
struct Alone {
    thread: Tid,
    /// The position of the other threads.
    others: u64,
}

/// The inputs of one resume.
struct Walk<'a> {
    order: &'a Order,
    last: &'a Stop,
    breakpoints: &'a Breakpoints,
    interrupted: &'a dyn Fn() -> bool,
    /// Set if the last resume was a step back of one thread alone ([`Alone`]).
    alone: Option<Alone>,
}

impl Walk<'_> {
    /// Returns the only thread that may stop the run, if others may not.
    fn only(&self) -> Option<Tid> {
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
        let (wanted, unknown) = (Wanted::default(), Cell::new(0));
        Self { history, position, wanted, unknown, alone: None }
    }

    /// Returns the history.
    pub fn history(&self) -> &H {
        &self.history
    }

    /// Returns the history and drops the position.
    pub fn into_history(self) -> H {
        self.history
    }

    /// Moves back to the previous instruction of the order's thread, or to a stop on the way there.
    fn step_back(&mut self, walk: &Walk<'_>) -> Stop {
        let tid = walk.order.thread;
        let executed = self.history.index_of(tid, self.position);
        let previous = executed.checked_sub(1).and_then(|i| self.history.position_of(tid, i));
        let Some(target) = previous.filter(|target| *target < self.position) else {
            return walk.stop(StopReason::Edge(Edge::Begin));
        };
        // Other threads ran between the two instructions, and may stop at their breakpoints.
        if let Some(stop) = self.travel(walk, Direction::Backward, target + 1) {
            return stop;
        }
        if walk.order.locked {
            let before = walk.alone.filter(|alone| alone.thread == tid);
            let others = before.map_or(self.position, |alone| alone.others);
            self.alone = Some(Alone { thread: tid, others });
        }
        self.finish_step(walk, Direction::Backward, target)
    }

    /// Moves past the next instruction of the order's thread, or to a stop on the way there. If the
    /// thread has no more instructions, the others run on.
    fn step_forward(&mut self, walk: &Walk<'_>) -> Stop {
        let tid = walk.order.thread;
        let index = self.history.index_of(tid, self.position);
        let way = self.position..self.history.total();
        let next = self.history.position_of(tid, index).filter(|next| way.contains(next));
        let Some(executes) = next else { return self.run_on(walk) };
        // Only other threads run up to there, and may stop at their breakpoints.
        if let Some(stop) = self.travel(walk, Direction::Forward, executes.saturating_sub(1)) {
            return stop;
        }
        self.position = executes + 1;
        if self.is_alive(tid) {
            self.finish_step(walk, Direction::Forward, executes + 1)
        } else {
            self.run_on(walk)
        }
    }

    /// Ends a step at a position. If the stepping thread runs next, it may meet a stop there.
    fn finish_step(&mut self, walk: &Walk<'_>, direction: Direction, position: u64) -> Stop {
        self.position = position;
        let tid = walk.order.thread;
        let next = self.history.running_at(position) == Some(tid);
        walk.stop(if next { self.first_met(walk, direction) } else { StopReason::Step })
    }

    /// Returns the first stop in `direction` among those of the running thread at the position.
    fn first_met(&self, walk: &Walk<'_>, direction: Direction) -> StopReason {
        let tid = self.history.running_at(self.position);
        let pc = tid.and_then(|tid| self.history.pc(tid, self.position));
        let kind = pc.and_then(|pc| walk.breakpoints.at(pc));
        let start = match direction {
            Direction::Forward => Rank::Before,
            Direction::Backward => Rank::After,
        };
        let met = self.history.happening_at(self.position, &self.wanted);
        let met = met.next(start, direction);
        let is_first = |rank| match direction {
            Direction::Forward => rank < Rank::Instruction,
            Direction::Backward => rank > Rank::Instruction,
        };
        match (met, kind) {
            (Some((rank, reason)), kind) if kind.is_none() || is_first(rank) => reason,
            (_, Some(kind)) => StopReason::Breakpoint(kind),
            _ => StopReason::Step,
        }
    }

    /// Runs the other threads after the stepping thread has executed its last instruction, to their
    /// next stop or to the end. If they are locked, reports the end at once.
    fn run_on(&mut self, walk: &Walk<'_>) -> Stop {
        if walk.order.locked {
            return walk.stop(StopReason::Edge(Edge::End));
        }
        let end = self.history.total();
        self.travel(walk, Direction::Forward, end.saturating_sub(1))
            .unwrap_or_else(|| self.stop_at_edge(walk, Edge::End, end))
    }

    fn continue_back(&mut self, walk: &Walk<'_>) -> Stop {
        let first = walk.only().and_then(|tid| self.history.position_of(tid, 0));
        let begin = first.unwrap_or(0).min(self.position);
        self.travel(walk, Direction::Backward, begin)
            .unwrap_or_else(|| self.stop_at_edge(walk, Edge::Begin, begin))
    }

    fn continue_forward(&mut self, walk: &Walk<'_>) -> Stop {
        let end = walk.only().map_or(self.history.total(), |tid| self.end_of(tid));
        let end = end.max(self.position);
        self.travel(walk, Direction::Forward, end.saturating_sub(1))
            .unwrap_or_else(|| self.stop_at_edge(walk, Edge::End, end))
    }

    /// Returns the position after the last instruction of a thread.
    fn end_of(&self, tid: Tid) -> u64 {
        let count = self.history.index_of(tid, self.history.total());
        let last = count.checked_sub(1).and_then(|index| self.history.position_of(tid, index));
        last.map_or(self.position, |last| last + 1)
    }

    /// Searches for a stop on the path to `until`. Moves to it, or stays if there is none.
    fn travel(&mut self, walk: &Walk<'_>, direction: Direction, until: u64) -> Option<Stop> {
        if let Some(stop) = self.pending(walk, direction) {
            return Some(stop);
        }
        let way_to_go = match direction {
            Direction::Forward => self.position < until,
            Direction::Backward => until < self.position,
        };
        if !way_to_go {
            return None;
        }
        let found = self.find(walk, direction, until);
        match found {
            Found::Nothing => None,
            Found::At(position) => {
                self.position = position;
                let thread = self.running(walk.order.thread);
                Some(Stop { thread, reason: self.first_met(walk, direction) })
            }
            Found::Interrupted(position) => {
                self.position = position;
                let thread = self.running(walk.order.thread);
                Some(Stop { thread, reason: StopReason::Interrupted })
            }
        }
    }

    /// Returns the nearest breakpoint, system call or signal. After steps back of one thread alone,
    /// searches from the position of the others, and skips the instructions that the lone thread
    /// has gone back over already.
    fn find(&self, walk: &Walk<'_>, direction: Direction, until: u64) -> Found {
        let goes_on = direction == Direction::Backward && !walk.order.locked;
        let Some(alone) = walk.alone.filter(|_| goes_on) else {
            return self.find_from(self.position, walk, direction, until);
        };
        let mut from = alone.others;
        loop {
            let running = |position| self.history.running_at(position);
            match self.find_from(from, walk, direction, until) {
                Found::At(at) if at >= self.position && running(at) == Some(alone.thread) => {
                    from = at;
                }
                found => return found,
            }
        }
    }

    /// Returns the nearest breakpoint, system call or signal in `direction` from position `from`,
    /// excluded, to `until`.
    fn find_from(&self, from: u64, walk: &Walk<'_>, direction: Direction, until: u64) -> Found {
        let addrs = walk.breakpoints.addrs();
        let only = walk.only();
        let search = Search::beyond(from, until, direction, only, addrs);
        let found = if addrs.is_empty() {
            Found::Nothing
        } else {
            self.history.find(&search, walk.interrupted)
        };
        let until = match found {
            Found::At(position) | Found::Interrupted(position) => position,
            Found::Nothing => until,
        };
        let (wanted, unknown) = (&self.wanted, &self.unknown);
        let search = HappeningSearch { from, until, direction, only, wanted, unknown };
        match self.history.find_happening(&search, walk.interrupted) {
            Found::Nothing => found,
            nearer => nearer,
        }
    }

    /// Returns a stop at the current position that has not been reported yet.
    fn pending(&self, walk: &Walk<'_>, direction: Direction) -> Option<Stop> {
        let thread = self.history.running_at(self.position)?;
        let is_own = thread == walk.last.thread;
        if (walk.order.locked && thread != walk.order.thread)
            || (direction == Direction::Backward && !is_own)
        {
            return None;
        }
        let reported = if is_own { Rank::of(walk.last.reason) } else { Rank::Before };
        let happening = self.history.happening_at(self.position, &self.wanted);
        let next = happening.next(reported, direction);
        let stop = |reason| Stop { thread, reason };
        match next {
            Some((rank, reason)) if rank < Rank::Instruction => Some(stop(reason)),
            _ => self
                .pending_breakpoint(walk, direction)
                .or_else(|| next.map(|(_, reason)| stop(reason))),
        }
    }

    /// Returns the breakpoint at the current position, if the last stop did not report it because
    /// that was a stop of another thread. Only forwards, and if all threads run.
    fn pending_breakpoint(&self, walk: &Walk<'_>, direction: Direction) -> Option<Stop> {
        let thread = self.history.running_at(self.position)?;
        let reported = thread == walk.last.thread || thread == walk.order.thread;
        if direction == Direction::Backward || reported || walk.order.locked {
            return None;
        }
        let kind = walk.breakpoints.at(self.history.pc(thread, self.position)?)?;
        Some(Stop { thread, reason: StopReason::Breakpoint(kind) })
    }

    /// Moves to an edge of the history, and returns the stop there.
    fn stop_at_edge(&mut self, walk: &Walk<'_>, edge: Edge, position: u64) -> Stop {
        self.position = position;
        let thread =
            if walk.order.locked { walk.order.thread } else { self.running(walk.order.thread) };
        Stop { thread, reason: StopReason::Edge(edge) }
    }

    /// Returns the thread that executes next; if none does, `otherwise` if that thread exists, or
    /// another thread.
    fn running(&self, otherwise: Tid) -> Tid {
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
        let alone = self.alone.take();
        let walk = Walk { order, last, breakpoints, interrupted, alone };
        self.unknown.set(0);
        match (order.action, order.direction) {
            (Action::Step, Direction::Forward) => self.step_forward(&walk),
            (Action::Step, Direction::Backward) => self.step_back(&walk),
            (Action::Continue, Direction::Forward) => self.continue_forward(&walk),
            (Action::Continue, Direction::Backward) => self.continue_back(&walk),
        }
    }

    fn seek(&mut self, position: u64) -> Result<(), Error> {
        let total = self.history.total();
        if position > total {
            return Err(Error::NoSuchPosition { position, total });
        }
        (self.position, self.alone) = (position, None);
        Ok(())
    }

    fn pc(&self, tid: Tid) -> Option<Addr> {
        self.history.pc(tid, self.position)
    }

    fn stays(&self, tid: Tid) -> bool {
        self.history.stays(tid, self.position)
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

    fn recorded(&self) -> Option<&dyn History> {
        Some(&self.history)
    }

    fn pass_signals(&mut self, signals: u64) {
        self.wanted.passed = signals;
    }

    fn can_catch_calls(&self) -> bool {
        self.history.knows_happenings()
    }

    fn catch_calls(&mut self, catches: Catches) {
        self.wanted.calls = catches;
    }

    fn unknown_calls(&self) -> u64 {
        self.unknown.get()
    }
}
