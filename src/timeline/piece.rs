//! A part of a trace that one thread executed, and the part of it in one segment: what is decoded
//! and what of that is given.

use super::images::Images;
use crate::common::Tsc;
use crate::flow::{Config, Decoder, FlowItem, Gap, GapReason};
use serde::{Deserialize, Serialize};

/// A part of a trace that one thread executed. Offsets are in bytes of the trace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Piece {
    /// The trace's number in the timeline.
    pub(super) trace: usize,
    /// The PSB from which it is decoded.
    pub(super) psb: usize,
    /// What comes before is code of other processes: only its packets are read. At the PSB or
    /// behind.
    pub(super) start: usize,
    /// Where it begins: at `start` or behind.
    pub(super) from: usize,
    /// Where it ends.
    pub(super) to: usize,
    /// When the thread began to run it; 0 where that is as the trace says.
    pub(super) since: Tsc,
    /// Which thread executed it is not known.
    pub(super) lost: bool,
}

impl Piece {
    /// All of a trace of `size_bytes`.
    pub(super) fn whole(trace: usize, size_bytes: usize) -> Self {
        Self { trace, psb: 0, start: 0, from: 0, to: size_bytes, since: Tsc(0), lost: false }
    }

    /// Whether it is all of a trace of `size_bytes`.
    pub(super) fn is_whole(&self, size_bytes: usize) -> bool {
        *self == Self::whole(self.trace, size_bytes)
    }

    /// What stands for it where nothing of it is known.
    pub(super) fn hole(&self) -> Gap {
        hole(self.from)
    }

    /// Bytes of trace that are decoded for it.
    pub(super) fn size_bytes(&self) -> usize {
        self.to.saturating_sub(self.psb)
    }

    /// The part of it in the segment from the PSB at `psb` to the one at `end`.
    pub(super) fn part<'a>(&self, bytes: &'a [u8], psb: usize, end: Option<usize>) -> Part<'a> {
        let clip = |offset: usize| offset.max(psb);
        let (start, from) = (clip(self.start), clip(self.from));
        // A segment that ends at a PSB before the piece's end tells of nothing behind that.
        let cut = from > psb || end.is_none() && self.to < bytes.len();
        Part { bytes, psb, end, start, from, to: self.to, since: self.since, cut }
    }
}

/// A part of a segment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part<'a> {
    /// The whole trace.
    pub(super) bytes: &'a [u8],
    psb: usize,
    /// The next PSB; none where nothing of it is decoded any more.
    end: Option<usize>,
    pub(super) start: usize,
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) since: Tsc,
    /// It is not the whole segment.
    pub(super) cut: bool,
}

impl<'a> Part<'a> {
    /// What stands for it where nothing of it was found.
    pub(super) fn hole(&self) -> FlowItem {
        FlowItem::Gap(hole(self.from))
    }

    /// A decoder of it, from `start` on.
    pub(super) fn decoder(&self, start: usize, config: &Config) -> Decoder<'a> {
        Decoder::rest_of_segment(self.bytes, self.psb, start, self.end, config.clone())
    }
}

fn hole(offset: usize) -> Gap {
    Gap { offset: offset as u64, last_ip: None, reason: GapReason::ThreadUnknown }
}

/// What decoding needs besides a trace.
#[derive(Clone, Copy, Debug)]
pub(super) struct World<'a> {
    /// The code.
    pub(super) images: &'a Images,
    /// How the trace was taken.
    pub(super) config: &'a Config,
}
