//! Executes one block from cached data only: the block and its successor are cached and linked, and
//! the TNT bit or TIP of its branch comes next. `run_block` and `bind` execute all other blocks,
//! with the same results.

use super::block::{Block, BlockExit, BlockId, End};
use super::code::Code;
use super::decoder::Decoder;
use super::item::{Exit, Span};
use crate::common::Addr;

/// The number of direct jumps and calls in a row after which `run_block` checks whether they ever
/// end.
pub(super) const ENDLESS_CHECK_BLOCKS: u32 = 64;

impl Decoder<'_> {
    /// Executes the block at the current IP and returns its span. Returns `None`, and does nothing,
    /// if the block, its successor, or the TNT bit or TIP of its branch is not at hand, or if the
    /// block does not end in a near branch.
    #[expect(clippy::inline_always, reason = "a span returned through memory takes as long as it")]
    #[inline(always)]
    pub(super) fn run_cached_block(&mut self, code: &Code<'_>) -> Option<Span> {
        let block = code.block(self.hint).filter(|block| block.is_at(self.ip, self.mode))?;
        match block.end {
            End::Jcc => self.run_cached_jcc(block, code),
            End::Ret if !self.tnt.is_empty() => self.run_cached_return(block, code),
            End::Ret | End::JmpIndirect | End::CallIndirect => {
                self.run_cached_tip_branch(block, code)
            }
            End::Jmp | End::Call => self.run_cached_direct_branch(block, code),
            _ => None,
        }
    }

    /// Executes a conditional branch with the next TNT bit. `None`, and does nothing, if there is
    /// no bit, or the block there is not linked.
    #[inline]
    fn run_cached_jcc(&mut self, block: &Block, code: &Code<'_>) -> Option<Span> {
        let taken = self.tnt.peek()?;
        let next = block.link(BlockExit::of(taken));
        let ip = code.block(next)?.ip;
        self.tnt.skip_one();
        self.direct_branches = 0;
        let exit = if taken { Exit::Taken } else { Exit::NotTaken };
        Some(self.leave_for((next, ip), block, exit))
    }

    /// Executes a direct jump or call. Returns `None` if it may not have been executed yet.
    ///
    /// With unused TNT bits, the branch that the next bit belongs to is still ahead, so this one
    /// was executed. After too many in a row, `run_block` checks whether they ever end. Without TNT
    /// bits, the next packet may bind before the jump, unless it is the TIP of a branch that the
    /// jump leads to.
    #[inline]
    fn run_cached_direct_branch(&mut self, block: &Block, code: &Code<'_>) -> Option<Span> {
        let next = block.link(BlockExit::Branch);
        let target = code.block(next)?;
        let may_execute = if self.tnt.is_empty() {
            self.cursor.is_at_tip() && leads_to_tip(target, code)
        } else {
            self.direct_branches + 1 < ENDLESS_CHECK_BLOCKS
        };
        if !may_execute {
            return None;
        }
        self.direct_branches += 1;
        if block.end == End::Jmp {
            return Some(self.leave_for((next, target.ip), block, Exit::Jmp));
        }
        self.stack.push(block.following(), self.hint);
        Some(self.leave_for((next, target.ip), block, Exit::Call))
    }

    /// Executes a compressed return. `None`, and does nothing, unless the next TNT bit is 1 and the
    /// block after its call is cached and linked to that.
    #[inline]
    fn run_cached_return(&mut self, block: &Block, code: &Code<'_>) -> Option<Span> {
        let next = self.return_target(code).filter(|_| self.tnt.peek() == Some(true))?;
        self.tnt.skip_one();
        self.direct_branches = 0;
        self.stack.drop_one();
        Some(self.leave_for(next, block, Exit::Ret))
    }

    /// Returns the block to which a compressed return goes, the one after its call, and its
    /// address; `None` if it is not cached and linked. Pops nothing.
    #[inline]
    fn return_target(&self, code: &Code<'_>) -> Option<(BlockId, Addr)> {
        let (to, call) = self.stack.peek()?;
        let next = code.block(call)?.link(BlockExit::Fall);
        code.block(next).filter(|next| next.is_at(to, self.mode))?;
        Some((next, to))
    }

    /// Executes an indirect branch or return. `None`, and does nothing, unless its TIP comes next
    /// and leads to a cached block.
    #[inline]
    fn run_cached_tip_branch(&mut self, block: &Block, code: &Code<'_>) -> Option<Span> {
        let next = self.take_tip_to_cached_block(code)?;
        let exit = match block.end {
            End::Ret => Exit::Ret,
            End::JmpIndirect => Exit::JmpIndirect,
            _ => {
                self.push_call_of(block);
                Exit::Call
            }
        };
        Some(self.leave_for(next, block, exit))
    }

    /// Takes the next TIP if it leads to a cached block and has no effects but to set the IP.
    /// Returns that block, and its address; else `None`, and takes nothing.
    #[inline]
    fn take_tip_to_cached_block(&mut self, code: &Code<'_>) -> Option<(BlockId, Addr)> {
        // A TIP gives waiting packets their IP and applies the next mode, and a clock must see it.
        if !self.waiting.is_empty() || self.next_mode.is_some() || self.clock.is_some() {
            return None;
        }
        let mut last_ip = self.last_ip;
        let (ip, end) = self.cursor.peek_tip(&mut last_ip)?;
        let next = code.cache.find(ip, self.mode)?;
        self.last_ip = last_ip;
        self.cursor.pass_tip(end);
        self.direct_branches = 0;
        Some((next, ip))
    }

    /// Pushes the return address of the call at the end of the current block.
    #[inline]
    const fn push_call_of(&mut self, block: &Block) {
        self.stack.push(block.following(), self.hint);
    }

    /// Moves from the end of `block` to the block `next`, and returns the span of `block`.
    #[inline]
    const fn leave_for(&mut self, next: (BlockId, Addr), block: &Block, exit: Exit) -> Span {
        (self.hint, self.ip) = next;
        self.last = block.last();
        block.span(exit)
    }
}

/// Returns true if at most three direct jumps or calls lead from `block` to a branch that takes a
/// TIP, and all blocks on the way are cached.
fn leads_to_tip<'c>(mut block: &'c Block, code: &'c Code<'_>) -> bool {
    for _ in 0..4 {
        match block.end {
            End::Jmp | End::Call => match code.block(block.link(BlockExit::Branch)) {
                Some(next) => block = next,
                None => return false,
            },
            end => return end.takes_tip(),
        }
    }
    false
}
