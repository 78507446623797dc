//! Records of a small program that is translated, as its threads would write them.

use contraflow::common::Addr;
use contraflow::encode::{Dictionary, NewEdges, Paths};
use contraflow::image::CodeSource;
use contraflow::translate::{CacheMemory, Edge, EdgeKind, Limits, ProgramCode, Translator};

const START: u64 = 0x1000;
/// Calls within calls, conditional branches both ways, an indirect jump, an indirect call and a
/// system call.
const CODE: [u8; 40] = [
    0xe8, 0x0e, 0x00, 0x00, 0x00, // 1000 call 1013
    0x74, 0xf9, // 1005 je 1000
    0x75, 0x05, // 1007 jne 100e
    0xff, 0xe0, // 1009 jmp *%rax
    0x0f, 0x05, // 100b syscall
    0x90, // 100d nop
    0xff, 0xd3, // 100e call *%rbx
    0xeb, 0xee, // 1010 jmp 1000
    0x90, // 1012 nop
    0xe8, 0x04, 0x00, 0x00, 0x00, // 1013 call 101c
    0x7c, 0xf9, // 1018 jl 1013
    0xc3, // 101a ret
    0x90, // 101b nop
    0x7f, 0x02, // 101c jg 1020
    0xc3, // 101e ret
    0x90, // 101f nop
    0x48, 0xff, 0xc0, // 1020 inc %rax
    0xe2, 0xf7, // 1023 loop 101c
    0xc3, // 1025 ret
    0xeb, 0xe3, // 1026 jmp 100b
];

const ZONE: u64 = 0x10_0000;
const ZONE_BYTES: u64 = 1 << 20;
const TABLE: u64 = 2 * ZONE;
const RECORDS: usize = 400;

/// The program.
pub(crate) struct Program;

impl Program {
    /// Where it begins.
    pub(crate) const START: Addr = Addr(START);
}

impl CodeSource for Program {
    fn read(&self, addr: Addr, buf: &mut [u8]) -> usize {
        let offset = usize::try_from(addr.0.wrapping_sub(START)).unwrap_or(usize::MAX);
        let known = CODE.get(offset..).unwrap_or_default();
        let size = known.len().min(buf.len());
        buf[..size].copy_from_slice(&known[..size]);
        size
    }
}

impl ProgramCode for Program {
    fn fetch(&mut self, ip: u64, buf: &mut [u8]) -> usize {
        self.read(Addr(ip), buf)
    }
}

/// Memory that nothing executes.
struct Unused;

impl CacheMemory for Unused {
    fn read(&self, _: u64, _: &mut [u8]) {}
    fn write(&self, _: u64, _: &[u8]) {}
    fn store_u32(&self, _: u64, _: u32) {}
    fn store_u64(&self, _: u64, _: u64) {}
}

/// Translates all of the program.
fn translated() -> Translator<Unused> {
    let mut translator = Translator::new(Unused, TABLE, Limits::default());
    translator.add_zone(ZONE, ZONE_BYTES, ZONE);
    for start in [0x1000, 0x1005, 0x100b, 0x100d, 0x1010, 0x1013, 0x1018, 0x101c, 0x1020, 0x1026] {
        translator.get_or_translate(start, &mut Program).expect("room");
    }
    let mut number = 0;
    while let Some(edge) = translator.edges_from(number).first() {
        let target = edge.target;
        if edge.kind == EdgeKind::Direct && target != 0 {
            translator.get_or_translate(target, &mut Program).expect("room");
        }
        number += 1;
    }
    translator
}

/// What the encoder must know of it.
pub(crate) fn dictionary() -> Dictionary {
    let translator = translated();
    let count = u32::try_from(translator.superblock_count()).expect("few");
    let mut dictionary = Dictionary::default();
    dictionary.learn(NewEdges {
        edges: translator.edges_from(0).to_vec(),
        pushes: translator.return_addresses(0).to_vec(),
        quiet_jumps: translator.quiet_jumps(0).to_vec(),
        paths: (0..count).map(|number| Paths::new(&translator.path(number))).collect(),
    });
    dictionary
}

/// Walks through the program, each with other outcomes.
pub(crate) fn records() -> Vec<Vec<u8>> {
    let translator = translated();
    [1, 7, 31].map(|seed| walk(translator.edges_from(1), seed)).into()
}

fn walk(edges: &[Edge], mut state: u64) -> Vec<u8> {
    let mut records = vec![0, u8::MAX, 0, 0];
    let (mut here, mut in_kernel) = (START, false);
    for round in 0..RECORDS {
        let is_next = |edge: &Edge| match edge.kind {
            EdgeKind::SyscallReturn => in_kernel && edge.target == here,
            _ => !in_kernel && edge.start == here,
        };
        let next: Vec<_> = (1_u32..).zip(edges).filter(|(_, edge)| is_next(edge)).collect();
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let pick = |count: usize| usize::try_from(state >> 33).unwrap_or(0) % count;
        let Some((number, edge)) = next.get(pick(next.len().max(1))) else { break };
        records.extend(number.to_le_bytes());
        in_kernel = edge.kind == EdgeKind::Syscall;
        here = match edge.kind {
            EdgeKind::Direct | EdgeKind::Syscall => edge.target,
            EdgeKind::SyscallReturn => {
                records.extend((2 + round as u64).to_le_bytes());
                edge.target
            }
            EdgeKind::Return | EdgeKind::Indirect => edges[pick(edges.len())].start,
        };
    }
    records
}
