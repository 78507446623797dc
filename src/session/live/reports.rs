//! Translation of *reports*, the reasons for which the program under capture stopped, to the stop
//! reasons of the session.

use super::Live;
use crate::capture::Report;
use crate::common::{Addr, Tid};
use crate::insn::Registers;
use crate::recording::Exit;
use crate::session::{BreakpointKind, Breakpoints, Edge, Ending, StopReason};

impl Live {
    /// Returns the stop reason for a report of the capture about a thread. A complete step at a
    /// breakpoint is a stop there; an access to memory that `breakpoints` do not watch counts as a
    /// step. Notes the ending if the program is gone.
    pub(super) fn stop_reason(
        &mut self,
        thread: Tid,
        report: Report,
        breakpoints: &Breakpoints,
    ) -> StopReason {
        let kind = || self.live_pc(thread).and_then(|pc| breakpoints.kind_at(pc));
        match report {
            Report::Breakpoint => {
                StopReason::Breakpoint(kind().unwrap_or(BreakpointKind::Software))
            }
            Report::Stepped => kind().map_or(StopReason::Step, StopReason::Breakpoint),
            Report::Watch(addr) => {
                let watched = breakpoints.watchpoints().iter().find(|known| known.addr == addr);
                watched.map_or(StopReason::Step, |known| StopReason::Watchpoint(*known))
            }
            Report::Signal(number) => StopReason::Signal(number),
            Report::Call(number) => StopReason::Call(number),
            Report::CallReturn(number) => StopReason::CallReturn(number),
            Report::Forked(child) => StopReason::Forked(child),
            Report::Vforked(child) => StopReason::Vforked(child),
            Report::VforkDone => StopReason::VforkDone,
            Report::Executed => StopReason::Executed,
            Report::NoneRuns => StopReason::NoneRuns,
            Report::Interrupted => StopReason::Interrupted,
            // The process is about to exit, and its memory can still be read.
            Report::Ending => StopReason::Edge(Edge::End),
            // The process is gone.
            Report::Ended(exit) => {
                let ending = match exit {
                    Some(Exit::Code(status)) => Ending::Exited(status),
                    Some(Exit::Signal(number)) => Ending::Signal(number),
                    None => Ending::Unknown,
                };
                // A child that the debugger followed may end while its parent is still there.
                if thread == Tid(self.program.borrow().pid().0) {
                    self.ended = Some(ending);
                }
                StopReason::Gone(ending)
            }
        }
    }

    /// Returns the current address of a thread; `None` if it does not exist.
    pub(super) fn live_pc(&self, tid: Tid) -> Option<Addr> {
        Some(Addr(self.live_registers(tid)?.rip))
    }

    /// Returns the current general registers of a thread; `None` if it does not exist.
    pub(in crate::session) fn live_registers(&self, tid: Tid) -> Option<Registers> {
        Some(self.program.borrow().thread(tid)?.registers)
    }
}
