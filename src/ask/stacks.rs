//! The stacks of calls of a run, as a tree: a stack is a node, and its parent is the stack of the
//! caller. The number of stacks is bounded, whatever the run does: calls beyond the limits of depth
//! and number have no separate stacks, and count for a common one under the same parent.

use crate::common::Addr;
use crate::translate::AddressMap;
use std::collections::HashMap;

/// The depth from which on calls get no separate stacks: a recursion would add one for each level.
const MAX_DEPTH: usize = 256;
/// The number of stacks from which on calls get no separate stacks.
const MAX_STACKS: usize = 1 << 18;

/// The innermost function of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Callee {
    /// The function that begins at an address.
    Function(Addr),
    /// Code without symbols, counted per page: the address of the page.
    Page(Addr),
    /// All calls that have no separate stack.
    BeyondLimits,
}

/// A call stack, as a node of a tree: its innermost function and the number of the caller's stack.
#[derive(Clone, Copy, Debug)]
struct Stack {
    /// The number of its parent: the stack of the caller.
    parent: Option<usize>,
    callee: Callee,
    /// The number of its ancestors.
    depth: usize,
    /// The number of instructions that the stack's innermost function executed itself.
    own: u64,
}

/// A tree of stacks, each with a number. A parent has a lower number than its children.
#[derive(Debug, Default)]
pub(super) struct Stacks {
    all: Vec<Stack>,
    /// The index in `all` of each stack, by the caller's stack and the innermost function.
    numbers: AddressMap<(Option<usize>, Callee), usize>,
}

impl Stacks {
    /// Returns the number of the stack of a call of `callee` from the stack `parent`. Adds the
    /// stack if it is new. Beyond the limits, it is the stack of [`Callee::BeyondLimits`] under
    /// `parent`, or `parent` itself if that is such a stack.
    pub(super) fn stack_of_call(&mut self, parent: Option<usize>, callee: Callee) -> usize {
        let outer = parent.and_then(|number| Some((number, self.all.get(number)?)));
        if let Some((number, Stack { callee: Callee::BeyondLimits, .. })) = outer {
            return number;
        }
        let depth = outer.map_or(0, |(_, outer)| outer.depth + 1);
        if let Some(known) = self.numbers.get(&(parent, callee)) {
            return *known;
        }
        let has_own = depth < MAX_DEPTH && self.all.len() < MAX_STACKS;
        let callee = if has_own { callee } else { Callee::BeyondLimits };
        let next = self.all.len();
        let number = *self.numbers.entry((parent, callee)).or_insert(next);
        if number == next {
            self.all.push(Stack { parent, callee, depth, own: 0 });
        }
        number
    }

    /// Returns the innermost function of the stack with a number; `None` if there is no such stack.
    pub(super) fn innermost(&self, number: usize) -> Option<Callee> {
        self.all.get(number).map(|stack| stack.callee)
    }

    /// Returns the number of the caller's stack; `None` for an outermost function, or if there is
    /// no such stack.
    pub(super) fn parent(&self, number: usize) -> Option<usize> {
        self.all.get(number)?.parent
    }

    /// Adds to the number of instructions that the innermost function of a stack executed itself.
    /// Does nothing if there is no such stack.
    pub(super) fn count_own(&mut self, number: usize, instructions: u64) {
        if let Some(stack) = self.all.get_mut(number) {
            stack.own += instructions;
        }
    }

    /// Adds the stacks of another thread, with their instructions.
    pub(super) fn add_thread(&mut self, other: &Self) {
        let mut numbers: Vec<usize> = Vec::with_capacity(other.all.len());
        for Stack { parent, callee, own, .. } in &other.all {
            let parent = parent.and_then(|parent| numbers.get(parent).copied());
            let number = self.stack_of_call(parent, *callee);
            self.count_own(number, *own);
            numbers.push(number);
        }
    }

    /// Returns the functions of each stack, outermost first, and the number of instructions that
    /// the innermost one executed itself. Leaves out the stacks with none.
    pub(super) fn executed_stacks(&self) -> impl Iterator<Item = (Vec<Callee>, u64)> {
        self.all.iter().enumerate().filter(|(_, stack)| stack.own > 0).map(|(number, stack)| {
            let mut chain = Vec::with_capacity(stack.depth + 1);
            let mut next = Some(number);
            while let Some(of) = next.and_then(|number| self.all.get(number)) {
                chain.push(of.callee);
                next = of.parent;
            }
            chain.reverse();
            (chain, stack.own)
        })
    }

    /// Returns the instructions of each function and of all that it called, by function number.
    /// `function_number` numbers the functions: callees with the same number are one function. The
    /// instructions inside a recursion count once for its function.
    pub(super) fn totals(&self, function_number: impl Fn(Callee) -> usize) -> HashMap<usize, u64> {
        // The instructions of each stack and of all its descendants. Children have higher numbers,
        // so they are complete when they are added to their parent.
        let mut sums: Vec<u64> = self.all.iter().map(|stack| stack.own).collect();
        let mut children: Vec<Vec<usize>> = vec![Vec::new(); self.all.len()];
        let mut roots = Vec::new();
        for (number, stack) in self.all.iter().enumerate().rev() {
            match stack.parent {
                Some(parent) => {
                    sums[parent] += sums[number];
                    children[parent].push(number);
                }
                None => roots.push(number),
            }
        }
        // A walk of the tree, depth first. `open` counts the functions on the current stack: only
        // the outermost activation of each is added.
        let (mut totals, mut open) = (HashMap::new(), HashMap::<usize, u32>::new());
        // Each stack is visited twice; true is for the second visit, when it is left.
        let mut to_visit: Vec<(usize, bool)> =
            roots.into_iter().map(|root| (root, false)).collect();
        while let Some((number, is_left)) = to_visit.pop() {
            let function = function_number(self.all[number].callee);
            let times = open.entry(function).or_default();
            if is_left {
                *times -= 1;
                continue;
            }
            if *times == 0 {
                *totals.entry(function).or_insert(0) += sums[number];
            }
            *times += 1;
            to_visit.push((number, true));
            to_visit.extend(children[number].iter().map(|child| (*child, false)));
        }
        totals
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Callee = Callee::Function(Addr(1));
    const B: Callee = Callee::Function(Addr(2));

    fn function_number(callee: Callee) -> usize {
        match callee {
            Callee::Function(addr) | Callee::Page(addr) => usize::try_from(addr.0).unwrap(),
            Callee::BeyondLimits => 0,
        }
    }

    #[test]
    fn a_function_counts_once_on_each_stack() {
        let mut stacks = Stacks::default();
        let a = stacks.stack_of_call(None, A);
        let b = stacks.stack_of_call(Some(a), B);
        let again = stacks.stack_of_call(Some(b), A);
        for (stack, own) in [(a, 1), (b, 10), (again, 100)] {
            stacks.count_own(stack, own);
        }
        let both = {
            let mut both = Stacks::default();
            both.add_thread(&stacks);
            both.add_thread(&stacks);
            both
        };
        assert_eq!(both.totals(function_number), HashMap::from([(1, 222), (2, 220)]));
        let executed_stacks: Vec<_> = both.executed_stacks().collect();
        assert_eq!(executed_stacks, [(vec![A], 2), (vec![A, B], 20), (vec![A, B, A], 200)]);
    }

    #[test]
    fn a_deep_recursion_is_bounded() {
        let mut stacks = Stacks::default();
        let mut current = None;
        for _ in 0..1_000_000 {
            let stack = stacks.stack_of_call(current, A);
            stacks.count_own(stack, 1);
            current = Some(stack);
        }
        assert_eq!(stacks.all.len(), MAX_DEPTH + 1);
        assert_eq!(stacks.totals(function_number)[&1], 1_000_000);
        let (chain, own) = stacks.executed_stacks().last().unwrap();
        assert_eq!((chain.len(), *chain.last().unwrap()), (MAX_DEPTH + 1, Callee::BeyondLimits));
        assert_eq!(own, 1_000_000 - MAX_DEPTH as u64);
    }
}
