//! A part of a trace that one thread executed, and its intersection with one segment: the bytes to
//! decode and the bytes to show. In the trace of a CPU, a piece seldom begins at a PSB, the packet
//! at which decoding can start. So decoding starts before it, and the items before it are skipped.

use super::images::Images;
use crate::common::Tsc;
use crate::flow::{Config, Decoder, FlowItem, Gap, GapReason};
use serde::{Deserialize, Serialize};

/// A part of a trace that one thread executed. Offsets are in bytes of the trace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Piece {
    /// The trace's index in the timeline.
    pub(super) trace: usize,
    /// The offset of the PSB at which decoding starts.
    pub(super) psb: usize,
    /// The offset from which on code is decoded, at the PSB or later. Before it other processes may
    /// execute, so the packets there are only read for their state.
    pub(super) start: usize,
    /// The offset at which the piece begins, at `start` or later. The code before it is decoded
    /// only to know the state here.
    pub(super) from: usize,
    /// The offset of the piece's end.
    pub(super) to: usize,
    /// The time at which the thread started to run the piece; 0 to use the times in the trace.
    pub(super) since: Tsc,
    /// True if it is unknown which thread executed the piece.
    pub(super) lost: bool,
}

impl Piece {
    /// Returns the piece that consists of a whole trace of `size_bytes`.
    pub(super) fn whole(trace: usize, size_bytes: usize) -> Self {
        Self { trace, psb: 0, start: 0, from: 0, to: size_bytes, since: Tsc(0), lost: false }
    }

    /// Returns true if the piece consists of a whole trace of `size_bytes`.
    pub(super) fn is_whole(&self, size_bytes: usize) -> bool {
        *self == Self::whole(self.trace, size_bytes)
    }

    /// Returns the gap that takes the place of a lost piece.
    pub(super) fn gap(&self) -> Gap {
        gap_at(self.from)
    }

    /// Returns the number of bytes of trace decoded for the piece: more than its own.
    pub(super) fn size_bytes(&self) -> usize {
        self.to.saturating_sub(self.psb)
    }

    /// Returns the part of the piece in the segment from the PSB at `psb` to the one at `end`.
    pub(super) fn part<'a>(&self, bytes: &'a [u8], psb: usize, end: Option<usize>) -> Part<'a> {
        let clip = |offset: usize| offset.max(psb);
        let (start, from) = (clip(self.start), clip(self.from));
        // Only in the piece's last segment, which has no `end`, may bytes follow after the piece.
        let is_partial = from > psb || end.is_none() && self.to < bytes.len();
        Part { bytes, psb, end, start, from, to: self.to, since: self.since, is_partial }
    }
}

/// The part of a segment that belongs to a piece. Its fields are those of [`Piece`], but no offset
/// is before the segment's PSB.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part<'a> {
    /// The whole trace.
    pub(super) bytes: &'a [u8],
    psb: usize,
    /// The offset of the next PSB; `None` if decoding does not continue there.
    end: Option<usize>,
    pub(super) start: usize,
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) since: Tsc,
    /// True if the part is not the whole segment.
    pub(super) is_partial: bool,
}

impl<'a> Part<'a> {
    /// Returns the gap that represents a part without any item.
    pub(super) fn gap_item(&self) -> FlowItem {
        FlowItem::Gap(gap_at(self.from))
    }

    /// Returns a decoder that decodes code from the offset `start` to the end of the segment, and
    /// only reads the state from the packets before `start`.
    pub(super) fn decoder(&self, start: usize, config: &Config) -> Decoder<'a> {
        Decoder::rest_of_segment(self.bytes, self.psb, start, self.end, config.clone())
    }
}

fn gap_at(offset: usize) -> Gap {
    Gap { offset: offset as u64, last_ip: None, reason: GapReason::ThreadUnknown }
}

/// The inputs of decoding besides a trace.
#[derive(Clone, Copy, Debug)]
pub(super) struct DecodeContext<'a> {
    /// The code over time.
    pub(super) images: &'a Images,
    /// The settings with which the trace was recorded.
    pub(super) config: &'a Config,
}
