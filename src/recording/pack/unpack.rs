//! Unpacks a recording. Trusts nothing: writes only what the list at the start announces, into a
//! new directory, and checks the recording there.

use super::super::error::{At, Error, ErrorKind};
use super::super::format::{
    CHECKSUMS, IMAGE_DIR, SOURCE_DIR, TEXT_LIMIT_BYTES, TRACE_DIR, trace_name,
};
use super::super::reader::Reader;
use super::super::regular::{Links, create_private, open_regular};
use super::contents::{CONTENTS, Member, parse};
use super::header::{BLOCK_BYTES, read_first, read_header};
use super::write::padding_bytes;
use flate2::bufread::GzDecoder;
use std::fs::{self, DirBuilder, File};
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::fs::{DirBuilderExt, FileExt};
use std::path::Path;

const BUFFER_BYTES: usize = 256 << 10;
/// The first bytes of a file by gzip (RFC 1952).
const MAGIC: [u8; 2] = [0x1f, 0x8b];

/// Unpacks a recording into `dir`, which must not exist, but whose parent must. Checks all of its
/// files, and opens it. Leaves nothing if it fails. Calls `progress` with the number of bytes done
/// and that of all, and fails if it returns false.
pub fn unpack(
    file: &Path,
    dir: &Path,
    progress: &mut dyn FnMut(u64, u64) -> bool,
) -> Result<Reader, Error> {
    let packed = open_regular(file, Links::Follow).at(file)?;
    let mut from = BufReader::with_capacity(BUFFER_BYTES, packed);
    if !from.fill_buf().at(file)?.starts_with(&MAGIC) {
        return Err(Error::new(file, ErrorKind::NotPacked));
    }
    private_dirs().recursive(false).create(dir).at(dir)?;
    let unpacking = Unpacking { file, dir, from: GzDecoder::new(from) };
    let unpacked = unpacking.run(progress).and_then(|members| open_checked(file, dir, &members));
    if unpacked.is_err() {
        // The original error is more important than this one.
        let _ = fs::remove_dir_all(dir);
    }
    unpacked
}

/// Returns a builder of directories that only their owner may read: they will hold the program's
/// memory.
fn private_dirs() -> DirBuilder {
    let mut builder = DirBuilder::new();
    builder.recursive(true).mode(0o700);
    builder
}

/// Opens the unpacked recording, and checks all of its files. Also creates the directories of
/// source files without files in them. In errors, the paths are below that of the packed file.
fn open_checked(file: &Path, dir: &Path, members: &[Member]) -> Result<Reader, Error> {
    let opened = Reader::open(dir).and_then(|reader| {
        let traces: Vec<_> = reader.traces()?.into_iter().map(trace_name).collect();
        if let Some(unlisted) =
            members.iter().find(|member| !is_listed(&reader, &traces, &member.name))
        {
            return Err(Error::new(&dir.join(&unlisted.name), ErrorKind::Unlisted));
        }
        if let Some(fault) = reader.find_damage().into_iter().next() {
            return Err(fault);
        }
        // Names of files can lead through directories without files (`../main.c`).
        for named in reader.source_directories() {
            let rest = named.strip_prefix("/").unwrap_or(&named);
            let named = dir.join(SOURCE_DIR).join(rest);
            private_dirs().create(&named).at(&named)?;
        }
        Ok(reader)
    });
    opened.map_err(|error| {
        let name = error.path.strip_prefix(dir).map(|name| file.join(name));
        Error { path: name.unwrap_or_else(|_| file.to_owned()), kind: error.kind }
    })
}

/// Returns true if a complete recording lists this file in its manifest or its checksums, or if it
/// is the list of checksums itself. Always true for a cut recording.
fn is_listed(reader: &Reader, traces: &[String], name: &str) -> bool {
    let trace = name.strip_prefix(TRACE_DIR).and_then(|rest| rest.strip_prefix('/'));
    let is_trace = trace.is_some_and(|trace| traces.iter().any(|known| known == trace));
    reader.sums().is_none_or(|sums| is_trace || name == CHECKSUMS || sums.lists(name))
}

/// A packed recording that is being unpacked to `dir`.
struct Unpacking<'a> {
    file: &'a Path,
    dir: &'a Path,
    from: GzDecoder<BufReader<File>>,
}

impl Unpacking<'_> {
    /// Writes the files of the archive to the directory, and returns their list.
    fn run(mut self, progress: &mut dyn FnMut(u64, u64) -> bool) -> Result<Vec<Member>, Error> {
        let members = self.read_contents()?;
        for sub in [TRACE_DIR, IMAGE_DIR] {
            let sub = self.dir.join(sub);
            private_dirs().create(&sub).at(&sub)?;
        }
        let total = members.iter().fold(0, |sum: u64, one| sum.saturating_add(one.size_bytes));
        let mut done = 0_u64;
        for member in &members {
            self.unpack_member(member, &mut |at| progress(done.saturating_add(at), total))?;
            done = done.saturating_add(member.size_bytes);
        }
        self.read_end()?;
        Ok(members)
    }

    /// Reads the first file of the archive, the list of the others.
    fn read_contents(&mut self) -> Result<Vec<Member>, Error> {
        let file = self.file;
        let size_bytes = self.read(|from| read_first(from, CONTENTS))?;
        let size_bytes = size_bytes.ok_or_else(|| Error::new(file, ErrorKind::NotPacked))?;
        if size_bytes > TEXT_LIMIT_BYTES {
            return Err(self.damaged());
        }
        let mut bytes = Vec::new();
        // Allocates for the bytes that are there, whatever the header claims.
        self.read(|from| from.take(size_bytes).read_to_end(&mut bytes))?;
        if bytes.len() as u64 != size_bytes {
            return Err(Error::new(file, ErrorKind::PackCut));
        }
        self.read_padding(size_bytes)?;
        parse(&bytes).map_err(|kind| Error::new(file, kind))
    }

    /// Reads a file of the archive, and writes it to the directory. Fails if `progress` returns
    /// false.
    fn unpack_member(
        &mut self,
        member: &Member,
        progress: &mut dyn FnMut(u64) -> bool,
    ) -> Result<(), Error> {
        let Member { name, size_bytes } = member;
        let segments = self.read(|from| read_header(from, name, *size_bytes))?;
        let segments = segments.ok_or_else(|| self.damaged())?;
        let path = self.dir.join(name);
        if let Some(parent) = path.parent() {
            private_dirs().create(parent).at(parent)?;
        }
        let file = create_private(&path).at(&path)?;
        let mut buffer = vec![0; BUFFER_BYTES];
        let mut stored = 0;
        for segment in segments {
            let end = segment.offset + segment.size_bytes;
            let mut at = segment.offset;
            while at < end {
                if !progress(at) {
                    return Err(Error::new(self.file, io::Error::from(io::ErrorKind::Interrupted)));
                }
                let count = usize::try_from(end - at).unwrap_or(BUFFER_BYTES).min(BUFFER_BYTES);
                let part = &mut buffer[..count];
                self.read(|from| from.read_exact(part))?;
                file.write_all_at(part, at).at(&path)?;
                at += count as u64;
            }
            stored += segment.size_bytes;
        }
        // A hole at the end.
        file.set_len(*size_bytes).at(&path)?;
        self.read_padding(stored)
    }

    /// Reads the bytes after the data of a file of `size_bytes`, up to the end of its last block.
    /// Fails unless they are zeros.
    fn read_padding(&mut self, size_bytes: u64) -> Result<(), Error> {
        let mut block = [0; BLOCK_BYTES];
        let padding = &mut block[..padding_bytes(size_bytes)];
        self.read(|from| from.read_exact(padding))?;
        if padding.iter().all(|byte| *byte == 0) { Ok(()) } else { Err(self.damaged()) }
    }

    /// Reads the end of the archive, and of the file: nothing may follow.
    fn read_end(mut self) -> Result<(), Error> {
        let mut blocks = [0; 2 * BLOCK_BYTES];
        self.read(|from| from.read_exact(&mut blocks))?;
        // This also compares the checksum of gzip.
        let more = self.read(|from| from.read(&mut [0]))?;
        if more > 0 || blocks.iter().any(|byte| *byte != 0) {
            return Err(self.damaged());
        }
        let rest = self.from.get_mut().fill_buf().at(self.file)?;
        if rest.is_empty() { Ok(()) } else { Err(self.damaged()) }
    }

    fn read<T>(
        &mut self,
        act: impl FnOnce(&mut GzDecoder<BufReader<File>>) -> io::Result<T>,
    ) -> Result<T, Error> {
        act(&mut self.from).map_err(|error| {
            let kind = match error.kind() {
                io::ErrorKind::UnexpectedEof => ErrorKind::PackCut,
                io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData => ErrorKind::PackDamaged,
                _ => error.into(),
            };
            Error::new(self.file, kind)
        })
    }

    fn damaged(&self) -> Error {
        Error::new(self.file, ErrorKind::PackDamaged)
    }
}
