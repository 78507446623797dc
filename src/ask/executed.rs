//! Counts of executed code: each block, each function, and each stack of calls. Their size depends
//! on the code and the number of different stacks, not on the length of the run.

use super::functions::Functions;
use super::opened::Asked;
use super::stacks::{Callee, Stacks};
use super::tracker::{Change, Tracker};
use crate::common::{Addr, Tid};
use crate::timeline::{BlockKey, Visit};
use crate::translate::AddressMap;
use std::collections::HashMap;
use std::ops::ControlFlow;

/// The number of items (blocks, events and gaps) of a path between two checks for an interrupt.
const BLOCKS: u64 = 1 << 16;
/// The bits of an address that are the start of its page.
const PAGE: u64 = !0xfff;

/// The counts of a run, or of a part of it.
#[derive(Debug, Default)]
pub(super) struct Executed {
    pub(super) blocks: AddressMap<BlockKey, Block>,
    pub(super) functions: AddressMap<Callee, Counts>,
    pub(super) stacks: Stacks,
    pub(super) instructions: u64,
    /// The number of gaps in the path.
    pub(super) gaps: u64,
}

/// A block of code, and how often it was executed.
#[derive(Debug)]
pub(super) struct Block {
    key: BlockKey,
    pub(super) count: u64,
    pub(super) addrs: Box<[Addr]>,
    /// The function with the block's first instruction.
    callee: Callee,
}

/// A sequence of blocks that were executed in one function, under the same calls.
#[derive(Clone, Copy, Debug)]
struct Stay {
    stack: Option<usize>,
    callee: Callee,
    instructions: u64,
}

/// The counts of a function.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    /// The number of instructions that the function executed itself.
    pub(super) own: u64,
    pub(super) calls: u64,
}

impl Asked {
    /// Counts all that the threads executed. `None`: the user interrupted it.
    pub(super) fn executed(&self, is_over: &(dyn Fn() -> bool + Sync)) -> Option<Executed> {
        let mut all = Executed::default();
        let is_whole =
            self.each_thread(|tid| self.executed_by(tid, is_over), |one| all.add(one), is_over);
        is_whole.then_some(all)
    }

    /// Counts all that one thread executed. With each open call, the tracker keeps the number of
    /// its stack.
    fn executed_by(&self, tid: Tid, is_over: &(dyn Fn() -> bool + Sync)) -> Executed {
        let functions = self.functions();
        let mut counts = Executed::default();
        let mut tracker: Tracker<usize> = Tracker::default();
        // The blocks by their numbers in the walk.
        let mut blocks: Vec<Block> = Vec::new();
        let (mut passed_blocks, mut stay) = (0_u64, None);
        let _: ControlFlow<()> = self.path(tid).walk(&functions, &mut |passed| {
            // The stack of the innermost call, which the changes before this item replace.
            let mut current = tracker.innermost().map(|open| open.kept);
            tracker.pass(passed, &mut |change| match change {
                Change::Began(begins) => {
                    // Calls that ended before are no longer around this one.
                    let callee = callee_at(&functions, begins.ip);
                    let stack = counts.stacks.enter(current, callee);
                    counts.functions.entry(callee).or_default().calls += 1;
                    current = Some(stack);
                    current
                }
                Change::Ended(open, _) => {
                    current = counts.stacks.parent(open.kept);
                    None
                }
            });
            match (passed.visit, passed.block) {
                (Visit::Block { span, code, .. }, Some(facts)) => {
                    let number = facts.number as usize;
                    if passed.is_new {
                        let key = (span.ip, span.insns, span.exit);
                        let callee = callee_at(&functions, span.ip);
                        let block = Block { key, count: 0, addrs: code.addrs().into(), callee };
                        if number < blocks.len() {
                            counts.add_block(std::mem::replace(&mut blocks[number], block));
                        } else {
                            blocks.push(block);
                        }
                    }
                    let block = &mut blocks[number];
                    block.count += 1;
                    let stack = tracker.innermost().map(|open| open.kept);
                    counts.stay(&mut stay, stack, block.callee, span.insns.into());
                }
                (Visit::Gap { .. }, _) => counts.gaps += 1,
                _ => {}
            }
            passed_blocks += 1;
            if passed_blocks.is_multiple_of(BLOCKS) && is_over() {
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        });
        counts.end_stay(stay);
        for block in blocks {
            counts.add_block(block);
        }
        counts
    }
}

fn callee_at(functions: &Functions<'_>, ip: Addr) -> Callee {
    functions
        .at(ip)
        .map_or(Callee::Page(Addr(ip.0 & PAGE)), |function| Callee::Function(function.start))
}

impl Executed {
    /// Counts the instructions of a block. It continues the current stay if it is in the same
    /// function and under the same calls; else it begins another.
    fn stay(&mut self, stay: &mut Option<Stay>, stack: Option<usize>, callee: Callee, insns: u64) {
        match stay {
            Some(stay) if (stay.stack, stay.callee) == (stack, callee) => {
                stay.instructions += insns;
            }
            _ => {
                let next = Stay { stack, callee, instructions: insns };
                self.end_stay(stay.replace(next));
            }
        }
    }

    /// Adds the instructions of a stay to the counts of its stack and its function.
    fn end_stay(&mut self, stay: Option<Stay>) {
        let Some(Stay { stack, callee, instructions: insns }) = stay else { return };
        self.instructions += insns;
        let innermost = stack.and_then(|stack| Some((stack, self.stacks.callee(stack)?)));
        let (stack, callee) = match (innermost, callee) {
            // Beyond the limits of the stacks, only the function's count is exact.
            (Some((stack, Callee::More)), callee) => (stack, callee),
            // Code without symbols may be a part of any function.
            (Some((stack, of)), Callee::Page(_)) => (stack, of),
            (Some((stack, of)), callee) if of == callee => (stack, callee),
            // A jump may have led to a separate part of a function, or to one that was not called.
            // It counts as a call by the innermost function.
            (_, callee) => (self.stacks.enter(stack, callee), callee),
        };
        self.stacks.count(stack, insns);
        self.functions.entry(callee).or_default().own += insns;
    }

    fn add_block(&mut self, block: Block) {
        let Block { key, count, .. } = block;
        self.blocks.entry(key).or_insert(Block { count: 0, ..block }).count += count;
    }

    /// Adds the counts of another thread.
    fn add(&mut self, other: Self) {
        self.instructions += other.instructions;
        self.gaps += other.gaps;
        other.blocks.into_values().for_each(|block| self.add_block(block));
        for (callee, counts) in other.functions {
            let all = self.functions.entry(callee).or_default();
            (all.own, all.calls) = (all.own + counts.own, all.calls + counts.calls);
        }
        self.stacks.add(&other.stacks);
    }

    /// Returns the number of executions of each instruction.
    pub(super) fn counts(&self) -> HashMap<Addr, u64> {
        let mut counts = HashMap::new();
        for block in self.blocks.values() {
            for addr in &block.addrs {
                *counts.entry(*addr).or_insert(0) += block.count;
            }
        }
        counts
    }
}
