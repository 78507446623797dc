//! The unit: its state, and the output of packets to its buffer. The files beside this one generate
//! the packets of each kind of event; `output` stores the bytes. A method named `put_` writes
//! packets; those of *control flow* are TNT, TIP, TIP.PGE, TIP.PGD, FUP and MODE.

use super::circle::StraightRuns;
use super::context::{Context, Mode, Staged};
use super::filter::{IpRange, Verdict, has_filter, verdict_on};
use super::returns::ReturnStack;
use super::time::Clock;
use super::tnt::TntBuffer;
use super::{Config, Paging, RtitCtl, RtitStatus};
use crate::common::Addr;
use crate::insn::ExecMode;
use crate::pt::{IpCompression, IpPayload, LastIp, Packet, encode};

const SUPPRESSED: IpPayload = IpPayload { compression: IpCompression::Suppressed, value: 0 };

/// A PT unit and the processor state that it observes.
///
/// Its first packets are a PSB+ without an IP, as when perf starts the hardware from inside the
/// kernel.
#[derive(Clone, Debug)]
pub struct Unit {
    pub(super) config: Config,
    /// The state of the processor.
    pub(super) context: Context,
    /// The state that it has from the next far transfer, interrupt or [`Unit::enter`] on.
    pub(super) staged: Staged,
    pub(super) status: RtitStatus,
    pub(super) clock: Clock,
    /// The mode last reported in the trace; `None` after a PSB without a MODE.Exec.
    pub(super) reported_mode: Option<Mode>,
    pub(super) last_ip: LastIp,
    pub(super) returns: ReturnStack,
    /// Branch outcomes and TIPs that are not written yet.
    pub(super) tnt: TntBuffer,
    /// The straight code executed since the trace last determined the position, to find circles:
    /// loops without packets (see `circle`). A packet that determines the position empties it.
    pub(super) runs: StraightRuns,
    pub(super) overflow: super::overflow::Overflow,
    /// The number of bytes written since the last PSB: `PacketByteCnt`, without its limit of 17
    /// bits. 0 before the first PSB, which the next event writes.
    pub(super) since_psb_bytes: u64,
    /// The bytes that are not drained yet.
    out: Vec<u8>,
}

impl Unit {
    /// Creates a unit with this configuration, in 64-bit code at CPL 0, with 0 as CR3 and IP, and
    /// without a time. It is on if the configuration sets `TraceEn`. It traces no code before
    /// [`Unit::enter`] or another event sets the position.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let mut unit = Self {
            config,
            context: Context::new(),
            staged: Staged::default(),
            status: RtitStatus::default(),
            clock: Clock::new(&config),
            reported_mode: None,
            last_ip: LastIp::new(),
            returns: ReturnStack::new(),
            tnt: TntBuffer::new(&config),
            runs: StraightRuns::default(),
            overflow: super::overflow::Overflow::None,
            since_psb_bytes: 0,
            out: Vec::new(),
        };
        let on = config.ctl.has(RtitCtl::TRACE_EN);
        unit.status.set(RtitStatus::TRIGGER_EN, on);
        unit.status.set(RtitStatus::FILTER_EN, !has_filter(config.ctl));
        unit
    }

    /// Returns the unit's configuration.
    #[must_use]
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// Returns `IA32_RTIT_STATUS` without `PacketByteCnt`.
    #[must_use]
    pub const fn status(&self) -> RtitStatus {
        self.status
    }

    /// Returns the number of bytes written since the last PSB: `PacketByteCnt`, without its limit
    /// of 17 bits.
    pub(super) const fn packet_byte_count(&self) -> u64 {
        self.since_psb_bytes
    }

    /// Replaces the configuration, and drops buffered branch outcomes and deferred TIPs. Must be
    /// called while the unit is off: the enables follow at the next [`Unit::enable`]. The ratios of
    /// the clocks stay those that the unit was created with.
    pub(super) fn configure(&mut self, config: Config) {
        self.config = config;
        self.tnt = TntBuffer::new(&config);
    }

    /// Replaces the `ADDRn` ranges by `ranges`, and the `ADDRn_CFG` fields by those of `ctl`, whose
    /// other bits are ignored. No packet reports the change, and the current position is not
    /// compared with the new ranges before the next taken transfer. So new ranges may only contain
    /// code that is not executed yet. Nothing is checked: an `ADDRn_CFG` above 2 counts as unused.
    pub fn set_ranges(&mut self, ctl: RtitCtl, ranges: [IpRange; 4]) {
        for n in 0..ranges.len() {
            self.config.ctl = self.config.ctl.with_addr_cfg(n, ctl.addr_cfg(n));
        }
        self.config.ranges = ranges;
    }

    /// Returns true if code at `ip` is traced by the ranges, or stops the trace; ignores privilege
    /// level, CR3, enclave and `BranchEn`. Returns false while `TriggerEn` is clear.
    #[must_use]
    pub fn affects_trace(&self, ip: Addr) -> bool {
        self.trigger_en() && verdict_on(self.config.ctl, &self.config.ranges, ip) != Verdict::Skip
    }

    /// Sets `Error` and `Stopped` as in `status`, and `PacketByteCnt`. Must be called while the
    /// unit is off.
    pub(super) fn restore_status(&mut self, status: RtitStatus, packet_byte_count: u64) {
        for flag in [RtitStatus::ERROR, RtitStatus::STOPPED] {
            self.status.set(flag, status.has(flag));
        }
        self.since_psb_bytes = packet_byte_count;
    }

    /// Ends tracing at once: clears `TriggerEn`, and sets `why`, which is `Error` or `Stopped`.
    /// `TraceEn` stays set. Buffered branch outcomes, and packets that are not drained yet, are
    /// lost; an overflow ends without an OVF.
    pub(super) fn halt(&mut self, why: RtitStatus) {
        self.status.set(why, true);
        self.clear_trigger();
        self.overflow = super::overflow::Overflow::None;
        self.tnt.take_packets().for_each(drop);
        self.out.clear();
    }

    /// Returns `PacketEn`: true if control flow packets are generated. Also true in an overflow,
    /// which loses them.
    #[must_use]
    pub const fn packet_en(&self) -> bool {
        self.in_context()
            && self.status.has(RtitStatus::FILTER_EN)
            && self.config.ctl.has(RtitCtl::BRANCH_EN)
    }

    /// Returns true if `TriggerEn` and `ContextEn` are set.
    pub(super) const fn in_context(&self) -> bool {
        self.trigger_en() && self.status.has(RtitStatus::CONTEXT_EN)
    }

    /// Returns true if `TriggerEn` is set.
    pub(super) const fn trigger_en(&self) -> bool {
        self.status.has(RtitStatus::TRIGGER_EN)
    }

    /// Sets the code's width and RFLAGS.IF from the next far transfer, interrupt or [`Unit::enter`]
    /// on. Until then, the last call counts.
    pub fn set_mode(&mut self, width: ExecMode, interrupts: bool) {
        self.staged.mode = Some(Mode { width, interrupts });
    }

    /// Sets CR3 and the kind of VMX operation from the next far transfer (task switch, VM entry),
    /// interrupt (VM exit) or [`Unit::enter`] on. [`Unit::mov_cr3`] sets CR3 at once.
    pub fn set_paging(&mut self, paging: Paging) {
        self.staged.paging = Some(paging);
    }

    /// Enters or leaves an enclave that is not a debug enclave, with the next far transfer,
    /// interrupt or [`Unit::enter`]: not at once. No code in it is traced.
    pub fn set_enclave(&mut self, inside: bool) {
        self.staged.in_enclave = Some(inside);
    }

    /// Writes the buffered branch outcomes and deferred TIPs now, before the outcomes fill a
    /// packet. Drops them while `TriggerEn` is clear or in an overflow.
    pub fn flush(&mut self) {
        for packet in self.tnt.take_packets() {
            self.put_unflushed(&packet);
        }
    }

    /// Returns the number of bytes that [`Unit::drain`] would return.
    #[must_use]
    pub fn pending_bytes(&self) -> usize {
        self.out.len()
    }

    /// Removes and returns the bytes of the packets written since the last call. They end at a
    /// packet boundary, and do not include buffered branch outcomes ([`Unit::flush`] writes those).
    pub fn drain(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.out)
    }

    /// Writes `packet` as it is, after the buffered branch outcomes and, if it can take one, a CYC.
    /// Does not set the unit's state by it: for packets without a cause in this model (MNT, PAD,
    /// the blocks of BIP packets), and for tests of decoders. Writes nothing while `TriggerEn` is
    /// clear or in an overflow. A PSB+ precedes it if the trace has none yet; none follows, even if
    /// one is due, since it would end a block.
    pub fn inject(&mut self, packet: &Packet) {
        self.begin_event();
        self.put(packet);
    }

    /// Starts an event: writes the PSB+ at the start of tracing if that is due. Each method that
    /// traces an event calls this first, and [`Self::end_event`] last. Exceptions are
    /// [`Unit::flow_event`] and [`Unit::inject`], after whose packets no PSB+ may come, and
    /// [`Unit::overflow_begin`] and [`Unit::disable`], after which nothing is written.
    pub(super) fn begin_event(&mut self) {
        if self.since_psb_bytes == 0 {
            self.put_psb(self.packet_en());
        }
    }

    /// Ends an event: writes a PSB+ if enough bytes were written since the last one.
    pub(super) fn end_event(&mut self) {
        if self.since_psb_bytes >= self.config.psb_period_bytes() {
            self.put_psb(self.packet_en());
        }
    }

    /// Adds the outcome of a conditional branch or compressed return to the buffer, and before the
    /// first one writes a CYC, if that is due. If the outcome fills the TNT, writes it and the
    /// deferred TIPs.
    pub(super) fn put_outcome(&mut self, taken: bool) {
        self.runs.clear();
        if self.tnt.is_empty() {
            // The CYC gives the time of the first branch in the packet.
            self.put_cyc();
        }
        for packet in self.tnt.push(taken) {
            self.put_unflushed(&packet);
        }
    }

    /// Writes a TIP, and before it MODE.Exec if the trace has not reported the current mode.
    pub(super) fn put_tip(&mut self, target: Addr) {
        self.runs.clear();
        self.put_mode_if_changed();
        let payload = self.last_ip.compress(target);
        self.put(&Packet::Tip(payload));
    }

    /// Writes the TIP of a near indirect branch as [`Self::put_tip`] does, or defers it until the
    /// TNT before it is full.
    pub(super) fn put_or_defer_tip(&mut self, target: Addr) {
        self.runs.clear();
        if self.tnt.must_defer_tips() {
            let payload = self.last_ip.compress(target);
            self.tnt.defer(Packet::Tip(payload));
        } else {
            self.put_tip(target);
        }
    }

    /// Writes a FUP with `ip`.
    pub(super) fn put_fup(&mut self, ip: Addr) {
        self.runs.clear();
        let payload = self.last_ip.compress(ip);
        self.put(&Packet::Fup(payload));
    }

    /// Writes a TIP.PGE with `ip`, and before it MODE.Exec if the trace has not reported the
    /// current mode. Does not change the enables.
    pub(super) fn put_tip_pge(&mut self, ip: Addr) {
        self.runs.clear();
        self.put_mode_if_changed();
        let payload = self.last_ip.compress(ip);
        self.put(&Packet::TipPge(payload));
    }

    /// Writes a TIP.PGD with `target`, or without an IP for `None`. Forgets the return addresses.
    /// Does not change the enables.
    pub(super) fn put_tip_pgd(&mut self, target: Option<Addr>) {
        self.runs.clear();
        let payload = target.map_or(SUPPRESSED, |target| self.last_ip.compress(target));
        self.put(&Packet::TipPgd(payload));
        // Returns are not compressed across a gap without packets.
        self.returns.clear();
    }

    /// Writes MODE.Exec if the trace has not reported the current mode.
    fn put_mode_if_changed(&mut self) {
        if self.reported_mode != Some(self.context.mode) {
            self.put_mode();
        }
    }

    /// Writes MODE.Exec with the current mode.
    pub(super) fn put_mode(&mut self) {
        let mode = self.context.mode;
        let interrupts = mode.interrupts && self.config.ctl.has(RtitCtl::EVENT_EN);
        self.reported_mode = Some(mode);
        self.put(&Packet::ModeExec { mode: mode.width, interrupts });
    }

    /// Writes the buffered branch outcomes, a CYC if the packet can take one, and then the packet.
    /// Drops it while `TriggerEn` is clear or in an overflow.
    pub(super) fn put(&mut self, packet: &Packet) {
        self.flush();
        if is_cyc_eligible(packet) {
            self.put_cyc();
        }
        self.put_unflushed(packet);
    }

    /// Writes only this packet: leaves the buffered branch outcomes in the buffer, and writes no
    /// CYC before it. Drops it as [`Self::put`] does.
    pub(super) fn put_unflushed(&mut self, packet: &Packet) {
        if self.trigger_en() && !self.overflow.loses(packet) {
            self.put_unchecked(packet);
        }
    }

    /// Writes only this packet, without the buffered branch outcomes or a CYC, even while
    /// `TriggerEn` is clear or in an overflow.
    pub(super) fn put_unchecked(&mut self, packet: &Packet) {
        let before = self.out.len();
        encode(packet, &mut self.out);
        self.since_psb_bytes += (self.out.len() - before) as u64;
    }
}

/// Returns true if a CYC precedes the packet (SDM section "Cycle-Accurate Mode"). One also precedes
/// TNT, but at the time of its first branch.
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
