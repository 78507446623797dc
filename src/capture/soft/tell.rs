//! What the tracer tells the encoder of a thread: its records, as its buffers fill up, and all that
//! the encoder must know before it reads them. A ring keeps it until the thread's end.

use super::feed::Item;
use super::process::Process;
use super::thread::Thread;
use crate::capture::Error;
use crate::capture::clock::now;
use crate::common::Tid;
use crate::encode::{News, Paths};
use crate::engine::{BUFFERS, Busy};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

impl Process {
    /// Tells the encoder of the records up to `pointer`, which is looked at as input.
    pub(super) fn take_records(&mut self, thread: &mut Thread, pointer: u64) {
        self.records(thread, pointer, None);
    }

    /// The thread's buffer is full up to `pointer`: goes on to the next, as soon as the encoder is
    /// done with that, or over the oldest records.
    pub(super) fn next_buffer(&mut self, thread: &mut Thread, pointer: u64) {
        let next = self.buffer_behind(thread);
        if next == thread.buffer {
            thread.told = thread.area().buffer(next);
            return;
        }
        let frees = self.ring.is_none().then(|| (thread.busy().clone(), thread.buffer));
        let stops = self.ring.is_some() && self.comes_to_stop(thread, pointer);
        self.records(thread, pointer, frees);
        if let Some(ring) = &mut self.ring
            && thread.busy().taken()[next]
        {
            let after = thread.began[(next + 1) % BUFFERS];
            ring.overwrite(thread.tid(), thread.area(), next, after);
            thread.busy().free(next);
        }
        thread.busy().take(next);
        thread.began[next] = now().0;
        thread.buffer = next;
        thread.told = thread.area().buffer(next);
        if let Some(ring) = self.ring.as_mut().filter(|_| stops) {
            ring.stop(thread.tid());
        }
    }

    /// The buffer that comes when the thread's is full: the same one where its trace has ended.
    pub(super) fn buffer_behind(&self, thread: &Thread) -> usize {
        let has_stopped = self.ring.as_ref().is_some_and(|ring| ring.has_stopped(thread.tid()));
        if has_stopped { thread.buffer } else { (thread.buffer + 1) % BUFFERS }
    }

    /// Nothing more comes of a thread: its area is free once the encoder has read it.
    pub(super) fn close(&mut self, thread: Thread) {
        let tid = thread.tid();
        let taken = thread.busy().taken();
        self.tell_kept(tid);
        for (index, taken) in taken.into_iter().enumerate() {
            if taken && (self.ring.is_some() || index == thread.buffer) {
                self.tell_now(tid, Item::Free(thread.busy().clone(), index));
            }
        }
        self.engine.give_area(thread.area(), thread.translated.busy);
    }

    /// Tells the encoder what was kept of a thread.
    pub(super) fn tell_kept(&mut self, tid: Tid) {
        let kept = self.ring.as_mut().map(|ring| ring.take(tid)).unwrap_or_default();
        self.tell_all(tid, kept);
    }

    /// Tells the encoder what was kept so far of a thread that goes on.
    pub(super) fn tell_kept_so_far(&mut self, tid: Tid) {
        let kept = self.ring.as_mut().map(|ring| ring.hand_over(tid)).unwrap_or_default();
        self.tell_all(tid, kept);
    }

    fn tell_all(&mut self, tid: Tid, items: VecDeque<Item>) {
        for item in items {
            self.tell_now(tid, item);
        }
        self.tell_now(tid, Item::Flush);
    }

    fn records(&mut self, thread: &mut Thread, pointer: u64, frees: Option<(Arc<Busy>, usize)>) {
        let pointer = if thread.holds(pointer) {
            pointer
        } else {
            self.note_harm("overwrote its trace pointer");
            self.tell(thread.tid(), Item::Damage);
            thread.told
        };
        let len = usize::try_from(pointer.saturating_sub(thread.told)).unwrap_or(0);
        let offset = thread.area().offset_of(thread.told);
        thread.told = thread.told.max(pointer);
        if len > 0 || frees.is_some() {
            self.tell(thread.tid(), Item::Records { offset, len, frees });
        }
    }

    /// Tells the encoder of a thread, now or later.
    pub(super) fn tell(&mut self, tid: Tid, item: Item) {
        match &mut self.ring {
            Some(ring) => ring.keep(tid, item),
            None => self.tell_now(tid, item),
        }
    }

    /// Tells the encoder of a thread, after all edges that it may meet.
    fn tell_now(&mut self, tid: Tid, item: Item) {
        let edges = self.engine.translator().edges_from(self.edges_told);
        if !edges.is_empty() {
            let mut edges = edges.to_vec();
            for (changed, tsc) in since(&self.young, self.edges_told, edges.len()) {
                for edge in edges.get_mut(changed).unwrap_or_default() {
                    edge.since = tsc;
                }
            }
            self.young.clear();
            let pushes = self.engine.translator().return_addresses(self.pushes_told);
            let quiet_jumps = self.engine.translator().quiet_jumps(self.quiet_told);
            self.edges_told += edges.len();
            self.pushes_told += pushes.len();
            self.quiet_told += quiet_jumps.len();
            let news = News {
                edges,
                pushes: pushes.to_vec(),
                quiet_jumps: quiet_jumps.to_vec(),
                paths: self.new_paths(),
            };
            self.feed.tell(tid, Item::Edges(news));
        }
        self.feed.tell(tid, item);
    }

    /// The paths of superblocks that the encoder was not told of, where it wants them.
    fn new_paths(&mut self) -> Vec<Paths> {
        if self.resolver.ranges().are_none() {
            return Vec::new();
        }
        let told =
            std::mem::replace(&mut self.paths_told, self.engine.translator().superblock_count());
        let new = (told..self.paths_told).filter_map(|number| {
            let number = u32::try_from(number).ok()?;
            Some(Paths::new(self.engine.translator().path(number)))
        });
        new.collect()
    }

    /// Hands packets that are there to the recording.
    pub(super) fn write_packets(&mut self) -> Result<(), Error> {
        for (tid, bytes) in self.feed.packets() {
            self.recorder.trace(tid, &bytes)?;
        }
        self.recorder.flush_if_due()?;
        self.become_ring_if_full()
    }
}

/// Of `count` edges, the first of which has the number `told`: which of them are of code that is as
/// it is since a time. Each of `young` says so from a number on, up to the next one; they are in
/// order, and of a program that makes code as it runs there are as many as edges.
fn since(
    young: &[(usize, u64)],
    told: usize,
    count: usize,
) -> impl Iterator<Item = (Range<usize>, u64)> {
    let inside = move |number: usize| number.saturating_sub(told).min(count);
    let ends = young.iter().skip(1).map(|(first, _)| *first).chain([usize::MAX]);
    young.iter().zip(ends).map(move |((first, tsc), end)| (inside(*first)..inside(end), *tsc))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn an_edge_is_as_old_as_the_last_change_before_it(
            mut young in prop::collection::vec((0_usize..60, 1_u64..99), 0..20),
            told in 0_usize..40,
            count in 0_usize..40,
        ) {
            young.sort_by_key(|(first, _)| *first);
            let mut found = vec![0; count];
            for (edges, tsc) in since(&young, told, count) {
                found[edges].fill(tsc);
            }
            let last = |number: usize| young.iter().rev().find(|(first, _)| *first <= number);
            let expected = (told..told + count).map(|number| last(number).map_or(0, |(_, tsc)| *tsc));
            prop_assert_eq!(found, expected.collect::<Vec<_>>());
        }
    }
}
