//! Builds traces packet by packet, and shows the decoded items as text.

use super::paths::decode;
use crate::common::Addr;
use crate::flow::{Code, Config, Decoder, EventKind, FlowItem};
use crate::image::CodeSource;
use crate::insn::ExecMode;
use crate::pt::{IpCompression, IpPayload, Packet, Tnt, encode};

/// Code at an address.
pub(super) struct Raw(pub(super) u64, pub(super) &'static [u8]);

impl CodeSource for Raw {
    fn read(&self, addr: Addr, buf: &mut [u8]) -> usize {
        let at = addr.0.checked_sub(self.0).and_then(|at| usize::try_from(at).ok());
        let rest = at.and_then(|at| self.1.get(at..)).unwrap_or_default();
        let len = rest.len().min(buf.len());
        buf[..len].copy_from_slice(&rest[..len]);
        len
    }
}

/// A trace under construction. Addresses are written in full.
#[derive(Clone, Debug, Default)]
pub(super) struct Trace(pub(super) Vec<u8>);

impl Trace {
    /// Creates a trace of a PSB+ with tracing on at `ip`.
    pub(super) fn on_at(ip: u64) -> Self {
        Self::default().psb_at(ip)
    }

    /// Creates a trace of a PSB+ with tracing off.
    pub(super) fn off() -> Self {
        Self::default().put(Packet::Psb).put(Packet::PsbEnd)
    }

    pub(super) fn put(mut self, packet: Packet) -> Self {
        encode(&packet, &mut self.0);
        self
    }

    pub(super) fn raw(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }

    pub(super) fn psb_at(self, ip: u64) -> Self {
        self.put(Packet::Psb).mode(ExecMode::Bits64).fup(ip).put(Packet::PsbEnd)
    }

    pub(super) fn mode(self, mode: ExecMode) -> Self {
        self.put(Packet::ModeExec { mode, interrupts: false })
    }

    /// Appends a TNT of outcomes given as `t` and `n`.
    pub(super) fn tnt(self, outcomes: &str) -> Self {
        let bits = outcomes.chars().fold(0, |bits, c| bits << 1 | u64::from(c == 't'));
        let len = u8::try_from(outcomes.len()).expect("a few outcomes");
        self.put(Packet::TntShort(Tnt { bits, len }))
    }

    pub(super) fn tip(self, ip: u64) -> Self {
        self.put(Packet::Tip(full(ip)))
    }

    pub(super) fn pge(self, ip: u64) -> Self {
        self.put(Packet::TipPge(full(ip)))
    }

    /// Appends a TIP.PGE with the low 16 bits of its IP.
    pub(super) fn pge_low(self, value: u64) -> Self {
        self.put(Packet::TipPge(IpPayload { compression: IpCompression::Update16, value }))
    }

    pub(super) fn pgd(self, ip: impl Into<Option<u64>>) -> Self {
        let none = IpPayload { compression: IpCompression::Suppressed, value: 0 };
        self.put(Packet::TipPgd(ip.into().map_or(none, full)))
    }

    pub(super) fn fup(self, ip: u64) -> Self {
        self.put(Packet::Fup(full(ip)))
    }

    pub(super) fn tsx(self, in_tx: bool, aborted: bool) -> Self {
        self.put(Packet::ModeTsx { in_tx, aborted })
    }

    pub(super) fn ovf(self) -> Self {
        self.put(Packet::Ovf)
    }

    /// Returns the decoded items as text: addresses of instructions, and short names of events and
    /// gaps.
    pub(super) fn shows(&self, code: &Raw, config: Config) -> String {
        let mut code = Code::new(code);
        let decoded = decode(Decoder::new(&self.0, config), &mut code);
        let mut words = Vec::new();
        for item in decoded.items {
            match item {
                FlowItem::Block(span) => {
                    let addrs = code.addrs(span.ip, span.mode, span.insns);
                    words.extend(addrs.map(|addr| format!("{:x}", addr.0)));
                }
                FlowItem::Event(event) => words.push(short(&event.kind)),
                FlowItem::Gap(gap) => words.push(format!("gap({})", gap.reason)),
            }
        }
        words.join(" ")
    }
}

fn full(ip: u64) -> IpPayload {
    IpPayload { compression: IpCompression::Full, value: ip }
}

fn hex(ip: Option<Addr>) -> String {
    ip.map_or_else(|| "?".into(), |ip| format!("{:x}", ip.0))
}

fn short(kind: &EventKind) -> String {
    match *kind {
        EventKind::Enabled { ip } => format!("on({:x})", ip.0),
        EventKind::Disabled { at, ip } => format!("off({:x}>{})", at.0, hex(ip)),
        EventKind::AsyncDisabled { at, ip } => format!("async-off({:x}>{})", at.0, hex(ip)),
        EventKind::AsyncBranch { from, to } => format!("async({:x}>{:x})", from.0, to.0),
        EventKind::Overflow { ip } => format!("lost(>{})", hex(ip)),
        EventKind::ExecMode { mode } => format!("{mode:?}"),
        EventKind::Interrupts { enabled } => format!("if({})", u8::from(enabled)),
        EventKind::Tsx { ip, in_tx, aborted } => match (in_tx, aborted) {
            (true, _) => format!("begin({})", hex(ip)),
            (_, true) => format!("abort({})", hex(ip)),
            _ => format!("commit({})", hex(ip)),
        },
        EventKind::Paging { cr3, .. } => format!("cr3({cr3:x})"),
        EventKind::Vmcs { base } => format!("vmcs({base:x})"),
        EventKind::Stop => "stop".into(),
        EventKind::Ptwrite { ip, value, .. } => format!("ptw({}:{value:x})", hex(ip)),
        EventKind::Tsc(tsc) => format!("tsc({tsc})"),
        EventKind::Cbr(ratio) => format!("cbr({ratio})"),
        EventKind::Note { ip, packet } => {
            let name = format!("{packet:?}");
            let name = name.split(' ').next().unwrap_or_default().to_lowercase();
            format!("{name}({})", hex(ip))
        }
    }
}
