//! Finding PSB packets in raw trace bytes. Looks at bytes only: that what follows a PSB decodes is
//! for the decoder to find out.

/// The bytes of a PSB packet (SDM table "PSB Packet Definition").
pub const PSB: [u8; PSB_SIZE] = [
    0x02, 0x82, 0x02, 0x82, 0x02, 0x82, 0x02, 0x82, 0x02, 0x82, 0x02, 0x82, 0x02, 0x82, 0x02, 0x82,
];
const PSB_SIZE: usize = 16;
const STRIDE: usize = 8;

/// The offset of the first PSB in `bytes` that starts at or behind `from`.
///
/// The end of the packet before can look like the beginning of a PSB: where the pattern goes on
/// for more than a PSB's length, the PSB is its last 16 bytes.
#[must_use]
pub fn find_psb(bytes: &[u8], from: usize) -> Option<usize> {
    let mut at = from;
    loop {
        // 16 bytes hold a whole word at any stride of 8, so every PSB shows at one of these.
        let words = bytes.get(at..)?.chunks_exact(STRIDE);
        at += STRIDE * { words }.position(is_psb_word)?;
        let run = Run::around(bytes, at, from);
        if let Some(psb) = run.psb() {
            return Some(psb);
        }
        at = run.end.max(at + STRIDE);
    }
}

/// The offset of the last PSB in `bytes` that starts before `before`.
#[must_use]
pub fn find_psb_back(bytes: &[u8], before: usize) -> Option<usize> {
    // A PSB that starts just before `before` ends up to 15 bytes behind it.
    let mut end = before.saturating_add(PSB_SIZE - 1).min(bytes.len());
    loop {
        let words = bytes.get(..end)?.rchunks_exact(STRIDE);
        end -= STRIDE * ({ words }.position(is_psb_word)? + 1);
        let run = Run::around(bytes, end, 0);
        match run.psb() {
            Some(psb) if psb < before => return Some(psb),
            _ => end = end.min(run.start + STRIDE - 1),
        }
    }
}

fn is_psb_word(word: &[u8]) -> bool {
    word == &PSB[..STRIDE] || word == &PSB[1..=STRIDE]
}

/// A stretch of alternating 02 82 that starts with 02.
struct Run {
    start: usize,
    end: usize,
}

impl Run {
    /// The run that holds the pattern word at `at`, looking back no further than `floor`.
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

    /// The last PSB of the run: 02 that begins the packet behind it is not part of it.
    fn psb(&self) -> Option<usize> {
        let pairs_end = self.end - (self.end - self.start) % 2;
        (pairs_end - self.start).checked_sub(PSB_SIZE).map(|offset| self.start + offset)
    }
}
