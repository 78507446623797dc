//! A session of any kind of run, for code that does not know which. All methods are those of
//! [`Session`], which documents them.

use super::{BackStep, BreakpointKind, Error, LastChange, Order, Run, Session, Stop, Watchpoint};
use crate::common::{Addr, AddrRange, Tid};
use std::collections::BTreeMap;

/// A session whose kind of run is unknown.
pub trait AnySession {
    /// Returns the run.
    fn run(&self) -> &dyn Run;

    /// Returns the run, to change it. Moves and resumes are methods of the session.
    fn run_mut(&mut self) -> &mut dyn Run;

    /// Returns the last stop.
    fn last_stop(&self) -> Stop;

    /// Returns the positions that the user marked, by name.
    fn marks(&self) -> &BTreeMap<String, u64>;

    /// Resumes the run and waits for the stop ([`Session::resume`]).
    fn resume(&mut self, order: Order, interrupted: &dyn Fn() -> bool) -> Stop;

    /// Returns the reason why the run cannot execute an order with the current watchpoints; `None`
    /// if it can.
    fn refusal(&self, order: &Order) -> Option<Error>;

    /// Moves to a position of the history ([`Session::seek`]).
    fn seek(&mut self, position: u64) -> Result<Stop, Error>;

    /// Steps a thread back ([`Session::step_back`]).
    fn step_back(&mut self, thread: Tid, step: BackStep, interrupted: &dyn Fn() -> bool) -> Stop;

    /// Inserts a breakpoint in the program. Returns false, and inserts nothing, if there cannot be
    /// one ([`Session::insert_breakpoint`]).
    fn insert_breakpoint(&mut self, kind: BreakpointKind, addr: Addr) -> bool;

    /// Inserts a watchpoint in the program. Returns false, and inserts nothing, if the run cannot
    /// watch it together with the others.
    fn insert_watchpoint(&mut self, watchpoint: Watchpoint) -> bool;

    /// Removes all breakpoints, watchpoints and conditions, of the program and of the process
    /// beside it.
    fn clear_breakpoints(&mut self);

    /// Moves back to where memory was last changed ([`Session::go_to_last_change`]).
    fn go_to_last_change(
        &mut self,
        range: AddrRange,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<LastChange, Error>;
}

impl<R: Run> AnySession for Session<R> {
    fn run(&self) -> &dyn Run {
        self.run()
    }

    fn run_mut(&mut self) -> &mut dyn Run {
        self.run_mut()
    }

    fn last_stop(&self) -> Stop {
        self.last_stop()
    }

    fn marks(&self) -> &BTreeMap<String, u64> {
        self.marks()
    }

    fn resume(&mut self, order: Order, interrupted: &dyn Fn() -> bool) -> Stop {
        self.resume(order, interrupted)
    }

    fn refusal(&self, order: &Order) -> Option<Error> {
        self.refusal(order)
    }

    fn seek(&mut self, position: u64) -> Result<Stop, Error> {
        self.seek(position)
    }

    fn step_back(&mut self, thread: Tid, step: BackStep, interrupted: &dyn Fn() -> bool) -> Stop {
        self.step_back(thread, step, interrupted)
    }

    fn insert_breakpoint(&mut self, kind: BreakpointKind, addr: Addr) -> bool {
        self.insert_breakpoint(kind, addr)
    }

    fn insert_watchpoint(&mut self, watchpoint: Watchpoint) -> bool {
        self.insert_watchpoint(watchpoint)
    }

    fn clear_breakpoints(&mut self) {
        self.clear_breakpoints();
    }

    fn go_to_last_change(
        &mut self,
        range: AddrRange,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<LastChange, Error> {
        self.go_to_last_change(range, interrupted)
    }
}
