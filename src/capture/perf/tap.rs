//! Taps: each takes one thread's trace out of its AUX area. Either a thread of the recorder drains
//! the area while the program runs, or the area is a ring that is read at the end.

use super::book::Book;
use super::drain::{Drain, Ring};
use super::pmu::{Control, Memory, Source};
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
    way: TapKind,
}

#[derive(Debug)]
enum TapKind {
    /// A thread of the recorder (`worker`) drains the area until `stop`. All of the trace is kept.
    Full { drain: Arc<Mutex<Drain<Memory>>>, stop: Arc<AtomicBool>, worker: Option<JoinHandle<()>> },
    /// The area keeps the end of the trace, and is read while the thread is stopped.
    Ring(Ring<Memory>),
}

impl Tap {
    /// Opens the tap of a stopped thread, and enables its event if `armed`: if code to trace is
    /// known. `mends` is true if the thread may stop at INT3s of ours.
    pub(super) fn open(
        tid: Tid,
        source: Source,
        book: &Arc<Mutex<Book>>,
        armed: &Arc<AtomicBool>,
        mends: bool,
    ) -> Self {
        let Source { data, aux, records, control, area } = source;
        let way = if area.overwrites {
            TapKind::Ring(Ring::new(data, aux))
        } else {
            let drain = Arc::new(Mutex::new(Drain::new(data, aux, records, mends)));
            let stop = Arc::new(AtomicBool::new(false));
            let worker = Worker {
                tid,
                drain: drain.clone(),
                stop: stop.clone(),
                armed: armed.clone(),
                book: book.clone(),
                control: control.clone(),
            };
            let name = format!("drain {tid}");
            let spawned = std::thread::Builder::new().name(name).spawn(move || worker.run());
            // Without the worker, the area fills up, is emptied at the end, and has gaps.
            TapKind::Full { drain, stop, worker: spawned.ok() }
        };
        let tap = Self { tid, control, way };
        if armed.load(Ordering::Acquire) {
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

    /// Writes the available packets of a thread that is stopped or gone.
    pub(super) fn save(&mut self, book: &Mutex<Book>) -> Result<(), Error> {
        match &mut self.way {
            TapKind::Full { drain, .. } => {
                let mut drain = lock(drain);
                let mut book = lock(book);
                book.hear()?;
                let packets = drain.finish();
                book.trace(self.tid, &packets)
            }
            TapKind::Ring(ring) => {
                let packets = ring.take();
                let mut book = lock(book);
                book.hear()?;
                book.trace(self.tid, &packets)
            }
        }
    }

    /// Writes the available packets of a thread that is stopped at our INT3 at the address `at`.
    /// Does nothing for a ring.
    pub(super) fn stop_at(&mut self, at: Addr, book: &Mutex<Book>) -> Result<(), Error> {
        if let TapKind::Full { drain, .. } = &mut self.way {
            let packets = lock(drain).finish_at(at);
            let mut book = lock(book);
            book.hear()?;
            book.trace(self.tid, &packets)?;
        }
        Ok(())
    }

    /// Stops tracing, and writes the remaining packets. Returns the thread of the recorder that
    /// drained the area, which is about to end.
    pub(super) fn close(mut self, book: &Mutex<Book>) -> Result<Option<JoinHandle<()>>, Error> {
        self.control.disable();
        let saved = self.save(book);
        match self.way {
            TapKind::Full { drain, stop, worker } => {
                stop.store(true, Ordering::Release);
                let gaps = lock(&drain).gaps();
                lock(book).add_gaps(gaps);
                saved.map(|()| worker)
            }
            TapKind::Ring(_) => saved.map(|()| None),
        }
    }
}

/// A thread of the recorder that drains one AUX area.
struct Worker {
    tid: Tid,
    drain: Arc<Mutex<Drain<Memory>>>,
    stop: Arc<AtomicBool>,
    armed: Arc<AtomicBool>,
    book: Arc<Mutex<Book>>,
    control: Arc<dyn Control>,
}

impl Worker {
    fn run(self) {
        loop {
            self.control.wait(PERIOD_MS);
            let mut drain = lock(&self.drain);
            if self.stop.load(Ordering::Acquire) {
                return;
            }
            if let Err(error) = self.step(&mut drain) {
                lock(&self.book).fail(error);
                return;
            }
        }
    }

    fn step(&self, drain: &mut Drain<Memory>) -> Result<(), Error> {
        // Record mappings before the trace that covers their code.
        lock(&self.book).hear()?;
        let packets = drain.take();
        if self.armed.load(Ordering::Acquire) {
            self.control.enable();
        }
        lock(&self.book).trace(self.tid, &packets)
    }
}

/// A thread of the recorder that reads a process's sidebands periodically, for when nothing else
/// does.
#[derive(Debug)]
pub(super) struct Listener {
    stop: Arc<AtomicBool>,
    worker: Option<JoinHandle<()>>,
}

impl Listener {
    pub(super) fn spawn(book: &Arc<Mutex<Book>>) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, book) = (stop.clone(), book.clone());
        let period = std::time::Duration::from_millis(20);
        let listen = move || {
            while !stopped.load(Ordering::Acquire) {
                std::thread::park_timeout(period);
                let mut book = lock(&book);
                let heard = book.hear();
                if let Err(error) = heard.and_then(|()| Ok(book.recorder.flush_if_due()?)) {
                    book.fail(error);
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
