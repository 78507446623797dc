//! The contents of files of a run, such as its program and libraries, for debuggers that read them
//! through the session. This module opens no files.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// The contents of a file, read at offsets.
pub trait FileBytes {
    /// Returns the file's size in bytes; 0 if it is unknown.
    fn size_bytes(&self) -> u64;

    /// Reads from `offset` into `buf`, and returns the number of bytes read: fewer than `buf` has
    /// only at the end of the file. An error counts as the end.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> usize;
}

impl FileBytes for Arc<[u8]> {
    fn size_bytes(&self) -> u64 {
        self.len() as u64
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> usize {
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(self.len());
        let bytes = &self[start..];
        let count = bytes.len().min(buf.len());
        buf[..count].copy_from_slice(&bytes[..count]);
        count
    }
}

impl FileBytes for File {
    fn size_bytes(&self) -> u64 {
        self.metadata().map_or(0, |metadata| metadata.len())
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> usize {
        let mut done = 0;
        while done < buf.len() {
            match FileExt::read_at(self, &mut buf[done..], offset.saturating_add(done as u64)) {
                Ok(0) | Err(_) => break,
                Ok(count) => done += count,
            }
        }
        done
    }
}
