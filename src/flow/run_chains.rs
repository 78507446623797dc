//! The hot loop of decoding: executes chain after chain ([`super::chain`]), as long as the
//! available TNT bits and TIPs suffice. `run_cached`, `run_block` and `bind` execute everything
//! else, with the same results.
//!
//! A processor may *defer* a TIP: the TNT bits of later branches then come before it. A chain's
//! `depth` is the maximum number of calls that it has open at one time; its `tail` says how its
//! last block is left: by a bit, by a TIP, or by a return that the decoder's stack determines.

use super::block::BlockId;
use super::chain::{CHAIN_BITS, Chain, ChainKey, Tail};
use super::chains::{ChainId, Chains};
use super::code::Code;
use super::cursor::Cursor;
use super::decoder::{Decoder, State};
use super::retstack::ReturnStack;
use super::tnt::TntBits;
use crate::common::Addr;
use crate::insn::ExecMode;
use crate::pt::LastIp;

/// A receiver of the executed chains, in execution order.
pub(super) trait ChainSink {
    /// Handles the execution of the chain `at`, from `ip` on. The chain uses the first of `bits`.
    /// Returns true to go on with the next chain; on false, this chain is executed nevertheless.
    fn executed(&mut self, ip: Addr, at: ChainId, bits: TntBits, code: &mut Code<'_>) -> bool;
}

/// The part of the decoder's state that changes with every chain, kept in registers.
struct HotState<'t> {
    cursor: Cursor<'t>,
    tnt: TntBits,
    last_ip: LastIp,
    ip: Addr,
}

impl Decoder<'_> {
    /// Returns true if tracing is on and no item is queued, so that the decoder may execute code
    /// without handling a packet or item first. Callers of [`Self::run_chains`] check it.
    #[inline]
    pub(super) fn is_about_to_execute(&self) -> bool {
        self.state == State::On && self.queue.is_empty()
    }

    /// Executes chains from the current IP on, and passes each to `sink`. Stops if `sink` returns
    /// false, or where only the slower paths can go on; this may be at once. Takes the TNT bits and
    /// TIPs that the chains use.
    pub(super) fn run_chains(&mut self, code: &mut Code<'_>, sink: &mut impl ChainSink) {
        // A clock must see the packets, and a TIP may have more effects than to set the IP.
        let may_take_packets = self.waiting.is_empty()
            && self.next_mode.is_none()
            && self.clock.is_none()
            && self.cursor.is_outside_bbp_block();
        if may_take_packets {
            self.run_chain_loop::<true>(code, sink);
        } else {
            if self.clock.is_some() && self.waiting.is_empty() {
                self.read_ahead();
            }
            self.run_chain_loop::<false>(code, sink);
        }
    }

    /// Executes chains as [`Self::run_chains`] does. Takes TNT and TIP packets if `TAKES_PACKETS`;
    /// otherwise uses only the TNT bits that were taken before.
    fn run_chain_loop<const TAKES_PACKETS: bool>(
        &mut self,
        code: &mut Code<'_>,
        sink: &mut impl ChainSink,
    ) {
        let (cursor, tnt, last_ip, ip) = (self.cursor, self.tnt, self.last_ip, self.ip);
        let mut hot = HotState { cursor, tnt, last_ip, ip };
        let mode = self.mode;
        let mut has_run = false;
        loop {
            let has_tip = TAKES_PACKETS && hot.tnt.len() < CHAIN_BITS && hot.read_ahead();
            if hot.tnt.is_empty() && !has_tip {
                break;
            }
            let key = ChainKey::new(hot.tnt, has_tip, mode);
            let found = match code.cache.chains.find(hot.ip, key) {
                Some(at) => Some(at),
                None => code.add_chain(hot.ip, key, hot.tnt, mode),
            };
            let Some(mut at) = found else { break };
            let Some(mut chain) = code.cache.chains.get(at) else { break };
            // The first branch takes a deferred TIP, which comes after the bits: looks up the chain
            // that has it in its key.
            if chain.tail == Tail::NeedsTip {
                if !TAKES_PACKETS || has_tip || !hot.cursor.is_at_tip() {
                    break;
                }
                let Some(with_tip) = code.chain_with_tip(hot.ip, hot.tnt, mode) else { break };
                let Some(chain_with_tip) = code.cache.chains.get(with_tip) else { break };
                (at, chain) = (with_tip, chain_with_tip);
            }
            let (tail, bits) = (chain.tail, chain.bits());
            let mut next = chain.next;
            // Most chains have no calls and end with a conditional branch: their `next` is known.
            if chain.depth() > 0 || tail != Tail::Jcc {
                if tail.takes_tip() {
                    let Some(ip) = hot.take_tip() else { break };
                    next = ip;
                } else if tail == Tail::OuterReturn {
                    let Some((ip, _)) = self.stack.peek() else { break };
                    next = ip;
                }
                // Only now, since a chain whose TIP or return address is missing is not executed.
                if chain.depth() > 0 {
                    apply_calls(&mut self.stack, &code.cache.chains, chain);
                }
                if tail == Tail::OuterReturn {
                    self.stack.drop_one();
                }
            }
            let goes_on = sink.executed(hot.ip, at, hot.tnt, code);
            hot.tnt.skip(bits);
            hot.ip = next;
            has_run = true;
            if !goes_on {
                break;
            }
        }
        if has_run {
            self.direct_branches = 0;
            (self.ip, self.hint) = (hot.ip, BlockId::NONE);
        }
        (self.cursor, self.tnt, self.last_ip) = (hot.cursor, hot.tnt, hot.last_ip);
    }
}

impl Code<'_> {
    /// Returns the chain from an address whose first branch takes a deferred TIP, although there
    /// are `bits`, which are for later branches. Builds it if necessary. `None` if there is none.
    #[cold]
    #[inline(never)]
    fn chain_with_tip(&mut self, from: Addr, bits: TntBits, mode: ExecMode) -> Option<ChainId> {
        let key = ChainKey::new(bits, true, mode);
        let found = self.cache.chains.find(from, key);
        let at = found.or_else(|| self.add_chain(from, key, bits, mode))?;
        self.cache.chains.get(at).filter(|chain| chain.tail != Tail::NeedsTip)?;
        Some(at)
    }
}

/// Applies a chain's calls and returns to the return stack, except for a return from a call before
/// the chain. The calls that return in the chain are pushed and popped, as many as are open at one
/// time: a full stack loses its oldest entries to them.
#[inline]
fn apply_calls(stack: &mut ReturnStack, chains: &Chains, chain: &Chain) {
    stack.push_and_pop(chain.depth());
    for call in chains.open_calls(chain) {
        stack.push(call.return_address, call.block);
    }
}

impl HotState<'_> {
    /// Takes TNT packets until there are as many bits as chains use. Returns true if there are
    /// fewer bits and a TIP comes next, which is not taken.
    #[expect(clippy::inline_always, reason = "what changes with every chain stays in registers")]
    #[inline(always)]
    fn read_ahead(&mut self) -> bool {
        if !self.cursor.take_short_tnts(&mut self.tnt, CHAIN_BITS) {
            (self.cursor, self.tnt) = self.cursor.take_tnts_cold(self.tnt);
        }
        self.tnt.len() < CHAIN_BITS && self.cursor.is_at_tip()
    }

    /// Takes the next TIP and returns its address. Returns `None`, and takes nothing, if the next
    /// packet is not a TIP with an address.
    #[expect(clippy::inline_always, reason = "what changes with every chain stays in registers")]
    #[inline(always)]
    fn take_tip(&mut self) -> Option<Addr> {
        let mut last_ip = self.last_ip;
        let (ip, end) = self.cursor.peek_tip(&mut last_ip)?;
        self.last_ip = last_ip;
        self.cursor.pass_tip(end);
        Some(ip)
    }
}
