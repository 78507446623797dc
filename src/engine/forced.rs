//! Restores the signal mask and the handlers that the kernel resets in a program when it forces the
//! code cache's SIGTRAPs and SIGSEGVs on it (`force_sig_info_to_task` in the kernel's signal.c): a
//! fault or trap whose signal is blocked or ignored unblocks the signal and resets its action. So
//! the tracer keeps the program's mask and actions for these two signals itself.

use super::actions::{
    ACTION_BYTES, CACHE_SIGNALS, SEGV_BIT, action_word, cache_signal_bit, is_ignoring,
};
use super::error::{Error, checked};
use super::process::TranslatedProcess;
use super::thread::TranslatedThread;
use crate::common::Addr;
use crate::insn::Registers;
use crate::tracee::call_numbers::RT_SIGACTION;
use crate::tracee::{SiginfoBytes, Signo, Tracee, siginfo};
use crate::translate::{CacheMemory, slots};

/// Bytes of the kernel's signal set.
const SET_BYTES: u64 = 8;
/// Offset of the signal mask from the stack pointer at `rt_sigreturn`: `uc_sigmask` in the kernel's
/// ucontext.
const FRAME_MASK: u64 = 296;
/// The flag `SA_RESETHAND`: the kernel resets the action before it calls the handler.
const RESET_HANDLER: u64 = 0x8000_0000;

/// Returns the argument of a system call that is an `int`: the kernel ignores the high half of its
/// register.
fn int_of(argument: u64) -> i32 {
    let [a, b, c, d, ..] = argument.to_le_bytes();
    i32::from_le_bytes([a, b, c, d])
}

impl TranslatedProcess {
    /// Reads the program's actions for SIGTRAP and SIGSEGV from the kernel, by calls that a stopped
    /// thread is made to execute. Does nothing if no area is spare to write them to.
    pub fn read_actions(&mut self, tracee: Tracee) -> Result<(), Error> {
        let Some((area, _)) = self.window.spare_area() else { return Ok(()) };
        let (at, offset) = (area.base + u64::from(slots::ACTION), area.slot(slots::ACTION));
        for signal in [libc::SIGTRAP, libc::SIGSEGV] {
            let args = [signal.unsigned_abs().into(), 0, at, SET_BYTES, 0, 0];
            checked("rt_sigaction", tracee.inject(self.gadget(), RT_SIGACTION, args)?)?;
            let mut action = [0; ACTION_BYTES];
            self.window.shared.read(offset, &mut action);
            self.actions.insert(signal, action);
        }
        Ok(())
    }

    /// Notes which of SIGTRAP and SIGSEGV a thread blocks after the `rt_sigprocmask` that it is
    /// about to make, with these registers. Ignores a call that will fail or change nothing.
    pub fn note_sigprocmask(&self, thread: &mut TranslatedThread, registers: &Registers) {
        let Some(set) = self.word_at(registers.rsi).filter(|_| registers.r10 == SET_BYTES) else {
            return;
        };
        let blocked = match int_of(registers.rdi) {
            libc::SIG_BLOCK => thread.blocked | set,
            libc::SIG_UNBLOCK => thread.blocked & !set,
            libc::SIG_SETMASK => set,
            _ => return,
        };
        thread.blocked = blocked & CACHE_SIGNALS;
    }

    /// Notes which of SIGTRAP and SIGSEGV a thread blocks after the `rt_sigreturn` that it is about
    /// to make, with these registers: that restores the mask of signals from the stack. Does
    /// nothing if the stack cannot be read.
    pub fn note_sigreturn(&self, thread: &mut TranslatedThread, registers: &Registers) {
        if let Some(mask) = self.word_at(registers.rsp.wrapping_add(FRAME_MASK)) {
            thread.blocked = mask & CACHE_SIGNALS;
        }
    }

    /// Notes the action that a thread is about to set for its process by `rt_sigaction`, with these
    /// registers. Ignores other signals than SIGTRAP and SIGSEGV, and calls that will fail or set
    /// nothing.
    pub fn note_sigaction(&mut self, registers: &Registers) {
        let signal = int_of(registers.rdi);
        let mut action = [0; ACTION_BYTES];
        if cache_signal_bit(signal) != 0
            && registers.r10 == SET_BYTES
            && self.memory.read(Addr(registers.rsi), &mut action) == ACTION_BYTES
        {
            self.actions.insert(signal, action);
        }
    }

    /// Returns true if a signal is SIGTRAP, and the program ignores it.
    pub fn ignores_trap(&self, signal: Signo) -> bool {
        signal == libc::SIGTRAP && self.actions.get(&signal).is_some_and(is_ignoring)
    }

    /// Returns true if the kernel has to force a fault or trap with this signal on the program, and
    /// then resets the program's action: the signal is SIGTRAP or SIGSEGV, and the program blocks
    /// or ignores it.
    fn is_forced(&self, thread: &TranslatedThread, signal: Signo) -> bool {
        let ignored = self.actions.get(&signal).is_some_and(is_ignoring);
        thread.blocked & cache_signal_bit(signal) != 0 || ignored && cache_signal_bit(signal) != 0
    }

    /// Restores the program's mask and action for `signal`, if the kernel has reset them, after a
    /// stop of the thread for it that the cache caused. If the stop took the place of the program's
    /// own signal, which is blocked, sends that again.
    pub fn restore_signal_state(
        &mut self,
        thread: &mut TranslatedThread,
        signal: Signo,
    ) -> Result<(), Error> {
        if !self.is_forced(thread, signal) {
            return Ok(());
        }
        let tracee = thread.tracee;
        // The kernel keeps one signal where the program's own was pending already.
        let mut of_program = thread.hides_forced_signal(&tracee.signal_info()?);
        if signal == libc::SIGSEGV {
            of_program |= std::mem::take(&mut thread.owes_segv);
        }
        let gadget = self.gadget();
        if let Some(action) = self.actions.get(&signal).filter(|action| action_word(action, 0) != 0)
        {
            let offset = thread.area.slot(slots::ACTION);
            self.window.shared.write(offset, action);
            let at = thread.area.base + u64::from(slots::ACTION);
            let args = [signal.unsigned_abs().into(), at, 0, SET_BYTES, 0, 0];
            checked("rt_sigaction", tracee.inject(gadget, RT_SIGACTION, args)?)?;
        }
        if thread.blocked & cache_signal_bit(signal) != 0 {
            tracee.set_signal_mask(tracee.signal_mask()? | cache_signal_bit(signal))?;
            if of_program {
                tracee.send(thread.pid, signal)?;
            }
        }
        Ok(())
    }

    /// Notes that a signal of the program is delivered to a thread. If it is SIGTRAP or SIGSEGV,
    /// forgets the program's action for it, and that it is blocked, if the kernel resets these
    /// then: it forces the signal, or the handler is called once only (`SA_RESETHAND`).
    pub fn note_delivery(&mut self, thread: &mut TranslatedThread, info: &SiginfoBytes) {
        let signal = siginfo::signal_of(info);
        let forced = siginfo::code_of(info) > 0 && self.is_forced(thread, signal);
        let once = |action: &[u8; ACTION_BYTES]| action_word(action, 1) & RESET_HANDLER != 0;
        if forced || self.actions.get(&signal).is_some_and(once) {
            self.actions.remove(&signal);
            thread.blocked &= !cache_signal_bit(signal);
        }
    }
}

impl TranslatedThread {
    /// Returns true if `info`, of the signal for which the thread stopped, is of a SIGTRAP or
    /// SIGSEGV that was sent to the program while the program blocks it. It then stopped the thread
    /// in place of one that the cache raised, since the kernel queues one signal of a number.
    pub fn hides_forced_signal(&self, info: &SiginfoBytes) -> bool {
        let blocked = self.blocked & cache_signal_bit(siginfo::signal_of(info)) != 0;
        blocked && siginfo::code_of(info) <= 0
    }

    /// Prepares a thread, which the caller resumes, to repeat a fault of the code cache, since a
    /// SIGSEGV of the program stopped it in the fault's place. Blocks SIGSEGV, so that the kernel
    /// forces the fault. [`TranslatedProcess::restore_signal_state`] sends the program's signal
    /// again after that.
    pub fn repeat_fault(&mut self) -> Result<(), Error> {
        self.owes_segv = true;
        Ok(self.tracee.set_signal_mask(self.tracee.signal_mask()? | SEGV_BIT)?)
    }
}
