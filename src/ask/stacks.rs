//! The stacks of calls of a run, as a tree. Its size is bounded, whatever the run does.

use crate::common::Addr;
use crate::translate::AddressMap;
use std::collections::HashMap;

/// The depth from which on calls get no stacks of their own: a recursion would add one for each
/// level.
const MAX_DEPTH: usize = 256;
/// The maximum number of stacks. Further calls get no stacks of their own.
const MAX_STACKS: usize = 1 << 18;

/// The innermost function of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Callee {
    /// The function that begins at an address.
    Function(Addr),
    /// Code without symbols, counted per page: the address of the page.
    Page(Addr),
    /// All calls that have no stack of their own.
    More,
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
    list: Vec<Stack>,
    /// The index in `list` of each stack, by the caller's stack and the innermost function.
    inner: AddressMap<(Option<usize>, Callee), usize>,
}

impl Stacks {
    /// Returns the number of the stack of a call of `callee` from the stack `parent`. Adds the
    /// stack if it is new. Beyond the limits, it is a stack of [`Callee::More`].
    pub(super) fn enter(&mut self, parent: Option<usize>, callee: Callee) -> usize {
        let outer = parent.and_then(|number| Some((number, self.list.get(number)?)));
        if let Some((number, Stack { callee: Callee::More, .. })) = outer {
            return number;
        }
        let depth = outer.map_or(0, |(_, outer)| outer.depth + 1);
        if let Some(known) = self.inner.get(&(parent, callee)) {
            return *known;
        }
        let has_own = depth < MAX_DEPTH && self.list.len() < MAX_STACKS;
        let callee = if has_own { callee } else { Callee::More };
        let next = self.list.len();
        let number = *self.inner.entry((parent, callee)).or_insert(next);
        if number == next {
            self.list.push(Stack { parent, callee, depth, own: 0 });
        }
        number
    }

    /// Returns the innermost function of the stack with a number; `None` if there is no such stack.
    pub(super) fn callee(&self, number: usize) -> Option<Callee> {
        self.list.get(number).map(|stack| stack.callee)
    }

    /// Returns the number of the caller's stack; `None` for an outermost function.
    pub(super) fn parent(&self, number: usize) -> Option<usize> {
        self.list.get(number)?.parent
    }

    /// Adds to the number of instructions that the innermost function of a stack executed itself.
    pub(super) fn count(&mut self, number: usize, instructions: u64) {
        if let Some(stack) = self.list.get_mut(number) {
            stack.own += instructions;
        }
    }

    /// Adds the stacks of another thread.
    pub(super) fn add(&mut self, other: &Self) {
        let mut numbers: Vec<usize> = Vec::with_capacity(other.list.len());
        for Stack { parent, callee, own, .. } in &other.list {
            let parent = parent.and_then(|parent| numbers.get(parent).copied());
            let number = self.enter(parent, *callee);
            self.count(number, *own);
            numbers.push(number);
        }
    }

    /// Returns the functions of each stack, outermost first, and the number of instructions that
    /// the innermost one executed itself.
    pub(super) fn chains(&self) -> impl Iterator<Item = (Vec<Callee>, u64)> {
        self.list.iter().enumerate().filter(|(_, stack)| stack.own > 0).map(|(number, stack)| {
            let mut chain = Vec::with_capacity(stack.depth + 1);
            let mut next = Some(number);
            while let Some(of) = next.and_then(|number| self.list.get(number)) {
                chain.push(of.callee);
                next = of.parent;
            }
            chain.reverse();
            (chain, stack.own)
        })
    }

    /// Returns the instructions of each function and of all that it called, by function number.
    /// `number_of` numbers the functions: callees with the same number are one function. A function
    /// counts once on each stack.
    pub(super) fn totals(&self, number_of: impl Fn(Callee) -> usize) -> HashMap<usize, u64> {
        let mut sums: Vec<u64> = self.list.iter().map(|stack| stack.own).collect();
        let mut children: Vec<Vec<usize>> = vec![Vec::new(); self.list.len()];
        let mut roots = Vec::new();
        for (number, stack) in self.list.iter().enumerate().rev() {
            match stack.parent {
                Some(parent) => {
                    sums[parent] += sums[number];
                    children[parent].push(number);
                }
                None => roots.push(number),
            }
        }
        let (mut totals, mut open) = (HashMap::new(), HashMap::<usize, u32>::new());
        // Each stack is visited twice; true is for the second visit, when it is left.
        let mut path: Vec<(usize, bool)> = roots.into_iter().map(|root| (root, false)).collect();
        while let Some((number, is_left)) = path.pop() {
            let function = number_of(self.list[number].callee);
            let times = open.entry(function).or_default();
            if is_left {
                *times -= 1;
                continue;
            }
            if *times == 0 {
                *totals.entry(function).or_insert(0) += sums[number];
            }
            *times += 1;
            path.push((number, true));
            path.extend(children[number].iter().map(|child| (*child, false)));
        }
        totals
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Callee = Callee::Function(Addr(1));
    const B: Callee = Callee::Function(Addr(2));

    fn number_of(callee: Callee) -> usize {
        match callee {
            Callee::Function(addr) | Callee::Page(addr) => usize::try_from(addr.0).unwrap(),
            Callee::More => 0,
        }
    }

    #[test]
    fn a_function_counts_once_on_each_stack() {
        let mut stacks = Stacks::default();
        let a = stacks.enter(None, A);
        let b = stacks.enter(Some(a), B);
        let again = stacks.enter(Some(b), A);
        for (stack, own) in [(a, 1), (b, 10), (again, 100)] {
            stacks.count(stack, own);
        }
        let both = {
            let mut both = Stacks::default();
            both.add(&stacks);
            both.add(&stacks);
            both
        };
        assert_eq!(both.totals(number_of), HashMap::from([(1, 222), (2, 220)]));
        let chains: Vec<_> = both.chains().collect();
        assert_eq!(chains, [(vec![A], 2), (vec![A, B], 20), (vec![A, B, A], 200)]);
    }

    #[test]
    fn a_deep_recursion_is_bounded() {
        let mut stacks = Stacks::default();
        let mut current = None;
        for _ in 0..1_000_000 {
            let stack = stacks.enter(current, A);
            stacks.count(stack, 1);
            current = Some(stack);
        }
        assert_eq!(stacks.list.len(), MAX_DEPTH + 1);
        assert_eq!(stacks.totals(number_of)[&1], 1_000_000);
        let (chain, own) = stacks.chains().last().unwrap();
        assert_eq!((chain.len(), *chain.last().unwrap()), (MAX_DEPTH + 1, Callee::More));
        assert_eq!(own, 1_000_000 - MAX_DEPTH as u64);
    }
}
