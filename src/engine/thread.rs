//! A thread of a translated process. Its *area* is the part of the memory shared with the tracer
//! that has its slots and trace buffers. It is in the code cache, or *in the program*: at the
//! program's own code.

use super::actions::CACHE_SIGNALS;
use super::area::{Area, BusyBuffers};
use super::shared::Shared;
use crate::common::{Pid, Tid};
use crate::insn::Registers;
use crate::tracee::{Error, Tracee, signals};
use crate::translate::slots;
use std::sync::Arc;

/// The code that a thread is in, which decides whose values its registers hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In the code cache: R11, GS and the instruction pointer are the tracer's.
    Cache,
    /// In the program's own code: all registers are its own.
    Program,
}

/// A thread that runs in the code cache.
#[derive(Debug)]
pub struct TranslatedThread {
    /// The thread itself, for ptrace requests.
    pub tracee: Tracee,
    /// The thread's process.
    pub pid: Pid,
    /// The code that the thread is in.
    pub place: Place,
    /// The thread's part of the shared memory.
    pub area: Area,
    /// The trace buffers of the area that are in use.
    pub busy: Arc<BusyBuffers>,
    /// The GS base that the thread has in the program.
    pub(super) gs_base: u64,
    /// The signals of [`CACHE_SIGNALS`] that the program blocks.
    pub(super) blocked: u64,
    /// True if a SIGSEGV that the program blocks was taken from it, and is to be sent again.
    pub(super) owes_segv: bool,
}

impl TranslatedThread {
    /// Returns the record of an existing, stopped thread, which is at `place` and gets this area.
    /// Reads its mask of signals, and its GS base if it is in the program; 0 for what cannot be
    /// read.
    pub fn new(tid: Tid, pid: Pid, (area, busy): (Area, Arc<BusyBuffers>), place: Place) -> Self {
        let tracee = Tracee(tid);
        let blocked = tracee.signal_mask().unwrap_or(0) & CACHE_SIGNALS;
        let in_program = (place == Place::Program).then(|| tracee.registers().ok()).flatten();
        let gs_base = in_program.map_or(0, |registers| registers.gs_base);
        Self { tracee, pid, place, area, busy, gs_base, blocked, owes_segv: false }
    }

    /// Returns the program's own GS base.
    pub fn gs_base(&self) -> u64 {
        self.gs_base
    }

    /// Returns the thread's number.
    pub fn tid(&self) -> Tid {
        self.tracee.0
    }

    /// Returns the value of R11 that is kept in the thread's area while the register is the
    /// program's: the trace pointer of code that records, as of the last place where the program
    /// needed the register.
    pub fn trace_pointer(&self, shared: &Shared) -> u64 {
        shared.load(self.area.slot(slots::TRACE_POINTER))
    }

    /// Sets the value that [`Self::trace_pointer`] returns. R11 gets it when the thread enters the
    /// cache.
    pub fn set_trace_pointer(&self, shared: &Shared, pointer: u64) {
        shared.store(self.area.slot(slots::TRACE_POINTER), pointer);
    }

    /// Returns `registers` of this thread with the program's GS base in place of the tracer's. They
    /// are the program's if the thread is stopped outside of its translated code.
    pub fn own_registers(&self, registers: &Registers) -> Registers {
        Registers { gs_base: self.gs_base, ..*registers }
    }

    /// Points the GS register of a thread that was created in the cache, and has not run yet, to
    /// its own area; it has its creator's. The creator has `maker_gs_base` in the program, which is
    /// then this thread's, too.
    pub fn begin_in_cache(&mut self, maker_gs_base: u64) -> Result<(), Error> {
        // The kernel copied what the maker had in GS.
        self.gs_base = maker_gs_base;
        let registers = self.tracee.registers()?;
        self.tracee.set_registers(&Registers { gs_base: self.area.base, ..registers })
    }

    /// Notes that a thread is in the program's own code, as it has returned there from a signal's
    /// handler, and sets its registers to these with the program's GS base.
    pub fn return_from_handler(&mut self, registers: &Registers) -> Result<(), Error> {
        self.place = Place::Program;
        self.tracee.set_registers(&self.own_registers(registers))
    }

    /// Reads from the kernel again which of SIGTRAP and SIGSEGV the thread blocks, after it entered
    /// a handler.
    pub fn reread_signal_mask(&mut self) -> Result<(), Error> {
        self.blocked = self.tracee.signal_mask()? & CACHE_SIGNALS;
        Ok(())
    }

    /// Returns true if a SIGTRAP or SIGSEGV that is not blocked is pending for the stopped thread:
    /// the code cache raised it in the same moment as the stop.
    pub fn is_forced_pending(&self) -> Result<bool, Error> {
        let now = signals(self.pid, self.tid())?;
        Ok(now.pending & !now.blocked & CACHE_SIGNALS != 0)
    }
}
