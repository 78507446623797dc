//! A thread's packets up to one of its instructions, as if its trace ended there: for other
//! decoders, which show the end of a trace as the present. The segment of the instruction is cut at
//! one of the packets, or TNT bits, around the place where the path reaches it, and packets that end
//! the tracing there are added. Each such cut is decoded, until one leads to the instruction.

use super::index::SegmentEntry;
use super::line::{Thread, Timeline};
use super::piece::{DecodeContext, Piece};
use super::walk::{BlockCaches, Walker};
use crate::common::{Addr, Tid};
use crate::flow::FlowItem;
use crate::pt::{IpCompression, IpPayload, Packet, Packets, Tnt, encode};

/// The number of packets to try before and after the place where the path reaches the instruction.
const PACKETS_AROUND: usize = 4;
/// The maximum number of packets to try, since many packets in a row may lead to no instruction.
const PACKETS_LIMIT: usize = 1 << 10;

impl Timeline {
    /// Returns the packets of a thread up to its instruction `index`, which is about to execute; all
    /// packets if it has no such instruction. Returns `None` if the thread shares traces with
    /// others, or its path there is unknown.
    pub fn trace_until(&self, tid: Tid, index: u64) -> Option<Vec<u8>> {
        let (_, thread) = self.thread(tid)?;
        let trace = self.whole_trace(thread)?.as_ref();
        if index >= thread.path.index.insns {
            return Some(trace.to_vec());
        }
        let entry = thread.path.index.entries.get(thread.path.index.entry_with(index)?)?;
        let segment = trace.get(entry.start..entry.end.unwrap_or(trace.len()))?;
        let ip = self.pc(tid, index)?;
        let last = self.shortened(thread, entry, segment, index - entry.first, ip)?;
        Some([trace.get(..entry.start)?, &last].concat())
    }

    /// Returns the packets of a segment shortened to its first `count` instructions, with the end of
    /// tracing before the next one, which is at `ip`; `None` if no beginning of the segment leads
    /// there.
    fn shortened(
        &self,
        thread: &Thread,
        entry: &SegmentEntry,
        segment: &[u8],
        count: u64,
        ip: Addr,
    ) -> Option<Vec<u8>> {
        let mut caches = BlockCaches::default();
        let mut executed = |bytes: &[u8]| self.count_insns(thread, entry, bytes, &mut caches);
        // The offsets at which the trace can be cut, each with the packet that follows.
        let mut bounds = Vec::new();
        for (offset, packet) in Packets::at(segment, 0) {
            bounds.push((usize::try_from(offset).ok()?, packet.ok()));
        }
        bounds.push((segment.len(), None));
        // The packets around which the path reaches the instruction, by binary search: more packets
        // never contain fewer instructions.
        let near = bounds.partition_point(|(at, _)| executed(&segment[..*at]).0 < count);
        let beyond = bounds.partition_point(|(at, _)| executed(&segment[..*at]).0 <= count);
        let from = near.saturating_sub(PACKETS_AROUND);
        let to = bounds.len().min(beyond + PACKETS_AROUND).min(from + PACKETS_LIMIT);
        let around = bounds.get(from..to)?;
        let leads_there = |bytes: &Vec<u8>, executed: &mut dyn FnMut(&[u8]) -> (u64, bool)| {
            executed(bytes) == (count, true)
        };
        for (at, packet) in around {
            for beginning in cuts_at(&segment[..*at], *packet) {
                let ended = with_end_of_tracing(&beginning, ip);
                if leads_there(&ended, &mut executed) {
                    return Some(ended);
                }
            }
        }
        // Otherwise tracing is off before the instruction, since the thread entered the kernel.
        let mut off = around.windows(2).filter_map(|pair| match pair {
            [(_, Some(Packet::TipPgd(_))), (at, _)] => Some(segment[..*at].to_vec()),
            _ => None,
        });
        off.find(|bytes| leads_there(bytes, &mut executed))
    }

    /// Decodes `bytes`, the beginning of a segment. Returns the number of instructions, and whether
    /// there are no gaps.
    fn count_insns(
        &self,
        thread: &Thread,
        entry: &SegmentEntry,
        bytes: &[u8],
        caches: &mut BlockCaches,
    ) -> (u64, bool) {
        let (mut count, mut whole) = (0, true);
        self.decode_instead(thread, entry, bytes, caches, &mut |_, item| match item {
            FlowItem::Block(span) => count += u64::from(span.insns),
            FlowItem::Gap(_) => whole = false,
            FlowItem::Event(_) => {}
        });
        (count, whole)
    }

    /// Decodes `bytes` in place of a segment's own packets, and passes each item to `visit`.
    pub(super) fn decode_instead(
        &self,
        thread: &Thread,
        entry: &SegmentEntry,
        bytes: &[u8],
        caches: &mut BlockCaches,
        visit: &mut dyn FnMut(&mut Walker<'_>, FlowItem),
    ) {
        let since = thread.piece(entry).map(|piece| piece.since).unwrap_or_default();
        let piece = Piece { since, ..Piece::whole(0, bytes.len()) };
        let part = piece.part(bytes, 0, None);
        let context = DecodeContext { images: &self.images, config: &self.config };
        let mut walker = Walker::new(&part, context, caches);
        while let Some(item) = walker.next() {
            visit(&mut walker, item);
        }
    }
}

/// Returns the beginnings of a trace that end at `packet`: the bytes `before` it, and for a TNT
/// packet also these with each proper prefix of its branches.
fn cuts_at(before: &[u8], packet: Option<Packet>) -> Vec<Vec<u8>> {
    let (Packet::TntShort(tnt) | Packet::TntLong(tnt)) = packet.unwrap_or(Packet::Pad) else {
        return vec![before.to_vec()];
    };
    let with_prefix = |len: u8| {
        let mut bytes = before.to_vec();
        let prefix = Tnt { bits: tnt.bits >> (tnt.len - len), len };
        let form = if len > 6 { Packet::TntLong(prefix) } else { Packet::TntShort(prefix) };
        if len > 0 {
            encode(&form, &mut bytes);
        }
        bytes
    };
    (0..tnt.len).map(with_prefix).collect()
}

/// Returns the bytes with the end of tracing before the instruction at `ip` appended (SDM volume 3,
/// table "PT Packets for Asynchronous Events": FUP with the address, then TIP.PGD).
fn with_end_of_tracing(bytes: &[u8], ip: Addr) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    encode(&Packet::Fup(IpPayload { compression: IpCompression::Full, value: ip.0 }), &mut bytes);
    let nowhere = IpPayload { compression: IpCompression::Suppressed, value: 0 };
    encode(&Packet::TipPgd(nowhere), &mut bytes);
    bytes
}
