//! Encodings of every instruction that the decoder knows.

use crate::translate::insn::{MAX_INSN_BYTES, decode};
use iced_x86::{Instruction, Register};
use std::collections::HashSet;

/// The address at which the samples are decoded.
pub(super) const SAMPLE_IP: u64 = super::START;

/// Returns encodings: at least one for each combination of an instruction, kinds of operands and,
/// for branches, direction.
pub(super) fn samples() -> Vec<(Vec<u8>, Instruction)> {
    let mut samples = Samples::default();
    samples.add_legacy();
    samples.add_vex();
    samples.add_evex();
    samples.found
}

#[derive(Default)]
struct Samples {
    found: Vec<(Vec<u8>, Instruction)>,
    seen: HashSet<(u32, Vec<u32>, bool)>,
}

impl Samples {
    /// Adds the instruction at the start of `parts`, padded with `filler`, if it is new.
    fn add(&mut self, parts: &[&[u8]], filler: u8) {
        let mut bytes = parts.concat();
        bytes.resize(MAX_INSN_BYTES, filler);
        let Some((insn, _)) = decode(&bytes, SAMPLE_IP) else { return };
        let kinds = insn.op_kinds().map(|kind| kind as u32);
        let segment = match insn.op0_register() {
            register if register.is_segment_register() => register,
            _ => Register::None,
        };
        let is_ahead = insn.near_branch_target() > SAMPLE_IP;
        let key = (insn.code() as u32, kinds.chain([segment as u32]).collect(), is_ahead);
        if self.seen.insert(key) {
            bytes.truncate(insn.len());
            self.found.push((bytes, insn));
        }
    }

    fn add_legacy(&mut self) {
        let maps: [&[u8]; 4] = [&[], &[0x0f], &[0x0f, 0x38], &[0x0f, 0x3a]];
        let prefixes: [&[u8]; 10] = [
            &[],
            &[0x66],
            &[0xf3],
            &[0xf2],
            &[0x67],
            &[0x48],
            &[0x66, 0x48],
            &[0xf3, 0x48],
            &[0xf2, 0x48],
            &[0x9b],
        ];
        for (prefix, map) in prefixes.iter().flat_map(|prefix| maps.map(|map| (prefix, map))) {
            for opcode in 0..=0xff {
                for modrm in 0..=0xff {
                    self.add(&[prefix, map, &[opcode, modrm]], 0);
                }
                self.add(&[prefix, map, &[opcode]], 0xff);
            }
        }
        // 3DNow! has its opcode at the end.
        for opcode in 0..=0xff {
            self.add(&[&[0x0f, 0x0f, 0xc0, opcode]], 0);
        }
    }

    fn add_vex(&mut self) {
        let vex = (1..8).map(|map| (0xc4, map));
        for (first, map) in vex.chain((8..11).map(|map| (0x8f, map))) {
            for low in 0..=0xff {
                // Bits 3 to 6 are an inverted register: it only matters whether there is one.
                if !matches!(low >> 3 & 15, 0 | 15) {
                    continue;
                }
                self.add_opcodes(&[first, 0xe0 | map, low]);
            }
        }
    }

    fn add_evex(&mut self) {
        for map in 1..8 {
            for (wide, prefix) in [0, 0x80].into_iter().flat_map(|w| (0..4).map(move |p| (w, p))) {
                // Vector length, broadcast, mask.
                for last in [0, 0x20, 0x40, 0x10].into_iter().flat_map(|l| [l | 8, l | 9]) {
                    self.add_opcodes(&[0x62, 0xf0 | map, wide | 0x7c | prefix, last]);
                }
            }
        }
    }

    fn add_opcodes(&mut self, prefix: &[u8]) {
        for opcode in 0..=0xff {
            for modrm in (0..8).flat_map(|reg| [4, 0xc0, 0xc1].map(|rest| reg << 3 | rest)) {
                self.add(&[prefix, &[opcode, modrm]], 0);
            }
        }
    }
}
