//! The settings of a recording's traces, as perf describes them: the event's `config`, and the
//! clock.

use super::super::manifest::{Import, Manifest};
use crate::pt::TscToNs;
use crate::sideband::perf_data::{AuxInfo, PerfClock};

/// The number of the `intel_pt` PMU on most machines.
pub(super) const PMU: u32 = 8;
/// Bits of `intel_pt`'s `config` (`/sys/bus/event_source/devices/intel_pt/format`).
const CONFIG_PT: u64 = 1;
const CONFIG_CYC: u64 = 1 << 1;
const CONFIG_MTC: u64 = 1 << 9;
const CONFIG_TSC: u64 = 1 << 10;
const CONFIG_NORETCOMP: u64 = 1 << 11;
const CONFIG_BRANCH: u64 = 1 << 13;
const CONFIG_MTC_PERIOD: u64 = 0xf << 14;
const CONFIG_MTC_PERIOD_SHIFT: u32 = 14;

/// Returns the conversion from the TSC to the times in perf's records: nanoseconds, or TSC ticks if
/// their rate is unknown.
pub(super) fn clock(manifest: &Manifest) -> TscToNs {
    let end = manifest.end.as_ref();
    let hertz = end.map_or(0.0, |end| end.clock.ticks_per_second);
    // Rounded, not truncated, so that import and export preserve the clock.
    let known = (0..=31_u8).rev().find_map(|shift| {
        let multiplier = (1e9 * f64::from(1_u32 << shift) / hertz).round();
        let fits = (1.0..=f64::from(u32::MAX)).contains(&multiplier);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it fits")]
        fits.then_some(TscToNs { zero_ns: 0, multiplier: multiplier as u32, shift })
    });
    known.unwrap_or(TscToNs { zero_ns: 0, multiplier: 1, shift: 0 })
}

/// Returns the settings of the traces in perf's form, and `intel_pt`'s `config`.
pub(super) fn trace_settings(manifest: &Manifest, clock: TscToNs, of_cpus: bool) -> (AuxInfo, u64) {
    let capture = &manifest.capture;
    let import = match &capture.hardware {
        None => capture.import.clone().unwrap_or_default(),
        Some(hardware) => Import {
            mtc_freq: hardware.mtc_freq,
            cpuid_15: hardware.cpuid_15,
            nominal_ratio: hardware.nominal_ratio,
            ..Import::default()
        },
    };
    let mtc = import.mtc_freq.map_or(0, |freq| {
        CONFIG_MTC | u64::from(freq) << CONFIG_MTC_PERIOD_SHIFT & CONFIG_MTC_PERIOD
    });
    let info = AuxInfo {
        pmu: PMU,
        clock: Some(PerfClock {
            zero_ns: clock.zero_ns,
            multiplier: clock.multiplier,
            shift: clock.shift,
        }),
        // 2: the switches are records of the kind PERF_RECORD_SWITCH.
        sched_switch: if of_cpus { 2 } else { 0 },
        snapshot: false,
        tsc_bit: CONFIG_TSC,
        noretcomp_bit: CONFIG_NORETCOMP,
        mtc_bit: CONFIG_MTC,
        mtc_freq_bits: CONFIG_MTC_PERIOD,
        tsc_ctc_ratio: import.cpuid_15.unwrap_or_default(),
        cyc_bit: CONFIG_CYC,
        max_nonturbo_ratio: import.nominal_ratio.unwrap_or(0).into(),
        per_cpu: of_cpus,
        filter: String::new(),
    };
    (info, CONFIG_PT | CONFIG_TSC | CONFIG_BRANCH | mtc)
}
