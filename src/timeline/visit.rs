//! Everything that a thread did, in order, for those who want all of it: dumps and exports.

use super::line::Timeline;
use super::walk::{Caches, Walker};
use crate::common::{Addr, Tid};
use crate::flow::{Event, FlowItem, Gap, Insn, Span};
use crate::recording::Trace;
use std::ops::ControlFlow;

/// One thing of a thread's history.
pub enum Visit<'a> {
    /// Instructions in a straight line.
    Block {
        /// The number of the first in its thread.
        index: u64,
        /// The block.
        span: Span,
        /// Their addresses.
        addrs: &'a [Addr],
        /// The last of them, with how it passes control on.
        last: Option<Insn>,
        /// Copies code bytes that stood at an address then; gives how many are known.
        code: &'a dyn Fn(Addr, &mut [u8]) -> usize,
    },
    /// Something that happened between two instructions.
    Event {
        /// The number of the next instruction.
        index: u64,
        /// The event.
        event: Event,
    },
    /// A hole in the path.
    Gap {
        /// The number of the next instruction.
        index: u64,
        /// The hole.
        gap: Gap,
    },
}

impl Timeline {
    /// Visits a thread's history from the segment of instruction `from` on, until the visitor
    /// breaks off.
    pub fn visit<B>(
        &self,
        tid: Tid,
        from: u64,
        visitor: &mut dyn FnMut(Visit<'_>) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        let Some((_, thread)) = self.thread(tid) else { return ControlFlow::Continue(()) };
        let mut caches = Caches::default();
        let mut addrs = Vec::new();
        // At the front there may be segments of holes only.
        let start = if from == 0 { Some(0) } else { thread.path.index.entry_of(from) };
        let start = start.unwrap_or(thread.path.index.entries.len());
        if let Some(gap) = thread.no_psb() {
            visitor(Visit::Gap { index: 0, gap })?;
        }
        let mut behind = self.whole_trace(thread).map(Trace::behind);
        for entry in thread.path.index.entries.get(start..).unwrap_or_default() {
            let mut index = entry.first;
            let Some(piece) = thread.piece(entry) else { continue };
            if piece.lost {
                visitor(Visit::Gap { index, gap: piece.hole() })?;
                continue;
            }
            if let Some(behind) = &mut behind {
                behind.pass(entry.start);
            }
            let trace = self.traces.get(piece.trace).map(AsRef::as_ref).unwrap_or_default();
            let part = piece.part(trace, entry.start, entry.end);
            let mut walker = Walker::new(&part, self.world(), &mut caches);
            while let Some(item) = walker.next() {
                match item {
                    FlowItem::Block(span) => {
                        addrs.clear();
                        addrs.extend(walker.addrs(&span));
                        let last = walker.last_insn(&span);
                        let code = |addr, buf: &mut [u8]| walker.read(addr, buf);
                        visitor(Visit::Block { index, span, addrs: &addrs, last, code: &code })?;
                        index += u64::from(span.insns);
                    }
                    FlowItem::Event(event) => visitor(Visit::Event { index, event })?,
                    FlowItem::Gap(gap) => visitor(Visit::Gap { index, gap })?,
                }
            }
        }
        ControlFlow::Continue(())
    }
}
