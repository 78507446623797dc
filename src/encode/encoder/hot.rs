//! The loop over records, where an encoder spends nearly all its time.
//!
//! Every edge has a compact form ([`CompactEdge`]). A record is *plain* if that says all of its
//! edge: its [`Treatment`] is `Direct`, `Return` or `Indirect`. The loop keeps a copy of the
//! encoder's state in registers (`HotState`), and takes in each round:
//! 1. Several records as one, if a chain of them is known ([`super::chain`]).
//! 2. Else a record that is not plain, or that does not fit the state: the state is written back to
//!    the encoder, which encodes the record (`encode_record`), and is then copied anew.
//! 3. Else a plain record. The target of a return or indirect branch is the start of the next
//!    record's path. A last record without a next one is *owed*: it is encoded later.

#![expect(clippy::inline_always, reason = "a call takes as long as what is called")]

use super::batch::Batch;
use super::chain::{KEY_BYTES, RECORDS};
use super::chains::Chains;
use super::{BadRecord, Encoder, STACK_DEPTH};
use crate::encode::dictionary::{CompactEdge, Dictionary, Treatment};

/// The address of a thread that no plain record can follow: a non-canonical one, where no path
/// starts. Differs from that of an empty chain ([`super::chain`]): such a chain takes no record, so
/// it would be applied forever.
const NOT_READY: u64 = 1 << 63;

/// The maximum number of times that failed look-ups of a chain double the number of records before
/// the next look-up.
const MAX_DOUBLINGS: u32 = 3;

/// Records that are not read yet.
struct Records<'a> {
    bytes: &'a [u8],
}

impl Records<'_> {
    /// Takes the number of an edge, which begins a record; `None` if too few bytes are left.
    #[inline(always)]
    fn take_number(&mut self) -> Option<u32> {
        let (number, rest) = self.bytes.split_first_chunk::<4>()?;
        self.bytes = rest;
        Some(u32::from_le_bytes(*number))
    }

    /// Returns the start of the next record's path; `None` if there is no record. Takes nothing.
    /// Fails at an unknown edge.
    #[inline(always)]
    fn next_start(&self, dictionary: &Dictionary) -> Result<Option<u64>, BadRecord> {
        self.start_after(0, dictionary)
    }

    /// Returns the start of the path of the record after `count` others of 4 bytes; `None` if there
    /// is no such record. Takes nothing. Fails at an unknown edge.
    #[inline(always)]
    fn start_after(&self, count: usize, dictionary: &Dictionary) -> Result<Option<u64>, BadRecord> {
        let bytes = self.bytes.get(count * 4..).unwrap_or_default();
        let Some((number, _)) = bytes.split_first_chunk::<4>() else { return Ok(None) };
        let edge = dictionary.compact.get(u32::from_le_bytes(*number) as usize);
        edge.map(|edge| Some(edge.start)).ok_or(BadRecord)
    }

    /// Takes the 8-byte value of the record whose number was just taken; `None` if too few bytes
    /// are left.
    #[inline(always)]
    fn take_value(&mut self) -> Option<u64> {
        let (value, rest) = self.bytes.split_first_chunk::<8>()?;
        self.bytes = rest;
        Some(u64::from_le_bytes(*value))
    }
}

/// The state of the encoder while records are plain, which replaces the fields of the same names.
struct HotState {
    /// The packets, pending bits and last IP.
    batch: Batch,
    /// True if plain records can follow: the thread is in the program, and there is a last IP.
    is_ready: bool,
    /// The size of the batch in bytes at which it is written out, for example for a PSB.
    batch_limit: usize,
    ip: u64,
    /// The number of the edge that added the last packet or bit, if it is a direct one; see
    /// [`super`].
    loud: u32,
    /// True if the encoder's `quiet` (the edges since then, which added nothing) is still valid;
    /// else there are none.
    has_quiet: bool,
    /// The number of instructions since the state was loaded.
    instructions: u64,
}

impl Encoder {
    /// Encodes records, first an owed one. Returns the number of bytes of an incomplete record at
    /// the end, which it does not encode, or an error at an invalid record: packets of records
    /// before it may be missing then. A last record whose target only the next one shows is then
    /// owed, and counts as encoded.
    pub(in crate::encode) fn encode_records(
        &mut self,
        dictionary: &Dictionary,
        chains: &mut Chains,
        bytes: &[u8],
    ) -> Result<usize, BadRecord> {
        let mut records = Records { bytes };
        if let Some(start) = records.next_start(dictionary)? {
            self.finish_owed_record(dictionary, start)?;
        }
        let mut hot = self.load_hot_state(Batch::default());
        // The number of records to encode singly before the next look-up of a chain.
        let (mut singles_left, mut misses) = (0, 0);
        loop {
            if singles_left == 0 {
                if self.encode_chain(dictionary, chains, &mut records, &mut hot)? {
                    misses = 0;
                    continue;
                }
                // Look up less often where records rarely recur.
                singles_left = RECORDS << misses;
                misses = (misses + 1).min(MAX_DOUBLINGS);
            }
            singles_left -= 1;
            let from_this_record = records.bytes;
            let Some(number) = records.take_number() else { break };
            let edge = dictionary.compact.get(number as usize).ok_or(BadRecord)?;
            let fits = edge.start == hot.ip && hot.batch.len() < hot.batch_limit;
            if !fits || !edge.treatment.is_plain() {
                // The value that `encode_record` takes: a time or a target, or 0 if the edge needs
                // none. `None` if the record is cut off, or the next one is not there yet.
                let value = match edge.treatment {
                    Treatment::Direct | Treatment::Quiet | Treatment::Slow => Some(0),
                    Treatment::Timed => records.take_value(),
                    Treatment::Return | Treatment::Indirect | Treatment::SlowIndirect => {
                        records.next_start(dictionary)?
                    }
                };
                let Some(value) = value else {
                    self.keep_for_later(number, edge, &mut records, from_this_record);
                    break;
                };
                self.store_hot_state(&mut hot);
                self.encode_record(dictionary, number, value)?;
                hot = self.load_hot_state(hot.batch);
                singles_left = 0;
                continue;
            }
            let (bits, count) = (u64::from(edge.bits), u32::from(edge.bit_count));
            if edge.treatment == Treatment::Direct {
                if edge.peak > 0 {
                    self.push_calls(dictionary, edge);
                }
                hot.batch.add_bits(bits, count);
                hot.advance_to(edge.instructions, edge.target, number);
                continue;
            }
            let Some(target) = records.next_start(dictionary)? else {
                self.keep_for_later(number, edge, &mut records, from_this_record);
                break;
            };
            if edge.peak > 0 {
                self.push_calls(dictionary, edge);
            }
            if edge.treatment == Treatment::Return && self.pop_if_match(target) {
                hot.batch.add_bits(bits << 1 | 1, count + 1);
            } else {
                hot.batch.add_bits(bits, count);
                hot.batch.add_tip(target);
            }
            hot.advance_to(edge.instructions, target, 0);
        }
        self.store_hot_state(&mut hot);
        Ok(records.bytes.len())
    }

    /// Encodes a chain of records, if one is known for the next records and can be applied now.
    /// Else returns false and takes no record; may then add the chain to `chains`. Fails at an
    /// unknown edge after the chain.
    #[inline(always)]
    fn encode_chain(
        &mut self,
        dictionary: &Dictionary,
        chains: &mut Chains,
        records: &mut Records<'_>,
        hot: &mut HotState,
    ) -> Result<bool, BadRecord> {
        let Some(key) = records.bytes.first_chunk::<KEY_BYTES>() else { return Ok(false) };
        let Some(chain) = chains.find(key) else {
            chains.note_miss(key, dictionary, self);
            return Ok(false);
        };
        if chain.start != hot.ip || hot.batch.len() >= hot.batch_limit {
            return Ok(false);
        }
        let count = usize::from(chain.records);
        let (target, loud) = if chain.ending == Treatment::Direct {
            (chain.target, chain.loud())
        } else {
            let Some(target) = records.start_after(count, dictionary)? else { return Ok(false) };
            (target, 0)
        };
        if !chain.apply_to_stack(chains.return_addresses(), self) {
            return Ok(false);
        }
        chain.put_packets(&mut hot.batch);
        match chain.ending {
            Treatment::Return if self.pop_if_match(target) => hot.batch.add_bits(1, 1),
            Treatment::Return | Treatment::Indirect => hot.batch.add_tip(target),
            _ => {}
        }
        hot.advance_to(chain.instructions, target, loud);
        if chain.quiet > 0 {
            self.quiet.clear();
            self.quiet.extend(chain.quiet_records());
            hot.has_quiet = true;
        }
        records.bytes = records.bytes.get(count * 4..).unwrap_or_default();
        Ok(true)
    }

    /// Keeps the last record for later: makes it the owed one if only the next record determines
    /// its target; else it is incomplete, and is put back. The state of the encoder does not change
    /// otherwise.
    #[cold]
    fn keep_for_later<'a>(
        &mut self,
        number: u32,
        edge: &CompactEdge,
        records: &mut Records<'a>,
        from_this_record: &'a [u8],
    ) {
        if edge.treatment.is_indirect() {
            self.owed = number;
        } else {
            records.bytes = from_this_record;
        }
    }

    /// Returns the state for plain records, copied from the encoder. Reuses `batch`.
    fn load_hot_state(&mut self, mut batch: Batch) -> HotState {
        let last_ip = self.last_ip.get();
        batch.start(self.tnt, self.tnt_count, last_ip.map_or(0, |ip| ip.0));
        let is_ready = self.in_program && last_ip.is_some();
        HotState {
            batch,
            is_ready,
            batch_limit: self.psb_at.saturating_sub(self.out.len()).min(Batch::BYTES),
            ip: if is_ready { self.ip } else { NOT_READY },
            loud: self.loud,
            has_quiet: !self.quiet.is_empty(),
            instructions: 0,
        }
    }

    /// Writes the packets and state of plain records back to the encoder. Load the state again
    /// after this: to store it twice writes its packets and counts its instructions twice.
    fn store_hot_state(&mut self, hot: &mut HotState) {
        self.out.extend_from_slice(hot.batch.bytes());
        if hot.is_ready {
            let last_ip;
            (self.tnt, self.tnt_count, last_ip) = hot.batch.pending();
            self.last_ip = crate::pt::LastIp::at(crate::common::Addr(last_ip));
            self.ip = hot.ip;
            self.loud = hot.loud;
            if !hot.has_quiet {
                self.quiet.clear();
            }
        }
        self.instructions += hot.instructions;
    }

    /// Pushes the return addresses that a path leaves on the return stack. Drops the oldest ones
    /// that did not fit while the most calls of the path were open at a time (`peak`): some may
    /// have returned in it.
    #[inline(always)]
    fn push_calls(&mut self, dictionary: &Dictionary, edge: &CompactEdge) {
        self.depth = self.depth.min(STACK_DEPTH - usize::from(edge.peak));
        for &address in dictionary.pushes_at(edge.first_push, edge.pushes) {
            self.push_return_address(address);
        }
    }
}

impl HotState {
    /// Moves to `target`, after a record or chain that added packets or bits. `loud` is the number
    /// of the record's edge, if direct; else 0.
    #[inline(always)]
    fn advance_to(&mut self, instructions: u16, target: u64, loud: u32) {
        self.instructions += u64::from(instructions);
        self.ip = target;
        self.loud = loud;
        self.has_quiet = false;
    }
}
