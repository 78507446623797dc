//! Packets of instructions and platform events other than control flow: transactions, PTWRITE,
//! VMCS, power states, event trace.

use super::{RtitCtl, RtitStatus, Unit};
use crate::common::Addr;
use crate::pt::{Packet, PayloadSize};

/// Entry to a C-state deeper than C0.0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PowerEntry {
    /// The address of the oldest uncompleted instruction.
    pub ip: Addr,
    /// EAX (hints) and ECX (extensions) of the MWAIT that caused it, if any.
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
    /// Traces the start of a transaction at `ip`, by XBEGIN or XACQUIRE.
    pub fn tx_begin(&mut self, ip: Addr) {
        self.transaction(ip, true);
    }

    /// Traces the commit of the transaction at `ip`, by XEND or XRELEASE.
    pub fn tx_commit(&mut self, ip: Addr) {
        self.transaction(ip, false);
    }

    /// Traces the abort of the transaction at `ip`; execution resumes at `target`.
    pub fn tx_abort(&mut self, ip: Addr, target: Addr) {
        self.begin();
        self.reach(ip);
        let was_on = self.packet_en();
        self.context.in_tx = false;
        self.put_tsx(true);
        if was_on {
            self.fup(ip);
        }
        let stop = self.land(target, self.context.cpl, true);
        self.arrive(was_on);
        self.stop_if(stop);
        self.end();
    }

    /// Sets whether the processor is in a transaction. Traces only a change, so no nested
    /// transaction.
    fn transaction(&mut self, ip: Addr, in_tx: bool) {
        self.begin();
        if self.context.in_tx != in_tx {
            self.reach(ip);
            self.context.in_tx = in_tx;
            self.put_tsx(false);
            if self.packet_en() {
                self.fup(ip);
            }
        }
        self.end();
    }

    fn put_tsx(&mut self, aborted: bool) {
        if self.in_context() && self.config.ctl.has(RtitCtl::BRANCH_EN) {
            self.put(&Packet::ModeTsx { in_tx: self.context.in_tx, aborted });
        }
    }

    /// Traces PTWRITE at `ip` with an operand of `size`.
    pub fn ptwrite(&mut self, ip: Addr, value: u64, size: PayloadSize) {
        self.begin();
        let ctl = self.config.ctl;
        let filtered = !self.in_context() || !self.status.has(RtitStatus::FILTER_EN);
        if ctl.has(RtitCtl::PTW_EN) && !filtered {
            self.reach(ip);
            let with_ip = ctl.has(RtitCtl::FUP_ON_PTW);
            self.put(&Packet::Ptw { value, size, ip: with_ip });
            self.walked.clear();
            if with_ip {
                self.fup(ip);
            }
        }
        self.end();
    }

    /// Traces VMPTRLD of the VMCS at physical address `base`.
    pub fn vmptrld(&mut self, base: u64) {
        self.begin();
        let base = base & 0x000f_ffff_ffff_f000;
        self.context.vmcs = Some(base);
        if self.in_context() {
            self.put(&Packet::Vmcs(base));
            self.walked.clear();
        }
        self.end();
    }

    /// Traces the entry to a C-state deeper than C0.0.
    pub fn power_enter(&mut self, entry: &PowerEntry) {
        self.begin();
        if self.powered() {
            self.reach(entry.ip);
            if let Some((hints, extensions)) = entry.mwait.filter(|_| self.in_context()) {
                self.put(&Packet::Mwait { hints, extensions });
            }
            let PowerEntry { hardware, state, sub_state, .. } = *entry;
            self.put(&Packet::PwrE { hardware, state, sub_state });
            self.put_exstop(entry.ip);
        }
        self.end();
    }

    /// Traces the return to C0: writes the full time, and then, if power events are traced, a PWRX
    /// with `last`, `deepest` and `wake`.
    pub fn power_exit(&mut self, last: u8, deepest: u8, wake: u8) {
        self.begin();
        self.put_times();
        if self.powered() {
            self.put(&Packet::PwrX { last, deepest, wake });
        }
        self.end();
    }

    /// Traces a stop of execution before `ip` completes, for example for a frequency change.
    pub fn exec_stop(&mut self, ip: Addr) {
        self.begin();
        if self.powered() {
            self.reach(ip);
            self.put_exstop(ip);
        }
        self.end();
    }

    /// Returns true if power event packets are generated.
    fn powered(&self) -> bool {
        self.triggered() && self.config.ctl.has(RtitCtl::PWR_EVT_EN)
    }

    fn put_exstop(&mut self, ip: Addr) {
        let in_context = self.in_context();
        self.put(&Packet::ExStop { ip: in_context });
        if in_context {
            self.fup(ip);
        }
    }

    /// Writes the event trace packets of the interrupt or far transfer that the next call reports.
    /// If control flow packets are enabled, those of that call contain its IP; otherwise this
    /// writes a FUP with `ip`.
    pub fn flow_event(&mut self, ip: Addr, event: &FlowEvent<'_>) {
        self.begin();
        if self.in_context() && self.config.ctl.has(RtitCtl::EVENT_EN) {
            for &(kind, payload) in event.data {
                self.put(&Packet::Evd { kind, payload });
            }
            let with_ip = !self.packet_en();
            self.put(&Packet::Cfe { kind: event.kind, vector: event.vector, ip: with_ip });
            if with_ip {
                self.fup(ip);
            }
        }
    }
}
