//! The end of each thread's history, kept in memory while the program runs: records stay in the
//! trace buffers, and what else the encoder must know waits beside them. Nothing is encoded before
//! a thread ends, so a program is slowed by writing its records and by nothing else. A recording of
//! all that has come to its largest size goes on as a ring.

use super::feed::Item;
use crate::common::Tid;
use crate::engine::Area;
use std::collections::{HashMap, HashSet, VecDeque};

/// What is kept of all threads of a process.
#[derive(Debug, Default)]
pub(super) struct Ring {
    threads: HashMap<Tid, VecDeque<Item>>,
    /// Threads of which nothing more is kept: their traces have ended.
    stopped: HashSet<Tid>,
    /// Something was overwritten.
    pub(super) overwritten: bool,
}

impl Ring {
    /// Keeps what comes next of a thread.
    pub(super) fn keep(&mut self, tid: Tid, item: Item) {
        if !self.stopped.contains(&tid) {
            self.threads.entry(tid).or_default().push_back(item);
        }
    }

    /// The thread's trace has ended: what is kept of it stays.
    pub(super) fn stop(&mut self, tid: Tid) {
        self.stopped.insert(tid);
    }

    /// Whether the thread's trace has ended.
    pub(super) fn has_stopped(&self, tid: Tid) -> bool {
        self.stopped.contains(&tid)
    }

    /// A buffer of the thread is about to be overwritten: what was before the next one, which was
    /// begun at `tsc`, is forgotten.
    pub(super) fn overwrite(&mut self, tid: Tid, area: Area, buffer: usize, tsc: u64) {
        let items = self.threads.entry(tid).or_default();
        let start = area.offset_of(area.buffer(buffer));
        let inside = |item: &Item| {
            matches!(item, Item::Records { offset, .. }
                if (start..=start + area.buffer_bytes).contains(offset))
        };
        let Some(last) = items.iter().rposition(inside) else {
            // All of it was asked for, and is encoded.
            return;
        };
        items.drain(..=last);
        items.push_front(Item::Begin { tsc });
        self.overwritten = true;
    }

    /// What is kept of a thread, which goes on.
    pub(super) fn hand_over(&mut self, tid: Tid) -> VecDeque<Item> {
        self.threads.get_mut(&tid).map(std::mem::take).unwrap_or_default()
    }

    /// All that is kept of a thread.
    pub(super) fn take(&mut self, tid: Tid) -> VecDeque<Item> {
        self.stopped.remove(&tid);
        self.threads.remove(&tid).unwrap_or_default()
    }
}
