//! The threads of the program, as *contexts* of the only thread of the replay's process: the
//! registers of each. A thread is *loaded* while the process has its registers; those in its
//! context may be outdated then, until [`Contexts::save`] or the load of another thread copies them
//! there.

use super::error::Error;
use crate::common::{Addr, Tid};
use crate::insn::Registers;
use crate::recording::log::{Bytes, ThreadState};
use crate::tracee::Tracee;
use std::collections::BTreeMap;

/// The number of the extended state (XSAVE area) as a register set of ptrace(2).
pub(super) const NT_X86_XSTATE: u32 = 0x202;

/// The state of a thread of the program. Its registers may be outdated while the thread is loaded
/// ([`Contexts::load`]): the process has them then.
#[derive(Clone, Debug)]
pub(super) struct Context {
    pub(super) registers: Registers,
    /// The extended state, as an XSAVE area.
    pub(super) extended: Bytes,
    /// The number of the system call that the thread is in while others run; `None` if it is in
    /// none.
    pub(super) call: Option<u64>,
    /// The siginfo of the last signal that the thread got.
    pub(super) siginfo: Option<Bytes>,
}

impl Context {
    /// Creates the context of a thread that is in no system call, and has got no signal.
    pub(super) fn new(state: &ThreadState) -> Self {
        Self {
            registers: state.registers.into(),
            extended: state.extended.clone(),
            call: None,
            siginfo: None,
        }
    }
}

/// The program's threads. The process holds the registers of at most one of them.
#[derive(Clone, Debug)]
pub(super) struct Contexts {
    threads: BTreeMap<Tid, Context>,
    loaded: Option<Tid>,
    /// The page of the replay's own code, which sets the state of AMX tiles.
    page: Addr,
}

impl Contexts {
    /// Creates an empty set. `page` has the replay's own code in the process.
    pub(super) fn new(page: Addr) -> Self {
        Self { threads: BTreeMap::new(), loaded: None, page }
    }

    /// Returns the program's threads.
    pub(super) fn tids(&self) -> impl Iterator<Item = Tid> {
        self.threads.keys().copied()
    }

    /// Returns the context of a thread, whose registers may be outdated if it is loaded; `None` if
    /// there is no such thread.
    pub(super) fn get(&self, tid: Tid) -> Option<&Context> {
        self.threads.get(&tid)
    }

    /// Returns the context of a thread to change it, as [`Self::get`] does. A change of the
    /// registers there has no effect on a loaded thread.
    pub(super) fn get_mut(&mut self, tid: Tid) -> Option<&mut Context> {
        self.threads.get_mut(&tid)
    }

    /// Adds a thread, or replaces its context if it exists. Does not load it.
    pub(super) fn add(&mut self, tid: Tid, context: Context) {
        self.threads.insert(tid, context);
    }

    /// Removes a thread, which has ended. If it was loaded, no thread is.
    pub(super) fn remove(&mut self, tid: Tid) {
        self.threads.remove(&tid);
        if self.loaded == Some(tid) {
            self.loaded = None;
        }
    }

    /// Returns the thread whose registers the process holds, if there is one.
    pub(super) fn loaded(&self) -> Option<Tid> {
        self.loaded
    }

    /// Loads the registers of a thread into the process, after saving those of the thread that was
    /// loaded. Does nothing if it is loaded already. Returns false if there is no such thread: the
    /// other one then stays loaded.
    pub(super) fn load(&mut self, tid: Tid, tracee: Tracee) -> Result<bool, Error> {
        if self.loaded == Some(tid) {
            return Ok(true);
        }
        self.save(tracee)?;
        let Some(context) = self.threads.get(&tid) else { return Ok(false) };
        tracee.set_extended_state(self.page, &context.extended.0)?;
        tracee.set_registers(&Registers { orig_rax: u64::MAX, ..context.registers })?;
        self.loaded = Some(tid);
        Ok(true)
    }

    /// Copies the registers of the loaded thread, if there is one, from the process to its context.
    /// The thread stays loaded.
    pub(super) fn save(&mut self, tracee: Tracee) -> Result<(), Error> {
        if let Some(context) = self.loaded.and_then(|tid| self.threads.get_mut(&tid)) {
            context.registers = tracee.registers()?;
            context.extended = Bytes(tracee.register_set(NT_X86_XSTATE)?);
        }
        Ok(())
    }

    /// Sets the extended state (XSAVE area) of a thread: in its context, if it exists, and in the
    /// process if it is loaded.
    pub(super) fn set_extended(
        &mut self,
        tid: Tid,
        extended: &Bytes,
        tracee: Tracee,
    ) -> Result<(), Error> {
        if let Some(context) = self.threads.get_mut(&tid) {
            context.extended = extended.clone();
        }
        if self.loaded == Some(tid) {
            tracee.set_extended_state(self.page, &extended.0)?;
        }
        Ok(())
    }

    /// Sets all registers of a thread, with its extended state: in its context, and in the process
    /// if it is loaded. Does nothing if there is no such thread.
    pub(super) fn set(
        &mut self,
        tid: Tid,
        state: &ThreadState,
        tracee: Tracee,
    ) -> Result<(), Error> {
        let Some(context) = self.threads.get_mut(&tid) else { return Ok(()) };
        context.registers = state.registers.into();
        context.extended = state.extended.clone();
        if self.loaded == Some(tid) {
            tracee.set_extended_state(self.page, &context.extended.0)?;
            tracee.set_registers(&Registers { orig_rax: u64::MAX, ..context.registers })?;
        }
        Ok(())
    }
}
