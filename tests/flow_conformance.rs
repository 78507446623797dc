//! Real captures of other projects: the decoded instructions must be those that the reference
//! decoders gave. Skips, and says so, where the captures are not there.

use contraflow::common::Addr;
use contraflow::flow::{Code, Config, Decoder, FlowItem, Gap};
use contraflow::image::CodeSource;
use object::{Object, ObjectSegment};
use std::fs;
use std::path::{Path, PathBuf};

/// Code at fixed addresses; the last section wins.
#[derive(Default)]
struct Sections(Vec<(u64, Vec<u8>)>);

impl Sections {
    fn elf(mut self, path: &Path, base: u64) -> Self {
        let bytes = fs::read(path).expect("the capture's image");
        let file = object::File::parse(&*bytes).expect("an ELF file");
        for segment in file.segments() {
            let data = segment.data().expect("a segment's bytes").to_vec();
            self.0.push((segment.address() + base, data));
        }
        self
    }
}

impl CodeSource for Sections {
    fn read(&self, addr: Addr, buf: &mut [u8]) -> usize {
        for (start, bytes) in self.0.iter().rev() {
            let at = addr.0.checked_sub(*start).and_then(|at| usize::try_from(at).ok());
            if let Some(rest) = at.and_then(|at| bytes.get(at..)).filter(|rest| !rest.is_empty()) {
                let len = rest.len().min(buf.len());
                buf[..len].copy_from_slice(&rest[..len]);
                return len;
            }
        }
        0
    }
}

fn captures() -> Option<PathBuf> {
    let dir = std::env::var_os("CONTRAFLOW_CONFORMANCE").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/conformance"),
        PathBuf::from,
    );
    if dir.is_dir() {
        return Some(dir);
    }
    eprintln!("SKIPPED: no captures at {}; set CONTRAFLOW_CONFORMANCE", dir.display());
    None
}

fn decode(trace: &[u8], sections: &Sections) -> (Vec<u64>, Vec<Gap>) {
    let mut code = Code::new(sections);
    let mut decoder = Decoder::new(trace, Config::default());
    let (mut addrs, mut gaps) = (Vec::new(), Vec::new());
    while let Some(item) = decoder.next(&mut code) {
        match item {
            FlowItem::Block(span) => {
                addrs.extend(code.addrs(span.ip, span.mode, span.insns).map(|addr| addr.0));
            }
            FlowItem::Event(event) => println!("  {event:x?} at insn {}", addrs.len()),
            FlowItem::Gap(gap) => {
                println!("  {gap} at insn {}", addrs.len());
                gaps.push(gap);
            }
        }
    }
    (addrs, gaps)
}

fn conforms(trace: &Path, expected: &Path, sections: &Sections, gaps: usize) {
    println!("{}", trace.display());
    let (addrs, found) = decode(&fs::read(trace).expect("the trace"), sections);
    let expected: Vec<u64> = fs::read_to_string(expected)
        .expect("the expected addresses")
        .lines()
        .map(|line| u64::from_str_radix(line.trim(), 16).expect("an address"))
        .collect();
    let first = addrs.iter().zip(&expected).position(|(a, b)| a != b);
    println!("  ours {} expected {} first difference {first:?}", addrs.len(), expected.len());
    if let Some(at) = first {
        println!(
            "  ours {:x?}\n  theirs {:x?}",
            &addrs[at.saturating_sub(4)..addrs.len().min(at + 4)],
            &expected[at.saturating_sub(4)..expected.len().min(at + 4)]
        );
    }
    assert_eq!((addrs == expected, found.len()), (true, gaps), "{}", trace.display());
}

#[test]
fn lldb_single_thread() {
    let Some(dir) = captures().map(|dir| dir.join("lldb/intelpt-trace")) else { return };
    let sections = Sections::default().elf(&dir.join("a.out"), 0);
    conforms(&dir.join("3842849.trace"), &dir.join("3842849.addresses.txt"), &sections, 0);
}

#[test]
fn lldb_three_images() {
    let Some(dir) = captures().map(|dir| dir.join("lldb/intelpt-trace-multi-file")) else { return };
    let sections = Sections::default()
        .elf(&dir.join("a.out"), 0)
        .elf(&dir.join("libfoo.so"), 0x7fff_f7bd_9000)
        .elf(&dir.join("libbar.so"), 0x7fff_f79d_7000);
    conforms(&dir.join("multi-file.trace"), &dir.join("multi-file.addresses.txt"), &sections, 1);
}

#[test]
fn lldb_multi_core() {
    let Some(dir) = captures().map(|dir| dir.join("lldb/intelpt-multi-core-trace")) else { return };
    let sections = Sections::default().elf(&dir.join("modules/m.out"), 0);
    for (core, gaps) in [(45, 1), (51, 3)] {
        let trace = dir.join(format!("cores/{core}.intelpt_trace"));
        let expected = dir.join(format!("multi-core-{core}.addresses.txt"));
        conforms(&trace, &expected, &sections, gaps);
    }
}

#[test]
fn hase_crashes() {
    let Some(dir) = captures().map(|dir| dir.join("hase")) else { return };
    let control = dir.join("control_flow-20180404T163033");
    let sections =
        Sections::default().elf(&control.join("control_flow"), 0).elf(&control.join("core.1"), 0);
    conforms(
        &control.join("perf.data.1-aux-idx1.bin"),
        &control.join("control_flow-20180404T163033.addresses.txt"),
        &sections,
        0,
    );
    let loopy = dir.join("loopy-20180514T145114");
    let sections = Sections::default()
        .elf(&loopy.join("binaries/home/joerg/git/hase/tests/bin/loopy/loopy"), 0)
        .elf(&loopy.join("core.1"), 0);
    conforms(
        &loopy.join("perf.data.1-aux-idx1.bin"),
        &loopy.join("loopy-20180514T145114.addresses.txt"),
        &sections,
        0,
    );
}

#[test]
fn dynamorio_hello() {
    let Some(dir) = captures().map(|dir| dir.join("dynamorio")) else { return };
    for (name, expected) in [
        ("hello-cyc", "dynamorio-hello.addresses.txt"),
        ("hello-libc", "dynamorio-2aad718d12.addresses.txt"),
    ] {
        let dir = dir.join(name);
        let sections = Sections::default().elf(&dir.join("hello"), 0);
        conforms(&dir.join("pt.bin"), &dir.join(expected), &sections, 0);
    }
}
