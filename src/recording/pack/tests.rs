//! Round trips of packed recordings.

use super::super::Reader;
use super::super::error::Error;
use super::super::format::{MANIFEST, STARTING, TraceId};
use super::super::import::Imported;
use super::super::mapped::Mapped;
use super::contents::{CONTENTS, Member, is_known, parse, text};
use super::header::{BLOCK_BYTES, header, read_header};
use super::segments::{Segment, segments_of, stored_bytes};
use super::write::padding_bytes;
use super::{Extra, pack, unpack};
use crate::common::{Pid, Tid};
use crate::image::Bytes;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

/// A directory with a recording and its packed file.
pub(super) struct Scene {
    dir: tempfile::TempDir,
}

impl Scene {
    pub(super) fn new() -> Self {
        let scene = Self { dir: tempfile::tempdir().unwrap() };
        let trace = Mapped::held(vec![0; 5000]);
        let imported = Imported {
            program: "/p".to_owned(),
            pid: Pid(1),
            threads: vec![Tid(1), Tid(2)],
            traces: vec![(TraceId::Thread(Tid(1)), trace.into())],
            core: Some(Bytes::new(b"core".repeat(1000))),
            ..Imported::default()
        };
        imported.write(&scene.recording()).unwrap();
        scene
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(super) fn recording(&self) -> PathBuf {
        self.path("recording")
    }

    /// Packs the recording, and returns the bytes of the file.
    pub(super) fn pack(&self, extras: Vec<Extra>) -> Vec<u8> {
        let reader = Reader::open(&self.recording()).unwrap();
        let out = self.path("packed");
        let _ = fs::remove_file(&out);
        pack(&reader, extras, &out, &mut |_, _| true).unwrap();
        fs::read(out).unwrap()
    }

    pub(super) fn unpack(&self, bytes: &[u8]) -> Result<Reader, Error> {
        let (file, dir) = (self.path("file"), self.path("unpacked"));
        let _ = fs::remove_dir_all(&dir);
        fs::write(&file, bytes).unwrap();
        let unpacked = unpack(&file, &dir, &mut |_, _| true);
        assert_eq!(unpacked.is_ok(), dir.exists());
        unpacked
    }

    /// Returns the error for a file that must be refused, without the file's own path.
    pub(super) fn refusal(&self, bytes: &[u8]) -> String {
        let error = self.unpack(bytes).expect_err("refused").to_string();
        let file = self.path("file").display().to_string();
        error.strip_prefix(&file).expect("the file is named").to_owned()
    }
}

/// Returns the files of an archive, in order.
pub(super) fn members(packed: &[u8]) -> Vec<(String, Vec<u8>)> {
    let mut from = GzDecoder::new(packed);
    let mut archive = Vec::new();
    from.read_to_end(&mut archive).unwrap();
    let list_bytes = usize::from_str_radix(std::str::from_utf8(&archive[124..135]).unwrap(), 8);
    let list = archive[BLOCK_BYTES..][..list_bytes.unwrap()].to_owned();
    let listed = parse(&list).unwrap();
    let mut rest = &archive[BLOCK_BYTES + list.len() + padding_bytes(list.len() as u64)..];
    let mut files = Vec::new();
    for Member { name, size_bytes } in listed {
        let segments = read_header(&mut rest, &name, size_bytes).unwrap().expect("a header");
        assert!(segments.len() <= 1, "{name} has no holes");
        let mut bytes = vec![0; usize::try_from(size_bytes).unwrap()];
        rest.read_exact(&mut bytes).unwrap();
        rest = &rest[padding_bytes(size_bytes)..];
        files.push((name, bytes));
    }
    assert_eq!(rest, [0; 2 * BLOCK_BYTES]);
    files
}

/// An archive that is put together from any blocks.
#[derive(Default)]
pub(super) struct Archive(Vec<u8>);

impl Archive {
    /// Begins an archive with a list of these files.
    pub(super) fn listing(files: &[(String, Vec<u8>)]) -> Self {
        let member = |(name, bytes): &(String, Vec<u8>)| Member {
            name: name.clone(),
            size_bytes: bytes.len() as u64,
        };
        let list = text(&files.iter().map(member).collect::<Vec<_>>());
        Self::default().file(CONTENTS, list.as_bytes())
    }

    pub(super) fn of(files: &[(String, Vec<u8>)]) -> Self {
        let add = |archive: Self, (name, bytes): &(String, Vec<u8>)| archive.file(name, bytes);
        files.iter().fold(Self::listing(files), add)
    }

    pub(super) fn blocks(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self.0.resize(self.0.len() + padding_bytes(bytes.len() as u64), 0);
        self
    }

    pub(super) fn file(self, name: &str, bytes: &[u8]) -> Self {
        let size_bytes = bytes.len() as u64;
        let segments = [Segment { offset: 0, size_bytes }];
        let segments = if bytes.is_empty() { &[][..] } else { &segments };
        self.blocks(&header(name, size_bytes, segments)).blocks(bytes)
    }

    pub(super) fn end(self) -> Vec<u8> {
        zipped(&self.blocks(&[0; 2 * BLOCK_BYTES]).0)
    }
}

pub(super) fn zipped(bytes: &[u8]) -> Vec<u8> {
    let mut to = GzEncoder::new(Vec::new(), Compression::fast());
    to.write_all(bytes).unwrap();
    to.finish().unwrap()
}

/// Recomputes the checksum of a header.
pub(super) fn sealed(mut block: Vec<u8>) -> Vec<u8> {
    block[148..156].fill(b' ');
    let sum: u32 = block[..BLOCK_BYTES].iter().map(|byte| u32::from(*byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    block
}

pub(super) fn files_below(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(files_below(&path));
        } else {
            files.push((path.clone(), fs::read(path).unwrap()));
        }
    }
    files.sort();
    files
}

#[test]
fn a_recording_comes_out_as_it_went_in() {
    let scene = Scene::new();
    let reader = scene.unpack(&scene.pack(Vec::new())).unwrap();
    let relative = |dir: &Path| {
        let strip = |(path, bytes): (PathBuf, _)| (path.strip_prefix(dir).unwrap().into(), bytes);
        files_below(dir).into_iter().map(strip).collect::<Vec<(PathBuf, Vec<u8>)>>()
    };
    assert_eq!(relative(reader.dir()), relative(&scene.recording()));
    for path in [reader.dir().to_owned(), reader.dir().join("trace"), reader.dir().join("core")] {
        assert_eq!(fs::metadata(path).unwrap().mode() & 0o077, 0);
    }
}

#[test]
fn files_are_added_and_are_checked_from_then_on() {
    let scene = Scene::new();
    let deep = format!("sources/{}/a name.c", "directory/".repeat(30).trim_end_matches('/'));
    fs::write(scene.path("x"), "debug").unwrap();
    let extras = || {
        vec![
            Extra::file("debug/00ff.debug".to_owned(), scene.path("x")),
            Extra::bytes(deep.clone(), b"int main;".to_vec().into()),
            Extra::bytes(
                "sources/.directories".to_owned(),
                b"/x/build\n/../../out\nout\n/x//y\n".to_vec().into(),
            ),
        ]
    };
    let reader = scene.unpack(&scene.pack(extras())).unwrap();
    assert_eq!(fs::read(reader.dir().join(&deep)).unwrap(), b"int main;");
    assert_eq!(fs::read(reader.dir().join("debug/00ff.debug")).unwrap(), b"debug");
    assert_eq!(reader.source_directories(), [Path::new("/x/build")]);
    assert!(reader.dir().join("sources/x/build").is_dir() && !scene.path("out").exists());
    // Packed again, the recording keeps the files that were added.
    let again = scene.path("again");
    pack(&reader, extras(), &again, &mut |_, _| true).unwrap();
    let bytes = fs::read(again).unwrap();
    assert!(members(&bytes).iter().any(|(name, _)| *name == deep));
    let reader = scene.unpack(&bytes).unwrap();
    fs::write(reader.dir().join(&deep), "int Main;").unwrap();
    assert_eq!(reader.find_damage().len(), 1);
}

#[test]
fn a_cut_recording_is_packed_with_its_whole_files() {
    let scene = Scene::new();
    let dir = scene.recording();
    let manifest = fs::read_to_string(dir.join(MANIFEST)).unwrap();
    fs::write(dir.join(STARTING), manifest).unwrap();
    for name in [MANIFEST, "checksums"] {
        fs::remove_file(dir.join(name)).unwrap();
    }
    fs::write(dir.join("images/partial"), "part").unwrap();
    fs::write(dir.join("recorder"), "").unwrap();
    let packed = scene.pack(Vec::new());
    let names: Vec<_> = members(&packed).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names.last().map(String::as_str), Some(STARTING));
    assert!(!names.iter().any(|name| name.contains("partial") || name.contains("recorder")));
    let reader = scene.unpack(&packed).unwrap();
    assert!(reader.is_cut());
    assert_eq!(reader.trace(TraceId::Thread(Tid(1))).unwrap().as_ref().len(), 5000);
}

#[test]
fn damaged_recordings_are_not_packed() {
    let scene = Scene::new();
    fs::write(scene.recording().join("core"), "other").unwrap();
    let reader = Reader::open(&scene.recording()).unwrap();
    let out = scene.path("packed");
    assert!(pack(&reader, Vec::new(), &out, &mut |_, _| true).is_err());
    assert!(!out.exists());
}

#[test]
fn an_interrupted_one_leaves_nothing() {
    let scene = Scene::new();
    let packed = scene.pack(Vec::new());
    let reader = Reader::open(&scene.recording()).unwrap();
    let (out, dir) = (scene.path("out"), scene.path("dir"));
    assert!(pack(&reader, Vec::new(), &out, &mut |done, _| done == 0).is_err());
    fs::write(scene.path("file"), packed).unwrap();
    assert!(unpack(&scene.path("file"), &dir, &mut |done, _| done == 0).is_err());
    assert!(!out.exists() && !dir.exists());
}

#[test]
fn an_existing_directory_is_left_alone() {
    let scene = Scene::new();
    let packed = scene.pack(Vec::new());
    fs::write(scene.path("file"), packed).unwrap();
    let before = files_below(&scene.recording());
    assert!(unpack(&scene.path("file"), &scene.recording(), &mut |_, _| true).is_err());
    assert_eq!(files_below(&scene.recording()), before);
}

#[test]
fn names_are_those_of_a_recording() {
    let image = format!("images/{}", "a1".repeat(32));
    let deep = format!("sources/{}", "x/".repeat(1400));
    for name in [MANIFEST, "core", "trace/12.pt", "trace/cpu3.sum", &image, "keyframes/12.bin"] {
        assert!(is_known(name), "{name}");
    }
    for name in [
        "debug/0f.debug",
        "sources/usr/include/c++/12/vector",
        "sources/.directories",
        &format!("{deep}x"),
    ] {
        assert!(is_known(name), "{name}");
    }
    let refused = [
        "",
        "/",
        "/etc/passwd",
        "../manifest.json",
        "./core",
        "core/",
        "core/core",
        "manifest.json\0",
        "recorder",
        "index.bin",
        "path/manifest.json",
        "trace",
        "trace/",
        "trace/..",
        "trace/../core",
        "trace/.pt",
        "trace/cpu.pt",
        "trace/-1.pt",
        "trace/1.pt/2.pt",
        "trace/123456789012345678901.pt",
        "keyframes/x.bin",
        "keyframes/1",
        "images/x",
        "images/partial",
        "images/../../x",
        "debug/.debug",
        "debug/../x.debug",
        "debug/FF.debug",
        "sources",
        "sources/",
        "sources//etc",
        "sources/..",
        "sources/a/../../../b",
        "sources/./a",
        "sources/a/",
        "sources/a\nb",
        &deep,
        &format!("sources/{}", "x".repeat(256)),
        &format!("sources/{}x", "x/".repeat(1500)),
        &format!("debug/{}.debug", "a".repeat(250)),
    ];
    for name in refused {
        assert!(!is_known(name), "{name:?}");
    }
}

#[test]
fn holes_stay_holes() {
    let dir = tempfile::tempdir().unwrap();
    let file = File::create_new(dir.path().join("f")).unwrap();
    let size_bytes = 1 << 40;
    file.set_len(size_bytes).unwrap();
    // More segments than fit in one header and one block after it.
    for number in 0..40 {
        file.write_all_at(b"data", (number << 28) + 5).unwrap();
    }
    let segments = segments_of(&file, size_bytes).unwrap();
    let stored = stored_bytes(&segments, size_bytes).unwrap();
    assert!((40..1 << 30).contains(&stored), "{stored}");
    if segments.len() == 40 {
        let blocks = header("core", size_bytes, &segments);
        assert_eq!(blocks.len(), 3 * BLOCK_BYTES);
        let read = read_header(&mut &blocks[..], "core", size_bytes).unwrap();
        assert_eq!(read, Some(segments));
    }
    file.set_len(0).unwrap();
    assert_eq!(segments_of(&file, 0).unwrap(), []);
    file.set_len(1 << 20).unwrap();
    assert_eq!(stored_bytes(&segments_of(&file, 1 << 20).unwrap(), 1 << 20), Some(0));
    let blocks = header("core", 1 << 20, &[]);
    assert_eq!(read_header(&mut &blocks[..], "core", 1 << 20).unwrap(), Some(vec![]));
}

// A core file with holes is unpacked with its holes; GNU tar reads the archive as well.
#[test]
fn tar_extracts_the_same_files() {
    let scene = Scene::new();
    let core = scene.recording().join("core");
    let file = File::options().write(true).open(&core).unwrap();
    file.set_len(100 << 20).unwrap();
    for at in [1, 3, 4, 20, 21, 70, 90_u64] {
        file.write_all_at(b"data", at << 20).unwrap();
    }
    drop(file);
    // The recording's checksums are of the old core file, so they are made again.
    let reader = Reader::open(&scene.recording()).unwrap();
    let mut sums = reader.sums().unwrap().clone();
    sums.add(
        "core".to_owned(),
        super::super::sums::Sum::of_file(&File::open(&core).unwrap()).unwrap(),
    );
    fs::write(scene.recording().join("checksums"), sums.to_text()).unwrap();
    let packed = scene.pack(Vec::new());
    assert!(packed.len() < 1 << 20, "{}", packed.len());
    let reader = scene.unpack(&packed).unwrap();
    let blocks = |path: &Path| fs::metadata(path).unwrap().blocks();
    assert!(blocks(&reader.dir().join("core")) < 8 * blocks(&core) + 4096);
    let out = scene.path("by-tar");
    fs::create_dir(&out).unwrap();
    let mut tar = std::process::Command::new("tar");
    tar.arg("-xzf").arg(scene.path("packed")).arg("-C").arg(&out);
    let Ok(status) = tar.status() else { return };
    assert!(status.success());
    for (path, bytes) in files_below(&scene.recording()) {
        let name = path.strip_prefix(scene.recording()).unwrap();
        assert!(fs::read(out.join(name)).unwrap() == bytes, "{}", name.display());
        assert!(fs::read(reader.dir().join(name)).unwrap() == bytes, "{}", name.display());
    }
}
