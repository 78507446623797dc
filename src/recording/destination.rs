//! The directory of a new recording, checked and created before the program runs, so that no run is
//! wasted and no file overwritten. A recording that is to be replaced is renamed first. Once the
//! new one has begun, [`Destination::remove_replaced`] removes it; if there will be no recording,
//! [`Destination::roll_back`] restores it.
//!
//! A recording begins with its starting manifest. Until then, the directory is locked if the user
//! named it, so that of two commands with the same directory, the second one fails.

use super::directory_lock::DirectoryLock;
use super::error::{At, Error, ErrorKind};
use super::format::{LOG, MANIFEST, STARTING};
use super::regular::create_private;
use super::store::Store;
use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, fallocate};
use std::fs::{self, DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// The size of the probe file in bytes: with less free space, no recording begins.
const PROBE_BYTES: usize = 1 << 20;

/// The name of a file that is written and removed to check that the directory is writable.
const PROBE: &str = ".contraflow-probe";
/// The temporary name of [`STARTING`].
const STARTING_PARTIAL: &str = "starting.partial";

/// An empty, writable directory for a new recording.
#[derive(Debug)]
pub struct Destination {
    dir: PathBuf,
    /// True if the directory was created for this recording, so that [`Self::roll_back`] removes
    /// it.
    is_new: bool,
    /// The path to which the recording that is being replaced was renamed; `None` if there is none.
    replaced: Option<PathBuf>,
    /// The lock on the directory; `None` if its name is new, as in the store.
    _lock: Option<DirectoryLock>,
}

impl Destination {
    /// Prepares the directory that the user named: creates it, or uses it if it is empty. With
    /// `force`, first renames a recording there, which the new one is to replace. Fails if there is
    /// a recording without `force`, or anything else; or if the directory cannot be written to or
    /// has too little space, and then leaves everything as it was, but for parent directories that
    /// it created.
    pub fn named(dir: &Path, force: bool) -> Result<Self, Error> {
        let place = match occupant(dir)? {
            Occupant::Nothing => Self::at(dir.to_owned(), true),
            Occupant::UnusedDir => Self::at(dir.to_owned(), false),
            Occupant::Recording if force => Self::set_aside(dir)?,
            Occupant::Recording => return Err(Error::new(dir, ErrorKind::Exists)),
            Occupant::Other => return Err(Error::new(dir, ErrorKind::Occupied)),
        };
        match place.claim() {
            Ok(lock) => Self { _lock: Some(lock), ..place }.probe(),
            Err(error) => {
                // If there is a directory, it is another command's.
                place.restore_replaced();
                Err(error)
            }
        }
    }

    fn at(dir: PathBuf, is_new: bool) -> Self {
        Self { dir, is_new, replaced: None, _lock: None }
    }

    /// Creates a new directory in the store, for a recording of `program`, with the next free name
    /// ([`Store::create_recording_dir`]). Fails if the store has no known directory, cannot be
    /// written to, or has too little space.
    pub fn in_store(store: &Store, program: &Path) -> Result<Self, Error> {
        Self::at(store.create_recording_dir(program)?, true).probe()
    }

    /// Renames the recording in `dir`, links followed. Returns its old path, where nothing is left,
    /// as the destination of the new recording.
    fn set_aside(dir: &Path) -> Result<Self, Error> {
        let dir = fs::canonicalize(dir).at(dir)?;
        let mut name = std::ffi::OsString::from(".");
        name.push(dir.file_name().unwrap_or_default());
        name.push(format!(".old-{}", std::process::id()));
        let replaced = dir.with_file_name(name);
        fs::rename(&dir, &replaced).at(&dir)?;
        Ok(Self { replaced: Some(replaced), ..Self::at(dir, true) })
    }

    /// Creates the directory if it is new, and returns the lock on it. Removes the files of a
    /// recorder that was killed before its recording began. Fails if another command was faster.
    fn claim(&self) -> Result<DirectoryLock, Error> {
        if self.is_new {
            let mut builder = DirBuilder::new();
            // A recording contains the program's memory, so only its owner may read it.
            builder.recursive(true).mode(0o700);
            self.dir.parent().map_or(Ok(()), |parent| builder.create(parent)).at(&self.dir)?;
            builder.recursive(false).create(&self.dir).at(&self.dir)?;
        }
        let beginning = || Error::new(&self.dir, ErrorKind::Beginning);
        let lock = DirectoryLock::take(&self.dir).ok_or_else(beginning)?;
        // The recording of another command may have begun before this one had the lock.
        if !is_unused(&self.dir) {
            return Err(Error::new(&self.dir, ErrorKind::Exists));
        }
        empty_dir(&self.dir).at(&self.dir)?;
        Ok(lock)
    }

    /// Checks that the directory is writable and has the space of a probe file. If not, rolls back
    /// and returns the error.
    fn probe(self) -> Result<Self, Error> {
        let path = self.dir.join(PROBE);
        let written = create_private(&path).and_then(|file| reserve_space(&file));
        let removed = fs::remove_file(&path);
        match written.and(removed).at(&self.dir) {
            Ok(()) => Ok(self),
            Err(error) => {
                self.roll_back();
                Err(error)
            }
        }
    }

    /// Returns the path of the directory; without links if it replaces a recording.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Removes the replaced recording, if any. To be called once the new one has begun.
    pub fn remove_replaced(self) -> Result<(), Error> {
        match self.replaced {
            Some(replaced) => fs::remove_dir_all(&replaced).at(&replaced),
            None => Ok(()),
        }
    }

    /// Removes the directory if it was created, else its contents, and restores the recording that
    /// was to be replaced, as far as possible. To be called if there will be no recording.
    pub fn roll_back(self) {
        let _ = if self.is_new { fs::remove_dir_all(&self.dir) } else { empty_dir(&self.dir) };
        self.restore_replaced();
    }

    /// Restores the name of the recording that was to be replaced, as far as possible; not if there
    /// is a directory of this name, which a rename would replace if it is empty.
    fn restore_replaced(&self) {
        if let Some(replaced) = self.replaced.as_ref().filter(|_| !self.dir.exists()) {
            let _ = fs::rename(replaced, &self.dir);
        }
    }
}

/// The previous content of a directory that the user named; `Nothing` if it does not exist,
/// `UnusedDir` if it has at most the files of a recorder that was killed before its recording
/// began.
enum Occupant {
    Nothing,
    UnusedDir,
    Recording,
    Other,
}

/// Returns the content of a directory.
fn occupant(dir: &Path) -> Result<Occupant, Error> {
    match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Occupant::Nothing),
        result => result.at(dir)?,
    };
    if is_unused(dir) {
        return Ok(Occupant::UnusedDir);
    }
    let is_recording = [MANIFEST, STARTING].iter().any(|name| dir.join(name).is_file());
    Ok(if is_recording { Occupant::Recording } else { Occupant::Other })
}

/// Returns true if a directory is empty, or has only the files of a recorder that was killed before
/// its recording began; also true if the directory does not exist or cannot be read, as that of
/// another user.
pub(super) fn is_unused(dir: &Path) -> bool {
    let is_empty = |file: &fs::DirEntry| file.metadata().is_ok_and(|metadata| metadata.len() == 0);
    fs::read_dir(dir).into_iter().flatten().flatten().all(|file| match file.file_name() {
        name if name == LOG => is_empty(&file),
        name => name == PROBE || name == STARTING_PARTIAL,
    })
}

/// Removes everything in a directory, but not the directory. It had nothing of the user's before
/// ([`is_unused`]).
fn empty_dir(dir: &Path) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            fs::remove_dir_all(entry.path())?;
        } else {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// Reserves the space of the probe file. Writes to it only if the file system cannot reserve space.
fn reserve_space(mut file: &File) -> io::Result<()> {
    let size = i64::try_from(PROBE_BYTES).unwrap_or(i64::MAX);
    match fallocate(file, FallocateFlags::empty(), 0, size) {
        Err(Errno::EOPNOTSUPP | Errno::ENOSYS) => file.write_all(&vec![1; PROBE_BYTES]),
        taken => Ok(taken?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(dir: &Path) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(dir)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn what_is_given_up_leaves_no_trace() {
        let base = tempfile::tempdir().unwrap();
        let dir = base.path().join("new");
        let place = Destination::named(&dir, false).unwrap();
        fs::write(dir.join(STARTING), "").unwrap();
        place.roll_back();
        assert!(!dir.exists());
        fs::create_dir(&dir).unwrap();
        let place = Destination::named(&dir, false).unwrap();
        assert!(names(&dir).is_empty());
        fs::create_dir(dir.join("trace")).unwrap();
        place.roll_back();
        assert!(dir.exists() && names(&dir).is_empty());
    }

    #[test]
    fn a_link_that_leads_to_nothing_stays() {
        let base = tempfile::tempdir().unwrap();
        let dir = base.path().join("r");
        std::os::unix::fs::symlink("nothing", &dir).unwrap();
        Destination::named(&dir, false).unwrap_err();
        assert!(dir.is_symlink());
    }

    #[test]
    fn a_directory_in_which_another_recorder_begins_is_left_alone() {
        let base = tempfile::tempdir().unwrap();
        let dir = base.path().join("r");
        for force in [false, true] {
            let first = Destination::named(&dir, force).unwrap();
            assert!(Destination::named(&dir, force).is_err());
            fs::write(dir.join(LOG), "").unwrap();
            assert!(Destination::named(&dir, force).is_err());
            assert_eq!(names(&dir), [LOG]);
            first.roll_back();
        }
        assert!(!dir.exists());
        drop(Destination::named(&dir, false).unwrap());
        assert!(Destination::named(&dir, false).is_ok());
    }

    #[test]
    fn what_a_recorder_left_that_was_killed_at_once_is_in_nobodys_way() {
        let base = tempfile::tempdir().unwrap();
        let dir = base.path().join("r");
        fs::create_dir(&dir).unwrap();
        for name in [PROBE, STARTING_PARTIAL, LOG] {
            fs::write(dir.join(name), "").unwrap();
        }
        assert!(Store::new(base.path().to_owned()).list().unwrap().is_empty());
        Destination::named(&dir, false).unwrap();
        assert!(names(&dir).is_empty());
    }

    #[test]
    fn a_recording_is_replaced_by_force_only_and_others_never() {
        let base = tempfile::tempdir().unwrap();
        let dir = base.path().join("r");
        fs::create_dir(&dir).unwrap();
        fs::write(dir.join("mine"), "").unwrap();
        let kind = |force| Destination::named(&dir, force).unwrap_err().kind;
        assert!(matches!(kind(true), ErrorKind::Occupied));
        fs::write(dir.join(MANIFEST), "").unwrap();
        assert!(matches!(kind(false), ErrorKind::Exists));
        Destination::named(&dir, true).unwrap().roll_back();
        assert_eq!((names(&dir).len(), names(base.path()).len()), (2, 1));
        let place = Destination::named(&dir, true).unwrap();
        assert!(names(&dir).is_empty());
        place.remove_replaced().unwrap();
        assert_eq!(names(base.path()), ["r"]);
    }
}
