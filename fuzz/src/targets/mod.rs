//! What is fed. Each checks, besides not panicking, a thing that must hold for any input.

use crate::seeds;
use contraflow::common::{Addr, Pid, Tid, Tsc};
use contraflow::flow::{Code, Config, Decoder, FlowItem, Tally};
use contraflow::image::core::Core;
use contraflow::image::elf::{self, Elf};
use contraflow::image::{Bytes, CodeSource};
use contraflow::pt::{Packets, decode, encode};
use contraflow::recording::import::Bundle;
use contraflow::sideband::{Event, Record, perf_switches};
use contraflow::timeline::share_out;

/// A reader of hostile bytes.
pub struct Target {
    pub name: &'static str,
    pub seeds: fn() -> Vec<Vec<u8>>,
    pub feed: fn(&[u8]),
}

/// All of them.
pub fn all() -> [Target; 6] {
    [
        Target { name: "packets", seeds: seeds::traces, feed: packets },
        Target { name: "flow", seeds: seeds::traces, feed: flow },
        Target { name: "image", seeds: seeds::images, feed: image },
        Target { name: "bundle", seeds: seeds::bundles, feed: bundle },
        Target { name: "switches", seeds: seeds::switches, feed: switches },
        Target { name: "shares", seeds: seeds::traces, feed: shares },
    ]
}

/// What decodes encodes to something that decodes to the same.
fn packets(bytes: &[u8]) {
    let mut last = None;
    for (offset, packet) in Packets::new(bytes) {
        assert!(last.is_none_or(|last| last < offset) && offset < bytes.len() as u64);
        last = Some(offset);
        let Ok(packet) = packet else { continue };
        let mut again = Vec::new();
        encode(&packet, &mut again);
        if let Ok((decoded, size)) = decode(&again) {
            assert_eq!((decoded, size), (packet, again.len()));
        }
    }
}

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

/// Listing ends, within what the trace can tell, and counting comes to the same.
fn flow(bytes: &[u8]) {
    let mut code = Code::new(&Program);
    let mut decoder = Decoder::new(bytes, Config::default());
    let (mut insns, mut others) = (0_u64, 0_u64);
    while let Some(item) = decoder.next(&mut code) {
        match item {
            FlowItem::Block(span) => insns += u64::from(span.insns),
            _ => others += 1,
        }
    }
    let mut code = Code::new(&Program);
    let mut decoder = Decoder::new(bytes, Config::default());
    let mut tally = Tally::new();
    let mut told = 0_u64;
    while decoder.skim(&mut code, &mut tally).is_some() {
        told += 1;
    }
    assert_eq!((insns, others), (tally.insns, told));
}

/// Whatever a file claims, reading it stays within its bytes.
fn image(bytes: &[u8]) {
    let bytes = Bytes::from(bytes.to_vec());
    if let Ok(elf) = Elf::parse(&bytes) {
        let _ = elf::load(&bytes, 0x5555_0000_0000, "fuzzed");
        let mut buf = [0; 64];
        if let Ok(core) = Core::parse(&bytes) {
            for segment in elf.segments.iter().take(16) {
                assert!(core.read(segment.start, &mut buf) <= buf.len());
            }
        }
    }
}

/// A description reads, or is refused in one line with a place.
fn bundle(bytes: &[u8]) {
    match Bundle::parse(bytes) {
        Ok(bundle) => assert!(!bundle.threads.is_empty()),
        Err(bad) => assert!(!bad.place.is_empty() && bad.to_string().lines().count() == 1),
    }
}

/// Damage is found where it is.
fn switches(bytes: &[u8]) {
    match perf_switches(bytes) {
        Ok(switches) => assert!(switches.len() <= bytes.len() / 4),
        Err(bad) => {
            assert!(bad.offset < bytes.len());
            assert!(perf_switches(&bytes[..bad.offset]).is_ok());
        }
    }
}

/// No byte of a trace is certainly two threads', and each thread's come in order.
fn shares(bytes: &[u8]) {
    // The times that the seeds tell, with a switch now and then.
    let switch = |number: i32| {
        let tid = Tid(1 + number / 2 % 3);
        let event = if number % 2 == 0 {
            Event::SwitchIn { cpu: 0 }
        } else {
            Event::SwitchOut { cpu: 0 }
        };
        let tsc = Tsc(seeds::START_TSC + u64::try_from(number).unwrap_or(0) * 5000);
        Record { tsc, pid: Pid(1), tid, event }
    };
    let records: Vec<_> = (0..80).map(switch).collect();
    let threads = [(Pid(1), Tid(1)), (Pid(1), Tid(2))];
    let shares = share_out(bytes, 0, &records, &threads, &Config::default());
    for pair in shares.windows(2).filter(|pair| pair[0].tid == pair[1].tid) {
        assert!(pair[0].range.end <= pair[1].range.start || !pair[0].is_certain);
    }
    let mut certain: Vec<_> = shares.iter().filter(|share| share.is_certain).collect();
    certain.sort_by_key(|share| share.range.start);
    assert!(certain.windows(2).all(|pair| pair[0].range.end <= pair[1].range.start));
    assert!(shares.iter().all(|share| share.range.start < share.range.end));
    assert!(shares.iter().all(|share| share.range.end <= bytes.len()));
}
