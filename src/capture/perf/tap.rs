//! Taps: each takes one thread's trace out of its AUX area. Either a thread of the recorder drains
//! the area while the program runs, or the area is a ring that is read at the end. The *AUX area*
//! is the buffer to which the PMU writes the trace.
//!
//! Two locks protect the shared state: that of the drain, and that of the process's recording. A
//! thread that needs both takes the drain's first, so packets reach the recording in their order.
//! The sidebands are written before the packets, so that mappings are recorded before the trace
//! that covers their code.

use super::drain::{Drain, RingDrain};
use super::pmu::{Control, Memory, TraceSource};
use super::process_recording::ProcessRecording;
use crate::capture::Error;
use crate::capture::PerfError;
use crate::common::{Addr, Tid};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// The maximum time between two drains of an area, in milliseconds.
const PERIOD_MS: i32 = 20;

/// Locks a mutex, even after a panic of its holder: the data is consistent at any time.
pub(super) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The tap of one thread.
#[derive(Debug)]
pub(super) struct Tap {
    tid: Tid,
    control: Arc<dyn Control>,
    kind: TapKind,
}

#[derive(Debug)]
enum TapKind {
    /// A thread of the recorder (`worker`) drains the area until `stop`. All of the trace is kept.
    Full { drain: Arc<Mutex<Drain<Memory>>>, stop: Arc<AtomicBool>, worker: Option<JoinHandle<()>> },
    /// The area keeps the end of the trace, and is read while the thread is stopped.
    Ring(RingDrain<Memory>),
}

impl Tap {
    /// Opens the tap of a stopped thread, and enables its event if `has_code_to_trace`: if code to
    /// trace is known. Starts a thread of the recorder that drains the area, unless it is a ring.
    /// `has_int3s` is true if the thread may stop at INT3s of ours.
    pub(super) fn open(
        tid: Tid,
        source: TraceSource,
        recording: &Arc<Mutex<ProcessRecording>>,
        has_code_to_trace: &Arc<AtomicBool>,
        has_int3s: bool,
    ) -> Self {
        let TraceSource { data, aux, records, control, area } = source;
        let kind = if area.overwrites {
            TapKind::Ring(RingDrain::new(data, aux))
        } else {
            let drain = Arc::new(Mutex::new(Drain::new(data, aux, records, has_int3s)));
            let stop = Arc::new(AtomicBool::new(false));
            let worker = DrainThread {
                tid,
                drain: drain.clone(),
                stop: stop.clone(),
                has_code_to_trace: has_code_to_trace.clone(),
                recording: recording.clone(),
                control: control.clone(),
            };
            let name = format!("drain {tid}");
            let spawned =
                std::thread::Builder::new().name(name).spawn(move || worker.drain_until_stopped());
            // Without the worker, the area fills up, is emptied at the end, and has gaps.
            TapKind::Full { drain, stop, worker: spawned.ok() }
        };
        let tap = Self { tid, control, kind };
        if has_code_to_trace.load(Ordering::Acquire) {
            tap.control.enable();
        }
        tap
    }

    /// Enables the thread's event.
    pub(super) fn enable(&self) {
        self.control.enable();
    }

    /// Sets the filter of the thread's event, in the kernel's syntax.
    pub(super) fn set_filter(&self, filter: &str) -> Result<(), PerfError> {
        self.control.set_filter(filter)
    }

    /// Writes the packets of a thread that is stopped or gone which were not written yet: all of
    /// the AUX area. Writes the sidebands of the process before.
    pub(super) fn save(&mut self, recording: &Mutex<ProcessRecording>) -> Result<(), Error> {
        match &mut self.kind {
            TapKind::Full { drain, .. } => {
                let mut drain = lock(drain);
                let mut recording = lock(recording);
                recording.write_sidebands()?;
                let packets = drain.take_rest();
                recording.append_trace(self.tid, &packets)
            }
            TapKind::Ring(ring) => {
                let packets = ring.take();
                let mut recording = lock(recording);
                recording.write_sidebands()?;
                recording.append_trace(self.tid, &packets)
            }
        }
    }

    /// Writes the available packets of a thread that is stopped at our INT3 at the address `at`.
    /// Does nothing for a ring.
    pub(super) fn save_at_int3(
        &mut self,
        at: Addr,
        recording: &Mutex<ProcessRecording>,
    ) -> Result<(), Error> {
        if let TapKind::Full { drain, .. } = &mut self.kind {
            let packets = lock(drain).take_rest_at_int3(at);
            let mut recording = lock(recording);
            recording.write_sidebands()?;
            recording.append_trace(self.tid, &packets)?;
        }
        Ok(())
    }

    /// Disables the event, and writes the remaining packets. Returns the thread of the recorder
    /// that drained the area, which is about to end; `None` for a ring.
    pub(super) fn close(
        mut self,
        recording: &Mutex<ProcessRecording>,
    ) -> Result<Option<JoinHandle<()>>, Error> {
        self.control.disable();
        let saved = self.save(recording);
        match self.kind {
            TapKind::Full { drain, stop, worker } => {
                stop.store(true, Ordering::Release);
                let gaps = lock(&drain).gaps();
                lock(recording).add_gaps(gaps);
                saved.map(|()| worker)
            }
            TapKind::Ring(_) => saved.map(|()| None),
        }
    }
}

/// A thread of the recorder that drains one AUX area.
struct DrainThread {
    tid: Tid,
    drain: Arc<Mutex<Drain<Memory>>>,
    stop: Arc<AtomicBool>,
    has_code_to_trace: Arc<AtomicBool>,
    recording: Arc<Mutex<ProcessRecording>>,
    control: Arc<dyn Control>,
}

impl DrainThread {
    /// Drains the area at least every [`PERIOD_MS`], until `stop` is set or writing fails.
    fn drain_until_stopped(self) {
        loop {
            self.control.wait(PERIOD_MS);
            let mut drain = lock(&self.drain);
            if self.stop.load(Ordering::Acquire) {
                return;
            }
            if let Err(error) = self.drain_once(&mut drain) {
                lock(&self.recording).note_failure(error);
                return;
            }
        }
    }

    /// Writes the sidebands, then the packets that are in the area. Enables the event again in
    /// between, if there is code to trace.
    fn drain_once(&self, drain: &mut Drain<Memory>) -> Result<(), Error> {
        // Record mappings before the trace that covers their code.
        lock(&self.recording).write_sidebands()?;
        let packets = drain.take();
        if self.has_code_to_trace.load(Ordering::Acquire) {
            self.control.enable();
        }
        lock(&self.recording).append_trace(self.tid, &packets)
    }
}

/// A thread of the recorder that reads a process's sidebands periodically, for when nothing else
/// does.
#[derive(Debug)]
pub(super) struct SidebandThread {
    stop: Arc<AtomicBool>,
    worker: Option<JoinHandle<()>>,
}

impl SidebandThread {
    /// Starts a thread that writes the sidebands of a recording from time to time.
    pub(super) fn spawn(recording: &Arc<Mutex<ProcessRecording>>) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, recording) = (stop.clone(), recording.clone());
        let period = std::time::Duration::from_millis(20);
        let listen = move || {
            while !stopped.load(Ordering::Acquire) {
                std::thread::park_timeout(period);
                let mut recording = lock(&recording);
                let written = recording.write_sidebands();
                if let Err(error) = written.and_then(|()| Ok(recording.recorder.flush_if_due()?)) {
                    recording.note_failure(error);
                    return;
                }
            }
        };
        let worker = std::thread::Builder::new().name("sideband".to_owned()).spawn(listen);
        Self { stop, worker: worker.ok() }
    }

    /// Ends the thread, and waits until it has ended.
    pub(super) fn close(mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(worker) = self.worker.take() {
            worker.thread().unpark();
            // A panicked thread has reported that.
            let _ = worker.join();
        }
    }
}
