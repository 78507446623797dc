//! The timeline matches the interpreter's notes.

use super::machine::{RanProgram, run};
use super::program::Random;
use super::recorded::{Recorded, reported, tid};
use crate::common::{Addr, Tsc};
use crate::timeline::{Direction, Found, Frame, Search, Timeline};
use proptest::prelude::*;
use std::collections::BTreeSet;

fn config() -> ProptestConfig {
    ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() }
}

/// Returns the address of each instruction of all threads, in order.
fn addrs_in_order(ran: &RanProgram) -> Vec<(usize, Addr)> {
    let mut done = vec![0; ran.threads.len()];
    let mut addr = |thread: &usize| {
        let addr = ran.threads[*thread].addrs[done[*thread]];
        done[*thread] += 1;
        (*thread, addr)
    };
    ran.order.iter().map(&mut addr).collect()
}

fn any_addrs(ran: &RanProgram, random: &mut Random) -> BTreeSet<Addr> {
    let count = 1 + random.below(3);
    (0..count).map(|_| ran.program.addrs[random.below(ran.program.addrs.len())]).collect()
}

/// Searches instruction by instruction.
fn scan(all: &[(usize, Addr)], search: &Search<'_>) -> Found {
    let wanted = |g: &u64| {
        let (thread, addr) = all[usize::try_from(*g).unwrap()];
        search.only.is_none_or(|only| only == tid(thread)) && search.addrs.contains(&addr)
    };
    let end = search.within.end.min(all.len() as u64);
    let mut within = search.within.start..end.max(search.within.start);
    let found = match search.direction {
        Direction::Forward => within.find(wanted),
        Direction::Backward => within.rev().find(wanted),
    };
    found.map_or(Found::Nothing, Found::At)
}

fn nearest(timeline: &Timeline, search: &Search<'_>) -> Found {
    timeline.find(search, &|| false)
}

proptest! {
    #![proptest_config(config())]

    /// Checks that each instruction after the first time in the trace has a time within its bounds,
    /// and that times do not go back.
    #[test]
    fn each_instruction_has_a_time(seed: u64, threads in 1_usize..4) {
        let ran = run(seed, threads, 200);
        let timeline = Recorded::new(&ran).open(1, 1 << 20);
        for tid in timeline.threads() {
            let mut last = Tsc(0);
            for index in 0..timeline.instructions(tid) {
                let Some(time) = timeline.time(tid, index) else {
                    prop_assert_eq!(last, Tsc(0), "instruction {} has none", index);
                    continue;
                };
                let reported = timeline.global_of(tid, index).and_then(|g| timeline.time_at(g));
                prop_assert!(reported.is_none_or(|reported| reported <= time.tsc), "{}: {:?} > {:?}", index, reported, time);
                prop_assert!(time.earliest <= time.tsc);
                prop_assert!(time.latest.is_none_or(|latest| time.tsc <= latest));
                prop_assert!(last <= time.tsc);
                last = time.tsc;
            }
            prop_assert!(last > Tsc(0) || timeline.instructions(tid) == 0);
        }
        prop_assert_eq!(timeline.time(tid(0), u64::MAX), None);
    }

    #[test]
    fn the_path_and_the_stacks_are_the_executed_ones(seed: u64, threads in 1_usize..4) {
        let ran = run(seed, threads, 600);
        let recorded = Recorded::new(&ran);
        let timeline = recorded.open(1, 1 << 20);
        prop_assert_eq!(timeline.total(), ran.order.len() as u64);
        let mut done = vec![0; threads];
        for (g, (thread, addr)) in (0..).zip(addrs_in_order(&ran)) {
            prop_assert_eq!(timeline.running_at(g), Some(tid(thread)));
            prop_assert_eq!(timeline.index_of(tid(thread), g), done[thread]);
            prop_assert_eq!(timeline.pc(tid(thread), done[thread]), Some(addr));
            done[thread] += 1;
        }
        for (number, notes) in ran.threads.iter().enumerate() {
            prop_assert_eq!(timeline.instructions(tid(number)), notes.addrs.len() as u64);
            prop_assert!(timeline.gaps(tid(number)).is_empty());
            for (index, stack) in (0..).zip(&notes.stacks) {
                let reported = timeline.call_stack(tid(number), index);
                let expected: Vec<Frame> = stack.iter().rev().copied().collect();
                prop_assert_eq!(reported, expected, "thread {} before {}", number, index);
            }
            if !notes.addrs.is_empty() {
                let end = notes.addrs.len() as u64;
                prop_assert_eq!(timeline.pc(tid(number), end), Some(notes.final_pc));
            }
        }
    }

    #[test]
    fn workers_and_caches_change_nothing(seed: u64, threads in 1_usize..4) {
        let ran = run(seed, threads, 600);
        let recorded = Recorded::new(&ran);
        let plain = reported(&recorded.open(1, 0));
        prop_assert_eq!(&reported(&recorded.open(4, 1 << 24)), &plain);
        prop_assert_eq!(&reported(&recorded.open(2, 1 << 12)), &plain);
    }

    #[test]
    fn a_search_finds_what_a_scan_finds(seed: u64, threads in 1_usize..4) {
        let ran = run(seed, threads, 600);
        let recorded = Recorded::new(&ran);
        let timeline = recorded.open(2, 1 << 14);
        let all = addrs_in_order(&ran);
        let mut random = Random::new(seed ^ 5);
        for _ in 0..100 {
            let ends = [random.below(all.len() + 1), random.below(all.len() + 1)];
            let (start, end) = (ends[0].min(ends[1]) as u64, ends[0].max(ends[1]) as u64);
            let addrs = any_addrs(&ran, &mut random);
            let only = random.one_in(2).then(|| tid(random.below(threads)));
            for direction in [Direction::Forward, Direction::Backward] {
                let search = Search { within: start..end, direction, only, addrs: &addrs };
                prop_assert_eq!(nearest(&timeline, &search), scan(&all, &search), "{:?}", search);
            }
        }
    }

    /// Checks that moves to the next hit and back return to the start, as do single steps.
    #[test]
    fn forward_then_back_is_where_one_was(seed: u64, threads in 1_usize..4) {
        let ran = run(seed, threads, 600);
        let recorded = Recorded::new(&ran);
        let timeline = recorded.open(1, 1 << 14);
        let total = timeline.total();
        let mut random = Random::new(seed ^ 6);
        let mut g = random.below(usize::try_from(total).unwrap()) as u64;
        for _ in 0..200 {
            let running = timeline.running_at(g).unwrap();
            let index = timeline.index_of(running, g);
            prop_assert_eq!(timeline.global_of(running, index), Some(g));
            let here = timeline.pc(running, index).unwrap();
            let mut addrs = any_addrs(&ran, &mut random);
            addrs.insert(here);
            let on = Search { within: g + 1..total, direction: Direction::Forward, only: None, addrs: &addrs };
            let Found::At(next) = nearest(&timeline, &on) else {
                g = random.below(usize::try_from(total).unwrap()) as u64;
                continue;
            };
            let back = Search { within: 0..next, direction: Direction::Backward, only: None, addrs: &addrs };
            prop_assert_eq!(nearest(&timeline, &back), Found::At(g));
            g = next;
        }
    }
}

#[test]
fn an_interrupted_search_says_so() {
    let ran = run(3, 2, 400);
    let recorded = Recorded::new(&ran);
    let timeline = recorded.open(1, 0);
    let addrs = ran.program.addrs.iter().copied().collect();
    let search = |direction| Search { within: 0..400, direction, only: None, addrs: &addrs };
    let stopped = |direction| timeline.find(&search(direction), &|| true);
    assert_eq!(stopped(Direction::Forward), Found::Interrupted(0));
    assert_eq!(stopped(Direction::Backward), Found::Interrupted(400));
}
