//! The end of each thread's history, kept in memory while the program runs: records stay in the
//! trace buffers, and what else the encoder must know waits beside them. Nothing is encoded before
//! a thread ends, so a program is slowed by writing its records and by nothing else.

use super::area::Area;
use super::feed::Item;
use crate::common::Tid;
use std::collections::{HashMap, VecDeque};

/// What is kept of all threads of a process.
#[derive(Debug, Default)]
pub(super) struct Ring {
    threads: HashMap<Tid, VecDeque<Item>>,
    /// Something was overwritten.
    pub(super) overwritten: bool,
}

impl Ring {
    /// Keeps what comes next of a thread.
    pub(super) fn keep(&mut self, tid: Tid, item: Item) {
        self.threads.entry(tid).or_default().push_back(item);
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
        if let Some(last) = items.iter().rposition(inside) {
            items.drain(..=last);
        }
        items.push_front(Item::Begin { tsc });
        self.overwritten = true;
    }

    /// All that is kept of a thread.
    pub(super) fn take(&mut self, tid: Tid) -> VecDeque<Item> {
        self.threads.remove(&tid).unwrap_or_default()
    }
}
