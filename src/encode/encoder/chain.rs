//! Chains: consecutive records that are encoded as one. A chain has the packets of its records, and
//! their effect on the return stack; `chains` holds the table of chains, and `hot` applies them.
//!
//! A chain is looked up by its *key*, the bytes of the next [`RECORDS`] records, and may use only
//! the first of them. [`Chain::build`] makes it of plain and quiet edges, up to the first record
//! that does not fit. Its calls may return within the chain, and its returns may lead to calls
//! before it (*pops*), which are those of the return stack at that time. [`Chain::apply_to_stack`]
//! and [`Chain::put_packets`] apply it, if it starts at the current address and its pops match.
//!
//! The return stack has [`STACK_DEPTH`] entries, and a call on a full stack overwrites the oldest
//! one. How many are left after a chain depends on how many there were before it, so a chain has
//! only their maximum (`depth_limit`), which it imposes on the depth that it finds.

#![expect(clippy::inline_always, reason = "a call takes as long as what is called")]

use super::batch::{Batch, Bytes};
use super::{Encoder, STACK_DEPTH, TNT_BITS};
use crate::encode::dictionary::{CompactEdge, Dictionary, Treatment};
use crate::translate::Edge;

/// The number of records that are looked up together.
pub(super) const RECORDS: usize = 8;
/// The size in bytes of the records that are looked up together.
pub(super) const KEY_BYTES: usize = RECORDS * 4;
/// The maximum number of a chain's returns to calls before it.
const POPS: usize = 7;
/// The maximum number of return addresses that a chain leaves on the stack.
const PUSHES: usize = 16;
/// A non-canonical address, where no path starts. Differs from the one in [`super::hot`], so that
/// an empty chain never applies.
const NOWHERE: u64 = 1 << 62;

/// The bytes of records that are looked up together.
pub(super) type ChainKey = [u8; KEY_BYTES];

/// Consecutive records, each of which leads to the next. The first adds to the trace. Fills two
/// cache lines.
#[derive(Clone, Copy, Debug)]
#[repr(align(128))]
pub(super) struct Chain {
    /// The records by which the chain is looked up; it may use only the first of them.
    key: ChainKey,
    /// The start of the first record's path.
    pub(super) start: u64,
    /// The address to which the chain leads, if `ending` is `Direct`.
    pub(super) target: u64,
    /// TNT bits before the first TIP, the oldest highest.
    bits: u64,
    /// The target of the first TIP; [`NOWHERE`] if there is none.
    tip: u64,
    /// The packets after the first TIP, up to the last one.
    packets: Bytes,
    /// The target of the last TIP.
    last_tip: u64,
    /// TNT bits after the last TIP, the oldest highest.
    late_bits: u64,
    /// The index in [`super::Chains::return_addresses`] of the chain's addresses: those that it
    /// pops, then those that it pushes.
    first_address: u32,
    /// The number of instructions of all records.
    pub(super) instructions: u16,
    bit_count: u8,
    late_bit_count: u8,
    /// The number of bytes of `packets` that count.
    packet_bytes: u8,
    /// The number of returns to calls before the chain.
    pops: u8,
    /// The number of calls without a return.
    pushes: u8,
    /// The maximum depth of the return stack after the chain: its calls may have overwritten the
    /// oldest entries.
    depth_limit: u8,
    /// The number of records; 0 if there is no chain here.
    pub(super) records: u8,
    /// The number of records up to the one that adds the last TNT bit or packet, if that is a
    /// direct edge; else 0.
    loud: u8,
    /// The number of records at the end that add nothing to the trace.
    pub(super) quiet: u8,
    /// The end of the chain: `Direct` if its target is known, whatever the last record is; else
    /// `Return` or `Indirect`, and the next record shows the target.
    pub(super) ending: Treatment,
}

impl Chain {
    /// The contents of a free slot.
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
        ending: Treatment::Slow,
    };

    /// Builds the longest chain of these records; an empty one if it would have fewer than two.
    /// Appends its addresses to `addresses`. Its returns to calls before it are those that match
    /// the return stack of `encoder` now; only with the same stack can the chain be applied later.
    pub(super) fn build(
        key: &ChainKey,
        dictionary: &Dictionary,
        encoder: &Encoder,
        addresses: &mut Vec<u64>,
    ) -> Self {
        let builder = ChainBuilder::build(key, dictionary, encoder);
        let chain = builder.map_or(Self::NONE, |builder| builder.finish(addresses));
        Self { key: *key, ..chain }
    }

    /// Returns true if this is the chain of these records.
    #[inline(always)]
    pub(super) fn is_for(&self, key: &ChainKey) -> bool {
        self.key == *key
    }

    /// Returns the encoder's `loud` after the chain: the number of the edge that adds the last TNT
    /// bit or packet, if it is direct; else 0.
    #[inline(always)]
    pub(super) fn loud(&self) -> u32 {
        if self.loud == 0 { 0 } else { edge_number(&self.key, usize::from(self.loud) - 1) }
    }

    /// Returns the numbers of the quiet edges at the chain's end, in order.
    pub(super) fn quiet_records(&self) -> impl Iterator<Item = u32> + '_ {
        (self.records.saturating_sub(self.quiet)..self.records)
            .map(|at| edge_number(&self.key, usize::from(at)))
    }

    /// Applies the calls and returns of the chain to the encoder's return stack, except for a
    /// return at its end. `addresses` are [`super::Chains::return_addresses`]. Returns false and
    /// changes nothing if a return does not match the stack, so that the chain does not apply.
    #[inline(always)]
    pub(super) fn apply_to_stack(&self, addresses: &[u64], encoder: &mut Encoder) -> bool {
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

    /// Adds the packets and bits of the chain to a batch, without those for a target that only the
    /// next record shows.
    #[inline(always)]
    pub(super) fn put_packets(&self, batch: &mut Batch) {
        batch.add_bits(self.bits, self.bit_count.into());
        if self.tip != NOWHERE {
            batch.add_tip(self.tip);
            batch.add_packets(&self.packets, self.packet_bytes.into(), self.last_tip);
            batch.add_bits(self.late_bits, self.late_bit_count.into());
        }
    }

    /// Adds the `count` low bits of `bits` as TNT bits, the oldest highest, after the last TIP if
    /// there is one. The other bits must be 0. Does not check that they fit: the caller has.
    fn add_bits(&mut self, bits: u64, count: u8) {
        let (all, all_count) = if self.tip == NOWHERE {
            (&mut self.bits, &mut self.bit_count)
        } else {
            (&mut self.late_bits, &mut self.late_bit_count)
        };
        *all = *all << count | bits;
        *all_count += count;
    }

    /// Adds a TIP, after the bits so far. Returns `None`, and adds nothing, if there is no room.
    fn add_tip(&mut self, target: u64) -> Option<()> {
        if self.tip == NOWHERE {
            self.tip = target;
        } else {
            // Packets after a TIP do not depend on packets before it.
            let mut batch = Batch::default();
            batch.start(0, 0, self.last_tip);
            batch.add_bits(self.late_bits, self.late_bit_count.into());
            batch.add_tip(target);
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

/// Returns the number of the edge of the record at `index` of the key, the oldest first. `index`
/// must be less than [`RECORDS`]: a larger one wraps around.
#[inline(always)]
fn edge_number(key: &ChainKey, index: usize) -> u32 {
    let at = index % RECORDS * 4;
    u32::from_le_bytes([key[at], key[at + 1], key[at + 2], key[at + 3]])
}

/// A chain under construction.
struct ChainBuilder<'a> {
    encoder: &'a Encoder,
    chain: Chain,
    /// Return addresses of the chain's calls that have not returned yet.
    pushes: Vec<u64>,
    /// Targets of the chain's returns to calls before it.
    pops: Vec<u64>,
    /// The maximum depth of the return stack after the records so far ([`Chain::depth_limit`]).
    depth_limit: usize,
    /// The edge that added the last TNT bit or packet, if it is direct, and the quiet ones after
    /// it.
    edges_since_bit: Vec<&'a Edge>,
}

impl<'a> ChainBuilder<'a> {
    /// Builds the longest chain of these records, from the first on; `None` if it would have fewer
    /// than two.
    fn build(key: &ChainKey, dictionary: &'a Dictionary, encoder: &'a Encoder) -> Option<Self> {
        let record = |at: usize| {
            let number = (at < RECORDS).then(|| edge_number(key, at))?;
            dictionary.compact.get(number as usize).zip(dictionary.edge(number))
        };
        let mut builder = Self {
            encoder,
            chain: Chain { start: record(0)?.0.start, ..Chain::NONE },
            pushes: Vec::new(),
            pops: Vec::new(),
            depth_limit: STACK_DEPTH,
            edges_since_bit: Vec::new(),
        };
        let mut here = builder.chain.start;
        for at in 0..RECORDS {
            let Some((compact, edge)) = record(at).filter(|(compact, _)| compact.start == here)
            else {
                break;
            };
            if builder.add(compact, edge, dictionary.pushes_of(edge)).is_none() {
                break;
            }
            let next = record(at + 1).map(|(next, _)| next.start);
            let Some(target) = builder.add_target(compact, next) else { break };
            here = target;
            (builder.chain.ending, builder.chain.target) = (Treatment::Direct, target);
        }
        (builder.chain.records > 1).then_some(builder)
    }

    /// Adds the path of an edge, without its exit's target. Returns `None`, and adds nothing, if it
    /// does not fit, is neither plain nor quiet, or is quiet and comes first or may complete a
    /// loop.
    fn add(&mut self, compact: &CompactEdge, edge: &'a Edge, pushes: &[u64]) -> Option<()> {
        let chain = &mut self.chain;
        // A return adds one more.
        let bits = chain.bit_count.max(chain.late_bit_count) + compact.bit_count + 1;
        let instructions = chain.instructions.checked_add(compact.instructions)?;
        let is_quiet = compact.treatment == Treatment::Quiet;
        if !compact.treatment.is_plain() && !is_quiet
            || u32::from(bits) > TNT_BITS
            || self.pushes.len() + pushes.len() > PUSHES
        {
            return None;
        }
        if is_quiet {
            let is_passed =
                |edge: &&Edge| (edge.quiet_low..=edge.quiet_high).contains(&compact.target);
            let may_loop = edge.branch && self.edges_since_bit.iter().chain([&edge]).any(is_passed);
            if chain.records == 0 || may_loop {
                return None;
            }
            chain.quiet += 1;
        } else {
            let is_direct = compact.treatment == Treatment::Direct;
            chain.loud = if is_direct { chain.records + 1 } else { 0 };
            chain.quiet = 0;
            self.edges_since_bit.clear();
        }
        if is_quiet || compact.treatment == Treatment::Direct {
            self.edges_since_bit.push(edge);
        }
        if compact.peak > 0 {
            // The path has up to `peak` own entries on the stack at one time (`Edge::peak`), so at
            // most STACK_DEPTH - peak older ones survive it. It adds `pushes` to those.
            let limit = STACK_DEPTH.saturating_sub(compact.peak.into());
            self.depth_limit = self.depth_limit.min(limit) + pushes.len();
        }
        self.pushes.extend(pushes);
        chain.add_bits(compact.bits.into(), compact.bit_count);
        chain.records += 1;
        chain.instructions = instructions;
        chain.ending = compact.treatment;
        Some(())
    }

    /// Adds the TNT bit or TIP for the target of the edge just added, if it needs one. For a return
    /// or indirect branch, `next` is the target: the start of the next record's path. Returns the
    /// target; `None`, and adds nothing, if the chain must end with this edge, whose target is then
    /// added when the chain is applied.
    fn add_target(&mut self, edge: &CompactEdge, next: Option<u64>) -> Option<u64> {
        match edge.treatment {
            Treatment::Return => {
                // With a limit of 0, the entry may have been overwritten.
                let next = next.filter(|next| self.depth_limit > 0 && self.apply_return(*next))?;
                self.depth_limit -= 1;
                self.chain.add_bits(1, 1);
                Some(next)
            }
            Treatment::Indirect => {
                let next = next?;
                self.chain.add_tip(next)?;
                Some(next)
            }
            _ => Some(edge.target),
        }
    }

    /// Applies a return to `next`, from a call of the chain or one before it. Returns false, and
    /// applies nothing, if it does not match the return stack or the chain has no room for it.
    fn apply_return(&mut self, next: u64) -> bool {
        if let Some(&last) = self.pushes.last() {
            if last == next {
                self.pushes.pop();
            }
            return last == next;
        }
        let pops = self.pops.len();
        let top = self.encoder.stack[self.encoder.top.wrapping_sub(pops) % STACK_DEPTH];
        let matches = pops < POPS && self.encoder.depth > pops && top == next;
        if matches {
            self.pops.push(next);
        }
        matches
    }

    /// Appends the chain's addresses to those of all chains, those of returns to calls before it
    /// first, and returns the chain.
    fn finish(self, addresses: &mut Vec<u64>) -> Chain {
        let count = |addresses: &[u64]| u8::try_from(addresses.len()).unwrap_or(u8::MAX);
        let chain = Chain {
            first_address: u32::try_from(addresses.len()).unwrap_or(u32::MAX),
            pops: count(&self.pops),
            pushes: count(&self.pushes),
            depth_limit: u8::try_from(self.depth_limit).unwrap_or(0),
            ..self.chain
        };
        addresses.extend(self.pops);
        addresses.extend(self.pushes);
        chain
    }
}
