//! Tests ELF files of this machine against `readelf` and the kernel, and damaged files for panics.

use super::*;
use crate::common::{Addr, AddrRange};
use crate::image::Bytes;
use crate::image::{CodeSource, Image};
use proptest::prelude::*;
use std::collections::HashSet;
use std::path::Path;
use std::process::Command;

const FILES: [&str; 4] =
    ["/bin/ls", "/lib/x86_64-linux-gnu/libc.so.6", "/bin/bash", "/lib64/ld-linux-x86-64.so.2"];

fn present() -> impl Iterator<Item = (&'static str, Bytes)> {
    let own = std::env::current_exe().unwrap().to_str().unwrap().to_owned();
    let own: &'static str = Box::leak(own.into_boxed_str());
    let files = FILES.iter().copied().chain([own]);
    files.filter_map(|path| Some((path, std::fs::read(path).ok()?.into())))
}

fn readelf(option: &str, path: &str) -> Option<String> {
    let output = Command::new("readelf").args([option, path]).env("LC_ALL", "C").output();
    let Ok(output) = output else {
        // Not eprintln!, which the test harness captures.
        let _ = std::io::Write::write_fmt(
            &mut std::io::stderr(),
            format_args!(
                "SKIPPED: readelf is not installed; install binutils to test against it\n"
            ),
        );
        return None;
    };
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn hexadecimal(text: &str) -> u64 {
    u64::from_str_radix(text.trim_start_matches("0x"), 16).unwrap()
}

#[test]
fn headers_are_those_of_readelf() {
    for (path, bytes) in present() {
        let elf = Elf::parse(&bytes).unwrap();
        let (Some(programs), Some(notes)) = (readelf("-lW", path), readelf("-nW", path)) else {
            return;
        };
        let loads: Vec<_> =
            programs.lines().filter(|line| line.trim().starts_with("LOAD")).collect();
        assert_eq!(loads.len(), elf.segments.len());
        for (line, segment) in loads.iter().zip(&elf.segments) {
            let parts: Vec<_> = line.split_whitespace().collect();
            let flags = parts[6..parts.len() - 1].concat();
            assert_eq!(hexadecimal(parts[1]), segment.offset);
            assert_eq!(hexadecimal(parts[2]), segment.start.0);
            assert_eq!(hexadecimal(parts[4]), segment.file_size_bytes);
            assert_eq!(hexadecimal(parts[5]), segment.memory_size_bytes);
            assert_eq!(
                (flags.contains('R'), flags.contains('W'), flags.contains('E')),
                (segment.readable, segment.writable, segment.executable)
            );
        }
        let entry = programs.lines().find_map(|line| line.strip_prefix("Entry point ")).unwrap();
        assert_eq!(Addr(hexadecimal(entry)), elf.entry);
        assert_eq!(elf.is_pie, programs.contains("Position-Independent Executable file"), "{path}");
        let interpreter =
            programs.split("interpreter: ").nth(1).and_then(|rest| rest.split(']').next());
        assert_eq!(elf.interpreter.as_deref(), interpreter.map(str::as_bytes));
        let build_id = elf.build_id.unwrap_or_default();
        let build_id: Vec<_> = build_id.iter().map(|byte| format!("{byte:02x}")).collect();
        let build_id = build_id.concat();
        assert!(notes.contains(&format!("Build ID: {build_id}")) || build_id.is_empty());
        assert!(elf.is_64 && elf.machine == 62);
    }
}

#[test]
fn exports_are_those_of_readelf() {
    for (path, bytes) in present() {
        let Some(symbols) = readelf("--dyn-syms", path) else { return };
        let by_readelf: HashSet<u64> = symbols
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>())
            .filter(|parts| parts.get(3) == Some(&"FUNC") && parts[6] != "UND")
            .map(|parts| hexadecimal(parts[1]))
            .collect();
        let ours: HashSet<u64> = exports(&bytes).into_iter().map(|(_, address)| address).collect();
        assert!(by_readelf.is_subset(&ours), "{path}");
        if path.contains("libc.so") {
            let bytes: &[u8] = &bytes;
            let puts = exports(bytes).into_iter().find(|(name, _)| name == "puts").unwrap();
            assert!(by_readelf.contains(&puts.1));
        }
    }
}

/// Returns the lines of `/proc/self/maps`: range, permissions, offset, path.
fn mappings() -> Vec<(AddrRange, String, u64, String)> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let parse = |line: &str| {
        let parts: Vec<_> = line.split_whitespace().collect();
        let (start, end) = parts[0].split_once('-').unwrap();
        let range = AddrRange::new(Addr(hexadecimal(start)), Addr(hexadecimal(end)));
        let path = parts.get(5).copied().unwrap_or_default();
        (range, parts[1].to_owned(), hexadecimal(parts[2]), path.to_owned())
    };
    maps.lines().map(parse).collect()
}

#[test]
fn loaded_files_read_as_the_kernel_mapped_them() {
    use std::os::unix::fs::FileExt;
    let memory = std::fs::File::open("/proc/self/mem").unwrap();
    let mut seen = HashSet::new();
    for (first, _, _, path) in mappings().iter().filter(|mapping| mapping.2 == 0) {
        // A backtrace maps the whole file a second time.
        if !Path::new(path).is_file() || !seen.insert(path.clone()) {
            continue;
        }
        let bytes = Bytes::from(std::fs::read(path).unwrap());
        let Ok(sections) = load(&bytes, first.start.0, path) else { continue };
        let image = Image::new(sections);
        // Writable pages, and those that were protected after relocation, differ from the file.
        for (range, permissions, _, of) in mappings() {
            if of != *path || !permissions.starts_with("r-x") {
                continue;
            }
            let size = usize::try_from(range.size_bytes()).unwrap();
            let (mut mapped, mut ours) = (vec![0; size], vec![1; size]);
            memory.read_exact_at(&mut mapped, range.start.0).unwrap();
            assert_eq!(image.read(range.start, &mut ours), size, "{path}");
            assert!(mapped == ours, "{path}");
            assert_eq!(image.read_file_data(range.start, &mut ours), size);
        }
    }
    assert!(seen.len() > 1);
}

#[test]
fn a_segment_reads_as_zero_after_what_its_file_holds() {
    let bytes = std::fs::read("/proc/self/exe").unwrap().into();
    let image = Image::new(load(&bytes, 0x1000_0000, "/program").unwrap());
    let data = segments(&bytes).unwrap().into_iter().find(|segment| {
        segment.memory_size_bytes > segment.file_size_bytes && segment.file_size_bytes > 0
    });
    let Some(data) = data else { return };
    let end = data.start.wrapping_add(data.file_size_bytes + 0x1000_0000);
    let section = image.section_at(end).unwrap();
    let mut buf = [1; 0x3000];
    let zeros = section.read(end, &mut buf);
    assert_eq!(section.range.end.0, end.0.next_multiple_of(4096));
    assert_eq!(zeros as u64, section.range.end.0 - end.0);
    assert!(buf[..zeros].iter().all(|byte| *byte == 0));
}

/// Checks segments that share pages of the file, here 0x1000 and 0x2000, as lld places them.
#[test]
fn a_page_of_the_file_that_segments_share_is_at_home_in_each() {
    let segment = |start, offset, file_size_bytes, executable| Segment {
        start: Addr(start),
        offset,
        file_size_bytes,
        memory_size_bytes: file_size_bytes,
        readable: true,
        writable: false,
        executable,
    };
    let elf = Elf {
        file_type: FileType::Dynamic,
        machine: 62,
        is_64: true,
        entry: Addr(0x22e0),
        is_pie: true,
        segments: vec![
            segment(0, 0, 0x12d4, false),
            segment(0x22e0, 0x12e0, 0x1780, true),
            segment(0x4a60, 0x2a60, 0x1d8, false),
        ],
        program_headers: (0x40, 3),
        dynamic: None,
        interpreter: None,
        build_id: None,
        debug_link: None,
    };
    assert_eq!(elf.bias(Addr(0x7000), 0x1000), Some(0x5000));
    assert_eq!(elf.biases(Addr(0x7000), 0x1000, false), [0x6000, 0x5000]);
    assert_eq!(elf.biases(Addr(0x9000), 0x2000, false), [0x5000, 0x6000]);
    assert_eq!(elf.biases(Addr(0x8000), 0x2000, true), [0x5000, 0x4000]);
    assert_eq!(elf.biases(Addr(0x5000), 0x4000, true), [0; 0]);
}

#[test]
fn what_is_no_elf_file_is_refused() {
    for bytes in [&b""[..], b"#!/bin/sh\n", b"\x7fEL", b"\x7fELF", b"\x7fELF\x02\x01\x01"] {
        let refused = segments(&Bytes::from(bytes)).unwrap_err().to_string();
        let expected = if bytes.starts_with(b"\x7fELF") { "damaged ELF" } else { "not an ELF" };
        assert!(refused.contains(expected), "{refused}");
        let is_cut = bytes.starts_with(b"\x7fELF");
        assert_eq!(is_cut, refused.contains("the file header is cut off"), "{refused}");
    }
}

struct Behind(Vec<u8>);

impl AsRef<[u8]> for Behind {
    fn as_ref(&self) -> &[u8] {
        &self.0[1..]
    }
}

#[test]
fn a_file_at_an_odd_place_in_memory_is_read() {
    let mut bytes = std::fs::read("/proc/self/exe").unwrap();
    bytes.insert(0, 0);
    assert!(!Elf::parse(&Bytes::new(Behind(bytes))).unwrap().segments.is_empty());
}

/// Runs all queries on a damaged file.
fn interrogate(bytes: Vec<u8>) {
    let bytes = Bytes::from(bytes);
    let _ = Elf::parse(&bytes);
    let _ = exports(&bytes);
    for bias in [0, 0x1000, u64::MAX - 0x1fff] {
        let Ok(sections) = load(&bytes, bias, "/program") else { continue };
        let image = Image::new(sections);
        let mut buf = [0; 4096];
        for section in image.sections() {
            image.read(section.range.start, &mut buf);
            image.read(section.range.end.wrapping_sub(10), &mut buf);
        }
    }
}

proptest! {
    #[test]
    fn damaged_files_are_survived(
        damage in prop::collection::vec((0..0x400_u16, any::<u8>()), 1..20),
        cut in prop::option::weighted(0.2, any::<u16>()),
    ) {
        let Ok(mut bytes) = std::fs::read("/bin/ls") else { return Ok(()) };
        for (place, value) in damage {
            if let Some(byte) = bytes.get_mut(usize::from(place)) {
                *byte = value;
            }
        }
        bytes.truncate(cut.map_or(usize::MAX, usize::from));
        interrogate(bytes);
    }

    #[test]
    fn random_bytes_are_survived(mut bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        if bytes.len() > 6 {
            bytes[..5].copy_from_slice(b"\x7fELF\x02");
            bytes[5] &= 3;
        }
        interrogate(bytes);
    }
}
