//! The threads that a client has chosen, as far as its packets tell.
//!
//! gdb tells which thread to resume (`Hc`) only under scheduler locking; otherwise `bs` is meant
//! for the thread that its user has selected, which no packet names. What is known of it: it is the
//! thread of the last stop, until `thread N` probes another (`T`). `info threads` looks at all of
//! them (`Hg`) without selecting any; it lists them first, so that looks before any listing, by
//! simpler clients, can count as choices.
//!
//! gdb never looks at the reply to `H`: it takes each of its choices to stand and does not repeat
//! it. So the choice of a thread that does not exist now stands here, too. Until that thread exists,
//! its registers are an error, and not those of the thread chosen before.

use crate::common::Tid;

/// The threads that a client has chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Chosen {
    general: Tid,
    resumed: Option<Tid>,
    stepping: Tid,
    listed: bool,
}

impl Chosen {
    /// A client that sees `tid` stopped.
    pub(super) fn stopped_at(tid: Tid) -> Self {
        Self { general: tid, resumed: None, stepping: tid, listed: false }
    }

    /// The thread to read registers and memory of.
    pub(super) fn general(&self) -> Tid {
        self.general
    }

    /// The only thread to resume, if the client named one.
    pub(super) fn resumed(&self) -> Option<Tid> {
        self.resumed
    }

    /// The thread that steps where the packet does not say.
    pub(super) fn stepping(&self) -> Tid {
        self.resumed.unwrap_or(self.stepping)
    }

    /// `Hg`.
    pub(super) fn look_at(&mut self, tid: Tid) {
        self.general = tid;
        if !self.listed {
            self.stepping = tid;
        }
    }

    /// `Hg` of a thread that does not exist now.
    pub(super) fn look_for(&mut self, tid: Tid) {
        self.general = tid;
    }

    /// `Hc`: this one only, or all.
    pub(super) fn resume_only(&mut self, tid: Option<Tid>) {
        self.resumed = tid;
    }

    /// `T`, or a script's word: the user has selected this one.
    pub(super) fn select(&mut self, tid: Tid) {
        self.stepping = tid;
    }

    /// The client has listed the threads.
    pub(super) fn list(&mut self) {
        self.listed = true;
    }

    /// The run has stopped. gdb takes the stopped thread as chosen for `Hg`, and its own choice for
    /// `Hc` to stand.
    pub(super) fn stop(&mut self, tid: Tid) {
        *self = Self { resumed: self.resumed, ..Self::stopped_at(tid) };
    }
}
