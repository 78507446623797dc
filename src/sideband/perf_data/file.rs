//! A whole perf.data file: with a file header and features, or as written to a pipe.

use super::attr::{Attr, Trailers, parse_ids};
use super::aux::{AuxInfo, AuxTrace};
use super::compressed::decompress;
use super::fields::{BadPerfData, Fields, part};
use super::header::{BuildId, FileHeader, build_ids, sized_text};
use super::numbers::{
    AUXTRACE_INTEL_PT, FEATURE_BUILD_ID, FEATURE_CPUID, MAGIC, PIPE_HEADER_BYTES, RECORD_AUXTRACE,
    RECORD_AUXTRACE_INFO, RECORD_COMPRESSED, RECORD_COMPRESSED2, RECORD_HEADER_ATTR,
    RECORD_HEADER_BUILD_ID, RECORD_HEADER_BYTES, RECORD_HEADER_FEATURE, RECORD_HEADER_TRACING_DATA,
    SWAPPED_MAGIC,
};
use super::record::{self, PerfRecord};

/// The contents of a perf.data file that concern control flow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PerfData {
    /// The attributes of the events.
    pub attrs: Vec<Attr>,
    /// Records of the operating system's actions, in the order of the file; those that are
    /// compressed there come last.
    pub records: Vec<PerfRecord>,
    /// The Intel PT settings of the AUX areas, if there are any.
    pub aux_info: Option<AuxInfo>,
    /// The pieces of the AUX areas, in the order of the file.
    pub aux_traces: Vec<AuxTrace>,
    /// Build ids of programs and libraries.
    pub build_ids: Vec<BuildId>,
    /// The CPU, as perf's `cpuid` string: vendor, family, model, stepping, separated by commas.
    pub cpuid: Option<String>,
}

impl PerfData {
    /// Parses a perf.data file, with a file header or as written to a pipe. Refuses one of the
    /// other byte order.
    pub fn parse(file: &[u8]) -> Result<Self, BadPerfData> {
        let bad = |offset, what| BadPerfData { offset, what };
        if file.starts_with(SWAPPED_MAGIC) {
            return Err(bad(0, "the file is from a machine of the other byte order"));
        }
        if !file.starts_with(MAGIC) {
            return Err(bad(0, "the file does not start like perf.data"));
        }
        let size = file.get(8..16).and_then(|size| size.first_chunk().copied());
        let size = size.map(u64::from_le_bytes).ok_or(bad(8, "the header is cut off"))?;
        let mut parser = Parser { file, ..Parser::default() };
        if size == PIPE_HEADER_BYTES {
            parser.parse_records(PIPE_HEADER_BYTES, file.len() as u64)?;
        } else {
            let header = FileHeader::parse(file)?;
            parser.data.attrs = header.attrs;
            parser.trailers = Trailers::of(&parser.data.attrs);
            parser.parse_records(header.data.0, header.data.1)?;
            for (number, offset, size) in header.features {
                let section = part(file, offset, size, "a feature reaches past the end")?;
                parser.parse_feature(number, offset, section)?;
            }
        }
        parser.parse_compressed()?;
        Ok(parser.data)
    }
}

/// The state of parsing a file.
#[derive(Default)]
struct Parser<'a> {
    file: &'a [u8],
    /// The result so far.
    data: PerfData,
    trailers: Trailers,
    /// The compressed data, with the offsets of their records.
    compressed: Vec<(u64, &'a [u8])>,
}

impl<'a> Parser<'a> {
    /// Parses the records from one file offset to another.
    fn parse_records(&mut self, start: u64, end: u64) -> Result<(), BadPerfData> {
        let mut at = usize::try_from(start).unwrap_or(usize::MAX);
        let end = usize::try_from(end).unwrap_or(usize::MAX);
        while at < end {
            let offset = at as u64;
            let rest = self.file.get(at..end).unwrap_or_default();
            let what = "a record is cut off, or has a wrong size";
            let record = first_record(rest).ok_or(BadPerfData { offset, what })?;
            let following = self.parse_record(at, record).ok_or(BadPerfData {
                offset,
                what: "a record is damaged: it is shorter than its kind",
            })?;
            at = at.saturating_add(record.len());
            let what = "the bytes of an AUX area reach past the end";
            let fits = usize::try_from(following).ok().filter(|following| *following <= end - at);
            at += fits.ok_or(BadPerfData { offset, what })?;
        }
        Ok(())
    }

    /// Parses the record at file offset `at`, and adds its contents to the result. Returns the
    /// number of bytes after it that are not records; `None` if the record is damaged. Compressed
    /// data are only collected.
    fn parse_record(&mut self, at: usize, record: &'a [u8]) -> Option<u64> {
        let offset = at as u64;
        let mut fields = Fields::new(record);
        let (kind, _misc, _size) = (fields.u32()?, fields.u16()?, fields.u16()?);
        match kind {
            RECORD_HEADER_ATTR => {
                // The attribute's second word is its own size; the ids follow it.
                let size = usize::try_from(Fields::new(fields.rest().get(4..)?).u32()?).ok()?;
                let attr = fields.take(size)?;
                self.data.attrs.push(Attr::parse(attr, parse_ids(fields.rest()))?);
                self.trailers = Trailers::of(&self.data.attrs);
            }
            RECORD_HEADER_TRACING_DATA => {
                return Some(u64::from(fields.u32()?).next_multiple_of(8));
            }
            RECORD_HEADER_BUILD_ID => {
                let (build_id, of_user) = BuildId::parse(record)?;
                self.data.build_ids.extend(Some(build_id).filter(|_| of_user));
            }
            RECORD_HEADER_FEATURE => {
                let number = u32::try_from(fields.u64()?).ok()?;
                self.parse_feature(number, offset, fields.rest()).ok()?;
            }
            RECORD_AUXTRACE_INFO => {
                let (kind, _) = (fields.u32()?, fields.u32()?);
                if kind == AUXTRACE_INTEL_PT {
                    self.data.aux_info = Some(AuxInfo::parse(fields)?);
                }
            }
            RECORD_AUXTRACE => {
                let trace = AuxTrace::parse(offset, at.checked_add(record.len())?, fields)?;
                self.data.aux_traces.push(trace);
                return Some(trace.size_bytes as u64);
            }
            RECORD_COMPRESSED => self.compressed.push((offset, fields.rest())),
            RECORD_COMPRESSED2 => {
                let size = usize::try_from(fields.u64()?).ok()?;
                self.compressed.push((offset, fields.take(size)?));
            }
            _ => self.data.records.extend(record::parse(offset, record, &self.trailers).ok()?),
        }
        Some(0)
    }

    /// Parses the feature section at `offset` of the file, and adds it to the result. Ignores
    /// irrelevant features.
    fn parse_feature(
        &mut self,
        number: u32,
        offset: u64,
        section: &[u8],
    ) -> Result<(), BadPerfData> {
        match number {
            FEATURE_BUILD_ID => self.data.build_ids.extend(build_ids(offset, section)?),
            FEATURE_CPUID => {
                let what = "the CPU's name is cut off";
                let cpuid = sized_text(section).ok_or(BadPerfData { offset, what })?;
                self.data.cpuid = Some(cpuid);
            }
            _ => {}
        }
        Ok(())
    }

    /// Parses the records in all compressed data, and adds them to the result. Each gets the file
    /// offset of the first compressed record.
    fn parse_compressed(&mut self) -> Result<(), BadPerfData> {
        let Some((offset, _)) = self.compressed.first().copied() else { return Ok(()) };
        let bad = |what| BadPerfData { offset, what };
        let mut buffer: Vec<u8> = Vec::new();
        let (records, trailers) = (&mut self.data.records, &self.trailers);
        decompress(&self.compressed, self.file.len(), &mut |bytes| {
            buffer.extend_from_slice(bytes);
            let mut at = 0;
            while let Some(rest) = buffer.get(at..).filter(|rest| rest.len() >= RECORD_HEADER_BYTES)
            {
                let Some(record) = first_record(rest) else {
                    let size = declared_size(rest).unwrap_or(0);
                    // The rest of the record is in a later piece.
                    if size >= RECORD_HEADER_BYTES {
                        break;
                    }
                    return Err(bad("a compressed record has a wrong size"));
                };
                let parsed = record::parse(offset, record, trailers);
                records.extend(parsed.map_err(|_| bad("a compressed record is damaged"))?);
                at += record.len();
            }
            buffer.drain(..at);
            Ok(())
        })?;
        if buffer.is_empty() { Ok(()) } else { Err(bad("the last compressed record is cut off")) }
    }
}

/// Returns the size that the record at the start of `bytes` declares; `None` if that is cut off.
fn declared_size(bytes: &[u8]) -> Option<usize> {
    Some(usize::from(u16::from_le_bytes(*bytes.get(6..8)?.first_chunk()?)))
}

/// Returns the record at the start of `bytes`; `None` if it is cut off or has a wrong size.
fn first_record(bytes: &[u8]) -> Option<&[u8]> {
    let size = declared_size(bytes)?;
    bytes.get(..size).filter(|_| size >= RECORD_HEADER_BYTES)
}
