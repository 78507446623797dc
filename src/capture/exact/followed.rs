//! The state of the children that are followed. *Borrowers* are those without a recorder, which use
//! the memory of their parent.

use super::family::Family;
use crate::capture::Error;
use crate::capture::request::Request;
use crate::common::{Pid, Tid};
use crate::tracee::Stop;
use std::collections::{BTreeMap, BTreeSet};

/// The followed children of a program: their recorders, and those that have none yet.
#[derive(Debug)]
pub(super) struct Followed {
    pub(super) family: Family,
    /// The recorders' processes, with the child that each records.
    pub(super) recorders: BTreeMap<Tid, Pid>,
    /// Children that run natively in their parent's memory until they execute a program.
    pub(super) borrowers: BTreeSet<Tid>,
}

impl Followed {
    /// Returns a value without children, if the children of a program are to be followed.
    pub(super) fn of(request: &Request) -> Result<Option<Self>, Error> {
        request.follow_forks.then(|| Family::new().map(Self::with)).transpose()
    }

    pub(super) fn with(family: Family) -> Self {
        Self { family, recorders: BTreeMap::new(), borrowers: BTreeSet::new() }
    }

    /// Asks the recorders, by SIGINT, to end their recordings and leave the children.
    pub(super) fn leave(&self) {
        for recorder in self.recorders.keys() {
            // One that is gone has nothing to leave.
            let _ = nix::sys::signal::kill(
                nix::unistd::Pid::from_raw(recorder.0),
                nix::sys::signal::Signal::SIGINT,
            );
        }
    }

    /// Returns true if a child runs natively in the memory of its parent.
    pub(super) fn lends_memory(&self) -> bool {
        !self.borrowers.is_empty()
    }

    /// Forgets the children that run natively, which are left.
    pub(super) fn forget_borrowers(&mut self) {
        self.borrowers.clear();
    }

    /// Notes the end of a recorder. Returns false if the process is none.
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
