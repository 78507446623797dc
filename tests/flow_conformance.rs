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
    fn add_elf(&mut self, bytes: &[u8], base: u64) {
        let file = object::File::parse(bytes).expect("an ELF file");
        for segment in file.segments() {
            let data = segment.data().expect("a segment's bytes").to_vec();
            self.0.push((segment.address() + base, data));
        }
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
    // Not eprintln!, which the test harness swallows.
    let _ = std::io::Write::write_fmt(
        &mut std::io::stderr(),
        format_args!("SKIPPED: no captures at {}; set CONTRAFLOW_CONFORMANCE\n", dir.display()),
    );
    None
}

fn decode(trace: &[u8], sections: &Sections, cpu: &str) -> (Vec<u64>, Vec<Gap>) {
    let mut code = Code::new(sections);
    let mut decoder = Decoder::new(trace, Config::of(cpu.parse().expect("a processor")));
    let (mut addrs, mut gaps) = (Vec::new(), Vec::new());
    while let Some(item) = decoder.next(&mut code) {
        match item {
            FlowItem::Block(span) => {
                addrs.extend(code.addrs(span.ip, span.mode, span.insns).map(|addr| addr.0));
            }
            FlowItem::Gap(gap) => gaps.push(gap),
            FlowItem::Event(_) => {}
        }
    }
    (addrs, gaps)
}

/// A capture: where it is, who took it, what code it ran, and what must come of it.
struct Capture {
    folder: &'static str,
    trace: &'static str,
    expected: &'static str,
    cpu: &'static str,
    /// ELF files, cores among them, and what is added to their addresses.
    images: &'static [(&'static str, u64)],
    gaps: usize,
}

const CAPTURES: &[Capture] = &[
    Capture {
        folder: "lldb/intelpt-trace",
        trace: "3842849.trace",
        expected: "3842849.addresses.txt",
        cpu: "6/79/1",
        images: &[("a.out", 0)],
        gaps: 0,
    },
    Capture {
        folder: "lldb/intelpt-trace-multi-file",
        trace: "multi-file.trace",
        expected: "multi-file.addresses.txt",
        cpu: "6/79/1",
        images: &[("a.out", 0), ("libfoo.so", 0x7fff_f7bd_9000), ("libbar.so", 0x7fff_f79d_7000)],
        gaps: 1,
    },
    Capture {
        folder: "lldb/intelpt-multi-core-trace",
        trace: "cores/45.intelpt_trace",
        expected: "multi-core-45.addresses.txt",
        cpu: "6/85/4",
        images: &[("modules/m.out", 0)],
        gaps: 1,
    },
    Capture {
        folder: "lldb/intelpt-multi-core-trace",
        trace: "cores/51.intelpt_trace",
        expected: "multi-core-51.addresses.txt",
        cpu: "6/85/4",
        images: &[("modules/m.out", 0)],
        gaps: 3,
    },
    Capture {
        folder: "hase/control_flow-20180404T163033",
        trace: "perf.data.1-aux-idx1.bin",
        expected: "control_flow-20180404T163033.addresses.txt",
        cpu: "6/94/3",
        images: &[("core.1", 0), ("control_flow", 0)],
        gaps: 0,
    },
    Capture {
        folder: "hase/loopy-20180514T145114",
        trace: "perf.data.1-aux-idx1.bin",
        expected: "loopy-20180514T145114.addresses.txt",
        cpu: "6/61/4",
        images: &[("core.1", 0), ("binaries/home/joerg/git/hase/tests/bin/loopy/loopy", 0)],
        gaps: 0,
    },
    Capture {
        folder: "dynamorio/hello-cyc",
        trace: "pt.bin",
        expected: "dynamorio-hello.addresses.txt",
        cpu: "6/85/4",
        images: &[("hello", 0)],
        gaps: 0,
    },
    Capture {
        folder: "dynamorio/hello-libc",
        trace: "pt.bin",
        expected: "dynamorio-2aad718d12.addresses.txt",
        cpu: "6/85/7",
        images: &[("hello", 0)],
        gaps: 0,
    },
];

impl Capture {
    fn check(&self, captures: &Path) {
        let folder = captures.join(self.folder);
        let read = |file: &str| fs::read(folder.join(file)).expect("a file of the capture");
        let mut sections = Sections::default();
        for (image, base) in self.images {
            sections.add_elf(&read(image), *base);
        }
        let (addrs, gaps) = decode(&read(self.trace), &sections, self.cpu);
        let expected: Vec<u64> = String::from_utf8_lossy(&read(self.expected))
            .lines()
            .map(|line| u64::from_str_radix(line.trim(), 16).expect("an address"))
            .collect();
        let name = format!("{}/{}", self.folder, self.trace);
        let same = addrs.iter().zip(&expected).take_while(|(ours, theirs)| ours == theirs).count();
        assert_eq!((same, addrs.len()), (expected.len(), expected.len()), "{name}: {gaps:?}");
        assert_eq!(gaps.len(), self.gaps, "{name}: {gaps:?}");
    }
}

#[test]
fn captures_decode_to_their_instructions() {
    let Some(captures) = captures() else { return };
    for capture in CAPTURES {
        capture.check(&captures);
    }
}
