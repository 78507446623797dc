//! Children that are followed without a debugger. Each is handed over, stopped, to a separate
//! recorder: a fork of its parent's recorder. So every recorder has one process, and the death of
//! one leaves the others alone. A child that *borrows* its parent's memory (vfork(2)) runs
//! natively, and is handed over when it executes a program.
//!
//! Only the thread that attached to a process can trace it, so this recorder has to detach first.
//! The child must not execute anything in between: it waits in pause(2). The two recorders use a
//! socket (`hand_over` here, `child` there):
//!
//! 1. This recorder forks the new one. It permits that to trace the child (prctl(2) with
//!    `PR_SET_PTRACER`, which the child is made to call), and sends a byte.
//! 2. The new recorder creates the recording, and sends a byte. If it cannot, it adds a note and
//!    ends: the child goes on natively.
//! 3. This recorder blocks all signals of the child, sets its registers for pause(2), detaches, and
//!    sends another byte.
//! 4. The new recorder attaches, and restores the child's code, registers and signal mask.

use super::child::{Child, record_child, write_code};
use super::engine::ExactRecorder;
use super::followed::Followed;
use super::process::Process;
use crate::capture::Error;
use crate::capture::begin::{finish_execve, reason_not_to_record};
use crate::capture::error::gone_is_fine;
use crate::capture::shared_cpu::SharedCpu;
use crate::capture::signals::Leaving;
use crate::common::{Addr, Pid, Tid};
use crate::engine::Gate;
use crate::insn::Registers;
use crate::tracee::call_numbers::PRCTL;
use crate::tracee::trap_flag::r11_without_trap_flag;
use crate::tracee::{Memory, PtraceEvent, Stop, Tracee, wait_for, wait_interruptibly};
use nix::unistd::{ForkResult, fork};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

const PAUSE: u64 = 34;
const SYSCALL: [u8; 2] = [0x0f, 0x05];
/// Lets a process that is no ancestor trace another, where the Yama module forbids that (prctl(2)).
const PR_SET_PTRACER: u64 = 0x5961_6d61;

/// Where a child waits in pause(2) for its recorder: at a SYSCALL instruction at the address
/// `call`, which replaced `code`; `None` if it was there before.
#[derive(Clone, Copy, Debug)]
struct PausePlace {
    call: Addr,
    code: Option<[u8; 2]>,
}

impl ExactRecorder {
    /// Follows a child that is stopped at its birth, and returns true. If it `shares` its parent's
    /// memory, resumes it to run natively until it executes a program. Otherwise the caller has
    /// removed the recorder's memory from it, and it is handed over. Returns false, and does
    /// nothing, if children are not followed.
    pub(super) fn follow_newborn(&mut self, child: Tid, shares: bool) -> Result<bool, Error> {
        let Some(followed) = &mut self.followed else { return Ok(false) };
        let tracee = Tracee(child);
        if shares {
            followed.borrowers.insert(child);
            gone_is_fine(tracee.resume(0))?;
            return Ok(true);
        }
        let mut registers = tracee.registers()?;
        registers.r11 = r11_without_trap_flag(&registers);
        registers.orig_rax = u64::MAX;
        let call = Addr(registers.rip.wrapping_sub(SYSCALL.len() as u64));
        let gate = self.process.as_ref().and_then(Process::gate_if_filtered);
        let waits = PausePlace { call: gate.map_or(call, Gate::entry), code: None };
        self.hand_over(child, registers, waits, false)?;
        Ok(true)
    }

    /// Handles a stop of a child that borrows its parent's memory, or the end of a child's
    /// recorder, and returns true. Resumes the child, or hands it over if it has executed a
    /// program; detaches from children that it creates. Returns false for the stop of any other
    /// process.
    pub(super) fn handle_stop_of_followed(&mut self, tid: Tid, stop: Stop) -> Result<bool, Error> {
        let Some(followed) = &mut self.followed else { return Ok(false) };
        if followed.recorder_ended(tid, stop) {
            return Ok(true);
        }
        if !followed.borrowers.contains(&tid) {
            return Ok(false);
        }
        let tracee = Tracee(tid);
        match stop {
            Stop::Exited(_) | Stop::Killed { .. } => {
                followed.borrowers.remove(&tid);
            }
            Stop::Event(PtraceEvent::Exec) => {
                followed.borrowers.remove(&tid);
                let followed = self.follow_executed(tid);
                self.ignore_if_killed(tid, followed)?;
            }
            Stop::Event(PtraceEvent::Clone | PtraceEvent::Fork | PtraceEvent::Vfork) => {
                // The new child has the recorder's memory, but does not use it.
                let child = Tid(i32::try_from(tracee.event_message().unwrap_or(0)).unwrap_or(0));
                if self.early_stops.remove(&child).is_none() {
                    wait_for(child)?;
                }
                gone_is_fine(Tracee(child).detach(0))?;
                gone_is_fine(tracee.resume(0))?;
            }
            Stop::Group(_) => gone_is_fine(tracee.listen())?,
            Stop::Signal(signal) => gone_is_fine(tracee.resume(signal))?,
            Stop::Event(_) | Stop::Call => gone_is_fine(tracee.resume(0))?,
        }
        Ok(true)
    }

    /// Hands a child over that shared its parent's memory until it executed a program just now, and
    /// is stopped in the execve(2). Detaches from one that cannot be recorded, with a note.
    fn follow_executed(&mut self, child: Tid) -> Result<(), Error> {
        let tracee = Tracee(child);
        if let Some(clause) = reason_not_to_record(Pid(child.0), self.pid)? {
            if let Some(followed) = &self.followed {
                followed.family.add_note(&format!("process {child} {clause}: not recorded"));
            }
            return gone_is_fine(tracee.detach(0));
        }
        finish_execve(tracee)?;
        let mut registers = tracee.registers()?;
        registers.orig_rax = u64::MAX;
        let memory = Memory::open(Pid(child.0))?;
        let waits = if let Some(gate) = self.process.as_ref().and_then(Process::gate_if_filtered) {
            gate.make(tracee, &memory)?;
            PausePlace { call: gate.entry(), code: None }
        } else {
            let start = Addr(registers.rip);
            let mut code = [0; SYSCALL.len()];
            memory.read(start, &mut code);
            write_code(&memory, start, SYSCALL)?;
            PausePlace { call: start, code: Some(code) }
        };
        self.hand_over(child, registers, waits, true)
    }

    /// Returns `result`, unless it is the error of a child that was killed before it could be
    /// handed over: then lets the child end, and returns no error.
    pub(super) fn ignore_if_killed(
        &mut self,
        child: Tid,
        result: Result<(), Error>,
    ) -> Result<(), Error> {
        match result {
            Err(error) if error.is_of_end() => {
                self.unrecorded.insert(child);
                // If it is not at its exit stop yet, that will be reported.
                gone_is_fine(Tracee(child).resume(0))
            }
            result => result,
        }
    }

    /// Hands a stopped child over to a separate recorder, for which this process forks, and
    /// detaches from it (steps 1 to 3 above). The child goes on with `registers`: recorded, or
    /// natively if that fails. Blocks until the new recorder has created its recording.
    /// `has_executed` is true if the child is at the start of a program.
    fn hand_over(
        &mut self,
        tid: Tid,
        registers: Registers,
        waits: PausePlace,
        has_executed: bool,
    ) -> Result<(), Error> {
        let tracee = Tracee(tid);
        let pid = Pid(tid.0);
        let mask = tracee.signal_mask()?;
        let parent_recorder = Pid(nix::unistd::getpid().as_raw());
        let was_running = self.process.as_ref().is_some_and(|process| process.was_running);
        let gate = self.process.as_ref().and_then(Process::gate_if_filtered);
        let (PausePlace { call, code }, shared_cpu) = (waits, self.shared_cpu);
        let child = Child {
            pid,
            registers,
            mask,
            call,
            code,
            has_executed,
            gate,
            was_running,
            shared_cpu,
            parent_recorder,
        };
        let (mut ours, theirs) = match UnixStream::pair() {
            Ok(pair) => pair,
            Err(error) => return self.leave_unrecorded(&child, &error.to_string()),
        };
        // The kernel chooses the CPU of a process at its birth.
        let all_cpus = self.shared_cpu.map(SharedCpu::use_all);
        // A child of a process with several threads may find its memory in the midst of a change.
        self.wait_for_keyframe()?;
        if let Some(process) = &mut self.process {
            process.recorder.pause_log_thread()?;
        }
        // SAFETY: this process has one thread now, so that the child finds all of its memory at
        // rest. It leaves by _exit(2), and drops nothing of this process.
        let forked = unsafe { fork() };
        if let Ok(ForkResult::Child) = forked {
            record_child(self, &child, theirs);
        }
        drop(all_cpus);
        drop(theirs);
        let recorder = match forked {
            Ok(ForkResult::Parent { child }) => Tid(child.as_raw()),
            Ok(ForkResult::Child) => return Ok(()),
            Err(errno) => return self.leave_unrecorded(&child, &errno.to_string()),
        };
        if let Some(followed) = &mut self.followed {
            followed.recorders.insert(recorder, pid);
        }
        // Kernels without the Yama module do not know the request.
        tracee.inject(
            call,
            PRCTL,
            [PR_SET_PTRACER, u64::from(recorder.0.unsigned_abs()), 0, 0, 0, 0],
        )?;
        let mut answer = [0];
        let accepted = ours.write_all(&[1]).and_then(|()| ours.read_exact(&mut answer));
        if accepted.is_err() {
            // The new recorder has noted why.
            return child.restore_state(tracee).and_then(|()| gone_is_fine(tracee.detach(0)));
        }
        tracee.set_signal_mask(u64::MAX)?;
        let pauses = Registers { rip: call.0, rax: PAUSE, orig_rax: u64::MAX, ..registers };
        tracee.set_registers(&pauses)?;
        tracee.detach(0)?;
        // If the recorder is gone by now, there is no way to wake the child.
        let _ = ours.write_all(&[1]);
        Ok(())
    }

    /// Lets a child go on natively that cannot be recorded, and adds a note with `why`.
    fn leave_unrecorded(&self, child: &Child, why: &str) -> Result<(), Error> {
        if let Some(followed) = &self.followed {
            followed.family.add_note(&format!("process {} is not recorded: {why}", child.pid));
        }
        let tracee = Tracee(Tid(child.pid.0));
        child.restore_state(tracee)?;
        gone_is_fine(tracee.detach(0))
    }

    /// Waits until the recorders of all children, and the children without one, have ended. If a
    /// signal asks this recorder to leave the program, asks the recorders as well.
    pub(super) fn wait_for_followed(&mut self) -> Result<(), Error> {
        let is_there =
            |followed: &Followed| !followed.recorders.is_empty() || !followed.borrowers.is_empty();
        while self.followed.as_ref().is_some_and(is_there) {
            if self.leaving.as_ref().is_some_and(Leaving::is_asked) {
                self.followed.iter().for_each(Followed::ask_to_leave);
            }
            if let Some((tid, stop)) = wait_interruptibly()?
                && !self.handle_stop_of_followed(tid, stop)?
            {
                self.handle_stop_of_unknown(tid, stop)?;
            }
        }
        Ok(())
    }
}
