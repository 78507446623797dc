//! The bytes of a trace in place: successive parts of a mapped file, without copies.

use super::super::mapped::Mapped;
use std::ops::Range;
use std::sync::Arc;

/// OVF (SDM, "Overflow (OVF) Packet"), which represents lost packets in a trace.
const LOST: [u8; 2] = [0x02, 0xf3];

/// The bytes of an imported trace: successive parts of a mapped file.
#[derive(Clone, Debug)]
pub struct TraceBytes {
    file: Arc<Mapped>,
    parts: Vec<TracePart>,
}

/// A part of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TracePart {
    /// The bytes in a range of the file.
    Bytes(Range<usize>),
    /// A loss: packets are missing.
    Lost,
}

impl TraceBytes {
    /// Returns the trace that consists of these parts of a file; a range that is not inside the
    /// file is empty.
    pub fn new(file: Arc<Mapped>, parts: Vec<TracePart>) -> Self {
        Self { file, parts }
    }

    /// Returns the size of the trace in bytes, with a packet for each loss.
    pub fn size_bytes(&self) -> u64 {
        self.parts.iter().map(|part| self.bytes(part).len() as u64).sum()
    }

    /// Returns the bytes of all parts in order, each with the offset of its end in the file; 0 for
    /// a loss, whose bytes are a packet.
    pub(super) fn parts(&self) -> impl Iterator<Item = (&[u8], usize)> {
        self.parts.iter().map(|part| {
            let end = if let TracePart::Bytes(range) = part { range.end } else { 0 };
            (self.bytes(part), end)
        })
    }

    pub(super) fn file(&self) -> &Mapped {
        &self.file
    }

    fn bytes(&self, part: &TracePart) -> &[u8] {
        match part {
            TracePart::Bytes(range) => (*self.file).as_ref().get(range.clone()).unwrap_or_default(),
            TracePart::Lost => &LOST,
        }
    }
}

impl From<Mapped> for TraceBytes {
    fn from(file: Mapped) -> Self {
        let all = TracePart::Bytes(0..file.as_ref().len());
        Self { file: Arc::new(file), parts: vec![all] }
    }
}
