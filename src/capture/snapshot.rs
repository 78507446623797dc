//! Asking a recorder at work for what is in its rings. The file `recorder` of a recording is locked
//! by the process that writes the recording, so the kernel itself says who that is, and nobody else
//! is ever sent a signal; in the file are two counts, of snapshots that were begun and that are on
//! the disk. An empty one is of a recorder that keeps all, and is not to be asked.

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

/// A signal may come in a bad moment, and is sent again.
const AGAIN_PERIOD: Duration = Duration::from_millis(300);
const LOOK_PERIOD: Duration = Duration::from_millis(5);
/// Digits of a count.
const DIGITS: usize = 20;

/// The recorder's side: it can be asked while this lives.
#[derive(Debug)]
pub(super) struct Bell {
    file: File,
    path: PathBuf,
    begun: u64,
}

impl Bell {
    /// Says that this process records in `dir`, and whether it answers. None where the file system
    /// has no locks: nobody can ask then.
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
            bell.tell(0);
        }
        Some(bell)
    }

    /// A snapshot begins, of what is there now.
    pub(super) fn begin(&mut self) {
        let done = self.begun;
        self.begun += 1;
        self.tell(done);
    }

    /// It is on the disk.
    pub(super) fn done(&mut self) {
        self.tell(self.begun);
    }

    fn tell(&mut self, done: u64) {
        let counts = format!("{:0DIGITS$} {done:0DIGITS$}\n", self.begun);
        // Who waits for it says so, where it does not come.
        let _ = self.file.write_all_at(counts.as_bytes(), 0);
    }

    /// The recording is complete.
    pub(super) fn take_down(&mut self) {
        // Without a lock it says nothing.
        let _ = fs::remove_file(&self.path);
    }
}

/// All of the file, for one.
fn lock() -> libc::flock {
    libc::flock {
        l_type: libc::c_short::try_from(libc::F_WRLCK).unwrap_or_default(),
        l_whence: libc::c_short::try_from(libc::SEEK_SET).unwrap_or_default(),
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    }
}

/// Who holds the lock; 0: somebody whom this process cannot see.
fn holder(file: &File) -> Option<Pid> {
    let mut asked = lock();
    fcntl(file, FcntlArg::F_GETLK(&mut asked)).ok()?;
    (i32::from(asked.l_type) != libc::F_UNLCK).then_some(Pid(asked.l_pid))
}

/// The process that records in `dir` now, if one does.
pub fn recorder_of(dir: &Path) -> Option<Pid> {
    holder(&open_regular(&dir.join(RECORDER), Links::Refuse).ok()?)
}

/// How many snapshots were begun, and how many are on the disk. None: the recorder is not to be
/// asked.
pub(crate) fn counts(dir: &Path) -> Option<(u64, u64)> {
    let mut text = String::new();
    let file = open_regular(&dir.join(RECORDER), Links::Refuse).ok()?;
    file.take(2 * (DIGITS as u64 + 1)).read_to_string(&mut text).ok()?;
    let (begun, done) = text.strip_suffix('\n')?.split_once(' ')?;
    Some((begun.parse().ok()?, done.parse().ok()?))
}

/// Lets the recorder of a recording write what is in its rings, and waits until that is on the
/// disk, or for so long.
pub fn snapshot(dir: &Path, timeout: Duration) -> Result<(), Error> {
    let dir = dir.to_owned();
    let over = || Error::NotRecorded { dir: dir.clone() };
    let file = open_regular(&dir.join(RECORDER), Links::Refuse).map_err(|_| over())?;
    let pid = holder(&file).ok_or_else(over)?;
    let process = Process::open(pid).ok_or_else(|| Error::OutOfReach { dir: dir.clone() })?;
    // Whoever holds the lock now is the process that was opened before, and no later one of its
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
            // The recording is complete: all of it is on the disk.
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
                // Its end is seen above.
                Ok(()) | Err(Errno::ESRCH) => asked = Some(Instant::now()),
                Err(errno) => return Err(Error::AskRefused { pid, errno }),
            }
        }
        std::thread::sleep(LOOK_PERIOD);
    }
    Err(Error::NoSnapshot { pid, seconds: timeout.as_secs() })
}

/// A process, by a file descriptor: no other one has it, whatever becomes of its number.
struct Process(OwnedFd);

impl Process {
    fn open(pid: Pid) -> Option<Self> {
        if pid.0 <= 0 {
            return None;
        }
        // SAFETY: pidfd_open(2) touches no memory, and gives a descriptor that nobody else has.
        unsafe {
            let fd = libc::syscall(libc::SYS_pidfd_open, pid.0, 0);
            let fd = i32::try_from(fd).ok().filter(|fd| *fd >= 0)?;
            Some(Self(OwnedFd::from_raw_fd(fd)))
        }
    }

    fn signal(&self, signal: i32) -> Result<(), Errno> {
        let none = std::ptr::null::<libc::siginfo_t>();
        // SAFETY: pidfd_send_signal(2) reads no memory where it is given none.
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
    fn counts_are_read_as_they_are_told() {
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
        // What a killed recorder leaves: counts, and nobody's lock.
        fs::write(dir.path().join(RECORDER), "00000000000000000007 00000000000000000007\n")
            .unwrap();
        assert!(matches!(ask(), Err(Error::NotRecorded { .. })));
    }
}
