//! Writes a log in parts, one file each. If only the end of the log is kept, the oldest parts are
//! dropped.
//!
//! Each part but the first begins at a keyframe (a file with the state of the process, from which a
//! replay can begin), so it can become the first one when the parts before it are dropped: the
//! caller writes a keyframe, and calls `begin_part` before the next entry.
//!
//! A file of the log may be written by another thread (`write`). So an error may be that of an
//! earlier entry.

use super::super::error::{At, Error};
use super::super::format::log_name;
use super::super::manifest::LogTotals;
use super::entry::Entry;
use super::write::{CpuPlacement, DeferredEntries, LogFile};
use std::collections::VecDeque;
use std::fs;
use std::path::{Path, PathBuf};

/// The log of a recording that is being written, in one or more files.
#[derive(Debug)]
pub(in crate::recording) struct LogParts {
    dir: PathBuf,
    /// The complete parts, in order.
    complete: VecDeque<Part>,
    /// The last part, which is being written.
    file: LogFile,
    /// The entries and the ticks before the last part. The size in it is not used.
    before: LogTotals,
    place: CpuPlacement,
}

/// A complete part of a log.
#[derive(Debug)]
struct Part {
    /// The entries and the ticks before this part. The size in it is not used.
    before: LogTotals,
    size_bytes: u64,
}

impl LogParts {
    pub(in crate::recording) fn create(dir: &Path) -> Result<Self, Error> {
        let place = CpuPlacement::default();
        let file = LogFile::create(dir.join(log_name(0)), place.clone())?;
        let (complete, before) = (VecDeque::new(), LogTotals::default());
        Ok(Self { dir: dir.to_owned(), complete, file, before, place })
    }

    /// Sets the function by which threads that are started later to write the log move to a CPU.
    pub(in crate::recording) fn set_placement(&mut self, place: CpuPlacement) {
        self.file.set_placement(place.clone());
        self.place = place;
    }

    pub(in crate::recording) fn append(&mut self, entry: &Entry) -> Result<(), Error> {
        self.file.append(entry)
    }

    pub(in crate::recording) fn append_later(
        &mut self,
        later: DeferredEntries,
    ) -> Result<(), Error> {
        self.file.append_later(later)
    }

    pub(in crate::recording) fn flush(&mut self) -> Result<(), Error> {
        self.file.flush()
    }

    /// Writes out all entries, and ends the thread that writes. It starts again when there is much
    /// to write.
    pub(in crate::recording) fn pause_thread(&mut self) -> Result<(), Error> {
        self.file.pause_thread()
    }

    /// Writes out the last part and begins another one, in its own file, with the next entry. Fails
    /// if the last part has no entries: the names of files are numbers of entries.
    pub(in crate::recording) fn begin_part(&mut self) -> Result<(), Error> {
        self.file.flush()?;
        let since_start = self.totals_since_start();
        let path = self.dir.join(log_name(since_start.entries));
        let file = LogFile::create(path, self.place.clone())?;
        let size_bytes = std::mem::replace(&mut self.file, file).size_bytes();
        let before = std::mem::replace(&mut self.before, since_start);
        self.complete.push_back(Part { before, size_bytes });
        Ok(())
    }

    /// Removes the files of the complete parts that begin before entry `first`. The part that is
    /// being written stays.
    pub(in crate::recording) fn drop_before(&mut self, first: u64) -> Result<(), Error> {
        while let Some(part) = self.complete.front().filter(|part| part.before.entries < first) {
            let path = self.dir.join(log_name(part.before.entries));
            fs::remove_file(&path).at(&path)?;
            self.complete.pop_front();
        }
        Ok(())
    }

    /// Returns the file names of the parts that are kept, in order.
    pub(in crate::recording) fn names(&self) -> impl Iterator<Item = String> {
        let complete = self.complete.iter().map(|part| part.before.entries);
        complete.chain([self.before.entries]).map(log_name)
    }

    /// Returns the number of entries and ticks since the beginning of the run, even of dropped
    /// parts, and the size of the parts that are kept.
    pub(in crate::recording) fn totals_since_start(&self) -> LogTotals {
        let own = self.file.totals();
        LogTotals {
            entries: self.before.entries + own.entries,
            ticks: self.before.ticks.saturating_add(own.ticks),
            size_bytes: self.complete.iter().map(|part| part.size_bytes).sum::<u64>()
                + own.size_bytes,
        }
    }

    /// Returns the number of entries, the ticks and the size of the parts that are kept.
    pub(in crate::recording) fn kept_totals(&self) -> LogTotals {
        let since_start = self.totals_since_start();
        let dropped = self.complete.front().map_or(self.before, |part| part.before);
        LogTotals {
            entries: since_start.entries - dropped.entries,
            ticks: since_start.ticks.saturating_sub(dropped.ticks),
            size_bytes: since_start.size_bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::mapped::Mapped;
    use super::super::{Log, LogEvent, PlaceInTick};
    use super::*;
    use crate::common::{Addr, Tid};

    fn entry(ticks: u64) -> Entry {
        let place = PlaceInTick { ip: Addr(0x1000), rcx: 0 };
        Entry { tid: Tid(1), ticks, check: 7, event: LogEvent::Switch { place } }
    }

    fn open(dir: &Path, first: u64, names: &[&str]) -> Log {
        let open =
            |name: &&str| (dir.join(name), Mapped::open_without_link(&dir.join(name)).unwrap());
        Log::of_parts(first, names.iter().map(open).collect()).0
    }

    fn ticks_of(log: &Log) -> Vec<(u64, u64)> {
        let mut cursor = log.cursor();
        let mut next = || {
            let index = cursor.index();
            Some((index, cursor.read().unwrap()?.ticks))
        };
        std::iter::from_fn(&mut next).collect()
    }

    #[test]
    fn the_parts_that_are_left_are_the_end_of_the_log() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        let mut log = LogParts::create(dir).unwrap();
        for ticks in 0..10 {
            if [3, 7].contains(&ticks) {
                log.begin_part().unwrap();
            }
            log.append(&entry(ticks)).unwrap();
        }
        log.flush().unwrap();
        let names = ["log.bin", "log-3.bin", "log-7.bin"];
        assert_eq!(log.names().collect::<Vec<_>>(), names);
        let all: Vec<_> = (0..10).map(|number| (number, number)).collect();
        assert_eq!(ticks_of(&open(dir, 0, &names)), all);
        assert_eq!(log.kept_totals(), log.totals_since_start());
        let counted = open(dir, 0, &names).totals().unwrap();
        assert_eq!(counted, log.kept_totals());

        log.drop_before(3).unwrap();
        assert!(!dir.join("log.bin").exists());
        assert_eq!(log.names().collect::<Vec<_>>(), names[1..]);
        let kept = open(dir, 3, &names[1..]);
        assert_eq!(ticks_of(&kept), all[3..]);
        assert_eq!(kept.totals().unwrap(), log.kept_totals());
        assert_eq!((log.kept_totals().entries, log.kept_totals().ticks), (7, 42));
        assert_eq!((log.totals_since_start().entries, log.totals_since_start().ticks), (10, 45));
    }

    #[test]
    fn a_log_ends_with_its_first_broken_part() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        let mut log = LogParts::create(dir).unwrap();
        for ticks in 0..6 {
            if ticks == 3 {
                log.begin_part().unwrap();
            }
            log.append(&entry(ticks)).unwrap();
        }
        log.flush().unwrap();
        let mut bytes = fs::read(dir.join("log.bin")).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        fs::write(dir.join("log.bin"), bytes).unwrap();
        assert!(ticks_of(&open(dir, 0, &["log.bin", "log-3.bin"])).is_empty());
    }
}
