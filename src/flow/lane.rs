//! The hot loop of decoding: executes chain after chain ([`super::chain`]), as long as the
//! available TNT bits and TIPs suffice. `fast`, `follow` and `bind` execute everything else, with
//! the same results.

use super::block::BlockId;
use super::chain::{CHAIN_BITS, Chain, Key, Tail};
use super::chains::{ChainId, Chains};
use super::code::Code;
use super::cursor::Cursor;
use super::decoder::{Decoder, State};
use super::retstack::ReturnStack;
use super::tnt::TntBits;
use crate::common::Addr;
use crate::insn::ExecMode;
use crate::pt::LastIp;

/// A receiver of the executed chains.
pub(super) trait Sink {
    /// Handles the execution of the chain `at` from `ip` on. The chain uses the first of `bits`.
    /// Returns true to go on with the next chain.
    fn chain(&mut self, ip: Addr, at: ChainId, bits: TntBits, code: &mut Code<'_>) -> bool;
}

/// The part of the decoder's state that changes with every chain, kept in registers.
struct Lane<'t> {
    cursor: Cursor<'t>,
    tnt: TntBits,
    last_ip: LastIp,
    ip: Addr,
}

impl Decoder<'_> {
    /// Returns true if tracing is on and no item is queued, so that the next step executes code.
    #[inline]
    pub(super) fn is_on(&self) -> bool {
        self.state == State::On && self.queue.is_empty()
    }

    /// Executes chains while tracing is on, and passes them to `sink`, until it ends this.
    pub(super) fn run_chains(&mut self, code: &mut Code<'_>, sink: &mut impl Sink) {
        // A clock must see the packets, and a TIP may have more effects than to set the IP.
        let is_free = self.waiting.is_empty()
            && self.next_mode.is_none()
            && self.clock.is_none()
            && self.cursor.is_outside_blocks();
        if is_free {
            self.run_lane::<true>(code, sink);
        } else {
            if self.clock.is_some() && self.waiting.is_empty() {
                self.read_ahead();
            }
            self.run_lane::<false>(code, sink);
        }
    }

    /// Executes chains. If `FREE`, takes TNT and TIP packets; otherwise uses only the TNT bits that
    /// were taken before.
    fn run_lane<const FREE: bool>(&mut self, code: &mut Code<'_>, sink: &mut impl Sink) {
        let (cursor, tnt, last_ip, ip) = (self.cursor, self.tnt, self.last_ip, self.ip);
        let mut lane = Lane { cursor, tnt, last_ip, ip };
        let mode = self.mode;
        let mut has_run = false;
        loop {
            let has_tip = FREE && lane.tnt.len() < CHAIN_BITS && lane.read_ahead();
            if lane.tnt.is_empty() && !has_tip {
                break;
            }
            let key = Key::new(lane.tnt, has_tip, mode);
            let found = match code.cache.chains.find(lane.ip, key) {
                Some(at) => Some(at),
                None => code.add_chain(lane.ip, key, lane.tnt, mode),
            };
            let Some(mut at) = found else { break };
            let Some(mut chain) = code.cache.chains.get(at) else { break };
            if chain.tail == Tail::Ask {
                if !FREE || has_tip || !lane.cursor.is_at_tip() {
                    break;
                }
                let Some(asked) = code.chain_with_tip(lane.ip, lane.tnt, mode) else { break };
                let Some(with_tip) = code.cache.chains.get(asked) else { break };
                (at, chain) = (asked, with_tip);
            }
            let (tail, bits) = (chain.tail, chain.bits());
            let mut next = chain.next;
            if chain.depth() > 0 || tail != Tail::Plain {
                if tail.takes_tip() {
                    let Some(ip) = lane.take_tip() else { break };
                    next = ip;
                } else if tail == Tail::Out {
                    let Some((ip, _)) = self.stack.peek() else { break };
                    next = ip;
                }
                if chain.depth() > 0 {
                    take_calls(&mut self.stack, &code.cache.chains, chain);
                }
                if tail == Tail::Out {
                    self.stack.drop_one();
                }
            }
            let goes_on = sink.chain(lane.ip, at, lane.tnt, code);
            lane.tnt.skip(bits);
            lane.ip = next;
            has_run = true;
            if !goes_on {
                break;
            }
        }
        if has_run {
            self.without_bit = 0;
            (self.ip, self.hint) = (lane.ip, BlockId::NONE);
        }
        (self.cursor, self.tnt, self.last_ip) = (lane.cursor, lane.tnt, lane.last_ip);
    }
}

impl Code<'_> {
    /// Returns the chain from an address whose first branch takes a deferred TIP: there are bits
    /// for later branches. `None` if there is none.
    #[cold]
    #[inline(never)]
    fn chain_with_tip(&mut self, from: Addr, bits: TntBits, mode: ExecMode) -> Option<ChainId> {
        let key = Key::new(bits, true, mode);
        let found = self.cache.chains.find(from, key);
        let at = found.or_else(|| self.add_chain(from, key, bits, mode))?;
        self.cache.chains.get(at).filter(|chain| chain.tail != Tail::Ask)?;
        Some(at)
    }
}

/// Applies a chain's calls and returns to the stack.
#[inline]
fn take_calls(stack: &mut ReturnStack, chains: &Chains, chain: &Chain) {
    stack.touch(chain.depth());
    for call in chains.open_calls(chain) {
        stack.push(call.return_address, call.block);
    }
}

impl Lane<'_> {
    /// Reads as many TNT bits as chains need. Returns true if there are fewer and a TIP comes next.
    #[expect(clippy::inline_always, reason = "what changes with every chain stays in registers")]
    #[inline(always)]
    fn read_ahead(&mut self) -> bool {
        if !self.cursor.take_short_tnts(&mut self.tnt, CHAIN_BITS) {
            (self.cursor, self.tnt) = self.cursor.take_tnts_cold(self.tnt);
        }
        self.tnt.len() < CHAIN_BITS && self.cursor.is_at_tip()
    }

    /// Takes the next TIP and returns its address. Returns `None`, and takes nothing, if no TIP
    /// with an address comes next.
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
