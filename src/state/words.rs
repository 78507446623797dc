//! Reads numbers and texts from memory that may be partly unknown.

use crate::common::Addr;

/// The maximum number of entries of a table, and of bytes of a text. More are taken as damage.
pub(super) const LIMIT: usize = 4096;
const DT_NULL: u64 = 0;

/// Memory with unknown parts.
pub(super) struct Words<'a> {
    /// Copies the known bytes from an address on, and returns their number.
    pub(super) read: &'a dyn Fn(Addr, &mut [u8]) -> usize,
}

impl Words<'_> {
    /// Reads the eight bytes at `at` as a number; `None` if not all are known.
    pub(super) fn u64_at(&self, at: Addr) -> Option<u64> {
        let mut bytes = [0; 8];
        ((self.read)(at, &mut bytes) == bytes.len()).then_some(u64::from_le_bytes(bytes))
    }

    /// Reads the four bytes at `at` as a number; `None` if not all are known.
    pub(super) fn u32_at(&self, at: Addr) -> Option<u32> {
        let mut bytes = [0; 4];
        ((self.read)(at, &mut bytes) == bytes.len()).then_some(u32::from_le_bytes(bytes))
    }

    /// Reads the two bytes at `at` as a number; `None` if not all are known.
    pub(super) fn u16_at(&self, at: Addr) -> Option<u16> {
        let mut bytes = [0; 2];
        ((self.read)(at, &mut bytes) == bytes.len()).then_some(u16::from_le_bytes(bytes))
    }

    /// Reads a text up to its zero byte, the first unknown byte, or [`LIMIT`]; so it is empty if
    /// nothing is known. Replaces bytes that are not UTF-8.
    pub(super) fn string(&self, at: Addr) -> String {
        let mut bytes = vec![0; LIMIT];
        let known = (self.read)(at, &mut bytes);
        let text = bytes[..known].split(|byte| *byte == 0).next().unwrap_or_default();
        String::from_utf8_lossy(text).into_owned()
    }

    /// Returns the value of the first entry with tag `wanted` in a dynamic section; `None` if there
    /// is none among the first [`LIMIT`], or if it or an entry before it is unknown.
    pub(super) fn dynamic_entry(&self, dynamic: Addr, wanted: u64) -> Option<u64> {
        for i in 0..LIMIT as u64 {
            let entry = dynamic.wrapping_add(i * 16);
            match self.u64_at(entry)? {
                DT_NULL => return None,
                tag if tag == wanted => return self.u64_at(entry.wrapping_add(8)),
                _ => {}
            }
        }
        None
    }
}
