//! Instructions that are not executed in the code cache: a thread leaves the cache before one, and
//! executes it *in the program*, at its own address, by a single step. Three kinds are logged,
//! since their result does not follow from the program's state:
//!
//! - Those with a *hook*, such as CPUID. (SYSCALL has one as well, but goes through `calls`.)
//! - Accesses to *foreign* memory, which other processes may write (`foreign`). A REP instruction
//!   may have accessed it in some iterations before a signal stopped it: the access is *begun*.
//! - The calls of the vsyscall page, which the recorder makes for the thread.

use super::effects::{MemoryBefore, contents};
use super::engine::ExactRecorder;
use super::process::{Process, state_of};
use super::thread::Thread;
use crate::capture::Error;
use crate::common::{Addr, Tid};
use crate::engine::{Stepped, vsyscall_at};
use crate::insn::{ExecMode, Registers, decode, writes};
use crate::recording::log::LogEvent;
use crate::translate::{Effects, Hook, is_tick};

impl ExactRecorder {
    /// Steps a thread, which is in the program, through an instruction that is not translated. Logs
    /// the instruction if it has a hook, or accessed foreign memory; otherwise, counts it if it is
    /// a tick. If a signal or another stop comes instead, handles that. Ends the recording before
    /// an instruction beyond which it cannot go on.
    pub(super) fn execute_untranslated(
        &mut self,
        tid: Tid,
        hook: Option<Hook>,
    ) -> Result<(), Error> {
        if let Some(why) = hook.and_then(|hook| self.reason_to_leave_at(tid, hook)) {
            return self.stop_recording_because(&why);
        }
        let stepped = self.with_thread(tid, |process, thread| {
            let before = thread.tracee().registers()?;
            if vsyscall_at(before.rip.into()).is_some() && process.call_vsyscall(thread, &before)? {
                return Ok(Stepped::Done);
            }
            let bytes = process.insn_bytes_at(before.rip);
            let ticks = u64::from(is_tick(&bytes, before.rip));
            let memory = process.memory_before_hook(hook);
            let before_access = match hook {
                Some(_) => None,
                None => process.state_before_access(thread, &before, &bytes)?,
            };
            let stepped = process.engine.step_in_program(&mut thread.translated)?;
            let accessed = before_access.filter(|_| process.engine.has_open_foreign());
            match (stepped, hook) {
                (Stepped::Done, Some(hook)) => {
                    process.log_hook(thread, hook, &before, &bytes, memory)?;
                }
                (Stepped::Done, None) => match accessed {
                    Some(state) => process.log_access(thread, &before, &bytes, state)?,
                    None => thread.ticks += ticks,
                },
                // A signal came: a REP instruction may have executed some iterations.
                (_, None) => process.log_begun_access(thread, &before, &bytes, accessed)?,
                // A signal came before the instruction.
                (_, Some(_)) => {}
            }
            Ok(stepped)
        })?;
        match stepped {
            Some(Stepped::Signal(info)) => self.handle_signal(tid, info),
            Some(Stepped::Other(stop)) => self.handle_other_stop(tid, stop),
            Some(Stepped::Done) | None => Ok(()),
        }
    }

    /// Executes the next instruction of a thread, which is stopped in the program, also one that
    /// could be translated. Returns true if it is a system call by SYSCALL: it is begun, and
    /// perhaps done. A call of the vsyscall page does not count as one: it is made and logged here.
    pub(super) fn execute_next_insn(&mut self, tid: Tid) -> Result<bool, Error> {
        // `None` if the thread is gone, and `Some(None)` for an instruction without a hook.
        let hook = self.with_thread(tid, |process, thread| {
            let registers = thread.tracee().registers()?;
            // There is no code in the vsyscall page.
            let is_vsyscall = vsyscall_at(registers.rip.into()).is_some();
            Ok(process.engine.hook_at(&registers).filter(|_| !is_vsyscall))
        })?;
        match hook {
            None => Ok(false),
            Some(Some(Hook::SystemCall)) => self.enter_call(tid).map(|()| true),
            Some(hook) => self.execute_untranslated(tid, hook).map(|()| false),
        }
    }
}

impl Process {
    /// Reads all writable memory before an instruction with a hook that may write any of it, such
    /// as INT 0x80, with a note for the user. Returns `None` without reading for any other.
    pub(super) fn memory_before_hook(&mut self, hook: Option<Hook>) -> Option<MemoryBefore> {
        if hook.map(Hook::effects) != Some(Effects::Unlimited) {
            return None;
        }
        self.add_user_note(
            "what an unusual system call writes was found by comparing memory".to_owned(),
        );
        Some(MemoryBefore::read(&self.engine, self.pid()))
    }

    /// Logs an instruction with a hook that a thread has executed: the registers and memory that it
    /// wrote. `before` are the registers before it, `bytes` its bytes, and `memory` is from
    /// [`Self::memory_before_hook`]. Fails if a step of CPUID executed more than that.
    pub(super) fn log_hook(
        &mut self,
        thread: &mut Thread,
        hook: Hook,
        before: &Registers,
        bytes: &[u8],
        memory: Option<MemoryBefore>,
    ) -> Result<(), Error> {
        let after = thread.tracee().registers()?;
        if hook == Hook::Processor && !is_one_step(bytes, before, &after) {
            return Err(Error::Overstepped { tid: thread.tid(), at: before.rip.into() });
        }
        let written = writes(bytes, before, &after);
        let mut writes = contents(&self.engine, written);
        if let Some(memory) = memory {
            writes.extend(memory.changes(&self.engine, self.pid()));
        }
        let changes_more = matches!(hook.effects(), Effects::Memory | Effects::Unlimited);
        let state = if changes_more { Some(state_of(thread.tracee(), &after)?) } else { None };
        let extended = state.map(|state| state.extended);
        let registers = Box::new(after.into());
        self.log(thread, before, LogEvent::Executes { registers, extended, writes })
    }
}

/// Returns true if a step of CPUID, with these bytes, executed no more than that: some hypervisors
/// step over the instruction after it, too.
fn is_one_step(bytes: &[u8], before: &Registers, after: &Registers) -> bool {
    let insn = decode(bytes, Addr(before.rip), ExecMode::Bits64);
    insn.is_none_or(|insn| after.rip == insn.next().0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_of_cpuid_that_goes_too_far_is_noticed() {
        let at = |rip| Registers { rip, ..Registers::default() };
        for (to, is_one) in [(0x1002, true), (0x1003, false)] {
            assert_eq!(is_one_step(&[0x0f, 0xa2], &at(0x1000), &at(to)), is_one);
        }
    }
}
