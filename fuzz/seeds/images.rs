//! A small program file, and a core.

use super::{CODE, CODE_AT};
use contraflow::common::{Addr, AddrRange, Pid, Tid};
use contraflow::image::core::{self, CoreContents, CoreSegment, FileMapping, ProcessInfo, Thread};
use contraflow::insn::Registers;
use std::io::Cursor;

/// A program, a library, and a core.
pub(crate) fn images() -> Vec<Vec<u8>> {
    vec![program(2, 62), program(3, 62), core_file()]
}

const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const PT_INTERP: u32 = 3;
const PT_NOTE: u32 = 4;

/// A row of numbers, each with its size in bytes, little-endian.
fn row(numbers: &[(u64, usize)]) -> Vec<u8> {
    numbers.iter().flat_map(|(number, size)| number.to_le_bytes()[..*size].to_vec()).collect()
}

/// An ELF file with code, data, an interpreter, a build id, a dynamic section and a debug link.
fn program(file_type: u64, machine: u64) -> Vec<u8> {
    let note = [&row(&[(4, 4), (8, 4), (3, 4)])[..], b"GNU\0", &[0xab; 8]].concat();
    let dynamic = row(&[(14, 8), (1, 8), (0x6fff_fffb, 8), (0x0800_0000, 8), (0, 8), (0, 8)]);
    let link = [&b"program.debug\0\0\0"[..], &[1, 2, 3, 4]].concat();
    let names = b"\0.gnu_debuglink\0.note.gnu.build-id\0.shstrtab\0".to_vec();
    let interpreter = b"/lib/ld.so\0".to_vec();
    let parts = [CODE.to_vec(), interpreter, note, dynamic, link, names];
    let segments = 5;
    let mut body = Vec::new();
    let start = 64 + 56 * segments;
    let mut places = Vec::new();
    for part in &parts {
        body.resize(body.len().next_multiple_of(8), 0);
        places.push(((start + body.len()) as u64, part.len() as u64));
        body.extend(part);
    }
    body.resize(body.len().next_multiple_of(8), 0);
    let sections_at = (start + body.len()) as u64;
    let base = CODE_AT.0;
    let segment = |kind: u32, flags: u64, (offset, size): (u64, u64), more: u64| {
        let (at, kind) = (base + offset, u64::from(kind));
        row(&[
            (kind, 4),
            (flags, 4),
            (offset, 8),
            (at, 8),
            (at, 8),
            (size, 8),
            (size + more, 8),
            (8, 8),
        ])
    };
    let header = row(&[
        (0x464c_457f, 4),
        (2, 1),
        (1, 1),
        (1, 1),
        (0, 8),
        (0, 1),
        (file_type, 2),
        (machine, 2),
        (1, 4),
        (base + start as u64, 8),
        (64, 8),
        (sections_at, 8),
        (0, 4),
        (64, 2),
        (56, 2),
        (segments as u64, 2),
        (64, 2),
        (4, 2),
        (3, 2),
    ]);
    let headers = [
        segment(PT_LOAD, 5, (0, sections_at), 0),
        segment(PT_LOAD, 6, (0, sections_at), 0x3000),
        segment(PT_INTERP, 4, places[1], 0),
        segment(PT_NOTE, 4, places[2], 0),
        segment(PT_DYNAMIC, 6, places[3], 0),
    ];
    let section = |name: u64, kind: u64, (offset, size): (u64, u64)| {
        let head = row(&[(name, 4), (kind, 4), (0, 8), (base + offset, 8), (offset, 8), (size, 8)]);
        [head, row(&[(0, 4), (0, 4), (4, 8), (0, 8)])].concat()
    };
    let sections = [
        section(0, 0, (0, 0)),
        section(1, 1, places[4]),
        section(16, 7, places[2]),
        section(35, 3, places[5]),
    ];
    [header, headers.concat(), body, sections.concat()].concat()
}

/// A core of two threads, with all notes and a mapped file.
pub(crate) fn core_file() -> Vec<u8> {
    let registers = Registers { rip: CODE_AT.0, ..Registers::default() };
    let first = Thread {
        tid: Tid(7),
        registers,
        fpregs: Some(vec![1; 512]),
        xstate: Some(vec![2; 832]),
        siginfo: Some(vec![11; 128]),
        ..Thread::default()
    };
    let second = Thread { tid: Tid(8), ..Thread::default() };
    let process = ProcessInfo { pid: Pid(7), name: b"program".to_vec(), ..ProcessInfo::default() };
    let range = AddrRange::sized(CODE_AT, 0x1000);
    let stack = AddrRange::sized(Addr(0x7fff_0000), 0x1000);
    let segment = CoreSegment { range, readable: true, executable: true, ..CoreSegment::default() };
    let dumped = CoreSegment { range: stack, readable: true, dumped: true, ..segment };
    let mapping = FileMapping { range, offset: 0, path: b"/program".to_vec() };
    let contents = CoreContents {
        threads: vec![first, second],
        signal: 11,
        process,
        auxv: vec![3; 64],
        mappings: vec![mapping],
        segments: vec![segment, dumped],
    };
    let mut out = Cursor::new(Vec::new());
    let written = core::write(&mut out, &contents, &mut |_, buf: &mut [u8]| {
        buf.fill(0x90);
        buf.len()
    });
    written.map(|()| out.into_inner()).unwrap_or_default()
}
