//! Keyframes of an exact recording: the whole state of its process at some places of the run, from
//! which a replay can begin.
//!
//! A keyframe is a file like the log: the entries that a log would begin with if the recording had
//! begun at that place, and the end of a log. One without its end was not completed.

use super::error::{At, Error};
use super::format::KEYFRAME_DIR;
use super::log::{Entry, Log, LogFile};
use super::mapped::Mapped;
use super::reader::Reader;
use super::regular::must_be_directory;
use super::sums::Sums;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

const EXTENSION: &str = ".bin";

/// A keyframe that is being written.
#[derive(Debug)]
pub struct KeyframeWriter {
    log: LogFile,
}

impl KeyframeWriter {
    pub(super) fn create(recording: &Path, entry: u64) -> Result<Self, Error> {
        let dir = recording.join(KEYFRAME_DIR);
        match DirBuilder::new().mode(0o700).create(&dir) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => made.at(&dir)?,
        }
        Ok(Self { log: LogFile::create(dir.join(keyframe_name(entry)))? })
    }

    /// Appends an entry.
    pub fn append(&mut self, entry: &Entry) -> Result<(), Error> {
        self.log.append(entry)
    }

    /// Writes out the last entries. Returns the size of the keyframe in bytes.
    pub fn finish(mut self) -> Result<u64, Error> {
        self.log.flush()?;
        Ok(self.log.size_bytes())
    }
}

/// Returns the name of the keyframe after so many entries of the log.
pub(super) fn keyframe_name(entry: u64) -> String {
    format!("{entry}{EXTENSION}")
}

/// Returns the path of a keyframe in its recording.
pub(super) fn listed_name(entry: u64) -> String {
    format!("{KEYFRAME_DIR}/{}", keyframe_name(entry))
}

impl Reader {
    /// Returns the numbers of log entries before the keyframes, in order. Whether a keyframe can be
    /// read is not known yet.
    pub fn keyframes(&self) -> Vec<u64> {
        let dir = self.dir().join(KEYFRAME_DIR);
        if must_be_directory(&dir).is_err() {
            return Vec::new();
        }
        let files = fs::read_dir(&dir).into_iter().flatten().flatten();
        let number = |file: &fs::DirEntry| {
            let name = file.file_name().into_string().ok()?;
            let entry = name.strip_suffix(EXTENSION)?.parse().ok()?;
            // A complete recording lists its keyframes.
            let is_listed = |sums: &Sums| sums.lists(&listed_name(entry));
            (keyframe_name(entry) == name && self.sums().is_none_or(is_listed)).then_some(entry)
        };
        let mut entries: Vec<u64> = files.filter_map(|file| number(&file)).collect();
        entries.sort_unstable();
        entries
    }

    /// Opens the keyframe after so many entries of the log.
    pub fn keyframe(&self, entry: u64) -> Result<Log, Error> {
        let name = listed_name(entry);
        let path = self.dir().join(&name);
        let mapped = match self.sums() {
            Some(sums) => Mapped::of_file(&sums.check_file(self.dir(), &name)?),
            None => Mapped::open_own(&path),
        };
        Ok(Log::of_file(&path, mapped.at(&path)?).0)
    }
}
