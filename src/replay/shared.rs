//! Memory that the program maps shared: one *memory file* (`memfd_create(2)`) for each recorded
//! file, so that all mappings of a file show the same bytes. After a fork(2), which makes a
//! checkpoint, both processes would share these files: the copy gets copies of them.

use super::epoch::Epoch;
use super::error::Error;
use super::maps::{SCRATCH_OFFSET, bits, failed_call, syscall_in};
use crate::common::{Addr, AddrRange, Pid, Tid};
use crate::recording::Reader;
use crate::recording::log::{Content, Mapped, Shared};
use crate::tracee::call_numbers::{CLOSE, DUP2, FALLOCATE, FTRUNCATE, MEMFD_CREATE, MMAP};
use crate::tracee::{Memory, Tracee, mappings};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};

/// The size of a memory file, in bytes. It takes no memory where nothing was written.
const FILE_BYTES: u64 = 1 << 44;
const SHARED_FIXED_NORESERVE: u64 = 0x4011;
/// The mode of fallocate(2) that makes a hole: `FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE`.
const MAKE_HOLE: u64 = 3;
const NAME: &[u8] = b"shared\0";

/// The memory files of a process: its descriptor for each, by the number of the recorded file.
#[derive(Clone, Debug, Default)]
pub(super) struct SharedFiles(BTreeMap<u64, u64>);

impl SharedFiles {
    /// Returns true if the program has mapped no shared memory yet.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Replaces the memory files in the process `copy`, which was just copied from the process
    /// `of`, by copies of them, and maps these in their place. `page` is the replay's own page in
    /// `copy`. Does nothing without memory files.
    pub(super) fn separate(&self, of: Pid, copy: Pid, page: Addr) -> Result<(), Error> {
        if self.is_empty() {
            return Ok(());
        }
        let tracee = Tracee(Tid(copy.0));
        let maps = mappings(copy)?;
        for &fd in self.0.values() {
            let from = open(of, fd)?;
            let inode = from.metadata().map_err(failed("stat"))?.ino();
            let new = create(tracee, copy, page)?;
            let to = open(copy, new)?;
            syscall_in(tracee, page, "dup2", DUP2, [new, fd, 0, 0, 0, 0])?;
            syscall_in(tracee, page, "close", CLOSE, [new, 0, 0, 0, 0, 0])?;
            for mapping in maps.iter().filter(|mapping| mapping.inode == inode) {
                let (start, size) = (mapping.range.start.0, mapping.range.size_bytes());
                copy_range(&from, mapping.offset, &to, mapping.offset, size)
                    .map_err(failed("write"))?;
                let prot = bits(mapping.protection);
                let args = [start, size, prot, SHARED_FIXED_NORESERVE, fd, mapping.offset];
                syscall_in(tracee, page, "mmap", MMAP, args)?;
            }
        }
        Ok(())
    }
}

impl Epoch {
    /// Maps the recorded mapping `mapped`, which shows `part` of a shared file, and writes its
    /// recorded contents to the memory file, where other mappings show them as well. Creates the
    /// memory file if it is new.
    pub(super) fn map_shared(
        &mut self,
        mapped: &Mapped,
        part: Shared,
        reader: &Reader,
    ) -> Result<(), Error> {
        let (pid, size) = (self.pid(), mapped.range.size_bytes());
        let fd = match self.shared.0.get(&part.file).copied() {
            Some(fd) => {
                // Zeros are not stored, and other bytes may have been there.
                let args = [fd, MAKE_HOLE, part.offset, size, 0, 0];
                self.syscall("fallocate", FALLOCATE, args)?;
                fd
            }
            None => create(self.thread.tracee, pid, self.page)?,
        };
        self.shared.0.insert(part.file, fd);
        if let Content::File { image, offset } = &mapped.content {
            let stored = File::open(reader.image_path(image)?).map_err(failed("open"))?;
            let file = open(pid, fd)?;
            copy_range(&stored, *offset, &file, part.offset, size).map_err(failed("write"))?;
        }
        let prot = bits(mapped.protection);
        let args = [mapped.range.start.0, size, prot, SHARED_FIXED_NORESERVE, fd, part.offset];
        self.syscall("mmap", MMAP, args)?;
        Ok(())
    }

    /// Writes to the memory file that is mapped at `addr`, even if the mapping is not writable: all
    /// mappings of the file show it. `bytes` must end within that mapping: those beyond it would go
    /// to the file all the same. Returns false, and writes nothing, if no memory file is mapped
    /// there.
    pub(super) fn write_shared(&self, addr: Addr, bytes: &[u8]) -> Result<bool, Error> {
        let there = self.engine.space.overlapping(AddrRange::sized(addr, 1)).next();
        let Some(mapping) = there.filter(|mapping| mapping.protection.shared) else {
            return Ok(false);
        };
        for &fd in self.shared.0.values() {
            let file = open(self.pid(), fd)?;
            if file.metadata().map_err(failed("stat"))?.ino() == mapping.inode {
                let offset = mapping.offset + (addr.0 - mapping.range.start.0);
                file.write_all_at(bytes, offset).map_err(failed("write"))?;
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Makes a process create a memory file of [`FILE_BYTES`], and returns the descriptor in that
/// process. `page` is the replay's own page there ([`Epoch::page`]); overwrites its scratch bytes.
fn create(tracee: Tracee, pid: Pid, page: Addr) -> Result<u64, Error> {
    let scratch = page.wrapping_add(SCRATCH_OFFSET);
    Memory::open(pid)?.write(scratch, NAME).map_err(failed("write"))?;
    let fd = syscall_in(tracee, page, "memfd_create", MEMFD_CREATE, [scratch.0, 0, 0, 0, 0, 0])?;
    syscall_in(tracee, page, "ftruncate", FTRUNCATE, [fd, FILE_BYTES, 0, 0, 0, 0])?;
    Ok(fd)
}

/// Opens the file of a process's descriptor, to read and write it from here.
fn open(pid: Pid, fd: u64) -> Result<File, Error> {
    let path = format!("/proc/{pid}/fd/{fd}");
    OpenOptions::new().read(true).write(true).open(path).map_err(failed("open"))
}

/// Copies at most `size` bytes, up to the end of `from`. Writes only parts that differ, so zeros
/// take no memory.
fn copy_range(from: &File, mut at: u64, to: &File, mut offset: u64, size: u64) -> io::Result<()> {
    const PIECE_BYTES: usize = 64 << 10;
    let (mut piece, mut there) = (vec![0; PIECE_BYTES], vec![0; PIECE_BYTES]);
    let mut left = size;
    while left > 0 {
        let most = usize::try_from(left).unwrap_or(PIECE_BYTES).min(PIECE_BYTES);
        let read = from.read_at(&mut piece[..most], at)?;
        if read == 0 {
            break;
        }
        if to.read_at(&mut there[..read], offset)? != read || there[..read] != piece[..read] {
            to.write_all_at(&piece[..read], offset)?;
        }
        let read = read as u64;
        (at, offset, left) = (at + read, offset + read, left - read);
    }
    Ok(())
}

/// Returns a function that makes the error of a failed `call` from an [`io::Error`].
fn failed(call: &'static str) -> impl Fn(io::Error) -> Error {
    move |error| failed_call(call, error.raw_os_error().unwrap_or(libc::EIO))
}
