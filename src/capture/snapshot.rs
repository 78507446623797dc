//! Snapshots: requests to a running recorder to write its rings. A recorder locks the file
//! `recorder` in its recording, so the kernel identifies it, and no other process ever gets a
//! signal. The file contains two counts: snapshots started, and snapshots on disk. It is empty if
//! the recorder keeps everything, and takes no requests.

use super::Error;
use crate::common::Pid;
use crate::recording::{Links, RECORDER, create_private, open_regular};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use std::fs::{self, File};
use std::io::Read;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The time after which a requester sends the signal again, if no snapshot has started.
const AGAIN_PERIOD: Duration = Duration::from_millis(300);
const LOOK_PERIOD: Duration = Duration::from_millis(5);
/// The number of digits of a count in the file.
const DIGITS: usize = 20;

/// The file `recorder` of a running recorder. Requests are possible until it is removed.
#[derive(Debug)]
pub(super) struct Bell {
    file: File,
    path: PathBuf,
    /// The number of snapshots started.
    begun: u64,
}

impl Bell {
    /// Creates and locks the file in the recording `dir`, and writes counts to it if the recorder
    /// takes requests (`answers`). Returns `None` if the file cannot be created or locked: no
    /// requests are possible then.
    pub(super) fn hang(dir: &Path, answers: bool) -> Option<Self> {
        let path = dir.join(RECORDER);
        let file = create_private(&path).ok()?;
        let locked = fcntl(&file, FcntlArg::F_SETLK(&lock()));
        let mut bell = Self { file, path, begun: 0 };
        if locked.is_err() {
            bell.take_down();
            return None;
        }
        if answers {
            bell.report(0);
        }
        Some(bell)
    }

    /// Counts a snapshot as started.
    pub(super) fn begin(&mut self) {
        let done = self.begun;
        self.begun += 1;
        self.report(done);
    }

    /// Counts the started snapshots as on disk.
    pub(super) fn done(&mut self) {
        self.report(self.begun);
    }

    fn report(&mut self, done: u64) {
        let counts = format!("{:0DIGITS$} {done:0DIGITS$}\n", self.begun);
        // If this fails, the requester reports the timeout.
        let _ = self.file.write_all_at(counts.as_bytes(), 0);
    }

    /// Removes the file.
    pub(super) fn take_down(&mut self) {
        // If this fails, the file stays without a lock, and requesters ignore it.
        let _ = fs::remove_file(&self.path);
    }
}

/// Returns a write lock (fcntl(2)) for the whole file.
fn lock() -> libc::flock {
    libc::flock {
        l_type: libc::c_short::try_from(libc::F_WRLCK).unwrap_or_default(),
        l_whence: libc::c_short::try_from(libc::SEEK_SET).unwrap_or_default(),
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    }
}

/// Returns the process that has locked the file, if any; 0 for a process that this one cannot see.
fn holder(file: &File) -> Option<Pid> {
    let mut asked = lock();
    fcntl(file, FcntlArg::F_GETLK(&mut asked)).ok()?;
    (i32::from(asked.l_type) != libc::F_UNLCK).then_some(Pid(asked.l_pid))
}

/// Returns the process that records in `dir` now, if any.
pub fn recorder_of(dir: &Path) -> Option<Pid> {
    holder(&open_regular(&dir.join(RECORDER), Links::Refuse).ok()?)
}

/// Returns the numbers of snapshots started and on disk; `None` if the recorder takes no requests.
pub(crate) fn counts(dir: &Path) -> Option<(u64, u64)> {
    let mut text = String::new();
    let file = open_regular(&dir.join(RECORDER), Links::Refuse).ok()?;
    file.take(2 * (DIGITS as u64 + 1)).read_to_string(&mut text).ok()?;
    let (begun, done) = text.strip_suffix('\n')?.split_once(' ')?;
    Some((begun.parse().ok()?, done.parse().ok()?))
}

/// Asks the recorder that writes the recording `dir` for a snapshot, and waits until it is on disk,
/// at most for the timeout.
pub fn snapshot(dir: &Path, timeout: Duration) -> Result<(), Error> {
    let dir = dir.to_owned();
    let over = || Error::NotRecorded { dir: dir.clone() };
    let file = open_regular(&dir.join(RECORDER), Links::Refuse).map_err(|_| over())?;
    let pid = holder(&file).ok_or_else(over)?;
    let process = Process::open(pid).ok_or_else(|| Error::OutOfReach { dir: dir.clone() })?;
    // Check that the process that was opened still holds the lock, and is not a later one with its
    // number.
    if holder(&file) != Some(pid) {
        return Err(over());
    }
    let (before, _) = counts(&dir).ok_or_else(|| Error::KeepsAll { dir: dir.clone() })?;
    let started = Instant::now();
    let mut asked: Option<Instant> = None;
    while started.elapsed() < timeout {
        let (begun, done) = match counts(&dir) {
            Some(counts) => counts,
            // The recording is complete, so all of it is on disk.
            None if holder(&file).is_none() && dir.join("manifest.json").exists() => return Ok(()),
            None => return Err(over()),
        };
        if done > before {
            return Ok(());
        }
        if holder(&file).is_none() {
            return Err(over());
        }
        if begun == before && asked.is_none_or(|asked| asked.elapsed() > AGAIN_PERIOD) {
            match process.signal(libc::SIGUSR2) {
                // The check above notices the end of a recorder that is gone.
                Ok(()) | Err(Errno::ESRCH) => asked = Some(Instant::now()),
                Err(errno) => return Err(Error::AskRefused { pid, errno }),
            }
        }
        std::thread::sleep(LOOK_PERIOD);
    }
    Err(Error::NoSnapshot { pid, seconds: timeout.as_secs() })
}

/// A process, as a file descriptor (`pidfd_open(2)`), which never refers to a later process with
/// its number.
struct Process(OwnedFd);

impl Process {
    fn open(pid: Pid) -> Option<Self> {
        if pid.0 <= 0 {
            return None;
        }
        // SAFETY: pidfd_open(2) touches no memory, and returns a new descriptor.
        unsafe {
            let fd = libc::syscall(libc::SYS_pidfd_open, pid.0, 0);
            let fd = i32::try_from(fd).ok().filter(|fd| *fd >= 0)?;
            Some(Self(OwnedFd::from_raw_fd(fd)))
        }
    }

    fn signal(&self, signal: i32) -> Result<(), Errno> {
        let none = std::ptr::null::<libc::siginfo_t>();
        // SAFETY: pidfd_send_signal(2) reads no memory if the pointer is null.
        let result = unsafe {
            libc::syscall(libc::SYS_pidfd_send_signal, self.0.as_raw_fd(), signal, none, 0)
        };
        Errno::result(result).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_as_they_are_written() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!((counts(dir.path()), recorder_of(dir.path())), (None, None));
        let mute = tempfile::tempdir().unwrap();
        let _mute = Bell::hang(mute.path(), false).unwrap();
        assert_eq!(counts(mute.path()), None);
        let mut bell = Bell::hang(dir.path(), true).unwrap();
        assert_eq!(counts(dir.path()), Some((0, 0)));
        bell.begin();
        assert_eq!(counts(dir.path()), Some((1, 0)));
        bell.done();
        assert_eq!(counts(dir.path()), Some((1, 1)));
        bell.take_down();
        assert_eq!(counts(dir.path()), None);
    }

    #[test]
    fn who_is_gone_is_not_asked() {
        let dir = tempfile::tempdir().unwrap();
        let ask = || snapshot(dir.path(), Duration::from_secs(5));
        assert!(matches!(ask(), Err(Error::NotRecorded { .. })));
        // A killed recorder leaves counts, and no lock.
        fs::write(dir.path().join(RECORDER), "00000000000000000007 00000000000000000007\n")
            .unwrap();
        assert!(matches!(ask(), Err(Error::NotRecorded { .. })));
    }
}
