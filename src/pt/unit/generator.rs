//! The unit itself: its state, and how packets get into its buffer. What packets the processor's
//! doings cause is in the files beside this one; where the bytes go is in `output`.

use super::circle::Walked;
use super::context::{Context, Mode, Staged};
use super::filter::{IpRange, Verdict, filters, judge};
use super::returns::ReturnStack;
use super::time::Clock;
use super::tnt::TntBuffer;
use super::{Config, Paging, RtitCtl, RtitStatus};
use crate::common::Addr;
use crate::insn::ExecMode;
use crate::pt::{IpCompression, IpPayload, LastIp, Packet, encode};

const SUPPRESSED: IpPayload = IpPayload { compression: IpCompression::Suppressed, value: 0 };

/// A PT unit and the state of the processor that it watches.
///
/// Its first packets are a PSB+ without an IP, as when perf starts the hardware from inside the
/// kernel.
#[derive(Clone, Debug)]
pub struct Unit {
    pub(super) config: Config,
    pub(super) context: Context,
    pub(super) staged: Staged,
    pub(super) status: RtitStatus,
    pub(super) clock: Clock,
    /// The mode that the trace told last; none behind a PSB without one.
    pub(super) told_mode: Option<Mode>,
    pub(super) last_ip: LastIp,
    pub(super) returns: ReturnStack,
    pub(super) tnt: TntBuffer,
    pub(super) walked: Walked,
    pub(super) overflow: super::overflow::Overflow,
    /// `PacketByteCnt`, not cut to its 17 bits: bytes written since the last PSB. 0 makes one due.
    pub(super) since_psb_bytes: u64,
    out: Vec<u8>,
}

impl Unit {
    /// A unit that traces as `config` says, in 64-bit code. It is on if the configuration has
    /// `TraceEn` set. No code is traced before [`Unit::enter`] or another event says where
    /// execution stands.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let mut unit = Self {
            config,
            context: Context::new(),
            staged: Staged::default(),
            status: RtitStatus::default(),
            clock: Clock::new(&config),
            told_mode: None,
            last_ip: LastIp::new(),
            returns: ReturnStack::new(),
            tnt: TntBuffer::new(&config),
            walked: Walked::default(),
            overflow: super::overflow::Overflow::None,
            since_psb_bytes: 0,
            out: Vec::new(),
        };
        let on = config.ctl.has(RtitCtl::TRACE_EN);
        unit.status.set(RtitStatus::TRIGGER_EN, on);
        unit.status.set(RtitStatus::FILTER_EN, !filters(config.ctl));
        unit
    }

    /// The unit's configuration.
    #[must_use]
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// `IA32_RTIT_STATUS` without `PacketByteCnt`.
    #[must_use]
    pub const fn status(&self) -> RtitStatus {
        self.status
    }

    /// `PacketByteCnt`, not cut to its 17 bits: bytes of trace since the last PSB.
    pub(super) const fn packet_byte_count(&self) -> u64 {
        self.since_psb_bytes
    }

    /// Takes over another configuration; for while the unit is off.
    pub(super) fn configure(&mut self, config: Config) {
        self.config = config;
        self.tnt = TntBuffer::new(&config);
    }

    /// Takes over other `ADDRn` ranges, and what they are for, from `ctl`. No packet tells it: for
    /// ranges of code that is not executed yet.
    pub fn set_ranges(&mut self, ctl: RtitCtl, ranges: [IpRange; 4]) {
        for n in 0..ranges.len() {
            self.config.ctl = self.config.ctl.with_addr_cfg(n, ctl.addr_cfg(n));
        }
        self.config.ranges = ranges;
    }

    /// Whether a branch to `ip` at a traced privilege level gives packets: `TriggerEn` is set, and
    /// the ranges let it be traced or stop the trace.
    #[must_use]
    pub fn judges(&self, ip: Addr) -> bool {
        self.triggered() && judge(self.config.ctl, &self.config.ranges, ip) != Verdict::Skip
    }

    /// Sets `Error` and `Stopped` as in `status`, and `PacketByteCnt`; for while the unit is off.
    pub(super) fn restore_status(&mut self, status: RtitStatus, packet_byte_count: u64) {
        for flag in [RtitStatus::ERROR, RtitStatus::STOPPED] {
            self.status.set(flag, status.has(flag));
        }
        self.since_psb_bytes = packet_byte_count;
    }

    /// Ends tracing where it stands, for the reason `why`. What is not yet output is lost.
    pub(super) fn halt(&mut self, why: RtitStatus) {
        self.status.set(why, true);
        self.clear_trigger();
        self.overflow = super::overflow::Overflow::None;
        self.tnt.take().for_each(drop);
        self.out.clear();
    }

    /// `PacketEn`: whether packets about control flow are generated.
    #[must_use]
    pub const fn packet_en(&self) -> bool {
        self.in_context()
            && self.status.has(RtitStatus::FILTER_EN)
            && self.config.ctl.has(RtitCtl::BRANCH_EN)
    }

    /// `TriggerEn` and `ContextEn`.
    pub(super) const fn in_context(&self) -> bool {
        self.triggered() && self.status.has(RtitStatus::CONTEXT_EN)
    }

    /// `TriggerEn`.
    pub(super) const fn triggered(&self) -> bool {
        self.status.has(RtitStatus::TRIGGER_EN)
    }

    /// Sets the code's width and RFLAGS.IF from the next far transfer, interrupt or entry on.
    pub fn set_mode(&mut self, width: ExecMode, interrupts: bool) {
        self.staged.mode = Some(Mode { width, interrupts });
    }

    /// Sets CR3 and the kind of VMX operation from the next far transfer (task switch, VM entry),
    /// interrupt (VM exit) or entry on.
    pub fn set_paging(&mut self, paging: Paging) {
        self.staged.paging = Some(paging);
    }

    /// Enters or leaves an enclave that is not a debug enclave with the next far transfer or
    /// interrupt.
    pub fn set_enclave(&mut self, inside: bool) {
        self.staged.in_enclave = Some(inside);
    }

    /// Writes the branch outcomes that wait for more to fill a packet.
    pub fn flush(&mut self) {
        for packet in self.tnt.take() {
            self.write(&packet);
        }
    }

    /// Bytes that [`Unit::drain`] would give.
    #[must_use]
    pub fn pending_bytes(&self) -> usize {
        self.out.len()
    }

    /// The bytes of the packets written since the last call. Ends between two packets; branch
    /// outcomes that wait are not in it ([`Unit::flush`] writes them).
    pub fn drain(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.out)
    }

    /// Writes `packet` as it is: for packets that the model knows no cause for (MNT, PAD, the
    /// blocks of BIP packets), and for tests of decoders.
    pub fn inject(&mut self, packet: &Packet) {
        self.begin();
        self.put(packet);
    }

    /// What comes before every event: the PSB+ that tracing begins with.
    pub(super) fn begin(&mut self) {
        if self.since_psb_bytes == 0 {
            self.put_psb(self.packet_en());
        }
    }

    /// What comes behind every event: a PSB+ if enough bytes went by.
    pub(super) fn end(&mut self) {
        if self.since_psb_bytes >= self.config.psb_period_bytes() {
            self.put_psb(self.packet_en());
        }
    }

    pub(super) fn outcome(&mut self, taken: bool) {
        self.walked.clear();
        if self.tnt.is_empty() {
            // A CYC gives the time of the first branch in the packet.
            self.put_cyc();
        }
        for packet in self.tnt.push(taken) {
            self.write(&packet);
        }
    }

    pub(super) fn tip(&mut self, target: Addr) {
        self.walked.clear();
        self.tell_mode();
        let payload = self.last_ip.compress(target);
        self.put(&Packet::Tip(payload));
    }

    /// The TIP of a near indirect branch, which may be deferred.
    pub(super) fn tip_indirect(&mut self, target: Addr) {
        self.walked.clear();
        if self.tnt.defers() {
            let payload = self.last_ip.compress(target);
            self.tnt.defer(Packet::Tip(payload));
        } else {
            self.tip(target);
        }
    }

    pub(super) fn fup(&mut self, ip: Addr) {
        self.walked.clear();
        let payload = self.last_ip.compress(ip);
        self.put(&Packet::Fup(payload));
    }

    pub(super) fn tip_pge(&mut self, ip: Addr) {
        self.walked.clear();
        self.tell_mode();
        let payload = self.last_ip.compress(ip);
        self.put(&Packet::TipPge(payload));
    }

    pub(super) fn tip_pgd(&mut self, target: Option<Addr>) {
        self.walked.clear();
        let payload = target.map_or(SUPPRESSED, |target| self.last_ip.compress(target));
        self.put(&Packet::TipPgd(payload));
        // No return is compressed across a stretch without packets.
        self.returns.clear();
    }

    /// MODE.Exec, where the trace does not tell the mode yet.
    fn tell_mode(&mut self) {
        if self.told_mode != Some(self.context.mode) {
            self.put_mode();
        }
    }

    pub(super) fn put_mode(&mut self) {
        let mode = self.context.mode;
        let interrupts = mode.interrupts && self.config.ctl.has(RtitCtl::EVENT_EN);
        self.told_mode = Some(mode);
        self.put(&Packet::ModeExec { mode: mode.width, interrupts });
    }

    /// Writes a packet behind all that came before it.
    pub(super) fn put(&mut self, packet: &Packet) {
        self.flush();
        if is_cyc_eligible(packet) {
            self.put_cyc();
        }
        self.write(packet);
    }

    /// Writes a packet without a look at those that wait.
    pub(super) fn write(&mut self, packet: &Packet) {
        if self.triggered() && !self.overflow.loses(packet) {
            self.emit(packet);
        }
    }

    /// Writes a packet, whatever the enables say.
    pub(super) fn emit(&mut self, packet: &Packet) {
        let before = self.out.len();
        encode(packet, &mut self.out);
        self.since_psb_bytes += (self.out.len() - before) as u64;
    }
}

/// Whether a CYC precedes the packet (SDM section "Cycle-Accurate Mode"). TNT is, too, but at the
/// time of its first branch.
const fn is_cyc_eligible(packet: &Packet) -> bool {
    matches!(
        packet,
        Packet::Tip(_)
            | Packet::TipPge(_)
            | Packet::TipPgd(_)
            | Packet::ModeExec { .. }
            | Packet::ModeTsx { .. }
            | Packet::Pip { .. }
            | Packet::Vmcs(_)
            | Packet::Ovf
            | Packet::Mtc(_)
            | Packet::Tsc(_)
            | Packet::Ptw { .. }
            | Packet::ExStop { .. }
            | Packet::Mwait { .. }
    )
}
