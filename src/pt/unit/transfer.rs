//! Converts branches, interrupts and other changes of flow to packets (SDM section "Packet
//! Generation Scenarios", table "Packet Generation under Different Enable Conditions").
//!
//! Each event moves the unit to its target first, which updates the *enables* (`ContextEn`,
//! `FilterEn`). Its packets depend on whether control flow packets were enabled before it, and are
//! enabled after it. Before it moves, `circle` writes extra packets for loops that have none, if
//! the configuration wants them.

use super::filter::{Verdict, has_filter, verdict_on};
use super::{Branch, BranchKind, Paging, RtitCtl, RtitStatus, Unit};
use crate::common::Addr;
use crate::pt::Packet;

impl Unit {
    /// Traces a far transfer to `ip` with privilege level `cpl`, from code that is not reported to
    /// the unit: the kernel's return to a program, a thread's first instruction. Applies the staged
    /// changes, as [`Unit::branch`] does. If control flow packets were already enabled, writes a
    /// TIP or TIP.PGD instead of a TIP.PGE.
    pub fn enter(&mut self, ip: Addr, cpl: u8) {
        let (from, kind) = (self.context.ip, BranchKind::Far);
        self.branch(&Branch { kind, ip: from, next: from, target: ip, cpl });
    }

    /// Traces an executed branch, taken or not, and moves to where execution continues. A far one
    /// applies the staged changes of mode, paging and enclave. `branch.ip` need not be the current
    /// IP: the code between was executed straight. While `TriggerEn` is clear, only moves and
    /// applies the changes.
    pub fn branch(&mut self, branch: &Branch) {
        self.begin_event();
        let was_on = self.packet_en();
        let is_written = self.close_circle(branch);
        let before = self.context.paging;
        if branch.kind == BranchKind::Far {
            self.context.apply(std::mem::take(&mut self.staged));
        }
        let is_in_stop_range = self.move_to(branch.landing(), branch.cpl, branch.is_taken());
        self.put_pip_if_changed(before);
        match (was_on, self.packet_en()) {
            // The packets of a jump to itself are written already (see `circle`).
            (true, true) if is_written => {}
            (true, true) => self.put_branch(branch),
            (true, false) => self.put_tip_pgd(self.tip_pgd_target(branch)),
            (false, true) => self.put_tip_pge(self.context.ip),
            (false, false) => {}
        }
        self.trace_stop_if(is_in_stop_range);
        self.end_event();
    }

    /// Traces a transfer from `ip`, which was not executed or not completed, to `target` at
    /// privilege level `cpl`: an interrupt, an exception, a signal, a VM exit; also `INT n`, whose
    /// own address is `ip`. Applies the staged changes of mode, paging and enclave. While
    /// `TriggerEn` is clear, does only that, and moves.
    pub fn interrupt(&mut self, ip: Addr, target: Addr, cpl: u8) {
        self.begin_event();
        let was_on = self.packet_en();
        let before = self.context.paging;
        self.context.apply(std::mem::take(&mut self.staged));
        if was_on {
            self.run_straight_to(ip);
            self.put_fup(ip);
        }
        let is_in_stop_range = self.move_to(target, cpl, true);
        self.put_pip_if_changed(before);
        self.put_arrival(was_on);
        self.trace_stop_if(is_in_stop_range);
        self.end_event();
    }

    /// Traces `MOV CR3` of the value `cr3`; `next` is the address of the next instruction. Writes a
    /// PIP, even for an unchanged value, if `OS` is set and the context is then traced. Writes a
    /// TIP.PGE, or a TIP.PGD without an IP, if the new CR3 starts or ends the trace, since it does
    /// or does not match the filter. Compares `next` with the ranges, too, as after a taken branch:
    /// they can start or end the trace in the same way. Leaves the staged changes staged.
    pub fn mov_cr3(&mut self, next: Addr, cr3: u64) {
        self.begin_event();
        let was_on = self.packet_en();
        self.context.paging.cr3 = cr3;
        // `FilterEn` is not updated outside the traced context, which may begin here.
        let is_in_stop_range = self.move_to(next, self.context.cpl, true);
        self.put_pip();
        self.runs.clear();
        match (was_on, self.packet_en()) {
            (true, false) => self.put_tip_pgd(None),
            (false, true) => self.put_tip_pge(self.context.ip),
            _ => {}
        }
        self.trace_stop_if(is_in_stop_range);
        self.end_event();
    }

    /// Sets `TraceEn`, by a `WRMSR` or similar; `next` is the address of the next instruction. The
    /// unit must be off. Writes a PSB+ or the time, and a TIP.PGE if the code at `next` is traced.
    /// If `next` is in a `TraceStop` range, ends the trace at once. Writes nothing while `Error` or
    /// `Stopped` is set.
    ///
    /// `packet_byte_count` is `PacketByteCnt`: 0 writes a PSB+; otherwise the trace continues an
    /// earlier one.
    pub fn enable(&mut self, next: Addr, packet_byte_count: u64) {
        self.config.ctl |= RtitCtl::TRACE_EN;
        self.context.ip = next;
        self.since_psb_bytes = packet_byte_count;
        self.last_ip.reset();
        self.reported_mode = None;
        let is_in_stop_range = self.set_trigger();
        if packet_byte_count == 0 {
            // Control flow packets start with the TIP.PGE after the PSB+.
            self.put_psb(false);
        } else {
            self.put_times();
        }
        if self.packet_en() {
            self.put_tip_pge(self.context.ip);
        }
        self.trace_stop_if(is_in_stop_range);
    }

    /// Clears `TraceEn`, by a `WRMSR` or similar at `ip`. Before that, ends an overflow, writes the
    /// buffered branch outcomes, and then a FUP and TIP.PGD if control flow packets are enabled.
    /// `Error` and `Stopped` stay set.
    pub fn disable(&mut self, ip: Addr) {
        self.begin_event();
        self.run_straight_to(ip);
        self.context.ip = ip;
        // Buffered packets are output now, which resolves an overflow.
        self.overflow_end();
        if self.packet_en() {
            self.put_fup(ip);
            self.put_tip_pgd(None);
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
        self.status.set(RtitStatus::FILTER_EN, !has_filter(self.config.ctl));
        // Not taken, but compared with the ranges: tracing may start inside one.
        self.move_to(self.context.ip, self.context.cpl, true)
    }

    /// Clears `TriggerEn` without a packet, and leaves the other enables. Forgets the return
    /// addresses and the counted core clocks.
    pub(super) fn clear_trigger(&mut self) {
        self.status.set(RtitStatus::TRIGGER_EN, false);
        self.returns.clear();
        self.clock.restart_cycles();
    }

    /// Moves to `ip` at privilege level `cpl`, and updates the enables, unless `TriggerEn` is
    /// clear; writes no packet. `compares_ranges` is false if a branch was not taken: execution
    /// that falls through never enters or leaves a range. Then, and outside the traced context,
    /// `FilterEn` stays as it is, and the result is false. Else returns true if `ip` is in a
    /// `TraceStop` range: the caller must pass the result to [`Self::trace_stop_if`] after the
    /// packets of the transfer.
    pub(super) fn move_to(&mut self, ip: Addr, cpl: u8, compares_ranges: bool) -> bool {
        (self.context.ip, self.context.cpl) = (ip, cpl);
        if !self.trigger_en() {
            return false;
        }
        self.status.set(RtitStatus::CONTEXT_EN, self.context.is_traced(&self.config));
        if !compares_ranges || !self.in_context() {
            return false;
        }
        let verdict = verdict_on(self.config.ctl, &self.config.ranges, ip);
        self.status.set(RtitStatus::FILTER_EN, verdict == Verdict::Trace);
        verdict == Verdict::Stop
    }

    /// Writes the last packet of an asynchronous transfer to the current IP: a TIP, TIP.PGD
    /// (without the IP outside the traced context) or TIP.PGE. `was_on` is true if control flow
    /// packets were enabled before it; nothing is written if they are enabled neither before nor
    /// after it.
    pub(super) fn put_arrival(&mut self, was_on: bool) {
        let target = self.context.ip;
        match (was_on, self.packet_en()) {
            (true, true) => self.put_tip(target),
            (true, false) => self.put_tip_pgd(self.in_context().then_some(target)),
            (false, true) => self.put_tip_pge(self.context.ip),
            (false, false) => {}
        }
    }

    /// Ends the trace with a `TraceStop` packet, and sets `Stopped`, if `is_in_stop_range` is true,
    /// which is the result of [`Self::move_to`]. In an overflow, the packet follows the OVF at its
    /// end.
    pub(super) fn trace_stop_if(&mut self, is_in_stop_range: bool) {
        if is_in_stop_range {
            self.put(&Packet::TraceStop);
            self.overflow.defer_trace_stop();
            self.status.set(RtitStatus::STOPPED, true);
            self.clear_trigger();
        }
    }

    /// Writes a PIP if paging is not as it was `before`, `OS` is set and the context is traced.
    fn put_pip_if_changed(&mut self, before: Paging) {
        if self.context.paging != before {
            self.put_pip();
        }
    }

    /// Writes a PIP with the current paging, if `OS` is set and the context is traced.
    pub(super) fn put_pip(&mut self) {
        let Paging { cr3, non_root } = self.context.paging;
        if self.in_context() && self.config.ctl.has(RtitCtl::OS) {
            self.put(&Packet::Pip { cr3: cr3 & 0x000f_ffff_ffff_ffe0, non_root });
        }
    }

    /// Returns the IP in the TIP.PGD of `branch`, its target. `None`, so that it is suppressed,
    /// outside the traced context, and for a conditional branch, whose target is in the code.
    fn tip_pgd_target(&self, branch: &Branch) -> Option<Addr> {
        let conditional = matches!(branch.kind, BranchKind::Jcc { .. });
        (self.in_context() && !conditional).then_some(branch.target)
    }

    /// Writes the packets of a branch with control flow packets enabled before and after it. Pushes
    /// the return address of a call.
    fn put_branch(&mut self, branch: &Branch) {
        match branch.kind {
            BranchKind::Jcc { taken } => self.put_outcome(taken),
            BranchKind::Jmp => {}
            BranchKind::Call => self.push_return(branch),
            BranchKind::JmpIndirect => self.put_or_defer_tip(branch.target),
            BranchKind::Far => self.put_tip(branch.target),
            BranchKind::CallIndirect => {
                self.put_or_defer_tip(branch.target);
                self.returns.push(branch.next);
            }
            BranchKind::Ret => self.put_return(branch.target),
        }
    }

    /// Pushes the return address of a direct call, for RET compression.
    fn push_return(&mut self, branch: &Branch) {
        // A call to the next instruction only reads the IP; no return matches it.
        if branch.target != branch.next {
            self.returns.push(branch.next);
        }
    }

    /// Writes a return to `target`: a taken TNT bit if RET compression is on and the newest return
    /// address is `target`, or else a TIP. The TIP is not deferred: a decoder would take the next
    /// outcome in the buffer for this return.
    fn put_return(&mut self, target: Addr) {
        let compress = !self.config.ctl.has(RtitCtl::DIS_RETC);
        if compress && self.returns.pop_if_match(target) {
            self.put_outcome(true);
        } else {
            self.put_tip(target);
        }
    }
}
