//! Converts branches, interrupts and other changes of flow to packets (SDM section "Packet
//! Generation Scenarios", table "Packet Generation under Different Enable Conditions").

use super::filter::{Verdict, filters, judge};
use super::{Branch, BranchKind, Paging, RtitCtl, RtitStatus, Unit};
use crate::common::Addr;
use crate::pt::Packet;

impl Unit {
    /// Traces the entry to `ip` with privilege level `cpl`, after code that is not reported: the
    /// kernel's return to a program, a thread's first instruction.
    pub fn enter(&mut self, ip: Addr, cpl: u8) {
        let (from, kind) = (self.context.ip, BranchKind::Far);
        self.branch(&Branch { kind, ip: from, next: from, target: ip, cpl });
    }

    /// Traces an executed branch.
    pub fn branch(&mut self, branch: &Branch) {
        self.begin();
        let was_on = self.packet_en();
        let is_reported = self.close_circle(branch);
        let before = self.context.paging;
        if branch.kind == BranchKind::Far {
            self.context.apply(std::mem::take(&mut self.staged));
        }
        let stop = self.land(branch.landing(), branch.cpl, branch.is_taken());
        self.write_paging(before);
        match (was_on, self.packet_en()) {
            (true, true) if is_reported => {}
            (true, true) => self.follow(branch),
            (true, false) => self.tip_pgd(self.exposed(branch)),
            (false, true) => self.tip_pge(self.context.ip),
            (false, false) => {}
        }
        self.stop_if(stop);
        self.end();
    }

    /// Traces a transfer from `ip`, which was not executed or not completed, to `target` at
    /// privilege level `cpl`: an interrupt, an exception, a signal, a VM exit; also `INT n`, whose
    /// own address is `ip`.
    pub fn interrupt(&mut self, ip: Addr, target: Addr, cpl: u8) {
        self.begin();
        let was_on = self.packet_en();
        let before = self.context.paging;
        self.context.apply(std::mem::take(&mut self.staged));
        if was_on {
            self.reach(ip);
            self.fup(ip);
        }
        let stop = self.land(target, cpl, true);
        self.write_paging(before);
        self.arrive(was_on);
        self.stop_if(stop);
        self.end();
    }

    /// Traces `MOV CR3`; `next` is the address of the next instruction.
    pub fn mov_cr3(&mut self, next: Addr, cr3: u64) {
        self.begin();
        let was_on = self.packet_en();
        self.context.paging.cr3 = cr3;
        let stop = self.land(next, self.context.cpl, true);
        self.put_pip();
        self.walked.clear();
        match (was_on, self.packet_en()) {
            (true, false) => self.tip_pgd(None),
            (false, true) => self.tip_pge(self.context.ip),
            _ => {}
        }
        self.stop_if(stop);
        self.end();
    }

    /// Sets `TraceEn`, by a `WRMSR` or similar; `next` is the address of the next instruction.
    /// Writes a TIP.PGE if the code there is traced.
    ///
    /// `packet_byte_count` is `PacketByteCnt`: 0 writes a PSB+; otherwise the trace continues an
    /// earlier one.
    pub fn enable(&mut self, next: Addr, packet_byte_count: u64) {
        self.config.ctl |= RtitCtl::TRACE_EN;
        self.context.ip = next;
        self.since_psb_bytes = packet_byte_count;
        self.last_ip.reset();
        self.reported_mode = None;
        let stop = self.set_trigger();
        if packet_byte_count == 0 {
            // Control flow packets start with the TIP.PGE after the PSB+.
            self.put_psb(false);
        } else {
            self.put_times();
        }
        if self.packet_en() {
            self.tip_pge(self.context.ip);
        }
        self.stop_if(stop);
    }

    /// Clears `TraceEn`, by a `WRMSR` or similar at `ip`. Before that, ends an overflow and writes
    /// the last packets and the buffered ones.
    pub fn disable(&mut self, ip: Addr) {
        self.begin();
        self.reach(ip);
        self.context.ip = ip;
        // Buffered packets are output now, which resolves an overflow.
        self.overflow_end();
        if self.packet_en() {
            self.fup(ip);
            self.tip_pgd(None);
        }
        self.flush();
        self.config.ctl = self.config.ctl.without(RtitCtl::TRACE_EN);
        self.clear_trigger();
    }

    /// Sets `TriggerEn`, unless an error or a stop is not cleared yet, and the other enables from
    /// the current IP and context. Returns true if the IP is in a `TraceStop` range.
    pub(super) fn set_trigger(&mut self) -> bool {
        let barred = RtitStatus::ERROR.0 | RtitStatus::STOPPED.0;
        self.status.set(RtitStatus::TRIGGER_EN, self.status.0 & barred == 0);
        self.status.set(RtitStatus::FILTER_EN, !filters(self.config.ctl));
        self.land(self.context.ip, self.context.cpl, true)
    }

    /// Clears `TriggerEn` without a packet.
    pub(super) fn clear_trigger(&mut self) {
        self.status.set(RtitStatus::TRIGGER_EN, false);
        self.returns.clear();
        self.clock.restart_cycles();
    }

    /// Moves to `ip` without a packet, and updates the enables; `taken` is false if execution fell
    /// through. Returns true if `ip` is in a `TraceStop` range: the caller must then call
    /// [`Self::stop_if`] after the packets of the transfer.
    pub(super) fn land(&mut self, ip: Addr, cpl: u8, taken: bool) -> bool {
        (self.context.ip, self.context.cpl) = (ip, cpl);
        if !self.triggered() {
            return false;
        }
        self.status.set(RtitStatus::CONTEXT_EN, self.context.is_traced(&self.config));
        // Falling through into or out of a range has no effect.
        if !taken || !self.in_context() {
            return false;
        }
        let verdict = judge(self.config.ctl, &self.config.ranges, ip);
        self.status.set(RtitStatus::FILTER_EN, verdict == Verdict::Trace);
        verdict == Verdict::Stop
    }

    /// Writes the last packet of an asynchronous transfer to the current IP: a TIP, TIP.PGD or
    /// TIP.PGE. `was_on` is true if control flow packets were enabled before it.
    pub(super) fn arrive(&mut self, was_on: bool) {
        let target = self.context.ip;
        match (was_on, self.packet_en()) {
            (true, true) => self.tip(target),
            (true, false) => self.tip_pgd(self.in_context().then_some(target)),
            (false, true) => self.tip_pge(self.context.ip),
            (false, false) => {}
        }
    }

    /// Ends the trace with a `TraceStop` packet if `stop`, the result of [`Self::land`], is true.
    pub(super) fn stop_if(&mut self, stop: bool) {
        if stop {
            self.put(&Packet::TraceStop);
            self.overflow.lose_trace_stop();
            self.status.set(RtitStatus::STOPPED, true);
            self.clear_trigger();
        }
    }

    /// Writes a PIP if paging is not as it was `before`.
    fn write_paging(&mut self, before: Paging) {
        if self.context.paging != before {
            self.put_pip();
        }
    }

    /// Writes a PIP with the current paging, if the OS is traced.
    pub(super) fn put_pip(&mut self) {
        let Paging { cr3, non_root } = self.context.paging;
        if self.in_context() && self.config.ctl.has(RtitCtl::OS) {
            self.put(&Packet::Pip { cr3: cr3 & 0x000f_ffff_ffff_ffe0, non_root });
        }
    }

    /// Returns the payload of the TIP.PGD of `branch`: none outside the traced context, and none
    /// for a conditional branch, whose target is in the code.
    fn exposed(&self, branch: &Branch) -> Option<Addr> {
        let conditional = matches!(branch.kind, BranchKind::Jcc { .. });
        (self.in_context() && !conditional).then_some(branch.target)
    }

    /// Writes the packets of a branch with packets enabled before and after it.
    fn follow(&mut self, branch: &Branch) {
        match branch.kind {
            BranchKind::Jcc { taken } => self.outcome(taken),
            BranchKind::Jmp => {}
            BranchKind::Call => self.call(branch),
            BranchKind::JmpIndirect => self.tip_indirect(branch.target),
            BranchKind::Far => self.tip(branch.target),
            BranchKind::CallIndirect => {
                self.tip_indirect(branch.target);
                self.returns.push(branch.next);
            }
            BranchKind::Ret => self.ret(branch.target),
        }
    }

    /// Adds the return address of a direct call to the stack for RET compression.
    fn call(&mut self, branch: &Branch) {
        // A call to the next instruction only reads the IP; no return matches it.
        if branch.target != branch.next {
            self.returns.push(branch.next);
        }
    }

    /// Writes a return to `target`: a taken TNT bit if it is compressed, or else a TIP.
    fn ret(&mut self, target: Addr) {
        let compress = !self.config.ctl.has(RtitCtl::DIS_RETC);
        if compress && self.returns.matches(target) {
            self.outcome(true);
        } else {
            self.tip(target);
        }
    }
}
