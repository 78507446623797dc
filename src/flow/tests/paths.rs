//! The decoded path is the executed one, and the segments of a trace cover it without overlap.

use super::machine::{Mishaps, Traced, execute};
use super::program::{Program, Random};
use super::trace::Trace;
use crate::common::Addr;
use crate::flow::{BlockCache, Code, Config, Decoder, ExecutedCode, FlowItem, Gap, Span};
use crate::pt::unit::{self, RtitCtl};
use crate::pt::{ClockConfig, CrystalRatio, Errata, Erratum, Packet, find_psb};
use proptest::prelude::*;
use std::collections::BTreeSet;

pub(super) struct Decoded {
    pub(super) items: Vec<FlowItem>,
    pub(super) addrs: Vec<Addr>,
    pub(super) gaps: Vec<Gap>,
}

pub(super) fn decode(mut decoder: Decoder<'_>, code: &mut Code<'_>) -> Decoded {
    let mut found = Decoded { items: vec![], addrs: vec![], gaps: vec![] };
    while let Some(item) = decoder.next(code) {
        found.items.push(item);
        match item {
            FlowItem::Block(span) => {
                let before = found.addrs.len();
                found.addrs.extend(code.addrs(span.ip, span.mode, span.insns));
                let mut added = Vec::new();
                code.add_addrs(span.ip, span.mode, span.insns, &mut added);
                assert_eq!(added, found.addrs[before..]);
                assert_eq!(found.addrs.len() - before, span.insns as usize);
                assert_eq!(found.addrs.last(), Some(&span.last));
            }
            FlowItem::Gap(gap) => found.gaps.push(gap),
            FlowItem::Event(_) => {}
        }
    }
    found
}

pub(super) fn whole(traced: &[u8], program: &Program) -> Decoded {
    decode(Decoder::new(traced, Config::default()), &mut Code::new(program))
}

fn random_run(seed: u64) -> (Program, Traced) {
    random_run_with(seed, Mishaps::default())
}

fn random_run_with(seed: u64, mishaps: Mishaps) -> (Program, Traced) {
    let mut random = Random::new(seed);
    let runs = 2 + random.below(40);
    let program = Program::random(&mut random, runs);
    let config = any_filtering_unit(&mut random, &program);
    let traced = execute(&program, seed, 2000, config, mishaps);
    (program, traced)
}

/// Returns the items of a trace, decoded with `Decoder::list_spans`.
fn listed(trace: &[u8], code: &mut Code<'_>) -> Vec<FlowItem> {
    let mut decoder = Decoder::new(trace, Config::default());
    let mut items = vec![];
    loop {
        let mut show = |spans: &[Span]| items.extend(spans.iter().copied().map(FlowItem::Block));
        match decoder.list_spans(code, &mut show) {
            Some(item) => items.push(item),
            None => return items,
        }
    }
}

fn segments(trace: &[u8]) -> Vec<(usize, Option<usize>)> {
    let mut starts = vec![];
    let mut from = 0;
    while let Some(psb) = find_psb(trace, from) {
        starts.push(psb);
        from = psb + 16;
    }
    let ends = starts.iter().skip(1).map(|end| Some(*end)).chain([None]);
    starts.iter().copied().zip(ends).collect()
}

pub(super) fn first_difference(ours: &[Addr], theirs: &[Addr]) -> Option<usize> {
    let common = ours.iter().zip(theirs).position(|(a, b)| a != b);
    common.or((ours.len() != theirs.len()).then(|| ours.len().min(theirs.len())))
}

/// Returns the settings of a unit that writes a PSB only on request. It learns the position at
/// branches only, so a PSB in the middle of a run would report an earlier position.
pub(super) fn quiet_unit() -> unit::Config {
    unit::Config::user_only().with_psb_period(1 << 26)
}

/// Returns random settings of a unit: the form of its TNTs, and the packets that are not of the
/// path.
pub(super) fn any_unit(random: &mut Random) -> unit::Config {
    let mut config = quiet_unit();
    if random.one_in(2) {
        config = config.with_tnt(unit::TntForm::Long);
    }
    config.deferred_tips = random.one_in(2);
    config.crystal_ratio = Some(CrystalRatio { ebx: 10, eax: 1 });
    let extras = [
        RtitCtl::DIS_RETC,
        RtitCtl::MTC_EN,
        RtitCtl::CYC_EN,
        RtitCtl::PTW_EN,
        RtitCtl::PTW_EN | RtitCtl::FUP_ON_PTW,
    ];
    for extra in extras {
        if random.one_in(3) {
            config = config.with(extra);
        }
    }
    config
}

/// Returns settings as [`any_unit`] does, which may trace only a part of the program.
fn any_filtering_unit(random: &mut Random, program: &Program) -> unit::Config {
    let mut config = any_unit(random);
    if random.one_in(3) {
        config = config.with_filter(0, any_range(random, program));
    }
    if random.one_in(10) {
        config = config.with_trace_stop(1, any_range(random, program));
    }
    config
}

fn any_range(random: &mut Random, program: &Program) -> unit::IpRange {
    let first = random.below(program.runs.len());
    let last = first + random.below(program.runs.len() - first);
    let (first, last) = (program.start(first), program.start(last));
    unit::IpRange { first, last: last.wrapping_add(random.below(8) as u64) }
}

fn in_segments(trace: &[u8], program: &Program) -> Vec<FlowItem> {
    let mut code = Code::new(program);
    let mut items = vec![];
    for (start, end) in segments(trace) {
        let decoder = Decoder::segment(trace, start, end, Config::default());
        items.extend(decode(decoder, &mut code).items);
    }
    items
}

/// Flips a byte, removes bytes, or truncates the trace. Returns the first intact offset.
pub(super) fn damage(trace: &mut Vec<u8>, random: &mut Random) -> usize {
    let at = random.below(trace.len());
    match random.below(4) {
        0 => {
            trace.truncate(at);
            at
        }
        1 => {
            let end = (at + 1 + random.below(40)).min(trace.len());
            trace.drain(at..end);
            at
        }
        2 => {
            let junk = u8::try_from(random.below(256)).expect("a byte");
            trace.insert(at, junk);
            at + 1
        }
        _ => {
            trace[at] ^= 1 << random.below(8);
            at + 1
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn decoded_path_is_the_executed_path(seed: u64) {
        let (program, traced) = random_run(seed);
        let decoded = whole(&traced.trace, &program);
        prop_assert_eq!(decoded.gaps, vec![]);
        prop_assert_eq!(first_difference(&decoded.addrs, &traced.addrs), None);
    }

    #[test]
    fn an_overflow_costs_only_what_it_lost(seed: u64) {
        let mishaps = Mishaps { overflow: 100, ..Mishaps::default() };
        let (program, traced) = random_run_with(seed, mishaps);
        let decoded = whole(&traced.trace, &program);
        prop_assert_eq!(decoded.gaps, vec![]);
        let mut executed = traced.addrs.iter();
        prop_assert!(decoded.addrs.iter().all(|addr| executed.any(|known| known == addr)));
        prop_assert_eq!(in_segments(&traced.trace, &program), decoded.items);
    }

    #[test]
    fn segments_tile_the_whole(seed: u64) {
        let (program, traced) = random_run(seed);
        let decoded = whole(&traced.trace, &program);
        prop_assert_eq!(in_segments(&traced.trace, &program), decoded.items);
    }

    #[test]
    fn a_clock_changes_nothing(seed: u64) {
        let (program, traced) = random_run(seed);
        let config = Config { clock: Some(ClockConfig::default()), ..Config::default() };
        let timed = decode(Decoder::new(&traced.trace, config), &mut Code::new(&program));
        prop_assert_eq!(timed.items, whole(&traced.trace, &program).items);
    }

    #[test]
    fn a_small_cache_changes_nothing(seed: u64) {
        let (program, traced) = random_run(seed);
        let mut code = Code::with_cache(&program, BlockCache::with_limit(1));
        let decoded = decode(Decoder::new(&traced.trace, Config::default()), &mut code);
        let expected = whole(&traced.trace, &program).items;
        prop_assert_eq!(&decoded.items, &expected);
        prop_assert_eq!(listed(&traced.trace, &mut code), expected);
    }

    #[test]
    fn counting_finds_what_listing_finds(seed: u64, damaged: bool, overflow: bool) {
        let overflow = if overflow { 100 } else { usize::MAX };
        let (program, mut traced) =
            random_run_with(seed, Mishaps { overflow, ..Mishaps::default() });
        if damaged {
            damage(&mut traced.trace, &mut Random::new(seed ^ 1));
        }
        let whole = whole(&traced.trace, &program);
        let mut code = Code::new(&program);
        // In the second round, all chains are cached.
        for _ in 0..2 {
            prop_assert_eq!(&listed(&traced.trace, &mut code), &whole.items);
            let mut executed = ExecutedCode::new();
            let mut decoder = Decoder::new(&traced.trace, Config::default());
            let mut others = vec![];
            while let Some(item) = decoder.collect_code(&mut code, &mut executed) {
                others.push(item);
            }
            let is_other = |item: &&FlowItem| !matches!(item, FlowItem::Block(_));
            let expected: Vec<_> = whole.items.iter().filter(is_other).copied().collect();
            prop_assert_eq!(others, expected);
            prop_assert_eq!(executed.insns, whole.addrs.len() as u64);
            let numbers = executed.blocks().map(|number| number as usize);
            let counted: BTreeSet<_> = numbers.map(|number| executed.numbered()[number]).collect();
            let spans = whole.items.iter().filter_map(|item| match item {
                FlowItem::Block(span) => Some((span.ip, span.last)),
                _ => None,
            });
            prop_assert_eq!(counted, spans.collect());
        }
    }

    #[test]
    fn damage_costs_one_segment(seed: u64) {
        let (program, mut traced) = random_run(seed);
        let mut random = Random::new(seed ^ 1);
        let good = whole(&traced.trace, &program);
        let from = damage(&mut traced.trace, &mut random);
        prop_assume!(find_psb(&traced.trace, 0).is_some());
        let bad = whole(&traced.trace, &program);
        prop_assert_eq!(in_segments(&traced.trace, &program), bad.items.clone());
        // From the next PSB on, nothing has changed.
        if let Some((start, _)) = segments(&traced.trace).into_iter().find(|(at, _)| *at >= from) {
            let following = decode(
                Decoder::segment(&traced.trace, start, None, Config::default()),
                &mut Code::new(&program),
            );
            prop_assert!(bad.addrs.ends_with(&following.addrs));
            prop_assert!(good.addrs.ends_with(&following.addrs));
        }
    }

    #[test]
    fn any_bytes_decode_to_an_end(seed: u64, chunks in prop::collection::vec(any::<Vec<u8>>(), 1..8)) {
        let mut random = Random::new(seed);
        let program = Program::random(&mut random, 20);
        let mut trace = Trace::default();
        for chunk in &chunks {
            let start = random.below(program.runs.len());
            let (mode, start) = (program.mode(), program.start(start).0);
            trace = trace.put(Packet::Psb).mode(mode).fup(start).put(Packet::PsbEnd).raw(chunk);
        }
        let all = [Erratum::Bdm70, Erratum::Bdm64, Erratum::Skd007, Erratum::Skd022,
            Erratum::Skd010, Erratum::Skl014, Erratum::Apl11, Erratum::Apl12, Erratum::Skz84];
        let errata = all.into_iter().filter(|_| random.one_in(2)).fold(Errata::NONE, Errata::with);
        let config = Config { errata, ..Config::default() };
        let decoded = decode(Decoder::new(&trace.0, config), &mut Code::new(&program));
        // Each byte and each of its bits leads through a bounded amount of code.
        prop_assert!(decoded.items.len() <= (trace.0.len() + 1) * 8 * 100);
    }
}
