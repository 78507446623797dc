//! The stack of return addresses that RET compression leans on (SDM section "Indirect Transfer
//! Compression for Returns (RET)"). Holds what calls said, not what memory holds.

use super::block::BlockId;
use crate::common::Addr;

const DEPTH: usize = 64;

/// The last 64 return addresses, each with the block whose call pushed it.
#[derive(Clone, Debug)]
pub(super) struct ReturnStack {
    entries: [(Addr, BlockId); DEPTH],
    /// Where the next entry goes.
    top: usize,
    len: usize,
}

impl ReturnStack {
    pub(super) const fn new() -> Self {
        Self { entries: [(Addr(0), BlockId::NONE); DEPTH], top: 0, len: 0 }
    }

    /// Forgets everything, as at a PSB.
    pub(super) const fn clear(&mut self) {
        self.len = 0;
    }

    /// Pushes a return address; the oldest falls off a full stack.
    pub(super) const fn push(&mut self, addr: Addr, call: BlockId) {
        self.entries[self.top % DEPTH] = (addr, call);
        self.top = (self.top + 1) % DEPTH;
        if self.len < DEPTH {
            self.len += 1;
        }
    }

    /// As if `count` addresses were pushed and popped again: the oldest may fall off.
    #[inline]
    pub(super) const fn touch(&mut self, count: u8) {
        let kept = DEPTH.saturating_sub(count as usize);
        if self.len > kept {
            self.len = kept;
        }
    }

    /// The entry that [`Self::pop`] would give.
    #[inline]
    pub(super) const fn peek(&self) -> Option<(Addr, BlockId)> {
        if self.len == 0 {
            return None;
        }
        Some(self.entries[(self.top + DEPTH - 1) % DEPTH])
    }

    /// Drops the entry that [`Self::peek`] gave.
    #[inline]
    pub(super) const fn drop_one(&mut self) {
        if self.len > 0 {
            self.len -= 1;
            self.top = (self.top + DEPTH - 1) % DEPTH;
        }
    }

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
