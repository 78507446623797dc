//! Makes the packets of a thread from one of its instructions on, as if tracing had begun there:
//! other decoders take the first packet for the beginning of the recording. The rest of the segment
//! of this instruction is encoded anew, because its packets may depend on earlier ones (last IP,
//! compressed returns, partly used TNT packets). The result is decoded again and compared with the
//! original. The next segment is decoded, too: the last instructions of a segment may be known only
//! from its packets.

use super::index::SegmentEntry;
use super::line::{Thread, Timeline};
use super::walk::{BlockCaches, Walker};
use crate::common::{Addr, Tid};
use crate::flow::{EventKind, Exit, FlowItem, Span};
use crate::insn::ExecMode;
use crate::pt::{IpCompression, IpPayload, Packet, Packets, Tnt, encode};

/// The maximum number of branches in a short TNT packet.
const SHORT_TNT_BRANCHES: u8 = 6;

/// A block or an event of a path.
#[derive(Clone, Copy, Debug)]
enum PathItem {
    Span {
        span: Span,
        /// True if the last instruction is an indirect near call.
        is_indirect_call: bool,
    },
    Event(EventKind),
}

/// The instructions of a span: the first, the last, and their number.
type Extent = (Addr, Addr, u32);

impl Timeline {
    /// Returns the packets of a thread from its instruction `from` on, up to its instruction
    /// `until`, which is about to execute; none if `until` is not after `from`. Returns `None` if
    /// the thread shares traces with others, or if the path there is unknown or cannot be encoded.
    pub fn trace_between(&self, tid: Tid, from: u64, until: u64) -> Option<Vec<u8>> {
        if from >= until {
            return Some(Vec::new());
        }
        let trace = self.trace_until(tid, until)?;
        let (_, thread) = self.thread(tid)?;
        let index = &thread.path.index;
        let at = index.entry_with(from)?;
        let entry = index.entries.get(at)?;
        // The trace ends in the segment of `until`.
        let last = index.entry_with(until);
        let end_of = |at: usize| {
            let end = index.entries.get(at).and_then(|entry| entry.end);
            end.filter(|_| last.is_none_or(|last| at < last)).unwrap_or(trace.len())
        };
        let (end, compared_end) = (end_of(at), end_of(at + 1));
        let (count, ip) = (from - entry.first, self.pc(tid, from)?);
        let segment = trace.get(entry.start..end)?;
        let reencoded = self.reencoded_rest(thread, entry, segment, count, ip)?;
        let mut caches = BlockCaches::default();
        let expected =
            self.items(thread, entry, trace.get(entry.start..compared_end)?, &mut caches)?;
        let packets = [&reencoded, trace.get(end..compared_end)?].concat();
        let actual = self.items(thread, entry, &packets, &mut caches)?;
        let same = extents(&without_first(expected, count, ip)?) == extents(&actual);
        same.then_some([&reencoded, trace.get(end..)?].concat())
    }

    /// Encodes a segment anew without its first `count` instructions. The next one is at `ip`.
    /// Returns the bytes; `None` if the segment has a gap or cannot be encoded.
    fn reencoded_rest(
        &self,
        thread: &Thread,
        entry: &SegmentEntry,
        segment: &[u8],
        count: u64,
        ip: Addr,
    ) -> Option<Vec<u8>> {
        let mut caches = BlockCaches::default();
        let items = self.items(thread, entry, segment, &mut caches)?;
        let all: u64 = extents(&items).iter().map(|extent| u64::from(extent.2)).sum();
        let after = self.pc(thread.tid, entry.first + all);
        // The last instructions of a segment may be known from the next segment only.
        let items = if count < all { without_first(items, count, ip)? } else { Vec::new() };
        let is_on = !matches!(items.first(), Some(PathItem::Event(_)));
        let mode = items.iter().find_map(|item| match item {
            PathItem::Span { span, .. } => Some(span.mode),
            PathItem::Event(_) => None,
        });
        let mut packets = psb_state(segment, is_on.then_some(ip), mode)?;
        for (at, item) in items.iter().enumerate() {
            add_packets(&mut packets, *item, &items[at + 1..], after)?;
        }
        let mut bytes = Vec::new();
        for packet in &packets {
            encode(packet, &mut bytes);
        }
        Some(bytes)
    }

    /// Returns the path that the packets `bytes` of a segment describe; `None` if it has a gap.
    fn items(
        &self,
        thread: &Thread,
        entry: &SegmentEntry,
        bytes: &[u8],
        caches: &mut BlockCaches,
    ) -> Option<Vec<PathItem>> {
        let mut items = Vec::new();
        let mut is_whole = true;
        self.decode_instead(thread, entry, bytes, caches, &mut |walker: &mut Walker<'_>, item| {
            match item {
                FlowItem::Block(span) => {
                    let is_call = span.exit == Exit::Call;
                    let last = if is_call { walker.last(&span) } else { None };
                    let is_indirect_call = last.is_some_and(|last| last.is_indirect_call);
                    items.push(PathItem::Span { span, is_indirect_call });
                }
                FlowItem::Event(event) => items.push(PathItem::Event(event.kind)),
                FlowItem::Gap(_) => is_whole = false,
            }
        });
        is_whole.then_some(items)
    }
}

/// Returns the extents of the spans among these items.
fn extents(items: &[PathItem]) -> Vec<Extent> {
    let extent = |item: &PathItem| match item {
        PathItem::Span { span, .. } => Some((span.ip, span.last, span.insns)),
        PathItem::Event(_) => None,
    };
    items.iter().filter_map(extent).collect()
}

/// Returns a path without its first `count` instructions and the events before the next one, which
/// is at `ip`. Keeps an event that enables tracing right before that instruction.
fn without_first(items: Vec<PathItem>, count: u64, ip: Addr) -> Option<Vec<PathItem>> {
    let mut before = 0;
    let split = items.iter().position(|item| {
        before += if let PathItem::Span { span, .. } = item { u64::from(span.insns) } else { 0 };
        before > count
    })?;
    let is_enabled = |item: &PathItem| matches!(item, PathItem::Event(EventKind::Enabled { .. }));
    let is_span = |item: &PathItem| matches!(item, PathItem::Span { .. });
    let enabled = items[..split].iter().rposition(|item| is_enabled(item) || is_span(item));
    let enabled = enabled.filter(|at| is_enabled(&items[*at]));
    let mut rest = Vec::from(enabled.map(|at| items[at]).as_slice());
    let mut items = items.into_iter().skip(split);
    let Some(PathItem::Span { mut span, is_indirect_call }) = items.next() else { return None };
    span.insns = u32::try_from(before - count).ok()?;
    if span.ip != ip {
        // The span is cut in its middle: tracing was on before it.
        rest.clear();
    }
    span.ip = ip;
    rest.push(PathItem::Span { span, is_indirect_call });
    rest.extend(items);
    Some(rest)
}

/// Returns the packets from a segment's PSB to its PSBEND, changed so that tracing is on at `ip`,
/// or off for `None`.
fn psb_state(segment: &[u8], ip: Option<Addr>, mode: Option<ExecMode>) -> Option<Vec<Packet>> {
    let packets = Packets::at(segment, 0).map(|(_, packet)| packet.ok());
    let mut state: Vec<Packet> =
        packets.take_while(|packet| *packet != Some(Packet::PsbEnd)).collect::<Option<_>>()?;
    state.retain(|packet| !matches!(packet, Packet::Fup(_)));
    // A trace may begin with tracing off: then the mode comes later.
    let has_mode = state.iter().any(|packet| matches!(packet, Packet::ModeExec { .. }));
    state.extend(
        mode.filter(|_| !has_mode).map(|mode| Packet::ModeExec { mode, interrupts: false }),
    );
    state.extend(ip.map(|ip| Packet::Fup(full_ip(ip))));
    state.push(Packet::PsbEnd);
    Some(state)
}

/// Adds the packets of an item, which is followed by `rest`. `after` is the address of the
/// instruction after the last item. Returns `None` if a target is unknown.
fn add_packets(
    packets: &mut Vec<Packet>,
    item: PathItem,
    rest: &[PathItem],
    after: Option<Addr>,
) -> Option<()> {
    let full_or_none = |ip: Option<Addr>| ip.map_or(NO_IP, full_ip);
    match item {
        // The packet of the event (TIP.PGD) includes the branch.
        PathItem::Span { .. } if is_disabled(rest) => {}
        PathItem::Span { span, is_indirect_call } => match span.exit {
            Exit::Taken => add_branch(packets, true),
            Exit::NotTaken => add_branch(packets, false),
            Exit::Next | Exit::Jmp => {}
            Exit::Call if !is_indirect_call => {}
            Exit::Unknown => return None,
            _ => packets.push(Packet::Tip(full_ip(rest.iter().find_map(next_of).or(after)?))),
        },
        PathItem::Event(EventKind::Enabled { ip }) => packets.push(Packet::TipPge(full_ip(ip))),
        PathItem::Event(EventKind::Disabled { ip, .. }) => {
            packets.push(Packet::TipPgd(full_or_none(ip)));
        }
        PathItem::Event(EventKind::AsyncDisabled { at, ip }) => {
            packets.extend([Packet::Fup(full_ip(at)), Packet::TipPgd(full_or_none(ip))]);
        }
        PathItem::Event(EventKind::AsyncBranch { from, to }) => {
            packets.extend([Packet::Fup(full_ip(from)), Packet::Tip(full_ip(to))]);
        }
        PathItem::Event(EventKind::Tsx { ip: Some(ip), in_tx, aborted }) => {
            packets.extend([Packet::ModeTsx { in_tx, aborted }, Packet::Fup(full_ip(ip))]);
        }
        // Not encoded. If the path depends on it, the comparison at the end fails.
        PathItem::Event(_) => {}
    }
    Some(())
}

/// Returns true if the branch before `rest` left the traced code.
fn is_disabled(rest: &[PathItem]) -> bool {
    let path = rest.iter().find(|item| next_of(item).is_some() || is_disable(item));
    path.is_some_and(is_disable)
}

/// Returns true if the item is the end of tracing by a branch.
fn is_disable(item: &PathItem) -> bool {
    matches!(item, PathItem::Event(EventKind::Disabled { .. }))
}

/// Returns the address of the instruction at which an item begins, if the item shows it.
fn next_of(item: &PathItem) -> Option<Addr> {
    match item {
        PathItem::Span { span, .. } => Some(span.ip),
        PathItem::Event(EventKind::AsyncDisabled { at, .. }) => Some(*at),
        PathItem::Event(EventKind::AsyncBranch { from, .. }) => Some(*from),
        PathItem::Event(EventKind::Tsx { ip, .. }) => *ip,
        PathItem::Event(_) => None,
    }
}

/// Adds the outcome of a conditional branch: to the last packet if that is a TNT packet with room
/// for it, otherwise in a new packet.
fn add_branch(packets: &mut Vec<Packet>, is_taken: bool) {
    let bit = u64::from(is_taken);
    match packets.last_mut() {
        Some(Packet::TntShort(tnt)) if tnt.len < SHORT_TNT_BRANCHES => {
            *tnt = Tnt { bits: tnt.bits << 1 | bit, len: tnt.len + 1 };
        }
        _ => packets.push(Packet::TntShort(Tnt { bits: bit, len: 1 })),
    }
}

const NO_IP: IpPayload = IpPayload { compression: IpCompression::Suppressed, value: 0 };

fn full_ip(ip: Addr) -> IpPayload {
    IpPayload { compression: IpCompression::Full, value: ip.0 }
}
