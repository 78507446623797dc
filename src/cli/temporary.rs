//! Private directories, in the temporary directory or hidden beside a file to write. They are
//! removed at exit. If the program is killed, its directory remains until a later run removes it:
//! the lock of a directory in use is held, and a run removes those whose lock is free.

use super::Failure;
use nix::fcntl::{Flock, FlockArg};
use nix::unistd::geteuid;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

const NAME: &str = "contraflow-";
const HIDDEN_NAME: &str = ".contraflow-";
/// The lock file, which is held while the directory is in use.
const LOCK: &str = ".contraflow-lock";
/// The maximum number of names that are tried: process IDs are reused, so a name may be taken.
const TRIES: u32 = 1000;

/// A temporary directory, removed on drop.
#[derive(Debug)]
pub(super) struct Temporary {
    dir: PathBuf,
    /// Held until the directory is removed.
    _lock: Flock<File>,
}

impl Temporary {
    /// Creates a directory in the system's temporary directory, which only its owner can read.
    /// First removes those that killed processes left there.
    pub(super) fn create() -> Result<Self, Failure> {
        Self::create_in(&std::env::temp_dir(), NAME)
    }

    /// Creates a hidden directory in the parent of `path`, so that a file in it can be renamed to
    /// `path`.
    pub(super) fn beside(path: &Path) -> Result<Self, Failure> {
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        Self::hidden_in(parent.unwrap_or(Path::new(".")))
    }

    /// Creates a hidden directory in `parent`.
    pub(super) fn hidden_in(parent: &Path) -> Result<Self, Failure> {
        Self::create_in(parent, HIDDEN_NAME)
    }

    /// Removes unused directories in `parent`, and creates a directory there whose name begins with
    /// `name`. Takes its lock.
    fn create_in(parent: &Path, name: &str) -> Result<Self, Failure> {
        remove_unused(parent, name);
        let failed = |error: io::Error| format!("{}: {error}", parent.display());
        for number in 0..TRIES {
            let dir = parent.join(format!("{name}{}-{number}", std::process::id()));
            match DirBuilder::new().mode(0o700).create(&dir) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                Err(error) => return Err(failed(error).into()),
            }
            let lock = match File::create_new(dir.join(LOCK)) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                lock => lock.map_err(failed)?,
            };
            // A concurrent sweep may have locked the directory, or removed it already.
            if let Some(lock) = take_lock(lock, &dir) {
                return Ok(Self { dir, _lock: lock });
            }
        }
        Err(format!("{}: no free name for a directory", parent.display()).into())
    }

    /// Returns the path of the directory.
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // A directory that remains does no harm, and is removed by a later sweep.
        let _ = remove(&self.dir);
    }
}

/// Removes the directories that killed processes of this program left in the system's temporary
/// directory. Ignores errors.
pub(super) fn remove_unused_temporaries() {
    remove_unused(&std::env::temp_dir(), NAME);
}

/// Removes this user's directories in `parent` whose names begin with `name`, if no process uses
/// them any more: their lock is free. Ignores errors.
fn remove_unused(parent: &Path, name: &str) {
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    let named = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(name));
    for dir in named.map(|entry| entry.path()) {
        let known = fs::symlink_metadata(&dir);
        let is_own = known.is_ok_and(|dir| dir.is_dir() && dir.uid() == geteuid().as_raw());
        if !is_own {
            continue;
        }
        match File::open(dir.join(LOCK)) {
            Ok(lock) => {
                if let Some(_lock) = take_lock(lock, &dir) {
                    let _ = remove(&dir);
                }
            }
            // The directory's creator was killed before it made the lock, or has not made it yet.
            Err(_) if creator_is_gone(&dir, name) => {
                // Fails if the directory is not empty, and so not from this program.
                let _ = fs::remove_dir(&dir);
            }
            Err(_) => {}
        }
    }
}

/// Removes a directory, and its lock last: a later run continues where this one is killed.
fn remove(dir: &Path) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            fs::remove_dir_all(entry.path())?;
        } else if entry.file_name() != LOCK {
            fs::remove_file(entry.path())?;
        }
    }
    fs::remove_dir_all(dir)
}

/// Returns true if the process in a directory's name does not exist any more. Returns false if the
/// name has none.
fn creator_is_gone(dir: &Path, name: &str) -> bool {
    let whole = dir.file_name().unwrap_or_default().to_string_lossy();
    let pid = whole.strip_prefix(name).and_then(|rest| rest.split_once('-')).map(|(pid, _)| pid);
    let pid = pid.and_then(|pid| pid.parse::<u32>().ok());
    pid.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists())
}

/// Takes the lock of `dir` without waiting. `None` if another process holds it, or if a previous
/// holder has removed the directory: another process may have created one with its name.
fn take_lock(lock: File, dir: &Path) -> Option<Flock<File>> {
    let lock = Flock::lock(lock, FlockArg::LockExclusiveNonblock).ok()?;
    is_same_file(&lock, &dir.join(LOCK)).then_some(lock)
}

/// Returns true if an open file is still the one at `path`.
fn is_same_file(file: &File, path: &Path) -> bool {
    let same = |file: fs::Metadata, found: fs::Metadata| {
        (file.dev(), file.ino()) == (found.dev(), found.ino())
    };
    file.metadata().and_then(|file| Ok(same(file, fs::metadata(path)?))).unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_just_being_made_is_not_swept() {
        let parent = tempfile::tempdir().unwrap();
        let make = || {
            for _ in 0..300 {
                let made = Temporary::create_in(parent.path(), NAME).unwrap();
                fs::write(made.dir().join("file"), "text").unwrap();
            }
        };
        std::thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(make))));
    }

    #[test]
    fn what_was_left_is_swept_and_what_is_needed_stays() {
        let parent = tempfile::tempdir().unwrap();
        let needed = Temporary::create_in(parent.path(), NAME).unwrap();
        let left = parent.path().join("contraflow-1-0");
        let foreign = parent.path().join("contraflow-of-a-user");
        for dir in [&left, &foreign] {
            fs::create_dir(dir).unwrap();
            fs::write(dir.join("file"), "text").unwrap();
        }
        fs::write(left.join(LOCK), "").unwrap();
        // The directory of a killed creator, and one that is being made.
        let gone = std::process::Command::new("true").spawn().and_then(|mut child| {
            let pid = child.id();
            child.wait().map(|_| pid)
        });
        let makers = [gone.unwrap(), std::process::id()];
        let [bare, young] = makers.map(|pid| parent.path().join(format!("contraflow-{pid}-5")));
        for dir in [&bare, &young] {
            fs::create_dir(dir).unwrap();
        }
        let next = Temporary::create_in(parent.path(), NAME).unwrap();
        assert!(needed.dir().exists() && next.dir().exists() && foreign.exists());
        assert!(!left.exists() && !bare.exists() && young.exists());
        let gone = next.dir().to_owned();
        drop(next);
        assert!(!gone.exists() && needed.dir().exists());
    }
}
