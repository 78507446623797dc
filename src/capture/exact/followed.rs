//! The state of the children that are followed (`follow`). *Borrowers* are those without a
//! recorder: they run natively in the memory of their parent, as after vfork(2), until they execute
//! a program.

use super::family::Family;
use crate::capture::Error;
use crate::capture::request::Request;
use crate::common::{Pid, Tid};
use crate::tracee::Stop;
use std::collections::{BTreeMap, BTreeSet};

/// The followed children of a program: their recorders, and those that have none yet.
#[derive(Debug)]
pub(super) struct Followed {
    /// The list of all recordings and notes, which the children's recorders share.
    pub(super) family: Family,
    /// The recorders' processes, with the child that each records.
    pub(super) recorders: BTreeMap<Tid, Pid>,
    /// The borrowers.
    pub(super) borrowers: BTreeSet<Tid>,
}

impl Followed {
    /// Returns a value without children, with a new family, if the request asks to follow children;
    /// otherwise `None`.
    pub(super) fn if_requested(request: &Request) -> Result<Option<Self>, Error> {
        request.follow_forks.then(|| Family::new().map(Self::new)).transpose()
    }

    /// Returns a value without children.
    pub(super) fn new(family: Family) -> Self {
        Self { family, recorders: BTreeMap::new(), borrowers: BTreeSet::new() }
    }

    /// Asks the children's recorders, by SIGINT, to end their recordings and leave the children.
    /// Does not wait for that.
    pub(super) fn ask_to_leave(&self) {
        for recorder in self.recorders.keys() {
            // One that is gone has nothing to leave.
            let _ = nix::sys::signal::kill(
                nix::unistd::Pid::from_raw(recorder.0),
                nix::sys::signal::Signal::SIGINT,
            );
        }
    }

    /// Returns true if there is a borrower.
    pub(super) fn lends_memory(&self) -> bool {
        !self.borrowers.is_empty()
    }

    /// Forgets the borrowers, from which the recorder detaches: they go on unrecorded.
    pub(super) fn forget_borrowers(&mut self) {
        self.borrowers.clear();
    }

    /// Notes the end of a child's recorder, and returns true; adds a note if it
    /// was killed. Returns false if `tid` is no such recorder.
    pub(super) fn recorder_ended(&mut self, tid: Tid, stop: Stop) -> bool {
        let Some(child) = self.recorders.remove(&tid) else { return false };
        if let Stop::Killed { signal, .. } = stop {
            self.family.add_note(&format!(
                "the recorder of process {child} was killed by signal {signal}, and the process \
                 with it"
            ));
        }
        true
    }
}
