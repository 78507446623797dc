//! Translation of capture events to the stop reasons of the session.

use super::Live;
use crate::capture::News;
use crate::common::{Addr, Tid};
use crate::insn::Registers;
use crate::recording::Exit;
use crate::session::{BreakpointKind, Breakpoints, Edge, Ending, StopReason};

impl Live {
    pub(super) fn reason(
        &mut self,
        thread: Tid,
        news: News,
        breakpoints: &Breakpoints,
    ) -> StopReason {
        let kind = || self.live_pc(thread).and_then(|pc| breakpoints.at(pc));
        match news {
            News::Stop => StopReason::Breakpoint(kind().unwrap_or(BreakpointKind::Software)),
            News::Stepped => kind().map_or(StopReason::Step, StopReason::Breakpoint),
            News::Watch(addr) => {
                let watched = breakpoints.watchpoints().iter().find(|known| known.addr == addr);
                watched.map_or(StopReason::Step, |known| StopReason::Watchpoint(*known))
            }
            News::Signal(number) => StopReason::Signal(number),
            News::Call(number) => StopReason::Call(number),
            News::CallReturn(number) => StopReason::CallReturn(number),
            News::Forked(child) => StopReason::Forked(child),
            News::Vforked(child) => StopReason::Vforked(child),
            News::VforkDone => StopReason::VforkDone,
            News::Executed => StopReason::Executed,
            News::NoneRuns => StopReason::NoneRuns,
            News::Interrupted => StopReason::Interrupted,
            News::Ending => {
                self.at_end = true;
                StopReason::Edge(Edge::End)
            }
            News::Ended(exit) => {
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

    pub(super) fn live_pc(&self, tid: Tid) -> Option<Addr> {
        Some(Addr(self.live_registers(tid)?.rip))
    }

    /// Returns the current general registers of a thread.
    pub(in crate::session) fn live_registers(&self, tid: Tid) -> Option<Registers> {
        Some(self.program.borrow().thread(tid)?.registers)
    }
}
