//! `contraflow doctor` on this machine, against its files and tools.

use crate::support::{contraflow, have, text};
use serde_json::Value;
use std::fs;
use std::process::Command;

#[test]
fn the_words_are_those_of_the_facts_and_the_facts_those_of_the_machine() {
    let output = contraflow().args(["doctor", "--json"]).output().expect("contraflow runs");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let all: Value = serde_json::from_slice(&output.stdout).unwrap();
    let words = text(&contraflow().arg("doctor").output().expect("contraflow runs").stdout);
    let findings = all["findings"].as_array().unwrap();
    assert_eq!(words.lines().count(), findings.len());
    for (line, finding) in words.lines().zip(findings) {
        let (about, text) = line.split_at_checked(15).unwrap();
        assert_eq!(
            (about.trim(), text),
            (finding["about"].as_str().unwrap(), finding["text"].as_str().unwrap())
        );
    }
    let facts = &all["facts"];
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap();
    let flag = |name: &str| cpuinfo.split_whitespace().any(|word| word == name);
    assert_eq!(facts["cpu"]["intel_pt"], flag("intel_pt"));
    assert_eq!(facts["cpu"]["hypervisor"], flag("hypervisor"));
    let pmu = fs::exists("/sys/bus/event_source/devices/intel_pt").unwrap();
    assert_eq!(facts["pmu"].is_object(), pmu);
    let number =
        |path: &str| fs::read_to_string(path).ok().and_then(|n| n.trim().parse::<i64>().ok());
    let paranoid = number("/proc/sys/kernel/perf_event_paranoid");
    assert_eq!(facts["perf_events"]["paranoid"].as_i64(), paranoid);
    let scope = number("/proc/sys/kernel/yama/ptrace_scope");
    assert_eq!(facts["process"]["ptrace_scope"].as_i64(), scope);
    // This is how the other tests record.
    assert_eq!(facts["tried"]["ptrace_fault"], Value::Null);
    assert_ne!(all["record"]["means"], "nothing");
    if have("gdb") {
        let said = Command::new("gdb").args(["-nx", "--version"]).output().expect("gdb runs");
        let gdb =
            facts["debuggers"].as_array().unwrap().iter().find(|found| found["name"] == "gdb");
        let version = gdb.unwrap()["version"].as_str().unwrap();
        let first = text(&said.stdout).lines().next().unwrap().to_owned();
        assert!(!version.is_empty() && first.ends_with(version), "{first}");
    }
}
