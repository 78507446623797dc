//! The kernel's PMU for Intel PT and its capabilities, from sysfs (the kernel's
//! arch/x86/events/intel/pt.c: `caps/*` are hexadecimal without a prefix).

use super::root::Root;
use serde::Serialize;

const DIR: &str = "/sys/bus/event_source/devices/intel_pt";

/// The content of `/sys/bus/event_source/devices/intel_pt`. A capability that is not listed there
/// is false or 0 here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "these are the CPU's abilities by CPUID leaf 14H"
)]
pub struct Pmu {
    /// The PMU's number, for `perf_event_open(2)`; `None` if it cannot be read.
    pub pmu_type: Option<u32>,
    /// The number of address ranges for filters.
    pub address_ranges: u64,
    /// True if the CPU has CYC packets, and a choice of PSB periods.
    pub psb_cyc: bool,
    /// True if the CPU has MTC packets.
    pub mtc: bool,
    /// True if the CPU has the instruction PTWRITE and its packets.
    pub ptwrite: bool,
    /// True if the CPU has packets of power events.
    pub power_events: bool,
    /// True if the CPU has packets of interrupts and other events (CFE, EVD).
    pub event_trace: bool,
    /// True if the CPU can write to a table of regions (`ToPA`).
    pub topa: bool,
    /// True if the table of regions can have more than one entry.
    pub topa_multiple_entries: bool,
    /// True if the CPU can write to a single region.
    pub single_range: bool,
    /// The possible MTC periods. Bit n: 2^n core crystal clocks between MTC packets.
    pub mtc_periods: u64,
    /// The possible CYC thresholds. Bit 0: none; bit n: at least 2^(n-1) cycles between CYC
    /// packets.
    pub cycle_thresholds: u64,
    /// The possible PSB periods. Bit n: 2^(n+11) bytes between PSB packets.
    pub psb_periods: u64,
    /// The names of the fields of `config`.
    pub format: Vec<String>,
}

impl Pmu {
    /// Reads the PMU; `None` if the kernel has none.
    pub(super) fn of(root: &Root) -> Option<Self> {
        if !root.has(DIR) {
            return None;
        }
        let cap = |name: &str| {
            let text = root.text(&format!("{DIR}/caps/{name}"));
            text.and_then(|text| u64::from_str_radix(&text, 16).ok()).unwrap_or(0)
        };
        let has = |name: &str| cap(name) != 0;
        let ranges = if has("ip_filtering") { cap("num_address_ranges") } else { 0 };
        Some(Self {
            pmu_type: root.number(&format!("{DIR}/type")),
            address_ranges: ranges,
            psb_cyc: has("psb_cyc"),
            mtc: has("mtc"),
            ptwrite: has("ptwrite"),
            power_events: has("power_event_trace"),
            event_trace: has("event_trace"),
            topa: has("topa_output"),
            topa_multiple_entries: has("topa_multiple_entries"),
            single_range: has("single_range_output"),
            mtc_periods: cap("mtc_periods"),
            cycle_thresholds: cap("cycle_thresholds"),
            psb_periods: cap("psb_periods"),
            format: root.names(format!("{DIR}/format").as_ref()),
        })
    }

    /// Returns the smallest and the largest available PSB period, in bytes; `None` if the CPU has
    /// no choice.
    pub(super) fn psb_bytes(&self) -> Option<(u64, u64)> {
        let bytes = |bit: u32| 1_u64.checked_shl(bit.checked_add(11)?);
        let last = self.psb_periods.checked_ilog2().filter(|_| self.psb_cyc)?;
        bytes(self.psb_periods.trailing_zeros()).zip(bytes(last))
    }
}
