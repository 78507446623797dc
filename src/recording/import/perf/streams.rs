//! The pieces of the AUX areas as traces of CPUs or threads, in stream order. A *stream* is the
//! bytes of one CPU or thread, a *piece* is a part of it that perf copied to the file, and a
//! *stretch* is successive pieces without a loss between them. perf pads pieces, and successive
//! snapshots repeat bytes; both are removed. Between two stretches, an overflow packet represents
//! the loss, and the trace continues at the next PSB.

use super::super::super::error::ErrorKind;
use super::super::super::format::TraceId;
use super::super::super::mapped::Mapped;
use super::super::trace_bytes::{TraceBytes, TracePart};
use super::process::Process;
use crate::common::Tid;
use crate::pt::{Packets, find_psb, overlap};
use crate::sideband::perf_data::{AuxInfo, AuxTrace, PerfData, PerfEvent};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

/// perf rounds the size of a piece up to a multiple of this number of bytes.
const ALIGNMENT: u64 = 8;
/// The sizes of the ranges that are searched for a PSB, one after the other. The last is larger
/// than the longest period of PSBs.
const WINDOWS_BYTES: [usize; 4] = [64 << 10, 1 << 20, 16 << 20, 128 << 20];

/// Returns the traces of CPUs, if there are any; else those of the process's threads, without other
/// threads. Leaves out the bytes that a snapshot shares with the one before. Fails if pieces of a
/// trace without snapshots overlap by more than padding.
pub(super) fn traces(
    data: &PerfData,
    info: &AuxInfo,
    process: &Process,
    file: &Arc<Mapped>,
) -> Result<Vec<(TraceId, TraceBytes)>, ErrorKind> {
    let threads: HashSet<Tid> = process.threads.iter().copied().collect();
    let mut areas: BTreeMap<TraceId, Vec<AuxTrace>> = BTreeMap::new();
    for trace in &data.aux_traces {
        let id = match (trace.cpu, trace.tid) {
            (Some(cpu), _) => TraceId::Cpu(cpu),
            (None, Some(tid)) if threads.contains(&tid) => TraceId::Thread(tid),
            _ => continue,
        };
        areas.entry(id).or_default().push(*trace);
    }
    if areas.keys().any(|id| matches!(id, TraceId::Cpu(_))) {
        areas.retain(|id, _| matches!(id, TraceId::Cpu(_)));
    }
    let bytes: &[u8] = (**file).as_ref();
    let reported = AuxRecords::of_all(data);
    let mut traces = Vec::new();
    for (id, pieces) in areas {
        let stretches = if info.snapshot {
            stretches_of_snapshots(bytes, &pieces)
        } else {
            stretches_of_full(&pieces, reported.get(&id).unwrap_or(&AuxRecords::default()))?
        };
        traces.push((id, TraceBytes::new(file.clone(), join(bytes, stretches))));
    }
    Ok(traces)
}

/// The content of the `AUX` records of one stream.
#[derive(Default)]
struct AuxRecords {
    /// The stream offset of the end of each record's bytes, in ascending order.
    ends: Vec<u64>,
    /// The stream offsets after which bytes are missing.
    losses: Vec<u64>,
}

impl AuxRecords {
    /// Returns the records of each stream. A record may belong to a CPU's and to a thread's stream.
    fn of_all(data: &PerfData) -> HashMap<TraceId, Self> {
        let mut all: HashMap<TraceId, Self> = HashMap::new();
        for record in &data.records {
            let PerfEvent::Aux { offset, size, flags } = record.event else { continue };
            let end = offset.saturating_add(size);
            let of_cpu = record.id.cpu.map(TraceId::Cpu);
            let of_thread = record.id.task.map(|(_, tid)| TraceId::Thread(tid));
            for id in [of_cpu, of_thread].into_iter().flatten() {
                let reported = all.entry(id).or_default();
                reported.ends.push(end);
                if flags & PerfEvent::AUX_LOSSES != 0 {
                    reported.losses.push(end);
                }
            }
        }
        for reported in all.values_mut() {
            reported.ends.sort_unstable();
            reported.losses.sort_unstable();
            reported.losses.dedup();
        }
        all
    }

    /// Returns the stream offset of a piece's end without its padding, given the offset `padded`
    /// with it; `padded` itself if no record ends within the padding.
    fn unpadded_end(&self, padded: u64) -> u64 {
        let last = self.ends.partition_point(|end| *end <= padded).checked_sub(1);
        let end = last.and_then(|last| self.ends.get(last)).copied();
        end.filter(|end| padded - end < ALIGNMENT).unwrap_or(padded)
    }
}

/// Ranges of the file that follow each other in the stream without a loss.
type Stretch = Vec<Range<usize>>;

/// Returns the stretches of a stream that was read while it was written, not by snapshots: each
/// byte is in one piece. Fails if pieces overlap by more than padding.
fn stretches_of_full(
    pieces: &[AuxTrace],
    reported: &AuxRecords,
) -> Result<Vec<Stretch>, ErrorKind> {
    let mut pieces = pieces.to_vec();
    pieces.sort_by_key(|piece| piece.stream_offset);
    let mut stretches: Vec<Stretch> = vec![Vec::new()];
    let mut losses = reported.losses.iter().copied().peekable();
    let mut before: Option<u64> = None;
    for (number, piece) in pieces.iter().enumerate() {
        let padded = piece.stream_offset.saturating_add(piece.size_bytes as u64);
        // Where the next piece begins inside this one, only padding may be left.
        let next = pieces.get(number + 1).filter(|next| next.stream_offset < padded);
        let end = next.map_or_else(|| reported.unpadded_end(padded), |next| next.stream_offset);
        if let Some(next) = next.filter(|_| padded - end >= ALIGNMENT) {
            return Err(ErrorKind::Overlapping { offset: next.record_offset });
        }
        // Bytes between the pieces are missing.
        if before.is_some_and(|before| before < piece.stream_offset) {
            stretches.push(Vec::new());
        }
        let mut start = piece.stream_offset;
        let place =
            |at: u64| piece.start + usize::try_from(at - piece.stream_offset).unwrap_or(usize::MAX);
        while let Some(loss) = losses.next_if(|loss| *loss <= end) {
            if loss > start {
                push(&mut stretches, place(start)..place(loss));
                start = loss;
            }
            stretches.push(Vec::new());
        }
        if end > start {
            push(&mut stretches, place(start)..place(end));
        }
        before = Some(end);
    }
    Ok(stretches)
}

fn push(stretches: &mut [Stretch], range: Range<usize>) {
    if let Some(stretch) = stretches.last_mut() {
        stretch.push(range);
    }
}

/// Returns the stretches of successive snapshots of a ring, which are in the order of `pieces`. A
/// snapshot that begins with bytes at the end of the one before continues its stretch, without
/// these bytes and without the padding before; any other begins a stretch. The bytes must be equal
/// and contain a whole PSB; stream offsets do not count.
fn stretches_of_snapshots(file: &[u8], pieces: &[AuxTrace]) -> Vec<Stretch> {
    let mut stretches: Vec<Stretch> = Vec::new();
    let mut before: Option<Range<usize>> = None;
    for piece in pieces {
        let range = piece.start..piece.start.saturating_add(piece.size_bytes);
        let (common, padding) = before.map_or((0, 0), |before| shared_bytes(file, &before, &range));
        if common == 0 {
            stretches.push(Vec::new());
        } else if let Some(last) = stretches.last_mut().and_then(|stretch| stretch.last_mut()) {
            last.end = last.end.saturating_sub(padding).max(last.start);
        }
        push(&mut stretches, range.start + common..range.end);
        before = Some(range);
    }
    stretches
}

/// Returns the number of bytes that two pieces share, and of padding bytes after the first, at most
/// 7; zeros if they share none.
fn shared_bytes(file: &[u8], before: &Range<usize>, after: &Range<usize>) -> (usize, usize) {
    let bytes = |range: &Range<usize>| file.get(range.clone()).unwrap_or_default();
    let (mut earlier, later) = (bytes(before), bytes(after));
    for padding in 0..8 {
        let common = overlap(earlier, later);
        match earlier.split_last() {
            _ if common > 0 => return (common, padding),
            Some((0, rest)) => earlier = rest,
            _ => break,
        }
    }
    (0, 0)
}

/// Joins the stretches, with a loss between each two; losses without bytes between them are one.
/// All stretches but the last are cut after their last whole packet, and all but the first before
/// their first PSB. Those without a PSB are dropped.
fn join(file: &[u8], stretches: Vec<Stretch>) -> Vec<TracePart> {
    let mut parts = Vec::new();
    let last = stretches.len().saturating_sub(1);
    let mut is_lost = false;
    for (number, stretch) in stretches.into_iter().enumerate() {
        let stretch = if number > 0 { from_first_psb(file, &stretch) } else { stretch };
        let stretch = if number < last { to_last_packet(file, &stretch) } else { stretch };
        if number > 0 && !is_lost {
            parts.push(TracePart::Lost);
            is_lost = true;
        }
        for range in stretch.into_iter().filter(|range| !range.is_empty()) {
            parts.push(TracePart::Bytes(range));
            is_lost = false;
        }
    }
    parts
}

fn size_of(stretch: &Stretch) -> usize {
    stretch.iter().map(ExactSizeIterator::len).sum()
}

/// Returns the ranges of a stretch's bytes between two offsets in it; those that exist.
fn cut(stretch: &Stretch, from: usize, to: usize) -> Stretch {
    let mut at = 0;
    let mut parts = Vec::new();
    for range in stretch {
        let (start, end) = (at, at + range.len());
        at = end;
        let (from, to) = (from.max(start), to.min(end));
        if from < to {
            parts.push(range.start + (from - start)..range.start + (to - start));
        }
    }
    parts
}

fn bytes_of(file: &[u8], stretch: &Stretch) -> Vec<u8> {
    let parts = stretch.iter().map(|range| file.get(range.clone()).unwrap_or_default());
    parts.collect::<Vec<_>>().concat()
}

/// Returns the part of a stretch from its first PSB on; empty if it has none in its first 128 MiB.
fn from_first_psb(file: &[u8], stretch: &Stretch) -> Stretch {
    for window in WINDOWS_BYTES {
        if let Some(psb) = find_psb(&bytes_of(file, &cut(stretch, 0, window)), 0) {
            return cut(stretch, psb, size_of(stretch));
        }
    }
    Vec::new()
}

/// Returns the part of a stretch up to the end of its last whole packet; empty if it has no PSB in
/// its last 128 MiB.
fn to_last_packet(file: &[u8], stretch: &Stretch) -> Stretch {
    let size = size_of(stretch);
    for window in WINDOWS_BYTES {
        let from = size.saturating_sub(window);
        let tail = bytes_of(file, &cut(stretch, from, size));
        let Some(mut psb) = find_psb(&tail, 0) else { continue };
        while let Some(next) = find_psb(&tail, psb + 1) {
            psb = next;
        }
        let mut end = psb;
        let mut packets = Packets::at(&tail, psb);
        while let Some((_, Ok(_))) = packets.next() {
            end = packets.offset();
        }
        return cut(stretch, 0, from + end);
    }
    Vec::new()
}
