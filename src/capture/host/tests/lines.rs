//! Tests the findings, and the choice of a backend, for several machines.

use super::machine::{Machine, said};
use crate::capture::host::choice::fallback_of;
use crate::capture::host::{Choice, Facts, PathBackend, Tried, findings};

/// Asserts that the finding about a subject is `good`, and contains the parts.
fn assert_said(facts: &Facts, about: &str, good: Option<bool>, parts: &[&str]) {
    let found = said(facts, about);
    assert_eq!(found.good, good, "{found:?}");
    for part in parts {
        assert!(found.text.contains(part), "{part:?} is not in {found:?}");
    }
}

fn command(choice: &Choice) -> Option<&str> {
    choice.better.as_ref().map(|better| better.command.as_str())
}

#[test]
fn a_machine_with_intel_pt_uses_it() {
    let facts = Machine::skylake().facts();
    assert_said(&facts, "CPU", None, &["A CPU (GenuineIntel 6/94/3), 4 online"]);
    assert!(!said(&facts, "CPU").text.contains("virtual"));
    assert_said(&facts, "Intel PT", Some(true), &["yes"]);
    assert_said(&facts, "PMU", Some(true), &["yes", "intel_pt, number 8"]);
    assert_said(&facts, "filters", Some(true), &["2 address ranges"]);
    assert_said(&facts, "times", Some(true), &["TSC, MTC, CYC; a PSB each 2 KiB to 64 KiB"]);
    assert_said(&facts, "output", Some(true), &["tables of regions (ToPA), a single range"]);
    assert_said(&facts, "also traced", None, &["none"]);
    assert_said(&facts, "perf events", Some(true), &["paranoid is 2", "perf_event_open(2) works"]);
    let parts = ["10.0 MiB may be locked: 516 KiB", "4 CPUs, and 8 MiB", "for 2 threads"];
    assert_said(&facts, "buffers", Some(true), &parts);
    assert_said(&facts, "privileges", None, &["user 1000; capabilities: none"]);
    assert_said(&facts, "seccomp", Some(true), &["no filter"]);
    assert_said(&facts, "ptrace", Some(true), &["yes: a program was started", "no Yama"]);
    assert_said(&facts, "record", Some(true), &["records exactly"]);
    assert_said(&facts, "record --path", Some(true), &["uses the CPU's Intel PT"]);
    assert_said(&facts, "better", None, &["nothing"]);
    assert_eq!(fallback_of(&facts), None);
}

#[test]
fn the_first_unit_has_no_filters() {
    let facts = Machine::broadwell().facts();
    assert_said(&facts, "filters", Some(false), &["none"]);
    assert_said(&facts, "times", Some(false), &["TSC; the CPU fixes the PSB period"]);
    assert_said(&facts, "output", Some(true), &["tables of one region (ToPA)"]);
    assert_eq!(Choice::of(&facts).means, PathBackend::Hardware);
}

#[test]
fn cores_of_two_kinds_are_reported() {
    let facts = Machine::alder_lake().facts();
    assert_said(&facts, "CPU", None, &["4 online of two kinds"]);
    assert_said(&facts, "also traced", None, &["PTWRITE, interrupts and other events"]);
}

#[test]
fn other_cpus_have_none_and_nothing_is_amiss() {
    let facts = Machine::amd().facts();
    assert_said(&facts, "Intel PT", Some(false), &["no: CPUs of AuthenticAMD have no Intel PT"]);
    assert_said(&facts, "PMU", Some(false), &["nor a CPU for it"]);
    assert_said(&facts, "record --path", Some(true), &["software PT", "AuthenticAMD"]);
    assert_eq!(fallback_of(&facts), None);
    let abilities = ["filters", "times", "output"];
    let all = findings(&facts, &Choice::of(&facts));
    assert!(all.iter().all(|finding| !abilities.contains(&finding.about)));
}

#[test]
fn virtual_machines_are_distinguished_from_old_cpus() {
    let facts = Machine::virtual_machine().facts();
    assert_said(&facts, "CPU", None, &["in a virtual machine"]);
    assert_said(&facts, "Intel PT", Some(false), &["its hypervisor hides Intel PT"]);
    assert_eq!(command(&Choice::of(&facts)), None);
    // Without files, nothing is guessed.
    let facts = Facts::default();
    assert_said(&facts, "Intel PT", Some(false), &["no: this CPU has no Intel PT"]);
    assert_said(&facts, "perf events", Some(false), &["the kernel has none"]);
}

#[test]
fn a_paranoid_kernel_can_be_opened() {
    for level in [3, 4] {
        let machine = Machine::skylake().paranoid(level);
        let mut facts = machine.facts();
        facts.tried = Some(Tried { perf_errno: Some(13), ..Tried::default() });
        let reported = format!("no: perf_event_paranoid is {level}: nothing is open without");
        assert_said(&facts, "perf events", Some(false), &[&reported, "refused (EACCES"]);
        let choice = Choice::of(&facts);
        assert_eq!(choice.means, PathBackend::Soft);
        assert_eq!(command(&choice), Some("sudo sysctl kernel.perf_event_paranoid=2"));
        let line = fallback_of(&facts).unwrap();
        assert!(line.contains("not by Intel PT: perf_event_paranoid is"), "{line}");
        assert!(line.contains("better: sudo sysctl"), "{line}");
        // CAP_PERFMON overrides the sysctl.
        let facts = machine.status("0000004000000000", 0).facts();
        assert_said(&facts, "privileges", None, &["capabilities: CAP_PERFMON"]);
        assert_said(&facts, "perf events", Some(true), &["this process has the capability"]);
        assert_eq!(Choice::of(&facts).means, PathBackend::Hardware);
    }
}

#[test]
fn the_filter_of_a_container_is_named() {
    let mut facts = Machine::skylake().in_docker().facts();
    facts.tried = Some(Tried { perf_errno: Some(1), ..Tried::default() });
    assert_said(&facts, "seccomp", Some(false), &["is active", "docker"]);
    assert_said(&facts, "perf events", Some(false), &["refused (EPERM"]);
    let choice = Choice::of(&facts);
    assert!(choice.because.contains("seccomp"), "{choice:?}");
    assert_eq!(command(&choice), Some("docker run --cap-add PERFMON ..."));
    // The same error without a filter has no such remedy.
    let mut facts = Machine::skylake().facts();
    facts.tried = Some(Tried { perf_errno: Some(1), ..Tried::default() });
    let choice = Choice::of(&facts);
    assert!(choice.because.contains("refused (EPERM"), "{choice:?}");
    assert_eq!(command(&choice), None);
}

#[test]
fn a_kernel_without_the_pmu_is_named() {
    let facts = Machine::skylake().without_pmu().facts();
    assert_said(&facts, "Intel PT", Some(true), &["yes"]);
    assert_said(&facts, "PMU", Some(false), &["though the CPU has Intel PT"]);
    let line = fallback_of(&facts).unwrap();
    assert!(line.contains("the kernel offers no PMU intel_pt"), "{line}");
}

#[test]
fn buffers_are_counted_as_the_kernel_does() {
    let machine = Machine::skylake().limit("65536");
    let facts = machine.facts();
    let parts = ["2.0 MiB may be locked", "64 KiB of the process", "less than the 4 MiB"];
    assert_said(&facts, "buffers", Some(false), &parts);
    let choice = Choice::of(&facts);
    assert_eq!(command(&choice), Some("sudo sysctl kernel.perf_event_mlock_kb=4612"));
    for (facts, why) in [
        (machine.status("0000000000004000", 0).facts(), "no limit (CAP_IPC_LOCK)"),
        (Machine::skylake().limit("unlimited").facts(), "no limit (RLIMIT_MEMLOCK is unlimited)"),
        (Machine::skylake().paranoid(-1).facts(), "no limit (perf_event_paranoid is -1)"),
    ] {
        assert_said(&facts, "buffers", Some(true), &[why]);
    }
}

#[test]
fn where_nothing_can_be_traced_nothing_is_recorded() {
    let refused = Some("ptrace is refused here (EPERM)".to_owned());
    let tried = || Some(Tried { ptrace_fault: refused.clone(), ..Tried::default() });
    for (scope, remedy) in
        [(2, Some("sudo sysctl kernel.yama.ptrace_scope=1")), (3, None), (0, None)]
    {
        let facts = Facts { tried: tried(), ..Machine::skylake().yama(scope).facts() };
        let reported = format!("ptrace_scope is {scope}");
        assert_said(&facts, "ptrace", Some(false), &["no: ptrace is refused here", &reported]);
        let choice = Choice::of(&facts);
        assert_eq!((choice.means, command(&choice)), (PathBackend::Nothing, remedy));
        assert_said(&facts, "record", Some(false), &["cannot record: ptrace is refused"]);
    }
    let facts = Facts { tried: tried(), ..Machine::amd().in_docker().facts() };
    let choice = Choice::of(&facts);
    assert_eq!(command(&choice), Some("docker run --cap-add SYS_PTRACE ..."));
}

#[test]
fn yama_concerns_attaching() {
    let facts = Machine::skylake().yama(1).facts();
    assert_said(&facts, "ptrace", Some(true), &["only programs that contraflow starts"]);
    let choice = Choice::of(&facts);
    assert_eq!(command(&choice), Some("sudo sysctl kernel.yama.ptrace_scope=0"));
    let facts = Machine::skylake().yama(1).status("0000000000080000", 0).facts();
    assert_said(&facts, "ptrace", Some(true), &["which CAP_SYS_PTRACE overrides"]);
    assert_eq!(command(&Choice::of(&facts)), None);
}
