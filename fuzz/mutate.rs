//! Changes inputs. Knows no format: what is special to a target comes as its words.

use crate::random::Random;

/// No input is larger.
pub(crate) const LIMIT_BYTES: usize = 16 << 10;

/// Pieces that are moved are at most this large.
const PIECE_BYTES: usize = 64;

/// Numbers at which sizes, offsets and counts go wrong.
const NUMBERS: [u64; 12] = [
    0,
    1,
    2,
    7,
    0x7f,
    0xff,
    0xfff,
    0x1000,
    0x7fff_ffff,
    0xffff_ffff,
    0x7fff_ffff_ffff_ffff,
    0xffff_ffff_ffff_ffff,
];

/// One of `inputs` with a few changes.
pub(crate) fn mutate(random: &mut Random, inputs: &[Vec<u8>], words: &[&[u8]]) -> Vec<u8> {
    let mut bytes = random.pick(inputs).cloned().unwrap_or_default();
    // Mostly few changes: many at once destroy what the first ones found.
    let most = 1 << random.below(5);
    for _ in 0..=random.below(most) {
        if bytes.is_empty() {
            bytes.push(0);
        }
        let other = random.pick(inputs).map(Vec::as_slice).unwrap_or_default();
        change(random, &mut bytes, other, words);
        bytes.truncate(LIMIT_BYTES);
    }
    bytes
}

fn change(random: &mut Random, bytes: &mut Vec<u8>, other: &[u8], words: &[&[u8]]) {
    let at = random.below(bytes.len());
    let end = (at + 1 + random.below(PIECE_BYTES)).min(bytes.len());
    match random.below(10) {
        0 => bytes[at] ^= 1 << random.below(8),
        1 => bytes[at] = byte(random.below(256)),
        2 => bytes[at..end].fill([0, 0xff, 0x02, 0x82, b'0', b'f'][random.below(6)]),
        3 => bytes.truncate(at),
        4 => drop(bytes.drain(at..end)),
        5 => {
            let piece = bytes[at..end].to_vec();
            let to = random.below(bytes.len());
            bytes.splice(to..to, piece);
        }
        6 => number(random, &mut bytes[at..]),
        7 => {
            let word = random.pick(words).copied().unwrap_or_default();
            let end = if random.below(2) == 0 { at } else { (at + word.len()).min(bytes.len()) };
            bytes.splice(at..end, word.iter().copied());
        }
        8 => {
            let from = random.below(other.len());
            let to = (from + PIECE_BYTES).min(other.len());
            bytes.splice(at..end, other[from..to].iter().copied());
        }
        // The beginning of one and the end of another.
        _ => {
            let from = random.below(other.len());
            bytes.splice(at.., other[from..].iter().copied());
        }
    }
}

/// Writes a number over the first bytes, or changes the one that is there a little.
fn number(random: &mut Random, bytes: &mut [u8]) {
    let size = (1 << random.below(4)).min(bytes.len());
    let mut old = [0; 8];
    old[..size].copy_from_slice(&bytes[..size]);
    let old = u64::from_le_bytes(old);
    let new = match random.below(3) {
        0 => old.wrapping_add(random.below(16) as u64),
        1 => old.wrapping_sub(random.below(16) as u64),
        _ => NUMBERS[random.below(NUMBERS.len())],
    };
    bytes[..size].copy_from_slice(&new.to_le_bytes()[..size]);
}

fn byte(number: usize) -> u8 {
    u8::try_from(number).unwrap_or(0)
}
