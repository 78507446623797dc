//! Signals of the program: their delivery, which is logged.

use super::effects::contents;
use super::engine::Engine;
use super::process::{Process, place_of, state_of};
use super::special::is_end;
use super::thread::{Doing, Thread};
use crate::capture::Error;
use crate::capture::delivery::keeps_thread_in_place;
use crate::common::{Addr, AddrRange, Tid};
use crate::engine::{Phase, SignalStop};
use crate::insn::Registers;
use crate::recording::log::{Bytes, Happening, Write};
use crate::sideband::Event;
use crate::tracee::{SiginfoBytes, Stop, dispositions, siginfo, wait_for};

/// The offset of the pointer to the extended state in a signal frame, from RSP at the handler's
/// first instruction (`struct rt_sigframe`, `struct sigcontext`).
const FRAME_EXTENDED: u64 = 8 + 40 + 184;
/// The offset of the extended state's size in it (`struct _fpx_sw_bytes`, after `magic1`).
const EXTENDED_SIZE: u64 = 464 + 4;
/// The size that a frame is taken to have if its extended state is not found.
const PLAIN_FRAME_BYTES: u64 = 1024;
const LARGEST_FRAME_BYTES: u64 = 64 << 10;

/// The result of a delivery.
enum Delivered {
    /// The thread is in the handler.
    InHandler,
    /// It goes on where it was.
    Nothing,
    /// It ends, or has another stop that came first.
    Other(Stop),
}

impl Engine {
    /// Delivers a signal to a thread that is stopped in the program, unless the debugger holds it.
    pub(super) fn signalled(&mut self, tid: Tid, mut info: SiginfoBytes) -> Result<(), Error> {
        if self.holds(tid, &mut info) { Ok(()) } else { self.deliver_signal(tid, info) }
    }

    /// Delivers a signal to a thread that is stopped in the program.
    pub(super) fn deliver_signal(&mut self, tid: Tid, info: SiginfoBytes) -> Result<(), Error> {
        let delivered = self.with(tid, |process, thread| {
            let before = thread.tracee().registers()?;
            process.deliver(thread, &info, &before, |_, _| Vec::new())
        })?;
        self.after_delivery(tid, delivered.as_ref())
    }

    /// Delivers a signal to a thread that is in a system call, unless the debugger holds it.
    pub(super) fn signalled_in_call(
        &mut self,
        tid: Tid,
        mut info: SiginfoBytes,
    ) -> Result<(), Error> {
        let ends = |thread: &Thread| thread.calling().is_some_and(|c| is_end(&c.call));
        if self.is_finished && self.threads.get(&tid).is_some_and(ends) {
            // The signal comes too late: the end of the program is noted, and the call is next.
            return self.with(tid, |_, thread| Ok(thread.tracee().step(0)?)).map(|_| ());
        }
        if self.holds(tid, &mut info) { Ok(()) } else { self.deliver_signal_in_call(tid, info) }
    }

    /// Delivers a signal to a thread that is in a system call. A handler or the thread's end ends
    /// the call; after another signal, the kernel makes it again.
    pub(super) fn deliver_signal_in_call(
        &mut self,
        tid: Tid,
        info: SiginfoBytes,
    ) -> Result<(), Error> {
        let delivered = self.with(tid, |process, thread| {
            let known = dispositions(tid)?;
            let signal = siginfo::signal_of(&info);
            if keeps_thread_in_place(signal, known) {
                // The kernel makes the call again.
                thread.tracee().step(signal)?;
                return Ok(Delivered::Nothing);
            }
            let rax = thread.tracee().registers()?.rax;
            let Some(calling) = thread.take_call() else { return Ok(Delivered::Nothing) };
            process.take_from_scratch(thread.tracee(), &calling)?;
            let before = calling.registers;
            process.deliver(thread, &info, &before, |process, _| {
                process.writes_of_interrupted(&calling, rax)
            })
        })?;
        self.after_delivery(tid, delivered.as_ref())
    }

    /// Handles or notes the stop that came in place of the delivery, if one did.
    fn after_delivery(&mut self, tid: Tid, delivered: Option<&Delivered>) -> Result<(), Error> {
        match delivered {
            Some(Delivered::Other(stop)) if stop.is_end() => self.ending(tid, *stop),
            Some(Delivered::Other(stop)) => self.note_stop(tid, *stop),
            Some(Delivered::InHandler | Delivered::Nothing) | None => Ok(()),
        }
    }
}

impl Process {
    /// Delivers a signal to a thread that is where `before` says, or in the system call there, and
    /// logs it. `others` returns what else the kernel wrote. A signal that is ignored or only stops
    /// the process is not logged; in the second case, waits until the process is continued.
    fn deliver(
        &mut self,
        thread: &mut Thread,
        info: &SiginfoBytes,
        before: &Registers,
        others: impl FnOnce(&Self, &Thread) -> Vec<Write>,
    ) -> Result<Delivered, Error> {
        let signal = siginfo::signal_of(info);
        self.engine.note_delivery(&mut thread.translated, info);
        let known = dispositions(thread.tid())?;
        if keeps_thread_in_place(signal, known) {
            let is_stop =
                matches!(signal, libc::SIGSTOP | libc::SIGTSTP | libc::SIGTTIN | libc::SIGTTOU);
            if is_stop {
                thread.tracee().step(signal)?;
                return stopped(thread);
            }
            return Ok(Delivered::Nothing);
        }
        let event = Event::Signal {
            number: signal,
            code: siginfo::code_of(info),
            addr: siginfo::fault_address(info),
        };
        self.recorder.record_event(thread.tid(), event)?;
        thread.siginfo = Some(*info);
        let tracee = thread.tracee();
        tracee.set_signal_info(info)?;
        let is_caught = known.caught & 1_u64 << (signal - 1).clamp(0, 63) != 0;
        let place = place_of(before);
        let siginfo = Bytes(info.to_vec());
        if !is_caught {
            // It is fatal.
            thread.killed_at = Some(*before);
            let writes = others(self, thread);
            self.log(thread, before, Happening::Signal { place, siginfo, handler: None, writes })?;
            tracee.resume(signal)?;
            return Ok(Delivered::Other(wait_for(thread.tid())?));
        }
        tracee.step(signal)?;
        let stop = wait_for(thread.tid())?;
        let Stop::Signal(number) = stop else { return Ok(Delivered::Other(stop)) };
        let why = self.engine.signal_stop(&thread.translated, Phase::EntersHandler, number)?;
        if !matches!(why, SignalStop::InHandler) {
            return Ok(Delivered::Other(stop));
        }
        thread.translated.update_mask()?;
        thread.doing = Doing::Runs;
        let mut registers = tracee.registers()?;
        registers.orig_rax = u64::MAX;
        tracee.set_registers(&registers)?;
        let mut writes = others(self, thread);
        writes.extend(contents(&self.engine, [self.frame_at(&registers)]));
        let handler = Some(Box::new(state_of(tracee, &registers)?));
        self.log(thread, before, Happening::Signal { place, siginfo, handler, writes })?;
        Ok(Delivered::InHandler)
    }

    /// Returns the signal frame of a thread at the first instruction of a handler.
    fn frame_at(&self, registers: &Registers) -> AddrRange {
        let start = registers.rsp;
        let extended = self.word(start.wrapping_add(FRAME_EXTENDED));
        let size = self.word(extended.wrapping_add(EXTENDED_SIZE)) & u64::from(u32::MAX);
        let end = extended.wrapping_add(size);
        let is_known = extended > start && end.wrapping_sub(start) <= LARGEST_FRAME_BYTES;
        let end = if is_known { end } else { start.saturating_add(PLAIN_FRAME_BYTES) };
        AddrRange::new(Addr(start), Addr(end))
    }
}

/// Waits for a thread that a signal stopped (job control) until it goes on. The recorder stops with
/// it.
fn stopped(thread: &Thread) -> Result<Delivered, Error> {
    loop {
        match wait_for(thread.tid())? {
            Stop::Group(signal) => {
                thread.tracee().listen()?;
                crate::capture::signals::stop_with_program(signal);
            }
            Stop::Event(crate::tracee::PtraceEvent::Stop) => return Ok(Delivered::Nothing),
            stop => return Ok(Delivered::Other(stop)),
        }
    }
}
