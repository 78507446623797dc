//! The session: a run, its breakpoints and its last stop.
//!
//! After a fork, two processes may be stopped in a live run: the *program*, and another one
//! *beside* it ([`Run::is_beside`]). The session keeps the breakpoints of each apart. Insertions
//! and removals are for the program, unless the caller swaps the two.

use super::{
    BreakpointKind, Breakpoints, Conditions, Error, LastChange, Order, Register, Run, Start, Stop,
    StopReason, ThreadInfo, Watchpoint,
};
use crate::common::{Addr, AddrRange, Pid, Tid};
use crate::state::{NoThreadLocal, ThreadLocal};
use std::collections::BTreeMap;

/// A debugging session over a run: the part of it that debuggers of all kinds share.
#[derive(Debug)]
pub struct Session<R> {
    run: R,
    breakpoints: Breakpoints,
    /// The breakpoints of the process beside the program ([`Run::is_beside`]).
    beside_breakpoints: Breakpoints,
    /// The last stop, where the run is now.
    last: Stop,
    /// The positions that the user marked, by name.
    marks: BTreeMap<String, u64>,
}

impl<R: Run> Session<R> {
    /// Returns a session at the current position of the run. That is the last stop, with the reason
    /// [`StopReason::Moved`].
    pub fn new(run: R) -> Self {
        let last = Stop { thread: run.default_thread(), reason: StopReason::Moved };
        let (breakpoints, beside_breakpoints) = (Breakpoints::default(), Breakpoints::default());
        Self { run, breakpoints, beside_breakpoints, last, marks: BTreeMap::new() }
    }

    /// Returns the run.
    pub fn run(&self) -> &R {
        &self.run
    }

    /// Returns the run, to change it. Moves and resumes are methods of the session, which keep the
    /// last stop.
    pub fn run_mut(&mut self) -> &mut R {
        &mut self.run
    }

    /// Returns the last stop.
    pub fn last_stop(&self) -> Stop {
        self.last
    }

    /// Returns true if a thread exists now, of the program or of a process beside it. Once all have
    /// ended, the one that is still listed counts as one that exists ([`Run::threads`]).
    pub fn is_alive(&self, tid: Tid) -> bool {
        self.run.threads().iter().any(|thread| thread.tid == tid)
    }

    /// Returns the threads that exist now. The thread of the last stop comes first, since debuggers
    /// select the first thread by default.
    pub fn threads(&self) -> Vec<ThreadInfo> {
        let mut threads = self.run.threads();
        threads.sort_by_key(|thread| thread.tid != self.last.thread);
        threads
    }

    /// Swaps the breakpoints of the program with those of the process beside it, if `tid` is a
    /// thread of the latter: for insertions and removals there. A second call swaps back.
    pub fn swap_breakpoints_if_beside(&mut self, tid: Tid) {
        if self.run.is_beside(tid) {
            std::mem::swap(&mut self.breakpoints, &mut self.beside_breakpoints);
        }
    }

    /// Inserts a breakpoint of the program (for the process beside it, see
    /// [`Self::swap_breakpoints_if_beside`]); a second insertion has no effect. Returns false, and
    /// inserts nothing, if there cannot be one: a software breakpoint where a live program has no
    /// memory.
    pub fn insert_breakpoint(&mut self, kind: BreakpointKind, addr: Addr) -> bool {
        let can_be = kind == BreakpointKind::Hardware || self.run.can_break_at(addr);
        if can_be {
            self.breakpoints.insert(kind, addr);
        }
        can_be
    }

    /// Removes a breakpoint of the program (for the process beside it, see
    /// [`Self::swap_breakpoints_if_beside`]). Returns true if it was inserted. Leaves the
    /// conditions ([`Self::set_conditions`]).
    pub fn remove_breakpoint(&mut self, kind: BreakpointKind, addr: Addr) -> bool {
        self.breakpoints.remove(kind, addr)
    }

    /// Inserts a watchpoint of the program, as [`Self::insert_breakpoint`] does. Returns false, and
    /// inserts nothing, if the run cannot watch it together with the others.
    pub fn insert_watchpoint(&mut self, watchpoint: Watchpoint) -> bool {
        let mut wanted = self.breakpoints.clone();
        wanted.watch(watchpoint);
        let can = self.run.can_watch(wanted.watchpoints());
        if can {
            self.breakpoints = wanted;
        }
        can
    }

    /// Removes a watchpoint of the program, as [`Self::remove_breakpoint`] does: the one with this
    /// address, size and access. Returns true if it was inserted.
    pub fn remove_watchpoint(&mut self, watchpoint: Watchpoint) -> bool {
        self.breakpoints.unwatch(watchpoint)
    }

    /// Sets the conditions of all breakpoints of the program, in place of the previous ones. Only
    /// exact recordings evaluate them; other runs stop in any case.
    pub fn set_conditions(&mut self, conditions: Conditions) {
        self.breakpoints.set_conditions(conditions);
    }

    /// Returns the reason why the run cannot execute an order; `None` if it can. A path cannot if
    /// there are watchpoints, whose values are unknown; a live program may not with several
    /// processes.
    pub fn refusal(&self, order: &Order) -> Option<Error> {
        let watches = !self.breakpoints.watchpoints().is_empty();
        let sees = self.run.resumes_live(order) || self.run.is_exact();
        let blind = (watches && !sees).then_some(Error::NoPastWatches);
        blind.or_else(|| self.run.refusal(order))
    }

    /// Removes all breakpoints, watchpoints and conditions, of the program and of the process
    /// beside it.
    pub fn clear_breakpoints(&mut self) {
        self.breakpoints.clear();
        self.beside_breakpoints.clear();
    }

    /// Resumes the run and waits for the stop, which becomes the last stop. Stops soon after
    /// `interrupted` returns true. Does not check [`Self::refusal`]: the caller does. Uses the
    /// thread of the last stop if the thread of the order does not exist now. If the order's thread
    /// is of the process beside the program, that process becomes the program, with its
    /// breakpoints. A forked child gets the breakpoints of its parent.
    pub fn resume(&mut self, order: Order, interrupted: &dyn Fn() -> bool) -> Stop {
        let mut order = order;
        if !self.is_alive(order.thread) {
            order.thread = self.last.thread;
        }
        let is_beside = self.run.is_beside(order.thread);
        if is_beside {
            // The process beside the program becomes the program.
            std::mem::swap(&mut self.breakpoints, &mut self.beside_breakpoints);
        }
        self.last = self.run.resume(&order, &self.last, &self.breakpoints, interrupted);
        if is_beside && self.run.is_beside(order.thread) {
            std::mem::swap(&mut self.breakpoints, &mut self.beside_breakpoints);
        }
        if let StopReason::Forked(_) | StopReason::Vforked(_) = self.last.reason {
            // The child has a copy of the parent's memory, and with it the inserted breakpoints.
            self.beside_breakpoints = self.breakpoints.clone();
        }
        self.last
    }

    /// Runs while the order's thread stays in a range of code ([`Run::run_within`]). The result
    /// becomes the last stop. Returns `None`, and leaves the last stop as it is, if the caller has
    /// to single-step the thread; the run may have moved.
    pub fn run_within(
        &mut self,
        order: &Order,
        range: AddrRange,
        interrupted: &dyn Fn() -> bool,
    ) -> Option<Stop> {
        let stop = self.run.run_within(order, range, &self.breakpoints, interrupted)?;
        self.last = stop;
        Some(stop)
    }

    /// Returns the breakpoints of the program; while they are swapped
    /// ([`Self::swap_breakpoints_if_beside`]), those of the process beside it.
    pub(super) fn breakpoints(&self) -> &Breakpoints {
        &self.breakpoints
    }

    /// Resumes the run with these breakpoints in place of the session's, once, and waits for the
    /// stop, which becomes the last stop. Unlike [`Self::resume`], leaves the session's breakpoints
    /// as they are whatever the stop is, also at a fork. The order's thread must be one that exists
    /// now, and of the program, not of a process beside it.
    pub(super) fn resume_with(
        &mut self,
        order: Order,
        breakpoints: &Breakpoints,
        interrupted: &dyn Fn() -> bool,
    ) -> Stop {
        self.last = self.run.resume(&order, &self.last, breakpoints, interrupted);
        self.last
    }

    /// Detaches from a process, which continues without the debugger. If it was the program, the
    /// process beside it becomes the program, with its breakpoints. Clears the breakpoints of the
    /// process beside. If the thread of the last stop is gone then, the last stop is another
    /// thread's. After a failure, breakpoints and the last stop are as before.
    pub fn detach_process(&mut self, pid: Pid) -> Result<(), Error> {
        let was_program = self.run.process() == Some(pid);
        self.run.detach_process(pid)?;
        if was_program {
            std::mem::swap(&mut self.breakpoints, &mut self.beside_breakpoints);
        }
        self.beside_breakpoints.clear();
        if !self.is_alive(self.last.thread) {
            self.last = Stop { thread: self.run.default_thread(), reason: StopReason::Moved };
        }
        Ok(())
    }

    /// Returns the address of a thread-local variable in thread `tid`. `link_map` is the address of
    /// the `struct link_map` of the variable's file, and `offset` the variable's offset in that
    /// file's thread-local storage. Fails where the values that lead there are unknown.
    pub fn thread_local_address(
        &self,
        tid: Tid,
        link_map: Addr,
        offset: u64,
    ) -> Result<Addr, Error> {
        let unknown = Error::NoThreadLocal(NoThreadLocal::Unknown);
        let fs_base = self.run.registers(tid).get(Register::FS_BASE);
        let fs_base = fs_base.and_then(|base| u64::try_from(base).ok()).map(Addr);
        let (Some(fs_base), Some(auxv)) = (fs_base, self.run.auxv()) else { return Err(unknown) };
        let read = |addr, buf: &mut [u8]| self.run.read_memory(tid, addr, buf);
        let wanted = ThreadLocal { fs_base, link_map, offset };
        wanted.address(&auxv, &read).map_err(Error::NoThreadLocal)
    }

    /// Starts a program or attaches to a process, in place of the current program ([`Run::start`]).
    /// Removes all breakpoints, watchpoints, conditions and marks. Returns the stop at its
    /// beginning. After a failure, breakpoints, marks and the last stop are as before, even if the
    /// current program is gone.
    pub fn start(&mut self, start: &Start) -> Result<Stop, Error> {
        self.run.start(start)?;
        // Breakpoints and marks refer to the previous program.
        self.clear_breakpoints();
        self.marks.clear();
        self.last = Stop { thread: self.run.default_thread(), reason: StopReason::Moved };
        Ok(self.last)
    }

    /// Returns the positions that the user marked, by name.
    pub fn marks(&self) -> &BTreeMap<String, u64> {
        &self.marks
    }

    /// Marks a position, or removes the mark for `None`. Returns the previous position of the mark;
    /// `None` if there was no such mark. Does not check that the history has the position.
    pub fn mark(&mut self, name: &str, position: Option<u64>) -> Option<u64> {
        match position {
            Some(position) => self.marks.insert(name.to_owned(), position),
            None => self.marks.remove(name),
        }
    }

    /// Moves to a position of the history. Returns the stop there, which becomes the last stop, of
    /// the thread that executes next and with the reason [`StopReason::Moved`]. After a failure,
    /// the last stop is as before, even if the run has moved ([`Run::seek`]).
    pub fn seek(&mut self, position: u64) -> Result<Stop, Error> {
        self.run.seek(position)?;
        Ok(self.note_move())
    }

    /// Moves back to the last change of memory ([`Run::go_to_last_change`]). The last stop is then
    /// where the run is, with the reason [`StopReason::Moved`], also if nothing was found. After a
    /// failure, the last stop is as before.
    pub fn go_to_last_change(
        &mut self,
        range: AddrRange,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<LastChange, Error> {
        let found = self.run.go_to_last_change(range, interrupted)?;
        self.note_move();
        Ok(found)
    }

    /// Makes the current position the last stop, after a move that was not a resume, and returns
    /// it.
    fn note_move(&mut self) -> Stop {
        self.last = Stop { thread: self.run.default_thread(), reason: StopReason::Moved };
        self.last
    }
}
