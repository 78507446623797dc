//! Counts of executed code: each block, and each stack of calls. Its size is that of the
//! code and of the different stacks, and not that of the run.

use super::functions::{Function, Functions};
use super::opened::Asked;
use super::tracker::{Change, Tracker};
use super::walk::walk;
use crate::common::{Addr, Tid};
use crate::flow::Exit;
use crate::timeline::Visit;
use std::collections::HashMap;
use std::ops::ControlFlow;
use std::rc::Rc;
use std::thread;

/// Threads that are walked at the same time.
const AT_A_TIME: usize = 8;
/// The most stacks that are kept. Deeper ones count for the calls around them.
const STACKS: usize = 1 << 20;
/// Blocks between two looks at whether the user has had enough.
const BLOCKS: u64 = 1 << 16;

/// The counts of a run, or of a part of it.
#[derive(Debug, Default)]
pub(super) struct Executed {
    pub(super) blocks: HashMap<(Addr, u32, Exit), Block>,
    /// Stacks as a tree: each is the number of the one around it, and a function.
    pub(super) stacks: Vec<Stack>,
    pub(super) instructions: u64,
    /// The number of gaps in the path.
    pub(super) gaps: u64,
}

/// A block of code.
#[derive(Debug)]
pub(super) struct Block {
    pub(super) count: u64,
    pub(super) addrs: Box<[Addr]>,
}

/// A stack of calls.
#[derive(Debug)]
pub(super) struct Stack {
    pub(super) around: Option<usize>,
    pub(super) function: String,
    /// The instructions of its innermost function itself.
    pub(super) own: u64,
    /// The calls that led to it.
    pub(super) calls: u64,
}

impl Asked {
    /// Counts all that the threads executed. `None`: the user interrupted it.
    pub(super) fn executed(&self, is_over: &(dyn Fn() -> bool + Sync)) -> Option<Executed> {
        let tids = self.tids();
        let mut all = Executed::default();
        for tids in tids.chunks(AT_A_TIME) {
            let found = thread::scope(|scope| {
                let count = |tid| scope.spawn(move || self.executed_by(tid, is_over));
                let counts: Vec<_> = tids.iter().copied().map(count).collect();
                counts.into_iter().filter_map(|count| count.join().ok()).collect::<Vec<_>>()
            });
            for of_thread in found {
                all.add(of_thread);
            }
            if is_over() {
                return None;
            }
        }
        Some(all)
    }

    fn executed_by(&self, tid: Tid, is_over: &(dyn Fn() -> bool + Sync)) -> Executed {
        let functions = self.functions();
        let starts = |addr| functions.at(addr).map(|function| function.start);
        let mut counter = Counter::new(&functions);
        let mut tracker: Tracker<usize> = Tracker::default();
        let mut passed_blocks = 0_u64;
        let _: ControlFlow<()> = walk(&self.timeline, None, tid, &mut |passed| {
            let mut current = tracker.innermost().map(|open| open.kept);
            tracker.pass(passed, &starts, &mut |change| match change {
                Change::Began(begins) => {
                    // Those that ended are no longer around it.
                    let stack = counter.enter(current, functions.at(begins.ip), begins.ip);
                    current = Some(stack);
                    Some(stack)
                }
                Change::Ended(open, _) => {
                    current = counter.counts.stacks.get(open.kept).and_then(|stack| stack.around);
                    None
                }
            });
            match passed.visit {
                Visit::Block { span, addrs, .. } => {
                    let stack = tracker.innermost().map(|open| open.kept);
                    counter.block(stack, (span.ip, span.insns, span.exit), addrs);
                }
                Visit::Gap { .. } => counter.counts.gaps += 1,
                Visit::Event { .. } => {}
            }
            passed_blocks += 1;
            if passed_blocks.is_multiple_of(BLOCKS) && is_over() {
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        });
        counter.counts
    }
}

/// Counts what a thread executes.
struct Counter<'a, 's> {
    functions: &'a Functions<'s>,
    counts: Executed,
    inner: HashMap<(Option<usize>, Option<Addr>), usize>,
}

impl<'a, 's> Counter<'a, 's> {
    fn new(functions: &'a Functions<'s>) -> Self {
        Self { functions, counts: Executed::default(), inner: HashMap::new() }
    }

    /// Returns the stack of a function inside another stack, and counts a call.
    fn enter(&mut self, around: Option<usize>, function: Option<Rc<Function>>, ip: Addr) -> usize {
        let stack = self.stack(around, function, ip);
        if let Some(stack) = self.counts.stacks.get_mut(stack) {
            stack.calls += 1;
        }
        stack
    }

    fn stack(&mut self, around: Option<usize>, function: Option<Rc<Function>>, ip: Addr) -> usize {
        let start = function.as_ref().map(|function| function.start);
        let next = self.counts.stacks.len();
        if let Some(stack) = self.inner.get(&(around, start)) {
            return *stack;
        }
        if let Some(around) = around.filter(|_| next >= STACKS) {
            return around;
        }
        let function = function.map_or_else(|| unknown(ip), |function| function.name.clone());
        self.counts.stacks.push(Stack { around, function, own: 0, calls: 0 });
        self.inner.insert((around, start), next);
        next
    }

    fn block(&mut self, stack: Option<usize>, block: (Addr, u32, Exit), addrs: &[Addr]) {
        let (ip, insns, _) = block;
        let new = || Block { count: 0, addrs: addrs.into() };
        self.counts.blocks.entry(block).or_insert_with(new).count += 1;
        self.counts.instructions += u64::from(insns);
        let function = self.functions.at(ip);
        let name = function.as_ref().map(|function| function.name.as_str());
        let is_innermost = stack
            .and_then(|stack| self.counts.stacks.get(stack))
            .is_some_and(|stack| name.is_none_or(|name| stack.function == name));
        // A jump may have led to a part of a function, or to one that is not called.
        let stack = match stack.filter(|_| is_innermost) {
            Some(stack) => stack,
            None => self.stack(stack, function, ip),
        };
        if let Some(stack) = self.counts.stacks.get_mut(stack) {
            stack.own += u64::from(insns);
        }
    }
}

fn unknown(ip: Addr) -> String {
    // Code without symbols is one place for each page.
    format!("[{:#x}]", ip.0 & !0xfff)
}

impl Executed {
    /// Adds the counts of another thread.
    fn add(&mut self, other: Self) {
        self.instructions += other.instructions;
        self.gaps += other.gaps;
        for (key, block) in other.blocks {
            let new = || Block { count: 0, addrs: block.addrs };
            self.blocks.entry(key).or_insert_with(new).count += block.count;
        }
        let first = self.stacks.len();
        self.stacks.extend(
            other
                .stacks
                .into_iter()
                .map(|stack| Stack { around: stack.around.map(|around| around + first), ..stack }),
        );
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
