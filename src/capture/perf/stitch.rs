//! From what an AUX area gave to a thread's trace: whole packets, and where bytes are missing an
//! overflow between the last whole packet and the next PSB. Decodes nothing but packets' lengths.

use crate::pt::{Packet, Packets, encode, find_psb, find_psb_back};
use std::collections::VecDeque;

/// A trace that grows.
#[derive(Debug, Default)]
pub(super) struct Stitch {
    /// Bytes that wait: from the last PSB on, or, where the beginning is not found yet, what may be
    /// the front of a PSB.
    pending: Vec<u8>,
    /// What comes before the next PSB is of no use.
    is_lost: bool,
    /// How often bytes were missing.
    pub(super) gaps: u64,
}

/// A PSB's length: of what is lost, so much less one is kept, for one that has come in part.
const PSB_BYTES: usize = 16;

impl Stitch {
    /// A trace whose first bytes may be in the midst of a packet.
    pub(super) fn from_the_midst() -> Self {
        Self { is_lost: true, ..Self::default() }
    }

    /// Bytes that follow. Gives what is whole of the trace.
    pub(super) fn bytes(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.pending.extend_from_slice(bytes);
        if self.is_lost {
            let Some(psb) = find_psb(&self.pending, 0) else {
                let keep = self.pending.len().min(PSB_BYTES - 1);
                self.pending.drain(..self.pending.len() - keep);
                return Vec::new();
            };
            // Where a packet before ends like a PSB begins, more of it has to be seen.
            if psb + PSB_BYTES == self.pending.len() {
                return Vec::new();
            }
            self.pending.drain(..psb);
            self.is_lost = false;
        }
        // A PSB that has just come whole may be the end of a longer row of its bytes.
        let known = self.pending.len().saturating_sub(PSB_BYTES);
        match find_psb_back(&self.pending, known) {
            Some(psb) if psb > 0 => self.pending.drain(..psb).collect(),
            _ => Vec::new(),
        }
    }

    /// Bytes are missing here. Gives what is whole before that, with an overflow.
    pub(super) fn loss(&mut self) -> Vec<u8> {
        let mut whole = self.end();
        if !std::mem::replace(&mut self.is_lost, true) {
            // What is left of a packet goes with what is missing.
            self.pending.clear();
            encode(&Packet::Ovf, &mut whole);
            self.gaps += 1;
        }
        whole
    }

    /// No more bytes come, for now: gives the whole packets that wait.
    pub(super) fn end(&mut self) -> Vec<u8> {
        if self.is_lost {
            self.pending.clear();
            return Vec::new();
        }
        let mut end = 0;
        let mut packets = Packets::new(&self.pending);
        while let Some((_, Ok(_))) = packets.next() {
            end = packets.offset();
        }
        let rest = self.pending.split_off(end);
        std::mem::replace(&mut self.pending, rest)
    }
}

/// What `AUX` records say of the bytes of an area: which have come, and behind which some are
/// missing.
#[derive(Debug, Default)]
pub(super) struct Told {
    spans: VecDeque<Span>,
    /// Behind the last byte that a record told of.
    end: u64,
}

/// Bytes that one record tells of.
#[derive(Clone, Copy, Debug)]
struct Span {
    start: u64,
    end: u64,
    is_short: bool,
}

/// What to do with a stretch of the area, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// These bytes, by their counts.
    Bytes(u64, u64),
    /// Some are missing.
    Loss,
}

impl Told {
    /// A record: `size` bytes from `offset` on came, and if `is_short`, others behind them did not.
    pub(super) fn note(&mut self, offset: u64, size: u64, is_short: bool) {
        let end = offset.saturating_add(size);
        self.end = self.end.max(end);
        let behind = self.spans.partition_point(|span| span.end <= end);
        self.spans.insert(behind, Span { start: offset, end, is_short });
    }

    /// Records are missing here, and with them perhaps the word that bytes are.
    pub(super) fn doubt(&mut self) {
        self.note(self.end, 0, true);
    }

    /// What the records say of the bytes from `from` to `to`, which have come. Bytes that none
    /// tells of are behind a record that was lost, and what it said is not known: they count as
    /// lost themselves.
    pub(super) fn steps(&mut self, from: u64, to: u64) -> Vec<Step> {
        let mut steps = Vec::new();
        let mut at = from;
        while let Some(span) = self.spans.front().copied() {
            if span.end > to {
                break;
            }
            self.spans.pop_front();
            if span.start > at {
                steps.push(Step::Loss);
            }
            let start = span.start.max(at);
            if start < span.end {
                steps.push(Step::Bytes(start, span.end));
            }
            if span.is_short {
                steps.push(Step::Loss);
            }
            at = at.max(span.end);
        }
        if at < to {
            steps.push(Step::Loss);
        }
        steps
    }
}
