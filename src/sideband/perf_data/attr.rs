//! The attributes of events (`struct perf_event_attr`), and the trailer of their records: thread,
//! time and CPU (`struct sample_id` of `perf_event_open(2)`).

use super::fields::Fields;
use super::numbers::{
    ATTR_EXCLUDE_KERNEL, ATTR_SAMPLE_ID_ALL, SAMPLE_CPU, SAMPLE_ID, SAMPLE_IDENTIFIER,
    SAMPLE_STREAM_ID, SAMPLE_TID, SAMPLE_TIME,
};
use crate::common::{Pid, Tid};

/// The attributes of an event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attr {
    /// The number of the PMU.
    pub pmu: u32,
    /// The PMU's configuration for the event.
    pub config: u64,
    /// The bits `PERF_SAMPLE_*`: the fields of samples and of trailers.
    pub sample_type: u64,
    /// The flag bits of the attributes.
    pub flags: u64,
    /// The ids of the event's instances, such as one for each CPU.
    pub ids: Vec<u64>,
}

/// The size of the first version of the structure.
const FIRST_VERSION_BYTES: usize = 64;

impl Attr {
    /// Returns true if the event excludes the kernel: its trace has only code of user space.
    #[must_use]
    pub fn excludes_kernel(&self) -> bool {
        self.flags & ATTR_EXCLUDE_KERNEL != 0
    }

    /// Parses a `struct perf_event_attr` of any version, whose event has these ids; `None` if it is
    /// cut off.
    pub(super) fn parse(bytes: &[u8], ids: Vec<u64>) -> Option<Self> {
        let mut fields = Fields::new(bytes.get(..FIRST_VERSION_BYTES).map(|_| bytes)?);
        let (pmu, _size, config) = (fields.u32()?, fields.u32()?, fields.u64()?);
        let (_period, sample_type) = (fields.u64()?, fields.u64()?);
        let (_read_format, flags) = (fields.u64()?, fields.u64()?);
        Some(Self { pmu, config, sample_type, flags, ids })
    }
}

/// Parses the ids of an event, little-endian numbers of 8 bytes each. Ignores a shorter rest.
pub(super) fn parse_ids(bytes: &[u8]) -> Vec<u64> {
    let number = |bytes: &[u8]| bytes.first_chunk().copied().map(u64::from_le_bytes);
    bytes.chunks_exact(8).filter_map(number).collect()
}

/// The task, time and CPU of a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SampleId {
    /// The process and thread.
    pub task: Option<(Pid, Tid)>,
    /// Nanoseconds of perf's clock. `None` if perf synthesized the record for the state before it
    /// started.
    pub time_ns: Option<u64>,
    /// The CPU; `None` if unknown, as for records that perf synthesized.
    pub cpu: Option<u32>,
}

/// The trailer format of an event's records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Trailer {
    /// The bits `PERF_SAMPLE_*` of the fields in the trailer.
    sample_type: u64,
}

const IN_TRAILER: u64 =
    SAMPLE_TID | SAMPLE_TIME | SAMPLE_ID | SAMPLE_STREAM_ID | SAMPLE_CPU | SAMPLE_IDENTIFIER;

impl Trailer {
    /// Returns the trailer format of an event; an empty one if its records have no trailers.
    pub(super) fn of(attr: &Attr) -> Self {
        let all = attr.flags & ATTR_SAMPLE_ID_ALL != 0;
        Self { sample_type: if all { attr.sample_type & IN_TRAILER } else { 0 } }
    }

    /// Returns the size of each trailer.
    pub(super) fn size_bytes(self) -> usize {
        8 * usize::try_from(self.sample_type.count_ones()).unwrap_or(0)
    }

    /// Returns true if each trailer ends with the id of its event.
    pub(super) fn has_identifier(self) -> bool {
        self.sample_type & SAMPLE_IDENTIFIER != 0
    }

    /// Splits the trailer off the end of a record. Returns the rest, and the decoded trailer;
    /// `None` if the record is too short.
    pub(super) fn split(self, record: &[u8]) -> Option<(&[u8], SampleId)> {
        let (body, end) = record.split_at_checked(record.len().checked_sub(self.size_bytes())?)?;
        let mut fields = Fields::new(end);
        let mut id = SampleId::default();
        let has = |bit| self.sample_type & bit != 0;
        if has(SAMPLE_TID) {
            id.task = Some((Pid(fields.i32()?), Tid(fields.i32()?)));
        }
        if has(SAMPLE_TIME) {
            id.time_ns = Some(fields.u64()?).filter(|time_ns| *time_ns != 0);
        }
        for _ in [SAMPLE_ID, SAMPLE_STREAM_ID].into_iter().filter(|bit| has(*bit)) {
            fields.u64()?;
        }
        if has(SAMPLE_CPU) {
            // perf's synthesized records belong to no CPU and have -1.
            id.cpu = Some(fields.u32()?).filter(|cpu| *cpu != u32::MAX);
        }
        Some((body, id))
    }
}

/// The trailer formats of records, by the ids of their events.
#[derive(Clone, Debug, Default)]
pub(super) struct Trailers {
    /// Empty if all formats are alike.
    by_id: std::collections::HashMap<u64, Trailer>,
    /// The format of the first event's records.
    first: Trailer,
    /// True if the records of all events have the same trailer format.
    alike: bool,
}

impl Trailers {
    /// Collects the trailer formats of the records of these events.
    pub(super) fn of(attrs: &[Attr]) -> Self {
        let first = attrs.first().map(Trailer::of).unwrap_or_default();
        let alike = attrs.iter().all(|attr| Trailer::of(attr) == first);
        let ids = |attr: &Attr| {
            let trailer = Trailer::of(attr);
            attr.ids.iter().map(move |id| (*id, trailer)).collect::<Vec<_>>()
        };
        let by_id = if alike { Vec::new() } else { attrs.iter().flat_map(ids).collect() };
        Self { by_id: by_id.into_iter().collect(), first, alike }
    }

    /// Returns the trailer format of a record, by the event id in its last 8 bytes if there is one;
    /// otherwise, and for an unknown id, that of the first event.
    pub(super) fn of_record(&self, record: &[u8]) -> Trailer {
        if self.alike || !self.first.has_identifier() {
            return self.first;
        }
        let id = record.last_chunk().copied().map(u64::from_le_bytes);
        id.and_then(|id| self.by_id.get(&id).copied()).unwrap_or(self.first)
    }
}
