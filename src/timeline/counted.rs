//! Counts of a thread's blocks, without their order: many times as fast as a visit.

use super::line::Timeline;
use super::visit::Segment;
use crate::common::{Addr, Tid};
use crate::flow::{Exit, FlowItem, Span};
use crate::translate::AddressMap;
use std::ops::ControlFlow;

/// The address of a block's first instruction, the number of its instructions, and the way in which
/// control left.
pub type BlockKey = (Addr, u32, Exit);

/// A block of code that was executed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CountedBlock {
    /// Its executions.
    pub count: u64,
    /// The addresses of its instructions.
    pub addrs: Box<[Addr]>,
}

/// The blocks of a thread.
pub type CountedBlocks = AddressMap<BlockKey, CountedBlock>;

impl Timeline {
    /// Counts the executions of each block of a thread. `is_over` is asked for each segment; when
    /// it returns true, those so far are returned.
    pub fn count_blocks(&self, tid: Tid, is_over: &dyn Fn() -> bool) -> CountedBlocks {
        let mut blocks = CountedBlocks::default();
        let mut new: Vec<Span> = Vec::new();
        let config = self.config.clone();
        let _: ControlFlow<()> = self.walk_segments(tid, 0, &config, &mut |_, segment| {
            let Segment::Walker(walker, _) = segment else { return ControlFlow::Continue(()) };
            if is_over() {
                return ControlFlow::Break(());
            }
            loop {
                let item = walker.list(&mut |spans| {
                    for span in spans {
                        let block = blocks.entry(key_of(span)).or_default();
                        block.count += 1;
                        if block.count == 1 {
                            new.push(*span);
                        }
                    }
                });
                // The code stays that of the blocks until the item is noted.
                for span in new.drain(..) {
                    let block = blocks.entry(key_of(&span)).or_default();
                    block.addrs = walker.addrs(&span).collect();
                }
                match item {
                    Some(item @ (FlowItem::Event(_) | FlowItem::Gap(_))) => walker.note(&item),
                    Some(FlowItem::Block(_)) => {}
                    None => return ControlFlow::Continue(()),
                }
            }
        });
        blocks
    }
}

const fn key_of(span: &Span) -> BlockKey {
    (span.ip, span.insns, span.exit)
}
