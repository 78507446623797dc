//! The stack of return addresses for RET compression (SDM section "Indirect Transfer Compression
//! for Returns (RET)"). Contains the addresses of executed calls, not those in memory.

use super::block::BlockId;
use crate::common::Addr;

const DEPTH: usize = 64;

/// The last 64 return addresses, each with the block whose call pushed it.
#[derive(Clone, Debug)]
pub(super) struct ReturnStack {
    entries: [(Addr, BlockId); DEPTH],
    /// The index at which the next entry is pushed.
    top: usize,
    /// The number of entries.
    len: usize,
}

impl ReturnStack {
    /// Creates an empty stack.
    pub(super) const fn new() -> Self {
        Self { entries: [(Addr(0), BlockId::NONE); DEPTH], top: 0, len: 0 }
    }

    /// Removes all entries, as at a PSB.
    pub(super) const fn clear(&mut self) {
        self.len = 0;
    }

    /// Pushes a return address, and the block that ends in its call. A full stack drops its oldest
    /// entry.
    pub(super) const fn push(&mut self, addr: Addr, call: BlockId) {
        self.entries[self.top % DEPTH] = (addr, call);
        self.top = (self.top + 1) % DEPTH;
        if self.len < DEPTH {
            self.len += 1;
        }
    }

    /// Does what `count` pushes and then as many pops do: drops the oldest entries if the pushes
    /// would exceed the stack. So chains apply the calls from which they return.
    #[inline]
    pub(super) const fn push_and_pop(&mut self, count: u8) {
        let kept = DEPTH.saturating_sub(count as usize);
        if self.len > kept {
            self.len = kept;
        }
    }

    /// Returns the entry that [`Self::pop`] would return; `None` if the stack is empty.
    #[inline]
    pub(super) const fn peek(&self) -> Option<(Addr, BlockId)> {
        if self.len == 0 {
            return None;
        }
        Some(self.entries[(self.top + DEPTH - 1) % DEPTH])
    }

    /// Removes the top entry, if there is one.
    #[inline]
    pub(super) const fn drop_one(&mut self) {
        if self.len > 0 {
            self.len -= 1;
            self.top = (self.top + DEPTH - 1) % DEPTH;
        }
    }

    /// Removes and returns the top entry: a return address, and the block that ends in its
    /// call. `None` if the stack is empty.
    pub(super) const fn pop(&mut self) -> Option<(Addr, BlockId)> {
        if self.len == 0 {
            return None;
        }
        self.len -= 1;
        self.top = (self.top + DEPTH - 1) % DEPTH;
        Some(self.entries[self.top])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pops_in_reverse_and_keeps_the_newest_64() {
        let mut stack = ReturnStack::new();
        for addr in 0..100 {
            stack.push(Addr(addr), BlockId::NONE);
        }
        for addr in (36..100).rev() {
            assert_eq!(stack.pop(), Some((Addr(addr), BlockId::NONE)));
        }
        assert_eq!(stack.pop(), None);
        stack.push(Addr(1), BlockId::NONE);
        stack.clear();
        assert_eq!(stack.pop(), None);
    }
}
