//! Events of the log, applied to the replay's process. The log records them in its entries, each
//! of one thread: a [`LogEvent`]. An entry happens when its thread has reached the entry's
//! [`Site`]. Most happen at a *hook*: an instruction whose result does not follow from registers
//! and memory, such as SYSCALL or RDTSC.

use super::components::ARCH_REQ_XCOMP_PERM;
use super::contexts::Context;
use super::epoch::Epoch;
use super::error::Error;
use super::process::Replay;
use crate::common::{Addr, Tid};
use crate::insn::Registers;
use crate::recording::log::{CallEffects, Entry, LogEvent, PlaceInTick, after_call, check_of};
use crate::tracee::call_numbers::ARCH_PRCTL;

/// The operation of `arch_prctl(2)` that sets the GS base. The log has no state for it: its effect
/// follows from the registers.
const ARCH_SET_GS: u64 = 0x1001;

/// The condition on the thread of an entry before the entry happens. The thread must have executed
/// the entry's ticks, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Site {
    /// The thread is at the first instruction with a hook.
    Hook,
    /// The thread is at this instruction.
    Place(PlaceInTick),
    /// None: the entry happens where the thread is, for instance in a system call.
    Anywhere,
}

impl Replay {
    /// Returns where the thread of an entry must be before it happens. While the thread is in a
    /// system call, where it executes nothing, most events may happen anywhere. For a later entry
    /// than the next, the caller must know that its thread is in a call then if it is in one now.
    pub(super) fn site_of(&self, entry: &Entry) -> Site {
        let in_call = self.epoch.contexts.get(entry.tid).is_some_and(|c| c.call.is_some());
        match &entry.event {
            LogEvent::Call { .. } | LogEvent::Enters { .. } | LogEvent::Executes { .. } => {
                Site::Hook
            }
            LogEvent::Ends { .. } => Site::Hook,
            _ if in_call => Site::Anywhere,
            LogEvent::Signal { place, .. }
            | LogEvent::Switch { place }
            | LogEvent::Changed { place, .. }
            | LogEvent::Accesses { place, .. }
            | LogEvent::Finish { place: Some(place) } => Site::Place(*place),
            LogEvent::Start(_)
            | LogEvent::Memory(_)
            | LogEvent::Returns { .. }
            | LogEvent::Born { .. }
            | LogEvent::Foreign { .. }
            | LogEvent::FinalMemory
            | LogEvent::Finish { place: None } => Site::Anywhere,
        }
    }

    /// Checks the registers of the next entry's thread, which is at the entry's site, applies the
    /// entry and moves past it. An entry [`LogEvent::Start`] replaces the process by that of the
    /// next program. Returns false at the end of the run, where the replay stays and notes the end:
    /// there is no next entry, it is the last one, [`LogEvent::Finish`], or the run was made to
    /// end before it ([`Replay::end_before`]). Fails if the registers differ.
    pub(super) fn apply_next_entry(&mut self) -> Result<bool, Error> {
        let next = if self.cursor.index() < self.end { self.cursor.current()? } else { None };
        let Some(entry) = next else {
            self.is_at_end = true;
            return Ok(false);
        };
        self.check_registers(&entry)?;
        match &entry.event {
            LogEvent::Finish { .. } => {
                self.is_at_end = true;
                return Ok(false);
            }
            LogEvent::Start(_) => {
                self.enter_epoch(self.number + 1)?;
                return Ok(true);
            }
            event => self.epoch.apply_entry(entry.tid, event, &self.reader)?,
        }
        self.cursor.skip()?;
        (self.ticks, self.instructions) = (0, Some(0));
        Ok(true)
    }

    /// Replaces the process, which ends, by a new one at the beginning of program `number` of the
    /// run: at its first instruction, or at the keyframe with which the log begins. Moves there,
    /// and keeps a checkpoint. Fails if the run has no such program.
    pub(super) fn enter_epoch(&mut self, number: usize) -> Result<(), Error> {
        let at = self.outline.starts.get(number);
        let bad = || Error::BadLog { entry: self.cursor.index(), what: "a program is missing" };
        let start = at.ok_or_else(bad)?;
        let reserved = self.outline.ranges_of(number);
        let (epoch, cursor) = Epoch::load(start, &self.reader, self.code, reserved)?;
        self.epoch = epoch;
        (self.number, self.cursor) = (number, cursor);
        (self.ticks, self.instructions) = (0, Some(0));
        self.keep_checkpoint_here()
    }

    /// Compares the registers and the ticks of an entry's thread, now before the entry, with those
    /// of the recorded run. Fails if they differ. Does nothing for a thread in a call, and for an
    /// entry that happens at no instruction of the thread, such as its birth.
    pub(super) fn check_registers(&mut self, entry: &Entry) -> Result<(), Error> {
        let has_no_instruction = matches!(
            entry.event,
            LogEvent::Start(_)
                | LogEvent::Memory(_)
                | LogEvent::Born { .. }
                | LogEvent::Foreign { .. }
                | LogEvent::FinalMemory
                | LogEvent::Finish { place: None }
        );
        if has_no_instruction
            || self.epoch.contexts.get(entry.tid).is_some_and(|c| c.call.is_some())
        {
            return Ok(());
        }
        let registers = self.registers_of(entry.tid)?;
        if check_of(&registers) == entry.check && self.ticks == entry.ticks {
            return Ok(());
        }
        Err(self.diverged(entry.tid, "its registers are others"))
    }

    /// Returns the current general registers of a thread, loaded or not; zeros if there is no such
    /// thread.
    pub(super) fn registers_of(&self, tid: Tid) -> Result<Registers, Error> {
        if self.epoch.contexts.loaded() == Some(tid) {
            return Ok(self.epoch.thread.tracee.registers()?);
        }
        let context = self.epoch.contexts.get(tid);
        Ok(context.map(|context| context.registers).unwrap_or_default())
    }

    /// Returns the error for a difference from the recorded run that a thread shows at the current
    /// position.
    pub(super) fn diverged(&self, tid: Tid, what: impl Into<String>) -> Error {
        let ip = Addr(self.registers_of(tid).map_or(0, |registers| registers.rip));
        Error::Diverged { position: self.position(), tid, ip, what: what.into() }
    }
}

impl Epoch {
    /// Applies the event of an entry to the process and to the entry's thread `tid`, which is at
    /// the entry's site. Leaves the ticks, the cursor, [`LogEvent::Start`] and
    /// [`LogEvent::FinalMemory`] to the caller. `Switch`, `Foreign` and `Finish` change nothing.
    pub(super) fn apply_entry(
        &mut self,
        tid: Tid,
        event: &LogEvent,
        reader: &crate::recording::Reader,
    ) -> Result<(), Error> {
        match event {
            LogEvent::Call { number, effects } => {
                self.apply_call_effects(tid, *number, effects, reader)?;
            }
            LogEvent::Returns { effects } => {
                let context = self.contexts.get_mut(tid);
                let number = context.and_then(|context| context.call.take()).unwrap_or(0);
                self.apply_call_effects(tid, number, effects, reader)?;
            }
            LogEvent::Enters { number } => {
                self.contexts.save(self.thread.tracee)?;
                if let Some(context) = self.contexts.get_mut(tid) {
                    context.call = Some(*number);
                }
            }
            LogEvent::Executes { registers, extended, writes }
            | LogEvent::Accesses { registers, extended, writes, .. } => {
                self.apply_writes(writes)?;
                if let Some(extended) = extended {
                    self.contexts.set_extended(tid, extended, self.thread.tracee)?;
                }
                self.set_registers(tid, (**registers).into())?;
            }
            LogEvent::Signal { siginfo, handler, writes, .. } => {
                self.apply_writes(writes)?;
                if let Some(context) = self.contexts.get_mut(tid) {
                    context.siginfo = Some(siginfo.clone());
                    if handler.is_some() {
                        context.call = None;
                    }
                }
                if let Some(state) = handler {
                    self.contexts.set(tid, state, self.thread.tracee)?;
                }
            }
            LogEvent::Born { state, writes } => {
                self.apply_writes(writes)?;
                self.contexts.add(tid, Context::new(state));
            }
            LogEvent::Ends { writes } => {
                self.apply_writes(writes)?;
                self.contexts.remove(tid);
            }
            LogEvent::Changed { state, writes, .. } => {
                self.apply_writes(writes)?;
                if let Some(state) = state {
                    if let Some(context) = self.contexts.get_mut(tid) {
                        context.call = None;
                    }
                    self.contexts.set(tid, state, self.thread.tracee)?;
                }
            }
            LogEvent::Memory(write) => self.apply_writes(std::slice::from_ref(write))?,
            LogEvent::Switch { .. }
            | LogEvent::Start(_)
            | LogEvent::Foreign { .. }
            | LogEvent::FinalMemory
            | LogEvent::Finish { .. } => {}
        }
        Ok(())
    }

    /// Applies the recorded effects of a system call: changes of mappings, writes, the permission
    /// to use XSAVE components, and the registers of its thread after it. These are the recorded
    /// ones, or, for most calls, follow from the registers before it and the result.
    fn apply_call_effects(
        &mut self,
        tid: Tid,
        number: u64,
        effects: &CallEffects,
        reader: &crate::recording::Reader,
    ) -> Result<(), Error> {
        self.apply_map_changes(&effects.maps, reader)?;
        self.apply_writes(&effects.writes)?;
        if let Some(state) = &effects.state {
            return self.contexts.set(tid, state, self.thread.tracee);
        }
        let before = match self.contexts.loaded() {
            Some(loaded) if loaded == tid => self.thread.tracee.registers()?,
            _ => self.contexts.get(tid).map(|context| context.registers).unwrap_or_default(),
        };
        let mut after = after_call(&before, effects.result);
        if number == ARCH_PRCTL && before.rdi == ARCH_SET_GS && effects.result == 0 {
            after.gs_base = before.rsi;
        }
        if number == ARCH_PRCTL && before.rdi == ARCH_REQ_XCOMP_PERM && effects.result == 0 {
            self.permit(before.rsi)?;
        }
        self.set_registers(tid, after)
    }

    /// Sets the general registers of a thread, if it exists: in its context, and in the process if
    /// it is loaded there. `orig_rax` becomes that of no system call.
    pub(super) fn set_registers(&mut self, tid: Tid, registers: Registers) -> Result<(), Error> {
        let registers = Registers { orig_rax: u64::MAX, ..registers };
        if self.contexts.loaded() == Some(tid) {
            self.thread.tracee.set_registers(&registers)?;
        }
        if let Some(context) = self.contexts.get_mut(tid) {
            context.registers = registers;
        }
        Ok(())
    }
}
