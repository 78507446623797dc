//! Packs a recording: its files, and others that belong to it, to a tar archive that gzip
//! compresses. A cut recording may grow at the same time; the files are packed with the sizes that
//! they have when they are listed.

use super::super::error::{At, Error, ErrorKind};
use super::super::format::{
    CHECKSUMS, CORE, DEBUG_DIR, IMAGE_DIR, MANIFEST, SIDEBAND, SOURCE_DIR, STARTING, TRACE_DIR,
    log_name, trace_name,
};
use super::super::keyframe::keyframe_path;
use super::super::reader::Reader;
use super::super::regular::{Links, create_private, open_regular};
use super::super::sums::{Sum, Sums};
use super::contents::{CONTENTS, Member, is_known, text};
use super::header::{BLOCK_BYTES, header};
use super::segments::{Segment, segments_of};
use crate::image::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

const BUFFER_BYTES: usize = 256 << 10;

/// A file that a packed recording has in addition to the recording's own.
#[derive(Debug)]
pub struct Extra {
    /// The file's path in the recording.
    name: String,
    content: Content,
}

impl Extra {
    /// Returns the file `path` of this machine, to be packed under `name`.
    pub fn file(name: String, path: PathBuf) -> Self {
        Self { name, content: Content::File(path) }
    }

    /// Returns a file with these bytes, to be packed under `name`.
    pub fn bytes(name: String, bytes: Bytes) -> Self {
        Self { name, content: Content::Bytes(bytes) }
    }
}

/// The source of the bytes of a file that is to be packed.
#[derive(Debug)]
enum Content {
    /// A file, opened when it is packed.
    File(PathBuf),
    /// An open file, whose name the recorder may remove.
    Open(PathBuf, File),
    Bytes(Bytes),
}

impl Content {
    fn sum(&self) -> Result<Sum, Error> {
        match self {
            Self::File(path) => {
                let file = open_regular(path, Links::Follow).at(path)?;
                Sum::of_file(&file).at(path)
            }
            Self::Open(path, file) => Sum::of_file(file).at(path),
            Self::Bytes(bytes) => Ok(Sum::of_bytes(bytes)),
        }
    }
}

/// A file that is to be packed.
struct Item {
    member: Member,
    content: Content,
}

/// Packs a recording and additional files into `out`, which must not exist. Leaves out additional
/// files that the recording has already. Fails if the recording is damaged, or a file has a name
/// that no recording has. Calls `progress` with the number of bytes done and that of all, and fails
/// if it returns false. Removes a partial file.
pub fn pack(
    reader: &Reader,
    extras: Vec<Extra>,
    out: &Path,
    progress: &mut dyn FnMut(u64, u64) -> bool,
) -> Result<(), Error> {
    if let Some(fault) = reader.find_damage().into_iter().next() {
        return Err(fault);
    }
    let items = match reader.sums() {
        Some(sums) => items_of_complete(reader, sums, extras)?,
        None => items_of_cut(reader, extras)?,
    };
    if let Some(item) = items.iter().find(|item| !is_known(&item.member.name)) {
        let name = item.member.name.clone();
        return Err(Error::new(reader.dir(), ErrorKind::PackName(name)));
    }
    let file = create_private(out).at(out)?;
    let written = Packing { out, to: GzEncoder::new(BufWriter::new(file), Compression::default()) }
        .write(&items, progress);
    if written.is_err() {
        // A part of a packed recording is useless, and the original error is more important.
        let _ = fs::remove_file(out);
    }
    written
}

/// Returns the files of a complete recording: those with a checksum, the traces, and the `extras`
/// that it does not have yet. They are sorted by name; after them come a list of checksums that
/// includes the extras, and the manifest.
fn items_of_complete(reader: &Reader, sums: &Sums, extras: Vec<Extra>) -> Result<Vec<Item>, Error> {
    let mut sums = sums.clone();
    let own = |name: &str| Content::File(reader.dir().join(name));
    let mut items: Vec<(String, Content)> = sums
        .names()
        .filter(|name| *name != MANIFEST)
        .map(|name| (name.into(), own(name)))
        .collect();
    for trace in reader.traces()? {
        let name = format!("{TRACE_DIR}/{}", trace_name(trace));
        items.push((name.clone(), own(&name)));
    }
    for extra in extras {
        // An unpacked recording has some already.
        if !sums.lists(&extra.name) {
            sums.add(extra.name.clone(), extra.content.sum()?);
            items.push((extra.name, extra.content));
        }
    }
    items.sort_by(|one, other| one.0.cmp(&other.0));
    items.push((CHECKSUMS.to_owned(), Content::Bytes(sums.to_text().into_bytes().into())));
    items.push((MANIFEST.to_owned(), own(MANIFEST)));
    items.into_iter().map(|(name, content)| item(name, content)).collect()
}

/// Returns the files of a cut recording, and the `extras` that it does not have yet. If its
/// recorder is still running, the files grow: their sizes are read in such an order that no trace
/// runs on code that the sideband has not announced, and no keyframe is of a place after the end of
/// the log. The starting manifest comes last; there are no checksums.
fn items_of_cut(reader: &Reader, extras: Vec<Extra>) -> Result<Vec<Item>, Error> {
    let mut items = Vec::new();
    items.extend(items_below(reader.dir(), TRACE_DIR)?);
    for name in reader.keyframes().into_iter().map(keyframe_path) {
        items.extend(open_item(reader.dir(), name)?);
    }
    for name in reader.log_part_starts()?.into_iter().map(log_name) {
        items.extend(open_item(reader.dir(), name)?);
    }
    for name in [SIDEBAND, IMAGE_DIR, CORE, DEBUG_DIR, SOURCE_DIR] {
        items.extend(items_below(reader.dir(), name)?);
    }
    for extra in extras {
        if items.iter().all(|item| item.member.name != extra.name) {
            items.push(item(extra.name, extra.content)?);
        }
    }
    items.extend(items_below(reader.dir(), STARTING)?);
    Ok(items)
}

/// Opens a file of a recording; `None` if the recorder has just removed it.
fn open_item(dir: &Path, name: String) -> Result<Option<Item>, Error> {
    let path = dir.join(&name);
    match open_regular(&path, Links::Refuse) {
        Ok(file) => item(name, Content::Open(path, file)).map(Some),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::new(&path, error)),
    }
}

/// Returns the file at a path in a recording, or all files below a directory; none if there is
/// nothing. Leaves out links, and files that no recording has, such as partial ones.
fn items_below(dir: &Path, name: &str) -> Result<Vec<Item>, Error> {
    let path = dir.join(name);
    let Ok(metadata) = fs::symlink_metadata(&path) else { return Ok(Vec::new()) };
    if !metadata.is_dir() {
        let known = is_known(name) && metadata.is_file();
        let content = Content::File(path);
        return known.then(|| item(name.to_owned(), content)).into_iter().collect();
    }
    let mut items = Vec::new();
    for entry in fs::read_dir(&path).at(&path)? {
        // Names of a recording are UTF-8.
        if let Some(file) = entry.at(&path)?.file_name().to_str() {
            items.extend(items_below(dir, &format!("{name}/{file}"))?);
        }
    }
    Ok(items)
}

/// Returns a file that is to be packed, with its present size: it is packed up to that size even if
/// it grows.
fn item(name: String, content: Content) -> Result<Item, Error> {
    let size_bytes = match &content {
        Content::File(path) => fs::metadata(path).at(path)?.len(),
        Content::Open(path, file) => file.metadata().at(path)?.len(),
        Content::Bytes(bytes) => bytes.len() as u64,
    };
    Ok(Item { member: Member { name, size_bytes }, content })
}

/// An archive that is being written.
struct Packing<'a> {
    out: &'a Path,
    to: GzEncoder<BufWriter<File>>,
}

impl Packing<'_> {
    /// Writes the list of the files, then the files, and the end of the archive. Calls `progress`
    /// with the number of bytes done and that of all, for files but not for bytes in memory.
    fn write(
        mut self,
        items: &[Item],
        progress: &mut dyn FnMut(u64, u64) -> bool,
    ) -> Result<(), Error> {
        let members: Vec<_> = items.iter().map(|item| item.member.clone()).collect();
        self.bytes(CONTENTS, text(&members).as_bytes())?;
        let total = members.iter().map(|member| member.size_bytes).sum();
        let mut done = 0;
        for Item { member, content } in items {
            let Member { name, size_bytes } = member;
            match content {
                Content::Bytes(bytes) => self.bytes(name, bytes)?,
                Content::File(path) => {
                    let file = open_regular(path, Links::Follow).at(path)?;
                    let mut progress = |at| progress(done + at, total);
                    self.file(member, path, &file, &mut progress)?;
                }
                Content::Open(path, file) => {
                    let mut progress = |at| progress(done + at, total);
                    self.file(member, path, file, &mut progress)?;
                }
            }
            done += size_bytes;
        }
        // An archive ends with two blocks of zeros.
        self.put(&[0; 2 * BLOCK_BYTES])?;
        let file = self.to.finish().and_then(|mut file| file.flush());
        file.at(self.out)
    }

    /// Writes a file with these bytes, its header before them and zeros after them.
    fn bytes(&mut self, name: &str, bytes: &[u8]) -> Result<(), Error> {
        let size_bytes = bytes.len() as u64;
        let whole = [Segment { offset: 0, size_bytes }];
        self.put(&header(name, size_bytes, if bytes.is_empty() { &[] } else { &whole }))?;
        self.put(bytes)?;
        self.pad(size_bytes)
    }

    /// Writes a file up to the size of its member, without its holes, its header before it and
    /// zeros after it. Calls `progress` with the offset in the file of each piece, before it is
    /// read. Fails if that returns false, or if the file became shorter.
    fn file(
        &mut self,
        member: &Member,
        path: &Path,
        file: &File,
        progress: &mut dyn FnMut(u64) -> bool,
    ) -> Result<(), Error> {
        let (name, size_bytes) = (member.name.as_str(), member.size_bytes);
        let segments = segments_of(file, size_bytes).at(path)?;
        self.put(&header(name, size_bytes, &segments))?;
        let mut buffer = vec![0; BUFFER_BYTES];
        let mut stored = 0;
        for segment in segments {
            let end = segment.offset + segment.size_bytes;
            let mut at = segment.offset;
            while at < end {
                if !progress(at) {
                    return Err(Error::new(path, io::Error::from(io::ErrorKind::Interrupted)));
                }
                let count = usize::try_from(end - at).unwrap_or(BUFFER_BYTES).min(BUFFER_BYTES);
                let read = file.read_exact_at(&mut buffer[..count], at);
                read.map_err(|error| match error.kind() {
                    io::ErrorKind::UnexpectedEof => Error::new(path, ErrorKind::Shrunk),
                    _ => Error::new(path, error),
                })?;
                self.put(&buffer[..count])?;
                at += count as u64;
            }
            stored += segment.size_bytes;
        }
        self.pad(stored)
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.to.write_all(bytes).at(self.out)
    }

    /// Fills the last block of a file of `size_bytes` with zeros.
    fn pad(&mut self, size_bytes: u64) -> Result<(), Error> {
        self.put(&[0; BLOCK_BYTES][..padding_bytes(size_bytes)])
    }
}

/// Returns the number of zeros after the data of a file of `size_bytes`, up to the end of its last
/// block.
#[expect(clippy::cast_possible_truncation, reason = "less than a block")]
pub(super) fn padding_bytes(size_bytes: u64) -> usize {
    let over = (size_bytes % BLOCK_BYTES as u64) as usize;
    (BLOCK_BYTES - over) % BLOCK_BYTES
}
