//! The parts around the records: the file header, the feature sections, and build ids.

use super::attr::{Attr, parse_ids};
use super::fields::{BadPerfData, Fields, part};
use super::numbers::{
    FEATURES, FILE_HEADER_BYTES, MISC_BUILD_ID_SIZE, MISC_USER, RECORD_HEADER_BYTES,
};

/// The build id of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuildId {
    /// The build id.
    pub id: Vec<u8>,
    /// The file's path, or a name given by the kernel.
    pub name: String,
}

const BUILD_ID_BYTES: usize = 20;

impl BuildId {
    /// Parses the `HEADER_BUILD_ID` record in `bytes`, including its header. Also returns true if
    /// the file is one of user space, not the kernel's. `None` if the record is cut off.
    pub(super) fn parse(bytes: &[u8]) -> Option<(Self, bool)> {
        let mut fields = Fields::new(bytes);
        let (_kind, misc, _size) = (fields.u32()?, fields.u16()?, fields.u16()?);
        let _pid = fields.i32()?;
        let mut id = fields.take(BUILD_ID_BYTES)?;
        let size = usize::from(fields.u8()?);
        fields.take(3)?;
        if misc & MISC_BUILD_ID_SIZE != 0 {
            id = id.get(..size)?;
        }
        let of_user = misc & 7 == MISC_USER;
        Some((Self { id: id.to_vec(), name: fields.text()? }, of_user))
    }
}

/// The header of a file that was not written to a pipe.
pub(super) struct FileHeader {
    pub(super) attrs: Vec<Attr>,
    /// The offsets of the start and the end of the records.
    pub(super) data: (u64, u64),
    /// The number, offset and size of each feature's section.
    pub(super) features: Vec<(u32, u64, u64)>,
}

impl FileHeader {
    /// Parses the header, and the attributes and the table of features that it refers to. If perf
    /// was killed, the records reach to the end of the file, and there are no features.
    pub(super) fn parse(file: &[u8]) -> Result<Self, BadPerfData> {
        let bytes = part(file, 0, FILE_HEADER_BYTES, "the header is cut off")?;
        let mut fields = Fields::new(bytes);
        let mut next = || fields.u64().unwrap_or(0);
        let (_magic, _size, attr_size) = (next(), next(), next());
        let (attrs, data, _types) = ((next(), next()), (next(), next()), (next(), next()));
        let bits = [next(), next(), next(), next()];
        // If the recorder was killed, the size of the records is still 0, and there are no
        // features.
        let size = file.len() as u64;
        let unfinished = data.1 == 0;
        let end = if unfinished { Some(size) } else { data.0.checked_add(data.1) };
        let end = end.filter(|end| data.0 <= *end && *end <= size);
        let end = end.ok_or(BadPerfData { offset: 40, what: "the records reach past the end" })?;
        let attrs = parse_attrs(file, attrs, attr_size)?;
        let features = if unfinished { Vec::new() } else { parse_features(file, end, bits)? };
        Ok(Self { attrs, data: (data.0, end), features })
    }
}

/// Parses the section of attributes at `offset`: entries of `attr_size` bytes, each of which ends
/// with the position of its event's ids in the file. Ignores a shorter rest of the section. Fails
/// if an entry is too small, a part is outside the file, or the events have more bytes of ids than
/// the file has bytes.
fn parse_attrs(
    file: &[u8],
    (offset, size): (u64, u64),
    attr_size: u64,
) -> Result<Vec<Attr>, BadPerfData> {
    let bytes = part(file, offset, size, "the attributes reach past the end")?;
    let bad = |at: u64, what| BadPerfData { offset: offset + at, what };
    let entry = usize::try_from(attr_size).ok().filter(|size| *size >= 80);
    let entry =
        entry.ok_or(BadPerfData { offset: 16, what: "the attributes have a wrong size" })?;
    let mut attrs = Vec::new();
    let mut all_ids = 0;
    for (at, bytes) in (0_u64..).step_by(entry).zip(bytes.chunks_exact(entry)) {
        let (attr, ids) = bytes.split_at(entry - 16);
        let mut ids = Fields::new(ids);
        let (start, size) = (ids.u64().unwrap_or(0), ids.u64().unwrap_or(0));
        // A hostile file can refer to the same ids repeatedly, so that the events have more ids
        // than the file.
        all_ids += size.min(file.len() as u64 + 1);
        if all_ids > file.len() as u64 {
            return Err(bad(at, "the events have more ids than fit in the file"));
        }
        let ids = parse_ids(part(file, start, size, "the numbers of an event reach past the end")?);
        let attr = Attr::parse(attr, ids).ok_or_else(|| bad(at, "an attribute is cut off"))?;
        attrs.push(attr);
    }
    Ok(attrs)
}

/// Parses the table of features, which is at `end`, after the records, and has one entry for each
/// set bit. Returns the number, offset and size of each feature's section.
fn parse_features(
    file: &[u8],
    end: u64,
    bits: [u64; 4],
) -> Result<Vec<(u32, u64, u64)>, BadPerfData> {
    let is_set = |number: &u32| {
        let word = bits.get(*number as usize / 64).copied().unwrap_or(0);
        word >> (number % 64) & 1 != 0
    };
    let set: Vec<u32> = (0..FEATURES).filter(is_set).collect();
    let table = part(file, end, 16 * set.len() as u64, "the table of features is cut off")?;
    let mut fields = Fields::new(table);
    let mut next = || fields.u64().unwrap_or(0);
    let mut features = Vec::new();
    for number in set {
        let (offset, size) = (next(), next());
        part(file, offset, size, "a feature reaches past the end")?;
        features.push((number, offset, size));
    }
    Ok(features)
}

/// Parses a text preceded by its size, up to its first NUL; `None` if it is cut off or has no NUL.
pub(super) fn sized_text(bytes: &[u8]) -> Option<String> {
    let mut fields = Fields::new(bytes);
    let size = usize::try_from(fields.u32()?).ok()?;
    Fields::new(fields.take(size)?).text()
}

/// Parses the consecutive build id records in the section at `offset`. Skips those of the kernel.
/// Fails at the first damaged one.
pub(super) fn build_ids(offset: u64, section: &[u8]) -> Result<Vec<BuildId>, BadPerfData> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(rest) = section.get(at..).filter(|rest| !rest.is_empty()) {
        let bad = BadPerfData { offset: offset + at as u64, what: "a build id is damaged" };
        let size = rest.get(6..8).and_then(|size| size.first_chunk().copied());
        let size = size.map(u16::from_le_bytes).map_or(0, usize::from);
        let record = rest.get(..size).filter(|_| size >= RECORD_HEADER_BYTES);
        let record = record.ok_or_else(|| bad.clone())?;
        let (build_id, of_user) = BuildId::parse(record).ok_or(bad)?;
        found.extend(Some(build_id).filter(|_| of_user));
        at += size;
    }
    Ok(found)
}
