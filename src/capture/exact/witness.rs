//! A witness of the recorded run: the program's registers and memory at random moments, as they are
//! in the program itself, in a file (`witness_file`). Tests ask for it (`Request::witness`), and
//! compare the replay with it. A moment comes at the end of a slice of random length, after some
//! single steps, or at a random return to the program.

use super::effects::{ranges_of, writable_pages};
use super::engine::ExactRecorder;
use super::process::Process;
use super::thread::{Activity, Thread};
use super::witness_file::write_error;
use crate::capture::Error;
use crate::common::{Addr, Tid};
use crate::engine::{Phase, Place, SignalStop, vsyscall_at};
use crate::insn::xsave::forget_last_x87;
use crate::insn::{ExecMode, FlagsCopy, decode};
use crate::syscalls::Effects;
use crate::tracee::{SiginfoBytes, Stop, wait_for};
use crate::translate::{hook_of, is_tick};
use std::io::Write;

/// The longest slice is two to the power of this, in ticks.
const SLICE_BITS: u64 = 18;
/// A slice is followed by fewer single steps than this, so that a moment may be anywhere in a tick.
const MOST_STEPS: u64 = 60;
/// One return to the program in so many is a moment, such as after a system call, or at a handler's
/// start.
const RETURN_ODDS: u64 = 8;
const NT_X86_XSTATE: u32 = 0x202;

/// The result of a single step of a thread.
enum StepResult {
    /// The instruction is executed.
    Stepped,
    /// The instruction was not executed, since it cannot be stepped like this: the recorder's loop
    /// has to handle it.
    Hook,
    /// A signal is to be delivered to the thread.
    Signal(SiginfoBytes),
    /// Another stop came, such as the thread's end.
    Other(Stop),
}

impl ExactRecorder {
    /// Returns a random number of ticks for the next slice of a run with a witness; 1 without one.
    pub(super) fn witness_ticks(&mut self) -> u64 {
        let Some(witness) = &mut self.witness else { return 1 };
        let most = 1 << witness.below(SLICE_BITS + 1);
        1 + witness.below(most)
    }

    /// Writes the program's state to the witness's file at random calls of this function, which is
    /// called at each return to the program. Does nothing without a witness.
    pub(super) fn witness_sometimes(&mut self, tid: Tid) -> Result<(), Error> {
        let Some(witness) = &mut self.witness else { return Ok(()) };
        if witness.below(RETURN_ODDS) == 0 { self.write_witness(tid) } else { Ok(()) }
    }

    /// Steps a thread, whose slice is over, by a random number of instructions, and writes the
    /// program's state there to the witness's file. Ends the steps early at an instruction that
    /// cannot be stepped, or at a stop, which is handled or noted. Does nothing without a witness.
    pub(super) fn step_and_witness(&mut self, tid: Tid) -> Result<(), Error> {
        let Some(witness) = &mut self.witness else { return Ok(()) };
        for _ in 0..witness.below(MOST_STEPS) {
            match self.with_thread(tid, Process::step_for_witness)? {
                Some(StepResult::Stepped) => {}
                Some(StepResult::Signal(info)) => {
                    self.write_witness(tid)?;
                    return self.handle_signal(tid, info);
                }
                Some(StepResult::Other(stop)) => return self.note_stop(tid, stop),
                Some(StepResult::Hook) => break,
                None => return Ok(()),
            }
        }
        self.write_witness(tid)
    }

    /// Writes the program's state to the witness's file, if the thread with the token, `tid`, is
    /// about to execute the program.
    fn write_witness(&mut self, tid: Tid) -> Result<(), Error> {
        let (Some(witness), Some(process)) = (&mut self.witness, &self.process) else {
            return Ok(());
        };
        let Some(thread) = self.threads.get(&tid).filter(|thread| is_in_program(thread)) else {
            return Ok(());
        };
        let Ok(registers) = thread.tracee().registers() else { return Ok(()) };
        let entries = process.recorder.log_so_far().entries;
        let position = [entries, thread.ticks, registers.rip, registers.rcx, word_of(tid)];
        let states: Vec<_> = self
            .threads
            .values()
            .filter(|thread| is_in_program(thread))
            .filter_map(|thread| {
                let tracee = thread.tracee();
                let registers = tracee.registers().ok()?;
                let mut extended = tracee.register_set(NT_X86_XSTATE).ok()?;
                forget_last_x87(&mut extended);
                Some((tracee.0, registers, extended))
            })
            .collect();
        let busy: Vec<_> = self
            .threads
            .values()
            .filter_map(Thread::current_call)
            .filter(|current| current.scratch.is_empty())
            .flat_map(|current| match current.effects.limit() {
                effects @ Effects::Known(_) => ranges_of(effects),
                _ => Vec::new(),
            })
            .collect();
        let pages = writable_pages(&process.engine, process.pid());
        let write = || {
            witness.write_words(&position)?;
            witness.write_words(&[states.len() as u64])?;
            for (tid, registers, extended) in &states {
                witness.write_words(&[word_of(*tid)])?;
                witness.write_words(&registers.to_words())?;
                witness.write_words(&[extended.len() as u64])?;
                witness.file.write_all(extended)?;
            }
            witness.write_words(&[busy.len() as u64])?;
            for range in &busy {
                witness.write_words(&[range.start.0, range.end.0])?;
            }
            witness.write_pages(pages)
        };
        let written = write();
        Ok(written.map_err(|error| write_error(&witness.path, error))?)
    }
}

impl Process {
    /// Lets a thread execute one instruction in the program, by a single step: one iteration, if it
    /// is repeated. Counts it if it is a tick. Waits for the step's stop.
    fn step_for_witness(&mut self, thread: &mut Thread) -> Result<StepResult, Error> {
        let tracee = thread.tracee();
        let begun = tracee.registers()?;
        let ip = Addr(begun.rip);
        let bytes = self.insn_bytes_at(ip.0);
        // The trap flag, by which a thread is stepped, would get into memory, or from there into
        // the program's flags.
        let insn = decode(&bytes, ip, ExecMode::Bits64);
        let is_refused = insn.is_none_or(|insn| insn.flags != FlagsCopy::None);
        if vsyscall_at(ip).is_some() || hook_of(&bytes).is_some() || is_refused {
            return Ok(StepResult::Hook);
        }
        tracee.step(0)?;
        let signal = match wait_for(thread.tid())? {
            Stop::Signal(signal) => signal,
            stop => {
                tracee.clear_step_flag(&begun)?;
                return Ok(StepResult::Other(stop));
            }
        };
        let stop = self.engine.classify_stop(&thread.translated, Phase::Steps, signal)?;
        if !matches!(stop, SignalStop::Done) {
            tracee.clear_step_flag(&begun)?;
        }
        if stop.is_tracers() {
            self.engine.restore_signal_state(&mut thread.translated, signal)?;
        }
        Ok(match stop {
            SignalStop::Done => {
                thread.ticks += u64::from(is_tick(&bytes, ip.0));
                StepResult::Stepped
            }
            SignalStop::HiddenFault => {
                thread.translated.repeat_fault()?;
                StepResult::Hook
            }
            SignalStop::Program(info) => StepResult::Signal(info),
            // The instruction writes to code, say. The code cache handles that.
            _ => StepResult::Hook,
        })
    }
}

/// Returns true if a thread is in the program, in no call, and has the program's registers.
fn is_in_program(thread: &Thread) -> bool {
    let runs = matches!(thread.activity, Activity::Runs) && thread.paused_run.is_none();
    runs && thread.translated.place == Place::Program
}

/// Returns a thread's number as a word of the file.
fn word_of(tid: Tid) -> u64 {
    u64::from(tid.0.unsigned_abs())
}
