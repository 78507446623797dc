//! From a stop anywhere in the code cache to the program's exact state.

use super::feed::Item;
use super::forced::FORCED;
use super::harm::is_fault;
use super::process::Process;
use super::thread::{Place, Thread};
use crate::capture::{Error, final_state};
use crate::common::Addr;
use crate::tracee::{self, Stop, Stopped};
use crate::translate::{Location, slots};

/// Glue is far shorter than this.
pub(super) const STEPS_LIMIT: u32 = 1000;

/// A thread's registers as the kernel gives them.
pub(super) type Registers = libc::user_regs_struct;

/// What came of bringing a thread into the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Exactness {
    /// It stands in the program with its own registers, which are set.
    Exact,
    /// Something else happened on the way that is to be handled first.
    Disturbed(Stop),
}

impl Process {
    /// Brings a stopped thread to the exact state of the program that it is in or soon after, and
    /// tells the encoder how far it came. The signal that it stopped for, if any, may have to be
    /// given to it anew.
    pub(super) fn make_exact(&mut self, thread: &mut Thread) -> Result<Exactness, Error> {
        if thread.place == Place::Program {
            return Ok(Exactness::Exact);
        }
        let mut registers = thread.tracee.registers()?;
        let mut mask = None;
        let mut stopped = Stopped::default();
        for _ in 0..STEPS_LIMIT {
            if let Some(exact) = self.exact_at(thread, &registers) {
                self.enter_program(thread, &exact)?;
                if let Some(mask) = mask {
                    thread.tracee.set_signal_mask(mask)?;
                }
                thread.tracee.stop_again(stopped)?;
                return Ok(Exactness::Exact);
            }
            if mask.is_none() {
                mask = Some(thread.tracee.signal_mask()?);
                thread.tracee.set_signal_mask(!FORCED)?;
            }
            thread.tracee.step(0)?;
            match tracee::wait_for(thread.tid())? {
                Stop::Signal(libc::SIGTRAP) => {}
                Stop::Signal(libc::SIGSEGV) if self.flip(thread)? => {}
                // Outside of the program's own instructions only the recorder's memory is accessed.
                Stop::Signal(signal) if is_fault(signal) && is_forced(thread)? => break,
                stop if stopped.puts_off(stop) => {}
                stop => return Ok(Exactness::Disturbed(stop)),
            }
            registers = thread.tracee.registers()?;
        }
        let at = Addr(registers.rip);
        Err(Error::Inexact { tid: thread.tid(), at })
    }

    /// The program's registers, if the thread stands where they are at hand.
    pub(super) fn exact_at(&mut self, thread: &mut Thread, registers: &Registers) -> Option<Exact> {
        let shared = self.window.shared.clone();
        let load = |slot| shared.load(thread.area.slot(slot));
        let request = load(slots::REQUEST);
        if request != 0 {
            // Before the request is served, the program is about to execute its target.
            shared.store(thread.area.slot(slots::REQUEST), 0);
            let ip = self.translator.requested(request, load(slots::TARGET));
            let indirect = request == slots::INDIRECT;
            let program = Registers {
                rip: ip,
                rcx: load(slots::RCX),
                rdx: if indirect { load(slots::RDX) } else { registers.rdx },
                r11: load(slots::R11),
                ..*registers
            };
            return Some(Exact {
                program,
                pointer: registers.r11,
                partial: Some((Vec::new(), ip)),
            });
        }
        let location = self.translator.locate(registers.rip).filter(|at| at.exact)?;
        let (program, pointer) = self.convert(thread, registers, &location);
        let state = location.point.state;
        let partial = (!state.recorded).then(|| {
            let path = self.translator.path(location.superblock);
            let count = usize::from(location.point.index).min(path.len());
            (path[..count].to_vec(), location.point.ip)
        });
        Some(Exact { program, pointer, partial })
    }

    /// The program's registers at a point of the cache, and the trace pointer.
    pub(super) fn convert(
        &self,
        thread: &Thread,
        registers: &Registers,
        location: &Location,
    ) -> (Registers, u64) {
        let load = |slot| self.window.shared.load(thread.area.slot(slot));
        let (point, state) = (location.point, location.point.state);
        let mut program = Registers { rip: point.ip, ..*registers };
        if state.rcx_in_slot {
            program.rcx = load(slots::RCX);
        }
        if state.rcx_is_ip {
            program.rcx = point.ip;
        }
        if state.rdx_in_slot {
            program.rdx = load(slots::RDX);
        }
        let mut pointer = load(slots::TRACE_POINTER);
        if state.r11_in_slot {
            program.r11 = load(slots::R11);
            if !state.early {
                pointer = registers.r11;
            }
        }
        if state.early {
            // The call's record is taken back: it was not made yet.
            pointer = pointer.wrapping_sub(4);
        }
        (program, pointer)
    }

    fn enter_program(&mut self, thread: &mut Thread, exact: &Exact) -> Result<(), Error> {
        let registers = Registers { gs_base: thread.gs_base, ..exact.program };
        thread.tracee.set_registers(&registers)?;
        let slot = thread.area.slot(slots::TRACE_POINTER);
        self.window.shared.store(slot, exact.pointer);
        self.take_records(thread, exact.pointer);
        if let Some((steps, ip)) = exact.partial.clone() {
            self.tell(thread.tid(), Item::Partial { steps, ip });
        }
        thread.place = Place::Program;
        Ok(())
    }

    /// The thread stopped at the end of a trace buffer: it goes on in the next one. Gives whether
    /// that is why it stopped.
    pub(super) fn flip(&mut self, thread: &mut Thread) -> Result<bool, Error> {
        let info = thread.tracee.signal_info()?;
        let fault = final_state::fault_address(&info);
        let guard = thread.area.guard(thread.buffer);
        if thread.place != Place::Cache || !fault.is_some_and(|addr| guard.contains(addr)) {
            return Ok(false);
        }
        let registers = thread.tracee.registers()?;
        if !thread.is_full_at(registers.r11) || self.has_own_r11(&registers) {
            // The program accessed the page itself.
            return Ok(false);
        }
        // First, for it may have been killed: then it stands where it was, and is not carried over.
        let fresh = thread.area.buffer(self.buffer_behind(thread));
        thread.tracee.set_registers(&Registers { r11: fresh, ..registers })?;
        self.learn(thread);
        self.carry_over(thread, registers.r11);
        self.write_packets()?;
        Ok(true)
    }

    /// Returns true if R11 is the program's where a thread stands in the cache.
    fn has_own_r11(&self, registers: &Registers) -> bool {
        let at = self.translator.locate(registers.rip);
        at.is_some_and(|at| at.exact && !at.point.state.r11_in_slot)
    }

    /// A record does not fit the thread's buffer: gives its place in the next one.
    pub(super) fn carry_over(&mut self, thread: &mut Thread, record: u64) -> u64 {
        let guard = thread.area.guard(thread.buffer);
        // What the store did not fault for is there already.
        let mut begun = vec![0; usize::try_from(guard.start.0.saturating_sub(record)).unwrap_or(0)];
        self.window.shared.read(thread.area.offset_of(record), &mut begun);
        self.next_buffer(thread, record);
        let fresh = thread.told;
        let offset = thread.area.offset_of(fresh);
        crate::translate::CacheMemory::write(&self.window.shared, offset, &begun);
        // What the slot says is of an earlier use of the buffer, maybe, and nobody's pointer now.
        self.window.shared.store(thread.area.slot(slots::TRACE_POINTER), fresh);
        fresh
    }
}

/// Returns true if the kernel itself sent the signal that the thread stopped for (sigaction(2)).
fn is_forced(thread: &Thread) -> Result<bool, Error> {
    Ok(final_state::code_of(&thread.tracee.signal_info()?) > 0)
}

/// Where a thread stands between two instructions of its program.
pub(super) struct Exact {
    /// The program's registers.
    pub(super) program: Registers,
    /// Behind its last record.
    pub(super) pointer: u64,
    /// What of a path was executed and is in no record, and where that leads.
    pub(super) partial: Option<(Vec<crate::translate::Step>, u64)>,
}
