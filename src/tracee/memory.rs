//! A traced process's memory, through `/proc/PID/mem` (proc(5)). As ptrace does, it ignores page
//! protection.

use super::error::Error;
use super::procfs::live_thread_dir;
use crate::common::{Addr, Pid};
use std::fs::File;
use std::os::unix::fs::FileExt;

/// The memory of one program image. Must be reopened after an exec.
#[derive(Debug)]
pub struct Memory {
    file: File,
}

impl Memory {
    /// Opens the memory of a process, to read and write. Fails if the process is gone, or the
    /// kernel does not allow this process to trace it.
    pub fn open(pid: Pid) -> Result<Self, Error> {
        let path = live_thread_dir(pid).join("mem");
        let file = File::options().read(true).write(true).open(&path);
        Ok(Self { file: file.map_err(|error| Error::Proc { path, error })? })
    }

    /// Fills `buf` from the memory at `addr`, up to the first byte that cannot be read. Returns the
    /// number of bytes read, 0 if there are none, or the process has ended or executed another
    /// program.
    pub fn read(&self, addr: Addr, buf: &mut [u8]) -> usize {
        let mut done = 0;
        while done < buf.len() {
            let at = addr.wrapping_add(done as u64).0;
            match self.file.read_at(&mut buf[done..], at) {
                Ok(n) if n > 0 => done += n,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                _ => break,
            }
        }
        done
    }

    /// Writes all of the bytes, even to pages that the program cannot write to. After an error,
    /// some of them may be written.
    pub fn write(&self, addr: Addr, bytes: &[u8]) -> std::io::Result<()> {
        self.file.write_all_at(bytes, addr.0)
    }
}
