//! A recording that grows, opened again and again, is at each time as if it were opened for the
//! first time.

use super::machine::run;
use super::program::Random;
use super::recorded::{Recorded, told};
use crate::common::Addr;
use crate::timeline::{Direction, Options, Search, Timeline};
use proptest::prelude::*;
use std::collections::BTreeSet;

const OPTIONS: Options = Options { workers: 2, cache_bytes: 1 << 20, use_saved_index: false };

/// Where each of some addresses was executed last.
fn found(timeline: &Timeline, addrs: &[Addr]) -> Vec<String> {
    let within = 0..timeline.total();
    let direction = Direction::Backward;
    let last = |addr: &Addr| {
        let addrs = BTreeSet::from([*addr]);
        let search = Search { within: within.clone(), direction, only: None, addrs: &addrs };
        format!("{:?}", timeline.find(&search, &|| false))
    };
    addrs.iter().map(last).collect()
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 16,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn reopened_is_opened(seed: u64, threads in 1_usize..4) {
        let ran = run(seed, threads, 3000);
        let mut random = Random::new(seed);
        let traces: Vec<Vec<u8>> = ran.threads.iter().map(|t| t.trace.clone()).collect();
        let mut sizes = vec![0; threads];
        let mut before: Option<Timeline> = None;
        for round in 0..4 {
            for (size, trace) in sizes.iter_mut().zip(&traces) {
                let more = random.below(trace.len() - *size + 1);
                *size = if round == 3 { trace.len() } else { *size + more };
            }
            let grown: Vec<&[u8]> = traces.iter().zip(&sizes).map(|(t, n)| &t[..*n]).collect();
            let recorded = Recorded::with_traces(&ran, &grown);
            let opened = Timeline::open(recorded.reader(), OPTIONS).unwrap();
            let again = match before.take() {
                Some(before) => Timeline::reopen(recorded.reader(), OPTIONS, before).unwrap(),
                None => Timeline::open(recorded.reader(), OPTIONS).unwrap(),
            };
            let (again_told, opened_told) = (told(&again), told(&opened));
            let differs = again_told.iter().zip(&opened_told).find(|(a, b)| a != b);
            prop_assert_eq!((differs, again_told.len()), (None, opened_told.len()));
            let addrs = &ran.program.addrs;
            prop_assert_eq!(found(&again, addrs), found(&opened, addrs));
            before = Some(again);
        }
    }
}
