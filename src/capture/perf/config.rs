//! The configuration of the PT unit, as the `config` of a perf event: the user's terms, and
//! defaults for other terms, as far as the CPU is capable of them. Opens nothing.

use super::sysfs::PtPmu;
use crate::capture::perf_error::Error;
use crate::capture::pt_config::PtConfig;

/// Terms with a restricted set of values: the name, the capability that they require, and the
/// capability whose set bits are the allowed values.
const RESTRICTED_TERMS: [(&str, &str, &str); 3] = [
    ("psb_period", "psb_cyc", "psb_periods"),
    ("cyc_thresh", "psb_cyc", "cycle_thresholds"),
    ("mtc_period", "mtc", "mtc_periods"),
];

/// Terms that require a capability of the CPU, with that capability.
const REQUIRED_CAPABILITIES: [(&str, &str); 8] = [
    ("cyc", "psb_cyc"),
    ("mtc", "mtc"),
    ("ptw", "ptwrite"),
    ("fup_on_ptw", "ptwrite"),
    ("pwr_evt", "power_event_trace"),
    ("event", "event_trace"),
    ("notnt", "tnt_disable"),
    ("cyc_thresh", "psb_cyc"),
];

/// perf's default: an MTC packet each 2^3 periods of the core crystal clock.
const MTC_PERIOD: u64 = 3;

/// The settings of the PT unit for a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Settings {
    /// The value of `perf_event_attr.config`.
    pub(super) config: u64,
    /// The approximate number of bytes of trace between PSB packets.
    pub(super) psb_period_bytes: u32,
    /// `MTCFreq`, if MTC packets are enabled.
    pub(super) mtc_freq: Option<u8>,
}

impl Settings {
    /// Returns the settings for this CPU. Unless the user's terms set a PSB period, takes the CPU's
    /// longest one that does not exceed `psb_period_bytes`. Fails if the CPU is not capable of the
    /// user's terms, if they contradict each other, or if they switch off what each recording
    /// needs, such as `tsc=0`.
    pub(super) fn new(
        pmu: &PtPmu,
        requested: &PtConfig,
        psb_period_bytes: u32,
    ) -> Result<Self, Error> {
        let mut config = 0;
        for (name, value) in defaults(pmu, psb_period_bytes) {
            if let Some(field) = pmu.field(name) {
                config = field.set(config, value);
            }
        }
        for (name, value) in &requested.terms {
            check_term(pmu, name, *value)?;
            if let Some(field) = pmu.field(name) {
                config = field.set(config, *value);
            }
        }
        enable_required_terms(pmu, requested, &mut config);
        check_terms(pmu, requested, config)?;
        let get = |name: &str| pmu.field(name).map_or(0, |field| field.get(config));
        let exponent = u32::try_from(get("psb_period")).unwrap_or(0) + 11;
        let mtc_freq = u8::try_from(get("mtc_period")).ok().filter(|_| get("mtc") != 0);
        Ok(Self { config, psb_period_bytes: 1 << exponent.min(26), mtc_freq })
    }
}

/// Returns the default terms: TSC and branches, and as far as the CPU has them, MTC and a PSB
/// period.
fn defaults(pmu: &PtPmu, psb_period_bytes: u32) -> Vec<(&'static str, u64)> {
    // If there is a field for branches, it applies only with bit 0 set (`pt_event_valid`).
    let mut terms = vec![("tsc", 1)];
    if pmu.field("branch").is_some() && pmu.field("pt").is_some() {
        terms.extend([("pt", 1), ("branch", 1)]);
    }
    let mtc_periods = pmu.cap("mtc_periods");
    if pmu.cap("mtc") != 0 && mtc_periods != 0 {
        terms.extend([("mtc", 1), ("mtc_period", largest_set_bit(mtc_periods, MTC_PERIOD))]);
    }
    if pmu.cap("psb_cyc") != 0 && pmu.cap("psb_periods") != 0 {
        let wanted = u64::from(psb_period_bytes.clamp(1 << 11, 1 << 26).ilog2() - 11);
        terms.push(("psb_period", largest_set_bit(pmu.cap("psb_periods"), wanted)));
    }
    terms
}

/// Returns the largest number of a set bit of `values` up to `wanted`; 0, which is always allowed,
/// if there is none.
fn largest_set_bit(values: u64, wanted: u64) -> u64 {
    (0..=wanted.min(63)).rev().find(|value| values >> value & 1 != 0).unwrap_or(0)
}

/// Returns the error for a configuration that is invalid for the reason `why`.
fn refused(why: String) -> Result<(), Error> {
    Err(Error::Config(why))
}

/// Returns an error if this kernel or CPU does not support the term with this value.
fn check_term(pmu: &PtPmu, name: &str, value: u64) -> Result<(), Error> {
    let Some(field) = pmu.field(name) else {
        let names: Vec<_> = pmu.field_names().collect();
        return refused(format!("there is no {name}; this kernel has {}", names.join(", ")));
    };
    if value > field.max_value() {
        return refused(format!("{name} is at most {}", field.max_value()));
    }
    if let Some((_, cap, values)) = RESTRICTED_TERMS.iter().find(|(term, ..)| *term == name) {
        let allowed = if pmu.cap(cap) == 0 { 0 } else { pmu.cap(values) };
        // The kernel always accepts 0 for a PSB period or threshold, even if the map does not.
        let zero = value == 0 && *cap == "psb_cyc";
        if !zero && allowed >> value & 1 == 0 {
            let listed = list_set_bits(allowed | u64::from(*cap == "psb_cyc"));
            return refused(format!("{name} can be {listed} on this CPU"));
        }
    }
    let need = REQUIRED_CAPABILITIES.iter().find(|(term, _)| *term == name);
    match need {
        Some((_, cap)) if value != 0 && pmu.cap(cap) == 0 => {
            refused(format!("this CPU has no {name} (caps/{cap} is 0)"))
        }
        _ => Ok(()),
    }
}

/// Lists the numbers of the set bits.
fn list_set_bits(values: u64) -> String {
    let set = (0..64).filter(|value| values >> value & 1 != 0);
    let words: Vec<_> = set.map(|value| value.to_string()).collect();
    if words.is_empty() { "nothing".to_owned() } else { words.join(", ") }
}

/// Enables terms in `config` that the user's terms require.
fn enable_required_terms(pmu: &PtPmu, requested: &PtConfig, config: &mut u64) {
    let implied = [("cyc_thresh", "cyc"), ("mtc_period", "mtc"), ("fup_on_ptw", "ptw")];
    for (term, other) in implied {
        let wanted = requested.value(term).is_some_and(|value| value != 0);
        if let Some(field) = pmu.field(other)
            && wanted
            && requested.value(other).is_none()
        {
            *config = field.set(*config, 1);
        }
    }
    if requested.value("mtc") == Some(0) && requested.value("mtc_period").is_none() {
        // The kernel takes a period for a request for packets.
        if let Some(field) = pmu.field("mtc_period") {
            *config = field.set(*config, 0);
        }
    }
}

/// Returns an error if the terms disable something that a recording needs, or contradict each
/// other.
fn check_terms(pmu: &PtPmu, requested: &PtConfig, config: u64) -> Result<(), Error> {
    let get = |name: &str| pmu.field(name).map_or(0, |field| field.get(config));
    for (term, why) in [
        ("tsc", "without times the threads have no order"),
        ("branch", "without branches there is no path"),
        ("pt", "branch has no effect without it"),
    ] {
        if requested.value(term) == Some(0) {
            return refused(format!("{term}=0 makes no recording: {why}"));
        }
    }
    if get("fup_on_ptw") != 0 && get("ptw") == 0 {
        return refused("fup_on_ptw needs ptw".to_owned());
    }
    if get("mtc_period") != 0 && get("mtc") == 0 {
        return refused("mtc_period needs mtc".to_owned());
    }
    Ok(())
}
