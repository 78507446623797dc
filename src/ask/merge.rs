//! Events of the threads of a recording, in the order of the run: a separate thread walks each
//! path, and the results are merged as they come.
//!
//! The next event is the one with the lowest position, once no other walk can send an earlier one.
//! So each chunk that a walk sends has a lower bound of the positions of its later events, and a
//! walk without events sends an empty chunk now and then.

use crate::common::Tid;
use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

/// The number of events that a walker sends at a time.
const CHUNK: usize = 512;
/// The maximum number of chunks of a walker that wait to be received.
const MOST_WAITING: usize = 4;
/// The number of steps of a walk after which it sends a chunk that is not full.
const MOST_STEPS: u32 = 1 << 14;

/// An event at a position of the run.
#[derive(Debug)]
pub(super) struct Event<T> {
    pub(super) position: u64,
    pub(super) tid: Tid,
    pub(super) data: T,
}

/// Events of a thread, as they are sent in one piece, and a lower bound of the positions of later
/// ones.
struct Chunk<T> {
    events: Vec<Event<T>>,
    lower_bound: u64,
}

/// The sending end of the walk of one thread: it collects events, and sends them in chunks.
pub(super) struct Sender<T> {
    tid: Tid,
    /// The events that are not sent yet.
    events: Vec<Event<T>>,
    /// The steps of the walk since the last chunk was sent.
    steps: u32,
    chunks: SyncSender<Chunk<T>>,
}

impl<T> Sender<T> {
    /// Adds an event, and sends the chunk if it is full; blocks while too many chunks wait to be
    /// received. The positions of a thread's events must not descend. Breaks if the receiver is
    /// gone.
    pub(super) fn send(&mut self, position: u64, data: T) -> ControlFlow<()> {
        self.events.push(Event { position, tid: self.tid, data });
        if self.events.len() >= CHUNK { self.flush(position) } else { ControlFlow::Continue(()) }
    }

    /// Counts a step of the walk, which is at the position that `position` returns. If none of the
    /// last [`MOST_STEPS`] steps filled a chunk, sends the chunk as it is, since the receiver may
    /// wait for this thread. Breaks if the receiver is gone.
    pub(super) fn count_step(&mut self, position: impl FnOnce() -> u64) -> ControlFlow<()> {
        self.steps += 1;
        if self.steps < MOST_STEPS { ControlFlow::Continue(()) } else { self.flush(position()) }
    }

    /// Sends the collected events, even if there are none; blocks while too many chunks wait. Later
    /// events must not be before `lower_bound`. Breaks if the receiver is gone.
    fn flush(&mut self, lower_bound: u64) -> ControlFlow<()> {
        self.steps = 0;
        let events = std::mem::take(&mut self.events);
        match self.chunks.send(Chunk { events, lower_bound }) {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        }
    }
}

/// The events of all threads, in the order of their positions; at the same position, in the order
/// of the threads.
pub(super) struct Merged<T> {
    sources: Vec<ThreadEvents<T>>,
}

/// The receiving end of the walk of one thread.
struct ThreadEvents<T> {
    chunks: Receiver<Chunk<T>>,
    /// The events that are received and not taken yet.
    events: VecDeque<Event<T>>,
    /// A lower bound of the positions of events that are not received yet.
    lower_bound: u64,
    /// True if the walk has ended and all of its events were received and taken.
    is_over: bool,
}

impl<T> ThreadEvents<T> {
    /// Returns the position of the next event, or a lower bound of it if it is not received yet.
    fn next_position(&self) -> u64 {
        self.events.front().map_or(self.lower_bound, |event| event.position)
    }

    /// Waits for the next chunk. Sets `is_over` if the walk has ended; its last chunk has set
    /// `lower_bound` to `u64::MAX`.
    fn receive(&mut self) {
        match self.chunks.recv() {
            Ok(chunk) => {
                self.events.extend(chunk.events);
                self.lower_bound = chunk.lower_bound;
            }
            Err(_) => self.is_over = true,
        }
    }
}

impl<T> Merged<T> {
    /// Waits for the next event, and returns it without taking it. `None` at the end of all walks.
    pub(super) fn peek(&mut self) -> Option<&Event<T>> {
        let next = self.source_of_next()?;
        self.sources.get(next)?.events.front()
    }

    /// Returns the number of the source with the next event, and waits until this event is
    /// received. `None` at the end of all walks.
    fn source_of_next(&mut self) -> Option<usize> {
        loop {
            let ready = |source: &ThreadEvents<T>| !source.events.is_empty();
            let open = self.sources.iter().enumerate().filter(|(_, source)| !source.is_over);
            // At the same position, a source without a received event comes first: it may have one
            // there.
            let first = open.min_by_key(|(_, source)| (source.next_position(), ready(source)));
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
        let next = self.source_of_next()?;
        self.sources.get_mut(next)?.events.pop_front()
    }
}

/// Walks the path of each thread with `walk` in a separate thread, and passes the merged events to
/// `consume`, which runs in the calling thread. Returns the result of `consume` after all walks
/// have ended. A walk has to end when its sender breaks, as it does after `consume` returned. If
/// `consume` panics, or a walk does, this panics after all walks have ended.
pub(super) fn merged<T: Send, R>(
    tids: &[Tid],
    walk: impl Fn(Tid, &mut Sender<T>) + Sync,
    consume: impl FnOnce(Merged<T>) -> R,
) -> R {
    thread::scope(|scope| {
        let mut sources = Vec::new();
        for tid in tids {
            let (ours, chunks) = sync_channel(MOST_WAITING);
            let walk = &walk;
            scope.spawn(move || {
                let mut sender = Sender { tid: *tid, events: Vec::new(), steps: 0, chunks: ours };
                walk(*tid, &mut sender);
                // If the receiver is gone, the last events are dropped.
                let _ = sender.flush(u64::MAX);
            });
            sources.push(ThreadEvents {
                chunks,
                events: VecDeque::new(),
                lower_bound: 0,
                is_over: false,
            });
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
        merged(&tids, walk, |all| all.map(|event| (event.position, event.data)).collect())
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
