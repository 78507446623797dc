//! Counts how often a thread executed each block, without the order: many times as fast as a visit.

use super::line::Timeline;
use super::visit::SegmentWalk;
use crate::common::{Addr, Tid};
use crate::flow::{Exit, FlowItem, Span};
use crate::translate::AddressMap;
use std::ops::ControlFlow;

/// The address of a block's first instruction, the number of its instructions, and the kind of its
/// exit.
pub type BlockKey = (Addr, u32, Exit);

/// A block of code that was executed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CountedBlock {
    /// The number of executions.
    pub count: u64,
    /// The addresses of the block's instructions at its first execution: code that changed and kept
    /// its key counts as the same block.
    pub addrs: Box<[Addr]>,
}

/// The blocks that a thread executed, with their counts.
pub type CountedBlocks = AddressMap<BlockKey, CountedBlock>;

impl Timeline {
    /// Counts the executions of each block of a thread, on one core. Leaves out lost pieces. Calls
    /// `is_over` before each segment; if it returns true, the counts so far are returned.
    pub fn count_blocks(&self, tid: Tid, is_over: &dyn Fn() -> bool) -> CountedBlocks {
        let mut blocks = CountedBlocks::default();
        let mut new: Vec<Span> = Vec::new();
        let config = self.config.clone();
        let _: ControlFlow<()> = self.walk_segments(tid, 0, &config, &mut |_, segment| {
            let SegmentWalk::Walker(walker) = segment else { return ControlFlow::Continue(()) };
            if is_over() {
                return ControlFlow::Break(());
            }
            loop {
                let item = walker.blocks_until_mark(&mut |spans| {
                    for span in spans {
                        let block = blocks.entry(key_of(span)).or_default();
                        block.count += 1;
                        if block.count == 1 {
                            new.push(*span);
                        }
                    }
                });
                // Until the walker processes the item, it has the code of these blocks.
                for span in new.drain(..) {
                    let block = blocks.entry(key_of(&span)).or_default();
                    block.addrs = walker.addrs(&span).collect();
                }
                match item {
                    Some(item @ (FlowItem::Event(_) | FlowItem::Gap(_))) => {
                        walker.process_mark(&item);
                    }
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
