//! Opens a recording as a timeline: with the index saved beside it, or by decoding all of it.

use super::digest::Source;
use super::error::Error;
use super::images::Images;
use super::index::Index;
use super::line::{Cache, Thread, Timeline};
use super::order::Order;
use super::saved;
use crate::common::{Addr, Tid, Tsc};
use crate::flow::Gap;
use crate::recording::{Manifest, Reader, Trace};
use crate::sideband::{Event, Record};
use std::num::NonZero;
use std::sync::{Mutex, OnceLock};

/// How to open a timeline.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Threads that decode at once while the index is built.
    pub workers: usize,
    /// Bytes of decoded segments kept.
    pub cache_bytes: usize,
    /// Take the index that is saved with the recording, where it is of this recording.
    pub use_saved_index: bool,
}

impl Default for Options {
    fn default() -> Self {
        let workers = std::thread::available_parallelism().map_or(1, NonZero::get);
        Self { workers, cache_bytes: 256 << 20, use_saved_index: true }
    }
}

/// How far the building of an index is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Bytes of trace that are decoded.
    pub done_bytes: u64,
    /// Bytes of trace in all.
    pub total_bytes: u64,
}

impl Timeline {
    /// Opens a recording, and indexes it where no index is saved with it.
    pub fn open(reader: Reader, options: Options) -> Result<Self, Error> {
        Self::open_watched(reader, options, &mut |_| ())
    }

    /// As [`Self::open`]; `watch` is told how far the index is while it is built.
    pub fn open_watched(
        reader: Reader,
        options: Options,
        watch: &mut dyn FnMut(Progress),
    ) -> Result<Self, Error> {
        let records = reader.sideband()?;
        let (images, lost) = Images::load(&reader, &records)?;
        let tids = reader.threads()?;
        let traces = tids.iter().map(|tid| Ok((*tid, reader.trace(*tid)?)));
        let traces = traces.collect::<Result<Vec<_>, Error>>()?;
        let saved = if options.use_saved_index && lost.is_empty() {
            saved_index(&reader, &traces)?
        } else {
            None
        };
        let was_saved = saved.is_some();
        let mut saved = saved.unwrap_or_default().into_iter();
        let mut build =
            Build { images: &images, workers: options.workers, watch, done: 0, total: 0 };
        build.total = traces.iter().map(|(_, trace)| trace.as_ref().len() as u64).sum();
        let mut threads = Vec::new();
        for (tid, trace) in traces {
            let execs = times_of_exec(&records, tid);
            let (index, gaps) = match saved.next() {
                Some(index) => (index, OnceLock::new()),
                None => build.index(&trace, &execs),
            };
            let final_pc = final_pc(reader.manifest(), tid);
            threads.push(Thread { tid, trace, index, execs, gaps, final_pc });
        }
        let times = threads.iter().map(|t: &Thread| (t.index.insns, t.index.times.as_slice()));
        let order = Order::new(times);
        let cache = Mutex::new(Cache::new(options.cache_bytes));
        Ok(Self { reader, records, images, lost, threads, order, cache, was_saved })
    }

    /// Saves the index with the recording, unless that is where it came from. False if there is
    /// nothing to save: the recording is cut, and may still grow, or has lost some of its code,
    /// which an index must not remember.
    pub fn save_index(&self) -> Result<bool, Error> {
        if self.was_saved {
            return Ok(true);
        }
        if !self.lost.is_empty() {
            return Ok(false);
        }
        let Some(key) = self.reader.fingerprint()? else { return Ok(false) };
        let threads = self.threads.iter().map(|t| (t.tid, t.trace.as_ref().len(), &t.index));
        self.reader.save_index(&saved::encode(&key, threads))?;
        Ok(true)
    }

    /// Whether the index was saved with the recording, and not built by [`Self::open`].
    pub fn was_indexed(&self) -> bool {
        self.was_saved
    }
}

struct Build<'a> {
    images: &'a Images,
    workers: usize,
    watch: &'a mut dyn FnMut(Progress),
    /// Bytes of the traces before.
    done: u64,
    total: u64,
}

impl Build<'_> {
    fn index(&mut self, trace: &Trace, execs: &[Tsc]) -> (Index, OnceLock<Vec<(u64, Gap)>>) {
        let bytes = trace.as_ref();
        let mut behind = trace.behind();
        let mut passed = |at: usize| {
            behind.pass(at);
            let done_bytes = self.done + at as u64;
            (self.watch)(Progress { done_bytes, total_bytes: self.total });
        };
        let source = Source { trace: bytes, images: self.images, execs };
        let (index, gaps) = Index::build(source, self.workers, &mut passed);
        self.done += bytes.len() as u64;
        // A trace without segments has no holes of theirs, but is one.
        let known = if index.entries.is_empty() { OnceLock::new() } else { OnceLock::from(gaps) };
        (index, known)
    }
}

/// The saved indexes of all threads, if they are of these traces.
fn saved_index(reader: &Reader, traces: &[(Tid, Trace)]) -> Result<Option<Vec<Index>>, Error> {
    let Some(bytes) = reader.saved_index() else { return Ok(None) };
    let Some(key) = reader.fingerprint()? else { return Ok(None) };
    let sizes: Vec<_> = traces.iter().map(|(tid, trace)| (*tid, trace.as_ref().len())).collect();
    Ok(saved::decode(bytes.as_ref(), &key, &sizes))
}

fn times_of_exec(records: &[Record], tid: Tid) -> Vec<Tsc> {
    let exec = |record: &&Record| record.tid == tid && matches!(record.event, Event::Exec { .. });
    let mut times: Vec<Tsc> = records.iter().filter(exec).map(|record| record.tsc).collect();
    // A hostile sideband need not be in order.
    times.sort_unstable();
    times
}

fn final_pc(manifest: &Manifest, tid: Tid) -> Option<Addr> {
    let mut entries = manifest.end.iter().flat_map(|end| &end.threads);
    entries.find(|entry| entry.tid == tid)?.final_pc
}
