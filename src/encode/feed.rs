//! Encodes trace buffers as packets on another thread of the recorder, the *worker*: items (records
//! and events) go in, in each traced thread's order, and packets come out. `Feed` is the recorder's
//! end, `Worker` the other one. The worker handles items about all threads itself, and the others
//! by the thread's [`Trace`]. It hands packets over when there are many, or when an item requests
//! them. A thread's trace is *damaged*, and ends, at the first item that cannot be encoded.

use super::dictionary::{Dictionary, NewEdges};
use super::encoder::{BadRecord, Chains};
use super::ranges::Ranges;
use super::trace::Trace;
use crate::common::Tid;
use crate::engine::{BusyBuffers, Shared};
use crate::insn::Insn;
use crate::translate::Step;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

/// The bytes of a thread's records after which its packets are handed over.
const HANDOVER_RECORD_BYTES: usize = 256 << 10;
/// The number of bytes of records that are read at a time. They stay in the CPU's cache.
const READ_BYTES: usize = 16 << 10;

/// A message to the encoder about one traced thread, or about all. The first item about a thread
/// makes it known. Most are named after the method of [`Trace`] that handles them.
#[derive(Debug)]
pub enum TraceItem {
    /// New edges of superblocks, for all threads.
    NewEdges(NewEdges),
    /// From now on another program runs in the process, with other shared memory and other edges.
    NewProgram(Arc<Shared>),
    /// The code that is traced from now on, for all threads.
    Ranges(Ranges),
    /// Records in the shared memory.
    Records {
        /// The offset of the first record in the shared memory.
        offset: u64,
        /// The size of the records in bytes.
        len: usize,
        /// The buffer to free once the records are read, by its index; `None` if more of its
        /// records follow, or if it is one of a ring.
        frees: Option<(Arc<BusyBuffers>, usize)>,
    },
    /// The thread was created at this time.
    CreationTime { tsc: u64 },
    /// The thread's known history begins here, at this time: earlier records are overwritten.
    /// Ignored once a `TraceStop` has ended the trace.
    BeginHistory { tsc: u64 },
    /// The first steps of a path were executed, and an event interrupted it before the instruction
    /// at `ip`.
    PartialPath { steps: Vec<Step>, ip: u64 },
    /// The tracer executed an instruction, after which the thread is at `next`.
    SteppedInsn { insn: Insn, next: u64 },
    /// The thread entered the kernel, by anything but a branch, before the instruction at `ip`.
    EnterKernel { ip: u64 },
    /// The thread returned from the kernel to the program at `ip`.
    ReturnFromKernel { ip: u64, tsc: u64 },
    /// The thread's trace pointer is invalid: its trace ends here.
    BadPointer,
    /// The thread's history ends where its last record leads.
    EndHistory,
    /// A buffer of an ended thread, by its index, is no longer used, and no [`Self::Records`] frees
    /// it: the last one, or any of a ring.
    FreeBuffer(Arc<BusyBuffers>, usize),
    /// Requests the packets of the thread so far.
    Flush,
    /// Requests the packets so far of all threads, and a message once they are ready.
    FlushAll(Sender<()>),
}

impl TraceItem {
    /// Returns the address at which the thread was before this item, which is the target of its
    /// last record. `None` if the item does not show it.
    fn ip_before(&self) -> Option<u64> {
        match self {
            Self::PartialPath { steps, ip } => Some(steps.first().map_or(*ip, |step| step.ip)),
            Self::SteppedInsn { insn, .. } => Some(insn.ip.0),
            Self::EnterKernel { ip } => Some(*ip),
            _ => None,
        }
    }
}

/// The result of encoding a thread's trace.
#[derive(Clone, Debug, Default)]
pub struct TraceResult {
    /// The number of instructions in the trace.
    pub instructions: u64,
    /// True if the trace ends early, at records or a pointer that the program damaged.
    pub damaged: bool,
}

/// Packets of a thread, which continue those returned earlier.
pub type Packets = (Tid, Vec<u8>);

/// The encoder of one process, which runs on a thread of the recorder.
#[derive(Debug)]
pub(super) struct Feed {
    /// `None` once no more items will follow.
    items: Option<Sender<(Tid, TraceItem)>>,
    packets: Receiver<Packets>,
    worker: Option<JoinHandle<HashMap<Tid, TraceResult>>>,
}

impl Feed {
    /// Starts the encoder of a process on a new thread, which calls `prepare` first. Records are in
    /// `shared`.
    pub(super) fn start(
        shared: Arc<Shared>,
        psb_period_bytes: u32,
        ranges: Ranges,
        prepare: impl FnOnce() + Send + 'static,
    ) -> Self {
        let (items, incoming) = channel();
        let (outgoing, packets) = channel();
        let worker = std::thread::spawn(move || {
            prepare();
            let mut worker = Worker {
                shared,
                psb_period_bytes,
                ranges,
                dictionary: Dictionary::default(),
                chains: Chains::default(),
                threads: HashMap::new(),
                packets: outgoing,
            };
            worker.handle_items(&incoming);
            worker.finish()
        });
        Self { items: Some(items), packets, worker: Some(worker) }
    }

    /// Sends the encoder an item about a thread. Does not wait. Drops the item if the worker has
    /// ended: it panicked.
    pub(super) fn send(&self, tid: Tid, item: TraceItem) {
        if let Some(items) = &self.items {
            // The worker ends when this sender is dropped, never before.
            let _ = items.send((tid, item));
        }
    }

    /// Waits until all items sent before are encoded, and the packets of all threads are ready,
    /// pending branches included. `tid` may be any thread. Returns at once if the worker has ended.
    pub(super) fn wait_until_encoded(&self, tid: Tid) {
        let (done, is_done) = channel();
        self.send(tid, TraceItem::FlushAll(done));
        // If the worker has ended, there is nothing to wait for.
        let _ = is_done.recv();
    }

    /// Removes and returns the packets that are ready, without waiting: each thread's in order, in
    /// one or more pieces, of which some may be empty.
    pub(super) fn packets(&self) -> impl Iterator<Item = Packets> + '_ {
        self.packets.try_iter()
    }

    /// Waits until all is encoded, and ends the worker. Returns the packets that were not returned
    /// yet, and the result of each thread; no results if the worker panicked.
    pub(super) fn finish(mut self) -> (Vec<Packets>, HashMap<Tid, TraceResult>) {
        self.items = None;
        let results = self.worker.take().and_then(|worker| worker.join().ok()).unwrap_or_default();
        (self.packets.iter().collect(), results)
    }
}

/// Encodes `len` bytes of records at `offset` of the shared memory. Fails at an invalid record, and
/// if the last one is incomplete.
fn encode_shared_records(
    encoder: &mut Trace,
    dictionary: &Dictionary,
    chains: &mut Chains,
    shared: &Shared,
    mut offset: u64,
    mut len: usize,
) -> Result<(), BadRecord> {
    // The program may change the records at any time, so they are read once.
    let mut bytes = [0; READ_BYTES];
    while len > 0 {
        let bytes = &mut bytes[..len.min(READ_BYTES)];
        shared.read(offset, bytes);
        let left = encoder.encode_records(dictionary, chains, bytes)?;
        let done = bytes.len() - left;
        if done == 0 {
            return Err(BadRecord);
        }
        offset += done as u64;
        len -= done;
    }
    Ok(())
}

/// The encoder on its thread.
struct Worker {
    shared: Arc<Shared>,
    psb_period_bytes: u32,
    ranges: Ranges,
    dictionary: Dictionary,
    chains: Chains,
    threads: HashMap<Tid, ThreadEncoding>,
    packets: Sender<Packets>,
}

/// The encoding of one thread's trace.
struct ThreadEncoding {
    trace: Trace,
    result: TraceResult,
    /// The number of bytes of records whose packets are not handed over yet.
    pending_record_bytes: usize,
}

impl Worker {
    /// Handles items until the sender is dropped.
    fn handle_items(&mut self, items: &Receiver<(Tid, TraceItem)>) {
        for (tid, item) in items {
            match item {
                TraceItem::NewEdges(news) => self.dictionary.learn(news),
                TraceItem::NewProgram(shared) => {
                    self.shared = shared;
                    self.dictionary = Dictionary::default();
                    self.chains = Chains::default();
                }
                TraceItem::Ranges(ranges) => {
                    for thread in self.threads.values_mut() {
                        thread.trace.set_ranges(&ranges);
                    }
                    self.ranges = ranges;
                }
                TraceItem::FlushAll(done) => {
                    self.flush();
                    // Nobody waits any more: the recorder is on its way out.
                    let _ = done.send(());
                }
                item => self.handle_thread_item(tid, item),
            }
        }
    }

    /// Handles an item about one thread, which is new if it is its first. Once a thread's trace is
    /// damaged, only frees its buffers. Sends packets if they are many, or requested by the item.
    fn handle_thread_item(&mut self, tid: Tid, item: TraceItem) {
        let new = || ThreadEncoding {
            trace: Trace::new(self.psb_period_bytes, &self.ranges),
            result: TraceResult::default(),
            pending_record_bytes: 0,
        };
        let thread = self.threads.entry(tid).or_insert_with(new);
        let ThreadEncoding { trace: encoder, result, pending_record_bytes } = thread;
        if let TraceItem::FreeBuffer(busy, index) = &item {
            busy.free(*index);
        }
        if result.damaged {
            if let TraceItem::Records { frees: Some((busy, index)), .. } = item {
                busy.free(index);
            }
            return;
        }
        if let Some(ip) = item.ip_before()
            && encoder.finish_owed_record(&self.dictionary, ip).is_err()
        {
            result.damaged = true;
            return;
        }
        let mut flush = false;
        match item {
            TraceItem::NewEdges(..)
            | TraceItem::NewProgram(_)
            | TraceItem::Ranges(_)
            | TraceItem::FreeBuffer(..)
            | TraceItem::FlushAll(_) => {}
            TraceItem::Records { offset, len, frees } => {
                *pending_record_bytes += len;
                let (shared, dictionary) = (&self.shared, &self.dictionary);
                let read = encode_shared_records(
                    encoder,
                    dictionary,
                    &mut self.chains,
                    shared,
                    offset,
                    len,
                );
                result.damaged = read == Err(BadRecord);
                if let Some((busy, index)) = frees {
                    busy.free(index);
                }
            }
            TraceItem::BadPointer => result.damaged = true,
            TraceItem::CreationTime { tsc } => encoder.set_creation_time(tsc),
            TraceItem::BeginHistory { .. } if encoder.has_stopped() => {}
            TraceItem::BeginHistory { tsc } => {
                if encoder.instructions() > 0 {
                    encoder.lose_history(&self.dictionary);
                    let _ = self.packets.send((tid, encoder.drain()));
                }
                encoder.begin_history(tsc);
            }
            TraceItem::PartialPath { steps, ip } => {
                encoder.partial_path(&self.dictionary, &steps, ip);
            }
            TraceItem::SteppedInsn { insn, next } => encoder.stepped_insn(&insn, next),
            TraceItem::EnterKernel { ip } => encoder.enter_kernel(ip),
            TraceItem::EndHistory => encoder.end_history(&self.dictionary),
            TraceItem::ReturnFromKernel { ip, tsc } => encoder.return_from_kernel(ip, tsc),
            TraceItem::Flush => {
                encoder.flush();
                flush = true;
            }
        }
        result.instructions = encoder.instructions();
        if flush || *pending_record_bytes >= HANDOVER_RECORD_BYTES {
            *pending_record_bytes = 0;
            // Nobody to receive it: the recorder is on its way out.
            let _ = self.packets.send((tid, encoder.drain()));
        }
    }

    /// Sends the packets of all threads, including pending branches.
    fn flush(&mut self) {
        for (&tid, thread) in &mut self.threads {
            thread.pending_record_bytes = 0;
            thread.trace.flush();
            let _ = self.packets.send((tid, thread.trace.drain()));
        }
    }

    /// Sends the last packets, and returns the results.
    fn finish(mut self) -> HashMap<Tid, TraceResult> {
        self.flush();
        self.threads.into_iter().map(|(tid, thread)| (tid, thread.result)).collect()
    }
}
