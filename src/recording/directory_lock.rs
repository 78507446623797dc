//! A lock on a recording's directory: one process or thread at a time begins a recording there, or
//! makes data that are kept with it, such as its path.

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use std::fs::File;
use std::path::Path;

/// The lock on a recording's directory, held until this is dropped or the process ends.
#[derive(Debug)]
pub struct DirectoryLock {
    /// `None` if the directory cannot be locked: then any number of processes may go ahead.
    _lock: Option<Flock<File>>,
}

impl DirectoryLock {
    /// Takes the lock on a directory. Does not wait: returns `None` while another process or thread
    /// has it. If the directory cannot be locked, returns a value that locks nothing.
    pub(super) fn take(dir: &Path) -> Option<Self> {
        let Ok(dir) = File::open(dir) else { return Some(Self { _lock: None }) };
        match Flock::lock(dir, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => Some(Self { _lock: Some(lock) }),
            Err((_, Errno::EWOULDBLOCK)) => None,
            Err(_) => Some(Self { _lock: None }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_has_the_turn_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let first = DirectoryLock::take(dir.path()).unwrap();
        assert!(DirectoryLock::take(dir.path()).is_none());
        drop(first);
        assert!(DirectoryLock::take(dir.path()).is_some());
        // The directory is not there, which is an error of a later step.
        assert!(DirectoryLock::take(&dir.path().join("nothing")).is_some());
    }
}
