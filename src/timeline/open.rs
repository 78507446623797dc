//! Opening of a recording as a timeline, with its saved index or by decoding all of it.

use super::cut::{CpuSchedule, cut};
use super::digest::ThreadSource;
use super::error::Error;
use super::images::Images;
use super::index::Index;
use super::line::{Cache, Thread, Timeline};
use super::order::Order;
use super::piece::{DecodeContext, Piece};
use super::runs::{CpuHistory, CpuRuns, Traceable};
use super::saved::{self, ThreadPath};
use crate::common::{Addr, Tid, Tsc};
use crate::flow::{Config, Gap};
use crate::pt::{Cpu, Errata, Vendor};
use crate::recording::{Manifest, Reader, Trace, TraceId};
use crate::sideband::{Event, Record};
use std::collections::HashMap;
use std::num::NonZero;
use std::sync::{Mutex, OnceLock};

/// The options of opening a timeline.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The number of threads that decode while the index is built.
    pub workers: usize,
    /// The maximum size of the cache of decoded segments, in bytes.
    pub cache_bytes: usize,
    /// True to use the index saved with the recording, if it matches.
    pub use_saved_index: bool,
}

impl Default for Options {
    fn default() -> Self {
        let workers = std::thread::available_parallelism().map_or(1, NonZero::get);
        Self { workers, cache_bytes: 256 << 20, use_saved_index: true }
    }
}

/// The progress of building an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Bytes of trace decoded so far.
    pub done_bytes: u64,
    /// Bytes of trace in total.
    pub total_bytes: u64,
}

impl Timeline {
    /// Opens a recording, and builds its index if no valid one is saved with it, or
    /// [`Options::use_saved_index`] is false. Building decodes all traces. Does not save the index.
    pub fn open(reader: Reader, options: Options) -> Result<Self, Error> {
        Self::open_with_progress(reader, options, &mut |_| ())
    }

    /// Opens a recording like [`Self::open`]; calls `report` regularly with the progress of building
    /// the index, never if a saved one is used.
    pub fn open_with_progress(
        reader: Reader,
        options: Options,
        report: &mut dyn FnMut(Progress),
    ) -> Result<Self, Error> {
        let records = reader.sideband()?;
        let (images, missing_images) = Images::load(&reader, &records)?;
        let config = decoder_config(reader.manifest());
        let (tids, ids) = (reader.threads()?, reader.traces()?);
        let traces = ids.iter().map(|id| reader.trace(*id)).collect::<Result<Vec<_>, _>>()?;
        let saved = if options.use_saved_index && missing_images.is_empty() {
            saved(&reader, &tids, &traces)?
        } else {
            None
        };
        let had_saved_index = saved.is_some();
        let bytes: Vec<&[u8]> = traces.iter().map(AsRef::as_ref).collect();
        let of_pieces = |pieces| ThreadPath { pieces, index: Index::default() };
        let paths = saved.unwrap_or_else(|| {
            let pieces = pieces(&reader, &tids, &ids, &bytes, &records, &config);
            pieces.into_iter().map(of_pieces).collect()
        });
        let total = paths.iter().flat_map(|path| &path.pieces).map(Piece::size_bytes);
        let total = total.map(|size_bytes| size_bytes as u64).sum();
        let context = DecodeContext { images: &images, config: &config };
        let mut builder = IndexBuilder {
            traces: &traces,
            bytes: &bytes,
            context,
            options,
            report,
            done: 0,
            total,
        };
        let mut threads = Vec::new();
        let mut times_of_exec = times_of_exec(&records);
        let final_pcs = final_pcs(reader.manifest());
        for (tid, mut path) in tids.into_iter().zip(paths) {
            let execs = times_of_exec.remove(&tid).unwrap_or_default();
            let gaps =
                if had_saved_index { OnceLock::new() } else { builder.index(&mut path, &execs) };
            let final_pc = final_pcs.get(&tid).copied();
            threads.push(Thread { tid, path, execs, gaps, final_pc });
        }
        let times = threads.iter().map(|t: &Thread| {
            let index = &t.path.index;
            (index.insns, index.times.as_slice())
        });
        let order = Order::new(times);
        let cache = Mutex::new(Cache::new(options.cache_bytes));
        Ok(Self {
            reader,
            records,
            images,
            config,
            traces,
            missing_images,
            threads,
            order,
            cache,
            had_saved_index,
        })
    }

    /// Saves the index in the recording, unless it was read from there. Returns true if the
    /// recording has the index now; false if it must not be saved: the recording is cut and may
    /// still grow, or some of its code is missing.
    pub fn save_index(&self) -> Result<bool, Error> {
        if self.had_saved_index {
            return Ok(true);
        }
        if !self.missing_images.is_empty() {
            return Ok(false);
        }
        let Some(key) = self.reader.fingerprint()? else { return Ok(false) };
        let threads = self.threads.iter().map(|thread| (thread.tid, &thread.path));
        self.reader.save_index(&saved::encode(&key, sizes(&self.traces), threads))?;
        Ok(true)
    }

    /// Returns true if [`Self::open`] used a saved index instead of building one. It stays false
    /// after [`Self::save_index`].
    pub fn had_saved_index(&self) -> bool {
        self.had_saved_index
    }
}

/// The inputs and the progress of building the indexes of all threads.
struct IndexBuilder<'a> {
    traces: &'a [Trace],
    bytes: &'a [&'a [u8]],
    context: DecodeContext<'a>,
    options: Options,
    report: &'a mut dyn FnMut(Progress),
    /// The bytes of trace of the threads indexed so far.
    done: u64,
    total: u64,
}

impl IndexBuilder<'_> {
    /// Builds the index of a thread from the pieces in `path`, and stores it there. Returns its
    /// gaps, or an unset cell if the trace has no segment. `execs` are the times of the thread's
    /// exec(2) calls.
    fn index(&mut self, path: &mut ThreadPath, execs: &[Tsc]) -> OnceLock<Vec<(u64, Gap)>> {
        // Memory of a shared trace cannot be released: pieces of other threads lie in between.
        let whole = match path.pieces.as_slice() {
            [piece] => self.traces.get(piece.trace).filter(|t| piece.is_whole(t.as_ref().len())),
            _ => None,
        };
        let mut releaser = whole.map(Trace::releaser);
        let mut report_bytes = |at: usize| {
            if let Some(releaser) = &mut releaser {
                releaser.release_before(at);
            }
            let done_bytes = self.done + at as u64;
            (self.report)(Progress { done_bytes, total_bytes: self.total });
        };
        let (traces, pieces) = (self.bytes, path.pieces.as_slice());
        let source = ThreadSource { traces, pieces, context: self.context, execs };
        let (index, gaps) = Index::build(source, self.options.workers, &mut report_bytes);
        self.done += path.pieces.iter().map(|piece| piece.size_bytes() as u64).sum::<u64>();
        path.index = index;
        // A trace without segments is a gap itself, which `Timeline::gaps` finds for an unset cell.
        if path.index.entries.is_empty() { OnceLock::new() } else { OnceLock::from(gaps) }
    }
}

/// Returns the settings for decoding. Those of a CPU's own traces are its errata and the ranges of
/// traced code; other traces have the defaults.
fn decoder_config(manifest: &Manifest) -> Config {
    let capture = &manifest.capture;
    if !capture.is_of_cpu() {
        return Config::new();
    }
    let config = pt_cpu_of(manifest).map_or(Config::new(), Config::of);
    Config { filter: capture.ranges().to_vec(), ..config }
}

/// Returns the errata of the processor that wrote a recording's traces.
pub fn errata_of(manifest: &Manifest) -> Errata {
    decoder_config(manifest).errata
}

/// Returns the processor whose PT unit wrote a recording's traces, by which errata are looked up;
/// `None` if it was software, or if the processor's numbers are out of range.
pub fn pt_cpu_of(manifest: &Manifest) -> Option<Cpu> {
    let cpu = Some(&manifest.cpu).filter(|_| manifest.capture.is_of_cpu())?;
    let vendor = if cpu.vendor == "GenuineIntel" { Vendor::Intel } else { Vendor::Other };
    let family = u16::try_from(cpu.family).ok()?;
    let (model, stepping) = (u8::try_from(cpu.model).ok()?, u8::try_from(cpu.stepping).ok()?);
    Some(Cpu { vendor, family, model, stepping })
}

/// Returns the pieces of each thread: its whole trace, or its parts of the CPUs' traces.
fn pieces(
    reader: &Reader,
    tids: &[Tid],
    ids: &[TraceId],
    traces: &[&[u8]],
    records: &[Record],
    config: &Config,
) -> Vec<Vec<Piece>> {
    let mut pieces = vec![Vec::new(); tids.len()];
    let threads = reader.manifest().end.iter().flat_map(|end| &end.threads);
    let import = reader.manifest().capture.import.as_ref();
    let tasks = import.and_then(|import| import.traced.as_ref());
    let tasks = tasks.map(|tasks| tasks.iter().copied().collect());
    let traceable = Traceable::new(threads.map(|entry| (entry.pid, entry.tid)), tasks);
    let cpu_history = CpuHistory::of(records, &traceable);
    let places: HashMap<Tid, usize> = tids.iter().copied().zip(0..).collect();
    for (trace, (id, bytes)) in ids.iter().zip(traces).enumerate() {
        let of_trace = match id {
            TraceId::Thread(tid) => {
                let own = places.get(tid).copied();
                own.map(|own| (own, vec![Piece::whole(trace, bytes.len())])).into_iter().collect()
            }
            TraceId::Cpu(cpu) => {
                let runs = CpuRuns::of_cpu(*cpu, records, &traceable);
                cut(
                    trace,
                    bytes,
                    CpuSchedule { cpu: *cpu, runs: &runs, cpu_history: &cpu_history },
                    config,
                )
            }
        };
        for (thread, more) in of_trace {
            if let Some(own) = pieces.get_mut(thread) {
                own.extend(more);
            }
        }
    }
    // The pieces of one CPU are in order, and a thread never runs on two CPUs at once.
    for own in &mut pieces {
        own.sort_by_key(|piece| piece.since);
    }
    pieces
}

fn sizes(traces: &[Trace]) -> Vec<usize> {
    traces.iter().map(|trace| trace.as_ref().len()).collect()
}

/// Returns the saved paths of all threads; `None` if there are none for these traces.
fn saved(
    reader: &Reader,
    tids: &[Tid],
    traces: &[Trace],
) -> Result<Option<Vec<ThreadPath>>, Error> {
    let Some(bytes) = reader.saved_index() else { return Ok(None) };
    let Some(key) = reader.fingerprint()? else { return Ok(None) };
    Ok(saved::decode(bytes.as_ref(), &key, &sizes(traces), tids))
}

/// Returns the times of each thread's exec(2) calls, in ascending order.
fn times_of_exec(records: &[Record]) -> HashMap<Tid, Vec<Tsc>> {
    let mut times: HashMap<Tid, Vec<Tsc>> = HashMap::new();
    for record in records.iter().filter(|record| matches!(record.event, Event::Exec { .. })) {
        times.entry(record.tid).or_default().push(record.tsc);
    }
    // A hostile sideband may be out of order.
    for of_thread in times.values_mut() {
        of_thread.sort_unstable();
    }
    times
}

/// Returns the final addresses that the recorder noted.
fn final_pcs(manifest: &Manifest) -> HashMap<Tid, Addr> {
    let entries = manifest.end.iter().flat_map(|end| &end.threads);
    // If several entries have the same thread ID, the first counts.
    let known = entries.rev().filter_map(|entry| Some((entry.tid, entry.final_pc?)));
    known.collect()
}
