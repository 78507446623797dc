//! The witness's file: states of a recorded run at some moments (`witness`).
//!
//! The file consists of moments, one after the other, in little-endian words of 8 bytes:
//!
//! 1. the entries of the log so far, the ticks of the thread since its last entry, its address,
//!    RCX, and its number
//! 2. the number of threads that are in the program; for each its number, its 27 general registers
//!    (`user_regs_struct`), the size of its extended state, and these bytes
//! 3. the number of ranges that the kernel may be writing now; for each its start and end
//! 4. the number of pages that were there at the moment before and are gone; for each its address
//! 5. the number of pages that are not as they were at the moment before; for each its address and
//!    its 4096 bytes

use super::effects::Pages;
use crate::capture::Error;
use crate::recording;
use std::collections::BTreeMap;
use std::fs::File;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// The witness's file, and the memory at its last moment.
#[derive(Debug)]
pub(super) struct Witness {
    pub(super) path: PathBuf,
    pub(super) file: BufWriter<File>,
    /// The writable memory at the last moment.
    pages: Pages,
    /// The state of the random numbers.
    random: u64,
}

impl Witness {
    /// Creates the file. An existing one is emptied.
    pub(super) fn create(path: &Path) -> Result<Self, Error> {
        let file = File::create(path).map_err(|error| write_error(path, error))?;
        let random = RandomState::new().build_hasher().finish();
        Ok(Self {
            path: path.to_owned(),
            file: BufWriter::new(file),
            pages: BTreeMap::new(),
            random,
        })
    }

    /// Returns a random number below `limit`, by xorshift.
    pub(super) fn below(&mut self, limit: u64) -> u64 {
        self.random |= u64::from(self.random == 0);
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 11) % limit.max(1)
    }

    /// Writes words to the file, in little-endian order.
    pub(super) fn write_words(&mut self, words: &[u64]) -> io::Result<()> {
        words.iter().try_for_each(|word| self.file.write_all(&word.to_le_bytes()))
    }

    /// Writes the end of a moment: the addresses of pages that are gone since the last moment, and
    /// the pages that changed. `pages` are all pages now. Flushes the file.
    pub(super) fn write_pages(&mut self, pages: Pages) -> io::Result<()> {
        let gone: Vec<u64> =
            self.pages.keys().filter(|page| !pages.contains_key(page)).copied().collect();
        self.write_words(&[gone.len() as u64])?;
        self.write_words(&gone)?;
        let before = std::mem::replace(&mut self.pages, pages);
        let changed: Vec<u64> = self
            .pages
            .iter()
            .filter(|(page, bytes)| before.get(page) != Some(bytes))
            .map(|(page, _)| *page)
            .collect();
        self.write_words(&[changed.len() as u64])?;
        for page in changed {
            self.write_words(&[page])?;
            self.file.write_all(&self.pages[&page][..])?;
        }
        self.file.flush()
    }
}

/// Returns the error of a write to the file at `path`.
pub(super) fn write_error(path: &Path, error: io::Error) -> recording::Error {
    recording::Error { path: path.to_owned(), kind: error.into() }
}
