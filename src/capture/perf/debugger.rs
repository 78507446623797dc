//! Handles stops for a debugger: INT3s, which are in the program's memory only while it runs,
//! single steps, watched memory, signals, system calls.
//!
//! The kernel reports the start of a system call only when the thread is past the instruction. So a
//! thread stops before a caught call like this (`handle_call_stop_for_debugger`):
//!
//! 1. At the start of the call, the kernel is made to skip it (`skips_call`).
//! 2. At the end of the skipped call, the thread is moved back before the instruction, and reports
//!    the call (`stopped_before_call`).
//! 3. Resumed from there, it makes the call, and its end is reported as the return.
//!
//! `current_call` is set between the two stops of a call.

use super::debug_session::NextStep;
use super::engine::Engine;
use super::thread::{Activity, Thread};
use crate::capture::Error;
use crate::capture::contract::{Catches, Report};
use crate::capture::error::gone_is_fine;
use crate::capture::newborn::shares_memory;
use crate::capture::restart::{registers_outside_call, will_restart_call};
use crate::common::{Addr, Pid, Tid};
use crate::insn::{ExecMode, MAX_INSN_BYTES, decode};
use crate::tracee::call_numbers::VFORK;
use crate::tracee::siginfo;
use crate::tracee::trap_flag::{hide_after_step, r11_without_trap_flag};
use crate::tracee::{Memory, Signo, Stop, Tracee, wait_for};
use std::collections::BTreeMap;

const INT3: u8 = 0xcc;
/// The bytes of SYSCALL, and of INT 0x80.
const CALLS: [[u8; 2]; 2] = [[0x0f, 0x05], [0xcd, 0x80]];
/// The size of either instruction.
const CALL_BYTES: u64 = 2;
/// `si_code` of a SIGTRAP (sigaction(2), and arch/x86 in the kernel).
const TRAP_BRKPT: i32 = 1;
const TRAP_TRACE: i32 = 2;
/// The `si_code` of a SIGTRAP by INT3.
const SI_KERNEL: i32 = 0x80;
/// The `si_code` when a stepped thread enters a signal handler.
const HANDLER_ENTERED: i32 = libc::SIGTRAP;

impl Thread {
    /// Marks the thread as stopped for the debugger, with `event` to report.
    pub(super) fn stop_with(&mut self, event: Report) {
        self.activity = Activity::Stopped;
        self.pending.unreported = Some(event);
    }
}

impl Engine<'_> {
    /// Inserts INT3s into the program's memory at the addresses of the current request where
    /// threads are to stop, and notes the original bytes. Skips addresses that cannot be written.
    pub(super) fn insert_int3s(&mut self) {
        let (Some(debugger), Some(process)) =
            (&mut self.debugger, self.processes.get(&self.program))
        else {
            return;
        };
        for at in debugger.go.iter().flat_map(|go| &go.stops) {
            let mut byte = [0];
            // No thread gets to an unmapped address.
            if !debugger.int3s.contains_key(&at.0)
                && process.memory.read(*at, &mut byte) == 1
                && process.memory.write(*at, &[INT3]).is_ok()
            {
                debugger.int3s.insert(at.0, byte[0]);
            }
        }
    }

    /// Restores the original bytes at all our INT3s.
    pub(super) fn remove_int3s(&mut self) {
        let Some(debugger) = &mut self.debugger else { return };
        let int3s = std::mem::take(&mut debugger.int3s);
        if let Some(process) = self.processes.get(&self.program) {
            remove(&process.memory, &int3s);
        }
    }

    /// Removes our INT3s from the memory of a new child. If that is its parent's memory, they stay
    /// removed until the parent's call ends.
    pub(super) fn remove_int3s_from_child(&mut self, parent: Tid, child: Pid) {
        let process = self.processes.get(&self.program);
        let (Some(debugger), Some(process)) = (&mut self.debugger, process) else { return };
        let registers = Tracee(parent).registers();
        if registers.is_ok_and(|registers| shares_memory(&registers, &process.memory)) {
            // The parent waits for the child, and stops where the call ends.
            debugger.int3s_removed_for = Some(parent);
            if let Some(thread) = self.threads.get_mut(&parent) {
                thread.current_call.get_or_insert(VFORK);
            }
            self.remove_int3s();
        } else if let Ok(memory) = Memory::open(child) {
            remove(&memory, &debugger.int3s);
        }
    }

    /// Returns the properties of a stopped thread's next instruction that matter for a step.
    pub(super) fn next_step(&self, tid: Tid) -> Result<NextStep, Error> {
        let registers = Tracee(tid).registers()?;
        let mut bytes = [0; MAX_INSN_BYTES];
        let Some(process) = self.processes.get(&self.program) else {
            return Ok(NextStep::default());
        };
        let ip = Addr(registers.rip);
        let known = process.memory.read(ip, &mut bytes);
        let insn = decode(&bytes[..known], ip, ExecMode::Bits64);
        let is_call = known >= 2 && CALLS.contains(&[bytes[0], bytes[1]]);
        Ok(NextStep {
            flags: insn.map(|insn| insn.flags).unwrap_or_default(),
            // The kernel uses only the low 32 bits.
            call: is_call.then_some(registers.rax & u64::from(u32::MAX)),
        })
    }

    /// Resumes a thread of a program under a debugger with `signal` (0: none), by a single step if
    /// the debugger requested one. Interrupts it again if all threads are being stopped.
    pub(super) fn resume_for_debugger(&mut self, tid: Tid, signal: Signo) -> Result<(), Error> {
        let (Some(debugger), Some(thread)) = (&mut self.debugger, self.threads.get_mut(&tid))
        else {
            return Ok(());
        };
        thread.activity = Activity::Running;
        let tracee = thread.tracee;
        // If a trap of the thread is pending as well, report that first.
        let halts = debugger.is_halting && !thread.tracee.has_pending_trap(thread.pid);
        if debugger.stepping.is_some_and(|(stepping, _)| stepping == tid) {
            thread.current_call = None;
            gone_is_fine(self.pmu.step(tracee, signal))?;
            return if halts { gone_is_fine(tracee.interrupt()) } else { Ok(()) };
        }
        let catches = debugger.go.as_ref().is_some_and(|go| go.catches != Catches::None);
        let to_call = catches || thread.skips_call || debugger.int3s_removed_for == Some(tid);
        if !to_call {
            thread.current_call = None;
        }
        gone_is_fine(self.pmu.resume(tracee, signal, to_call))?;
        // Any stop cancels the earlier request to stop.
        if halts { gone_is_fine(tracee.interrupt()) } else { Ok(()) }
    }

    /// Handles a stop for SIGTRAP: an INT3 of ours, an access to watched memory, or the end of a
    /// step. Returns true if it was for the debugger, or if the thread is gone; false if the signal
    /// is the program's.
    pub(super) fn handle_sigtrap(&mut self, tid: Tid) -> Result<bool, Error> {
        let (Some(debugger), Some(thread)) = (&mut self.debugger, self.threads.get_mut(&tid))
        else {
            return Ok(false);
        };
        let known = (thread.tracee.signal_info(), thread.tracee.registers());
        let (Ok(info), Ok(mut registers)) = known else {
            // The thread was killed: its exit will be reported.
            return Ok(true);
        };
        let code = siginfo::code_of(&info);
        let watched = thread.watched.take_hit(thread.tracee).unwrap_or(None);
        let stepped = debugger.stepping.filter(|(stepping, _)| *stepping == tid);
        let at = registers.rip.wrapping_sub(1);
        if code == SI_KERNEL && debugger.int3s.contains_key(&at) {
            registers.rip = at;
            thread.tracee.set_registers(&registers)?;
            thread.stop_with(Report::Breakpoint);
            if let Some((process, tap)) = self.processes.get(&thread.pid).zip(thread.tap.as_mut()) {
                tap.save_at_int3(Addr(at), &process.recording)?;
            }
            return Ok(true);
        }
        let is_step = matches!(code, TRAP_BRKPT | TRAP_TRACE | HANDLER_ENTERED);
        let report = match (watched, stepped) {
            (Some(addr), _) => Report::Watch(addr),
            (None, Some((_, step))) if is_step => {
                let catches = debugger.go.as_ref().map(|go| &go.catches);
                match step.call.filter(|call| catches.is_some_and(|all| all.has(*call))) {
                    Some(number) if code != HANDLER_ENTERED => Report::CallReturn(number),
                    _ => Report::Stepped,
                }
            }
            _ => return Ok(false),
        };
        if let Some((_, step)) = stepped
            && code != HANDLER_ENTERED
        {
            debugger.stepping = None;
            let r11 = r11_without_trap_flag(&registers);
            if step.call.is_some() && r11 != registers.r11 {
                registers.r11 = r11;
                thread.tracee.set_registers(&registers)?;
            }
            if let Some(process) = self.processes.get(&thread.pid) {
                let hidden = hide_after_step(thread.tracee, step.flags, &process.memory);
                gone_is_fine(hidden.map(drop))?;
            }
        }
        if stepped.is_some() {
            debugger.stepping = None;
        }
        thread.stop_with(report);
        Ok(true)
    }

    /// Stops a thread for the debugger before the delivery of a signal, or delivers it at once if
    /// the debugger does not want to stop for it.
    pub(super) fn stop_or_deliver(&mut self, tid: Tid, signal: Signo) -> Result<(), Error> {
        let (Some(debugger), Some(thread)) = (&mut self.debugger, self.threads.get_mut(&tid))
        else {
            return Ok(());
        };
        if let Some(written) = thread.pending.take_written_siginfo(signal) {
            gone_is_fine(thread.tracee.set_signal_info(&written))?;
            thread.siginfo = Some(written);
        }
        let passed = debugger.go.as_ref().map_or(0, |go| go.passed_to(tid));
        if !thread.pending.stops_for_signal(signal, passed) {
            return self.resume_for_debugger(tid, signal);
        }
        thread.held_signal = signal;
        thread.stop_with(Report::Signal(signal));
        if debugger.stepping.is_some_and(|(stepping, _)| stepping == tid) {
            debugger.stepping = None;
        }
        Ok(())
    }

    /// Handles the stop of a thread at the start or the end of a system call. A caught call is
    /// skipped by the kernel first, and the thread stops for the debugger before it. Resumes the
    /// thread unless it stops.
    pub(super) fn handle_call_stop_for_debugger(&mut self, tid: Tid) -> Result<(), Error> {
        let (Some(debugger), Some(thread)) = (&mut self.debugger, self.threads.get_mut(&tid))
        else {
            return Ok(());
        };
        let Ok(mut registers) = thread.tracee.registers() else { return Ok(()) };
        let catches = debugger.go.as_ref().map(|go| &go.catches);
        let is_caught = |number: u64| catches.is_some_and(|catches| catches.has(number));
        let Some(number) = thread.current_call.take() else {
            let number = registers.orig_rax & u64::from(u32::MAX);
            let here = Addr(registers.rip.wrapping_sub(CALL_BYTES));
            let passes = thread.stopped_before_call.take() == Some(here);
            thread.current_call = Some(number);
            if is_caught(number) && !passes {
                // With this number the kernel skips the call, and the thread can be moved back
                // before it.
                registers.orig_rax = u64::MAX;
                thread.tracee.set_registers(&registers)?;
                thread.skips_call = true;
            }
            return self.resume_for_debugger(tid, 0);
        };
        if std::mem::take(&mut thread.skips_call) {
            registers.rip = registers.rip.wrapping_sub(CALL_BYTES);
            (registers.rax, registers.orig_rax) = (number, u64::MAX);
            thread.tracee.set_registers(&registers)?;
            thread.stopped_before_call = Some(Addr(registers.rip));
            thread.stop_with(Report::Call(number));
            return Ok(());
        }
        let is_reported = is_caught(number) && !will_restart_call(&registers);
        if is_reported {
            thread.stop_with(Report::CallReturn(number));
        }
        if debugger.int3s_removed_for.take_if(|parent| *parent == tid).is_some()
            && !debugger.is_halting
        {
            self.insert_int3s();
        }
        if is_reported { Ok(()) } else { self.resume_for_debugger(tid, 0) }
    }

    /// Marks an interrupted thread as stopped for the debugger, without an event. If it is in a
    /// system call, moves it out of the call, before it if the kernel would restart it.
    pub(super) fn mark_halted(&mut self, tid: Tid) -> Result<(), Error> {
        let Some(thread) = self.threads.get_mut(&tid) else { return Ok(()) };
        thread.activity = Activity::Stopped;
        thread.current_call = None;
        move_outside_call(thread.tracee)
    }

    /// Stops a thread for the debugger at the first instruction of the program that its process has
    /// just executed.
    pub(super) fn stop_in_new_program(&mut self, tid: Tid) -> Result<(), Error> {
        if let Some(debugger) = &mut self.debugger {
            debugger.int3s.clear();
            debugger.stepping = None;
        }
        if !finish_execve(Tracee(tid))? {
            return Ok(());
        }
        let catches = self.debugger.as_ref().and_then(|debugger| debugger.go.as_ref());
        let is_caught = |number: &u64| catches.is_some_and(|go| go.catches.has(*number));
        let Some(thread) = self.threads.get_mut(&tid) else { return Ok(()) };
        thread.pending.report_on_resume =
            thread.current_call.take().filter(is_caught).map(Report::CallReturn);
        thread.stopped_before_call = None;
        thread.watched.forget();
        thread.stop_with(Report::Executed);
        self.set_watchpoints(tid)
    }

    /// Sets the debug registers of a stopped thread to the debugger's watchpoints.
    pub(super) fn set_watchpoints(&mut self, tid: Tid) -> Result<(), Error> {
        let (Some(debugger), Some(thread)) = (&self.debugger, self.threads.get_mut(&tid)) else {
            return Ok(());
        };
        gone_is_fine(thread.watched.set(thread.tracee, &debugger.slots))
    }
}

/// Moves a thread that is stopped in a system call out of the call: before it if the kernel would
/// restart it, otherwise after it. Ignores a thread that is gone.
pub(super) fn move_outside_call(tracee: Tracee) -> Result<(), Error> {
    match tracee.registers() {
        Err(error) if error.is_gone() => Ok(()),
        registers => gone_is_fine(tracee.set_registers(&registers_outside_call(&registers?))),
    }
}

/// Steps a thread that is stopped in an execve(2) out of it, and waits until it is stopped at the
/// new program's first instruction. Returns false if the thread has ended.
pub(super) fn finish_execve(tracee: Tracee) -> Result<bool, Error> {
    gone_is_fine(tracee.step(0))?;
    Ok(matches!(wait_for(tracee.0)?, Stop::Signal(_) | Stop::Event(_) | Stop::Group(_)))
}

/// Writes the program's bytes back in the place of INT3s. Ignores failures.
fn remove(memory: &Memory, int3s: &BTreeMap<u64, u8>) {
    for (&at, &byte) in int3s {
        // Writes to memory that is no longer mapped fail, and need not succeed.
        let _ = memory.write(Addr(at), &[byte]);
    }
}
