//! From the trace buffers to packets, on a thread of its own: what the tracer sees goes in, in
//! each traced thread's order, and packets come out.

use super::dictionary::{Dictionary, News};
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

/// Packets are handed over when this many bytes have come together.
const OUTPUT_BYTES: usize = 256 << 10;
/// Records are read by this many bytes, which stay in the cache.
const READ_BYTES: usize = 16 << 10;

/// What the tracer tells of a thread, or of all.
#[derive(Debug)]
pub enum Item {
    /// What superblocks have from now on.
    Edges(News),
    /// Another program runs in the process, with a memory and with edges of its own.
    Program(Arc<Shared>),
    /// The trace is of this code from now on.
    Ranges(Ranges),
    /// Records in the shared memory. The buffer is done with them if one is named.
    Records { offset: u64, len: usize, frees: Option<(Arc<Busy>, usize)> },
    /// The thread is born at this time.
    Born { tsc: u64 },
    /// The thread's history begins here, at this time: what was before is overwritten.
    Begin { tsc: u64 },
    /// Part of a path was executed, and the thread stands at `ip`.
    Partial { steps: Vec<Step>, ip: u64 },
    /// The tracer executed an instruction.
    Native { insn: Insn, next: u64 },
    /// The thread went to the kernel before the instruction at `ip`.
    Leave { ip: u64 },
    /// The thread goes on in the program.
    Enter { ip: u64, tsc: u64 },
    /// The thread's trace pointer makes no sense: nothing that comes of it counts.
    Damage,
    /// Nothing more is known of the thread, which stands where its last record leads.
    End,
    /// A buffer is not used any more.
    Free(Arc<Busy>, usize),
    /// Everything so far is wanted.
    Flush,
    /// Everything so far is wanted of all threads: somebody waits for that.
    Settled(Sender<()>),
}

impl Item {
    /// Where the thread was before what this tells of, if it says so.
    fn place(&self) -> Option<u64> {
        match self {
            Self::Partial { steps, ip } => Some(steps.first().map_or(*ip, |step| step.ip)),
            Self::Native { insn, .. } => Some(insn.ip.0),
            Self::Leave { ip } => Some(*ip),
            _ => None,
        }
    }
}

/// What came of a thread.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    pub instructions: u64,
    /// Why the trace ends early, if it does.
    pub damaged: bool,
}

/// Packets of a thread.
pub type Packets = (Tid, Vec<u8>);

/// The encoder of one process.
#[derive(Debug)]
pub(super) struct Feed {
    items: Option<Sender<(Tid, Item)>>,
    packets: Receiver<Packets>,
    worker: Option<JoinHandle<HashMap<Tid, Tally>>>,
}

impl Feed {
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

    /// Tells of a thread.
    pub(super) fn tell(&self, tid: Tid, item: Item) {
        if let Some(items) = &self.items {
            // The worker ends when this sender is dropped, never before.
            let _ = items.send((tid, item));
        }
    }

    /// Waits until all that was told is encoded, and its packets are there.
    pub(super) fn settle(&self, tid: Tid) {
        let (done, is_done) = channel();
        self.tell(tid, Item::Settled(done));
        // Where the worker is gone, so is all that it had.
        let _ = is_done.recv();
    }

    /// Packets that are there.
    pub(super) fn packets(&self) -> impl Iterator<Item = Packets> + '_ {
        self.packets.try_iter()
    }

    /// Waits until all is encoded. Gives the last packets, and what came of each thread.
    pub(super) fn finish(mut self) -> (Vec<Packets>, HashMap<Tid, Tally>) {
        self.items = None;
        let tallies = self.worker.take().and_then(|worker| worker.join().ok()).unwrap_or_default();
        (self.packets.iter().collect(), tallies)
    }
}

/// Encodes the records at `offset`, which must be whole at their end.
fn encode_records(
    encoder: &mut Trace,
    dictionary: &Dictionary,
    chains: &mut Chains,
    shared: &Shared,
    mut offset: u64,
    mut len: usize,
) -> Result<(), BadRecord> {
    // What the program could change meanwhile is looked at once only, here.
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
    threads: HashMap<Tid, (Trace, Tally, usize)>,
    packets: Sender<Packets>,
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
                    self.threads.values_mut().for_each(|(trace, ..)| trace.set_ranges(&ranges));
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

    fn of_thread(&mut self, tid: Tid, item: Item) {
        let new = || (Trace::new(self.psb_period, &self.ranges), Tally::default(), 0);
        let (encoder, tally, pending) = self.threads.entry(tid).or_insert_with(new);
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
                *pending += len;
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
        if flush || *pending >= OUTPUT_BYTES {
            *pending = 0;
            // Nobody to receive it: the recorder is on its way out.
            let _ = self.packets.send((tid, encoder.drain()));
        }
    }

    /// Hands over all packets.
    fn flush(&mut self) {
        for (&tid, (encoder, _, pending)) in &mut self.threads {
            *pending = 0;
            encoder.flush();
            let _ = self.packets.send((tid, encoder.drain()));
        }
    }

    fn finish(mut self) -> HashMap<Tid, Tally> {
        self.flush();
        self.threads.into_iter().map(|(tid, (_, tally, _))| (tid, tally)).collect()
    }
}
