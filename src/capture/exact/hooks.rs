//! Instructions whose result does not follow from the program's state: executed in the program, and
//! logged.

use super::effects::{Before, contents};
use super::process::{Process, state_of};
use super::thread::Thread;
use crate::capture::Error;
use crate::insn::{Registers, writes};
use crate::recording::log::Happening;
use crate::translate::{Effects, Hook};

impl Process {
    /// Reads the memory before an instruction that may write any of it.
    pub(super) fn before_step(&mut self, hook: Option<Hook>) -> Option<Before> {
        if hook.map(Hook::effects) != Some(Effects::Unlimited) {
            return None;
        }
        self.note("what an unusual system call writes was found by comparing memory".to_owned());
        Some(Before::read(&self.engine, self.pid()))
    }

    /// Logs an instruction that was executed.
    pub(super) fn log_step(
        &mut self,
        thread: &mut Thread,
        hook: Hook,
        before: &Registers,
        bytes: &[u8],
        memory: Option<Before>,
    ) -> Result<(), Error> {
        let after = thread.tracee().registers()?;
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
