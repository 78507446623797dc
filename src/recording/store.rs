//! The store: the directory for recordings for which the user named no other. Names recordings and
//! finds them. A link named `latest` leads to the newest one.

use super::destination::is_unused;
use super::error::{At, Error, ErrorKind};
use super::reader::{Reader, manifest_of};
use std::fs::{self, DirBuilder};
use std::os::unix::fs::{DirBuilderExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

const LATEST: &str = "latest";
/// The start of the names of hidden directories: caches, and recordings that are being unpacked.
const HIDDEN: &[u8] = b".contraflow-";
/// The name of the recordings of a program whose path has no file name.
const UNNAMED: &str = "program";

/// A directory of recordings.
#[derive(Clone, Debug)]
pub struct Store {
    /// The directory; `None` if it is unknown, so that nothing is found or stored.
    dir: Option<PathBuf>,
}

/// A recording of the store.
#[derive(Debug)]
pub struct StoredRecording {
    /// The name of the recording's directory.
    pub name: String,
    /// The path of the recording's directory.
    pub path: PathBuf,
    /// The start of the run; if it is unknown, the last modification of the directory.
    pub started: SystemTime,
    /// The opened recording, or the reason why it cannot be opened.
    pub opened: Result<Reader, Error>,
}

impl Store {
    /// Returns the store in `dir`, which need not exist. Creates nothing.
    pub fn new(dir: PathBuf) -> Self {
        Self { dir: Some(dir) }
    }

    /// Returns the user's store: `$CONTRAFLOW_HOME`, or `contraflow` in `$XDG_DATA_HOME` or
    /// `~/.local/share`. Uses the user's entry in the password file if `$HOME` is not set. If all
    /// of them are missing, the operations that need the store fail.
    pub fn of_user() -> Self {
        let var = |name| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
        // The XDG Base Directory Specification requires relative paths to be ignored.
        let absolute = |name| var(name).filter(|dir| dir.is_absolute());
        let share = || Some(absolute("HOME").or_else(home_of_user)?.join(".local/share"));
        let data = || absolute("XDG_DATA_HOME").or_else(share).map(|dir| dir.join("contraflow"));
        Self { dir: var("CONTRAFLOW_HOME").or_else(data) }
    }

    fn dir(&self) -> Result<&Path, Error> {
        self.dir.as_deref().ok_or_else(|| Error::new(Path::new("~"), ErrorKind::NoStore))
    }

    /// Returns the directory of recordings, which need not exist; `None` if it is unknown.
    pub(super) fn path(&self) -> Option<&Path> {
        self.dir.as_deref()
    }

    /// Returns true if this is the path of the store's directory, as text: links are not resolved.
    pub fn is_at(&self, dir: &Path) -> bool {
        self.dir.as_deref() == Some(dir)
    }

    /// Creates the directory of recordings if there is none, and returns its path.
    pub fn create_dir(&self) -> Result<PathBuf, Error> {
        let dir = self.dir()?;
        DirBuilder::new().recursive(true).mode(0o700).create(dir).at(dir)?;
        Ok(dir.to_owned())
    }

    /// Creates an empty directory for a recording of `program`, named `PROGRAM-NUMBER` with the
    /// next free number, and returns its path. Creates the store's directory, too. The path of the
    /// program may be that of another machine or hostile: if it has no file name, as `/` or `x/..`,
    /// the name begins with `program`.
    pub fn create_recording_dir(&self, program: &Path) -> Result<PathBuf, Error> {
        let dir = self.create_dir()?;
        let mut builder = DirBuilder::new();
        builder.mode(0o700);
        let name = program.file_name().unwrap_or(UNNAMED.as_ref()).to_string_lossy();
        for number in self.next_number(&name)?.. {
            let path = dir.join(format!("{name}-{number}"));
            match builder.create(&path) {
                // Another recorder was faster.
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                result => return result.at(&path).map(|()| path),
            }
        }
        unreachable!("the range of numbers has no end")
    }

    /// Returns the number after the highest one of the recordings of `name`; 0 if there are none.
    fn next_number(&self, name: &str) -> Result<u64, Error> {
        let mut next = 0;
        let dir = self.dir()?;
        for entry in fs::read_dir(dir).at(dir)? {
            let file_name = entry.at(dir)?.file_name();
            let rest = file_name.to_str().and_then(|n| n.strip_prefix(name));
            let number = rest.and_then(|r| r.strip_prefix('-')).and_then(|n| n.parse::<u64>().ok());
            next = next.max(number.map_or(0, |n| n.saturating_add(1)));
        }
        Ok(next)
    }

    /// Makes the link `latest` lead to a recording of this store, however its path is spelled. Does
    /// nothing for a recording elsewhere.
    pub fn set_latest(&self, recording: &Path) -> Result<(), Error> {
        let Some(dir) = self.dir.as_ref().and_then(|dir| fs::canonicalize(dir).ok()) else {
            return Ok(());
        };
        let recording = fs::canonicalize(recording).at(recording)?;
        let Ok(name) = recording.strip_prefix(&dir) else { return Ok(()) };
        let fresh = dir.join(format!(".{LATEST}-{}", std::process::id()));
        // A recorder with this process ID may have been killed at this point.
        let _ = fs::remove_file(&fresh);
        symlink(name, &fresh).at(&fresh)?;
        fs::rename(&fresh, dir.join(LATEST)).at(&dir)
    }

    /// Returns the directory of the recording that a user named: an existing path, else a name in
    /// this store; for `None`, the latest. Fails if there is none. Does not check that it is a
    /// recording.
    pub fn find(&self, name: Option<&Path>) -> Result<PathBuf, Error> {
        let Some(name) = name else {
            let dir = self.dir()?;
            let latest = fs::canonicalize(dir.join(LATEST));
            return latest.map_err(|_| Error::new(dir, ErrorKind::Empty));
        };
        if name.try_exists().at(name)? {
            return Ok(name.to_owned());
        }
        let inside = self.dir()?.join(name);
        if name.components().count() == 1 && inside.exists() {
            return Ok(inside);
        }
        Err(Error::new(name, ErrorKind::Missing))
    }

    /// Opens and returns all recordings of the store, oldest first. Leaves out links, directories
    /// with names from `.contraflow-` on, and directories that are empty, unreadable, or have only
    /// files of a recorder that was killed before its recording began. Every other directory is
    /// listed, with an error if it is no recording or cannot be opened. Empty if the store does not
    /// exist.
    pub fn list(&self) -> Result<Vec<StoredRecording>, Error> {
        let mut entries = Vec::new();
        let dir = self.dir()?;
        let there = match fs::read_dir(dir) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(entries),
            result => result.at(dir)?,
        };
        for entry in there {
            let entry = entry.at(dir)?;
            let path = entry.path();
            // A recording that is being unpacked has a hidden name, and so have caches.
            let is_hidden = entry.file_name().as_encoded_bytes().starts_with(HIDDEN);
            if entry.file_type().is_ok_and(|t| t.is_dir()) && !is_hidden && !is_unused(&path) {
                let opened = Reader::open(&path);
                let modified = || entry.metadata().and_then(|metadata| metadata.modified()).ok();
                let started = opened.as_ref().ok().and_then(start_of).or_else(modified);
                entries.push(StoredRecording {
                    name: entry.file_name().to_string_lossy().into_owned(),
                    started: started.unwrap_or(SystemTime::UNIX_EPOCH),
                    opened,
                    path,
                });
            }
        }
        entries.sort_by_key(|entry| entry.started);
        Ok(entries)
    }

    /// Removes a recording, in the store or elsewhere; that to which `recording` leads if it is a
    /// link. Fails if the directory is not a recording. If it was the latest, the link leads to the
    /// newest one that is left.
    pub fn remove(&self, recording: &Path) -> Result<(), Error> {
        if manifest_of(recording)?.is_none() {
            return Err(Error::new(recording, ErrorKind::NotARecording));
        }
        // Of a link, only the link itself would be removed.
        let dir = fs::canonicalize(recording).at(recording)?;
        fs::remove_dir_all(&dir).at(&dir)?;
        self.relink_latest()
    }

    /// Makes `latest` lead to the newest recording if it leads to nothing, since the latest was
    /// removed. Removes the link if the store has no recordings, whatever other directories it has.
    fn relink_latest(&self) -> Result<(), Error> {
        let Some(dir) = &self.dir else { return Ok(()) };
        let latest = dir.join(LATEST);
        if latest.exists() || !latest.is_symlink() {
            return Ok(());
        }
        fs::remove_file(&latest).at(&latest)?;
        let is_recording =
            |entry: &&StoredRecording| matches!(manifest_of(&entry.path), Ok(Some(_)));
        match self.list()?.iter().rfind(is_recording) {
            Some(entry) => self.set_latest(&entry.path),
            None => Ok(()),
        }
    }
}

/// Returns the start of a recording's run; `None` if it is unknown.
fn start_of(reader: &Reader) -> Option<SystemTime> {
    let since_epoch_ns = Some(reader.manifest().started_unix_ns).filter(|ns| *ns > 0)?;
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_nanos(since_epoch_ns))
}

/// Returns the home directory from the user database (passwd(5)); `None` if it has none with an
/// absolute path.
fn home_of_user() -> Option<PathBuf> {
    let user = nix::unistd::User::from_uid(nix::unistd::getuid()).ok()??;
    Some(user.dir).filter(|dir| dir.is_absolute())
}

#[cfg(test)]
mod tests {
    use super::super::format::MANIFEST;
    use super::super::import::Imported;
    use super::super::manifest::Manifest;
    use super::super::manifest_file::write_manifest;
    use super::*;

    #[test]
    fn numbers_go_on_and_latest_follows() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::new(dir.path().join("s"));
        assert!(store.list().unwrap().is_empty());
        assert!(matches!(store.find(None).unwrap_err().kind, ErrorKind::Empty));
        let first = store.create_recording_dir(Path::new("/bin/ls")).unwrap();
        let second = store.create_recording_dir(Path::new("ls")).unwrap();
        assert!(first.ends_with("ls-0") && second.ends_with("ls-1"));
        for path in [&first, &second] {
            fs::write(path.join(MANIFEST), "{}").unwrap();
            store.set_latest(path).unwrap();
        }
        assert_eq!(store.find(None).unwrap(), fs::canonicalize(&second).unwrap());
        assert_eq!(store.find(Some(Path::new("ls-0"))).unwrap(), first);
        store.remove(&second).unwrap();
        assert_eq!(store.find(None).unwrap(), fs::canonicalize(&first).unwrap());
        assert!(store.find(Some(Path::new("ls-1"))).is_err());
        assert!(store.remove(dir.path()).is_err());
    }

    #[test]
    fn a_program_without_a_file_name_has_recordings_in_the_store() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::new(dir.path().join("s"));
        let elsewhere = dir.path().join("elsewhere");
        fs::create_dir(&elsewhere).unwrap();
        let outside = elsewhere.join("..");
        for (number, program) in ["/", "", "..", outside.to_str().unwrap()].iter().enumerate() {
            let made = store.create_recording_dir(Path::new(program)).unwrap();
            assert_eq!(made, dir.path().join(format!("s/program-{number}")), "{program}");
        }
    }

    /// Returns a store below `dir` with recordings of the program `p` that started at these times,
    /// of which the last is the latest.
    fn store_with(dir: &Path, starts_ns: &[u64]) -> (Store, Vec<PathBuf>) {
        let store = Store::new(dir.join("s"));
        let recording = |start_ns: &u64| {
            let path = store.create_recording_dir(Path::new("p")).unwrap();
            Imported::default().write(&path).unwrap();
            let reader = Reader::open(&path).unwrap();
            let manifest = Manifest { started_unix_ns: *start_ns, ..reader.manifest().clone() };
            write_manifest(&path, &manifest, reader.sums().unwrap().clone()).unwrap();
            store.set_latest(&path).unwrap();
            path
        };
        let paths = starts_ns.iter().map(recording).collect();
        (store, paths)
    }

    fn names(store: &Store) -> Vec<String> {
        store.list().unwrap().into_iter().map(|entry| entry.name).collect()
    }

    #[test]
    fn the_latest_is_removed_by_its_link() {
        let dir = tempfile::tempdir().unwrap();
        let (store, paths) = store_with(dir.path(), &[1, 2]);
        store.remove(&store.find(Some(Path::new(LATEST))).unwrap()).unwrap();
        assert_eq!(names(&store), ["p-0"]);
        assert_eq!(store.find(None).unwrap(), fs::canonicalize(&paths[0]).unwrap());
        store.remove(&store.find(Some(Path::new(LATEST))).unwrap()).unwrap();
        assert!(names(&store).is_empty());
        assert!(store.find(Some(Path::new(LATEST))).is_err());
    }

    #[test]
    fn latest_follows_recordings_by_any_spelling_of_their_paths() {
        let dir = tempfile::tempdir().unwrap();
        let (store, paths) = store_with(dir.path(), &[1, 2, 3]);
        symlink("s", dir.path().join("other")).unwrap();
        store.remove(&dir.path().join("other/p-2")).unwrap();
        assert_eq!(store.find(None).unwrap(), fs::canonicalize(&paths[1]).unwrap());
        store.set_latest(&dir.path().join("other/./p-0")).unwrap();
        assert_eq!(store.find(None).unwrap(), fs::canonicalize(&paths[0]).unwrap());
        let elsewhere = dir.path().join("elsewhere");
        fs::create_dir(&elsewhere).unwrap();
        store.set_latest(&elsewhere).unwrap();
        assert_eq!(store.find(None).unwrap(), fs::canonicalize(&paths[0]).unwrap());
    }

    #[test]
    fn latest_never_leads_to_what_is_no_recording() {
        let dir = tempfile::tempdir().unwrap();
        let (store, paths) = store_with(dir.path(), &[1, 2]);
        let notes = dir.path().join("s/notes");
        fs::create_dir(&notes).unwrap();
        fs::write(notes.join("a.txt"), "").unwrap();
        store.remove(&paths[1]).unwrap();
        assert_eq!(store.find(None).unwrap(), fs::canonicalize(&paths[0]).unwrap());
        store.remove(&paths[0]).unwrap();
        assert!(matches!(store.find(None).unwrap_err().kind, ErrorKind::Empty));
        assert!(!dir.path().join("s/latest").is_symlink());
    }

    #[test]
    fn a_recording_is_as_old_as_its_run() {
        let dir = tempfile::tempdir().unwrap();
        let (store, paths) = store_with(dir.path(), &[30, 20, 10]);
        assert_eq!(names(&store), ["p-2", "p-1", "p-0"]);
        // As a file that a later command keeps with a recording.
        fs::write(paths[1].join("index"), "").unwrap();
        store.remove(&paths[2]).unwrap();
        assert_eq!(store.find(None).unwrap(), fs::canonicalize(&paths[0]).unwrap());
    }
}
