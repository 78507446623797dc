//! Contents of files that belong to a recording. This module opens no files.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// The contents of a file, read at offsets.
pub trait FileBytes {
    /// Returns the file's size in bytes.
    fn size_bytes(&self) -> u64;

    /// Reads into `buf` at `offset` and returns the bytes read. An error counts as the end.
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
