//! Reads consecutive little-endian numbers and texts, and reports errors with their offset.

/// A fault in a perf.data file, and its offset.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("at offset {offset:#x}: {what}")]
pub struct BadPerfData {
    /// The file offset in bytes; for compressed data, that of the compressed record.
    pub offset: u64,
    /// The fault.
    pub what: &'static str,
}

/// The unread bytes of a slice.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    /// Creates a reader at the start of `bytes`.
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Returns the unread bytes, and leaves them unread.
    pub(super) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Reads `size_bytes` bytes; `None`, and reads none, if there are fewer.
    pub(super) fn take(&mut self, size_bytes: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(size_bytes)?;
        self.rest = rest;
        Some(taken)
    }

    pub(super) fn u8(&mut self) -> Option<u8> {
        self.take(1)?.first().copied()
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        Some(u16::from_le_bytes(*self.take(2)?.first_chunk()?))
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(*self.take(4)?.first_chunk()?))
    }

    pub(super) fn i32(&mut self) -> Option<i32> {
        Some(i32::from_le_bytes(*self.take(4)?.first_chunk()?))
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(*self.take(8)?.first_chunk()?))
    }

    /// Returns the unread text up to its first NUL, and leaves it unread; `None` without a NUL.
    /// Replaces what is not UTF-8.
    pub(super) fn text(&self) -> Option<String> {
        let end = self.rest.iter().position(|byte| *byte == 0)?;
        Some(String::from_utf8_lossy(self.rest.get(..end)?).into_owned())
    }
}

/// Returns `size_bytes` bytes of a file from `offset` on. If the file is too short, fails with the
/// text `what`, at `offset` or the file's end.
pub(super) fn part<'a>(
    file: &'a [u8],
    offset: u64,
    size_bytes: u64,
    what: &'static str,
) -> Result<&'a [u8], BadPerfData> {
    let bad = BadPerfData { offset: offset.min(file.len() as u64), what };
    let end = offset.checked_add(size_bytes).ok_or_else(|| bad.clone())?;
    let range = usize::try_from(offset).ok().zip(usize::try_from(end).ok());
    range.and_then(|(start, end)| file.get(start..end)).ok_or(bad)
}
