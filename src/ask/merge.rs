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
/// The number of steps of a walk after which it sends a chunk that is not full.
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
    /// Adds an event, and sends the chunk if it is full. The positions of a thread's events must
    /// not descend. Breaks if the receiver is gone.
    pub(super) fn send(&mut self, position: u64, what: T) -> ControlFlow<()> {
        self.events.push(Event { position, tid: self.tid, what });
        if self.events.len() >= CHUNK { self.flush(position) } else { ControlFlow::Continue(()) }
    }

    /// Counts a step of the walk, which is at the position that `position` returns. If none of the
    /// last [`STEPS`] steps filled a chunk, sends the chunk as it is, since the receiver may wait
    /// for this thread. Breaks if the receiver is gone.
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
    /// True if all events were received and taken, and no more follow.
    is_over: bool,
}

impl<T> Source<T> {
    /// Returns the position of the next event, or a lower bound of it if it is not received yet.
    fn next(&self) -> u64 {
        self.events.front().map_or(self.until, |event| event.position)
    }

    /// Waits for the next chunk. At the end of the walk, `until` becomes `u64::MAX`.
    fn receive(&mut self) {
        match self.chunks.recv() {
            Ok(chunk) => {
                self.events.extend(chunk.events);
                self.until = chunk.until;
            }
            Err(_) => self.is_over = true,
        }
    }
}

impl<T> Merged<T> {
    /// Returns the next event without taking it; waits for it. `None` at the end of all walks.
    pub(super) fn peek(&mut self) -> Option<&Event<T>> {
        let first = self.first()?;
        self.sources.get(first)?.events.front()
    }

    /// Returns the number of the source with the next event, and waits until this event is
    /// received. `None` at the end of all walks.
    fn first(&mut self) -> Option<usize> {
        loop {
            let ready = |source: &Source<T>| !source.events.is_empty();
            let open = self.sources.iter().enumerate().filter(|(_, source)| !source.is_over);
            // At the same position, a source without a received event comes first: it may have one
            // there.
            let first = open.min_by_key(|(_, source)| (source.next(), ready(source)));
            let first = first.map(|(number, _)| number)?;
            let source = self.sources.get_mut(first)?;
            if ready(source) {
                return Some(first);
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

/// Walks the path of each thread with `walk` in a separate thread, and passes the merged events to
/// `consume`. Returns its result. A walk has to end when its sender breaks, as it does after
/// `consume` returned.
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
            sources.push(Source { chunks, events: VecDeque::new(), until: 0, is_over: false });
        }
        consume(Merged { sources })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the merged events of threads, each of which sends its list.
    fn merged_lists(lists: &[&[u64]]) -> Vec<(u64, usize)> {
        let tids: Vec<Tid> = (0_i32..).map(Tid).take(lists.len()).collect();
        let walk = |tid: Tid, sender: &mut Sender<usize>| {
            let number = usize::try_from(tid.0).unwrap();
            let sent = lists[number].iter().try_for_each(|at| sender.send(*at, number));
            assert!(sent.is_continue());
        };
        merged(&tids, walk, |all| all.map(|event| (event.position, event.what)).collect())
    }

    #[test]
    fn events_are_in_the_order_of_the_run() {
        let merged = merged_lists(&[&[1, 4, 9], &[2, 3, 10], &[]]);
        assert_eq!(merged, [(1, 0), (2, 1), (3, 1), (4, 0), (9, 0), (10, 1)]);
    }

    #[test]
    fn no_thread_loses_its_events_at_the_end() {
        let last = u64::MAX;
        let merged = merged_lists(&[&[1, last, last], &[2, last], &[last]]);
        let number_of = |thread| merged.iter().filter(|event| event.1 == thread).count();
        assert_eq!([0, 1, 2].map(number_of), [3, 2, 1]);
        assert_eq!(&merged[..2], [(1, 0), (2, 1)]);
    }
}
