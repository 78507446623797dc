//! The classes of the program's descriptors ([`DescriptorClass`]), so that calls which use them are
//! made in the code cache without a stop. A thread must not wait in such a call, since no other
//! runs until it returns, and it must not change a mapped file unseen. A class is learned when a
//! call uses the descriptor for the first time, with a stop, and is kept by the engine. Calls on a
//! descriptor without a class stop the thread.

use super::process::Process;
use crate::syscalls::Call;
use crate::tracee::call_numbers::{
    ACCEPT, ACCEPT4, CLOSE, CLOSE_RANGE, DUP2, DUP3, FCNTL, IOCTL, MMAP, OPEN, OPENAT, OPENAT2,
    PWRITE64, READ, RECVFROM, SENDMSG, SENDTO, UNSHARE, WRITE, WRITEV,
};
use crate::translate::DescriptorClass;
use nix::sys::statfs::{
    BTRFS_SUPER_MAGIC, EXT4_SUPER_MAGIC, F2FS_SUPER_MAGIC, FsType, OVERLAYFS_SUPER_MAGIC,
    TMPFS_MAGIC, XFS_SUPER_MAGIC, statfs,
};
use std::fs::{self, Metadata};
use std::os::unix::fs::{FileTypeExt, MetadataExt};

const NONBLOCK: u64 = libc::O_NONBLOCK as u64;
const F_SETFL: u64 = libc::F_SETFL as u64;
const FIONBIO: u64 = libc::FIONBIO;
const CLONE_FILES: u64 = libc::CLONE_FILES as u64;
/// `CLOSE_RANGE_UNSHARE`.
const UNSHARES: u64 = 2;
/// File systems for whose files no thread waits: they are neither tables of the kernel, such as
/// proc, nor served by a process.
const ORDINARY: [FsType; 6] = [
    EXT4_SUPER_MAGIC,
    XFS_SUPER_MAGIC,
    BTRFS_SUPER_MAGIC,
    F2FS_SUPER_MAGIC,
    OVERLAYFS_SUPER_MAGIC,
    TMPFS_MAGIC,
];
/// The device numbers of `/dev/null`, `/dev/zero`, `/dev/full` and `/dev/urandom`.
const READY_DEVICES: [(u32, u32); 4] = [(1, 3), (1, 5), (1, 7), (1, 9)];

impl Process {
    /// Takes note of the class of the descriptor that a completed call used or made, and forgets
    /// all classes if the call may have changed some. Makes all calls stop from now on if threads
    /// may have different descriptors, or share them with another process.
    pub(super) fn learn_descriptors(&mut self, call: &Call, result: i64) {
        // The kernel takes 32 bits of these arguments.
        let [first, second, third, fourth, ..] = call.args.map(|arg| arg & u64::from(u32::MAX));
        match call.number {
            READ | WRITE | PWRITE64 | WRITEV | SENDTO | RECVFROM | SENDMSG => {
                self.learn_descriptor(first);
            }
            OPEN | OPENAT | OPENAT2 => {
                if let Ok(fd) = u64::try_from(result) {
                    self.learn_descriptor(fd);
                }
            }
            ACCEPT => self.learn_accepted(result, 0),
            ACCEPT4 => self.learn_accepted(result, fourth),
            CLOSE_RANGE if third & UNSHARES != 0 => self.engine.stop_at_calls(),
            UNSHARE if first & CLONE_FILES != 0 => self.engine.stop_at_calls(),
            CLOSE | CLOSE_RANGE | DUP2 | DUP3 => self.engine.forget_descriptors(),
            // Other descriptors may refer to the same open file.
            FCNTL if second == F_SETFL => self.engine.forget_descriptors(),
            IOCTL if second == FIONBIO => self.engine.forget_descriptors(),
            MMAP if result >= 0 => self.learn_mapped_file(call),
            _ => self.learn_birth(call),
        }
    }

    /// Notes in the engine all files that are mapped, which no call may change without a stop.
    pub(super) fn learn_mapped_files(&mut self) {
        let inodes: Vec<u64> = self.engine.space.mappings().map(|m| m.inode).collect();
        for inode in inodes.into_iter().filter(|inode| *inode != 0) {
            self.engine.note_mapped_file(inode);
        }
    }

    /// Notes in the engine the file that mmap(2) has mapped, which no call may change without a
    /// stop.
    fn learn_mapped_file(&mut self, call: &Call) {
        let [.., flags, fd, _] = call.args.map(|arg| arg & u64::from(u32::MAX));
        if flags & libc::MAP_ANONYMOUS as u64 == 0
            && let Ok(file) = self.metadata_of(fd)
        {
            self.engine.note_mapped_file(file.ino());
        }
    }

    /// Makes all calls stop from now on if a call made a thread with separate descriptors, or a
    /// process that shares this one's. Does nothing after other calls.
    fn learn_birth(&mut self, call: &Call) {
        let Some(flags) = self.clone_flags(call) else { return };
        if self.makes_thread(call) != (flags & CLONE_FILES != 0) {
            self.engine.stop_at_calls();
        }
    }

    /// Determines the class of a descriptor and notes it in the engine, if it is not known. Notes
    /// none for a descriptor that is not open.
    fn learn_descriptor(&mut self, fd: u64) {
        if !self.engine.needs_descriptor_class(fd) {
            return;
        }
        let Ok(file) = self.metadata_of(fd) else { return };
        let class = if file.is_file() || file.is_dir() {
            self.class_of_file(fd, &file)
        } else if is_ready(&file) || !is_device(&file) && self.is_nonblocking(fd) {
            DescriptorClass::Free
        } else {
            DescriptorClass::Waits
        };
        self.engine.note_descriptor(fd, class);
    }

    /// Notes the class of the socket that an accept(2) or accept4(2) with `flags` returned, by the
    /// flags alone: no other descriptor refers to it.
    fn learn_accepted(&mut self, result: i64, flags: u64) {
        let fd = u64::try_from(result).ok();
        if let Some(fd) = fd.filter(|fd| self.engine.needs_descriptor_class(*fd)) {
            let waits = flags & NONBLOCK == 0;
            let class = if waits { DescriptorClass::Waits } else { DescriptorClass::Free };
            self.engine.note_descriptor(fd, class);
        }
    }

    /// Returns the class of a file or directory. Notes in the engine the device of one whose calls
    /// do not wait.
    fn class_of_file(&mut self, fd: u64, file: &Metadata) -> DescriptorClass {
        if !is_ordinary(&self.link_of(fd)) {
            return DescriptorClass::Waits;
        }
        self.engine.note_device(file.dev());
        let is_mapped = self.engine.space.mappings().any(|m| m.inode == file.ino());
        if is_mapped { DescriptorClass::FreeToRead } else { DescriptorClass::Free }
    }

    /// Returns true if calls on a descriptor do not wait (`O_NONBLOCK`); false if it is closed.
    fn is_nonblocking(&self, fd: u64) -> bool {
        self.flags_of(fd).is_some_and(|flags| flags & NONBLOCK != 0)
    }

    /// Reads the metadata of a descriptor's file. Fails if it is closed.
    fn metadata_of(&self, fd: u64) -> std::io::Result<Metadata> {
        fs::metadata(self.link_of(fd))
    }
}

/// Returns true if a path is on a file system of the kinds in `ORDINARY`.
fn is_ordinary(path: &str) -> bool {
    statfs(path).is_ok_and(|system| ORDINARY.contains(&system.filesystem_type()))
}

/// Returns true if a file is a device that always has bytes to read, and takes those written
/// (`READY_DEVICES`).
fn is_ready(file: &Metadata) -> bool {
    let number = (libc::major(file.rdev()), libc::minor(file.rdev()));
    is_device(file) && READY_DEVICES.contains(&number)
}

/// Returns true if a file is a character device, such as a terminal, whose flags other processes
/// may change.
fn is_device(file: &Metadata) -> bool {
    file.file_type().is_char_device()
}
