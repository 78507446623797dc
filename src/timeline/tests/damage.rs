//! Damaged traces with valid checksums: nothing panics, and losses are visible.

use super::machine::run;
use super::program::Random;
use super::recorded::{Recorded, reported, tid};
use crate::timeline::Visit;
use proptest::prelude::*;
use std::ops::ControlFlow;

fn damage(trace: &mut Vec<u8>, random: &mut Random) {
    let at = random.below(trace.len());
    match random.below(4) {
        0 => trace.truncate(at.max(1)),
        1 => drop(trace.drain(at..(at + 1 + random.below(40)).min(trace.len()))),
        2 => trace.insert(at, random.below(256).to_le_bytes()[0]),
        _ => trace[at] ^= 1 << random.below(8),
    }
}

/// Returns the numbers of instructions and gaps, decoded from front to back.
fn decoded(timeline: &crate::timeline::Timeline, thread: usize) -> (u64, usize) {
    let (mut insns, mut gaps) = (0, 0);
    let flow: ControlFlow<()> = timeline.visit(tid(thread), 0, &mut |visit| {
        match visit {
            Visit::Block { index, span, .. } => {
                assert_eq!(index, insns);
                insns += u64::from(span.insns);
            }
            Visit::Gap { index, .. } => {
                assert_eq!(index, insns);
                gaps += 1;
            }
            Visit::Event { .. } => {}
        }
        ControlFlow::Continue(())
    });
    assert_eq!(flow, ControlFlow::Continue(()));
    (insns, gaps)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn damage_is_shown_and_harms_nothing(seed: u64, threads in 1_usize..3, wounds in 1_usize..6) {
        let ran = run(seed, threads, 400);
        let mut random = Random::new(seed ^ 9);
        let mut traces: Vec<Vec<u8>> = ran.threads.iter().map(|n| n.trace.clone()).collect();
        for _ in 0..wounds {
            let thread = random.below(threads);
            if !traces[thread].is_empty() {
                damage(&mut traces[thread], &mut random);
            }
        }
        let slices: Vec<&[u8]> = traces.iter().map(Vec::as_slice).collect();
        let recorded = Recorded::with_traces(&ran, &slices);
        let timeline = recorded.open(2, 1 << 16);
        for (number, notes) in ran.threads.iter().enumerate() {
            let (insns, gaps) = decoded(&timeline, number);
            prop_assert_eq!(timeline.instructions(tid(number)), insns);
            prop_assert_eq!(timeline.gaps(tid(number)).len(), gaps);
            let whole = traces[number] == notes.trace;
            prop_assert!(!whole || gaps == 0);
        }
        prop_assert_eq!(reported(&timeline), reported(&recorded.open(1, 0)));
    }

    #[test]
    fn a_hole_in_the_code_is_a_gap(seed: u64) {
        let ran = run(seed, 1, 200);
        let recorded = Recorded::new(&ran);
        let images = std::fs::read_dir(recorded.path().join("images")).unwrap();
        images.for_each(|image| std::fs::remove_file(image.unwrap().path()).unwrap());
        let timeline = recorded.open(1, 0);
        prop_assert_eq!(timeline.missing_images().len(), 1);
        prop_assert_eq!(timeline.total(), 0);
        prop_assert!(!timeline.gaps(tid(0)).is_empty());
    }
}
