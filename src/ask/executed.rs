//! Counts of executed code: each block, each function, and each stack of calls. Their size depends
//! on the code and the number of different stacks, not on the length of the run.
//!
//! A *stay* is successive blocks in one function under the same calls, which are counted at once. A
//! *callee* is the innermost function of a stack ([`Callee`]), or a page of code without symbols.

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
const ITEMS_BETWEEN_CHECKS: u64 = 1 << 16;
/// The bits of an address that are the start of its page.
const PAGE_MASK: u64 = !0xfff;

/// The counts of a run, or of a part of it.
#[derive(Debug, Default)]
pub(super) struct ExecutionCounts {
    /// The blocks, by their identity.
    pub(super) blocks: AddressMap<BlockKey, Block>,
    pub(super) functions: AddressMap<Callee, FunctionCounts>,
    pub(super) stacks: Stacks,
    /// The number of all instructions.
    pub(super) instructions: u64,
    /// The number of gaps in the path.
    pub(super) gaps: u64,
}

/// A block of code, and how often it was executed.
#[derive(Debug)]
pub(super) struct Block {
    key: BlockKey,
    /// The number of its executions.
    pub(super) count: u64,
    /// The addresses of its instructions.
    pub(super) addrs: Box<[Addr]>,
    /// The function with the block's first instruction.
    callee: Callee,
}

/// Successive blocks that were executed in one function, under the same calls. Their instructions
/// are added to the counts at once, when the stay ends.
#[derive(Clone, Copy, Debug)]
struct Stay {
    /// The number of the stack of the innermost call; `None` if no call is open.
    stack: Option<usize>,
    /// The function with the blocks. A jump may have led to another one than the innermost call.
    callee: Callee,
    instructions: u64,
}

/// The counts of a function.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FunctionCounts {
    /// The number of instructions that the function executed itself.
    pub(super) own: u64,
    /// The number of calls of the function, with tail calls, signals and entries of unknown kind.
    pub(super) calls: u64,
}

impl Asked {
    /// Counts all that the threads executed. `None`: `interrupted` returned true.
    pub(super) fn execution_counts(
        &self,
        interrupted: &(dyn Fn() -> bool + Sync),
    ) -> Option<ExecutionCounts> {
        let mut all = ExecutionCounts::default();
        let is_whole = self.for_each_thread(
            |tid, _| self.counts_of_thread(tid, interrupted),
            |one| all.add_thread(one),
            interrupted,
        );
        is_whole.then_some(all)
    }

    /// Counts all that one thread executed, or only a part of it if `interrupted` returns true.
    /// With each open call, the tracker keeps the number of its stack.
    fn counts_of_thread(
        &self,
        tid: Tid,
        interrupted: &(dyn Fn() -> bool + Sync),
    ) -> ExecutionCounts {
        let functions = self.functions();
        let mut counts = ExecutionCounts::default();
        let mut tracker: Tracker<usize> = Tracker::default();
        // The blocks by their numbers in the walk.
        let mut blocks: Vec<Block> = Vec::new();
        let (mut items, mut stay) = (0_u64, None);
        let _: ControlFlow<()> = self.path(tid).walk(&functions, &mut |item| {
            // The stack of the innermost call, which the changes before this item replace.
            let mut current = tracker.innermost().map(|open| open.data);
            tracker.process(item, &mut |change| match change {
                Change::Began(begins) => {
                    // Calls that ended before are no longer around this one.
                    let callee = callee_at(&functions, begins.ip);
                    let stack = counts.stacks.stack_of_call(current, callee);
                    counts.functions.entry(callee).or_default().calls += 1;
                    current = Some(stack);
                    current
                }
                Change::Ended(open, _) => {
                    current = counts.stacks.parent(open.data);
                    None
                }
            });
            match (item.visit, item.block) {
                (Visit::Block { span, code, .. }, Some(facts)) => {
                    let number = facts.number as usize;
                    if item.is_new {
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
                    let stack = tracker.innermost().map(|open| open.data);
                    counts.extend_stay(&mut stay, stack, block.callee, span.insns.into());
                }
                (Visit::Gap { .. }, _) => counts.gaps += 1,
                _ => {}
            }
            items += 1;
            if items.is_multiple_of(ITEMS_BETWEEN_CHECKS) && interrupted() {
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

/// Returns the function at an address, or the page of code without symbols.
fn callee_at(functions: &Functions<'_>, ip: Addr) -> Callee {
    functions
        .at(ip)
        .map_or(Callee::Page(Addr(ip.0 & PAGE_MASK)), |function| Callee::Function(function.start))
}

impl ExecutionCounts {
    /// Counts the instructions of a block in `callee`, under the call with number `stack`. It
    /// continues the current stay if that has the same function and calls; else that ends and
    /// another one begins.
    fn extend_stay(
        &mut self,
        stay: &mut Option<Stay>,
        stack: Option<usize>,
        callee: Callee,
        insns: u64,
    ) {
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

    /// Adds the instructions of a stay, if there is one, to the counts of its stack and its
    /// function. If this is not the function of the innermost call, they count for the stack of a
    /// call by that (the number of calls stays the same); code without symbols counts for the
    /// innermost call itself.
    fn end_stay(&mut self, stay: Option<Stay>) {
        let Some(Stay { stack, callee, instructions: insns }) = stay else { return };
        self.instructions += insns;
        let innermost = stack.and_then(|stack| Some((stack, self.stacks.innermost(stack)?)));
        let (stack, callee) = match (innermost, callee) {
            // Beyond the limits of the stacks, only the function's count is exact.
            (Some((stack, Callee::BeyondLimits)), callee) => (stack, callee),
            // Code without symbols may be a part of any function.
            (Some((stack, of)), Callee::Page(_)) => (stack, of),
            (Some((stack, of)), callee) if of == callee => (stack, callee),
            // A jump may have led to a separate part of a function, or to one that was not called.
            // It counts as a call by the innermost function.
            (_, callee) => (self.stacks.stack_of_call(stack, callee), callee),
        };
        self.stacks.count_own(stack, insns);
        self.functions.entry(callee).or_default().own += insns;
    }

    /// Adds the executions of a block to those of the same block (address, size and exit).
    fn add_block(&mut self, block: Block) {
        let Block { key, count, .. } = block;
        self.blocks.entry(key).or_insert(Block { count: 0, ..block }).count += count;
    }

    /// Adds the counts of another thread.
    fn add_thread(&mut self, other: Self) {
        self.instructions += other.instructions;
        self.gaps += other.gaps;
        other.blocks.into_values().for_each(|block| self.add_block(block));
        for (callee, counts) in other.functions {
            let all = self.functions.entry(callee).or_default();
            (all.own, all.calls) = (all.own + counts.own, all.calls + counts.calls);
        }
        self.stacks.add_thread(&other.stacks);
    }

    /// Returns the number of executions of each instruction.
    pub(super) fn by_instruction(&self) -> HashMap<Addr, u64> {
        let mut counts = HashMap::new();
        for block in self.blocks.values() {
            for addr in &block.addrs {
                *counts.entry(*addr).or_insert(0) += block.count;
            }
        }
        counts
    }
}
