//! The `ADDRn` ranges (SDM section "Filtering by IP"), which select the traced addresses and those
//! that stop the trace. Considers addresses only, neither privilege nor CR3.

use super::RtitCtl;
use crate::common::Addr;

/// `ADDRn_CFG`: the range is traced.
const FILTER: u8 = 1;
/// `ADDRn_CFG`: a branch into the range ends the trace.
const TRACE_STOP: u8 = 2;

/// `IA32_RTIT_ADDRn_A` and `IA32_RTIT_ADDRn_B`: the first and the last address of a range, both
/// inside it. The range is empty if the last is below the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IpRange {
    /// `IA32_RTIT_ADDRn_A`.
    pub first: Addr,
    /// `IA32_RTIT_ADDRn_B`.
    pub last: Addr,
}

impl IpRange {
    /// Returns true if `ip` is in the range; its first and last address are.
    fn contains(self, ip: Addr) -> bool {
        (self.first..=self.last).contains(&ip)
    }
}

/// The effect of the ranges on an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Code there is traced.
    Trace,
    /// Code there is not traced.
    Skip,
    /// The trace stops. Takes precedence where ranges overlap.
    Stop,
}

/// Returns the effect on `ip` of those of the ranges that `ctl` enables. Without filter ranges, all
/// code is traced that does not stop the trace.
pub(super) fn verdict_on(ctl: RtitCtl, ranges: &[IpRange; 4], ip: Addr) -> Verdict {
    let hit = |cfg| {
        let mut of_kind = ranges.iter().enumerate().filter(|(n, _)| ctl.addr_cfg(*n) == cfg);
        of_kind.any(|(_, range)| range.contains(ip))
    };
    if hit(TRACE_STOP) {
        Verdict::Stop
    } else if hit(FILTER) || !has_filter(ctl) {
        Verdict::Trace
    } else {
        Verdict::Skip
    }
}

/// Returns true if `ctl` makes any range a filter, so that only code in filter ranges is traced.
pub(super) fn has_filter(ctl: RtitCtl) -> bool {
    (0..4).any(|n| ctl.addr_cfg(n) == FILTER)
}
