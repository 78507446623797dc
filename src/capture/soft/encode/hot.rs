//! The loop over records, where nearly all of an encoder's time goes.

use super::dictionary::{Dictionary, Plain, Treatment};
use super::{BadRecord, Encoder, STACK_DEPTH};

impl Encoder {
    /// Encodes records. Stops at one that cannot be.
    pub(in crate::capture::soft) fn records(
        &mut self,
        dictionary: &Dictionary,
        mut bytes: &[u8],
    ) -> Result<(), BadRecord> {
        while let Some((number, rest)) = bytes.split_first_chunk::<4>() {
            let number = u32::from_le_bytes(*number);
            let plain = dictionary.plain.get(number as usize).ok_or(BadRecord)?;
            let slow = matches!(plain.treatment, Treatment::Slow | Treatment::SlowWithValue);
            if slow || plain.start != self.here || !self.running || self.out.len() >= self.psb_at {
                bytes = self.slow(dictionary, number, plain.treatment, rest)?;
                continue;
            }
            self.instructions += u64::from(plain.instructions);
            self.few_bits(plain.bits.into(), plain.bit_count.into());
            bytes = rest;
            match plain.treatment {
                Treatment::Direct => self.goes_to(plain, number),
                Treatment::Call => {
                    self.calls(dictionary, plain);
                    self.goes_to(plain, number);
                }
                Treatment::Return => {
                    self.calls(dictionary, plain);
                    let (target, rest) = rest.split_first_chunk::<8>().ok_or(BadRecord)?;
                    self.near_return(u64::from_le_bytes(*target));
                    bytes = rest;
                }
                _ => {
                    self.calls(dictionary, plain);
                    let (target, rest) = rest.split_first_chunk::<8>().ok_or(BadRecord)?;
                    self.tip(u64::from_le_bytes(*target));
                    bytes = rest;
                }
            }
        }
        if bytes.is_empty() { Ok(()) } else { Err(BadRecord) }
    }

    #[inline]
    fn goes_to(&mut self, plain: &Plain, number: u32) {
        self.here = plain.target;
        self.loud = number;
        if !self.quiet.is_empty() {
            self.quiet.clear();
        }
    }

    #[inline]
    fn calls(&mut self, dictionary: &Dictionary, plain: &Plain) {
        if plain.peak > 0 {
            self.depth = self.depth.min(STACK_DEPTH - usize::from(plain.peak));
            for &address in dictionary.pushes_at(plain.first_push, plain.pushes) {
                self.push(address);
            }
        }
    }

    #[cold]
    fn slow<'a>(
        &mut self,
        dictionary: &Dictionary,
        number: u32,
        treatment: Treatment,
        rest: &'a [u8],
    ) -> Result<&'a [u8], BadRecord> {
        if matches!(treatment, Treatment::Direct | Treatment::Call | Treatment::Slow) {
            self.record(dictionary, number, 0)?;
            return Ok(rest);
        }
        let (value, rest) = rest.split_first_chunk::<8>().ok_or(BadRecord)?;
        self.record(dictionary, number, u64::from_le_bytes(*value))?;
        Ok(rest)
    }
}
