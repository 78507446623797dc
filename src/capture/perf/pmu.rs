//! The source of threads' traces: the CPU's PMU through the kernel, or a model of one for tests.
//! The backend above the trait `Pmu` does not know which.

use super::config::Settings;
use super::event::{Event, EventAttr, PAGE_BYTES, SAMPLE, flag};
use super::ring::RingMemory;
use super::sysfs::PtPmu;
use crate::capture;
use crate::capture::perf_error::Error;
use crate::common::Tid;
use crate::recording::Hardware;
use crate::sideband::perf_data::PerfRecords;
use crate::tracee::{self, Signo, Stop, Tracee};
use std::fmt::Debug;
use std::sync::Arc;

/// The memory of a ring, of the kernel or of a model.
pub(super) type Memory = Box<dyn RingMemory + Send>;

/// The size and the kind of an AUX area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AuxArea {
    /// The size in bytes: a power of two of pages.
    pub(super) size_bytes: u64,
    /// True if the area is a ring that overwrites old bytes.
    pub(super) overwrites: bool,
}

/// A thread's perf event, with its ring and its AUX area.
#[derive(Debug)]
pub(super) struct TraceSource {
    /// The event's ring of records.
    pub(super) data: Memory,
    /// The event's AUX area.
    pub(super) aux: Memory,
    /// The parser of the records.
    pub(super) records: PerfRecords,
    /// The controls of the event.
    pub(super) control: Arc<dyn Control>,
    /// The size and the kind of the AUX area; smaller than requested if the kernel allows no more.
    pub(super) area: AuxArea,
}

/// The operations on a thread's perf event.
pub(super) trait Control: Debug + Send + Sync {
    /// Enables the event, so that it traces.
    fn enable(&self);
    /// Disables the event.
    fn disable(&self);
    /// Traces only the code of `filter`, which has the syntax of `PERF_EVENT_IOC_SET_FILTER`.
    fn set_filter(&self, filter: &str) -> Result<(), Error>;
    /// Waits until the watermark of unread bytes is reached, or for `timeout_ms` milliseconds.
    fn wait(&self, timeout_ms: i32);
}

/// A unit that traces threads: that of the CPU, or a model.
pub(super) trait Pmu: Debug {
    /// Returns the unit's configuration, for the manifest, and its PSB period in bytes of trace.
    fn hardware(&self) -> (Hardware, u32);

    /// Returns the number of ranges of code that a filter can have.
    fn filter_ranges(&self) -> usize;

    /// Opens a disabled event of a stopped thread, with an AUX area like `area`.
    fn open(&mut self, tid: Tid, area: AuxArea) -> Result<TraceSource, Error>;

    /// Resumes a thread with `signal` (0: none), up to its next system call if `to_call`.
    fn resume(
        &mut self,
        tracee: Tracee,
        signal: Signo,
        to_call: bool,
    ) -> Result<(), tracee::Error> {
        if to_call { tracee.resume_to_call(signal) } else { tracee.resume(signal) }
    }

    /// Single-steps a thread, with `signal` (0: none).
    fn step(&mut self, tracee: Tracee, signal: Signo) -> Result<(), tracee::Error> {
        tracee.step(signal)
    }

    /// Inspects a stop before it is handled. Returns true if it is one of the unit's own (a model
    /// steps threads), so that the caller must not handle it, and has to resume the thread.
    fn is_internal_stop(&mut self, tid: Tid, stop: Stop) -> Result<bool, capture::Error>;
}

impl<P: Pmu + ?Sized> Pmu for &mut P {
    fn hardware(&self) -> (Hardware, u32) {
        (**self).hardware()
    }

    fn filter_ranges(&self) -> usize {
        (**self).filter_ranges()
    }

    fn open(&mut self, tid: Tid, area: AuxArea) -> Result<TraceSource, Error> {
        (**self).open(tid, area)
    }

    fn resume(
        &mut self,
        tracee: Tracee,
        signal: Signo,
        to_call: bool,
    ) -> Result<(), tracee::Error> {
        (**self).resume(tracee, signal, to_call)
    }

    fn step(&mut self, tracee: Tracee, signal: Signo) -> Result<(), tracee::Error> {
        (**self).step(tracee, signal)
    }

    fn is_internal_stop(&mut self, tid: Tid, stop: Stop) -> Result<bool, capture::Error> {
        (**self).is_internal_stop(tid, stop)
    }
}

/// The CPU's PMU `intel_pt`, with the settings of its events.
#[derive(Debug)]
pub(super) struct CpuPmu {
    pmu: PtPmu,
    settings: Settings,
}

/// The number of pages of the ring of records. The kernel writes a record each time that the thread
/// is scheduled.
const RECORD_PAGES: usize = 16;

impl CpuPmu {
    pub(super) const fn new(pmu: PtPmu, settings: Settings) -> Self {
        Self { pmu, settings }
    }

    /// Returns an error if the kernel does not let this process trace its own thread.
    pub(super) fn probe(&self) -> Result<(), Error> {
        Event::open(&self.attr(1 << 20), Tid(0)).map(drop)
    }

    /// Returns the attributes of the perf event that traces a thread, with an AUX area of this
    /// size.
    fn attr(&self, size_bytes: u64) -> EventAttr {
        EventAttr {
            kind: self.pmu.number,
            config: self.settings.config,
            sample_period: 1,
            sample_type: SAMPLE,
            flags: flag::DISABLED | flag::EXCLUDE_KERNEL | flag::EXCLUDE_HV | flag::SAMPLE_ID_ALL,
            // Wake up early, when a quarter is full: there is three times as long to read as that
            // took to fill.
            aux_watermark: u32::try_from(size_bytes / 4).unwrap_or(u32::MAX),
            ..EventAttr::default()
        }
    }
}

impl Pmu for CpuPmu {
    fn hardware(&self) -> (Hardware, u32) {
        let Settings { config, psb_period_bytes, mtc_freq } = self.settings;
        let hardware = Hardware {
            config,
            filter: Vec::new(),
            mtc_freq,
            cpuid_15: self.pmu.cpuid_15,
            nominal_ratio: self.pmu.nominal_ratio,
        };
        (hardware, psb_period_bytes)
    }

    fn filter_ranges(&self) -> usize {
        self.pmu.filter_ranges
    }

    fn open(&mut self, tid: Tid, area: AuxArea) -> Result<TraceSource, Error> {
        let attr = self.attr(area.size_bytes);
        let event = Event::open(&attr, tid)?;
        let ring = event.map(RECORD_PAGES)?;
        let (aux, area) = map_largest(area, |area| {
            let size = usize::try_from(area.size_bytes).unwrap_or(usize::MAX);
            event.map_aux(&ring, size, area.overwrites)
        })?;
        Ok(TraceSource {
            data: Box::new(ring.records()),
            aux: Box::new(ring.aux(&aux, area.overwrites)),
            records: PerfRecords::of(&attr.readable()),
            control: Arc::new(event),
            area,
        })
    }

    fn is_internal_stop(&mut self, _: Tid, _: Stop) -> Result<bool, capture::Error> {
        Ok(false)
    }
}

/// The minimum size in bytes of an AUX area that is worth mapping.
pub(super) const SMALLEST_AREA_BYTES: u64 = 16 * PAGE_BYTES as u64;

/// Maps an AUX area as large as the kernel allows: halves the size until `map` succeeds. Fails if
/// it does so for [`SMALLEST_AREA_BYTES`] or less, whatever the reason.
pub(super) fn map_largest<T>(
    mut area: AuxArea,
    map: impl Fn(AuxArea) -> Result<T, Error>,
) -> Result<(T, AuxArea), Error> {
    loop {
        match map(area) {
            Ok(mapped) => return Ok((mapped, area)),
            Err(error) if area.size_bytes <= SMALLEST_AREA_BYTES => return Err(error),
            Err(_) => area.size_bytes /= 2,
        }
    }
}

impl Control for Event {
    fn enable(&self) {
        Self::enable(self);
    }

    fn disable(&self) {
        Self::disable(self);
    }

    fn set_filter(&self, filter: &str) -> Result<(), Error> {
        Self::set_filter(self, filter)
    }

    fn wait(&self, timeout_ms: i32) {
        Self::wait(self, timeout_ms);
    }
}
