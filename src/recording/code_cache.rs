//! Translated code that earlier runs left in a store, one file for each program. A run of the same
//! program begins with the code that is translated already. The content is the caller's; here it is
//! a description and a sequence of bytes.

use super::cache;
use super::chunk::{FrameReader, frame_header};
use super::hexadecimal::hexadecimal;
use super::regular::{Links, open_regular};
use super::store::Store;
use sha2::{Digest, Sha256};
use std::fs;
use std::io::Read;
use std::path::PathBuf;

/// The maximum number of caches, and the maximum size of one and of all in bytes.
const COUNT_LIMIT: usize = 256;
const SIZE_LIMIT_BYTES: u64 = 128 << 20;
const TOTAL_LIMIT_BYTES: u64 = 1 << 30;
/// The code is written in parts of this size, each with its checksum.
const PART_BYTES: usize = 128 << 10;

/// The file of a program's code cache in a store, which need not exist.
#[derive(Clone, Debug)]
pub struct CodeCache {
    path: PathBuf,
}

impl CodeCache {
    /// Returns the file for these facts, on which the code depends; `None` if the store's directory
    /// is unknown. Other facts, or another order of them, have another file. Opens nothing.
    pub fn of(store: &Store, facts: &[&[u8]]) -> Option<Self> {
        let mut digest = Sha256::new();
        for fact in facts {
            digest.update((fact.len() as u64).to_le_bytes());
            digest.update(fact);
        }
        let name = hexadecimal(&digest.finalize());
        Some(Self { path: cache::directory(store, "translated")?.join(name) })
    }

    /// Opens the cache. Returns its description, and a reader of its code; `None` if there is no
    /// cache, or if its description is damaged. Reading damaged code, or more than there is, fails.
    pub fn open(&self) -> Option<(Vec<u8>, impl Read + use<>)> {
        let mut reader = FrameReader::new(open_regular(&self.path, Links::Refuse).ok()?);
        Some((reader.next_payload().ok()?, reader))
    }

    /// Writes or replaces the cache, with a description and code. Writes nothing if they have more
    /// than `SIZE_LIMIT_BYTES`. Ignores errors, which only make the next run slower.
    pub fn write(&self, description: &[u8], code: &[u8]) {
        if (description.len() + code.len()) as u64 > SIZE_LIMIT_BYTES {
            return;
        }
        let payloads: Vec<&[u8]> =
            std::iter::once(description).chain(code.chunks(PART_BYTES)).collect();
        let headers: Vec<_> = payloads.iter().map(|payload| frame_header(payload)).collect();
        let parts: Vec<&[u8]> = headers
            .iter()
            .zip(&payloads)
            .flat_map(|(header, payload)| [header, *payload])
            .collect();
        let limits = cache::Limits { files: COUNT_LIMIT, bytes: TOTAL_LIMIT_BYTES };
        let _ = cache::write_parts(&self.path, &parts, limits);
    }

    /// Removes the cache, so that the next run begins a new one.
    pub fn remove(&self) {
        let _ = fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn caches_come_back_whole_or_not_at_all() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::new(dir.path().join("s"));
        let cache = CodeCache::of(&store, &[b"program", b"build"]).unwrap();
        assert_ne!(cache.path, CodeCache::of(&store, &[b"programb", b"uild"]).unwrap().path);
        let read = || {
            let (description, mut code) = cache.open()?;
            let mut bytes = vec![0; 300_000];
            code.read_exact(&mut bytes).ok()?;
            Some((description, bytes))
        };
        assert!(read().is_none());
        for code in [vec![7; 300_000], (0..300_000_u32).map(|n| n.to_le_bytes()[0]).collect()] {
            cache.write(b"what it is", &code);
            assert_eq!(read(), Some((b"what it is".to_vec(), code)));
        }
        let path = &cache.path;
        let bytes = fs::read(path).unwrap();
        for at in (0..bytes.len()).step_by(997).chain(0..40) {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            fs::write(path, changed).unwrap();
            assert!(read().is_none(), "byte {at}");
            fs::write(path, &bytes[..at]).unwrap();
            assert!(read().is_none(), "cut at {at}");
        }
        cache.remove();
        assert!(!path.exists());
    }
}
