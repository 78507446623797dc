//! The table against the kernel's own list.

use crate::syscalls::{Call, Effects, Model, Property, models};
use std::io::Write;

const HEADER: &str = "/usr/include/x86_64-linux-gnu/asm/unistd_64.h";

/// Reports a test that is skipped. Not by `eprintln!`, which the test harness swallows.
pub(super) fn skipped(why: &str) {
    let _ = writeln!(std::io::stderr(), "SKIPPED: {why}");
}

#[test]
fn every_call_of_the_kernels_header_is_in_the_table() {
    let Ok(header) = std::fs::read_to_string(HEADER) else {
        skipped(&format!("{HEADER} is not there"));
        return;
    };
    let lines = header.lines().filter_map(|line| line.strip_prefix("#define __NR_"));
    let calls: Vec<(&str, u64)> = lines
        .filter_map(|line| {
            let (name, number) = line.split_once(' ')?;
            Some((name, number.trim().parse().ok()?))
        })
        .collect();
    assert!(calls.len() > 300, "{} calls in {HEADER}", calls.len());
    for (name, number) in calls {
        assert_eq!(Model::by_number(number).map(|model| model.name), Some(name), "{number}");
    }
}

#[test]
fn calls_newer_than_most_headers_are_there() {
    let newer = [
        (451, "cachestat"),
        (453, "map_shadow_stack"),
        (457, "statmount"),
        (462, "mseal"),
        (464, "getxattrat"),
        (468, "file_getattr"),
        (470, "listns"),
        (471, "rseq_slice_yield"),
    ];
    for (number, name) in newer {
        assert_eq!(Model::by_number(number).map(|model| model.name), Some(name));
    }
    // The numbers that all architectures share have no hole.
    assert!((424..=471).all(|number| Model::by_number(number).is_some()));
    assert_eq!(models().count(), 337 + 48);
}

#[test]
fn unknown_calls_are_a_value() {
    let memory = |_, _: &mut [u8]| 0;
    for number in [337, 423, 472, 0x4000_0000, u64::MAX] {
        let open = Call { number, args: [0; 6] }.begin(&memory);
        assert_eq!(open.end(0, &memory), Effects::Unknown);
        assert_eq!(open.end(-38, &memory), Effects::Known(Vec::new()));
    }
}

#[test]
fn properties_of_some_calls() {
    let has =
        |name: &str, property| models().find(|model| model.name == name).expect(name).has(property);
    assert!(has("futex", Property::MayBlock) && !has("getpid", Property::MayBlock));
    assert!(has("mmap", Property::ChangesMappings) && !has("mlock", Property::ChangesMappings));
    assert!(has("clone3", Property::ChangesProcess));
    assert!(has("rt_sigreturn", Property::SetsRegisters));
    assert!(has("write", Property::WritesFiles));
    assert!(has("process_vm_writev", Property::WritesOthers));
    let refused = ["io_uring_setup", "io_setup", "io_submit", "userfaultfd", "perf_event_open"];
    assert!(refused.iter().all(|name| has(name, Property::Denied)));
    let keeping = ["set_robust_list", "set_tid_address", "rseq", "clone"];
    assert!(keeping.iter().all(|name| has(name, Property::KeepsPointer)));
}

#[test]
fn calls_take_as_many_arguments_as_the_kernel_says() {
    for model in models() {
        let call = Call { number: model.number as u64, args: [0; 6] };
        let count = crate::syscalls::table::argument_count(call.number);
        assert_eq!(count, Some(call.arguments().len()), "{model:?}");
    }
    let events = "/sys/kernel/tracing/events/syscalls";
    let mut compared = 0;
    for model in models() {
        let Ok(format) =
            std::fs::read_to_string(format!("{events}/sys_enter_{}/format", model.name))
        else {
            continue;
        };
        // Without the four fields of all events, the number, and copies of strings.
        let fields = format.matches("field:").count() - format.matches("__data_loc").count() - 5;
        let call = Call { number: model.number as u64, args: [0; 6] };
        assert_eq!(call.arguments().len(), fields, "{}", model.name);
        compared += 1;
    }
    if compared == 0 {
        skipped(&format!("{events} cannot be read"));
    } else {
        assert!(compared > 300, "{compared} calls in {events}");
    }
}
