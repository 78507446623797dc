//! The source of a thread's trace: the CPU's PMU through the kernel, or a model. The backend above
//! this trait does not know which.

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

/// The form of an AUX area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Area {
    /// Its size in bytes: a power of two of pages.
    pub(super) size_bytes: u64,
    /// True if it is a ring that keeps only the end.
    pub(super) overwrites: bool,
}

/// A thread's perf event, with its ring and its AUX area.
#[derive(Debug)]
pub(super) struct Source {
    /// The ring of its records.
    pub(super) data: Memory,
    /// Its AUX area.
    pub(super) aux: Memory,
    /// The parser of the records.
    pub(super) records: PerfRecords,
    /// The controls of the event.
    pub(super) control: Arc<dyn Control>,
    /// The form of the AUX area; smaller than requested if the kernel allows no more.
    pub(super) area: Area,
}

/// The controls of a thread's event.
pub(super) trait Control: Debug + Send + Sync {
    /// Starts tracing.
    fn enable(&self);
    /// Stops tracing.
    fn disable(&self);
    /// Traces only this code, in the syntax of `PERF_EVENT_IOC_SET_FILTER`.
    fn set_filter(&self, filter: &str) -> Result<(), Error>;
    /// Waits until there is much to read, or for so many milliseconds.
    fn wait(&self, timeout_ms: i32);
}

/// A unit that traces threads.
pub(super) trait Pmu: Debug {
    /// Returns its configuration, for the manifest, and the bytes of trace from PSB to PSB.
    fn hardware(&self) -> (Hardware, u32);

    /// Returns the number of ranges of code that a filter can have.
    fn filter_ranges(&self) -> usize;

    /// Opens a disabled event of a stopped thread.
    fn open(&mut self, tid: Tid, area: Area) -> Result<Source, Error>;

    /// Resumes a thread, up to the next system call if `to_call`.
    fn resume(
        &mut self,
        tracee: Tracee,
        signal: Signo,
        to_call: bool,
    ) -> Result<(), tracee::Error> {
        if to_call { tracee.resume_to_call(signal) } else { tracee.resume(signal) }
    }

    /// Steps a thread by one instruction.
    fn step(&mut self, tracee: Tracee, signal: Signo) -> Result<(), tracee::Error> {
        tracee.step(signal)
    }

    /// Handles a stop. Returns true if it is internal to the unit, so that the thread is to be
    /// resumed.
    fn is_own(&mut self, tid: Tid, stop: Stop) -> Result<bool, capture::Error>;
}

impl<P: Pmu + ?Sized> Pmu for &mut P {
    fn hardware(&self) -> (Hardware, u32) {
        (**self).hardware()
    }

    fn filter_ranges(&self) -> usize {
        (**self).filter_ranges()
    }

    fn open(&mut self, tid: Tid, area: Area) -> Result<Source, Error> {
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

    fn is_own(&mut self, tid: Tid, stop: Stop) -> Result<bool, capture::Error> {
        (**self).is_own(tid, stop)
    }
}

/// The PMU of the CPU.
#[derive(Debug)]
pub(super) struct Cpu {
    pmu: PtPmu,
    settings: Settings,
}

/// The number of pages of the ring of records, which gets one each time that the thread is
/// scheduled.
const RECORD_PAGES: usize = 16;

impl Cpu {
    pub(super) const fn new(pmu: PtPmu, settings: Settings) -> Self {
        Self { pmu, settings }
    }

    /// Returns an error if the kernel does not let this process trace itself.
    pub(super) fn probe(&self) -> Result<(), Error> {
        Event::open(&self.attr(1 << 20), Tid(0)).map(drop)
    }

    fn attr(&self, size_bytes: u64) -> EventAttr {
        EventAttr {
            kind: self.pmu.number,
            config: self.settings.config,
            sample_period: 1,
            sample_type: SAMPLE,
            flags: flag::DISABLED | flag::EXCLUDE_KERNEL | flag::EXCLUDE_HV | flag::SAMPLE_ID_ALL,
            // Wake up early: at a quarter, which leaves three times as long to read as it took to
            // fill.
            aux_watermark: u32::try_from(size_bytes / 4).unwrap_or(u32::MAX),
            ..EventAttr::default()
        }
    }
}

impl Pmu for Cpu {
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

    fn open(&mut self, tid: Tid, area: Area) -> Result<Source, Error> {
        let attr = self.attr(area.size_bytes);
        let event = Event::open(&attr, tid)?;
        let ring = event.map(RECORD_PAGES)?;
        let (aux, area) = largest(area, |area| {
            let size = usize::try_from(area.size_bytes).unwrap_or(usize::MAX);
            event.map_aux(&ring, size, area.overwrites)
        })?;
        Ok(Source {
            data: Box::new(ring.records()),
            aux: Box::new(ring.aux(&aux, area.overwrites)),
            records: PerfRecords::of(&attr.readable()),
            control: Arc::new(event),
            area,
        })
    }

    fn is_own(&mut self, _: Tid, _: Stop) -> Result<bool, capture::Error> {
        Ok(false)
    }
}

/// The smallest area, in bytes, that is worth mapping.
pub(super) const LEAST_BYTES: u64 = 16 * PAGE_BYTES as u64;

/// Maps as much as the kernel allows: halves the size until it is accepted.
pub(super) fn largest<T>(
    mut area: Area,
    map: impl Fn(Area) -> Result<T, Error>,
) -> Result<(T, Area), Error> {
    loop {
        match map(area) {
            Ok(mapped) => return Ok((mapped, area)),
            Err(error) if area.size_bytes <= LEAST_BYTES => return Err(error),
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
