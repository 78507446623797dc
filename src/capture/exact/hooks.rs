//! Instructions whose result does not follow from the program's state: executed in the program, and
//! logged.

use super::effects::{Before, contents};
use super::process::{Process, state_of};
use super::thread::Thread;
use crate::capture::Error;
use crate::common::Addr;
use crate::insn::{ExecMode, Registers, decode, writes};
use crate::recording::log::Happening;
use crate::translate::{Effects, Hook};

impl Process {
    /// Reads all writable memory before an instruction that may write any of it; `None` for any
    /// other.
    pub(super) fn before_step(&mut self, hook: Option<Hook>) -> Option<Before> {
        if hook.map(Hook::effects) != Some(Effects::Unlimited) {
            return None;
        }
        self.note("what an unusual system call writes was found by comparing memory".to_owned());
        Some(Before::read(&self.engine, self.pid()))
    }

    /// Logs an instruction with a hook that a thread has executed. Fails if a step of CPUID
    /// executed more than that.
    pub(super) fn log_step(
        &mut self,
        thread: &mut Thread,
        hook: Hook,
        before: &Registers,
        bytes: &[u8],
        memory: Option<Before>,
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
        self.log(thread, before, Happening::Executes { registers, extended, writes })
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
