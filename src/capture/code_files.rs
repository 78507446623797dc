//! The files that a process maps, with their numbers in the recording, and the stored contents of
//! those with code. Detects writes to mapped files: such a file gets another number and another
//! image from then on.

use super::error::Error;
use super::recorder::Recorder;
use crate::common::Tid;
use crate::recording::{Links, image_id, open_regular};
use crate::sideband::{Event, FileId, ImageId, Mapping};
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

/// The maximum size of a file that is stored though only a part of it is mapped, and not as code:
/// 64 MiB.
const LARGEST_DATA_BYTES: u64 = 64 << 20;
/// A larger file that changed this recently may be one that programs write all the time.
const RECENT: Duration = Duration::from_secs(60);
/// The unit of a file's size on disk (`st_blocks`, stat(3type)), in bytes.
const BLOCK_BYTES: u64 = 512;

/// The mapped files of a process.
#[derive(Debug, Default)]
pub(super) struct CodeFiles {
    files: Vec<CodeFile>,
    count: u32,
    /// True if files without code are stored as well.
    stores_data: bool,
}

/// A file at the time when it was mapped.
#[derive(Debug)]
pub(super) struct CodeFile {
    id: FileId,
    mapping: Mapping,
    stored: Option<Stored>,
}

#[derive(Debug)]
struct Stored {
    image: ImageId,
    /// The open file: while it is open, no other file gets its inode. The path may lead elsewhere
    /// later.
    file: File,
    stamp: Stamp,
}

/// The attributes that change with a file's content: its size, and its times of modification and of
/// status change (seconds, nanoseconds). Programs cannot set the last one.
type Stamp = (u64, (i64, i64), (i64, i64));

impl CodeFile {
    /// Returns true if `mapping` maps this file.
    pub(super) fn is_mapped_by(&self, mapping: &Mapping) -> bool {
        self.mapping.is_same_file(mapping)
    }
}

impl CodeFiles {
    /// Creates an empty set that will also store files mapped as data.
    pub(super) fn with_data() -> Self {
        Self { stores_data: true, ..Self::default() }
    }

    /// Returns the stored content of the file that `mapping` maps; `None` if it is not stored.
    pub(super) fn image(&self, mapping: &Mapping) -> Option<&ImageId> {
        let of_file = self.files.iter().find(|file| file.is_mapped_by(mapping));
        of_file.and_then(|file| file.stored.as_ref()).map(|stored| &stored.image)
    }

    /// Returns true if the content of the file that `mapping` maps is stored.
    pub(super) fn is_stored(&self, mapping: &Mapping) -> bool {
        self.files.iter().any(|file| file.is_mapped_by(mapping) && file.stored.is_some())
    }

    /// Returns the number of the file that `mapping` maps. Numbers and records a new file.
    /// Stores the file when it is first mapped as code; in a set that stores data, when it is
    /// first mapped.
    pub(super) fn file_id(
        &mut self,
        mapping: &Mapping,
        recorder: &mut Recorder,
        tid: Tid,
    ) -> Result<FileId, Error> {
        let known = self.files.iter().position(|file| file.is_mapped_by(mapping));
        let at = match known {
            Some(at) => at,
            None => self.add(mapping, recorder, tid)?,
        };
        let Some(file) = self.files.get_mut(at) else { return Ok(FileId(u32::MAX)) };
        let is_wanted = mapping.protection.execute || self.stores_data;
        if is_wanted && file.stored.is_none() {
            file.stored = store_file(mapping, recorder)?;
            if let Some(stored) = &file.stored {
                let event = Event::Image { file: file.id, image: stored.image.clone() };
                recorder.record_event(tid, event)?;
            }
        }
        Ok(file.id)
    }

    /// Adds and records a new file, with the next number. Returns its index in `files`.
    fn add(&mut self, of: &Mapping, recorder: &mut Recorder, tid: Tid) -> Result<usize, Error> {
        let id = FileId(self.count);
        self.count = self.count.saturating_add(1);
        recorder.record_event(tid, Event::File { file: id, path: of.name.clone() })?;
        self.files.push(CodeFile { id, mapping: of.clone(), stored: None });
        Ok(self.files.len() - 1)
    }

    /// Removes and returns the stored files whose content differs from the stored content now, or
    /// cannot be read. Mapped again, they are new files.
    pub(super) fn take_overwritten(&mut self) -> Vec<CodeFile> {
        let mut overwritten = Vec::new();
        for at in (0..self.files.len()).rev() {
            let stored = self.files.get_mut(at).and_then(|file| file.stored.as_mut());
            if let Some(stored) = stored
                && stored.is_overwritten()
            {
                overwritten.push(self.files.remove(at));
            }
        }
        overwritten
    }
}

impl Stored {
    /// Returns true if the file's content differs from the stored one, or cannot be read. Otherwise
    /// notes its new attributes; the content is read only if these changed.
    fn is_overwritten(&mut self) -> bool {
        let now = stamp(&self.file).ok();
        if now == Some(self.stamp) {
            return false;
        }
        // The file may have been renamed, or rewritten with the same bytes.
        let same = now.is_some() && image_id(&self.file).is_ok_and(|image| image == self.image);
        if let Some(now) = now.filter(|_| same) {
            self.stamp = now;
        }
        !same
    }
}

/// Stores a mapped file in the recording. Returns `None` if its path leads to another file now, or
/// if it is large and mapped in part as data. Code that is not stored here is recorded when it is
/// executed.
fn store_file(mapping: &Mapping, recorder: &Recorder) -> Result<Option<Stored>, Error> {
    let Ok(mut file) = open_regular(Path::new(&mapping.name), Links::Follow) else {
        return Ok(None);
    };
    let is_worth_storing = |file: &Metadata| {
        let is_small = file.len() <= LARGEST_DATA_BYTES;
        mapping.protection.execute || is_small || is_mapped_as_a_whole(mapping, file)
    };
    let same = file.metadata().is_ok_and(|m| m.ino() == mapping.inode && is_worth_storing(&m));
    let Some(stamp) = stamp(&file).ok().filter(|_| same) else { return Ok(None) };
    let image = recorder.writer().image_from_file(&mut file)?;
    Ok(Some(Stored { image, file, stamp }))
}

/// Returns true if a mapping covers the whole of a file that seems not to change, such as the
/// archive of Java's classes: stored as a whole, it is a link in the next recording.
fn is_mapped_as_a_whole(mapping: &Mapping, file: &Metadata) -> bool {
    let is_written = mapping.protection.shared && mapping.protection.write;
    let has_holes = file.blocks().saturating_mul(BLOCK_BYTES) < file.len();
    let changed = file.modified().ok().and_then(|changed| changed.elapsed().ok());
    let is_settled = changed.is_some_and(|age| age > RECENT);
    !is_written && !has_holes && is_settled && mapping.range.size_bytes() >= file.len()
}

/// Returns the size and times of a file, which differ after each change of it.
fn stamp(file: &File) -> io::Result<Stamp> {
    let m = file.metadata()?;
    Ok((m.len(), (m.mtime(), m.mtime_nsec()), (m.ctime(), m.ctime_nsec())))
}
