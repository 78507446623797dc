//! What is fed. Each checks, besides not panicking, a thing that must hold for any input.

use crate::seeds;
use contraflow::common::Addr;
use contraflow::flow::{Code, Config, Decoder, FlowItem, Tally};
use contraflow::image::core::Core;
use contraflow::image::elf::{self, Elf};
use contraflow::image::{Bytes, CodeSource};
use contraflow::pt::{Packets, decode, encode};

/// A reader of hostile bytes.
pub struct Target {
    pub name: &'static str,
    pub seeds: fn() -> Vec<Vec<u8>>,
    pub feed: fn(&[u8]),
}

/// All of them.
pub fn all() -> [Target; 3] {
    [
        Target { name: "packets", seeds: seeds::traces, feed: packets },
        Target { name: "flow", seeds: seeds::traces, feed: flow },
        Target { name: "image", seeds: seeds::images, feed: image },
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
