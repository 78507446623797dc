//! The unit itself: what the processor does goes in, packets come out. Knows nothing of where the
//! bytes are stored.

use super::returns::ReturnStack;
use super::tnt::TntBuffer;
use super::{Branch, BranchKind, Config, RtitCtl};
use crate::common::{Addr, Tsc};
use crate::pt::{ExecMode, IpCompression, IpPayload, LastIp, Packet, encode};

const SUPPRESSED: IpPayload = IpPayload { compression: IpCompression::Suppressed, value: 0 };

/// A PT unit and the state of the processor that it watches.
///
/// It starts at CPL 0, as perf starts the hardware from inside the kernel, and its first packets
/// are a PSB+.
#[derive(Clone, Debug)]
pub struct Unit {
    pub(super) config: Config,
    /// Where execution stands: the next instruction's address.
    pub(super) ip: Addr,
    pub(super) cpl: u8,
    pub(super) mode: ExecMode,
    pub(super) interrupts: bool,
    /// The mode that the trace tells up to here; none where it may have changed unseen.
    pub(super) told_mode: Option<(ExecMode, bool)>,
    pub(super) tsc: Option<Tsc>,
    pub(super) last_ip: LastIp,
    pub(super) returns: ReturnStack,
    tnt: TntBuffer,
    out: Vec<u8>,
    /// Bytes written since the last PSB, or none before the first.
    pub(super) since_psb_bytes: Option<u64>,
}

impl Unit {
    /// A unit that traces as `config` says, in 64-bit code.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self {
            config,
            ip: Addr(0),
            cpl: 0,
            mode: ExecMode::Bits64,
            interrupts: false,
            told_mode: None,
            tsc: None,
            last_ip: LastIp::new(),
            returns: ReturnStack::new(),
            tnt: TntBuffer::new(config.tnt),
            out: Vec::new(),
            since_psb_bytes: None,
        }
    }

    /// Execution goes on at `ip` with privilege level `cpl`, coming from code that is not told
    /// about: the kernel's return to a program, a thread's first instruction.
    pub fn enter(&mut self, ip: Addr, cpl: u8) {
        let (from, kind) = (self.ip, BranchKind::Far);
        self.branch(&Branch { kind, ip: from, next: from, target: ip, cpl });
    }

    /// A branch was executed.
    pub fn branch(&mut self, branch: &Branch) {
        self.psb_if_due();
        let was_on = self.packet_en();
        self.land(branch.landing(), branch.cpl);
        match (was_on, self.packet_en()) {
            (true, true) => self.follow(branch),
            (true, false) => self.disable(branch),
            (false, true) => self.tip_pge(),
            (false, false) => {}
        }
        self.psb_if_due();
    }

    /// Something asynchronous (interrupt, exception, signal) took execution from `ip`, which was
    /// not executed or not completed, to `target` at privilege level `cpl`.
    pub fn interrupt(&mut self, ip: Addr, target: Addr, cpl: u8) {
        self.psb_if_due();
        let was_on = self.packet_en();
        self.land(target, cpl);
        if was_on {
            self.fup(ip);
        }
        match (was_on, self.packet_en()) {
            (true, true) => self.tip(target),
            (true, false) => self.tip_pgd(None),
            (false, true) => self.tip_pge(),
            (false, false) => {}
        }
        self.psb_if_due();
    }

    /// Sets the time-stamp counter. Writes nothing: the next packet that tells it does.
    pub fn set_tsc(&mut self, tsc: Tsc) {
        self.tsc = Some(tsc);
    }

    /// Writes a TSC packet now, where `TSCEn` is set and a time is known.
    pub fn stamp(&mut self) {
        self.psb_if_due();
        if let Some(packet) = self.tsc_packet() {
            self.put(&packet);
        }
    }

    /// Sets the code's width and RFLAGS.IF. The trace tells them with the next packet that can.
    pub fn set_mode(&mut self, mode: ExecMode, interrupts: bool) {
        (self.mode, self.interrupts) = (mode, interrupts);
    }

    /// Writes a PSB+ now.
    pub fn psb(&mut self) {
        self.put_psb();
    }

    /// Writes the branch outcomes that wait for more to fill a packet.
    pub fn flush(&mut self) {
        if let Some(packet) = self.tnt.take() {
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

    /// `PacketEn`: whether packets about control flow are generated.
    #[must_use]
    pub fn packet_en(&self) -> bool {
        let ctl = self.config.ctl;
        let level = if self.cpl == 0 { RtitCtl::OS } else { RtitCtl::USER };
        ctl.has(RtitCtl::TRACE_EN | RtitCtl::BRANCH_EN | level)
    }

    fn land(&mut self, ip: Addr, cpl: u8) {
        (self.ip, self.cpl) = (ip, cpl);
    }

    /// A branch with packets on before and after it.
    fn follow(&mut self, branch: &Branch) {
        match branch.kind {
            BranchKind::Jcc { taken } => self.outcome(taken),
            BranchKind::Jmp => {}
            BranchKind::Call => self.call(branch),
            BranchKind::JmpIndirect | BranchKind::Far => self.tip(branch.target),
            BranchKind::CallIndirect => {
                self.tip(branch.target);
                self.returns.push(branch.next);
            }
            BranchKind::Ret => self.ret(branch.target),
        }
    }

    fn call(&mut self, branch: &Branch) {
        // A call to the next instruction only reads the IP; no return matches it.
        if branch.target != branch.next {
            self.returns.push(branch.next);
        }
    }

    fn ret(&mut self, target: Addr) {
        let compress = !self.config.ctl.has(RtitCtl::DIS_RETC);
        if compress && self.returns.matches(target) {
            self.outcome(true);
        } else {
            self.tip(target);
        }
    }

    /// A branch that turned packets off.
    fn disable(&mut self, _branch: &Branch) {
        self.tip_pgd(None);
    }

    fn outcome(&mut self, taken: bool) {
        if let Some(packet) = self.tnt.push(taken) {
            self.write(&packet);
        }
    }

    fn tip(&mut self, target: Addr) {
        self.tell_mode();
        let payload = self.last_ip.compress(target);
        self.put(&Packet::Tip(payload));
    }

    fn fup(&mut self, ip: Addr) {
        let payload = self.last_ip.compress(ip);
        self.put(&Packet::Fup(payload));
    }

    fn tip_pge(&mut self) {
        self.tell_mode();
        let payload = self.last_ip.compress(self.ip);
        self.put(&Packet::TipPge(payload));
    }

    fn tip_pgd(&mut self, target: Option<Addr>) {
        let payload = target.map_or(SUPPRESSED, |target| self.last_ip.compress(target));
        self.put(&Packet::TipPgd(payload));
        self.told_mode = None;
    }

    /// MODE.Exec, where the trace does not tell the mode yet.
    fn tell_mode(&mut self) {
        if self.told_mode != Some((self.mode, self.interrupts)) {
            self.put_mode();
        }
    }

    pub(super) fn put_mode(&mut self) {
        self.told_mode = Some((self.mode, self.interrupts));
        self.put(&Packet::ModeExec { mode: self.mode, interrupts: self.interrupts });
    }

    pub(super) fn tsc_packet(&self) -> Option<Packet> {
        let on = self.config.ctl.has(RtitCtl::TSC_EN);
        self.tsc.filter(|_| on).map(|tsc| Packet::Tsc(tsc.0 & 0x00ff_ffff_ffff_ffff))
    }

    /// Writes a packet behind the branch outcomes that came before it.
    pub(super) fn put(&mut self, packet: &Packet) {
        self.flush();
        self.write(packet);
    }

    fn write(&mut self, packet: &Packet) {
        let before = self.out.len();
        encode(packet, &mut self.out);
        if let Some(count) = &mut self.since_psb_bytes {
            *count += (self.out.len() - before) as u64;
        }
    }
}
