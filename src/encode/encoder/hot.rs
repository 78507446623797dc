//! The loop over records, where an encoder spends nearly all its time. It encodes plain records
//! ([`Treatment`]), with its state in registers, and writes that back to the encoder before each
//! other record. Where a chain is known ([`super::chain`]), encodes several records as one.

#![expect(clippy::inline_always, reason = "a call takes as long as what is called")]

use super::batch::Batch;
use super::chain::{KEY_BYTES, RECORDS};
use super::chains::Chains;
use super::{BadRecord, Encoder, STACK_DEPTH};
use crate::encode::dictionary::{Dictionary, Plain, Treatment};

/// A non-canonical address, where no path starts.
const NOWHERE: u64 = 1 << 63;

/// The maximum number of times that a failed look-up doubles the number of records before the next
/// one.
const MISSES: u32 = 3;

/// Records that are not read yet.
struct Records<'a> {
    bytes: &'a [u8],
}

impl Records<'_> {
    #[inline(always)]
    fn number(&mut self) -> Option<u32> {
        let (number, rest) = self.bytes.split_first_chunk::<4>()?;
        self.bytes = rest;
        Some(u32::from_le_bytes(*number))
    }

    /// Returns the start of the next record's path; `None` if there is no record.
    #[inline(always)]
    fn next_start(&self, dictionary: &Dictionary) -> Result<Option<u64>, BadRecord> {
        self.start_at(0, dictionary)
    }

    /// Returns the start of the path of the record after `count` others; `None` if there is no
    /// record.
    #[inline(always)]
    fn start_at(&self, count: usize, dictionary: &Dictionary) -> Result<Option<u64>, BadRecord> {
        let bytes = self.bytes.get(count * 4..).unwrap_or_default();
        let Some((number, _)) = bytes.split_first_chunk::<4>() else { return Ok(None) };
        let plain = dictionary.plain.get(u32::from_le_bytes(*number) as usize);
        plain.map(|plain| Some(plain.start)).ok_or(BadRecord)
    }

    #[inline(always)]
    fn value(&mut self) -> Option<u64> {
        let (value, rest) = self.bytes.split_first_chunk::<8>()?;
        self.bytes = rest;
        Some(u64::from_le_bytes(*value))
    }
}

/// The state of the encoder while records are plain.
struct Hot {
    batch: Batch,
    /// True if plain records can follow.
    is_ready: bool,
    /// The size of the batch at which it is written out.
    limit: usize,
    here: u64,
    loud: u32,
    /// True if the encoder's list of quiet edges is still valid.
    has_quiet: bool,
    instructions: u64,
}

impl Encoder {
    /// Encodes records. Returns the number of bytes of an incomplete record at the end, or an error
    /// at an invalid record.
    pub(in crate::encode) fn records(
        &mut self,
        dictionary: &Dictionary,
        chains: &mut Chains,
        bytes: &[u8],
    ) -> Result<usize, BadRecord> {
        let mut records = Records { bytes };
        if let Some(start) = records.next_start(dictionary)? {
            self.arrive(dictionary, start)?;
        }
        let mut hot = self.heat(Batch::default());
        // The number of records to take singly before the next look-up.
        let (mut single, mut misses) = (0, 0);
        loop {
            if single == 0 {
                if self.chain(dictionary, chains, &mut records, &mut hot)? {
                    misses = 0;
                    continue;
                }
                // Look up less often where records rarely recur.
                single = RECORDS << misses;
                misses = (misses + 1).min(MISSES);
            }
            single -= 1;
            let whole = records.bytes;
            let Some(number) = records.number() else { break };
            let plain = dictionary.plain.get(number as usize).ok_or(BadRecord)?;
            let fits = plain.start == hot.here && hot.batch.len() < hot.limit;
            if !fits || plain.treatment.is_slow() {
                let value = match plain.treatment {
                    Treatment::Direct | Treatment::Quiet | Treatment::Slow => Some(0),
                    Treatment::Timed => records.value(),
                    _ => records.next_start(dictionary)?,
                };
                let Some(value) = value else {
                    self.owe(number, plain, &mut records, whole);
                    break;
                };
                self.cool(&mut hot);
                self.record(dictionary, number, value)?;
                hot = self.heat(hot.batch);
                single = 0;
                continue;
            }
            let (bits, count) = (u64::from(plain.bits), u32::from(plain.bit_count));
            if plain.treatment == Treatment::Direct {
                if plain.peak > 0 {
                    self.calls(dictionary, plain);
                }
                hot.batch.bits(bits, count);
                hot.goes_to(plain.instructions, plain.target, number);
                continue;
            }
            let Some(target) = records.next_start(dictionary)? else {
                self.owe(number, plain, &mut records, whole);
                break;
            };
            if plain.peak > 0 {
                self.calls(dictionary, plain);
            }
            if plain.treatment == Treatment::Return && self.matches(target) {
                hot.batch.bits(bits << 1 | 1, count + 1);
            } else {
                hot.batch.bits(bits, count);
                hot.batch.tip(target);
            }
            hot.goes_to(plain.instructions, target, 0);
        }
        self.cool(&mut hot);
        Ok(records.bytes.len())
    }

    /// Encodes a chain of records, if one is known. Returns true if so.
    #[inline(always)]
    fn chain(
        &mut self,
        dictionary: &Dictionary,
        chains: &mut Chains,
        records: &mut Records<'_>,
        hot: &mut Hot,
    ) -> Result<bool, BadRecord> {
        let Some(key) = records.bytes.first_chunk::<KEY_BYTES>() else { return Ok(false) };
        let Some(chain) = chains.find(key) else {
            chains.miss(key, dictionary, self);
            return Ok(false);
        };
        if chain.start != hot.here || hot.batch.len() >= hot.limit {
            return Ok(false);
        }
        let count = usize::from(chain.records);
        let (target, loud) = if chain.treatment == Treatment::Direct {
            (chain.target, chain.loud())
        } else {
            let Some(target) = records.start_at(count, dictionary)? else { return Ok(false) };
            (target, 0)
        };
        if !chain.apply(chains.addresses(), self) {
            return Ok(false);
        }
        chain.write(&mut hot.batch);
        match chain.treatment {
            Treatment::Return if self.matches(target) => hot.batch.bits(1, 1),
            Treatment::Return | Treatment::Indirect => hot.batch.tip(target),
            _ => {}
        }
        hot.goes_to(chain.instructions, target, loud);
        if chain.quiet > 0 {
            self.quiet.clear();
            self.quiet.extend(chain.quiet_records());
            hot.has_quiet = true;
        }
        records.bytes = records.bytes.get(count * 4..).unwrap_or_default();
        Ok(true)
    }

    /// Keeps a record for later: it is incomplete, or only the next one determines its target.
    #[cold]
    fn owe<'a>(&mut self, number: u32, plain: &Plain, records: &mut Records<'a>, whole: &'a [u8]) {
        if plain.treatment.is_indirect() {
            self.owed = number;
        } else {
            records.bytes = whole;
        }
    }

    /// Returns the state for plain records, copied from the encoder, with `batch` emptied.
    fn heat(&mut self, mut batch: Batch) -> Hot {
        let last_ip = self.last_ip.get();
        batch.begin(self.tnt, self.tnt_count, last_ip.map_or(0, |ip| ip.0));
        let is_ready = self.running && last_ip.is_some();
        Hot {
            batch,
            is_ready,
            limit: self.psb_at.saturating_sub(self.out.len()).min(Batch::BYTES),
            here: if is_ready { self.here } else { NOWHERE },
            loud: self.loud,
            has_quiet: !self.quiet.is_empty(),
            instructions: 0,
        }
    }

    /// Writes the packets and state of plain records back to the encoder.
    fn cool(&mut self, hot: &mut Hot) {
        self.out.extend_from_slice(hot.batch.bytes());
        if hot.is_ready {
            let last_ip;
            (self.tnt, self.tnt_count, last_ip) = hot.batch.end();
            self.last_ip = crate::pt::LastIp::at(crate::common::Addr(last_ip));
            self.here = hot.here;
            self.loud = hot.loud;
            if !hot.has_quiet {
                self.quiet.clear();
            }
        }
        self.instructions += hot.instructions;
    }

    /// Applies the calls of a path to the return stack.
    #[inline(always)]
    fn calls(&mut self, dictionary: &Dictionary, plain: &Plain) {
        self.depth = self.depth.min(STACK_DEPTH - usize::from(plain.peak));
        for &address in dictionary.pushes_at(plain.first_push, plain.pushes) {
            self.push(address);
        }
    }
}

impl Hot {
    #[inline(always)]
    fn goes_to(&mut self, instructions: u16, target: u64, loud: u32) {
        self.instructions += u64::from(instructions);
        self.here = target;
        self.loud = loud;
        self.has_quiet = false;
    }
}
