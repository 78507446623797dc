//! A process of the replay, which repeats one program of the run: the part from one execve(2) to
//! the next. It begins at the program's start, or at a *keyframe*, a copy of the program's state in
//! the recording.
//!
//! The program's threads take turns on the process's only thread, and are its *contexts*: their
//! registers are kept aside, but for those of the *loaded* one, which are in the process.

use super::checkpoints::Checkpoints;
use super::contexts::Contexts;
use super::error::Error;
use super::one_cpu::OneCpu;
use super::shared::SharedFiles;
use crate::common::{Addr, AddrRange, Pid};
use crate::engine::{RunLimit, RunOutcome, Stepped, TranslatedProcess, TranslatedThread};
use crate::recording::CodeCache;
use crate::tracee;

/// A process of the replay, and its checkpoints. When dropped, it keeps its code cache for later
/// replays, and ends the process.
#[derive(Debug)]
pub(super) struct Epoch {
    pub(super) engine: TranslatedProcess,
    pub(super) thread: TranslatedThread,
    /// The page that the replay adds to the program's memory: its own SYSCALL instruction, and
    /// scratch space for arguments.
    pub(super) page: Addr,
    /// The program's threads.
    pub(super) contexts: Contexts,
    /// The files of the memory that the program maps shared.
    pub(super) shared: SharedFiles,
    /// The ranges into which stacks may still grow, empty ones where there is no room yet. Each
    /// ends at the lowest page that its stack had when it was mapped, and is mapped already, with
    /// the stack's protection.
    pub(super) stack_room: Vec<AddrRange>,
    /// The number of log entries before the position at which the process began.
    pub(super) begins: u64,
    pub(super) checkpoints: Checkpoints,
    /// The number of bytes of its memory that came from the recording's final state.
    pub(super) final_bytes: u64,
    /// The ranges of anonymous memory for which the core file of the final state is mapped, in
    /// order. To the program they are like any other anonymous memory.
    pub(super) mapped_from_core: Vec<AddrRange>,
    pub(super) one_cpu: OneCpu,
    /// The files in which the code cache is kept for later replays of the program; `None` if it
    /// cannot be kept.
    pub(super) code_cache: Option<CodeCache>,
}

impl Epoch {
    /// Returns the state of a process without checkpoints and memory files ([`SharedFiles`]). The
    /// caller sets `begins`.
    pub(super) fn new(
        engine: TranslatedProcess,
        thread: TranslatedThread,
        page: Addr,
        contexts: Contexts,
    ) -> Self {
        let (begins, stack_room) = (0, Vec::new());
        let (shared, checkpoints) = (SharedFiles::default(), Checkpoints::default());
        let (final_bytes, mapped_from_core, one_cpu) = (0, Vec::new(), OneCpu::new());
        Self {
            engine,
            thread,
            page,
            contexts,
            shared,
            stack_room,
            begins,
            checkpoints,
            final_bytes,
            mapped_from_core,
            one_cpu,
            code_cache: None,
        }
    }

    /// Returns true if any of a range is mapped from the core file of the final state.
    pub(super) fn is_mapped_from_core(&self, range: AddrRange) -> bool {
        let first = self.mapped_from_core.partition_point(|mapped| mapped.end <= range.start);
        self.mapped_from_core.get(first).is_some_and(|mapped| mapped.overlaps(range))
    }

    /// Returns the PID of the replay's process, which a restored checkpoint changes.
    pub(super) fn pid(&self) -> Pid {
        self.thread.pid
    }

    /// Runs the loaded thread in translated code for a distance, or until a stop, a signal or an
    /// instruction that the cache cannot execute ends the run. Blocks until then. Leaves it to the
    /// caller to add the ticks to the replay's position.
    pub(super) fn run(&mut self, distance: RunLimit) -> Result<RunOutcome, Error> {
        let _turn = self.one_cpu.begin_turn(self.thread.tid());
        Ok(self.engine.run_counted(&mut self.thread, distance)?.0)
    }

    /// Executes one instruction of the loaded thread by a step of the CPU. The caller counts it.
    pub(super) fn step(&mut self) -> Result<Stepped, Error> {
        let _turn = self.one_cpu.begin_turn(self.thread.tid());
        Ok(self.engine.step_in_program(&mut self.thread)?)
    }
}

impl Drop for Epoch {
    fn drop(&mut self) {
        self.save_code_cache();
        tracee::kill_and_reap(self.pid());
    }
}
