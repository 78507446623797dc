//! The saved index: as good as a built one, and never trusted.

use super::machine::run;
use super::program::Random;
use super::recorded::{Recorded, reported, tid};
use crate::timeline::Timeline;
use proptest::prelude::*;
use std::fs;

const FILE: &str = "index.bin";

/// Saves the index of a recording and returns the timeline's contents.
fn indexed(recorded: &Recorded) -> Vec<String> {
    let timeline = recorded.open(2, 1 << 16);
    assert!(timeline.save_index().unwrap());
    reported(&timeline)
}

fn config() -> ProptestConfig {
    ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_saved_index_is_as_good_as_a_built_one(seed: u64, threads in 1_usize..4, wounded: bool) {
        let ran = run(seed, threads, 600);
        let mut traces: Vec<Vec<u8>> = ran.threads.iter().map(|n| n.trace.clone()).collect();
        if wounded {
            let (size, middle) = (traces[0].len(), traces[0].len() / 2);
            traces[0].drain(middle..(middle + 9).min(size));
        }
        let slices: Vec<&[u8]> = traces.iter().map(Vec::as_slice).collect();
        let recorded = Recorded::with_traces(&ran, &slices);
        let built = indexed(&recorded);
        let again = recorded.open_saved();
        prop_assert!(again.had_saved_index());
        prop_assert_eq!(reported(&again), built);
    }

    #[test]
    fn a_damaged_index_is_no_index(seed: u64) {
        let ran = run(seed, 2, 300);
        let recorded = Recorded::new(&ran);
        let built = indexed(&recorded);
        let path = recorded.path().join(FILE);
        let mut bytes = fs::read(&path).unwrap();
        let mut random = Random::new(seed ^ 8);
        let at = random.below(bytes.len());
        if random.one_in(2) {
            bytes[at] ^= 1 << random.below(8);
        } else {
            bytes.truncate(at);
        }
        fs::write(&path, bytes).unwrap();
        let again = recorded.open_saved();
        prop_assert!(!again.had_saved_index());
        prop_assert_eq!(reported(&again), built);
    }

    /// Tests hostile bytes with a valid checksum.
    #[test]
    fn a_hostile_index_harms_nothing(seed: u64, wounds in 1_usize..8) {
        let ran = run(seed, 2, 300);
        let recorded = Recorded::new(&ran);
        indexed(&recorded);
        let path = recorded.path().join(FILE);
        let mut bytes = fs::read(&path).unwrap();
        let mut random = Random::new(seed ^ 7);
        for _ in 0..wounds {
            let at = HEADER + random.below(bytes.len() - HEADER);
            bytes[at] = match random.below(3) {
                0 => 0xff,
                1 => 0,
                _ => bytes[at] ^ (1 << random.below(8)),
            };
        }
        let sum = crc32fast::hash(&bytes[HEADER..]);
        bytes[HEADER - 4..HEADER].copy_from_slice(&sum.to_le_bytes());
        fs::write(&path, bytes).unwrap();
        ask_all(&recorded.open_saved());
    }
}

const HEADER: usize = 48;

/// Queries some positions only: a hostile index may claim any number of instructions.
fn ask_all(timeline: &Timeline) {
    use crate::timeline::{Direction, Search};
    let total = timeline.total();
    for g in [0, 1, 50, total / 2, total.saturating_sub(1), total, u64::MAX] {
        let _ = (timeline.running_at(g), timeline.running_before(g), timeline.time_at(g));
        for tid in timeline.threads() {
            let index = timeline.index_of(tid, g);
            for index in [index, g, timeline.instructions(tid)] {
                let _ = (timeline.pc(tid, index), timeline.global_of(tid, index));
                let _ = (timeline.call_stack(tid, index), timeline.segment_bounds(tid, index));
            }
            let _ = timeline.gaps(tid);
            let addrs = timeline.pc(tid, index).into_iter().collect();
            for direction in [Direction::Forward, Direction::Backward] {
                let search = Search { within: 0..g, direction, only: None, addrs: &addrs };
                let _ = timeline.find(&search, &|| false);
            }
        }
    }
}

#[test]
fn an_index_of_another_recording_or_state_is_no_index() {
    let recorded = Recorded::new(&run(1, 2, 300));
    indexed(&recorded);
    let other = Recorded::new(&run(2, 2, 300));
    fs::copy(recorded.path().join(FILE), other.path().join(FILE)).unwrap();
    assert!(!other.open_saved().had_saved_index());
    assert!(recorded.open_saved().had_saved_index());
    // A missing image leaves gaps, which that index does not contain.
    let images = fs::read_dir(recorded.path().join("images")).unwrap();
    images.for_each(|image| fs::remove_file(image.unwrap().path()).unwrap());
    let without = recorded.open_saved();
    assert!(!without.had_saved_index() && !without.gaps(tid(0)).is_empty());
}

#[test]
fn nothing_is_written_through_a_link() {
    let recorded = Recorded::new(&run(1, 1, 100));
    let victim = recorded.dir.path().join("victim");
    fs::write(&victim, "mine").unwrap();
    std::os::unix::fs::symlink(&victim, recorded.path().join(FILE)).unwrap();
    indexed(&recorded);
    assert_eq!(fs::read(&victim).unwrap(), b"mine");
    assert!(recorded.open_saved().had_saved_index());
}
