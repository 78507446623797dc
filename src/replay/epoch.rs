//! The time from one execve(2) to the next, which has its own process.

use super::checkpoints::Checkpoints;
use super::contexts::Contexts;
use super::shared::SharedFiles;
use crate::common::{Addr, Pid};
use crate::engine::{TranslatedProcess, TranslatedThread};
use crate::tracee::end;

/// The process of an epoch, and its copies.
#[derive(Debug)]
pub(super) struct Epoch {
    pub(super) engine: TranslatedProcess,
    pub(super) thread: TranslatedThread,
    /// The page with the replay's own SYSCALL instruction.
    pub(super) page: Addr,
    pub(super) contexts: Contexts,
    pub(super) shared: SharedFiles,
    /// The number of the first entry that is not about the program's beginning.
    pub(super) begins: u64,
    pub(super) checkpoints: Checkpoints,
}

impl Epoch {
    pub(super) fn new(
        engine: TranslatedProcess,
        thread: TranslatedThread,
        page: Addr,
        contexts: Contexts,
        begins: u64,
    ) -> Self {
        let (shared, checkpoints) = (SharedFiles::default(), Checkpoints::default());
        Self { engine, thread, page, contexts, shared, begins, checkpoints }
    }

    pub(super) fn pid(&self) -> Pid {
        self.thread.pid
    }
}

impl Drop for Epoch {
    fn drop(&mut self) {
        end(self.pid());
    }
}
