//! Signals of the program: their delivery, which is logged with the registers and the frame at the
//! handler's first instruction.
//!
//! 1. A thread stops for a signal, in the program (at the program's own code, outside of the code
//!    cache) or in a system call.
//! 2. The debugger may *hold* the signal: the thread stays at this stop, and later goes on with
//!    this signal, another or none (`debugger::go_on_with_signal`).
//! 3. The signal is delivered. If it has a handler, the thread is stepped to the handler's first
//!    instruction. A fatal one ends the thread. One that is ignored, or only stops the process, is
//!    not logged.
//! 4. A call that a handler or the thread's end interrupts is over: the memory that the kernel
//!    wrote in it is logged with the signal.

use super::effects::contents;
use super::engine::ExactRecorder;
use super::process::{Process, log_place_of, state_of};
use super::special::ends_process;
use super::thread::{Activity, Thread};
use crate::capture::Error;
use crate::capture::delivery::keeps_thread_in_place;
use crate::common::{Addr, AddrRange, Tid};
use crate::engine::{Phase, SignalStop};
use crate::insn::Registers;
use crate::recording::log::{Bytes, LogEvent, Write};
use crate::sideband::Event;
use crate::tracee::{SiginfoBytes, Stop, dispositions, siginfo, wait_for};

/// The offset of the pointer to the extended state in a signal frame, from RSP at the handler's
/// first instruction (`struct rt_sigframe`, `struct sigcontext`).
const FRAME_EXTENDED: u64 = 8 + 40 + 184;
/// The offset of the extended state's size in it (`struct _fpx_sw_bytes`, after `magic1`).
const EXTENDED_SIZE: u64 = 464 + 4;
/// The size in bytes that a frame is taken to have if its extended state is not found.
const PLAIN_FRAME_BYTES: u64 = 1024;
const LARGEST_FRAME_BYTES: u64 = 64 << 10;

/// The result of a delivery.
enum Delivery {
    /// The thread is in the handler.
    InHandler,
    /// It goes on where it was, as the signal is ignored, or the stop by the signal is over.
    GoesOn,
    /// It ends by the signal, or has this other stop that came first.
    Other(Stop),
}

impl ExactRecorder {
    /// Delivers a signal to a thread that is stopped in the program, unless the debugger holds it:
    /// then the signal is reported to the debugger, and delivered when that goes on.
    pub(super) fn handle_signal(&mut self, tid: Tid, mut info: SiginfoBytes) -> Result<(), Error> {
        if self.hold_for_debugger(tid, &mut info) { Ok(()) } else { self.deliver_signal(tid, info) }
    }

    /// Delivers a signal to a thread that is stopped in the program, whatever the debugger wants,
    /// and handles or notes a stop that comes instead.
    pub(super) fn deliver_signal(&mut self, tid: Tid, info: SiginfoBytes) -> Result<(), Error> {
        let delivered = self.with_thread(tid, |process, thread| {
            let before = thread.tracee().registers()?;
            process.deliver(thread, &info, &before, |_, _| Vec::new())
        })?;
        self.after_delivery(tid, delivered.as_ref())
    }

    /// Delivers a signal to a thread that is in a system call, unless the debugger holds it as in
    /// [`Self::handle_signal`]. Drops the signal of a thread in its `exit_group(2)`, which goes on.
    pub(super) fn handle_signal_in_call(
        &mut self,
        tid: Tid,
        mut info: SiginfoBytes,
    ) -> Result<(), Error> {
        let ends = |thread: &Thread| thread.current_call().is_some_and(|c| ends_process(&c.call));
        if self.has_program_ended && self.threads.get(&tid).is_some_and(ends) {
            // The signal comes too late: the end of the program is noted, and the call is next.
            return self.with_thread(tid, |_, thread| Ok(thread.tracee().step(0)?)).map(|_| ());
        }
        if self.hold_for_debugger(tid, &mut info) {
            Ok(())
        } else {
            self.deliver_signal_in_call(tid, info)
        }
    }

    /// Delivers a signal to a thread that is in a system call, whatever the debugger wants. If a
    /// handler begins or the thread ends, the call is over, and its writes are logged with the
    /// signal. After another signal, the kernel makes the call again; does not wait for that.
    pub(super) fn deliver_signal_in_call(
        &mut self,
        tid: Tid,
        info: SiginfoBytes,
    ) -> Result<(), Error> {
        let delivered = self.with_thread(tid, |process, thread| {
            let known = dispositions(tid)?;
            let signal = siginfo::signal_of(&info);
            if keeps_thread_in_place(signal, known) {
                // The kernel makes the call again.
                thread.tracee().step(signal)?;
                return Ok(Delivery::GoesOn);
            }
            let rax = thread.tracee().registers()?.rax;
            let Some(current) = thread.take_call() else { return Ok(Delivery::GoesOn) };
            process.give_back_scratch(thread.tracee(), &current)?;
            let before = current.registers;
            process.deliver(thread, &info, &before, |process, _| {
                process.writes_of_interrupted(&current, rax)
            })
        })?;
        self.after_delivery(tid, delivered.as_ref())
    }

    /// Handles the thread's end that came in place of a handler, or notes another such stop. Does
    /// nothing after other deliveries.
    fn after_delivery(&mut self, tid: Tid, delivered: Option<&Delivery>) -> Result<(), Error> {
        match delivered {
            Some(Delivery::Other(stop)) if stop.is_end() => self.handle_end(tid, *stop),
            Some(Delivery::Other(stop)) => self.note_stop(tid, *stop),
            Some(Delivery::InHandler | Delivery::GoesOn) | None => Ok(()),
        }
    }
}

impl Process {
    /// Delivers a signal to a thread that is where `before` says, or in the system call there,
    /// waits for the thread's next stop, and logs the signal. The thread must be at the stop for a
    /// signal, and its call, if it is in one, must have been taken ([`Thread::take_call`]).
    /// `call_writes` returns the memory that the kernel wrote in that call; it is called after the
    /// delivery. A signal that is ignored or only stops the process is not logged; in the second
    /// case, waits until the process is continued. If another stop comes in place of a handler,
    /// returns that, and does not log the signal.
    fn deliver(
        &mut self,
        thread: &mut Thread,
        info: &SiginfoBytes,
        before: &Registers,
        call_writes: impl FnOnce(&Self, &Thread) -> Vec<Write>,
    ) -> Result<Delivery, Error> {
        let signal = siginfo::signal_of(info);
        self.engine.note_delivery(&mut thread.translated, info);
        let known = dispositions(thread.tid())?;
        if keeps_thread_in_place(signal, known) {
            let is_stop =
                matches!(signal, libc::SIGSTOP | libc::SIGTSTP | libc::SIGTTIN | libc::SIGTTOU);
            if is_stop {
                thread.tracee().step(signal)?;
                return wait_while_stopped(thread);
            }
            return Ok(Delivery::GoesOn);
        }
        let event = Event::Signal {
            number: signal,
            code: siginfo::code_of(info),
            addr: siginfo::fault_address(info),
        };
        self.recorder.record_event(thread.tid(), event)?;
        thread.last_siginfo = Some(*info);
        let tracee = thread.tracee();
        tracee.set_signal_info(info)?;
        let is_caught = known.caught & 1_u64 << (signal - 1).clamp(0, 63) != 0;
        let place = log_place_of(before);
        let siginfo = Bytes(info.to_vec());
        if !is_caught {
            // It is fatal.
            thread.killed_at = Some(*before);
            let writes = call_writes(self, thread);
            self.log(thread, before, LogEvent::Signal { place, siginfo, handler: None, writes })?;
            tracee.resume(signal)?;
            return Ok(Delivery::Other(wait_for(thread.tid())?));
        }
        tracee.step(signal)?;
        let stop = wait_for(thread.tid())?;
        let Stop::Signal(number) = stop else { return Ok(Delivery::Other(stop)) };
        let why = self.engine.classify_stop(&thread.translated, Phase::EntersHandler, number)?;
        if !matches!(why, SignalStop::InHandler) {
            return Ok(Delivery::Other(stop));
        }
        thread.translated.reread_signal_mask()?;
        thread.activity = Activity::Runs;
        let mut registers = tracee.registers()?;
        registers.orig_rax = u64::MAX;
        tracee.set_registers(&registers)?;
        let mut writes = call_writes(self, thread);
        writes.extend(contents(&self.engine, [self.frame_at(&registers)]));
        let handler = Some(Box::new(state_of(tracee, &registers)?));
        self.log(thread, before, LogEvent::Signal { place, siginfo, handler, writes })?;
        Ok(Delivery::InHandler)
    }

    /// Returns the range of the signal frame that the kernel wrote for a thread, which is at the
    /// first instruction of the handler.
    fn frame_at(&self, registers: &Registers) -> AddrRange {
        let start = registers.rsp;
        let extended = self.read_word(start.wrapping_add(FRAME_EXTENDED));
        let size = self.read_word(extended.wrapping_add(EXTENDED_SIZE)) & u64::from(u32::MAX);
        let end = extended.wrapping_add(size);
        let is_known = extended > start && end.wrapping_sub(start) <= LARGEST_FRAME_BYTES;
        let end = if is_known { end } else { start.saturating_add(PLAIN_FRAME_BYTES) };
        AddrRange::new(Addr(start), Addr(end))
    }
}

/// Waits for a thread that a signal stopped (job control) until it goes on, or has another stop,
/// such as its end. The recorder stops with it.
fn wait_while_stopped(thread: &Thread) -> Result<Delivery, Error> {
    loop {
        match wait_for(thread.tid())? {
            Stop::Group(signal) => {
                thread.tracee().listen()?;
                crate::capture::signals::stop_with_program(signal);
            }
            Stop::Event(crate::tracee::PtraceEvent::Stop) => return Ok(Delivery::GoesOn),
            stop => return Ok(Delivery::Other(stop)),
        }
    }
}
