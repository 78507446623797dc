//! Circles of direct branches. They give no packets, so whatever ends one binds to its first round
//! (SDM section "Packet Binding"), and the others would be lost. Where [`Config::tell_circles`]
//! says so, each round is told here, by what the processor writes when tracing is interrupted and
//! goes on at once.
//!
//! [`Config::tell_circles`]: super::Config::tell_circles

use super::{Branch, BranchKind, Unit};
use crate::common::Addr;

/// Straight runs since the last place that is told, at most. Decoders give up on longer ways.
const MAX_RUNS: usize = 256;

/// The straight code that was executed since the last place that the trace tells: runs from their
/// first instruction to the branch at their end. No address is in two of them.
#[derive(Clone, Debug, Default)]
pub(super) struct Walked(Vec<(Addr, Addr)>);

impl Walked {
    /// The trace tells where execution stands.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    fn holds(&self, ip: Addr) -> bool {
        self.meets((ip, ip))
    }

    fn meets(&self, (first, last): (Addr, Addr)) -> bool {
        self.0.iter().any(|run| run.0 <= last && first <= run.1)
    }
}

impl Unit {
    /// Execution went on, through straight code, to `ip`: if that led into code that was executed
    /// since the last place that is told, tells where the straight code began.
    pub(super) fn reach(&mut self, ip: Addr) {
        let start = self.context.ip;
        if self.tells_circles() && self.walked.meets((start, ip)) {
            self.tell_place(start);
        }
    }

    /// A branch is about to be told: if it is direct and closes a circle, tells where it stands.
    /// True if that told the branch as well.
    pub(super) fn close_circle(&mut self, branch: &Branch) -> bool {
        if !self.tells_circles() || !matches!(branch.kind, BranchKind::Jmp | BranchKind::Call) {
            return false;
        }
        let Branch { ip, target, .. } = *branch;
        self.reach(ip);
        let is_told = self.walked.0.is_empty() && self.context.ip == ip;
        self.walked.0.push((self.context.ip, ip));
        if !self.walked.holds(target) && self.walked.0.len() < MAX_RUNS {
            return false;
        }
        if !is_told {
            self.tell_place(ip);
            self.walked.0.push((ip, ip));
        }
        if target == ip {
            // No FUP can tell the branch's own address from its target.
            self.tip_pgd(Some(target));
            self.tip_pge(target);
        }
        target == ip
    }

    fn tells_circles(&self) -> bool {
        self.config.tell_circles && self.packet_en()
    }

    /// An interruption before the instruction at `ip`, which execution has not reached before since
    /// the last place that is told.
    fn tell_place(&mut self, ip: Addr) {
        self.fup(ip);
        self.tip_pgd(None);
        self.tip_pge(ip);
    }
}
