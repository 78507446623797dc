//! An exact recording: every register and all memory at every position, by replay. *Ticks* are the
//! branches that a replay counts between two entries of the log ([`Position::exact`]).
//!
//! A write to a register or memory begins a *diversion*: the changed state is visible, and
//! functions that the debugger calls run in it. It ends, and the recorded state is back, once the
//! run moves. After a divergence of the replay, the run ends before it.

use super::procfs;
use super::replay_goals::{
    conditions_hold, event_stop, is_requested, key_of, watch_of, watchpoint_stop,
};
use super::replay_path::ReplayPath;
use super::source::LazySymbols;
use super::{
    Action, Breakpoints, CallFrame, Catches, CodeLocation, Description, Direction, Edge, Ending,
    Error, ExecutionSearch, ExecutionSink, FileBytes, FunctionArrival, GapInfo, KnownRegisters,
    LastChange, Library, Order, Position, Protection, Region, Register, RequestedEvents, Run,
    SearchEnd, Stop, StopReason, ThreadInfo, Value, Watchpoint,
};
use crate::common::{Addr, AddrRange, Pid, Tid};
use crate::recording::Reader;
use crate::replay::{self, Goals, MoveEnd, Position as ReplayPosition, Replay, Watch};
use crate::sideband;
use crate::state::{ChangedSet, link_maps};
use std::cell::{Cell, OnceCell, RefCell};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// An exact recording at a position.
#[derive(Debug)]
pub struct Replayed {
    pub(super) replay: RefCell<Replay>,
    pub(super) symbols: LazySymbols,
    /// The thread of the last stop or move.
    pub(super) last_thread: Tid,
    /// The system calls and signals that stop the run.
    pub(super) wanted: RequestedEvents,
    /// The log entry of a signal that the last step within a range reported.
    pub(super) reported_signal: Option<u64>,
    /// The error that ended the replay before the end of the run.
    pub(super) failure: Option<String>,
    /// The number of the position at the end of the run, noted when the run is there; 0 if it never
    /// was. Its instructions are known only then.
    pub(super) noted_end: Cell<u64>,
    /// The path of the run, once [`Run::prepare_path`] has made it.
    pub(super) path: OnceCell<ReplayPath>,
}

impl Replayed {
    /// Opens an exact recording and replays it to the end of its run. As it does so, calls
    /// `progress` with the number of ticks replayed so far and of all ticks. If the replay fails,
    /// the run is before the divergence or where the error left it, and the reason is returned too,
    /// as a sentence.
    pub fn at_end(
        reader: Reader,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<(Self, Option<String>), replay::Error> {
        let mut run = Self::at_start(reader)?;
        if let Err(error) = run.replay.get_mut().go_to_end_reporting(progress) {
            run.note_error(&error);
        }
        run.last_thread = run.running_thread().unwrap_or(run.last_thread);
        let failure = run.failure.clone();
        Ok((run, failure))
    }

    /// Returns the thread that executes next; `None` if none does.
    pub(super) fn running_thread(&self) -> Option<Tid> {
        self.replay.borrow_mut().running()
    }

    /// Stores an error of the replay, and after a divergence moves to before it
    /// ([`Self::note_error`]). Returns a stop at the end of the history, wherever the run is.
    fn stop_after_error(&mut self, error: &replay::Error) -> Stop {
        self.note_error(error);
        let thread = self.running_thread().unwrap_or(self.last_thread);
        Stop { thread, reason: StopReason::Edge(Edge::End) }
    }

    /// Stores an error of the replay. After a divergence, also ends the run before it, for all
    /// later moves, and moves to after the last entry of the log that the replay reached without a
    /// difference. After any other error, the run stays where the error left it.
    fn note_error(&mut self, error: &replay::Error) {
        let replay = self.replay.get_mut();
        self.failure = Some(error.to_string());
        if let replay::Error::Diverged { position, .. } = error {
            replay.end_before(position.entry);
            let last = ReplayPosition::after_entries(position.entry).max(replay.first());
            // If this move fails as well, no position can be shown.
            let _ = replay.seek(last);
        }
    }

    /// Executes an order, and returns the stop. If the order goes forward with a thread whose
    /// instruction or stack pointer was changed, the thread runs in the diversion. Otherwise ends a
    /// diversion first.
    fn execute(
        &mut self,
        order: &Order,
        last: &Stop,
        breakpoints: &Breakpoints,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<Stop, replay::Error> {
        let watches: Vec<Watch> = breakpoints.watchpoints().iter().map(watch_of).collect();
        let conditions = breakpoints.conditions().clone();
        let accepts = |replay: &Replay| conditions_hold(replay, &conditions);
        let wanted = self.wanted.clone();
        let events = |event| is_requested(&wanted, event);
        // The call or signal of the last stop is ahead and must not stop the run again.
        let was_ahead = matches!(last.reason, StopReason::Call(_) | StopReason::Signal(_));
        let already_reported = was_ahead.then(|| self.replay.get_mut().position().entry);
        let (stops, key) = (breakpoints.addrs(), key_of(&conditions, &wanted));
        let goals = Goals {
            stops,
            accepts: &accepts,
            events: &events,
            passed: already_reported,
            key,
            interrupted,
        };
        let replay = self.replay.get_mut();
        let tid = order.thread;
        if order.direction == Direction::Forward && replay.has_moved_in_diversion(tid) {
            return self.resume_diverted(order, &goals, breakpoints);
        }
        replay.end_diversion()?;
        match (order.action, order.direction) {
            (Action::Continue, Direction::Forward) => {
                let found = replay.run_forward(&goals, &watches)?;
                Ok(self.stop_of(found, order.direction, breakpoints))
            }
            (Action::Continue, Direction::Backward) => {
                let found = replay.run_back(&goals, &watches)?;
                Ok(self.stop_of(found, order.direction, breakpoints))
            }
            (Action::Step, Direction::Forward) => {
                match replay.step_forward(tid, &goals, &watches)? {
                    MoveEnd::Target => Ok(self.stop_after_step(tid, breakpoints)),
                    found => Ok(self.stop_of(found, order.direction, breakpoints)),
                }
            }
            (Action::Step, Direction::Backward) => {
                let reason = match replay.step_back(tid, &goals, &watches)? {
                    MoveEnd::Target => return Ok(self.stop_after_step(tid, breakpoints)),
                    MoveEnd::Watch(number) => watchpoint_stop(number, breakpoints),
                    MoveEnd::Event(event) => event_stop(event),
                    MoveEnd::Interrupted => StopReason::Interrupted,
                    // `NoMoreHistory`: steps back ignore the stops of `goals`.
                    _ => StopReason::Edge(Edge::Begin),
                };
                Ok(Stop { thread: tid, reason })
            }
        }
    }

    /// Returns the stop after a complete step: at a breakpoint if one is at the thread's new
    /// address, whether its conditions hold or not.
    pub(super) fn stop_after_step(&self, tid: Tid, breakpoints: &Breakpoints) -> Stop {
        let kind = self.pc(tid).and_then(|pc| breakpoints.kind_at(pc));
        Stop { thread: tid, reason: kind.map_or(StopReason::Step, StopReason::Breakpoint) }
    }

    /// Returns the thread that executes next; if none does, another that exists.
    pub(super) fn present_thread(&self) -> Tid {
        self.running_thread().unwrap_or_else(|| self.default_thread())
    }

    /// Returns the stop for `found`, the result of a run of the replay in `direction`. Its thread
    /// is the one that executes next; after an access to watched memory on the way forward, or
    /// after a system call that has returned, it is the one that executed last.
    pub(super) fn stop_of(
        &self,
        found: MoveEnd,
        direction: Direction,
        breakpoints: &Breakpoints,
    ) -> Stop {
        let thread = self.present_thread();
        let is_forward = direction == Direction::Forward;
        let kind = || self.pc(thread).and_then(|pc| breakpoints.kind_at(pc));
        let reason = match found {
            MoveEnd::Target => StopReason::Step,
            MoveEnd::NoMoreHistory => {
                StopReason::Edge(if is_forward { Edge::End } else { Edge::Begin })
            }
            MoveEnd::Stop => kind().map_or(StopReason::Step, StopReason::Breakpoint),
            MoveEnd::Watch(number) => {
                let reason = watchpoint_stop(number, breakpoints);
                let accessor = if is_forward { self.last_to_advance() } else { None };
                return Stop { thread: accessor.unwrap_or(thread), reason };
            }
            MoveEnd::Event(event) => {
                let following = if event.is_ahead() { None } else { self.last_to_advance() };
                return Stop { thread: following.unwrap_or(thread), reason: event_stop(event) };
            }
            MoveEnd::Interrupted => StopReason::Interrupted,
        };
        Stop { thread, reason }
    }

    /// Returns the thread that executed last, if it still exists.
    fn last_to_advance(&self) -> Option<Tid> {
        let mut replay = self.replay.borrow_mut();
        let last = replay.last_to_advance().ok().flatten();
        last.filter(|tid| replay.threads().contains(tid))
    }

    fn read(&self, addr: Addr, buf: &mut [u8]) -> usize {
        self.replay.borrow().read(addr, buf)
    }
}

impl Run for Replayed {
    fn threads(&self) -> Vec<ThreadInfo> {
        let replay = self.replay.borrow();
        let manifest = replay.reader().manifest();
        let entries = || manifest.end.iter().flat_map(|end| &end.threads);
        let name = |tid| {
            let entry = entries().find(|entry| entry.tid == tid);
            entry.map_or_else(String::new, |entry| entry.name.clone())
        };
        let mut tids = replay.threads();
        if tids.is_empty() {
            tids.push(self.last_thread);
        }
        let pid = replay.pid();
        let info = |tid| ThreadInfo { tid, pid, name: name(tid), first: 0, ended: None };
        tids.into_iter().map(info).collect()
    }

    fn default_thread(&self) -> Tid {
        let threads = self.replay.borrow().threads();
        let last_thread = Some(self.last_thread).filter(|tid| threads.contains(tid));
        last_thread.or_else(|| threads.first().copied()).unwrap_or(self.last_thread)
    }

    fn position(&self) -> Option<Position> {
        let replay = self.replay.borrow();
        let position = replay.position();
        let at = Position::exact(replay.moment(position), position.instructions);
        if replay.is_at_end() {
            self.noted_end.set(at);
        }
        let last = replay.last_moment();
        // An end that was noted before the recording grew is not used.
        let end = Some(self.noted_end.get()).filter(|end| Position::parts(*end).0 == last);
        Some(Position { at, total: end.unwrap_or(Position::exact(last, 0)).max(at) })
    }

    fn resume(
        &mut self,
        order: &Order,
        last: &Stop,
        breakpoints: &Breakpoints,
        interrupted: &dyn Fn() -> bool,
    ) -> Stop {
        let went = self.execute(order, last, breakpoints, interrupted);
        let stop = went.unwrap_or_else(|error| self.stop_after_error(&error));
        self.last_thread = stop.thread;
        stop
    }

    fn run_within(
        &mut self,
        order: &Order,
        range: AddrRange,
        breakpoints: &Breakpoints,
        interrupted: &dyn Fn() -> bool,
    ) -> Option<Stop> {
        let ran = self.run_in_range(order, range, breakpoints, interrupted);
        let stop = ran.unwrap_or_else(|error| Some(self.stop_after_error(&error)))?;
        self.last_thread = stop.thread;
        Some(stop)
    }

    fn seek(&mut self, position: u64) -> Result<(), Error> {
        let replay = self.replay.get_mut();
        replay.end_diversion().map_err(|error| refused(&error))?;
        let (moment, instructions) = Position::parts(position);
        let total = replay.last_moment();
        if moment > total {
            return Err(Error::NoSuchPosition { position: moment, total });
        }
        let first = replay.position_of_moment(moment);
        // The last moment ends the run, but may have instructions before the end. Without a number
        // of instructions it means the end, as does a position in it after the last instruction.
        let went = match (moment == total, instructions) {
            (true, 0) => replay.go_to_end(&|| false).map(|_| ()),
            (is_last, _) => {
                let went = replay.seek(ReplayPosition { instructions, ..first });
                went.and_then(
                    |()| if is_last { replay.go_to_end_without_executing() } else { Ok(()) },
                )
            }
        };
        if let Err(error) = went {
            self.note_error(&error);
            return Err(refused(&error));
        }
        self.last_thread = self.running_thread().unwrap_or(self.last_thread);
        Ok(())
    }

    fn use_idle_time(&mut self, interrupted: &dyn Fn() -> bool) {
        self.replay.get_mut().prepare(interrupted);
    }

    fn pc(&self, tid: Tid) -> Option<Addr> {
        let thread = self.replay.borrow().thread(tid).ok().flatten();
        thread.map(|thread| Addr(thread.registers.rip))
    }

    fn registers(&self, tid: Tid) -> KnownRegisters {
        let thread = self.replay.borrow().thread(tid).ok().flatten();
        thread.map_or_else(KnownRegisters::default, |thread| KnownRegisters::of(&thread))
    }

    fn read_memory(&self, _: Tid, addr: Addr, buf: &mut [u8]) -> usize {
        self.read(addr, buf)
    }

    /// Sets a register in a diversion ([`Replay::divert_registers`]), which ends once the run
    /// moves. Begins none if the register has the value already.
    fn write_register(&mut self, tid: Tid, register: Register, value: Value) -> Result<(), Error> {
        if self.registers(tid).value(register) == Some(value) {
            return Ok(());
        }
        let replay = self.replay.get_mut();
        let thread = replay.thread(tid).map_err(|error| refused(&error))?.ok_or(Error::Gone)?;
        let changed = match ChangedSet::of(thread, register, value).ok_or(Error::NoSuchRegister)? {
            ChangedSet::General(registers) => replay.divert_registers(tid, &registers),
            ChangedSet::Extended(area) => replay.divert_extended(tid, area),
        };
        changed.map_err(|error| refused(&error))
    }

    /// Writes memory in a diversion, which ends once the run moves.
    fn write_memory(&mut self, _: Tid, addr: Addr, bytes: &[u8]) -> Result<(), Error> {
        self.replay.get_mut().divert_memory(addr, bytes).map_err(|error| refused(&error))
    }

    fn allocate(&mut self, size: u64, wanted: Protection) -> Option<Result<Addr, Error>> {
        let Protection { read, write, execute } = wanted;
        let protection = sideband::Protection { read, write, execute, shared: false };
        let lent = self.replay.get_mut().lend(size, protection).map_err(|error| refused(&error));
        Some(lent.and_then(|addr| addr.ok_or(Error::NoRoom)))
    }

    fn free(&mut self, addr: Addr) -> bool {
        self.replay.get_mut().take_back(addr)
    }

    fn call_stack(&self, _: Tid) -> Vec<CallFrame> {
        Vec::new()
    }

    fn time_ns(&self) -> Option<u64> {
        None
    }

    fn fatal_signal(&self) -> Option<(Tid, i32)> {
        let replay = self.replay.borrow();
        let Ending::Signal(number) = Ending::of(replay.reader()) else { return None };
        replay.is_at_end().then_some((self.last_thread, number))
    }

    fn gaps(&self) -> Vec<GapInfo> {
        Vec::new()
    }

    fn describe(&self) -> Description {
        Description::of(self.replay.borrow().reader())
    }

    fn auxv(&self) -> Option<Vec<u8>> {
        Some(self.replay.borrow().program().1).filter(|auxv| !auxv.is_empty())
    }

    fn exec_file(&self) -> Option<PathBuf> {
        Some(PathBuf::from(self.replay.borrow().program().0))
    }

    fn libraries(&self) -> Option<Vec<Library>> {
        let maps = link_maps(&self.auxv()?, &|addr, buf| self.read(addr, buf))?;
        Some(Library::from_link_maps(maps, || self.regions()))
    }

    fn regions(&self) -> Option<Vec<Region>> {
        Some(self.replay.borrow().mappings().into_iter().map(Region::from).collect())
    }

    fn siginfo(&self, tid: Tid) -> Option<Vec<u8>> {
        self.replay.borrow_mut().siginfo(tid).ok().flatten()
    }

    fn file(&self, path: &Path) -> Option<Box<dyn FileBytes>> {
        let replay = self.replay.borrow();
        if procfs::is_maps_path(path, replay.pid()) {
            let text = procfs::maps_text(&replay.mappings());
            return Some(Box::new(Arc::<[u8]>::from(text.into_bytes())));
        }
        let real = std::fs::canonicalize(path).ok();
        let names = [Some(path), real.as_deref()].into_iter().flatten().filter_map(Path::to_str);
        let image = names.into_iter().find_map(|name| replay.files().get(name))?;
        let stored = replay.reader().image_path(image).ok()?;
        Some(Box::new(File::open(stored).ok()?))
    }

    fn pt_trace(&self, tid: Tid, _since: u64) -> Option<Vec<u8>> {
        let path = self.path.get()?;
        let index = path.index_of(tid, self.replay.borrow().position());
        path.timeline().trace_until(tid, index)
    }

    fn prepare_path(&self, goes_on: &mut dyn FnMut(u64, u64) -> bool) -> Result<(), Error> {
        if self.path.get().is_none() {
            let path = ReplayPath::open(self.replay.borrow().reader(), goes_on);
            // The cell is empty, so this cannot fail.
            let _ = self.path.set(path.map_err(Error::Refused)?);
        }
        Ok(())
    }

    fn calls_around(&self, tid: Tid, count: usize) -> Vec<FunctionArrival> {
        let Some(path) = self.path.get() else { return Vec::new() };
        let replay = self.replay.borrow();
        path.calls_around(&replay, tid, path.index_of(tid, replay.position()), count)
    }

    fn pt_cpu(&self) -> Option<(u16, u8, u8)> {
        None
    }

    fn process(&self) -> Option<Pid> {
        Some(self.replay.borrow().pid())
    }

    fn set_passed_signals(&mut self, signals: u64) {
        self.wanted.passed_signals = signals;
    }

    fn can_catch_calls(&self) -> bool {
        true
    }

    fn catch_calls(&mut self, catches: Catches) {
        self.wanted.calls = catches;
    }

    fn can_watch(&self, watchpoints: &[Watchpoint]) -> bool {
        let watches: Vec<Watch> = watchpoints.iter().map(watch_of).collect();
        replay::can_watch(&watches)
    }

    fn is_exact(&self) -> bool {
        true
    }

    fn addresses_of(&self, location: &str) -> Vec<Addr> {
        self.code_symbols().addresses_of(location)
    }

    fn location_of(&self, addr: Addr) -> Option<CodeLocation> {
        self.code_symbols().location_of(addr)
    }

    fn find_executions(
        &mut self,
        search: &ExecutionSearch<'_>,
        sink: ExecutionSink<'_>,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<SearchEnd, Error> {
        self.search_executions(search, sink, interrupted).map_err(|error| {
            self.note_error(&error);
            refused(&error)
        })
    }

    fn go_to_last_change(
        &mut self,
        range: AddrRange,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<LastChange, Error> {
        let found = self.move_to_last_change(range, interrupted);
        self.last_thread = self.running_thread().unwrap_or(self.last_thread);
        found.map_err(|error| {
            self.note_error(&error);
            refused(&error)
        })
    }

    fn failure(&self) -> Option<String> {
        self.failure.clone()
    }
}

fn refused(error: &replay::Error) -> Error {
    Error::Refused(error.to_string())
}
