//! The sideband of a thread: a perf event that counts nothing, for the kernel's records of
//! mappings, names and context switches.

use super::clock::{PerfTime, Readings};
use super::event::{Event, EventAttr, Mapped, SAMPLE, flag};
use super::ring::{Completeness, DataRing, MappedRing};
use crate::capture::perf_error::Error;
use crate::common::Tid;
use crate::sideband::perf_data::{PerfRecord, PerfRecords};
use nix::errno::Errno;
use std::sync::Arc;

/// `PERF_TYPE_SOFTWARE`.
const SOFTWARE: u32 = 1;
/// `PERF_COUNT_SW_DUMMY`.
const DUMMY: u64 = 9;
/// The number of pages of the ring of records: enough for some thousand switches.
const PAGES: usize = 16;

/// The open sideband event of a thread, with its ring of records.
#[derive(Debug)]
pub(super) struct Sideband {
    _event: Event,
    ring: DataRing<MappedRing>,
    records: PerfRecords,
}

/// The attributes of sideband events on this kernel.
#[derive(Clone, Copy, Debug)]
pub(super) struct SidebandAttr {
    attr: EventAttr,
}

impl SidebandAttr {
    /// Opens an event of this thread, to find the attributes that the kernel supports, and the
    /// clock of its records.
    pub(super) fn probe() -> Result<(Self, PerfTime), Error> {
        let flags = flag::EXCLUDE_KERNEL
            | flag::EXCLUDE_HV
            | flag::MMAP
            | flag::MMAP2
            | flag::COMM
            | flag::COMM_EXEC
            | flag::TASK
            | flag::WATERMARK
            | flag::SAMPLE_ID_ALL
            | flag::CONTEXT_SWITCH;
        let attr = EventAttr {
            kind: SOFTWARE,
            config: DUMMY,
            sample_type: SAMPLE,
            flags: flags | flag::BUILD_ID,
            wakeup_watermark: 1 << 14,
            ..EventAttr::default()
        };
        // Kernels before 5.12 report no build IDs.
        let without = EventAttr { flags, ..attr };
        let (attr, event) = match Event::open(&attr, Tid(0)) {
            Err(Error::Open { errno: Errno::EINVAL, .. }) => {
                (without, Event::open(&without, Tid(0))?)
            }
            event => (attr, event?),
        };
        let ring: Arc<Mapped> = event.map(1)?;
        if let Some(clock) = ring.clock() {
            return Ok((Self { attr }, PerfTime::Known(clock)));
        }
        let flags = attr.flags | flag::USE_CLOCKID;
        let attr = EventAttr { flags, clockid: libc::CLOCK_MONOTONIC_RAW, ..attr };
        Ok((Self { attr }, PerfTime::Raw(Readings::begin())))
    }

    /// Opens the sideband of a thread, which reports from now on.
    pub(super) fn open(&self, tid: Tid) -> Result<Sideband, Error> {
        let event = Event::open(&self.attr, tid)?;
        let ring = event.map(PAGES)?;
        let records = PerfRecords::of(&self.attr.readable());
        Ok(Sideband { ring: DataRing::new(ring.records()), _event: event, records })
    }
}

/// The records of one reading of a sideband.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SidebandRecords {
    pub(super) records: Vec<PerfRecord>,
    /// True if records may be missing.
    pub(super) may_lack_records: bool,
}

impl Sideband {
    /// Reads the records since the last call.
    pub(super) fn read(&mut self) -> SidebandRecords {
        let mut read = SidebandRecords::default();
        let Self { ring, records, .. } = self;
        let mut damaged = false;
        let seen = ring.read(&mut |bytes| match records.parse(bytes) {
            Ok(record) => read.records.extend(record),
            Err(_) => damaged = true,
        });
        // With little room left, the kernel may have dropped records after the last one.
        read.may_lack_records = damaged || seen == Completeness::MayLackRecords;
        read
    }
}
