//! Events of the threads of a recording, in the order of the run: a separate thread walks each
//! path, and the results are merged as they come.

use crate::common::Tid;
use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

/// The number of events that a walker sends at a time.
const CHUNK: usize = 512;
/// The maximum number of chunks of a walker that wait to be received.
const AHEAD: usize = 4;
/// The number of steps of a walk after which it reports how far it is.
const STEPS: u32 = 1 << 14;

/// An event at a position of the run.
#[derive(Debug)]
pub(super) struct Event<T> {
    pub(super) position: u64,
    pub(super) tid: Tid,
    pub(super) what: T,
}

/// Events of a thread, and a lower bound of the positions of later ones.
struct Chunk<T> {
    events: Vec<Event<T>>,
    until: u64,
}

/// The sending end of a walk, for its events.
pub(super) struct Sender<T> {
    tid: Tid,
    events: Vec<Event<T>>,
    steps: u32,
    chunks: SyncSender<Chunk<T>>,
}

impl<T> Sender<T> {
    /// Sends an event. Breaks if the receiver is gone.
    pub(super) fn send(&mut self, position: u64, what: T) -> ControlFlow<()> {
        self.events.push(Event { position, tid: self.tid, what });
        if self.events.len() >= CHUNK { self.flush(position) } else { ControlFlow::Continue(()) }
    }

    /// Reports a step of the walk; `position` returns where it is. Breaks if the receiver is gone.
    pub(super) fn step(&mut self, position: impl FnOnce() -> u64) -> ControlFlow<()> {
        self.steps += 1;
        if self.steps < STEPS { ControlFlow::Continue(()) } else { self.flush(position()) }
    }

    fn flush(&mut self, until: u64) -> ControlFlow<()> {
        self.steps = 0;
        let events = std::mem::take(&mut self.events);
        match self.chunks.send(Chunk { events, until }) {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        }
    }
}

/// The events of all threads, in order.
pub(super) struct Merged<T> {
    sources: Vec<Source<T>>,
}

struct Source<T> {
    chunks: Receiver<Chunk<T>>,
    events: VecDeque<Event<T>>,
    /// A lower bound of the positions of events that are not received yet.
    until: u64,
}

impl<T> Source<T> {
    /// Returns the position of the next event, or a lower bound of it if it is not received yet.
    fn next(&self) -> u64 {
        self.events.front().map_or(self.until, |event| event.position)
    }

    fn receive(&mut self) {
        match self.chunks.recv() {
            Ok(chunk) => {
                self.events.extend(chunk.events);
                self.until = chunk.until;
            }
            Err(_) => self.until = u64::MAX,
        }
    }
}

impl<T> Merged<T> {
    /// Returns the next event without taking it; waits for it. `None` at the end of all walks.
    pub(super) fn peek(&mut self) -> Option<&Event<T>> {
        let first = self.first()?;
        self.sources.get(first)?.events.front()
    }

    fn first(&mut self) -> Option<usize> {
        loop {
            let ready = |source: &Source<T>| !source.events.is_empty();
            let first = (0..self.sources.len()).min_by_key(|number| {
                let source = self.sources.get(*number);
                // At the same position, a source without a received event comes first: it may have
                // one there.
                source.map(|source| (source.next(), ready(source)))
            })?;
            let source = self.sources.get_mut(first)?;
            if ready(source) {
                return Some(first);
            }
            if source.until == u64::MAX {
                return None;
            }
            source.receive();
        }
    }
}

impl<T> Iterator for Merged<T> {
    type Item = Event<T>;

    fn next(&mut self) -> Option<Event<T>> {
        let first = self.first()?;
        self.sources.get_mut(first)?.events.pop_front()
    }
}

/// Walks the path of each thread with `walk`, and passes the merged events to `consume`. The walks
/// end when `consume` returns.
pub(super) fn merged<T: Send, R>(
    tids: &[Tid],
    walk: impl Fn(Tid, &mut Sender<T>) + Sync,
    consume: impl FnOnce(Merged<T>) -> R,
) -> R {
    thread::scope(|scope| {
        let mut sources = Vec::new();
        for tid in tids {
            let (ours, chunks) = sync_channel(AHEAD);
            let walk = &walk;
            scope.spawn(move || {
                let mut sender = Sender { tid: *tid, events: Vec::new(), steps: 0, chunks: ours };
                walk(*tid, &mut sender);
                // If the receiver is gone, the last events are dropped.
                let _ = sender.flush(u64::MAX);
            });
            sources.push(Source { chunks, events: VecDeque::new(), until: 0 });
        }
        consume(Merged { sources })
    })
}
