//! The end of each thread's history, kept in memory while the program runs. Records stay in the
//! trace buffers, and the encoder's other items wait beside them. Nothing is encoded before a
//! thread ends, so writing records is all that slows the program. A full recording that reaches its
//! largest size goes on as a ring.

use super::feed::TraceItem;
use crate::common::Tid;
use crate::engine::Area;
use std::collections::{HashMap, HashSet, VecDeque};

/// The items that are kept of the threads of a process, to be encoded when each thread ends.
#[derive(Debug, Default)]
pub(super) struct Ring {
    /// The kept items of each thread, the oldest first.
    threads: HashMap<Tid, VecDeque<TraceItem>>,
    /// Threads whose traces have ended, so that nothing more is kept of them.
    stopped: HashSet<Tid>,
    /// True if records were overwritten.
    pub(super) overwritten: bool,
}

impl Ring {
    /// Keeps the next item of a thread; drops it if the thread's trace has ended.
    pub(super) fn keep(&mut self, tid: Tid, item: TraceItem) {
        if !self.stopped.contains(&tid) {
            self.threads.entry(tid).or_default().push_back(item);
        }
    }

    /// Ends a thread's trace: its items so far stay, and [`Self::keep`] drops later ones, until the
    /// thread is forgotten ([`Self::take_of_ended`]).
    pub(super) fn stop(&mut self, tid: Tid) {
        self.stopped.insert(tid);
    }

    /// Returns true if the thread's trace has ended.
    pub(super) fn has_stopped(&self, tid: Tid) -> bool {
        self.stopped.contains(&tid)
    }

    /// Drops the items of a buffer that the thread is about to overwrite, and all items before
    /// them. In their place, the thread's history then begins at `tsc`, when the buffer after it
    /// was begun. Does nothing if no records of the buffer are kept: they were taken out before.
    pub(super) fn forget_overwritten(&mut self, tid: Tid, area: Area, buffer: usize, tsc: u64) {
        let items = self.threads.entry(tid).or_default();
        let start = area.offset_of(area.buffer(buffer));
        // An item without records may be at the very end of the buffer. That end is no part of the
        // next buffer: a page that cannot be accessed is between them.
        let inside = |item: &TraceItem| {
            matches!(item, TraceItem::Records { offset, .. }
                if (start..=start + area.buffer_bytes).contains(offset))
        };
        let Some(last) = items.iter().rposition(inside) else {
            // The buffer's records were handed over and encoded, for a snapshot.
            return;
        };
        items.drain(..=last);
        items.push_front(TraceItem::BeginHistory { tsc });
        self.overwritten = true;
    }

    /// Removes and returns the items kept so far of a thread that goes on, for a snapshot; none for
    /// an unknown thread.
    pub(super) fn take_so_far(&mut self, tid: Tid) -> VecDeque<TraceItem> {
        self.threads.get_mut(&tid).map(std::mem::take).unwrap_or_default()
    }

    /// Removes and returns the items of a thread that ended, and forgets the thread; none for an
    /// unknown one.
    pub(super) fn take_of_ended(&mut self, tid: Tid) -> VecDeque<TraceItem> {
        self.stopped.remove(&tid);
        self.threads.remove(&tid).unwrap_or_default()
    }
}
