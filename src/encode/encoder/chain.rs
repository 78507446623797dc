//! Consecutive records as one: what they give together, and how that is found out.

#![expect(clippy::inline_always, reason = "a call takes as long as what is called")]

use super::batch::{Batch, Bytes};
use super::{Encoder, STACK_DEPTH, TNT_BITS};
use crate::encode::dictionary::{Dictionary, Plain, Treatment};
use crate::translate::Edge;

/// Records that are looked up together.
pub(super) const RECORDS: usize = 8;
/// Their bytes.
pub(super) const KEY_BYTES: usize = RECORDS * 4;
/// Returns of a chain to calls before it.
const POPS: usize = 7;
/// Return addresses that a chain leaves.
const PUSHES: usize = 16;
/// Not canonical: no path starts there, and no encoder is there.
const NOWHERE: u64 = 1 << 62;

/// The bytes of the records that are looked up together.
pub(super) type Key = [u8; KEY_BYTES];

/// Records in a row, of which all but the last lead to the next. The first leaves something in the
/// trace. It fills two cache lines.
#[derive(Clone, Copy, Debug)]
#[repr(align(128))]
pub(super) struct Chain {
    key: Key,
    /// Where the path of the first starts.
    pub(super) start: u64,
    /// Where the last leads, if it is direct.
    pub(super) target: u64,
    /// TNT bits up to the first TIP, the oldest highest.
    bits: u64,
    /// The target of that TIP; [`NOWHERE`]: there is none.
    tip: u64,
    /// The packets behind it, up to the last TIP.
    packets: Bytes,
    /// The target of that one.
    last_tip: u64,
    /// TNT bits behind it.
    late_bits: u64,
    /// Where the addresses are: of returns to calls before the chain, then of calls that are not
    /// returned from.
    first_address: u32,
    pub(super) instructions: u16,
    bit_count: u8,
    late_bit_count: u8,
    packet_bytes: u8,
    pops: u8,
    pushes: u8,
    /// How deep the stack of return addresses is behind it at most.
    depth_limit: u8,
    /// How many records it takes. 0: there is no chain here.
    pub(super) records: u8,
    /// How many it takes up to its last bit, if that is of a direct one; else 0.
    loud: u8,
    /// How many of the last records leave nothing in the trace.
    pub(super) quiet: u8,
    /// How the last goes on.
    pub(super) treatment: Treatment,
}

impl Chain {
    pub(super) const NONE: Self = Self {
        key: [0; KEY_BYTES],
        start: NOWHERE,
        target: 0,
        bits: 0,
        tip: NOWHERE,
        packets: [0; 32],
        last_tip: 0,
        late_bits: 0,
        first_address: 0,
        instructions: 0,
        bit_count: 0,
        late_bit_count: 0,
        packet_bytes: 0,
        pops: 0,
        pushes: 0,
        depth_limit: 0,
        records: 0,
        loud: 0,
        quiet: 0,
        treatment: Treatment::Slow,
    };

    /// Of as many of these records as can be, if they are more than one.
    pub(super) fn of(
        key: &Key,
        dictionary: &Dictionary,
        encoder: &Encoder,
        addresses: &mut Vec<u64>,
    ) -> Self {
        let maker = Maker::make(key, dictionary, encoder);
        let chain = maker.map_or(Self::NONE, |maker| maker.chain(addresses));
        Self { key: *key, ..chain }
    }

    #[inline(always)]
    pub(super) fn is_of(&self, key: &Key) -> bool {
        self.key == *key
    }

    /// The record of the last bit, if that is of a direct one; else 0.
    #[inline(always)]
    pub(super) fn loud(&self) -> u32 {
        if self.loud == 0 { 0 } else { number(&self.key, usize::from(self.loud) - 1) }
    }

    /// The last records, which leave nothing in the trace.
    pub(super) fn quiet_records(&self) -> impl Iterator<Item = u32> + '_ {
        (self.records.saturating_sub(self.quiet)..self.records)
            .map(|at| number(&self.key, usize::from(at)))
    }

    /// What its calls and returns do to the stack of return addresses. Gives whether the returns
    /// lead where that stack says; else nothing is done.
    #[inline(always)]
    pub(super) fn apply(&self, addresses: &[u64], encoder: &mut Encoder) -> bool {
        let (pops, pushes) = (usize::from(self.pops), usize::from(self.pushes));
        if pops + pushes == 0 {
            encoder.depth = encoder.depth.min(self.depth_limit.into());
            return true;
        }
        let first = self.first_address as usize;
        let Some(addresses) = addresses.get(first..first + pops + pushes) else {
            return false;
        };
        let mut top = encoder.top;
        for address in &addresses[..pops] {
            if encoder.stack[top % STACK_DEPTH] != *address {
                return false;
            }
            top = top.wrapping_sub(1);
        }
        if encoder.depth < pops {
            return false;
        }
        for address in &addresses[pops..] {
            top = top.wrapping_add(1);
            encoder.stack[top % STACK_DEPTH] = *address;
        }
        encoder.top = top;
        encoder.depth = (encoder.depth + pushes - pops).min(self.depth_limit.into());
        true
    }

    /// Adds its packets, but what the last record leads to.
    #[inline(always)]
    pub(super) fn write(&self, batch: &mut Batch) {
        batch.bits(self.bits, self.bit_count.into());
        if self.tip != NOWHERE {
            batch.tip(self.tip);
            batch.packets(&self.packets, self.packet_bytes.into(), self.last_tip);
            batch.bits(self.late_bits, self.late_bit_count.into());
        }
    }

    fn add_bits(&mut self, bits: u64, count: u8) {
        let (all, all_count) = if self.tip == NOWHERE {
            (&mut self.bits, &mut self.bit_count)
        } else {
            (&mut self.late_bits, &mut self.late_bit_count)
        };
        *all = *all << count | bits;
        *all_count += count;
    }

    /// Adds a TIP. None if there is no room.
    fn add_tip(&mut self, target: u64) -> Option<()> {
        if self.tip == NOWHERE {
            self.tip = target;
        } else {
            // What comes behind a TIP is always the same.
            let mut batch = Batch::default();
            batch.begin(0, 0, self.last_tip);
            batch.bits(self.late_bits, self.late_bit_count.into());
            batch.tip(target);
            let from = usize::from(self.packet_bytes);
            let to = from + batch.len();
            self.packets.get_mut(from..to)?.copy_from_slice(batch.bytes());
            self.packet_bytes = u8::try_from(to).ok()?;
            (self.late_bits, self.late_bit_count) = (0, 0);
        }
        self.last_tip = target;
        Some(())
    }
}

#[inline(always)]
fn number(key: &Key, index: usize) -> u32 {
    let at = index % RECORDS * 4;
    u32::from_le_bytes([key[at], key[at + 1], key[at + 2], key[at + 3]])
}

/// A chain as it is made.
struct Maker<'a> {
    encoder: &'a Encoder,
    chain: Chain,
    /// Calls of the chain that are not returned from yet.
    pushes: Vec<u64>,
    /// Where returns to calls before it lead.
    pops: Vec<u64>,
    /// The stack of return addresses is this deep at most.
    limit: usize,
    /// The edge with the last bit and those behind it: all that nothing in the trace tells apart.
    passed: Vec<&'a Edge>,
}

impl<'a> Maker<'a> {
    /// A chain of as many of these records as can be, if they are more than one.
    fn make(key: &Key, dictionary: &'a Dictionary, encoder: &'a Encoder) -> Option<Self> {
        let record = |at: usize| {
            let number = (at < RECORDS).then(|| number(key, at))?;
            dictionary.plain.get(number as usize).zip(dictionary.edge(number))
        };
        let mut maker = Self {
            encoder,
            chain: Chain { start: record(0)?.0.start, ..Chain::NONE },
            pushes: Vec::new(),
            pops: Vec::new(),
            limit: STACK_DEPTH,
            passed: Vec::new(),
        };
        let mut here = maker.chain.start;
        for at in 0..RECORDS {
            let Some((plain, edge)) = record(at).filter(|(plain, _)| plain.start == here) else {
                break;
            };
            if maker.add(plain, edge, dictionary.pushes_of(edge)).is_none() {
                break;
            }
            let next = record(at + 1).map(|(next, _)| next.start);
            let Some(target) = maker.follow(plain, next) else { break };
            here = target;
            (maker.chain.treatment, maker.chain.target) = (Treatment::Direct, target);
        }
        (maker.chain.records > 1).then_some(maker)
    }

    /// Adds the path of an edge. None if it does not fit.
    fn add(&mut self, plain: &Plain, edge: &'a Edge, pushes: &[u64]) -> Option<()> {
        let chain = &mut self.chain;
        // A return has one more.
        let bits = chain.bit_count.max(chain.late_bit_count) + plain.bit_count + 1;
        let instructions = chain.instructions.checked_add(plain.instructions)?;
        let is_quiet = plain.treatment == Treatment::Quiet;
        if plain.treatment.is_slow() && !is_quiet
            || u32::from(bits) > TNT_BITS
            || self.pushes.len() + pushes.len() > PUSHES
        {
            return None;
        }
        if is_quiet {
            let is_passed =
                |edge: &&Edge| (edge.quiet_low..=edge.quiet_high).contains(&plain.target);
            let passes = edge.branch && self.passed.iter().chain([&edge]).any(is_passed);
            if chain.records == 0 || passes {
                return None;
            }
            chain.quiet += 1;
        } else {
            let is_direct = plain.treatment == Treatment::Direct;
            chain.loud = if is_direct { chain.records + 1 } else { 0 };
            chain.quiet = 0;
            self.passed.clear();
        }
        if is_quiet || plain.treatment == Treatment::Direct {
            self.passed.push(edge);
        }
        if plain.peak > 0 {
            let limit = STACK_DEPTH.saturating_sub(plain.peak.into());
            self.limit = self.limit.min(limit) + pushes.len();
        }
        self.pushes.extend(pushes);
        chain.add_bits(plain.bits.into(), plain.bit_count);
        chain.records += 1;
        chain.instructions = instructions;
        chain.treatment = plain.treatment;
        Some(())
    }

    /// Where the edge that was added leads, if it is followed by a record whose path starts at
    /// `next`. None if the chain ends here, and what comes then decides.
    fn follow(&mut self, plain: &Plain, next: Option<u64>) -> Option<u64> {
        match plain.treatment {
            Treatment::Return => {
                let next = next.filter(|next| self.limit > 0 && self.returns(*next))?;
                self.limit -= 1;
                self.chain.add_bits(1, 1);
                Some(next)
            }
            Treatment::Indirect => {
                let next = next?;
                self.chain.add_tip(next)?;
                Some(next)
            }
            _ => Some(plain.target),
        }
    }

    /// A return leads to `next`. Gives whether the stack of return addresses foresees that.
    fn returns(&mut self, next: u64) -> bool {
        if let Some(&last) = self.pushes.last() {
            if last == next {
                self.pushes.pop();
            }
            return last == next;
        }
        let pops = self.pops.len();
        let top = self.encoder.stack[self.encoder.top.wrapping_sub(pops) % STACK_DEPTH];
        let is_foreseen = pops < POPS && self.encoder.depth > pops && top == next;
        if is_foreseen {
            self.pops.push(next);
        }
        is_foreseen
    }

    /// Its addresses join those of all.
    fn chain(self, addresses: &mut Vec<u64>) -> Chain {
        let count = |addresses: &[u64]| u8::try_from(addresses.len()).unwrap_or(u8::MAX);
        let chain = Chain {
            first_address: u32::try_from(addresses.len()).unwrap_or(u32::MAX),
            pops: count(&self.pops),
            pushes: count(&self.pushes),
            depth_limit: u8::try_from(self.limit).unwrap_or(0),
            ..self.chain
        };
        addresses.extend(self.pops);
        addresses.extend(self.pushes);
        chain
    }
}
