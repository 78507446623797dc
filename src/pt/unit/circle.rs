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

/// The code executed since the last position that the trace determines, as runs of straight code:
/// each from its first instruction to the branch at its end. No address is in two runs.
#[derive(Clone, Debug, Default)]
pub(super) struct StraightRuns(Vec<(Addr, Addr)>);

impl StraightRuns {
    /// Forgets all runs: the trace determines the current position.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Returns true if `ip` is in a run.
    fn holds(&self, ip: Addr) -> bool {
        self.meets((ip, ip))
    }

    /// Returns true if code from `first` to `last` overlaps a run.
    fn meets(&self, (first, last): (Addr, Addr)) -> bool {
        self.0.iter().any(|run| run.0 <= last && first <= run.1)
    }
}

impl Unit {
    /// Handles straight execution from the current IP to `ip`, to be called before an event at `ip`
    /// that writes it to the trace. If part of that code was already executed since the last
    /// position that the trace determines, reports the current IP. Does not move. Without
    /// [`Config::report_circles`], does nothing.
    pub(super) fn run_straight_to(&mut self, ip: Addr) {
        let start = self.context.ip;
        if self.reports_circles() && self.runs.meets((start, ip)) {
            self.report_address(start);
        }
    }

    /// Handles a direct jump or call, before its packets. Reports its address if it closes a circle
    /// or ends the last of [`MAX_RUNS`] runs. Returns true if it jumps to itself: the packets
    /// written then include the jump, and the caller must write none for it. Does nothing, and
    /// returns false, for any other branch and without [`Config::report_circles`].
    pub(super) fn close_circle(&mut self, branch: &Branch) -> bool {
        if !self.reports_circles() || !matches!(branch.kind, BranchKind::Jmp | BranchKind::Call) {
            return false;
        }
        let Branch { ip, target, .. } = *branch;
        self.run_straight_to(ip);
        let is_reported = self.runs.0.is_empty() && self.context.ip == ip;
        self.runs.0.push((self.context.ip, ip));
        if !self.runs.holds(target) && self.runs.0.len() < MAX_RUNS {
            return false;
        }
        if !is_reported {
            self.report_address(ip);
            self.runs.0.push((ip, ip));
        }
        if target == ip {
            // A FUP with the branch's own address would also match its target.
            self.put_tip_pgd(Some(target));
            self.put_tip_pge(target);
        }
        target == ip
    }

    /// Returns true if circles are reported, and control flow packets are enabled.
    fn reports_circles(&self) -> bool {
        self.config.report_circles && self.packet_en()
    }

    /// Reports `ip` by an interruption before the instruction there that resumes at once: FUP,
    /// TIP.PGD, TIP.PGE. Execution must not have reached `ip` since the last reported position.
    fn report_address(&mut self, ip: Addr) {
        self.put_fup(ip);
        self.put_tip_pgd(None);
        self.put_tip_pge(ip);
    }
}
