//! A thread's path from front to back, block by block, with positions.

use super::clock::{Clock, Places};
use crate::common::{Addr, Tid};
use crate::flow::Exit;
use crate::timeline::{Timeline, Visit};
use crate::translate::is_tick;
use std::ops::ControlFlow;

/// The maximum number of bytes of an instruction.
const INSN_BYTES: usize = 15;

/// An item of a path, and the positions there.
pub(super) struct Passed<'a> {
    pub(super) visit: &'a Visit<'a>,
    /// The converter to positions, for instructions of this item.
    pub(super) clock: &'a Clock<'a>,
}

impl Passed<'_> {
    /// Returns the address of the item's first instruction; `None` if the item is no block.
    pub(super) fn next_ip(&self) -> Option<Addr> {
        match self.visit {
            Visit::Block { span, .. } => Some(span.ip),
            _ => None,
        }
    }
}

/// Walks the whole path of a thread: calls `visitor` with each item until it breaks. Positions are
/// those of an exact recording if its `places` are given.
pub(super) fn walk(
    timeline: &Timeline,
    places: Option<&Places>,
    tid: Tid,
    visitor: &mut dyn FnMut(&Passed<'_>) -> ControlFlow<()>,
) -> ControlFlow<()> {
    let mut clock = Clock::new(timeline, places, tid);
    timeline.visit(tid, 0, &mut |visit| {
        let (Visit::Block { index, .. } | Visit::Event { index, .. } | Visit::Gap { index, .. }) =
            &visit;
        if matches!(visit, Visit::Block { .. }) {
            clock.reach(*index);
        }
        visitor(&Passed { visit: &visit, clock: &clock })?;
        if clock.counts()
            && let Visit::Block { index, span, code, .. } = &visit
            && ends_in_tick(span.exit, span.last, code)
        {
            let after = index + u64::from(span.insns);
            clock.reach(after - 1);
            clock.tick(after);
        }
        ControlFlow::Continue(())
    })
}

/// Returns true if a block's last instruction ticked.
pub(super) fn ends_in_tick(
    exit: Exit,
    last: Addr,
    code: &dyn Fn(Addr, &mut [u8]) -> usize,
) -> bool {
    match exit {
        Exit::Taken | Exit::NotTaken | Exit::JmpIndirect | Exit::Ret => true,
        Exit::Next | Exit::FarCall | Exit::FarReturn | Exit::FarJmp => false,
        Exit::Jmp | Exit::Call | Exit::Unknown => {
            let mut bytes = [0; INSN_BYTES];
            let count = code(last, &mut bytes);
            bytes.get(..count).is_some_and(|bytes| is_tick(bytes, last.0))
        }
    }
}
