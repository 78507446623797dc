//! Finds PSB packets in raw trace bytes. Does not decode the packets that follow a PSB.

/// The bytes of a PSB packet (SDM table "PSB Packet Definition").
pub const PSB: [u8; PSB_SIZE] = [
    0x02, 0x82, 0x02, 0x82, 0x02, 0x82, 0x02, 0x82, 0x02, 0x82, 0x02, 0x82, 0x02, 0x82, 0x02, 0x82,
];
const PSB_SIZE: usize = 16;
/// The size of the words that are searched, in bytes.
const STRIDE: usize = 8;

/// Returns the offset of the first PSB in `bytes` that starts at or after `from`; `None` if there
/// is none, or `from` is beyond their end. Bytes before `from` are ignored.
///
/// The end of the preceding packet can look like the start of a PSB. If the pattern is longer than
/// a PSB, the PSB is its last 16 bytes.
#[must_use]
pub fn find_psb(bytes: &[u8], from: usize) -> Option<usize> {
    let mut at = from;
    loop {
        // 16 bytes contain an aligned 8-byte word at any offset, so one of these words lies in
        // every PSB.
        let words = bytes.get(at..)?.chunks_exact(STRIDE);
        at += STRIDE * { words }.position(is_psb_word)?;
        let run = PsbRun::around(bytes, at, from);
        if let Some(psb) = run.psb() {
            return Some(psb);
        }
        // A PSB that overlaps the run is part of it, so the search goes on after it.
        at = run.end.max(at + STRIDE);
    }
}

/// Returns the offset of the last PSB in `bytes` that starts before `before`, even if it ends after
/// that; `None` if there is none. As in [`find_psb`], if the pattern is longer than a PSB, only its
/// last 16 bytes are one. `before` may be beyond the end.
#[must_use]
pub fn find_psb_back(bytes: &[u8], before: usize) -> Option<usize> {
    // A PSB that starts just before `before` ends up to 15 bytes after it.
    let mut end = before.saturating_add(PSB_SIZE - 1).min(bytes.len());
    loop {
        let words = bytes.get(..end)?.rchunks_exact(STRIDE);
        end -= STRIDE * ({ words }.position(is_psb_word)? + 1);
        let run = PsbRun::around(bytes, end, 0);
        match run.psb() {
            Some(psb) if psb < before => return Some(psb),
            // A PSB that overlaps the run is part of it, and only the run's last 16 bytes are one.
            // So the search goes on before it; a word that ends in the 7 bytes from its start is
            // none, except with an 82 just before it, which finds the same run once more.
            _ => end = end.min(run.start + STRIDE - 1),
        }
    }
}

/// Returns true if these 8 bytes are part of the pattern of a PSB, from its first or second byte
/// on.
fn is_psb_word(word: &[u8]) -> bool {
    word == &PSB[..STRIDE] || word == &PSB[1..=STRIDE]
}

/// A run of alternating 02 and 82 bytes that starts with 02. It may be too short for a PSB.
struct PsbRun {
    start: usize,
    end: usize,
}

impl PsbRun {
    /// Extends the word at `at` (see [`is_psb_word`]) in both directions to the whole run of
    /// alternating 02 82, but to no byte before `floor`.
    fn around(bytes: &[u8], at: usize, floor: usize) -> Self {
        let byte_at = |i: usize| bytes.get(i).copied();
        let follows = |a: usize| {
            matches!((byte_at(a), byte_at(a + 1)), (Some(0x02), Some(0x82)) | (Some(0x82), Some(2)))
        };
        let mut start = at;
        while start > floor && follows(start - 1) {
            start -= 1;
        }
        let mut end = at + STRIDE;
        while follows(end - 1) {
            end += 1;
        }
        if byte_at(start) == Some(0x82) {
            start += 1;
        }
        Self { start, end }
    }

    /// Returns the offset of the last PSB of the run; `None` if the run is too short for one. A
    /// final 02 that starts the next packet is not part of it.
    fn psb(&self) -> Option<usize> {
        let pairs_end = self.end - (self.end - self.start) % 2;
        (pairs_end - self.start).checked_sub(PSB_SIZE).map(|offset| self.start + offset)
    }
}
