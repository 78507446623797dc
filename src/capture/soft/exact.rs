//! Moves threads from any place in the code cache to the program's own code, with the program's
//! exact registers, and sends their records up to there to the encoder. The program's registers
//! follow from those in the cache only at some places, at which a thread's state is called *exact*.

use super::process::Process;
use super::thread::Thread;
use crate::capture::Error;
use crate::capture::clock::now;
use crate::capture::harm::is_fault;
use crate::common::Addr;
use crate::encode::TraceItem;
use crate::engine::{CACHE_SIGNALS, Emulated, ExactState, Place, STEPS_LIMIT};
use crate::insn::Registers;
use crate::tracee::{self, DeferredStops, Stop, siginfo};
use crate::translate::{CacheMemory, EdgeKind};

/// Bytes of the record that translated code writes for an indirect branch.
const RECORD_BYTES: u64 = EdgeKind::Indirect.record_bytes() as u64;

/// The result of `Process::make_exact`, which moves a thread from the cache to the program's own
/// code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Exactness {
    /// The thread is stopped at the program's own code, with the program's registers.
    Exact,
    /// The thread is still in the cache: another stop came first, which the caller has to handle.
    /// If the thread was stepped before, all its signals but those of the cache are still blocked.
    Disturbed(Stop),
}

impl Process {
    /// Moves a stopped thread out of the cache: single-steps it to the next place at which the
    /// program's registers are known, sets them, and sends the thread's records up to there to the
    /// encoder. Does nothing if it is out of the cache already. If the thread was stopped for a
    /// signal, the caller may have to deliver it again. Returns an error if the registers stay
    /// unknown; signals stay blocked then.
    pub(super) fn make_exact(&mut self, thread: &mut Thread) -> Result<Exactness, Error> {
        if thread.translated.place == Place::Program {
            return Ok(Exactness::Exact);
        }
        let tracee = thread.tracee();
        let mut registers = tracee.registers()?;
        let mut mask = None;
        let mut stopped = DeferredStops::default();
        for _ in 0..STEPS_LIMIT {
            if let Some(exact) = self.engine.exact_at(&thread.translated, &registers) {
                self.enter_program(thread, exact)?;
                if let Some(mask) = mask {
                    tracee.set_signal_mask(mask)?;
                }
                tracee.raise_deferred_stops(stopped)?;
                return Ok(Exactness::Exact);
            }
            if mask.is_none() {
                mask = Some(tracee.signal_mask()?);
                tracee.set_signal_mask(!CACHE_SIGNALS)?;
            }
            tracee.step(0)?;
            match tracee::wait_for(thread.tid())? {
                Stop::Signal(libc::SIGTRAP) => {}
                Stop::Signal(libc::SIGSEGV) if self.switch_full_buffer(thread)? => {}
                // Between the program's instructions, translated code accesses only the recorder's
                // memory, so a fault there is a sign of damage.
                Stop::Signal(signal) if is_fault(signal) && is_from_kernel(thread)? => break,
                stop if stopped.defer(stop) => {}
                stop => return Ok(Exactness::Disturbed(stop)),
            }
            registers = tracee.registers()?;
        }
        let at = Addr(registers.rip);
        Err(Error::Inexact { tid: thread.tid(), at })
    }

    /// Moves a thread to the program's own code, in the state `exact`, and sends its records up to
    /// there.
    fn enter_program(&mut self, thread: &mut Thread, exact: ExactState) -> Result<(), Error> {
        self.engine.enter_program(&mut thread.translated, &exact.program, exact.pointer)?;
        self.take_records(thread, exact.pointer);
        if let Some((steps, ip)) = exact.partial {
            self.send(thread.tid(), TraceItem::PartialPath { steps, ip });
        }
        Ok(())
    }

    /// Returns the exact state of a killed thread with the registers `at`, or its state soon after,
    /// as if the translated code had run on: writes to its memory, and switches it to its next
    /// trace buffer if its own is full. `None` if the state cannot be known.
    pub(super) fn exact_soon(&mut self, thread: &mut Thread, at: &Registers) -> Option<ExactState> {
        let mut registers = *at;
        loop {
            let tsc = || now().0;
            match self.engine.emulate_to_exact(&thread.translated, &mut registers, tsc) {
                Emulated::Exact(exact) => return Some(*exact),
                Emulated::Faults if thread.buffers.is_full_at(registers.r11) => {
                    registers.r11 = self.move_record_to_next_buffer(thread, registers.r11);
                }
                Emulated::Faults | Emulated::Unknown => return None,
            }
        }
    }

    /// Handles a thread that stopped for SIGSEGV: if it faulted at the end of its full trace
    /// buffer, switches it to its next buffer, writes the packets that were encoded so far, and
    /// returns true. Returns false for other faults. Does not resume the thread.
    pub(super) fn switch_full_buffer(&mut self, thread: &mut Thread) -> Result<bool, Error> {
        let info = thread.tracee().signal_info()?;
        let fault = siginfo::fault_address(&info);
        let in_cache = thread.translated.place == Place::Cache;
        let is_at_end = |addr: Addr| addr.page().0 == thread.buffers.end();
        if !in_cache || !fault.is_some_and(is_at_end) {
            return Ok(false);
        }
        let registers = thread.tracee().registers()?;
        if !thread.buffers.is_full_at(registers.r11) || self.engine.has_own_r11(&registers) {
            // The program accessed the page itself.
            return Ok(false);
        }
        // The registers are set first: this fails if the thread was killed, and then the buffer
        // stays.
        let fresh = self.tracer.next_buffer_start(&thread.buffers);
        thread.tracee().set_registers(&Registers { r11: fresh, ..registers })?;
        self.learn_paths(thread);
        self.move_record_to_next_buffer(thread, registers.r11);
        self.write_packets()?;
        Ok(true)
    }

    /// Switches a thread to its next buffer, and moves the record at `record`, which does not fit
    /// the old one, to the new one. Returns the record's address there.
    fn move_record_to_next_buffer(&mut self, thread: &mut Thread, record: u64) -> u64 {
        // The part before the fault is stored already.
        let mut begun =
            vec![0; usize::try_from(thread.buffers.end().saturating_sub(record)).unwrap_or(0)];
        let shared = self.engine.shared().clone();
        shared.read(thread.translated.area.offset_of(record), &mut begun);
        self.switch_to_next_buffer(thread, record);
        let fresh = thread.buffers.unsent();
        shared.write(thread.translated.area.offset_of(fresh), &begun);
        // The thread's slot for the trace pointer may still contain a pointer of the buffer's
        // earlier use.
        thread.translated.set_trace_pointer(&shared, fresh);
        fresh
    }

    /// Undoes an indirect branch to a noncanonical address, of a thread that requests its
    /// translation: moves the thread out of the cache before the branch, and lets it execute the
    /// branch there, so that the CPU raises the same fault as natively. Returns false, and does
    /// nothing, if that is not possible.
    pub(super) fn undo_branch(&mut self, thread: &mut Thread) -> Result<bool, Error> {
        let registers = thread.tracee().registers()?;
        let pointer = registers.r11.wrapping_sub(RECORD_BYTES);
        if pointer < thread.buffers.unsent() || !thread.buffers.holds(pointer) {
            return Ok(false);
        }
        let mut number = [0; 4];
        self.engine.shared().read(thread.translated.area.offset_of(pointer), &mut number);
        let number = u32::from_le_bytes(number) as usize;
        let edge = self.engine.translator().edges_from(number).first().copied();
        let before = edge.and_then(|edge| {
            self.engine.state_before_branch(&thread.translated, &registers, &edge)
        });
        let Some((program, steps)) = before else { return Ok(false) };
        let ip = program.rip;
        let exact = ExactState { program, pointer, partial: Some((steps, ip)) };
        self.enter_program(thread, exact)?;
        self.step_natively(thread, Addr(ip))?;
        Ok(true)
    }
}

/// Returns true if the kernel, and not a process, sent the signal for which the thread is stopped
/// (`si_code` in sigaction(2)).
fn is_from_kernel(thread: &Thread) -> Result<bool, Error> {
    Ok(siginfo::code_of(&thread.tracee().signal_info()?) > 0)
}
