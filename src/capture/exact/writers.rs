//! Finds out by a lease (fcntl(2)) if a file is open for writing in any process. If it is not, no
//! process can write to its mappings, and the mappings of all processes need not be read.

use crate::recording::{Links, open_regular};
use crate::sideband::Mapping;
use nix::unistd::{AccessFlags, access};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// `F_SETSIG` (asm-generic/fcntl.h).
const F_SETSIG: i32 = 10;

/// The processes that may write to a mapped file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Writers {
    /// No process has it open for writing, so none maps it to write.
    None,
    /// There may be some, but not of this user, who may not write to the file.
    Foreign,
    /// There may be some of any user, or the file cannot be found.
    Unknown,
}

/// Determines if processes, this program's included, may write to a mapped file now, by the file at
/// the mapping's path.
pub(super) fn writers_of(mapping: &Mapping) -> Writers {
    let path = Path::new(&mapping.name);
    let file = Some(mapping).filter(|mapping| mapping.is_file());
    let file = file.and_then(|_| open_regular(path, Links::Follow).ok());
    // The devices are not compared: file systems with subvolumes have one number here and another
    // in the mappings.
    let is_it = |file: &File| file.metadata().is_ok_and(|m| m.ino() == mapping.inode);
    let Some(file) = file.filter(is_it) else { return Writers::Unknown };
    if can_lease(&file) {
        return Writers::None;
    }
    let is_own = file.metadata().is_ok_and(|m| m.uid() == nix::unistd::geteuid().as_raw());
    match access(path, AccessFlags::W_OK) {
        Err(_) if !is_own => Writers::Foreign,
        _ => Writers::Unknown,
    }
}

/// Returns true if a read lease is granted: the kernel grants none of a file that is open for
/// writing. The lease is given back at once.
fn can_lease(file: &File) -> bool {
    let fd = file.as_raw_fd();
    // SAFETY: these commands take and return integers, and the file is open. A process that opens
    // the file for writing in the meantime waits until the lease is given back. The kernel then
    // sends this process the signal, which is ignored by default.
    unsafe {
        libc::fcntl(fd, F_SETSIG, libc::SIGURG) == 0
            && libc::fcntl(fd, libc::F_SETLEASE, libc::F_RDLCK) == 0
            && libc::fcntl(fd, libc::F_SETLEASE, libc::F_UNLCK) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tracee::mappings;

    #[test]
    fn a_file_that_is_open_for_writing_may_have_writers() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), [7; 4096]).unwrap();
        let path = file.path().to_owned();
        // SAFETY: nothing changes the file.
        let _map = unsafe { memmap2::Mmap::map(&File::open(&path).unwrap()) }.unwrap();
        let own = crate::common::Pid(i32::try_from(std::process::id()).unwrap());
        let is_it = |m: &Mapping| Path::new(&m.name) == path;
        let mapping = mappings(own).unwrap().into_iter().find(is_it).unwrap();
        // The temporary file itself is still open for writing.
        assert_eq!(writers_of(&mapping), Writers::Unknown);
        let path = file.into_temp_path();
        assert_eq!(writers_of(&mapping), Writers::None);
        let other = File::options().append(true).open(&path).unwrap();
        assert_eq!(writers_of(&mapping), Writers::Unknown);
        drop(other);
        assert_eq!(writers_of(&mapping), Writers::None);
        // Another file in its place says nothing.
        std::fs::write(path.with_extension("new"), "other").unwrap();
        std::fs::rename(path.with_extension("new"), &path).unwrap();
        assert_eq!(writers_of(&mapping), Writers::Unknown);
        let nowhere = Mapping { name: String::new(), ..mapping };
        assert_eq!(writers_of(&nowhere), Writers::Unknown);
    }
}
