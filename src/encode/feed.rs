//! Encodes trace buffers as packets in another thread: items go in, in each traced thread's order,
//! and packets come out.

use super::dictionary::{Dictionary, NewEdges};
use super::encoder::{BadRecord, Chains};
use super::ranges::Ranges;
use super::trace::Trace;
use crate::common::Tid;
use crate::engine::{Busy, Shared};
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

/// A message to the encoder about one thread, or about all.
#[derive(Debug)]
pub enum Item {
    /// New edges of superblocks.
    Edges(NewEdges),
    /// From now on another program runs in the process, with other shared memory and other edges.
    Program(Arc<Shared>),
    /// The code that is traced from now on.
    Ranges(Ranges),
    /// Records in the shared memory.
    Records {
        /// The offset of the first record in the shared memory.
        offset: u64,
        /// The size of the records in bytes.
        len: usize,
        /// The buffer to free once the records are read, by its index; `None` if more of its
        /// records follow, or if it is one of a ring.
        frees: Option<(Arc<Busy>, usize)>,
    },
    /// The thread is created at this time.
    Born { tsc: u64 },
    /// The thread's known history begins here, at this time: earlier records are overwritten.
    Begin { tsc: u64 },
    /// Part of a path was executed, and the thread is at `ip`.
    Partial { steps: Vec<Step>, ip: u64 },
    /// The tracer executed an instruction, after which the thread is at `next`.
    Native { insn: Insn, next: u64 },
    /// The thread entered the kernel, by anything but a branch, before the instruction at `ip`.
    Leave { ip: u64 },
    /// The thread returned from the kernel to the program at `ip`.
    Enter { ip: u64, tsc: u64 },
    /// The thread's trace pointer is invalid: its trace ends here.
    Damage,
    /// The thread ended where its last record leads.
    End,
    /// A buffer of an ended thread is no longer used, and no [`Self::Records`] frees it: the last
    /// one, or any of a ring.
    Free(Arc<Busy>, usize),
    /// Requests the packets of the thread so far.
    Flush,
    /// Requests the packets so far of all threads, and a message once they are ready.
    Settled(Sender<()>),
}

impl Item {
    /// Returns the address at which the thread was before this item; `None` if the item does not
    /// show it.
    fn place(&self) -> Option<u64> {
        match self {
            Self::Partial { steps, ip } => Some(steps.first().map_or(*ip, |step| step.ip)),
            Self::Native { insn, .. } => Some(insn.ip.0),
            Self::Leave { ip } => Some(*ip),
            _ => None,
        }
    }
}

/// The result of encoding a thread.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// The number of instructions in the trace.
    pub instructions: u64,
    /// True if the trace ends early, at records or a pointer that the program damaged.
    pub damaged: bool,
}

/// Packets of a thread.
pub type Packets = (Tid, Vec<u8>);

/// The encoder of one process, which runs on a thread of the recorder.
#[derive(Debug)]
pub(super) struct Feed {
    items: Option<Sender<(Tid, Item)>>,
    packets: Receiver<Packets>,
    worker: Option<JoinHandle<HashMap<Tid, Tally>>>,
}

impl Feed {
    /// Starts the encoder on a new thread, which calls `prepare` first.
    pub(super) fn start(
        shared: Arc<Shared>,
        psb_period: u32,
        ranges: Ranges,
        prepare: impl FnOnce() + Send + 'static,
    ) -> Self {
        let (items, incoming) = channel();
        let (outgoing, packets) = channel();
        let worker = std::thread::spawn(move || {
            prepare();
            let mut worker = Worker {
                shared,
                psb_period,
                ranges,
                dictionary: Dictionary::default(),
                chains: Chains::default(),
                threads: HashMap::new(),
                packets: outgoing,
            };
            worker.run(&incoming);
            worker.finish()
        });
        Self { items: Some(items), packets, worker: Some(worker) }
    }

    /// Sends the encoder an item about a thread.
    pub(super) fn send(&self, tid: Tid, item: Item) {
        if let Some(items) = &self.items {
            // The worker ends when this sender is dropped, never before.
            let _ = items.send((tid, item));
        }
    }

    /// Waits until all items are encoded, and their packets are ready.
    pub(super) fn settle(&self, tid: Tid) {
        let (done, is_done) = channel();
        self.send(tid, Item::Settled(done));
        // If the worker has ended, there is nothing to wait for.
        let _ = is_done.recv();
    }

    /// Returns packets that are ready.
    pub(super) fn packets(&self) -> impl Iterator<Item = Packets> + '_ {
        self.packets.try_iter()
    }

    /// Waits until all is encoded. Returns the last packets, and the result of each thread.
    pub(super) fn finish(mut self) -> (Vec<Packets>, HashMap<Tid, Tally>) {
        self.items = None;
        let tallies = self.worker.take().and_then(|worker| worker.join().ok()).unwrap_or_default();
        (self.packets.iter().collect(), tallies)
    }
}

/// Encodes `len` bytes of records at `offset` of the shared memory. The last record must be whole.
fn encode_records(
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
        let left = encoder.records(dictionary, chains, bytes)?;
        let done = bytes.len() - left;
        if done == 0 {
            return Err(BadRecord);
        }
        offset += done as u64;
        len -= done;
    }
    Ok(())
}

struct Worker {
    shared: Arc<Shared>,
    psb_period: u32,
    ranges: Ranges,
    dictionary: Dictionary,
    chains: Chains,
    threads: HashMap<Tid, Encoding>,
    packets: Sender<Packets>,
}

/// The encoding of one thread's trace.
struct Encoding {
    trace: Trace,
    tally: Tally,
    /// The number of bytes of records whose packets are not handed over yet.
    pending_record_bytes: usize,
}

impl Worker {
    fn run(&mut self, items: &Receiver<(Tid, Item)>) {
        for (tid, item) in items {
            match item {
                Item::Edges(news) => self.dictionary.learn(news),
                Item::Program(shared) => {
                    self.shared = shared;
                    self.dictionary = Dictionary::default();
                    self.chains = Chains::default();
                }
                Item::Ranges(ranges) => {
                    for thread in self.threads.values_mut() {
                        thread.trace.set_ranges(&ranges);
                    }
                    self.ranges = ranges;
                }
                Item::Settled(done) => {
                    self.flush();
                    // Nobody waits any more: the recorder is on its way out.
                    let _ = done.send(());
                }
                item => self.of_thread(tid, item),
            }
        }
    }

    /// Handles an item about a thread, which is new with its first one. Once a thread's trace is
    /// damaged, only frees its buffers.
    fn of_thread(&mut self, tid: Tid, item: Item) {
        let new = || Encoding {
            trace: Trace::new(self.psb_period, &self.ranges),
            tally: Tally::default(),
            pending_record_bytes: 0,
        };
        let thread = self.threads.entry(tid).or_insert_with(new);
        let Encoding { trace: encoder, tally, pending_record_bytes } = thread;
        if let Item::Free(busy, index) = &item {
            busy.free(*index);
        }
        if tally.damaged {
            if let Item::Records { frees: Some((busy, index)), .. } = item {
                busy.free(index);
            }
            return;
        }
        if let Some(ip) = item.place()
            && encoder.arrive(&self.dictionary, ip).is_err()
        {
            tally.damaged = true;
            return;
        }
        let mut flush = false;
        match item {
            Item::Edges(..)
            | Item::Program(_)
            | Item::Ranges(_)
            | Item::Free(..)
            | Item::Settled(_) => {}
            Item::Records { offset, len, frees } => {
                *pending_record_bytes += len;
                let (shared, dictionary) = (&self.shared, &self.dictionary);
                let read =
                    encode_records(encoder, dictionary, &mut self.chains, shared, offset, len);
                tally.damaged = read == Err(BadRecord);
                if let Some((busy, index)) = frees {
                    busy.free(index);
                }
            }
            Item::Damage => tally.damaged = true,
            Item::Born { tsc } => encoder.born(tsc),
            Item::Begin { .. } if encoder.has_stopped() => {}
            Item::Begin { tsc } => {
                if encoder.instructions() > 0 {
                    encoder.lose(&self.dictionary);
                    let _ = self.packets.send((tid, encoder.drain()));
                }
                encoder.begin(tsc);
            }
            Item::Partial { steps, ip } => encoder.partial(&self.dictionary, &steps, ip),
            Item::Native { insn, next } => encoder.native(&insn, next),
            Item::Leave { ip } => encoder.leave(ip),
            Item::End => encoder.end(&self.dictionary),
            Item::Enter { ip, tsc } => encoder.enter(ip, tsc),
            Item::Flush => {
                encoder.flush();
                flush = true;
            }
        }
        tally.instructions = encoder.instructions();
        if flush || *pending_record_bytes >= HANDOVER_RECORD_BYTES {
            *pending_record_bytes = 0;
            // Nobody to receive it: the recorder is on its way out.
            let _ = self.packets.send((tid, encoder.drain()));
        }
    }

    /// Hands over the packets of all threads, including pending branches.
    fn flush(&mut self) {
        for (&tid, thread) in &mut self.threads {
            thread.pending_record_bytes = 0;
            thread.trace.flush();
            let _ = self.packets.send((tid, thread.trace.drain()));
        }
    }

    fn finish(mut self) -> HashMap<Tid, Tally> {
        self.flush();
        self.threads.into_iter().map(|(tid, thread)| (tid, thread.tally)).collect()
    }
}
