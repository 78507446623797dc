//! Archives that no packer wrote, and packed recordings that are cut or changed anywhere: all are
//! refused, and no files of them are left.

use super::contents::CONTENTS;
use super::header::{BLOCK_BYTES, header};
use super::segments::{Segment, stored_bytes};
use super::tests::{Archive, Scene, files_below, members, sealed, zipped};
use super::unpack;
use crate::recording::ErrorKind;
use crate::recording::format::MANIFEST;
use flate2::read::GzDecoder;
use std::io::Read;
use std::path::Path;

#[test]
fn lists_of_other_files_are_refused() {
    let scene = Scene::new();
    let good = members(&scene.pack(Vec::new()));
    assert!(scene.unpack(&Archive::of(&good).end()).is_ok());
    let with = |name: &str| {
        let mut files = good.clone();
        files.insert(0, (name.to_owned(), b"text".to_vec()));
        scene.refusal(&Archive::of(&files).end())
    };
    let unknown = ": not a packed recording: no recording has a file";
    for name in ["/tmp/x", "../x", "trace/../../x", "core", "x", "recorder", "sources/a/../b"] {
        assert!(with(name).starts_with(unknown), "{name}");
    }
    assert!(!scene.path("x").exists());
    // Files that a recording can have, but this one does not.
    for name in ["sources/a", "debug/00.debug", "trace/3.pt", "trace/cpu1.pt", "log.bin"] {
        assert!(
            with(name).starts_with(&format!("/{name}: the recording does not list it")),
            "{name}"
        );
    }
    let without = |name: &str| {
        let files: Vec<_> = good.iter().filter(|(other, _)| other != name).cloned().collect();
        scene.refusal(&Archive::of(&files).end())
    };
    assert_eq!(without(MANIFEST), ": damaged: its bytes are not those of a packed recording");
    for name in ["core", "sideband.bin", "checksums", "trace/1.pt", "trace/1.sum"] {
        assert!(without(name).starts_with(&format!("/{name}: ")), "{name}: {}", without(name));
    }
    let lists = [
        ("", ": not a packed recording"),
        ("contraflow packed recording 2\n", ": a packed recording of version 2, "),
        ("contraflow packed recording 1\n", ": damaged"),
        ("contraflow packed recording 1\n5 manifest.json", ": damaged"),
        ("contraflow packed recording 1\n05 manifest.json\n", ": damaged"),
        ("contraflow packed recording 1\n-5 manifest.json\n", ": damaged"),
        ("contraflow packed recording 1\n5 starting.json\n5 manifest.json\n", ": damaged"),
        ("contraflow packed recording 1\n99999999999999999999 manifest.json\n", ": damaged"),
        // No header for that size follows, and no file is created.
        ("contraflow packed recording 1\n18446744073709551615 manifest.json\n", ": damaged"),
    ];
    for (list, error) in lists {
        let refusal = scene.refusal(&Archive::default().file(CONTENTS, list.as_bytes()).end());
        assert!(refusal.starts_with(error), "{list:?}: {refusal}");
    }
}

#[test]
fn headers_of_other_things_are_refused() {
    let scene = Scene::new();
    let good = members(&scene.pack(Vec::new()));
    let (first, rest) = good.split_first().unwrap();
    let (name, bytes) = first;
    let size_bytes = bytes.len() as u64;
    let whole = [Segment { offset: 0, size_bytes }];
    let plain = header(name, size_bytes, &whole);
    let archive = |blocks: &[u8]| {
        let begun = Archive::listing(&good).blocks(blocks).blocks(bytes);
        rest.iter().fold(begun, |archive, (name, bytes)| archive.file(name, bytes)).end()
    };
    assert!(scene.unpack(&archive(&plain)).is_ok());
    let mut others: Vec<Vec<u8>> = Vec::new();
    // Links, devices, directories, FIFOs, extended headers.
    for kind in b"1234567xgKLMN" {
        let mut block = plain.clone();
        block[156] = *kind;
        block[157..168].copy_from_slice(b"/etc/passwd");
        others.push(sealed(block));
    }
    // A mode with a set-user-ID bit, another owner, a time, names, a prefix, a wrong checksum.
    for (at, byte) in [(102, b'4'), (114, b'1'), (140, b'1'), (265, b'x'), (345, b'/'), (153, 1)] {
        let mut block = plain.clone();
        block[at] = byte;
        others.push(if at == 153 { block } else { sealed(block) });
    }
    others.push(header("core2", size_bytes, &whole));
    others.push(header("../core", size_bytes, &whole));
    others.push(header(name, size_bytes - 1, &[Segment { offset: 0, size_bytes: size_bytes - 1 }]));
    // Segments that overlap, lead out of the file, are empty, or not in order.
    let segment = |offset, size_bytes| Segment { offset, size_bytes };
    for segments in [
        vec![segment(0, 100), segment(50, 100)],
        vec![segment(size_bytes, 1)],
        vec![segment(u64::MAX, 1)],
        vec![segment(1, u64::MAX - 1)],
        vec![segment(10, 0), segment(20, 10)],
        vec![segment(500, 10), segment(100, 10)],
    ] {
        let sum = segments.iter().fold(0_u64, |sum, one| sum.wrapping_add(one.size_bytes));
        assert_eq!(stored_bytes(&segments, size_bytes), None, "{segments:?}");
        if sum < size_bytes {
            others.push(header(name, size_bytes, &segments));
        }
    }
    for block in others {
        let refusal = scene.refusal(&archive(&block));
        assert!(refusal.starts_with(": damaged"), "{refusal}");
    }
    // An endless list of segments is not kept.
    let mut block = plain.clone();
    block[156] = b'S';
    block[482] = 1;
    let mut extension = [b'0'; BLOCK_BYTES];
    extension.chunks_exact_mut(12).for_each(|number| number[11] = 0);
    let endless = extension.repeat(20_000);
    let refusal = scene.refusal(&archive(&[sealed(block), endless].concat()));
    assert!(refusal.starts_with(": damaged"), "{refusal}");
}

#[test]
fn other_files_are_refused() {
    let scene = Scene::new();
    let packed = scene.pack(Vec::new());
    for bytes in [&b""[..], b"x", b"\x1f", b"PK\x03\x04", b"\x7fELF"] {
        assert!(scene.refusal(bytes).ends_with(": not a packed recording"));
    }
    let other = Archive::default().file("hello", b"world").end();
    assert!(scene.refusal(&other).ends_with(": not a packed recording"));
    assert!(scene.refusal(&zipped(b"hello")).starts_with(": cut short"));
    let huge = zipped(&header(CONTENTS, 1 << 40, &[Segment { offset: 0, size_bytes: 1 << 40 }]));
    assert!(scene.refusal(&huge).starts_with(": damaged"));
    for more in [&b"x"[..], &packed, &[0; 600]] {
        assert!(scene.refusal(&[&packed, more].concat()).starts_with(": damaged"));
    }
    let mut archive = Vec::new();
    GzDecoder::new(&packed[..]).read_to_end(&mut archive).unwrap();
    archive.extend_from_slice(&[0; BLOCK_BYTES]);
    assert!(scene.refusal(&zipped(&archive)).starts_with(": damaged"));
    let missing = unpack(&scene.path("none"), &scene.path("unpacked"), &mut |_, _| true);
    assert!(matches!(missing.unwrap_err().kind, ErrorKind::Io(_)));
    assert!(unpack(Path::new("/dev/zero"), &scene.path("unpacked"), &mut |_, _| true).is_err());
}

#[test]
fn a_file_cut_anywhere_is_refused() {
    let scene = Scene::new();
    let packed = scene.pack(Vec::new());
    for place in 1..=200 {
        let end = packed.len() * place / 201;
        let refusal = scene.refusal(&packed[..end]);
        assert!(refusal.starts_with(": cut short") || end < 2, "{end}: {refusal}");
    }
    scene.refusal(&packed[..packed.len() - 1]);
}

#[test]
fn a_changed_byte_is_found() {
    let scene = Scene::new();
    let packed = scene.pack(Vec::new());
    for place in 0..200 {
        let mut changed = packed.clone();
        let at = packed.len() * place / 200;
        changed[at] ^= 1 << (place % 8);
        // The header of gzip has a time and a system that change nothing, and the last byte of its
        // data has unused bits.
        if let Ok(reader) = scene.unpack(&changed) {
            assert!(at < 10 || at == packed.len() - 9, "{at}");
            assert_eq!(files_below(reader.dir()).len(), files_below(&scene.recording()).len());
            assert!(reader.find_damage().is_empty());
        }
    }
}
