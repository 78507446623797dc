//! Host I/O, gdb's packets `vFile`: read-only access to the files of the recording, and to no
//! others. A file that the recording lacks does not exist (`ENOENT`).

use super::target::Served;
use crate::session::{FileBytes, Run};
use gdbstub::target::ext::host_io::{
    FsKind, HostIo, HostIoClose, HostIoCloseOps, HostIoErrno, HostIoError, HostIoFstat,
    HostIoFstatOps, HostIoOpen, HostIoOpenFlags, HostIoOpenMode, HostIoOpenOps, HostIoPread,
    HostIoPreadOps, HostIoReadlink, HostIoReadlinkOps, HostIoResult, HostIoSetfs, HostIoSetfsOps,
    HostIoStat,
};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The maximum number of open files, against clients that never close them.
const MAX_OPEN: usize = 256;

/// The files that a client has open, by descriptor.
#[derive(Default)]
pub(super) struct OpenFiles {
    open: BTreeMap<u32, Box<dyn FileBytes>>,
    /// The descriptor of the next file. It wraps around at 2^31.
    next: u32,
}

/// Returns the failure of a request with this error number.
fn errno<T>(errno: HostIoErrno) -> Result<T, HostIoError<Infallible>> {
    Err(HostIoError::Errno(errno))
}

impl<R: Run> HostIo for Served<R> {
    fn support_open(&mut self) -> Option<HostIoOpenOps<'_, Self>> {
        Some(self)
    }

    fn support_close(&mut self) -> Option<HostIoCloseOps<'_, Self>> {
        Some(self)
    }

    fn support_pread(&mut self) -> Option<HostIoPreadOps<'_, Self>> {
        Some(self)
    }

    fn support_fstat(&mut self) -> Option<HostIoFstatOps<'_, Self>> {
        Some(self)
    }

    fn support_readlink(&mut self) -> Option<HostIoReadlinkOps<'_, Self>> {
        Some(self)
    }

    fn support_setfs(&mut self) -> Option<HostIoSetfsOps<'_, Self>> {
        Some(self)
    }
}

impl<R: Run> HostIoOpen for Served<R> {
    fn open(
        &mut self,
        filename: &[u8],
        flags: HostIoOpenFlags,
        _mode: HostIoOpenMode,
    ) -> HostIoResult<u32, Self> {
        let writes = HostIoOpenFlags::O_WRONLY
            | HostIoOpenFlags::O_RDWR
            | HostIoOpenFlags::O_CREAT
            | HostIoOpenFlags::O_TRUNC;
        if flags.intersects(writes) {
            return errno(HostIoErrno::EROFS);
        }
        if self.files.open.len() >= MAX_OPEN {
            return errno(HostIoErrno::EMFILE);
        }
        let Some(file) = self.session.run().file(Path::new(OsStr::from_bytes(filename))) else {
            return errno(HostIoErrno::ENOENT);
        };
        let fd = self.files.next;
        self.files.next = fd.wrapping_add(1) & 0x7fff_ffff;
        self.files.open.insert(fd, file);
        Ok(fd)
    }
}

impl<R: Run> HostIoClose for Served<R> {
    fn close(&mut self, fd: u32) -> HostIoResult<(), Self> {
        match self.files.open.remove(&fd) {
            Some(_) => Ok(()),
            None => errno(HostIoErrno::EBADF),
        }
    }
}

impl<R: Run> HostIoPread for Served<R> {
    fn pread(
        &mut self,
        fd: u32,
        count: usize,
        offset: u64,
        buf: &mut [u8],
    ) -> HostIoResult<usize, Self> {
        let Some(file) = self.files.open.get(&fd) else { return errno(HostIoErrno::EBADF) };
        let count = count.min(buf.len());
        Ok(file.read_at(offset, &mut buf[..count]))
    }
}

impl<R: Run> HostIoFstat for Served<R> {
    fn fstat(&mut self, fd: u32) -> HostIoResult<HostIoStat, Self> {
        let Some(file) = self.files.open.get(&fd) else { return errno(HostIoErrno::EBADF) };
        let size = file.size_bytes();
        Ok(HostIoStat {
            st_dev: 0,
            st_ino: 0,
            st_mode: HostIoOpenMode::S_IFREG | HostIoOpenMode::S_IRUSR,
            st_nlink: 1,
            st_uid: 0,
            st_gid: 0,
            st_rdev: 0,
            st_size: size,
            st_blksize: 4096,
            st_blocks: size.div_ceil(512),
            st_atime: 0,
            st_mtime: 0,
            st_ctime: 0,
        })
    }
}

impl<R: Run> HostIoReadlink for Served<R> {
    fn readlink(&mut self, filename: &[u8], buf: &mut [u8]) -> HostIoResult<usize, Self> {
        let Some(target) = self.session.run().link(Path::new(OsStr::from_bytes(filename))) else {
            return errno(HostIoErrno::ENOENT);
        };
        let target = target.as_os_str().as_bytes();
        let Some(room) = buf.get_mut(..target.len()) else {
            return errno(HostIoErrno::ENAMETOOLONG);
        };
        room.copy_from_slice(target);
        Ok(target.len())
    }
}

impl<R: Run> HostIoSetfs for Served<R> {
    // The files of the recording are the same for all processes.
    fn setfs(&mut self, _fs: FsKind) -> HostIoResult<(), Self> {
        Ok(())
    }
}
