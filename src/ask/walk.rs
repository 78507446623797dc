//! A thread's path from front to back, block by block, with positions.

use super::blocks::{BlockFacts, Blocks};
use super::clock::{Clock, TimedPlaces};
use super::functions::Functions;
use crate::common::{Addr, Tid};
use crate::flow::EventKind;
use crate::timeline::{Timeline, Visit};
use std::ops::ControlFlow;

/// A thread's path.
pub(super) struct ThreadPath<'a> {
    pub(super) timeline: &'a Timeline,
    /// The places of an exact recording, if positions are to be those of its replay.
    pub(super) places: Option<&'a TimedPlaces>,
    pub(super) tid: Tid,
}

/// An item of a path (a block, an event or a gap), and the positions there.
pub(super) struct PathItem<'a> {
    pub(super) visit: &'a Visit<'a>,
    /// The facts of the block; `None` if the item is an event or a gap.
    pub(super) block: Option<&'a BlockFacts>,
    /// True if the number of the block is new ([`Blocks::is_new`]).
    pub(super) is_new: bool,
    /// Converts the numbers of instructions to positions; only for instructions of this item.
    pub(super) clock: &'a Clock<'a>,
    pub(super) functions: &'a Functions<'a>,
}

impl PathItem<'_> {
    /// Returns the address of the block's first instruction, or of the instruction that the event
    /// interrupted before it executed; `None` for other items.
    pub(super) fn ip(&self) -> Option<Addr> {
        match self.visit {
            Visit::Block { span, .. } => Some(span.ip),
            Visit::Event { event, .. } => match event.kind {
                EventKind::AsyncDisabled { at, .. } | EventKind::AsyncBranch { from: at, .. } => {
                    Some(at)
                }
                _ => None,
            },
            Visit::Gap { .. } => None,
        }
    }

    /// Returns the position of the block's first instruction; for an event or a gap, that of the
    /// thread's next instruction, before the entries of the log there.
    pub(super) fn position(&self) -> u64 {
        match self.visit {
            Visit::Block { index, .. } => self.clock.position(*index),
            Visit::Event { index, .. } | Visit::Gap { index, .. } => {
                self.clock.position_before_entries(*index)
            }
        }
    }
}

impl ThreadPath<'_> {
    /// Walks the whole path from its beginning: calls `visitor` with each item until it breaks.
    /// Returns `Break` if it broke.
    pub(super) fn walk(
        &self,
        functions: &Functions<'_>,
        visitor: &mut impl FnMut(&PathItem<'_>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let mut clock = Clock::new(self.timeline, self.places, self.tid);
        let mut blocks = Blocks::new(functions);
        self.timeline.visit(self.tid, 0, &mut |visit| {
            let Visit::Block { index, span, code, .. } = &visit else {
                let clock = &clock;
                let (block, is_new) = (None, false);
                return visitor(&PathItem { visit: &visit, block, is_new, clock, functions });
            };
            clock.advance_to(*index);
            blocks.pass(span, code);
            let (block, is_new) = (blocks.last(), blocks.is_new());
            visitor(&PathItem { visit: &visit, block, is_new, clock: &clock, functions })?;
            // Places up to the tick come before it.
            if block.is_some_and(|block| block.ticks) {
                let after = index + u64::from(span.insns);
                clock.advance_to(after - 1);
                clock.count_tick(after);
            }
            ControlFlow::Continue(())
        })
    }
}
