//! Trees of files of machines, by the kernel's documentation of sysfs and proc.

use crate::capture::host::{Choice, Facts, Finding, Root, Tried, findings};
use std::ffi::OsStr;
use std::fs;
use std::process::Command;

const PMU: &str = "sys/bus/event_source/devices/intel_pt";

pub(super) struct Machine {
    dir: tempfile::TempDir,
}

impl Machine {
    /// Creates a machine with this CPU: no capabilities, no filter of system calls, no Yama.
    fn new(vendor: &str, signature: [u32; 3], flags: &str) -> Self {
        let machine = Self { dir: tempfile::tempdir().unwrap() };
        let [family, model, stepping] = signature;
        let cpu = |number: u32| {
            format!(
                "processor\t: {number}\nvendor_id\t: {vendor}\ncpu family\t: {family}\n\
                 model\t\t: {model}\nmodel name\t: A CPU\nstepping\t: {stepping}\n\
                 flags\t\t: fpu vme {flags} sse2\n\n"
            )
        };
        machine
            .file("proc/cpuinfo", &(0..4).map(cpu).collect::<String>())
            .file("sys/devices/system/cpu/online", "0-3\n")
            .file("proc/sys/kernel/perf_event_paranoid", "2\n")
            .file("proc/sys/kernel/perf_event_mlock_kb", "516\n")
            .status("0000000000000000", 0)
            .limit("8388608")
    }

    pub(super) fn skylake() -> Self {
        Self::new("GenuineIntel", [6, 94, 3], "intel_pt").pmu(&[
            ("psb_cyc", "1"),
            ("ip_filtering", "1"),
            ("mtc", "1"),
            ("topa_output", "1"),
            ("topa_multiple_entries", "1"),
            ("single_range_output", "1"),
            ("num_address_ranges", "2"),
            ("mtc_periods", "249"),
            ("cycle_thresholds", "1fff"),
            ("psb_periods", "3f"),
        ])
    }

    /// Creates a machine with the first CPU that had Intel PT: no filters, no choice of times,
    /// tables of one region.
    pub(super) fn broadwell() -> Self {
        let caps = [("ip_filtering", "0"), ("num_address_ranges", "0"), ("topa_output", "1")];
        Self::new("GenuineIntel", [6, 61, 4], "intel_pt").pmu(&caps)
    }

    pub(super) fn alder_lake() -> Self {
        let machine = Self::new("GenuineIntel", [6, 151, 2], "intel_pt").pmu(&[
            ("psb_cyc", "1"),
            ("ip_filtering", "1"),
            ("mtc", "1"),
            ("ptwrite", "1"),
            ("event_trace", "1"),
            ("topa_output", "1"),
            ("topa_multiple_entries", "1"),
            ("num_address_ranges", "2"),
            ("psb_periods", "3f"),
        ]);
        let devices = "sys/bus/event_source/devices";
        machine
            .file(&format!("{devices}/cpu_core/type"), "4\n")
            .file(&format!("{devices}/cpu_atom/type"), "10\n")
    }

    pub(super) fn amd() -> Self {
        Self::new("AuthenticAMD", [25, 33, 2], "svm")
    }

    pub(super) fn virtual_machine() -> Self {
        Self::new("GenuineIntel", [6, 106, 6], "hypervisor")
    }

    /// Sets the capabilities and the seccomp mode of a Docker container.
    pub(super) fn in_docker(self) -> Self {
        self.status("00000000a80425fb", 2).file(".dockerenv", "")
    }

    pub(super) fn file(self, path: &str, text: &str) -> Self {
        let path = self.dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        self
    }

    pub(super) fn paranoid(self, level: i32) -> Self {
        self.file("proc/sys/kernel/perf_event_paranoid", &format!("{level}\n"))
    }

    pub(super) fn yama(self, scope: u32) -> Self {
        self.file("proc/sys/kernel/yama/ptrace_scope", &format!("{scope}\n"))
    }

    pub(super) fn status(self, capabilities: &str, seccomp: u32) -> Self {
        let status = format!(
            "Name:\tcontraflow\nUid:\t1000\t1000\t1000\t1000\nCapEff:\t{capabilities}\n\
             NoNewPrivs:\t0\nSeccomp:\t{seccomp}\nSeccomp_filters:\t{seccomp}\n"
        );
        self.file("proc/self/status", &status)
    }

    pub(super) fn limit(self, soft: &str) -> Self {
        let limits = format!(
            "Limit                     Soft Limit           Hard Limit           Units     \n\
             Max locked memory         {soft:<20} unlimited            bytes     \n"
        );
        self.file("proc/self/limits", &limits)
    }

    fn pmu(self, caps: &[(&str, &str)]) -> Self {
        let machine = self.file(&format!("{PMU}/type"), "8\n");
        let machine = machine.file(&format!("{PMU}/format/tsc"), "config:10\n");
        caps.iter().fold(machine, |machine, (name, value)| {
            machine.file(&format!("{PMU}/caps/{name}"), &format!("{value}\n"))
        })
    }

    /// Removes the PMU, as for a kernel without it.
    pub(super) fn without_pmu(self) -> Self {
        fs::remove_dir_all(self.dir.path().join(PMU)).unwrap();
        self
    }

    /// Adds a program that is a shell script.
    ///
    /// Another process writes the file: children that other tests start would inherit our own
    /// descriptor until they execute, and a file that is open for writing cannot be executed.
    pub(super) fn program(self, path: &str, script: &str) -> Self {
        let machine = self.file(path, "");
        let file = machine.dir.path().join(path);
        let mut write = Command::new("/bin/sh");
        write.args(["-c", "printf '#!/bin/sh\\n%s\\n' \"$1\" >\"$0\" && chmod 755 \"$0\""]);
        assert!(write.arg(file).arg(script).status().unwrap().success());
        machine
    }

    pub(super) fn root(&self) -> Root {
        Root::at(self.dir.path())
    }

    /// Returns the facts if all that is tried works.
    pub(super) fn facts(&self) -> Facts {
        Facts { tried: Some(Tried::default()), ..Facts::of(&self.root()) }
    }

    pub(super) fn debuggers(&self, path: &str) -> Vec<crate::capture::host::Debugger> {
        crate::capture::host::debuggers(&self.root(), OsStr::new(path))
    }
}

/// Returns the only finding about a subject.
pub(super) fn said(facts: &Facts, about: &str) -> Finding {
    let all = findings(facts, &Choice::of(facts));
    let mut about_it = all.into_iter().filter(|finding| finding.about == about);
    let found = about_it.next().unwrap_or_else(|| panic!("nothing is said of {about}"));
    assert_eq!(about_it.next(), None);
    found
}
