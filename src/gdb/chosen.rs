//! The threads that a client has chosen, as far as its packets show: the *general* one, whose
//! registers it reads (`Hg`), the one to *resume* (`Hc`), and the one that its user has *selected*.
//!
//! gdb names the thread to resume only under scheduler locking. Otherwise `bs` is meant for the
//! selected thread, which no packet names. At a stop, that is the stopped thread. Later, the
//! packets let it be guessed: before `thread N` selects a thread, gdb asks whether it is alive
//! (`T`). A simpler client only sends `Hg`. But gdb sends `Hg` without a selection, too: to read
//! the registers of all threads for `info threads`, after it has listed them. So only an `Hg`
//! before any listing counts as a selection.
//!
//! gdb ignores the reply to `H`: it assumes that each of its choices succeeded and does not repeat
//! it. So the choice of a thread that does not exist now is kept here, too. Until that thread
//! exists, reads of its registers fail, instead of returning those of the thread chosen before.

use crate::common::Tid;

/// The threads that a client has chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Chosen {
    /// The thread of the last `Hg`.
    general: Tid,
    /// The thread of the last `Hc`; `None` for all threads.
    resumed: Option<Tid>,
    /// The thread that the client's user has selected.
    selected: Tid,
    /// True if the client has listed the threads.
    listed: bool,
}

impl Chosen {
    /// Returns the choices of a client that was sent a stop of thread `tid` and has chosen nothing
    /// since.
    pub(super) fn stopped_at(tid: Tid) -> Self {
        Self { general: tid, resumed: None, selected: tid, listed: false }
    }

    /// Returns the thread whose registers and memory are read and written. It may not exist now.
    pub(super) fn thread_to_read(&self) -> Tid {
        self.general
    }

    /// Returns the only thread to resume, by the last `Hc`; `None` if all are resumed.
    pub(super) fn only_resumed(&self) -> Option<Tid> {
        self.resumed
    }

    /// Returns the thread that steps if the packet names none: that of the last `Hc`, else the
    /// selected one.
    pub(super) fn thread_to_step(&self) -> Tid {
        self.resumed.unwrap_or(self.selected)
    }

    /// Handles `Hg`: the client reads from this thread. If it has not listed the threads before,
    /// its user has also selected this one.
    pub(super) fn read_from(&mut self, tid: Tid) {
        self.general = tid;
        if !self.listed {
            self.selected = tid;
        }
    }

    /// Handles `Hg` for a thread that does not exist now: reads fail until it exists. Unlike
    /// [`Self::read_from`], selects no thread.
    pub(super) fn read_from_missing(&mut self, tid: Tid) {
        self.general = tid;
    }

    /// Handles `Hc`: notes the only thread to resume; `None` for all.
    pub(super) fn resume_only(&mut self, tid: Option<Tid>) {
        self.resumed = tid;
    }

    /// Handles `T`, or a script's request: the user has selected this thread, so it steps if a
    /// packet names none. Reads are still from the thread of `Hg`.
    pub(super) fn select(&mut self, tid: Tid) {
        self.selected = tid;
    }

    /// Notes that the client has listed the threads.
    pub(super) fn note_listing(&mut self) {
        self.listed = true;
    }

    /// Handles a stop: chooses and selects the stopped thread, as gdb assumes, and forgets that the
    /// client has listed the threads. The choice of `Hc` stays valid.
    pub(super) fn note_stop(&mut self, tid: Tid) {
        *self = Self { resumed: self.resumed, ..Self::stopped_at(tid) };
    }
}
