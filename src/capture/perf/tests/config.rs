//! Attributes of several generations of CPUs, bit by bit.

use super::super::config::Settings;
use super::super::sysfs::{PtPmu, cpu_has_pt};
use super::fixtures::{ALDER_LAKE, BROADWELL, GOLDMONT_PLUS, SKYLAKE, Tree, plant};
use crate::capture::PerfError as Error;
use crate::capture::pt_config::PtConfig;

const PT: u64 = 1;
const CYC: u64 = 1 << 1;
const MTC: u64 = 1 << 9;
const TSC: u64 = 1 << 10;
const NORETCOMP: u64 = 1 << 11;
const PTW: u64 = 1 << 12;
const FUP_ON_PTW: u64 = 1 << 5;
const BRANCH: u64 = 1 << 13;
const NOTNT: u64 = 1 << 55;

fn mtc_period(value: u64) -> u64 {
    value << 14
}

fn psb_period(value: u64) -> u64 {
    value << 24
}

fn pmu(trees: &[Tree]) -> PtPmu {
    let devices = tempfile::tempdir().unwrap();
    plant(devices.path(), trees);
    PtPmu::read(devices.path()).unwrap()
}

fn settings(trees: &[Tree], terms: &str) -> Result<Settings, String> {
    let asked: PtConfig = if terms.is_empty() {
        PtConfig::default()
    } else {
        terms.parse().map_err(|e: crate::capture::BadTerm| e.to_string())?
    };
    Settings::new(&pmu(trees), &asked, 4096).map_err(|error| error.to_string())
}

fn config(trees: &[Tree], terms: &str) -> u64 {
    settings(trees, terms).unwrap().config
}

fn refused(trees: &[Tree], terms: &str) -> String {
    settings(trees, terms).unwrap_err()
}

const GOLDMONT: &[Tree] = &[SKYLAKE, GOLDMONT_PLUS];
const ALDER: &[Tree] = &[SKYLAKE, ALDER_LAKE];

#[test]
fn without_a_word_branches_and_the_cheap_times_are_traced() {
    // The kernel of that CPU's time has no field for branches, and always traces them.
    assert_eq!(config(&[BROADWELL], ""), TSC);
    let all = PT | TSC | BRANCH | MTC | mtc_period(3) | psb_period(1);
    for trees in [&[SKYLAKE][..], GOLDMONT, ALDER] {
        assert_eq!(config(trees, ""), all);
    }
    let settings = settings(&[SKYLAKE], "").unwrap();
    assert_eq!((settings.psb_period_bytes, settings.mtc_freq), (4096, Some(3)));
    let old = Settings::new(&pmu(&[BROADWELL]), &PtConfig::default(), 1 << 20).unwrap();
    assert_eq!((old.psb_period_bytes, old.mtc_freq), (2048, None));
}

#[test]
fn the_psb_period_is_the_next_shorter_one() {
    let pmu = pmu(&[SKYLAKE]);
    let period = |bytes| Settings::new(&pmu, &PtConfig::default(), bytes).unwrap().psb_period_bytes;
    assert_eq!(period(2048), 2048);
    assert_eq!(period(65536), 65536);
    // The CPU has 2 KiB to 64 KiB.
    assert_eq!(period(1 << 26), 65536);
}

#[test]
fn terms_are_set_where_the_cpu_has_them() {
    let plain = PT | TSC | BRANCH | psb_period(1);
    let mtc = MTC | mtc_period(3);
    let skylake = |terms| config(&[SKYLAKE], terms);
    assert_eq!(skylake("cyc"), plain | mtc | CYC);
    assert_eq!(skylake("cyc_thresh=2"), plain | mtc | CYC | 2 << 19);
    assert_eq!(skylake("mtc_period=9,noretcomp"), plain | MTC | mtc_period(9) | NORETCOMP);
    assert_eq!(skylake("mtc=0"), plain);
    assert_eq!(skylake("psb_period=0x5"), plain & !psb_period(1) | mtc | psb_period(5));
    assert_eq!(config(GOLDMONT, "fup_on_ptw"), plain | mtc | PTW | FUP_ON_PTW);
    assert_eq!(config(ALDER, "notnt,event"), plain | mtc | NOTNT | 1 << 31);
}

#[test]
fn what_the_cpu_does_not_have_is_refused_with_what_it_has() {
    let skylake = |terms| refused(&[SKYLAKE], terms);
    assert_eq!(
        skylake("mtc_period=4"),
        "the PT configuration: mtc_period can be 0, 3, 6, 9 on this CPU"
    );
    assert_eq!(
        skylake("psb_period=6"),
        "the PT configuration: psb_period can be 0, 1, 2, 3, 4, 5 on this CPU"
    );
    assert!(skylake("cyc_thresh=13").contains("0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12 on"));
    assert_eq!(skylake("ptw"), "the PT configuration: this CPU has no ptw (caps/ptwrite is 0)");
    assert!(skylake("notnt").contains("there is no notnt; this kernel has branch, cyc, "));
    assert_eq!(skylake("psb_period=16"), "the PT configuration: psb_period is at most 15");
    assert!(refused(&[BROADWELL], "cyc").contains("there is no cyc"));
    // A CPU without CYC, under a kernel that has the field.
    let trees = &[SKYLAKE, &[("caps/psb_cyc", "0"), ("caps/mtc", "0")][..]];
    assert!(refused(trees, "cyc").contains("this CPU has no cyc (caps/psb_cyc is 0)"));
    assert!(refused(trees, "mtc_period=3").contains("mtc_period can be nothing on this CPU"));
    assert_eq!(config(trees, ""), PT | TSC | BRANCH);
}

#[test]
fn what_would_make_no_recording_is_refused() {
    for (terms, why) in [
        ("tsc=0", "the threads have no order"),
        ("branch=0", "there is no path"),
        ("pt=0", "branch has no effect without it"),
        ("mtc=0,mtc_period=3", "mtc_period needs mtc"),
        ("cyc,cyc", "twice"),
        ("CYC", "no term"),
        ("", "no term"),
        ("cyc=x", "no number"),
        ("psb_period=", "no number"),
    ] {
        let parsed = terms.parse::<PtConfig>();
        let error = match parsed {
            Ok(_) => refused(&[SKYLAKE], terms),
            Err(error) => error.to_string(),
        };
        assert!(error.contains(why), "{terms}: {error}");
    }
    assert!(refused(GOLDMONT, "ptw=0,fup_on_ptw").contains("fup_on_ptw needs ptw"));
}

#[test]
fn the_pmu_reports_clocks_and_ranges() {
    let skylake = pmu(&[SKYLAKE]);
    assert_eq!((skylake.number, skylake.filter_ranges), (7, 2));
    assert_eq!((skylake.nominal_ratio, skylake.cpuid_15), (Some(34), Some((284, 2))));
    let goldmont = pmu(GOLDMONT);
    assert_eq!((goldmont.filter_ranges, goldmont.cpuid_15), (4, None));
    let broadwell = pmu(&[BROADWELL]);
    assert_eq!((broadwell.filter_ranges, broadwell.nominal_ratio), (0, None));
    // Older kernels have no such attribute, only the capability.
    let devices = tempfile::tempdir().unwrap();
    plant(devices.path(), &[SKYLAKE]);
    std::fs::remove_file(devices.path().join("intel_pt/nr_addr_filters")).unwrap();
    assert_eq!(PtPmu::read(devices.path()).unwrap().filter_ranges, 2);
}

#[test]
fn what_is_missing_is_named() {
    let devices = tempfile::tempdir().unwrap();
    let error = PtPmu::read(devices.path()).unwrap_err();
    match error {
        Error::NoPmu { path } => assert!(cpu_has_pt() && path.ends_with("intel_pt")),
        Error::NoIntelPt => assert!(!cpu_has_pt()),
        other => panic!("{other}"),
    }
    for (file, text) in [
        ("type", "x"),
        ("format/cyc", "config:1-64"),
        ("format/cyc", "config:3-2"),
        ("caps/psb_periods", "g"),
        ("tsc_art_ratio", "1"),
        ("max_nonturbo_ratio", ""),
    ] {
        plant(devices.path(), &[SKYLAKE]);
        std::fs::write(devices.path().join("intel_pt").join(file), text).unwrap();
        let error = PtPmu::read(devices.path()).unwrap_err().to_string();
        assert!(error.contains(file) && error.contains("is invalid"), "{error}");
    }
    plant(devices.path(), &[SKYLAKE]);
    std::fs::remove_file(devices.path().join("intel_pt/type")).unwrap();
    assert!(
        PtPmu::read(devices.path())
            .unwrap_err()
            .to_string()
            .contains("type: holds no valid number")
    );
}
