//! How the PT unit is to trace: what the user asked for, what is sane otherwise, and what the CPU
//! has, as the `config` of a perf event. Opens nothing.

use super::error::Error;
use super::sysfs::PtPmu;
use std::str::FromStr;

/// Terms of a configuration as perf writes them: `cyc,mtc_period=6,ptw`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PtConfig {
    terms: Vec<(String, u64)>,
}

impl FromStr for PtConfig {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut terms: Vec<(String, u64)> = Vec::new();
        for term in text.split(',') {
            let (name, value) = term.split_once('=').unwrap_or((term, "1"));
            let is_name = |c: char| c.is_ascii_lowercase() || c == '_';
            if name.is_empty() || !name.chars().all(is_name) {
                return Err(format!("{term:?} is no term; give for example cyc,mtc_period=6"));
            }
            let hexadecimal = value.strip_prefix("0x").map(|value| u64::from_str_radix(value, 16));
            let value = hexadecimal.unwrap_or_else(|| value.parse());
            let value = value.map_err(|_| format!("the value of {name} is no number"))?;
            if terms.iter().any(|(known, _)| known == name) {
                return Err(format!("{name} is given twice"));
            }
            terms.push((name.to_owned(), value));
        }
        Ok(Self { terms })
    }
}

impl PtConfig {
    fn value(&self, name: &str) -> Option<u64> {
        self.terms.iter().find(|(known, _)| known == name).map(|(_, value)| *value)
    }
}

/// Terms that may have certain values only: the capability that says whether there are any, and
/// the one that says which.
const CHOICES: [(&str, &str, &str); 3] = [
    ("psb_period", "psb_cyc", "psb_periods"),
    ("cyc_thresh", "psb_cyc", "cycle_thresholds"),
    ("mtc_period", "mtc", "mtc_periods"),
];

/// Terms that need something of the CPU, with the capability.
const NEEDS: [(&str, &str); 8] = [
    ("cyc", "psb_cyc"),
    ("mtc", "mtc"),
    ("ptw", "ptwrite"),
    ("fup_on_ptw", "ptwrite"),
    ("pwr_evt", "power_event_trace"),
    ("event", "event_trace"),
    ("notnt", "tnt_disable"),
    ("cyc_thresh", "psb_cyc"),
];

/// perf's default: an eighth of the crystal clock.
const MTC_PERIOD: u64 = 3;

/// What the trace is taken with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Settings {
    /// `perf_event_attr.config`.
    pub(super) config: u64,
    /// Bytes of trace between PSB packets, about.
    pub(super) psb_period_bytes: u32,
    /// `MTCFreq`, where MTC packets are on.
    pub(super) mtc_freq: Option<u8>,
}

impl Settings {
    /// The configuration for this CPU. `psb_period_bytes` is what is wanted where the terms do not
    /// say: the nearest shorter period that the CPU has is taken.
    pub(super) fn new(pmu: &PtPmu, asked: &PtConfig, psb_period_bytes: u32) -> Result<Self, Error> {
        let mut config = 0;
        for (name, value) in defaults(pmu, psb_period_bytes) {
            if let Some(field) = pmu.field(name) {
                config = field.put(config, value);
            }
        }
        for (name, value) in &asked.terms {
            check(pmu, name, *value)?;
            if let Some(field) = pmu.field(name) {
                config = field.put(config, *value);
            }
        }
        imply(pmu, asked, &mut config);
        demand(pmu, asked, config)?;
        let get = |name: &str| pmu.field(name).map_or(0, |field| field.get(config));
        let exponent = u32::try_from(get("psb_period")).unwrap_or(0) + 11;
        let mtc_freq = u8::try_from(get("mtc_period")).ok().filter(|_| get("mtc") != 0);
        Ok(Self { config, psb_period_bytes: 1 << exponent.min(26), mtc_freq })
    }
}

/// What is traced without a word: branches, with time as fine as is cheap.
fn defaults(pmu: &PtPmu, psb_period_bytes: u32) -> Vec<(&'static str, u64)> {
    // Where there is a field for branches, bit 0 says that it counts (pt_event_valid).
    let mut terms = vec![("tsc", 1)];
    if pmu.field("branch").is_some() && pmu.field("pt").is_some() {
        terms.extend([("pt", 1), ("branch", 1)]);
    }
    let mtc_periods = pmu.cap("mtc_periods");
    if pmu.cap("mtc") != 0 && mtc_periods != 0 {
        terms.extend([("mtc", 1), ("mtc_period", nearest(mtc_periods, MTC_PERIOD))]);
    }
    if pmu.cap("psb_cyc") != 0 && pmu.cap("psb_periods") != 0 {
        let wanted = u64::from(psb_period_bytes.clamp(1 << 11, 1 << 26).ilog2() - 11);
        terms.push(("psb_period", nearest(pmu.cap("psb_periods"), wanted)));
    }
    terms
}

/// The value of a bit map next to `wanted`: below it, if there is one. 0 is always allowed.
fn nearest(values: u64, wanted: u64) -> u64 {
    (0..=wanted.min(63)).rev().find(|value| values >> value & 1 != 0).unwrap_or(0)
}

fn refused(why: String) -> Result<(), Error> {
    Err(Error::Config(why))
}

/// Whether this CPU can have the term with this value.
fn check(pmu: &PtPmu, name: &str, value: u64) -> Result<(), Error> {
    let Some(field) = pmu.field(name) else {
        let names: Vec<_> = pmu.field_names().collect();
        return refused(format!("there is no {name}; this kernel has {}", names.join(", ")));
    };
    if value > field.most() {
        return refused(format!("{name} is at most {}", field.most()));
    }
    if let Some((_, cap, values)) = CHOICES.iter().find(|(term, ..)| *term == name) {
        let allowed = if pmu.cap(cap) == 0 { 0 } else { pmu.cap(values) };
        // The kernel lets the zero of a PSB period or threshold through whatever the map says.
        let zero = value == 0 && *cap == "psb_cyc";
        if !zero && allowed >> value & 1 == 0 {
            let listed = list(allowed | u64::from(*cap == "psb_cyc"));
            return refused(format!("{name} can be {listed} on this CPU"));
        }
    }
    let need = NEEDS.iter().find(|(term, _)| *term == name);
    match need {
        Some((_, cap)) if value != 0 && pmu.cap(cap) == 0 => {
            refused(format!("this CPU has no {name} (caps/{cap} is 0)"))
        }
        _ => Ok(()),
    }
}

/// The set bits, as words.
fn list(values: u64) -> String {
    let set = (0..64).filter(|value| values >> value & 1 != 0);
    let words: Vec<_> = set.map(|value| value.to_string()).collect();
    if words.is_empty() { "nothing".to_owned() } else { words.join(", ") }
}

/// What a term needs of others.
fn imply(pmu: &PtPmu, asked: &PtConfig, config: &mut u64) {
    let implied = [("cyc_thresh", "cyc"), ("mtc_period", "mtc"), ("fup_on_ptw", "ptw")];
    for (term, other) in implied {
        let wanted = asked.value(term).is_some_and(|value| value != 0);
        if let Some(field) = pmu.field(other)
            && wanted
            && asked.value(other).is_none()
        {
            *config = field.put(*config, 1);
        }
    }
    if asked.value("mtc") == Some(0) && asked.value("mtc_period").is_none() {
        // The kernel takes a period for a wish for packets.
        if let Some(field) = pmu.field("mtc_period") {
            *config = field.put(*config, 0);
        }
    }
}

/// What a recording cannot do without, and what goes together.
fn demand(pmu: &PtPmu, asked: &PtConfig, config: u64) -> Result<(), Error> {
    let get = |name: &str| pmu.field(name).map_or(0, |field| field.get(config));
    for (term, why) in [
        ("tsc", "without times the threads have no order"),
        ("branch", "without branches there is no path"),
        ("pt", "it is what lets branch count"),
    ] {
        if asked.value(term) == Some(0) {
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
