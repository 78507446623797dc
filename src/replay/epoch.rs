//! A process of the replay: from one execve(2) to the next, or from a keyframe on.

use super::checkpoints::Checkpoints;
use super::contexts::Contexts;
use super::error::Error;
use super::one_cpu::OneCpu;
use super::shared::SharedFiles;
use crate::common::{Addr, AddrRange, Pid};
use crate::engine::{Distance, Run, Stepped, TranslatedProcess, TranslatedThread};
use crate::recording::CodeCache;
use crate::tracee;

/// A process of the replay, and its checkpoints. When dropped, it keeps its code cache for later
/// replays, and ends the process.
#[derive(Debug)]
pub(super) struct Epoch {
    pub(super) engine: TranslatedProcess,
    pub(super) thread: TranslatedThread,
    /// The page with the replay's own SYSCALL instruction.
    pub(super) page: Addr,
    pub(super) contexts: Contexts,
    pub(super) shared: SharedFiles,
    /// Free ranges below the stacks, into which these may grow.
    pub(super) below_stacks: Vec<AddrRange>,
    /// The number of log entries before the point where the process began.
    pub(super) begins: u64,
    pub(super) checkpoints: Checkpoints,
    /// The number of bytes of its memory that came from the recording's final state.
    pub(super) final_bytes: u64,
    pub(super) one_cpu: OneCpu,
    /// The place of the code cache, which is kept for later replays of the program.
    pub(super) code_cache: Option<CodeCache>,
}

impl Epoch {
    /// Creates the state of a process without checkpoints and memory files. The caller sets
    /// `begins`.
    pub(super) fn new(
        engine: TranslatedProcess,
        thread: TranslatedThread,
        page: Addr,
        contexts: Contexts,
    ) -> Self {
        let (begins, below_stacks) = (0, Vec::new());
        let (shared, checkpoints) = (SharedFiles::default(), Checkpoints::default());
        let (final_bytes, one_cpu) = (0, OneCpu::new());
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
            one_cpu,
            code_cache: None,
        }
    }

    pub(super) fn pid(&self) -> Pid {
        self.thread.pid
    }

    /// Runs the loaded thread in translated code for a distance, or to what ends the run before.
    pub(super) fn run(&mut self, distance: Distance) -> Result<Run, Error> {
        let _turn = self.one_cpu.begin_turn(self.thread.tid());
        Ok(self.engine.run_counted(&mut self.thread, distance)?.0)
    }

    /// Executes one instruction of the loaded thread by a step of the CPU.
    pub(super) fn step(&mut self) -> Result<Stepped, Error> {
        let _turn = self.one_cpu.begin_turn(self.thread.tid());
        Ok(self.engine.step_in_program(&mut self.thread)?)
    }
}

impl Drop for Epoch {
    fn drop(&mut self) {
        self.keep_code();
        tracee::end(self.pid());
    }
}
