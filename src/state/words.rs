//! Numbers and texts out of memory of which parts may not be known.

use crate::common::Addr;

/// More entries of a table, and longer texts, than these are not believed.
pub(super) const LIMIT: usize = 4096;
const DT_NULL: u64 = 0;

/// Memory.
pub(super) struct Words<'a> {
    pub(super) read: &'a dyn Fn(Addr, &mut [u8]) -> usize,
}

impl Words<'_> {
    /// Eight bytes.
    pub(super) fn word(&self, at: Addr) -> Option<u64> {
        let mut bytes = [0; 8];
        ((self.read)(at, &mut bytes) == bytes.len()).then_some(u64::from_le_bytes(bytes))
    }

    /// Four bytes.
    pub(super) fn half(&self, at: Addr) -> Option<u32> {
        let mut bytes = [0; 4];
        ((self.read)(at, &mut bytes) == bytes.len()).then_some(u32::from_le_bytes(bytes))
    }

    /// A text up to its zero byte.
    pub(super) fn string(&self, at: Addr) -> String {
        let mut bytes = vec![0; LIMIT];
        let known = (self.read)(at, &mut bytes);
        let text = bytes[..known].split(|byte| *byte == 0).next().unwrap_or_default();
        String::from_utf8_lossy(text).into_owned()
    }

    /// The value of a tag in a dynamic section.
    pub(super) fn dynamic_entry(&self, dynamic: Addr, wanted: u64) -> Option<u64> {
        for i in 0..LIMIT as u64 {
            let entry = dynamic.wrapping_add(i * 16);
            match self.word(entry)? {
                DT_NULL => return None,
                tag if tag == wanted => return self.word(entry.wrapping_add(8)),
                _ => {}
            }
        }
        None
    }
}
