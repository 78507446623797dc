//! A thread's packets up to one of its instructions, as if its trace ended there: for other
//! decoders, which show the end of a trace as the present. The packets are decoded again to check
//! that they lead to that instruction.

use super::index::Entry;
use super::line::{Thread, Timeline};
use super::piece::{Piece, World};
use super::walk::{Caches, Walker};
use crate::common::{Addr, Tid};
use crate::flow::FlowItem;
use crate::pt::{IpCompression, IpPayload, Packet, Packets, Tnt, encode};

/// The number of packets to try before and after the place where the path reaches the instruction.
const PACKETS_AROUND: usize = 4;
/// The maximum number of packets to try, since many packets in a row may lead to no instruction.
const PACKETS_LIMIT: usize = 1 << 10;

impl Timeline {
    /// Returns the packets of a thread up to its instruction `index`, which is about to execute.
    /// Returns `None` if the thread shares traces with others, or its path there is unknown.
    pub fn trace_until(&self, tid: Tid, index: u64) -> Option<Vec<u8>> {
        let (_, thread) = self.thread(tid)?;
        let trace = self.whole_trace(thread)?.as_ref();
        if index >= thread.path.index.insns {
            return Some(trace.to_vec());
        }
        let entry = thread.path.index.entries.get(thread.path.index.entry_of(index)?)?;
        let segment = trace.get(entry.start..entry.end.unwrap_or(trace.len()))?;
        let ip = self.pc(tid, index)?;
        let last = self.ends(thread, entry, segment, index - entry.first, ip)?;
        Some([trace.get(..entry.start)?, &last].concat())
    }

    /// Returns the beginning of a segment up to its instruction `count`, which is at `ip`; `None`
    /// if no beginning leads there.
    fn ends(
        &self,
        thread: &Thread,
        entry: &Entry,
        segment: &[u8],
        count: u64,
        ip: Addr,
    ) -> Option<Vec<u8>> {
        let mut caches = Caches::default();
        let mut executed = |bytes: &[u8]| self.executed(thread, entry, bytes, &mut caches);
        // The offsets at which the trace can be cut, each with the packet that follows.
        let mut bounds = Vec::new();
        for (offset, packet) in Packets::at(segment, 0) {
            bounds.push((usize::try_from(offset).ok()?, packet.ok()));
        }
        bounds.push((segment.len(), None));
        // More packets never contain fewer instructions.
        let near = bounds.partition_point(|(at, _)| executed(&segment[..*at]).0 < count);
        let beyond = bounds.partition_point(|(at, _)| executed(&segment[..*at]).0 <= count);
        let from = near.saturating_sub(PACKETS_AROUND);
        let to = bounds.len().min(beyond + PACKETS_AROUND).min(from + PACKETS_LIMIT);
        let around = bounds.get(from..to)?;
        let leads_there = |bytes: &Vec<u8>, executed: &mut dyn FnMut(&[u8]) -> (u64, bool)| {
            executed(bytes) == (count, true)
        };
        for (at, packet) in around {
            for whole in beginnings(&segment[..*at], *packet) {
                let ended = ended(&whole, ip);
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

    /// Decodes `bytes`, the beginning of a segment. Returns the number of instructions, and false
    /// if there are gaps.
    fn executed(
        &self,
        thread: &Thread,
        entry: &Entry,
        bytes: &[u8],
        caches: &mut Caches,
    ) -> (u64, bool) {
        let (mut count, mut whole) = (0, true);
        self.walk_part(thread, entry, bytes, caches, &mut |_, item| match item {
            FlowItem::Block(span) => count += u64::from(span.insns),
            FlowItem::Gap(_) => whole = false,
            FlowItem::Event(_) => {}
        });
        (count, whole)
    }

    /// Decodes `bytes` in place of a segment's own packets, and passes each item to `visit`.
    pub(super) fn walk_part(
        &self,
        thread: &Thread,
        entry: &Entry,
        bytes: &[u8],
        caches: &mut Caches,
        visit: &mut dyn FnMut(&mut Walker<'_>, FlowItem),
    ) {
        let since = thread.piece(entry).map(|piece| piece.since).unwrap_or_default();
        let piece = Piece { since, ..Piece::whole(0, bytes.len()) };
        let part = piece.part(bytes, 0, None);
        let world = World { images: &self.images, config: &self.config };
        let mut walker = Walker::new(&part, world, caches);
        while let Some(item) = walker.next() {
            visit(&mut walker, item);
        }
    }
}

/// Returns the ways to end a trace at `packet`: the bytes `before`, and for a TNT packet also these
/// bytes with each shorter prefix of its branches.
fn beginnings(before: &[u8], packet: Option<Packet>) -> Vec<Vec<u8>> {
    let (Packet::TntShort(tnt) | Packet::TntLong(tnt)) = packet.unwrap_or(Packet::Pad) else {
        return vec![before.to_vec()];
    };
    let some = |len: u8| {
        let mut bytes = before.to_vec();
        let some = Tnt { bits: tnt.bits >> (tnt.len - len), len };
        let form = if len > 6 { Packet::TntLong(some) } else { Packet::TntShort(some) };
        if len > 0 {
            encode(&form, &mut bytes);
        }
        bytes
    };
    (0..tnt.len).map(some).collect()
}

/// Appends the end of tracing before the instruction at `ip` (SDM volume 3, table "PT Packets for
/// Asynchronous Events": FUP with the address, then TIP.PGD).
fn ended(bytes: &[u8], ip: Addr) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    encode(&Packet::Fup(IpPayload { compression: IpCompression::Full, value: ip.0 }), &mut bytes);
    let nowhere = IpPayload { compression: IpCompression::Suppressed, value: 0 };
    encode(&Packet::TipPgd(nowhere), &mut bytes);
    bytes
}
