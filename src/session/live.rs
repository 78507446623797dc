//! A live program, and backwards from its present the history captured so far.
//!
//! A session is at the *live end*, where registers and memory are the program's own, or in the
//! *past* (`in_past`), at a position of the history ([`past::Past`]). An order backward at the live
//! end opens the history and moves in it. An order forward in the past moves in it too, up to its
//! end, which is the live end again; from there, the program executes ([`Live::resume_live`]).
//!
//! Threads, registers, memory, mappings and `siginfo_t` are those at the session's position: of the
//! history in the past (`past_in_view`), else of the program. Of a path, call stacks, times, gaps
//! and packets come from the history, even at the live end. An exact recording has none. Mapped
//! files and the links in `/proc` are the program's present ones, also in the past.
//!
//! The history is reached by these functions of module `past`. The first two open it, which for an
//! exact recording repeats the run, and the user cannot interrupt that ([`Live::open_history`] can
//! be interrupted):
//! - `history` and `history_mut`: the history.
//! - `path`: the history of a path, which is opened; `None` for an exact recording.
//! - `opened_history` and `opened_history_mut`: the history if it is open already.
//! - `past_in_view`: the history in the past, where it is open; `None` at the live end.
//! - `exact_past_in_view`: the same, but also `None` for a path.

mod files;
mod forks;
mod past;
mod reports;
mod resuming;
mod starting;
mod writing;

use self::forks::Vfork;
use self::past::Past;
use super::watch_split::split;
use super::{
    Breakpoints, CallFrame, Catches, CodeLocation, Description, Direction, Edge, Ending, Error,
    ExecutionSearch, ExecutionSink, FileBytes, Forks, GapInfo, History, KnownRegisters, LastChange,
    Library, MissingFrames, Order, Position, Region, Register, Replayed, Run, SearchEnd, Start,
    Stop, StopReason, ThreadInfo, Value, Watchpoint,
};
use crate::capture::{Backend, Live as Program, Request};
use crate::common::{Addr, AddrRange, Pid, Tid};
use crate::state::link_maps;
use crate::tracee;
use std::cell::{OnceCell, RefCell};
use std::path::{Path, PathBuf};

/// A program under capture, at its live end or at a position in its past.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "facts that hold independently of each other")]
pub struct Live {
    /// The program under capture; an empty stand-in before the first start.
    program: RefCell<Program>,
    backend: Backend,
    /// The settings of all starts, and the program that [`Start::Again`] starts.
    request: Request,
    /// True once a program was started.
    has_run: bool,
    /// True if the session attached to the process, which existed before.
    is_attached: bool,
    /// The history up to the live end, opened on first use; `None` in the cell if it cannot be
    /// read.
    history: OnceCell<Option<Past>>,
    /// A replay up to an earlier stop, which the next opening of the history continues.
    reusable_replay: RefCell<Option<Box<Replayed>>>,
    /// True if the session is at a position in the past, not at the live end.
    in_past: bool,
    /// The thread of the last live stop.
    stopped_thread: Tid,
    /// The signal of the last live stop, if it was one. It is not delivered yet.
    stop_signal: Option<i32>,
    /// True if the next resume at the live end reports the signal of the last live stop again, in
    /// place of a resume: the debugger does not know it, since a write was reported instead, or has
    /// been in the past since. Has no effect if that stop was no signal.
    repeats_signal: bool,
    /// The ending of the program, once it is gone.
    ended: Option<Ending>,
    /// True if the program's end is reported only once it is gone, not before its exit.
    skips_end_stop: bool,
    /// The reason why the program could not continue, or its history could not be read.
    failure: RefCell<Option<String>>,
    /// The signals that do not stop the program; signal 1 in bit 0.
    passed_signals: u64,
    /// Signals to deliver to threads at the next resume.
    queued_signals: Vec<(Tid, i32)>,
    /// The system calls at which the program stops, at the live end and in the past.
    catches: Catches,
    /// The kinds of forks at which the program stops, at the live end only.
    forks: Forks,
    /// The thread that waits for its vfork child, and whether the debugger knows it.
    vfork_wait: Option<Vfork>,
}

impl Live {
    /// Sets `in_past` after a move in the history: true at a position before its end, false without
    /// an open history. The last entry of an exact log may only record the program's place, and
    /// executes nothing: first moves a replay that is right before it past it
    /// ([`Replayed::meet_end`]). If that fails, keeps the error in `failure`, and decides by the
    /// position where the replay is then.
    fn meet_end_and_update_in_past(&mut self) {
        if let Some(Some(Past::Exact(replayed))) = self.history.get_mut()
            && let Err(error) = replayed.meet_end()
        {
            self.failure.replace(Some(error.to_string()));
        }
        let position = self.opened_history().and_then(Run::position);
        self.in_past = position.is_some_and(|position| position.at < position.total);
    }
}

impl Run for Live {
    fn threads(&self) -> Vec<ThreadInfo> {
        let past = self.past_in_view().map(Run::threads);
        let program = self.program.borrow();
        // The recording gets thread names at its end only.
        let named = |thread: ThreadInfo| ThreadInfo { name: program.name(thread.tid), ..thread };
        if let Some(past) = past {
            return past.into_iter().map(named).collect();
        }
        let own = program.threads().into_iter().map(|tid| (tid, program.pid()));
        let mut tids: Vec<_> = own.chain(program.beside()).collect();
        if tids.is_empty() {
            tids.push((self.stopped_thread, program.pid()));
        }
        let name = String::new();
        let info = |(tid, pid)| ThreadInfo { tid, pid, name: name.clone(), first: 0, ended: None };
        tids.into_iter().map(info).map(named).collect()
    }

    fn default_thread(&self) -> Tid {
        self.past_in_view().map_or(self.stopped_thread, Run::default_thread)
    }

    fn position(&self) -> Option<Position> {
        if self.is_exact() && self.opened_history().is_none() {
            let moment = self.program.borrow_mut().moment().ok()??;
            let at = Position::exact(moment, 0);
            return Some(Position { at, total: at });
        }
        self.history()?.position()
    }

    fn resume(
        &mut self,
        order: &Order,
        last: &Stop,
        breakpoints: &Breakpoints,
        interrupted: &dyn Fn() -> bool,
    ) -> Stop {
        if order.direction == Direction::Forward && !self.in_past {
            return self.resume_live(order, breakpoints, interrupted);
        }
        if let Some(stop) = self.end_vfork_for_past() {
            return stop;
        }
        if !self.open_history(interrupted) {
            return Stop { thread: order.thread, reason: StopReason::Interrupted };
        }
        let (passed, catches) = (self.passed_signals, self.catches.clone());
        let Some(history) = self.history_mut() else {
            return Stop { thread: order.thread, reason: StopReason::Edge(Edge::Begin) };
        };
        history.set_passed_signals(passed);
        history.catch_calls(catches);
        let stop = history.resume(order, last, breakpoints, interrupted);
        self.meet_end_and_update_in_past();
        self.repeats_signal = true;
        match (stop.reason, self.stop_signal) {
            (StopReason::Edge(Edge::End), Some(number)) => {
                self.repeats_signal = false;
                Stop { thread: self.stopped_thread, reason: StopReason::Signal(number) }
            }
            (StopReason::Edge(Edge::End), None) => Stop { thread: self.stopped_thread, ..stop },
            _ => stop,
        }
    }

    fn seek(&mut self, position: u64) -> Result<(), Error> {
        let history = self.history_mut().ok_or(Error::NoHistory)?;
        let result = history.seek(position);
        self.meet_end_and_update_in_past();
        self.repeats_signal = true;
        result
    }

    fn pc(&self, tid: Tid) -> Option<Addr> {
        match self.past_in_view() {
            Some(past) => past.pc(tid),
            None => self.live_pc(tid),
        }
    }

    fn stays_in_activation(&self, tid: Tid) -> bool {
        self.past_in_view().is_some_and(|past| past.stays_in_activation(tid))
    }

    fn registers(&self, tid: Tid) -> KnownRegisters {
        match self.past_in_view() {
            Some(past) => past.registers(tid),
            None => self
                .program
                .borrow()
                .thread(tid)
                .map_or_else(KnownRegisters::default, |thread| KnownRegisters::of(&thread)),
        }
    }

    fn read_memory(&self, tid: Tid, addr: Addr, buf: &mut [u8]) -> usize {
        match self.past_in_view() {
            Some(past) => past.read_memory(tid, addr, buf),
            None => self.read_live(tid, addr, buf),
        }
    }

    fn write_register(&mut self, tid: Tid, register: Register, value: Value) -> Result<(), Error> {
        self.change_register(tid, register, value)
    }

    fn write_memory(&mut self, tid: Tid, addr: Addr, bytes: &[u8]) -> Result<(), Error> {
        self.change_memory(tid, addr, bytes)
    }

    fn call_stack(&self, tid: Tid) -> Vec<CallFrame> {
        self.path().map(|path| path.call_stack(tid)).unwrap_or_default()
    }

    fn missing_frames(&self, tid: Tid) -> MissingFrames {
        self.path().map_or(MissingFrames::Nothing, |path| path.missing_frames(tid))
    }

    fn time_ns(&self) -> Option<u64> {
        self.path()?.time_ns()
    }

    fn fatal_signal(&self) -> Option<(Tid, i32)> {
        None
    }

    fn gaps(&self) -> Vec<GapInfo> {
        self.path().map(Run::gaps).unwrap_or_default()
    }

    fn describe(&self) -> Description {
        let known = if self.is_exact() {
            self.description_on_disk().unwrap_or_default()
        } else {
            self.history().map(Run::describe).unwrap_or_default()
        };
        let ending = self.ended.unwrap_or(Ending::Running);
        Description { ending, ..known }
    }

    fn auxv(&self) -> Option<Vec<u8>> {
        if let Some(past) = self.exact_past_in_view() {
            return past.auxv();
        }
        let auxv = self.program.borrow().auxv();
        (!auxv.is_empty()).then_some(auxv)
    }

    fn exec_file(&self) -> Option<PathBuf> {
        if let Some(past) = self.exact_past_in_view() {
            return past.exec_file();
        }
        tracee::executable(self.program.borrow().pid()).ok()
    }

    fn libraries(&self) -> Option<Vec<Library>> {
        if let Some(past) = self.exact_past_in_view() {
            return past.libraries();
        }
        let program = self.program.borrow();
        let auxv = program.auxv();
        let maps = link_maps(&auxv, &|addr, buf| program.read(addr, buf))?;
        Some(Library::from_link_maps(maps, || self.regions()))
    }

    fn regions(&self) -> Option<Vec<Region>> {
        if let Some(past) = self.past_in_view() {
            return past.regions();
        }
        self.regions_of_program()
    }

    fn siginfo(&self, tid: Tid) -> Option<Vec<u8>> {
        match self.past_in_view() {
            Some(past) => past.siginfo(tid),
            None => self.program.borrow().thread(tid)?.siginfo,
        }
    }

    fn write_siginfo(&mut self, tid: Tid, info: &[u8]) -> Result<(), Error> {
        self.change_siginfo(tid, info)
    }

    fn file(&self, path: &Path) -> Option<Box<dyn FileBytes>> {
        self.file_of_program(path)
    }

    fn link(&self, path: &Path) -> Option<PathBuf> {
        self.link_of_program(path)
    }

    fn pt_trace(&self, tid: Tid, since: u64) -> Option<Vec<u8>> {
        self.path()?.pt_trace(tid, since)
    }

    fn pt_cpu(&self) -> Option<(u16, u8, u8)> {
        self.path()?.pt_cpu()
    }

    fn prepare_path(&self, _goes_on: &mut dyn FnMut(u64, u64) -> bool) -> Result<(), Error> {
        let refused = "the path of a program that is recorded exactly is known when its recording is \
                       replayed; of a live program it is known if the path is recorded";
        if self.is_exact() { Err(Error::Refused(refused.to_owned())) } else { Ok(()) }
    }

    fn path_history(&self) -> Option<&dyn History> {
        self.path()?.path_history()
    }

    fn start(&mut self, start: &Start) -> Result<(), Error> {
        self.start_program(start)
    }

    fn process(&self) -> Option<Pid> {
        self.ended.is_none().then(|| self.program.borrow().pid())
    }

    fn is_live(&self) -> bool {
        true
    }

    fn can_break_at(&self, addr: Addr) -> bool {
        self.in_past || self.ended.is_some() || self.program.borrow().read(addr, &mut [0]) == 1
    }

    fn can_catch_calls(&self) -> bool {
        true
    }

    fn catch_calls(&mut self, catches: Catches) {
        self.catches = catches;
    }

    fn can_catch_forks(&self) -> bool {
        self.backend.can_keep_children()
    }

    fn catch_forks(&mut self, forks: Forks) {
        self.forks = forks;
    }

    fn process_of(&self, tid: Tid) -> Option<Pid> {
        Some(self.pid_of(tid))
    }

    fn is_beside(&self, tid: Tid) -> bool {
        self.is_of_process_beside(tid)
    }

    fn refusal(&self, order: &Order) -> Option<Error> {
        self.refuse_order(order)
    }

    fn detach_process(&mut self, pid: Pid) -> Result<(), Error> {
        self.detach_from_process(pid)
    }

    fn kill_process(&mut self, pid: Pid) {
        self.kill_process_or_program(pid);
    }

    fn detach_all_beside(&mut self) {
        self.detach_from_beside();
    }

    fn unknown_calls(&self) -> u64 {
        self.opened_history().map_or(0, Run::unknown_calls)
    }

    fn can_watch(&self, watchpoints: &[Watchpoint]) -> bool {
        split(watchpoints).is_some()
    }

    fn is_exact(&self) -> bool {
        self.backend == Backend::Exact
    }

    fn addresses_of(&self, location: &str) -> Vec<Addr> {
        self.history().map(|history| history.addresses_of(location)).unwrap_or_default()
    }

    fn location_of(&self, addr: Addr) -> Option<CodeLocation> {
        self.history()?.location_of(addr)
    }

    fn find_executions(
        &mut self,
        search: &ExecutionSearch<'_>,
        sink: ExecutionSink<'_>,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<SearchEnd, Error> {
        let history = self.history_mut().ok_or(Error::NoHistory)?;
        history.find_executions(search, sink, interrupted)
    }

    fn go_to_last_change(
        &mut self,
        range: AddrRange,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<LastChange, Error> {
        let history = self.history_mut().ok_or(Error::NoHistory)?;
        let found = history.go_to_last_change(range, interrupted);
        self.meet_end_and_update_in_past();
        // At the live end, a search without a result leaves the debugger where it was.
        self.repeats_signal |= self.in_past;
        found
    }

    fn resumes_live(&self, order: &Order) -> bool {
        order.direction == Direction::Forward && !self.in_past
    }

    fn queue_signal(&mut self, tid: Tid, signal: i32) {
        self.queued_signals.push((tid, signal));
    }

    fn set_passed_signals(&mut self, signals: u64) {
        self.passed_signals = signals;
    }

    fn failure(&self) -> Option<String> {
        self.failure.borrow().clone()
    }

    fn is_over(&self) -> bool {
        self.ended.is_some()
    }

    fn detach(&mut self) {
        self.close_history();
        if let Err(error) = self.program.get_mut().detach() {
            self.failure.replace(Some(error.to_string()));
        }
        self.ended.get_or_insert(Ending::Unknown);
    }

    fn end_session(&mut self) {
        if self.is_attached { self.detach() } else { self.kill() }
    }

    fn kill(&mut self) {
        if self.ended.is_some() {
            return self.detach_from_beside();
        }
        if let Err(error) = self.program.get_mut().kill() {
            self.failure.replace(Some(error.to_string()));
        }
        self.ended.get_or_insert(Ending::Signal(9));
    }
}
