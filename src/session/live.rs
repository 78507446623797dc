//! A live program: what it does now, and, backwards from there, what was captured so far.

mod forks;
mod news;
mod open;
mod starting;

use self::forks::Vfork;
use super::final_registers::{registers, write_extended};
use super::watching::{Watching, split};
use super::{
    Action, Breakpoints, CallFrame, Catches, Description, Direction, Edge, Ending, Error,
    FileBytes, Forks, GapInfo, History, Library, Order, Position, Protection, Recorded, Recording,
    Region, Register, Registers, Run, Start, Stop, StopReason, ThreadInfo, Watchpoint,
};
use crate::capture::{Backend, Go, Live as Program, Request, Watch};
use crate::common::{Addr, Pid, Tid};
use crate::image::Bytes;
use crate::image::core::{self, CoreContents};
use crate::recording::Reader;
use crate::sideband::Mapping;
use crate::state::{FinalState, link_maps};
use crate::timeline::{Options, Timeline};
use crate::tracee;
use std::cell::{OnceCell, RefCell};
use std::path::{Path, PathBuf};

/// A program under capture, standing at its live end or somewhere in its past.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "facts that hold independently of each other")]
pub struct Live {
    program: RefCell<Program>,
    /// How programs are started.
    backend: Backend,
    request: Request,
    /// A program was started already.
    has_run: bool,
    /// The program was there before: it was taken over.
    was_there: bool,
    /// The history up to the live end, decoded when it is first asked for.
    history: OnceCell<Option<Recorded<Recording>>>,
    /// The history does not stand at its end, which is now.
    in_past: bool,
    /// The thread of the last live stop.
    stopped: Tid,
    /// The signal that it stands at.
    held: Option<i32>,
    /// The debugger has looked at the past since, and forgotten the signal.
    is_back: bool,
    /// How the program ended, once it is gone.
    ended: Option<Ending>,
    /// What the debugger hears at the end of the program's life, before it is gone.
    at_end: bool,
    /// Why the program could not go on, or its history not be read.
    failure: RefCell<Option<String>>,
    passed: u64,
    catches: Catches,
    forks: Forks,
    /// The thread that waits for its child, as far as the debugger knows, or was told before that it
    /// need not.
    vfork: Option<Vfork>,
}

impl Live {
    /// The history up to now.
    fn history(&self) -> Option<&Recorded<Recording>> {
        let open = || match self.open_history() {
            Ok(history) => Some(history),
            Err(why) => {
                self.failure.replace(Some(why));
                None
            }
        };
        self.history.get_or_init(open).as_ref()
    }

    fn history_mut(&mut self) -> Option<&mut Recorded<Recording>> {
        self.history();
        self.history.get_mut().and_then(Option::as_mut)
    }

    /// The past that the debugger looks at, if it does.
    fn past(&self) -> Option<&Recorded<Recording>> {
        if self.in_past { self.history() } else { None }
    }

    fn open_history(&self) -> Result<Recorded<Recording>, String> {
        let text = |error: &dyn std::fmt::Display| error.to_string();
        let mut program = self.program.borrow_mut();
        let dir = program.save().map_err(|error| text(&error))?.to_owned();
        let state = self.final_state(&program);
        let reader = Reader::open(&dir).map_err(|error| text(&error))?;
        let timeline = Timeline::open(reader, Options::default()).map_err(|error| text(&error))?;
        let recording = Recording::new(timeline, state);
        Ok(Recorded::at_end(match program.clock() {
            Some(clock) => recording.timed_by(clock),
            None => recording,
        }))
    }

    /// The registers of now, which hold from each thread's last instruction on. Memory is not in
    /// it: that of the past is not known from that of now.
    fn final_state(&self, program: &Program) -> FinalState {
        let mut threads: Vec<_> =
            program.threads().into_iter().filter_map(|tid| program.thread(tid)).collect();
        threads.sort_by_key(|thread| (thread.tid != self.stopped, thread.tid));
        let contents =
            CoreContents { threads, auxv: tracee::auxv(program.pid()), ..CoreContents::default() };
        let mut bytes = std::io::Cursor::new(Vec::new());
        let written = core::write(&mut bytes, &contents, &mut |_, _| 0);
        let bytes = Bytes::new(bytes.into_inner());
        written.and_then(|()| FinalState::of_core(&bytes)).unwrap_or_default()
    }

    fn go(
        &mut self,
        order: &Order,
        breakpoints: &Breakpoints,
        interrupted: &dyn Fn() -> bool,
    ) -> Stop {
        if let Some(ending) = self.ended {
            return Stop { thread: self.stopped, reason: StopReason::Gone(ending) };
        }
        self.history = OnceCell::new();
        let is_back = std::mem::take(&mut self.is_back);
        if let Some(number) = self.held.filter(|_| is_back && order.signal == 0) {
            return Stop { thread: self.stopped, reason: StopReason::Signal(number) };
        }
        match split(breakpoints.watchpoints()).unwrap_or_default() {
            split if split.slow.is_empty() => {
                self.let_go(order, breakpoints, &split.fast, interrupted)
            }
            split => Watching { order, breakpoints, split: &split, interrupted }.run(self),
        }
    }

    /// Lets the program run until it stops for something.
    pub(super) fn let_go(
        &mut self,
        order: &Order,
        breakpoints: &Breakpoints,
        watches: &[Watch],
        interrupted: &dyn Fn() -> bool,
    ) -> Stop {
        let go = Go {
            thread: order.thread,
            step: order.action == Action::Step,
            locked: order.locked,
            signal: order.signal,
            stops: breakpoints.addrs().clone(),
            passed: self.passed,
            watches: watches.to_vec(),
            catches: self.catches.clone(),
            forks: self.forks,
        };
        let result = self.go_over_told(&go, interrupted);
        let (thread, reason) = match result {
            Ok((thread, news)) => (thread, self.reason(thread, news, breakpoints)),
            Err(error) => {
                self.failure.replace(Some(error.to_string()));
                self.ended = Some(Ending::Unknown);
                let first = Tid(self.program.borrow().pid().0);
                (first, StopReason::Gone(Ending::Unknown))
            }
        };
        self.stopped = thread;
        self.held = if let StopReason::Signal(number) = reason { Some(number) } else { None };
        Stop { thread, reason }
    }

    /// In the past: there, and not at the live end.
    fn settle(&mut self) {
        let position = self.history.get().and_then(Option::as_ref).and_then(Run::position);
        self.in_past = position.is_some_and(|position| position.at < position.total);
    }

    fn refuse_past(&self) -> Result<(), Error> {
        match (self.in_past, self.ended) {
            (true, _) => Err(Error::LivePastIsFixed),
            (false, Some(_)) => Err(Error::Gone),
            (false, None) => Ok(()),
        }
    }
}

impl Run for Live {
    fn threads(&self) -> Vec<ThreadInfo> {
        let past = self.past().map(Run::threads);
        let program = self.program.borrow();
        // Names are written down at the end.
        let named = |thread: ThreadInfo| ThreadInfo { name: program.name(thread.tid), ..thread };
        if let Some(past) = past {
            return past.into_iter().map(named).collect();
        }
        let own = program.threads().into_iter().map(|tid| (tid, program.pid()));
        let mut tids: Vec<_> = own.chain(program.beside()).collect();
        if tids.is_empty() {
            tids.push((self.stopped, program.pid()));
        }
        let name = String::new();
        let info = |(tid, pid)| ThreadInfo { tid, pid, name: name.clone(), first: 0, ended: None };
        tids.into_iter().map(info).map(named).collect()
    }

    fn default_thread(&self) -> Tid {
        self.past().map_or(self.stopped, Run::default_thread)
    }

    fn position(&self) -> Option<Position> {
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
            return self.go(order, breakpoints, interrupted);
        }
        if let Some(stop) = self.end_vfork_for_past() {
            return stop;
        }
        let (passed, catches) = (self.passed, self.catches.clone());
        let Some(history) = self.history_mut() else {
            return Stop { thread: order.thread, reason: StopReason::Edge(Edge::Begin) };
        };
        history.pass_signals(passed);
        history.catch_calls(catches);
        let stop = history.resume(order, last, breakpoints, interrupted);
        self.settle();
        self.is_back = true;
        match (stop.reason, self.held) {
            (StopReason::Edge(Edge::End), Some(number)) => {
                self.is_back = false;
                Stop { thread: self.stopped, reason: StopReason::Signal(number) }
            }
            _ => stop,
        }
    }

    fn seek(&mut self, position: u64) -> Result<(), Error> {
        let history = self.history_mut().ok_or(Error::NoHistory)?;
        let result = history.seek(position);
        self.settle();
        self.is_back = true;
        result
    }

    fn pc(&self, tid: Tid) -> Option<Addr> {
        match self.past() {
            Some(past) => past.pc(tid),
            None => self.live_pc(tid),
        }
    }

    fn stays(&self, tid: Tid) -> bool {
        self.past().is_some_and(|past| past.stays(tid))
    }

    fn registers(&self, tid: Tid) -> Registers {
        match self.past() {
            Some(past) => past.registers(tid),
            None => self
                .program
                .borrow()
                .thread(tid)
                .map_or_else(Registers::default, |thread| registers(&thread)),
        }
    }

    fn read_memory(&self, tid: Tid, addr: Addr, buf: &mut [u8]) -> usize {
        match self.past() {
            Some(past) => past.read_memory(tid, addr, buf),
            None => self.read_live(tid, addr, buf),
        }
    }

    fn write_register(&mut self, tid: Tid, register: Register, value: u128) -> Result<(), Error> {
        self.refuse_past()?;
        self.refuse_beside(tid)?;
        let program = self.program.get_mut();
        let mut thread = program.thread(tid).ok_or(Error::Gone)?;
        let refused = |error: crate::capture::Error| Error::Refused(error.to_string());
        if let Some(changed) = u64::try_from(value)
            .ok()
            .and_then(|value| thread.registers.with(&register.name(), value))
        {
            return program.set_registers(tid, &changed).map_err(refused);
        }
        let area = thread.xstate.as_mut().ok_or(Error::NoSuchRegister)?;
        write_extended(area, register, value).ok_or(Error::NoSuchRegister)?;
        program.set_extended_state(tid, area).map_err(refused)
    }

    fn write_memory(&mut self, tid: Tid, addr: Addr, bytes: &[u8]) -> Result<(), Error> {
        self.refuse_past()?;
        self.refuse_beside(tid)?;
        let written = self.program.get_mut().write(addr, bytes);
        written.map_err(|error| Error::Refused(error.to_string()))
    }

    fn call_stack(&self, tid: Tid) -> Vec<CallFrame> {
        self.history().map(|history| history.call_stack(tid)).unwrap_or_default()
    }

    fn time_ns(&self) -> Option<u64> {
        self.history()?.time_ns()
    }

    fn fatal_signal(&self) -> Option<(Tid, i32)> {
        None
    }

    fn gaps(&self) -> Vec<GapInfo> {
        self.history().map(Run::gaps).unwrap_or_default()
    }

    fn describe(&self) -> Description {
        let known = self.history().map(Run::describe).unwrap_or_default();
        let ending = self.ended.unwrap_or(Ending::Running);
        Description { ending, ..known }
    }

    fn auxv(&self) -> Option<Vec<u8>> {
        let auxv = tracee::auxv(self.program.borrow().pid());
        (!auxv.is_empty()).then_some(auxv)
    }

    fn exec_file(&self) -> Option<PathBuf> {
        tracee::executable(self.program.borrow().pid()).ok()
    }

    fn libraries(&self) -> Option<Vec<Library>> {
        let program = self.program.borrow();
        let auxv = tracee::auxv(program.pid());
        let maps = link_maps(&auxv, &|addr, buf| program.read(addr, buf))?;
        let library = |map: crate::state::LinkMap| Library {
            path: map.name,
            namespace: 0,
            link_map: map.addr,
            load_bias: Addr(map.load_bias),
            dynamic: map.dynamic,
        };
        // The program itself comes first, without a name; the vdso's is without a directory, and it
        // has no file.
        let of_file =
            |map: &crate::state::LinkMap| map.name.is_empty() || map.name.starts_with('/');
        Some(maps.into_iter().filter(of_file).map(library).collect())
    }

    fn regions(&self) -> Option<Vec<Region>> {
        if let Some(past) = self.past() {
            return past.regions();
        }
        let mapped = tracee::mappings(self.process()?).ok()?;
        let region = |mapping: Mapping| Region {
            range: mapping.range,
            protection: Protection {
                read: mapping.protection.read,
                write: mapping.protection.write,
                execute: mapping.protection.execute,
            },
            name: mapping.name,
        };
        Some(mapped.into_iter().map(region).collect())
    }

    fn siginfo(&self, tid: Tid) -> Option<Vec<u8>> {
        match self.past() {
            Some(past) => past.siginfo(tid),
            None => self.program.borrow().thread(tid)?.siginfo,
        }
    }

    fn file(&self, path: &Path) -> Option<Box<dyn FileBytes>> {
        self.file_of_program(path)
    }

    fn pt_trace(&self, tid: Tid) -> Option<Vec<u8>> {
        self.history()?.pt_trace(tid)
    }

    fn pt_cpu(&self) -> Option<(u16, u8, u8)> {
        self.history()?.pt_cpu()
    }

    fn recorded(&self) -> Option<&dyn History> {
        self.history().map(|history| -> &dyn History { history.history() })
    }

    fn start(&mut self, start: &Start) -> Result<(), Error> {
        self.begin(start)
    }

    fn process(&self) -> Option<Pid> {
        self.ended.is_none().then(|| self.program.borrow().pid())
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
        self.stands_beside(tid)
    }

    fn refusal(&self, order: &Order) -> Option<Error> {
        self.refuse_order(order)
    }

    fn leave_process(&mut self, pid: Pid) -> Result<(), Error> {
        self.leave_one(pid)
    }

    fn kill_process(&mut self, pid: Pid) {
        self.kill_one(pid);
    }

    fn leave_all_beside(&mut self) {
        self.leave_beside();
    }

    fn unknown_calls(&self) -> u64 {
        self.history.get().and_then(Option::as_ref).map_or(0, Run::unknown_calls)
    }

    fn can_watch(&self, watchpoints: &[Watchpoint]) -> bool {
        split(watchpoints).is_some()
    }

    fn goes_live(&self, order: &Order) -> bool {
        order.direction == Direction::Forward && !self.in_past
    }

    fn pass_signals(&mut self, signals: u64) {
        self.passed = signals;
    }

    fn failure(&self) -> Option<String> {
        self.failure.borrow().clone()
    }

    fn is_over(&self) -> bool {
        self.ended.is_some()
    }

    fn leave(&mut self) {
        if let Err(error) = self.program.get_mut().detach() {
            self.failure.replace(Some(error.to_string()));
        }
        self.ended.get_or_insert(Ending::Unknown);
    }

    fn abandon(&mut self) {
        if self.was_there { self.leave() } else { self.kill() }
    }

    fn kill(&mut self) {
        if self.ended.is_some() {
            return self.leave_beside();
        }
        if let Err(error) = self.program.get_mut().kill() {
            self.failure.replace(Some(error.to_string()));
        }
        self.ended.get_or_insert(Ending::Signal(9));
    }
}
