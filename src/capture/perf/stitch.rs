//! Turns the bytes of AUX areas into a thread's trace of whole packets. Where bytes are missing, it
//! writes an OVF packet between the last whole packet and the next PSB. Decodes only the packets'
//! lengths. An *AUX area* is the buffer to which the PMU writes a thread's trace.

use crate::pt::{Packet, Packets, encode, find_psb, find_psb_back};
use std::collections::VecDeque;

/// A thread's trace while it is assembled from bytes of an AUX area.
#[derive(Debug, Default)]
pub(super) struct Stitch {
    /// Bytes that were not returned yet: those from the last PSB on. Before a PSB is found: bytes
    /// that may be the start of one.
    pending: Vec<u8>,
    /// True if bytes before the next PSB are to be skipped.
    is_lost: bool,
    /// The number of gaps in the trace so far.
    pub(super) gaps: u64,
}

/// The size of a PSB in bytes. Fewer of the skipped bytes are kept, since they may start a PSB.
const PSB_BYTES: usize = 16;

impl Stitch {
    /// Creates a trace whose first bytes may be in the middle of a packet.
    pub(super) fn starting_mid_packet() -> Self {
        Self { is_lost: true, ..Self::default() }
    }

    /// Adds the next bytes. Returns the packets before the last PSB, which are complete: those from
    /// that PSB on stay pending. After a gap, returns nothing before a PSB is found.
    pub(super) fn add_bytes(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.pending.extend_from_slice(bytes);
        if self.is_lost {
            let Some(psb) = find_psb(&self.pending, 0) else {
                let keep = self.pending.len().min(PSB_BYTES - 1);
                self.pending.drain(..self.pending.len() - keep);
                return Vec::new();
            };
            // The packet before may end in bytes like a PSB's. Then only more bytes show where the
            // PSB starts.
            if psb + PSB_BYTES == self.pending.len() {
                return Vec::new();
            }
            self.pending.drain(..psb);
            self.is_lost = false;
        }
        // A PSB at the very end may be part of a longer run of its bytes.
        let known = self.pending.len().saturating_sub(PSB_BYTES);
        match find_psb_back(&self.pending, known) {
            Some(psb) if psb > 0 => self.pending.drain(..psb).collect(),
            _ => Vec::new(),
        }
    }

    /// Marks a gap here: bytes up to the next PSB are skipped. Returns the pending whole packets,
    /// and an OVF packet unless there already is a gap here.
    pub(super) fn mark_gap(&mut self) -> Vec<u8> {
        let mut whole = self.take_whole_packets();
        if !std::mem::replace(&mut self.is_lost, true) {
            // The rest of an incomplete packet is lost as well.
            self.pending.clear();
            encode(&Packet::Ovf, &mut whole);
            self.gaps += 1;
        }
        whole
    }

    /// Takes and returns all pending whole packets, also those after the last PSB, for when no more
    /// bytes come for now. An incomplete packet stays. After a gap, drops what may be the start of
    /// a PSB.
    pub(super) fn take_whole_packets(&mut self) -> Vec<u8> {
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

/// The contents of `PERF_RECORD_AUX` records: the bytes of an area that were written, and the
/// places where some are missing.
#[derive(Debug, Default)]
pub(super) struct AuxRecords {
    spans: VecDeque<Span>,
    /// The end of the last bytes that a record covers.
    end: u64,
}

/// The bytes that one record covers.
#[derive(Clone, Copy, Debug)]
struct Span {
    start: u64,
    end: u64,
    /// True if bytes after these are missing.
    is_short: bool,
}

/// A range of written bytes of an area, or a loss, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AreaPart {
    /// The bytes from the first to before the second position, as counts.
    Bytes(u64, u64),
    /// Bytes are missing here.
    Loss,
}

impl AuxRecords {
    /// Adds a record of `size` bytes from `offset`. If `is_short`, bytes after these are missing.
    pub(super) fn add(&mut self, offset: u64, size: u64, is_short: bool) {
        let end = offset.saturating_add(size);
        self.end = self.end.max(end);
        let following = self.spans.partition_point(|span| span.end <= end);
        self.spans.insert(following, Span { start: offset, end, is_short });
    }

    /// Notes that records are missing here, which may have reported a loss.
    pub(super) fn add_loss(&mut self) {
        self.add(self.end, 0, true);
    }

    /// Takes the records up to the position `to`, and returns the written ranges and losses from
    /// `from` on. Bytes without a record were covered by a lost record, and count as lost
    /// themselves.
    pub(super) fn take_parts(&mut self, from: u64, to: u64) -> Vec<AreaPart> {
        let mut parts = Vec::new();
        let mut at = from;
        while let Some(span) = self.spans.front().copied() {
            if span.end > to {
                break;
            }
            self.spans.pop_front();
            if span.start > at {
                parts.push(AreaPart::Loss);
            }
            let start = span.start.max(at);
            if start < span.end {
                parts.push(AreaPart::Bytes(start, span.end));
            }
            if span.is_short {
                parts.push(AreaPart::Loss);
            }
            at = at.max(span.end);
        }
        if at < to {
            parts.push(AreaPart::Loss);
        }
        parts
    }
}
