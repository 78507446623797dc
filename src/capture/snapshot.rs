//! Snapshots: a requester, which is another process, asks a running recorder to write its rings
//! (trace buffers that keep the end of the history only) to disk.
//!
//! A recorder locks the file `recorder` in its recording. The kernel names the holder of the lock,
//! so the requester knows the recorder's process. The file contains two counts: snapshots started,
//! and snapshots on disk. It is empty if the recorder keeps everything, and takes no requests.
//!
//! 1. The requester reads the counts, and sends SIGUSR2 to the holder of the lock. It sends the
//!    signal again if the first count stays the same for [`RESEND_PERIOD`].
//! 2. The recorder adds 1 to the first count, writes its rings, and sets the second count to the
//!    first. Requests that come in between may have one snapshot in common.
//! 3. The requester polls until the second count is larger than the first was in step 1. It also
//!    stops if the recorder ends: its recording is complete then, or cut.

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
const RESEND_PERIOD: Duration = Duration::from_millis(300);
/// The pause of a requester between two looks at the counts.
const POLL_PERIOD: Duration = Duration::from_millis(5);
/// The number of digits of a count in the file.
const DIGITS: usize = 20;

/// The file `recorder`, as the recorder that created it keeps it open. Requests are possible until
/// it is removed.
#[derive(Debug)]
pub(super) struct SnapshotFile {
    file: File,
    path: PathBuf,
    /// The number of snapshots started.
    started_count: u64,
    /// The number of snapshots that are on disk.
    written_count: u64,
}

impl SnapshotFile {
    /// Creates and locks the file in the recording `dir`, and writes counts to it if the recorder
    /// takes requests (`takes_requests`). Returns `None` if the file cannot be created or locked:
    /// no requests are possible then.
    pub(super) fn create(dir: &Path, takes_requests: bool) -> Option<Self> {
        let path = dir.join(RECORDER);
        let file = create_private(&path).ok()?;
        let locked = fcntl(&file, FcntlArg::F_SETLK(&lock()));
        let mut file = Self { file, path, started_count: 0, written_count: 0 };
        if locked.is_err() {
            file.remove();
            return None;
        }
        if takes_requests {
            file.write_counts();
        }
        Some(file)
    }

    /// Counts one more snapshot as started, and writes the counts. Those that were started before
    /// and are not written stay so.
    pub(super) fn count_started(&mut self) {
        self.started_count += 1;
        self.write_counts();
    }

    /// Counts all started snapshots as on disk, and writes the counts.
    pub(super) fn count_written(&mut self) {
        self.written_count = self.started_count;
        self.write_counts();
    }

    /// Writes the counts to the file, in place of those there.
    fn write_counts(&mut self) {
        let Self { started_count, written_count, .. } = self;
        let counts = format!("{started_count:0DIGITS$} {written_count:0DIGITS$}\n");
        // If this fails, the requester reports the timeout.
        let _ = self.file.write_all_at(counts.as_bytes(), 0);
    }

    /// Removes the file. Call this only once the recording is complete, or before it began: a
    /// requester whose file is gone takes all as written.
    pub(super) fn remove(&mut self) {
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

/// Returns the process that has locked the file; `None` if there is none, or if that is unknown.
/// The number is 0 for a process that this one cannot see, such as one in another PID namespace.
fn lock_holder(file: &File) -> Option<Pid> {
    let mut answer = lock();
    fcntl(file, FcntlArg::F_GETLK(&mut answer)).ok()?;
    (i32::from(answer.l_type) != libc::F_UNLCK).then_some(Pid(answer.l_pid))
}

/// Returns the process that records in `dir` now; `None` if there is none. The number is 0 for a
/// process that this one cannot see.
pub fn recorder_of(dir: &Path) -> Option<Pid> {
    lock_holder(&open_regular(&dir.join(RECORDER), Links::Refuse).ok()?)
}

/// Returns the numbers of snapshots started and on disk; `None` if the recorder takes no requests,
/// or has removed its file. A killed recorder leaves its last counts.
pub(crate) fn counts(dir: &Path) -> Option<(u64, u64)> {
    let mut text = String::new();
    let file = open_regular(&dir.join(RECORDER), Links::Refuse).ok()?;
    file.take(2 * (DIGITS as u64 + 1)).read_to_string(&mut text).ok()?;
    let (started_count, written_count) = text.strip_suffix('\n')?.split_once(' ')?;
    Some((started_count.parse().ok()?, written_count.parse().ok()?))
}

/// Asks the recorder that writes the recording `dir` for a snapshot, by SIGUSR2, and blocks until
/// it is on disk, or the recording is complete. Returns an error if nothing records there, if the
/// recorder keeps everything or cannot be signaled, or after the timeout.
pub fn snapshot(dir: &Path, timeout: Duration) -> Result<(), Error> {
    let dir = dir.to_owned();
    let not_recorded = || Error::NotRecorded { dir: dir.clone() };
    let file = open_regular(&dir.join(RECORDER), Links::Refuse).map_err(|_| not_recorded())?;
    let pid = lock_holder(&file).ok_or_else(not_recorded)?;
    let process = Process::open(pid).ok_or_else(|| Error::OutOfReach { dir: dir.clone() })?;
    // Check that the process that was opened still holds the lock, and is not a later one with its
    // number.
    if lock_holder(&file) != Some(pid) {
        return Err(not_recorded());
    }
    let (started_before, _) = counts(&dir).ok_or_else(|| Error::KeepsAll { dir: dir.clone() })?;
    let started = Instant::now();
    let mut sent_at: Option<Instant> = None;
    while started.elapsed() < timeout {
        let (started_count, written_count) = match counts(&dir) {
            Some(counts) => counts,
            // The recording is complete, so all of it is on disk.
            None if lock_holder(&file).is_none() && dir.join("manifest.json").exists() => {
                return Ok(());
            }
            None => return Err(not_recorded()),
        };
        if written_count > started_before {
            return Ok(());
        }
        if lock_holder(&file).is_none() {
            return Err(not_recorded());
        }
        if started_count == started_before
            && sent_at.is_none_or(|sent_at| sent_at.elapsed() > RESEND_PERIOD)
        {
            match process.signal(libc::SIGUSR2) {
                // The check above notices the end of a recorder that is gone.
                Ok(()) | Err(Errno::ESRCH) => sent_at = Some(Instant::now()),
                Err(errno) => return Err(Error::AskRefused { pid, errno }),
            }
        }
        std::thread::sleep(POLL_PERIOD);
    }
    Err(Error::NoSnapshot { pid, seconds: timeout.as_secs() })
}

/// A process, as a file descriptor (`pidfd_open(2)`), which never refers to a later process with
/// its number.
struct Process(OwnedFd);

impl Process {
    /// Opens a process; `None` if there is none with this number, or the kernel refuses it.
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

    /// Sends a signal to the process. Fails with `ESRCH` if it has ended.
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
        let _mute = SnapshotFile::create(mute.path(), false).unwrap();
        assert_eq!(counts(mute.path()), None);
        let mut file = SnapshotFile::create(dir.path(), true).unwrap();
        assert_eq!(counts(dir.path()), Some((0, 0)));
        file.count_started();
        assert_eq!(counts(dir.path()), Some((1, 0)));
        file.count_written();
        assert_eq!(counts(dir.path()), Some((1, 1)));
        file.count_started();
        file.count_started();
        assert_eq!(counts(dir.path()), Some((3, 1)), "none of them is written yet");
        file.remove();
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
