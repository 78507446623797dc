//! Flow: listing a trace ends, counting it comes to the same, and so does decoding its segments one
//! by one. The code is a small program that the seeds ran.

use crate::seeds;
use crate::traits::Traits;
use contraflow::common::Addr;
use contraflow::flow::{
    Code, Config, Decoder, Event, EventKind, ExecutedCode, FlowItem, Span, outline,
};
use contraflow::image::CodeSource;
use contraflow::pt::{ClockConfig, CrystalRatio, find_psb};
use std::hash::Hash;
use std::mem::discriminant;
use std::path::Path;

/// The program of the seeds.
struct Program;

impl CodeSource for Program {
    fn read(&self, addr: Addr, buf: &mut [u8]) -> usize {
        let offset = usize::try_from(addr.0.wrapping_sub(seeds::CODE_AT.0)).unwrap_or(usize::MAX);
        let known = seeds::CODE.get(offset..).unwrap_or_default();
        let size = known.len().min(buf.len());
        buf[..size].copy_from_slice(&known[..size]);
        size
    }
}

/// Of processors with errata and without. Inputs of all sizes meet all of them.
fn config(bytes: &[u8]) -> Config {
    let cpu = ["6/61/4", "6/94/3", "6/92/9"].get(bytes.len() % 4).and_then(|cpu| cpu.parse().ok());
    let clock = ClockConfig {
        crystal_ratio: CrystalRatio { ebx: 168, eax: 2 }.usable(),
        mtc_freq: Some(3),
        nominal_ratio: Some(28),
    };
    let config = cpu.map_or_else(Config::new, Config::of);
    Config { clock: Some(clock).filter(|_| bytes.len() % 8 < 4), ..config }
}

pub(crate) fn feed(bytes: &[u8], _: &Path, traits: &mut Traits) {
    let config = config(bytes);
    let mut code = Code::new(&Program);
    let mut decoder = Decoder::new(bytes, config.clone());
    let (mut insns, mut others) = (0_u64, 0_u64);
    let mut before = 0;
    let mut last_offset = 0;
    while let Some(item) = decoder.next(&mut code) {
        match item {
            FlowItem::Block(span) => {
                assert!(span.insns > 0);
                insns += u64::from(span.insns);
            }
            FlowItem::Event(Event { offset, .. }) => {
                assert!(offset < bytes.len() as u64);
                others += 1;
            }
            FlowItem::Gap(gap) => {
                assert!(gap.offset <= bytes.len() as u64 && last_offset <= gap.offset);
                last_offset = gap.offset;
                others += 1;
            }
        }
        let kind = kind(&item);
        traits.note((before, kind));
        before = kind;
    }
    traits.magnitude("insns", usize::try_from(insns).unwrap_or(usize::MAX));
    assert_eq!((insns, others), counted(bytes, &config));
    assert_eq!((insns, others), listed(bytes, &config));
    outlined(bytes, &config);
}

fn kind(item: &FlowItem) -> u64 {
    fn hash(what: impl Hash) -> u64 {
        crate::traits::hash(&what)
    }
    match item {
        FlowItem::Block(span) => hash(("block", span.exit)),
        FlowItem::Event(Event { kind: EventKind::Note { packet, .. }, .. }) => {
            hash(("note", discriminant(packet)))
        }
        FlowItem::Event(event) => hash(("event", discriminant(&event.kind))),
        FlowItem::Gap(gap) => hash(("gap", discriminant(&gap.reason))),
    }
}

/// Several blocks at a time.
fn listed(bytes: &[u8], config: &Config) -> (u64, u64) {
    let mut code = Code::new(&Program);
    let mut decoder = Decoder::new(bytes, config.clone());
    let (mut insns, mut others) = (0, 0);
    let mut show = |spans: &[Span]| {
        insns += spans.iter().map(|span| u64::from(span.insns)).sum::<u64>();
    };
    while decoder.list_spans(&mut code, &mut show).is_some() {
        others += 1;
    }
    (insns, others)
}

fn counted(bytes: &[u8], config: &Config) -> (u64, u64) {
    let mut code = Code::new(&Program);
    let mut decoder = Decoder::new(bytes, config.clone());
    let mut executed = ExecutedCode::new();
    let mut told = 0;
    while decoder.collect_code(&mut code, &mut executed).is_some() {
        told += 1;
    }
    (executed.insns, told)
}

/// What is told without code stays within the trace, and does not lie before its segment. Behind
/// it may be: a PSB is found within other packets' payloads, too.
fn outlined(bytes: &[u8], config: &Config) {
    let mut psb = find_psb(bytes, 0);
    while let Some(start) = psb {
        let next = find_psb(bytes, start + 1);
        for turn in outline(bytes, start, next, config) {
            // Tracing may be off from behind the last byte on.
            assert!(start <= turn.offset && turn.offset <= bytes.len() + 1);
        }
        psb = next;
    }
}
