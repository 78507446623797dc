//! Runs of code of the kind [`super::CodeKind::Rerecording`]: a recorded run is repeated, to get
//! its path. The code writes a *record*, the number of an edge, for each exit of a superblock, and
//! stops at instructions with a *hook*, whose effects are the tracer's to repeat.

use super::code::CodeChange;
use super::counted::SteppedOut;
use super::error::Error;
use super::exact::ExactState;
use super::guard::{Translation, WantedCode};
use super::process::TranslatedProcess;
use super::stops::{Phase, SignalStop};
use super::thread::TranslatedThread;
use crate::insn::Registers;
use crate::tracee::{SiginfoBytes, Stop, wait_for};
use crate::translate::{Bound, EdgeKind, Step};

/// The size of a record. System calls, whose records are larger, are left to the tracer.
const RECORD_BYTES: u64 = EdgeKind::Direct.record_bytes() as u64;

/// The limit of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RerunLimit {
    /// Until this many records are written, or as many as a buffer holds if that is less, and one
    /// more after them.
    Records(u64),
    /// Exactly as far as this bound, unless the superblock ends before.
    Bound(Bound),
}

/// A run that has ended: its thread is stopped in the program.
#[derive(Debug)]
pub struct Rerun {
    /// The records of the run's path: numbers of edges, 4 bytes each.
    pub records: Vec<u8>,
    /// The steps that were executed after the last record, and the address that is executed next.
    /// `None` if all steps are recorded.
    pub partial: Option<(Vec<Step>, u64)>,
    /// The reason why the run ended.
    pub end: RerunEnd,
}

/// The reason for the end of a run.
#[derive(Debug)]
pub enum RerunEnd {
    /// The limit is reached.
    Limit,
    /// The thread is at an instruction that its tracer has to execute.
    Native,
    /// The thread is about to execute code that has changed since it was last translated, or that
    /// is translated for the first time. The next run there executes it.
    Changed(Vec<CodeChange>),
    /// A signal of the program is to be delivered.
    Signal(SiginfoBytes),
}

impl TranslatedProcess {
    /// Runs a thread, which is stopped in the program, up to a limit, waits for it, and returns the
    /// records of its path. It does not run at all if the code there has changed
    /// ([`RerunEnd::Changed`]). Fails if the thread ends, or stops as no repeated run does.
    pub fn rerun(
        &mut self,
        thread: &mut TranslatedThread,
        limit: RerunLimit,
    ) -> Result<Rerun, Error> {
        let area = thread.area;
        let ip = thread.tracee.registers()?.rip;
        let (begin, wanted) = match limit {
            RerunLimit::Records(most) => {
                let bytes = most.saturating_mul(RECORD_BYTES).min(area.buffer_bytes);
                (area.guard(0).start.0 - bytes, WantedCode::At(ip))
            }
            RerunLimit::Bound(bound) => (area.buffer(0), WantedCode::Bounded(ip, bound)),
        };
        let Translation { address, changes, .. } = self.translate_protected(thread, wanted)?;
        if !changes.is_empty() {
            let end = RerunEnd::Changed(changes);
            return Ok(Rerun { records: Vec::new(), partial: None, end });
        }
        thread.set_trace_pointer(&self.window.shared, begin);
        self.enter_cache(thread, address)?;
        let (end, is_full) = self.rerun_to_end(thread, limit)?;
        let exact = match self.step_to_exact(thread)? {
            SteppedOut::Exact(exact) => *exact,
            SteppedOut::NoncanonicalBranch => self.state_before_last_branch(thread)?,
            SteppedOut::Ended(_) => return Err(lost(thread)),
        };
        self.enter_program(thread, &exact.program, 0)?;
        let parts = if is_full {
            [(begin, area.guard(0).start.0), (area.buffer(1), exact.pointer)]
        } else {
            [(begin, exact.pointer), (begin, begin)]
        };
        let mut records = Vec::new();
        for (from, to) in parts {
            // The program can write the slot that the pointer is kept in.
            let size = to.checked_sub(from).filter(|size| *size <= area.buffer_bytes);
            let size = size.and_then(|size| usize::try_from(size).ok());
            let size = size.ok_or_else(|| lost(thread))?;
            let kept = records.len();
            records.resize(kept + size, 0);
            self.window.shared.read(area.offset_of(from), &mut records[kept..]);
        }
        Ok(Rerun { records, partial: exact.partial, end })
    }

    /// Resumes a thread in the cache until its run ends, and leaves it there. Returns why it ended,
    /// and true if the buffer was full; its trace pointer is then at the start of the next one.
    fn rerun_to_end(
        &mut self,
        thread: &mut TranslatedThread,
        limit: RerunLimit,
    ) -> Result<(RerunEnd, bool), Error> {
        loop {
            thread.tracee.resume(0)?;
            let Stop::Signal(signal) = wait_for(thread.tid())? else {
                return Err(lost(thread));
            };
            let stop = self.classify_stop(thread, Phase::Runs, signal)?;
            if stop.is_tracers() {
                self.restore_signal_state(thread, signal)?;
            }
            match stop {
                SignalStop::Request if self.has_noncanonical_target(thread) => {
                    return Ok((RerunEnd::Native, false));
                }
                SignalStop::Request if matches!(limit, RerunLimit::Bound(_)) => {
                    return Ok((RerunEnd::Limit, false));
                }
                SignalStop::Request => {
                    let Some(request) = self.request(thread) else { continue };
                    let wanted = WantedCode::Requested(request);
                    let translation = self.translate_protected(thread, wanted)?;
                    let Translation { address, changes, .. } = translation;
                    if !changes.is_empty() {
                        return Ok((RerunEnd::Changed(changes), false));
                    }
                    self.answer_request(thread, address);
                }
                SignalStop::Native(at) => {
                    // Back to the INT3, where the program's state is exact.
                    let registers = thread.tracee.registers()?;
                    let rip = registers.rip.wrapping_sub(1);
                    debug_assert_eq!(self.locate(rip).map(|at| at.superblock), Some(at.superblock));
                    thread.tracee.set_registers(&Registers { rip, ..registers })?;
                    return Ok((RerunEnd::Native, false));
                }
                SignalStop::CodeWrite(addr) => {
                    self.open_for_write(thread.tracee, addr)?;
                    return Ok((RerunEnd::Native, false));
                }
                SignalStop::Guard => {
                    let registers = thread.tracee.registers()?;
                    if self.has_own_r11(&registers) {
                        return Err(lost(thread));
                    }
                    let r11 = thread.area.buffer(1);
                    thread.tracee.set_registers(&Registers { r11, ..registers })?;
                    thread.set_trace_pointer(&self.window.shared, r11);
                    return Ok((RerunEnd::Limit, true));
                }
                SignalStop::HiddenFault => thread.repeat_fault()?,
                SignalStop::StaleFault => {}
                SignalStop::Program(info) => return Ok((RerunEnd::Signal(info), false)),
                _ => return Err(lost(thread)),
            }
        }
    }

    /// Returns the state before the indirect branch that a thread has just recorded, whose target
    /// is not canonical, and drops its record: the thread is to execute the branch in the program.
    fn state_before_last_branch(&self, thread: &TranslatedThread) -> Result<ExactState, Error> {
        let registers = thread.tracee.registers()?;
        let pointer = registers.r11.wrapping_sub(RECORD_BYTES);
        let mut number = [0; EdgeKind::Direct.record_bytes()];
        if (thread.area.buffer(0)..thread.area.guard(0).start.0).contains(&pointer) {
            self.window.shared.read(thread.area.offset_of(pointer), &mut number);
        }
        let edges = self.translator.edges_from(u32::from_le_bytes(number) as usize);
        let before =
            edges.first().and_then(|edge| self.state_before_branch(thread, &registers, edge));
        let (program, steps) = before.ok_or_else(|| lost(thread))?;
        let partial = Some((steps, program.rip));
        Ok(ExactState { program, pointer, partial })
    }
}

/// Returns the error for a thread whose state cannot be known.
fn lost(thread: &TranslatedThread) -> Error {
    let at = thread.tracee.instruction_pointer().unwrap_or_default();
    Error::Inexact { tid: thread.tid(), at }
}
