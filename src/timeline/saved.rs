//! The index as bytes, to be saved with the recording. Encoding and decoding do no I/O. A stale,
//! foreign or damaged index is rejected. Hostile bytes give wrong results at worst, like a hostile
//! trace.

use super::blocks::{BlockSet, Dictionary};
use super::call_stack::{Calls, MissingFrames};
use super::effects::PendingTransfer;
use super::index::{Index, SegmentEntry};
use super::piece::Piece;
use super::stack::{FlatStacks, Frame};
use crate::common::{Tid, Tsc};
use serde::{Deserialize, Serialize};

/// The version of the format. Increment it after a change of the layout or of the results of
/// decoding: older indexes are then rebuilt.
const VERSION: u32 = 4;
const MAGIC: [u8; 8] = *b"CFINDEX\n";
/// The size of the header: magic, version, key, CRC-32 of the rest.
const HEADER_BYTES: usize = 8 + 4 + KEY_BYTES + 4;
const KEY_BYTES: usize = 32;

/// The identity of an index's recording: a hash over everything that decoding reads.
pub(super) type Key = [u8; KEY_BYTES];

/// The saved index of a recording.
#[derive(Serialize, Deserialize)]
struct SavedIndex {
    /// The size of each trace in bytes.
    trace_bytes: Vec<usize>,
    threads: Vec<SavedThread>,
}

#[derive(Serialize, Deserialize)]
struct SavedThread {
    tid: Tid,
    pieces: Vec<Piece>,
    dictionaries: Vec<Dictionary>,
    /// The frames of all call stacks ([`FlatStacks::frames`]).
    frames: Vec<(Frame, u32)>,
    entries: Vec<SavedSegment>,
    /// The times in the trace: instructions and TSC ticks, each relative to the previous time.
    times: Vec<(u64, u64)>,
}

#[derive(Serialize, Deserialize)]
struct SavedSegment {
    /// The number of pieces from the previous segment to this one.
    pieces_later: usize,
    /// Bytes of trace from the previous segment of the same piece, or from the piece's PSB, to this
    /// one.
    distance: u64,
    insns: u64,
    /// The number of the innermost frame in `frames` of the thread, counted from 1; 0 for none.
    stack: u32,
    pending: Option<PendingTransfer>,
    missing: MissingFrames,
    has_switched: bool,
    execs: u32,
    has_gaps: bool,
    worker: usize,
    blocks: BlockSet,
}

/// A thread's path: its pieces and their index.
#[derive(Clone, Debug, Default)]
pub(super) struct ThreadPath {
    pub(super) pieces: Vec<Piece>,
    pub(super) index: Index,
}

/// Encodes the indexes of all threads, for traces of these sizes.
pub(super) fn encode<'a>(
    key: &Key,
    trace_bytes: Vec<usize>,
    threads: impl Iterator<Item = (Tid, &'a ThreadPath)>,
) -> Vec<u8> {
    let threads = threads.map(|(tid, path)| to_saved(tid, path)).collect();
    let index = SavedIndex { trace_bytes, threads };
    let mut bytes = Vec::new();
    bytes.extend_from_slice(&MAGIC);
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes.extend_from_slice(key);
    // The data contain no maps of unknown size, and writes to memory cannot fail.
    let payload = postcard::to_stdvec(&index).unwrap_or_default();
    bytes.extend_from_slice(&crc32fast::hash(&payload).to_le_bytes());
    bytes.extend_from_slice(&payload);
    bytes
}

/// Returns the saved form of a thread's path, in which each segment and time is relative to the one
/// before it. [`from_saved`] is the inverse.
fn to_saved(tid: Tid, path: &ThreadPath) -> SavedThread {
    let index = &path.index;
    let mut forest = FlatStacks::default();
    let (mut piece, mut before) = (0, path.pieces.first().map_or(0, |piece| piece.psb));
    let segment = |entry: &SegmentEntry| {
        if entry.piece != piece {
            before = path.pieces.get(entry.piece).map_or(0, |piece| piece.psb);
        }
        let distance = (entry.start - before) as u64;
        let pieces_later = entry.piece - piece;
        (piece, before) = (entry.piece, entry.start);
        SavedSegment {
            pieces_later,
            distance,
            insns: entry.insns,
            stack: forest.add(&entry.calls.stack),
            pending: entry.calls.pending,
            missing: entry.calls.missing,
            has_switched: entry.calls.has_switched,
            execs: u32::try_from(entry.calls.execs).unwrap_or(u32::MAX),
            has_gaps: entry.has_gaps,
            worker: entry.worker,
            blocks: entry.blocks.clone(),
        }
    };
    let entries = index.entries.iter().map(segment).collect();
    let mut last = (0, 0);
    let time = |(at, tsc): &(u64, Tsc)| {
        let step = (at - last.0, tsc.0 - last.1);
        last = (*at, tsc.0);
        step
    };
    SavedThread {
        tid,
        pieces: path.pieces.clone(),
        dictionaries: index.dictionaries.clone(),
        times: index.times.iter().map(time).collect(),
        frames: forest.frames,
        entries,
    }
}

/// Decodes the paths of these threads; `None` unless the bytes match the key and trace sizes.
pub(super) fn decode(
    bytes: &[u8],
    key: &Key,
    trace_bytes: &[usize],
    threads: &[Tid],
) -> Option<Vec<ThreadPath>> {
    let (header, payload) = bytes.split_at_checked(HEADER_BYTES)?;
    let expected =
        [&MAGIC[..], &VERSION.to_le_bytes(), key, &crc32fast::hash(payload).to_le_bytes()];
    if header != expected.concat() {
        return None;
    }
    let (saved, rest): (SavedIndex, _) = postcard::take_from_bytes(payload).ok()?;
    let same_threads = saved.threads.iter().map(|thread| &thread.tid).eq(threads);
    if !rest.is_empty() || saved.trace_bytes != trace_bytes || !same_threads {
        return None;
    }
    let paths = saved.threads.into_iter().map(|thread| from_saved(thread, trace_bytes));
    let paths: Vec<_> = paths.collect::<Option<_>>()?;
    // The sum of all instructions must not overflow.
    paths.iter().try_fold(0_u64, |total, path: &ThreadPath| total.checked_add(path.index.insns))?;
    Some(paths)
}

/// Returns true if a piece lies in one of the traces and its offsets ascend.
fn is_sound(piece: &Piece, trace_bytes: &[usize]) -> bool {
    let order = [piece.psb, piece.start, piece.from, piece.to];
    let size_bytes = trace_bytes.get(piece.trace);
    order.is_sorted() && size_bytes.is_some_and(|size_bytes| piece.to <= *size_bytes)
}

/// Restores a thread's path; `None` if the saved one is not sound: a piece lies outside the traces,
/// or numbers do not ascend or overflow.
fn from_saved(saved: SavedThread, trace_bytes: &[usize]) -> Option<ThreadPath> {
    let pieces = saved.pieces;
    if !pieces.iter().all(|piece| is_sound(piece, trace_bytes)) {
        return None;
    }
    let stacks = FlatStacks::stacks(&saved.frames)?;
    let mut entries: Vec<SegmentEntry> = Vec::with_capacity(saved.entries.len());
    // The number of the segment's piece, and the sum of the instructions of all segments.
    let (mut piece, mut insns) = (0_usize, 0_u64);
    for segment in saved.entries {
        // The previous segment, if it is of the same piece: this one ends it.
        let before = entries.last_mut().filter(|_| segment.pieces_later == 0);
        piece = piece.checked_add(segment.pieces_later)?;
        let within = pieces.get(piece)?;
        let distance = usize::try_from(segment.distance).ok()?;
        let start = before.as_ref().map_or(within.psb, |entry| entry.start);
        let start = start.checked_add(distance).filter(|start| *start < within.to)?;
        if let Some(before) = before {
            // Segments must have ascending offsets.
            before.end = Some(start).filter(|_| distance > 0);
            before.end?;
        }
        let calls = Calls {
            stack: stacks.get(segment.stack as usize)?.clone(),
            pending: segment.pending,
            missing: segment.missing,
            has_switched: segment.has_switched,
            execs: segment.execs as usize,
        };
        let first = insns;
        insns = insns.checked_add(segment.insns)?;
        // From here to the end of the round, `insns` are those of this segment alone.
        let SavedSegment { insns, worker, blocks, has_gaps, .. } = segment;
        let end = None;
        entries.push(SegmentEntry {
            piece,
            start,
            end,
            first,
            insns,
            calls,
            worker,
            blocks,
            has_gaps,
        });
    }
    let times = absolute_times(&saved.times, insns)?;
    Some(ThreadPath {
        pieces,
        index: Index { entries, insns, times, dictionaries: saved.dictionaries },
    })
}

/// Restores the times from their differences; `None` unless times and instruction numbers ascend.
/// `insns` is the number of the thread's instructions.
fn absolute_times(steps: &[(u64, u64)], insns: u64) -> Option<Vec<(u64, Tsc)>> {
    let mut times = Vec::with_capacity(steps.len());
    let (mut at, mut tsc) = (0_u64, 0_u64);
    for (number, (insns_later, ticks)) in steps.iter().enumerate() {
        if number > 0 && (*insns_later == 0 || *ticks == 0) {
            return None;
        }
        (at, tsc) = (at.checked_add(*insns_later)?, tsc.checked_add(*ticks)?);
        times.push((at, Tsc(tsc)));
    }
    (at <= insns).then_some(times)
}
