//! DWARF data for gimli: a window of shared bytes. Copies nothing from the file.

use crate::image::Bytes;
use gimli::{Error, LittleEndian, ReaderOffsetId, Result};
use std::borrow::Cow;
use std::ops::Range;

/// A window of shared bytes, little-endian as x86-64 is.
#[derive(Clone, Debug)]
pub(in crate::symbols) struct Data {
    bytes: Bytes,
    window: Range<usize>,
}

impl Data {
    /// Creates a reader of the `window` of `bytes`. A read past the window fails.
    pub(super) const fn new(bytes: Bytes, window: Range<usize>) -> Self {
        Self { bytes, window }
    }

    /// Returns the bytes of the window; none if it is not in `bytes`.
    fn slice(&self) -> &[u8] {
        self.bytes.get(self.window.clone()).unwrap_or_default()
    }

    /// Returns the offset in `bytes` of the end of the window's next `len` bytes; an error if it
    /// has fewer.
    fn end_of(&self, len: usize) -> Result<usize> {
        let end = self.window.start.checked_add(len).filter(|end| *end <= self.window.end);
        end.ok_or(Error::UnexpectedEof(gimli::Reader::offset_id(self)))
    }
}

impl gimli::Reader for Data {
    type Endian = LittleEndian;
    type Offset = usize;

    fn endian(&self) -> LittleEndian {
        LittleEndian
    }

    fn len(&self) -> usize {
        self.window.len()
    }

    fn empty(&mut self) {
        self.window.end = self.window.start;
    }

    fn truncate(&mut self, len: usize) -> Result<()> {
        self.window.end = self.end_of(len)?;
        Ok(())
    }

    fn offset_from(&self, base: &Self) -> usize {
        self.window.start.saturating_sub(base.window.start)
    }

    fn offset_id(&self) -> ReaderOffsetId {
        ReaderOffsetId(self.window.start as u64)
    }

    fn lookup_offset_id(&self, id: ReaderOffsetId) -> Option<usize> {
        let offset = usize::try_from(id.0).ok()?.checked_sub(self.window.start)?;
        (offset <= self.window.len()).then_some(offset)
    }

    fn find(&self, byte: u8) -> Result<usize> {
        let found = self.slice().iter().position(|each| *each == byte);
        found.ok_or(Error::UnexpectedEof(self.offset_id()))
    }

    fn skip(&mut self, len: usize) -> Result<()> {
        self.window.start = self.end_of(len)?;
        Ok(())
    }

    fn split(&mut self, len: usize) -> Result<Self> {
        let end = self.end_of(len)?;
        let split = Self { bytes: self.bytes.clone(), window: self.window.start..end };
        self.window.start = end;
        Ok(split)
    }

    fn to_slice(&self) -> Result<Cow<'_, [u8]>> {
        Ok(Cow::Borrowed(self.slice()))
    }

    fn to_string(&self) -> Result<Cow<'_, str>> {
        std::str::from_utf8(self.slice()).map(Cow::Borrowed).map_err(|_| Error::BadUtf8)
    }

    fn to_string_lossy(&self) -> Result<Cow<'_, str>> {
        Ok(String::from_utf8_lossy(self.slice()))
    }

    fn read_slice(&mut self, buf: &mut [u8]) -> Result<()> {
        let end = self.end_of(buf.len())?;
        match self.bytes.get(self.window.start..end) {
            Some(from) => buf.copy_from_slice(from),
            None => return Err(Error::UnexpectedEof(self.offset_id())),
        }
        self.window.start = end;
        Ok(())
    }
}
