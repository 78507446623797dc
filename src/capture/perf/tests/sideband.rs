//! Tests real rings of the kernel, with an event that counts nothing: they report the actions of
//! this thread.

use super::super::clock::PerfTime;
use super::super::sideband::{Sideband, SidebandAttr};
use super::record::can_listen;
use crate::capture::clock::now;
use crate::common::Tid;
use crate::sideband::perf_data::{PerfEvent, PerfRecord};
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};
use std::num::NonZero;

/// The calling thread.
const THIS: Tid = Tid(0);
const PAGE: NonZero<usize> = NonZero::new(4096).unwrap();

fn records(sideband: &mut Sideband) -> Vec<PerfRecord> {
    let read = sideband.read();
    assert!(!read.may_lack_records);
    read.records
}

/// Maps a page of a file as code, and unmaps it.
fn map_code(file: &std::fs::File) {
    let flags = ProtFlags::PROT_READ | ProtFlags::PROT_EXEC;
    // SAFETY: nothing else uses the new mapping, which is unmapped here.
    unsafe {
        let at = mmap(None, PAGE, flags, MapFlags::MAP_PRIVATE, file, 0).unwrap();
        munmap(at, PAGE.get()).unwrap();
    }
}

#[test]
fn mappings_names_and_switches_are_reported_with_their_times() {
    if !can_listen() {
        return;
    }
    let (sideband_attr, mut time) = SidebandAttr::probe().unwrap();
    let mut sideband = sideband_attr.open(THIS).unwrap();
    let path = std::env::current_exe().unwrap();
    let file = std::fs::File::open(&path).unwrap();
    let before = now();
    map_code(&file);
    std::fs::write("/proc/thread-self/comm", "a new name").unwrap();
    std::thread::sleep(std::time::Duration::from_millis(2));
    let after = now();
    time.read_clocks();
    let records = records(&mut sideband);
    let mapped = |record: &&PerfRecord| match &record.event {
        PerfEvent::Map(map) => map.executable && std::path::Path::new(&map.name) == path,
        _ => false,
    };
    let map = records.iter().find(mapped).expect("the mapping is reported");
    let named = |record: &PerfRecord| match &record.event {
        PerfEvent::Comm { name, exec, .. } => name == "a new name" && !exec,
        _ => false,
    };
    assert!(records.iter().any(named));
    let switched = |out| {
        let is_it =
            |r: &PerfRecord| matches!(r.event, PerfEvent::Switch { out: o, .. } if o == out);
        records.iter().any(is_it)
    };
    assert!(switched(true) && switched(false), "the sleep is two switches");
    // A busy machine may have taken a while between two readings.
    let slack = match time {
        PerfTime::Known(_) => 10_000,
        PerfTime::Raw(_) => 10_000_000,
    };
    let at = time.tsc(map.id.time_ns.unwrap());
    assert!(at.0 + slack > before.0 && at.0 < after.0 + slack, "{before:?} {at:?} {after:?}");
    let tid = nix::unistd::gettid().as_raw();
    assert!(records.iter().all(|r| r.id.task.is_some_and(|(_, of)| of == Tid(tid))));
}

#[test]
fn a_ring_that_comes_round_loses_nothing_and_one_that_is_full_says_so() {
    if !can_listen() {
        return;
    }
    let (sideband_attr, _) = SidebandAttr::probe().unwrap();
    let mut sideband = sideband_attr.open(THIS).unwrap();
    let file = std::fs::File::open(std::env::current_exe().unwrap()).unwrap();
    let maps = |records: &[PerfRecord]| {
        records.iter().filter(|r| matches!(r.event, PerfEvent::Map(_))).count()
    };
    let mut seen = 0;
    for _ in 0..60 {
        (0..20).for_each(|_| map_code(&file));
        seen += maps(&records(&mut sideband));
    }
    assert_eq!(seen, 1200);
    // More than fits: the next record that finds room reports the number of lost ones.
    (0..2000).for_each(|_| map_code(&file));
    let first = sideband.read();
    assert!(first.may_lack_records);
    map_code(&file);
    let second = sideband.read().records;
    let lost = |record: &PerfRecord| match record.event {
        PerfEvent::Lost(count) => usize::try_from(count).unwrap(),
        _ => 0,
    };
    let lost: usize = first.records.iter().chain(&second).map(lost).sum();
    let seen = maps(&first.records) + maps(&second);
    // The lost ones may include switches.
    assert!(lost > 0 && seen + lost >= 2001, "{seen} seen, {lost} lost");
}
