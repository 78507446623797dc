//! Circles: loops of direct branches. They generate no packets, so an event that ends one binds to
//! its first round (SDM section "Packet Binding"), and the other rounds are lost. With
//! [`Config::report_circles`], this file *reports* an address in each round: it writes the packets
//! of a processor whose tracing is interrupted there and resumes at once.
//!
//! [`Config::report_circles`]: super::Config::report_circles

use super::{Branch, BranchKind, Unit};
use crate::common::Addr;

/// The maximum number of straight runs since the last reported position. Decoders give up on longer
/// paths.
const MAX_RUNS: usize = 256;

/// The straight code executed since the last position that the trace determines: runs from their
/// first instruction to the branch at their end. No address is in two runs.
#[derive(Clone, Debug, Default)]
pub(super) struct Walked(Vec<(Addr, Addr)>);

impl Walked {
    /// Forgets all runs: the trace determines the current position.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Returns true if the instruction at `ip` is in a run.
    fn holds(&self, ip: Addr) -> bool {
        self.meets((ip, ip))
    }

    /// Returns true if code from `first` to `last` overlaps a run.
    fn meets(&self, (first, last): (Addr, Addr)) -> bool {
        self.0.iter().any(|run| run.0 <= last && first <= run.1)
    }
}

impl Unit {
    /// Handles straight execution from the current IP to `ip`. If part of that code was already
    /// executed since the last position that the trace determines, reports the current IP.
    pub(super) fn reach(&mut self, ip: Addr) {
        let start = self.context.ip;
        if self.reports_circles() && self.walked.meets((start, ip)) {
            self.report_place(start);
        }
    }

    /// Reports the address of a direct branch that closes a circle or ends the last of [`MAX_RUNS`]
    /// runs, before the packets of the branch. Returns true if the branch jumps to itself: the
    /// packets written then include it, and the caller must write none for it.
    pub(super) fn close_circle(&mut self, branch: &Branch) -> bool {
        if !self.reports_circles() || !matches!(branch.kind, BranchKind::Jmp | BranchKind::Call) {
            return false;
        }
        let Branch { ip, target, .. } = *branch;
        self.reach(ip);
        let is_reported = self.walked.0.is_empty() && self.context.ip == ip;
        self.walked.0.push((self.context.ip, ip));
        if !self.walked.holds(target) && self.walked.0.len() < MAX_RUNS {
            return false;
        }
        if !is_reported {
            self.report_place(ip);
            self.walked.0.push((ip, ip));
        }
        if target == ip {
            // A FUP with the branch's own address would also match its target.
            self.tip_pgd(Some(target));
            self.tip_pge(target);
        }
        target == ip
    }

    fn reports_circles(&self) -> bool {
        self.config.report_circles && self.packet_en()
    }

    /// Reports `ip` by an interruption before the instruction there, which execution has not
    /// reached since the last reported position.
    fn report_place(&mut self, ip: Addr) {
        self.fup(ip);
        self.tip_pgd(None);
        self.tip_pge(ip);
    }
}
