//! Changes that a debugger makes to a live program: at its live end, or in its exact past, where
//! they are a diversion of the replay, which ends once the run moves.

use super::Live;
use crate::common::{Addr, Tid};
use crate::session::{Error, Register, Run, Value};
use crate::state::ChangedSet;

fn refused(error: &crate::capture::Error) -> Error {
    Error::Refused(error.to_string())
}

impl Live {
    /// Fails in the past, and after the end of the program: nothing can change there.
    fn refuse_off_live_end(&self) -> Result<(), Error> {
        match (self.in_past, self.ended) {
            (true, _) => Err(Error::LivePastIsFixed),
            (false, Some(_)) => Err(Error::Gone),
            (false, None) => Ok(()),
        }
    }

    /// Returns the history if the debugger is in the past of an exact recording, whose values can
    /// be changed in a diversion; `None` at the live end and for a path.
    fn exact_past(&mut self) -> Option<&mut dyn Run> {
        if self.in_past && self.is_exact() { self.opened_history_mut() } else { None }
    }

    /// Fails if a thread's registers and memory cannot be changed: in the past, after the end, and
    /// in a process beside the program ([`super::forks`]).
    fn refuse_write(&self, tid: Tid) -> Result<(), Error> {
        self.refuse_off_live_end()?;
        self.refuse_beside(tid)
    }

    /// Sets a register of a thread at the live end or in the exact past. Refuses it where
    /// [`Self::change_memory`] does, and for a register that cannot be written. With a new RIP, a
    /// breakpoint there stops the thread.
    pub(super) fn change_register(
        &mut self,
        tid: Tid,
        register: Register,
        value: Value,
    ) -> Result<(), Error> {
        if let Some(past) = self.exact_past() {
            return past.write_register(tid, register, value);
        }
        self.refuse_write(tid)?;
        let program = self.program.get_mut();
        let thread = program.thread(tid).ok_or(Error::Gone)?;
        let changed = ChangedSet::of(thread, register, value).ok_or(Error::NoSuchRegister)?;
        if register == Register::RIP {
            // At the new address the thread may stop for a breakpoint again.
            program.forget_reported_stop(tid);
        }
        let written = match changed {
            ChangedSet::General(registers) => program.set_registers(tid, &registers),
            ChangedSet::Extended(area) => program.set_extended_state(tid, &area),
        };
        written.map_err(|error| refused(&error))
    }

    /// Writes memory at the live end or in the exact past. Refuses it in the past of a path, after
    /// the program's end, and at the live end for a thread of a process beside the program.
    pub(super) fn change_memory(
        &mut self,
        tid: Tid,
        addr: Addr,
        bytes: &[u8],
    ) -> Result<(), Error> {
        if let Some(past) = self.exact_past() {
            return past.write_memory(tid, addr, bytes);
        }
        self.refuse_write(tid)?;
        self.program.get_mut().write(addr, bytes).map_err(|error| refused(&error))
    }

    /// Changes the `siginfo_t` of a thread at the live end. Refuses it in all of the past, after
    /// the program's end, for a thread of a process beside the program, and if `info` has another
    /// size.
    pub(super) fn change_siginfo(&mut self, tid: Tid, info: &[u8]) -> Result<(), Error> {
        self.refuse_write(tid)?;
        let info = info.try_into().map_err(|_| Error::NotSiginfo)?;
        self.program.get_mut().set_siginfo(tid, &info).map_err(|error| refused(&error))
    }
}
