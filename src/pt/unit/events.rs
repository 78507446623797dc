//! Packets of instructions and platform events other than control flow: transactions, PTWRITE,
//! VMCS, power states, event trace. Each method traces one event that the processor executed; it
//! writes no packets that the configuration does not enable.

use super::{RtitCtl, RtitStatus, Unit};
use crate::common::Addr;
use crate::pt::{Packet, PayloadSize};

/// Entry to a C-state deeper than C0.0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PowerEntry {
    /// The address of the oldest uncompleted instruction.
    pub ip: Addr,
    /// EAX (hints) and ECX (extensions) of the MWAIT that caused it, if any. Written only if the
    /// context is traced.
    pub mwait: Option<(u32, u32)>,
    /// True if hardware caused the entry.
    pub hardware: bool,
    /// Resolved thread C-state, 4 bits.
    pub state: u8,
    /// Resolved thread sub C-state, 4 bits.
    pub sub_state: u8,
}

/// An event of event trace, with its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowEvent<'a> {
    /// The CFE packet's type, 5 bits.
    pub kind: u8,
    /// The CFE packet's vector, or 0.
    pub vector: u8,
    /// The EVD packets before the CFE, each a type of 6 bits and a payload.
    pub data: &'a [(u8, u64)],
}

impl Unit {
    /// Traces the start of a transaction at `ip`, by XBEGIN or XACQUIRE. Writes nothing inside a
    /// transaction, without `BranchEn`, and outside the traced context.
    pub fn tx_begin(&mut self, ip: Addr) {
        self.transaction(ip, true);
    }

    /// Traces the commit of the outermost transaction at `ip`, by XEND or XRELEASE. Writes nothing
    /// outside a transaction, without `BranchEn`, and outside the traced context.
    pub fn tx_commit(&mut self, ip: Addr) {
        self.transaction(ip, false);
    }

    /// Traces the abort of the transaction at `ip`; execution resumes at `target`, at the same
    /// privilege level. Writes the packets even if no transaction was traced before, but none
    /// without `BranchEn` or outside the traced context.
    pub fn tx_abort(&mut self, ip: Addr, target: Addr) {
        self.begin_event();
        self.run_straight_to(ip);
        let was_on = self.packet_en();
        self.context.in_tx = false;
        self.put_tsx(true);
        if was_on {
            self.put_fup(ip);
        }
        let is_in_stop_range = self.move_to(target, self.context.cpl, true);
        self.put_arrival(was_on);
        self.trace_stop_if(is_in_stop_range);
        self.end_event();
    }

    /// Sets whether the processor is in a transaction, from `ip` on. Traces only a change, so no
    /// nested transaction.
    fn transaction(&mut self, ip: Addr, in_tx: bool) {
        self.begin_event();
        if self.context.in_tx != in_tx {
            self.run_straight_to(ip);
            self.context.in_tx = in_tx;
            self.put_tsx(false);
            if self.packet_en() {
                self.put_fup(ip);
            }
        }
        self.end_event();
    }

    /// Writes a MODE.TSX, if control flow packets are configured and the context is traced, even
    /// where a filter excludes the code.
    fn put_tsx(&mut self, aborted: bool) {
        if self.in_context() && self.config.ctl.has(RtitCtl::BRANCH_EN) {
            self.put(&Packet::ModeTsx { in_tx: self.context.in_tx, aborted });
        }
    }

    /// Traces PTWRITE at `ip` of an operand of `size`. Writes nothing unless `PTWEn` is set and the
    /// context and the filter allow code to be traced; `BranchEn` does not matter.
    pub fn ptwrite(&mut self, ip: Addr, value: u64, size: PayloadSize) {
        self.begin_event();
        let ctl = self.config.ctl;
        let filtered = !self.in_context() || !self.status.has(RtitStatus::FILTER_EN);
        if ctl.has(RtitCtl::PTW_EN) && !filtered {
            self.run_straight_to(ip);
            let with_ip = ctl.has(RtitCtl::FUP_ON_PTW);
            self.put(&Packet::Ptw { value, size, ip: with_ip });
            self.runs.clear();
            if with_ip {
                self.put_fup(ip);
            }
        }
        self.end_event();
    }

    /// Traces VMPTRLD of the VMCS at physical address `base`, whose low 12 bits are ignored. Writes
    /// nothing unless the context is traced, but keeps the address for later PSB+s. No event clears
    /// it.
    pub fn vmptrld(&mut self, base: u64) {
        self.begin_event();
        let base = base & 0x000f_ffff_ffff_f000;
        self.context.vmcs = Some(base);
        if self.in_context() {
            self.put(&Packet::Vmcs(base));
            self.runs.clear();
        }
        self.end_event();
    }

    /// Traces the entry to a C-state deeper than C0.0: writes an MWAIT, a PWRE, an EXSTOP and a
    /// FUP, the first and the last one only if the context is traced. Writes nothing unless
    /// `PwrEvtEn` is set.
    pub fn power_enter(&mut self, entry: &PowerEntry) {
        self.begin_event();
        if self.traces_power() {
            self.run_straight_to(entry.ip);
            if let Some((hints, extensions)) = entry.mwait.filter(|_| self.in_context()) {
                self.put(&Packet::Mwait { hints, extensions });
            }
            let PowerEntry { hardware, state, sub_state, .. } = *entry;
            self.put(&Packet::PwrE { hardware, state, sub_state });
            self.put_exstop(entry.ip);
        }
        self.end_event();
    }

    /// Traces the return to C0: writes the time, as far as it is enabled and known, whether or not
    /// power events are traced, and then, if they are, a PWRX with the low 4 bits of `last`,
    /// `deepest` and `wake`.
    pub fn power_exit(&mut self, last: u8, deepest: u8, wake: u8) {
        self.begin_event();
        self.put_times();
        if self.traces_power() {
            self.put(&Packet::PwrX { last, deepest, wake });
        }
        self.end_event();
    }

    /// Traces a stop of execution before the instruction at `ip` completes, for example for a
    /// frequency change: writes an EXSTOP, and a FUP if the context is traced. Writes nothing
    /// unless `PwrEvtEn` is set.
    pub fn exec_stop(&mut self, ip: Addr) {
        self.begin_event();
        if self.traces_power() {
            self.run_straight_to(ip);
            self.put_exstop(ip);
        }
        self.end_event();
    }

    /// Returns true if power event packets are generated: `TriggerEn` and `PwrEvtEn` are set.
    fn traces_power(&self) -> bool {
        self.trigger_en() && self.config.ctl.has(RtitCtl::PWR_EVT_EN)
    }

    /// Writes an EXSTOP, and a FUP with `ip` if the context is traced.
    fn put_exstop(&mut self, ip: Addr) {
        let in_context = self.in_context();
        self.put(&Packet::ExStop { ip: in_context });
        if in_context {
            self.put_fup(ip);
        }
    }

    /// Writes the event trace packets (EVD, CFE) of the interrupt or far transfer that the next
    /// call traces. If control flow packets are enabled, those of that call contain its IP;
    /// otherwise this writes a FUP with `ip`. Writes nothing unless `EventEn` is set and the
    /// context is traced.
    pub fn flow_event(&mut self, ip: Addr, event: &FlowEvent<'_>) {
        self.begin_event();
        if self.in_context() && self.config.ctl.has(RtitCtl::EVENT_EN) {
            for &(kind, payload) in event.data {
                self.put(&Packet::Evd { kind, payload });
            }
            let with_ip = !self.packet_en();
            self.put(&Packet::Cfe { kind: event.kind, vector: event.vector, ip: with_ip });
            if with_ip {
                self.put_fup(ip);
            }
        }
        // No `end_event`: no PSB+ may come between these packets and those of the next call.
    }
}
