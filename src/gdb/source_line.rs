//! `qContraflow.line:TID,START,END`: the source line over which a thread steps back, reported by
//! the gdb script. Not part of gdb's protocol, in which only forward steps have an address range
//! (`vCont;r`): backward, gdb sends a packet per instruction. After this report, one `bs` takes all
//! steps after which gdb would only send another `bs`, as `vCont;r` does forward.
//! `qContraflow.line:` alone withdraws the report.

use super::hex;
use super::thread_id::{self, ThreadChoice};
use crate::common::{Addr, AddrRange, Tid};
use crate::session::{Action, Direction, Order, Run, Session, Stop, StopReason};

/// The code of a source line, and the thread that is stepped back over it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SourceLine {
    tid: Tid,
    range: AddrRange,
}

/// Parses the text after `qContraflow.line:`; `None` if it is malformed, or does not name a single
/// thread.
pub(super) fn parse(text: &[u8]) -> Option<SourceLine> {
    let (thread, range) = hex::split(text, b',')?;
    let (start, end) = hex::split(range, b',')?;
    let ThreadChoice::One(tid) = thread_id::parse(thread)? else { return None };
    let range = AddrRange::new(Addr(hex::number(start)?), Addr(hex::number(end)?));
    Some(SourceLine { tid, range })
}

impl SourceLine {
    /// Returns true if an order is one step back by the line's thread, and that thread is in the
    /// line now: the step may be repeated ([`Self::would_step_on`]).
    pub(super) fn applies_to<R: Run>(&self, session: &Session<R>, order: &Order) -> bool {
        let back = (order.action, order.direction) == (Action::Step, Direction::Backward);
        back && order.thread == self.tid && self.contains_thread(session)
    }

    /// Returns true if gdb would only send another step back after `stop`: the thread stepped, is
    /// inside the line, in the same activation of its function, and not at the line's start, where
    /// gdb might stop.
    pub(super) fn would_step_on<R: Run>(&self, session: &Session<R>, stop: Stop) -> bool {
        let stepped = stop.reason == StopReason::Step && stop.thread == self.tid;
        let at_start = || session.run().pc(self.tid) == Some(self.range.start);
        stepped
            && self.contains_thread(session)
            && !at_start()
            && session.run().stays_in_activation(self.tid)
    }

    /// Returns true if the thread's next instruction is in the line; false if it is unknown.
    fn contains_thread<R: Run>(&self, session: &Session<R>) -> bool {
        session.run().pc(self.tid).is_some_and(|pc| self.range.contains(pc))
    }
}
