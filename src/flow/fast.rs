//! Executes one block from cached data only: the block and its successor are cached and linked, and
//! the TNT bit or TIP of its branch comes next. `follow` and `bind` execute all other blocks, with
//! the same results.

use super::block::{Block, BlockExit, BlockId, End};
use super::code::Code;
use super::decoder::Decoder;
use super::item::{Exit, Span};
use crate::common::Addr;

/// The number of direct jumps in a row after which to check whether they ever end.
pub(super) const CIRCLE_BLOCKS: u32 = 64;

impl Decoder<'_> {
    /// Executes the block at the current IP. Returns `None`, and does nothing, if some data are
    /// missing.
    #[expect(clippy::inline_always, reason = "a span returned through memory takes as long as it")]
    #[inline(always)]
    pub(super) fn run_known(&mut self, code: &Code<'_>) -> Option<Span> {
        let block = code.block(self.hint).filter(|block| block.is_at(self.ip, self.mode))?;
        match block.end {
            End::Jcc => self.jcc_known(block, code),
            End::Ret if !self.tnt.is_empty() => self.return_known(block, code),
            End::Ret | End::JmpIndirect | End::CallIndirect => self.tip_known(block, code),
            End::Jmp | End::Call => self.direct_known(block, code),
            _ => None,
        }
    }

    #[inline]
    fn jcc_known(&mut self, block: &Block, code: &Code<'_>) -> Option<Span> {
        let taken = self.tnt.peek()?;
        let next = block.link(BlockExit::of(taken));
        let ip = code.block(next)?.ip;
        self.tnt.skip_one();
        self.without_bit = 0;
        let exit = if taken { Exit::Taken } else { Exit::NotTaken };
        Some(self.step_to((next, ip), block, exit))
    }

    /// Executes a direct jump or call.
    ///
    /// With unused TNT bits, the branch of the next bit is still ahead, so this one was executed.
    /// After too many in a row, `follow` checks whether they ever end. Without TNT bits, the next
    /// packet may bind before the jump, unless it is the TIP of a branch that the jump leads to.
    #[inline]
    fn direct_known(&mut self, block: &Block, code: &Code<'_>) -> Option<Span> {
        let next = block.link(BlockExit::Branch);
        let target = code.block(next)?;
        let may_go = if self.tnt.is_empty() {
            self.cursor.is_at_tip() && leads_to_tip(target, code)
        } else {
            self.without_bit + 1 < CIRCLE_BLOCKS
        };
        if !may_go {
            return None;
        }
        self.without_bit += 1;
        if block.end == End::Jmp {
            return Some(self.step_to((next, target.ip), block, Exit::Jmp));
        }
        self.stack.push(block.fall(), self.hint);
        Some(self.step_to((next, target.ip), block, Exit::Call))
    }

    /// Executes a return with a TNT bit of 1, if the block after its call is known.
    #[inline]
    fn return_known(&mut self, block: &Block, code: &Code<'_>) -> Option<Span> {
        let next = self.caller(code).filter(|_| self.tnt.peek() == Some(true))?;
        self.tnt.skip_one();
        self.without_bit = 0;
        self.stack.drop_one();
        Some(self.step_to(next, block, Exit::Ret))
    }

    /// Returns the block to which a compressed return goes, the one after its call, and its
    /// address; `None` if it is not cached and linked.
    #[inline]
    fn caller(&self, code: &Code<'_>) -> Option<(BlockId, Addr)> {
        let (to, call) = self.stack.peek()?;
        let next = code.block(call)?.link(BlockExit::Fall);
        code.block(next).filter(|next| next.is_at(to, self.mode))?;
        Some((next, to))
    }

    /// Executes a branch whose TIP comes next and leads to a known block.
    #[inline]
    fn tip_known(&mut self, block: &Block, code: &Code<'_>) -> Option<Span> {
        let next = self.take_tip_known(code)?;
        let exit = match block.end {
            End::Ret => Exit::Ret,
            End::JmpIndirect => Exit::JmpIndirect,
            _ => {
                self.push_call_of(block);
                Exit::Call
            }
        };
        Some(self.step_to(next, block, exit))
    }

    /// Takes the next TIP if it leads to a known block. Returns that block, and its address.
    #[inline]
    fn take_tip_known(&mut self, code: &Code<'_>) -> Option<(BlockId, Addr)> {
        // A TIP gives waiting packets their IP and applies the next mode, and a clock must see it.
        if !self.waiting.is_empty() || self.next_mode.is_some() || self.clock.is_some() {
            return None;
        }
        let mut last_ip = self.last_ip;
        let (ip, end) = self.cursor.peek_tip(&mut last_ip)?;
        let next = code.cache.find(ip, self.mode)?;
        self.last_ip = last_ip;
        self.cursor.pass_tip(end);
        self.without_bit = 0;
        Some((next, ip))
    }

    #[inline]
    const fn push_call_of(&mut self, block: &Block) {
        self.stack.push(block.fall(), self.hint);
    }

    /// Leaves `block` by `exit` for the block `next`.
    #[inline]
    const fn step_to(&mut self, next: (BlockId, Addr), block: &Block, exit: Exit) -> Span {
        (self.hint, self.ip) = next;
        self.last = block.last();
        block.span(exit)
    }
}

/// Returns true if a few direct jumps or calls lead from `block` to a branch that takes a TIP.
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
