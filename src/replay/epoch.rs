//! A process of the replay: from one execve(2) to the next, or from a keyframe on.

use super::checkpoints::Checkpoints;
use super::contexts::Contexts;
use super::shared::SharedFiles;
use crate::common::{Addr, AddrRange, Pid};
use crate::engine::{TranslatedProcess, TranslatedThread};
use crate::tracee::end;

/// A process of the replay, and its copies.
#[derive(Debug)]
pub(super) struct Epoch {
    pub(super) engine: TranslatedProcess,
    pub(super) thread: TranslatedThread,
    /// The page with the replay's own SYSCALL instruction.
    pub(super) page: Addr,
    pub(super) contexts: Contexts,
    pub(super) shared: SharedFiles,
    /// Where stacks have room to grow, below what the program had of them at first.
    pub(super) below_stacks: Vec<AddrRange>,
    /// The entries before its beginning: those about a program's start, or those before a keyframe.
    pub(super) begins: u64,
    pub(super) checkpoints: Checkpoints,
    /// The bytes of its memory that came from the final state.
    pub(super) final_bytes: u64,
}

impl Epoch {
    pub(super) fn new(
        engine: TranslatedProcess,
        thread: TranslatedThread,
        page: Addr,
        contexts: Contexts,
    ) -> Self {
        let (begins, below_stacks) = (0, Vec::new());
        let (shared, checkpoints) = (SharedFiles::default(), Checkpoints::default());
        let final_bytes = 0;
        Self {
            engine,
            thread,
            page,
            contexts,
            shared,
            below_stacks,
            begins,
            checkpoints,
            final_bytes,
        }
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
