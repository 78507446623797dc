//! Trees like `/sys/bus/event_source/devices` of several generations of CPUs, from the kernel's
//! documentation (`tools/perf/Documentation/perf-intel-pt.txt`, `arch/x86/events/intel/pt.c`).

use std::path::Path;

/// Files below `intel_pt`, and their contents.
pub(super) type Tree = &'static [(&'static str, &'static str)];

/// The first CPU with PT, under the kernel of its time: no choice of periods, no filters.
pub(super) const BROADWELL: Tree = &[
    ("type", "6"),
    ("format/tsc", "config:10"),
    ("format/noretcomp", "config:11"),
    ("caps/max_subleaf", "0"),
    ("caps/cr3_filtering", "1"),
    ("caps/topa_output", "1"),
    ("caps/topa_multiple_entries", "0"),
    ("caps/payloads_lip", "0"),
];

/// A CPU with all choices of time, and two ranges.
pub(super) const SKYLAKE: Tree = &[
    ("type", "7"),
    ("nr_addr_filters", "2"),
    ("max_nonturbo_ratio", "34"),
    ("tsc_art_ratio", "284:2"),
    ("format/pt", "config:0"),
    ("format/cyc", "config:1"),
    ("format/pwr_evt", "config:4"),
    ("format/fup_on_ptw", "config:5"),
    ("format/mtc", "config:9"),
    ("format/tsc", "config:10"),
    ("format/noretcomp", "config:11"),
    ("format/ptw", "config:12"),
    ("format/branch", "config:13"),
    ("format/mtc_period", "config:14-17"),
    ("format/cyc_thresh", "config:19-22"),
    ("format/psb_period", "config:24-27"),
    ("caps/max_subleaf", "1"),
    ("caps/cr3_filtering", "1"),
    ("caps/psb_cyc", "1"),
    ("caps/ip_filtering", "1"),
    ("caps/mtc", "1"),
    ("caps/ptwrite", "0"),
    ("caps/power_event_trace", "0"),
    ("caps/topa_output", "1"),
    ("caps/topa_multiple_entries", "1"),
    ("caps/single_range_output", "1"),
    ("caps/output_subsys", "0"),
    ("caps/payloads_lip", "0"),
    ("caps/num_address_ranges", "2"),
    ("caps/mtc_periods", "249"),
    ("caps/cycle_thresholds", "1fff"),
    ("caps/psb_periods", "3f"),
];

/// The additions of the Atom line: PTWRITE. The crystal's ratio is unknown.
pub(super) const GOLDMONT_PLUS: Tree = &[
    ("type", "8"),
    ("nr_addr_filters", "4"),
    ("max_nonturbo_ratio", "11"),
    ("tsc_art_ratio", "0:0"),
    ("caps/ptwrite", "1"),
    ("caps/power_event_trace", "1"),
    ("caps/num_address_ranges", "4"),
    ("caps/mtc_periods", "249"),
    ("caps/psb_periods", "3f"),
];

/// The additions of newer CPUs: event trace, and TNT that can be disabled.
pub(super) const ALDER_LAKE: Tree = &[
    ("type", "10"),
    ("nr_addr_filters", "2"),
    ("max_nonturbo_ratio", "32"),
    ("tsc_art_ratio", "168:2"),
    ("format/event", "config:31"),
    ("format/notnt", "config:55"),
    ("caps/ptwrite", "1"),
    ("caps/power_event_trace", "1"),
    ("caps/event_trace", "1"),
    ("caps/tnt_disable", "1"),
];

/// Writes trees into a directory, later ones over earlier ones.
pub(super) fn plant(devices: &Path, trees: &[Tree]) {
    for (name, text) in trees.iter().flat_map(|tree| tree.iter()) {
        let path = devices.join("intel_pt").join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, format!("{text}\n")).unwrap();
    }
}
