//! System calls that stop the thread: it makes them itself, where it is in the program, by a single
//! step. The trap after the step means that the call is done, and it is logged then. Calls that are
//! made in the code cache are in `logged`.
//!
//! A call goes from `enter_call`, which steps the thread into it, through any number of stops
//! (`handle_call_stop`: signals, births of children, group stops) to `finish_call`. If it takes
//! long, the thread loses the token in between, and an `Enters` entry is logged at that point (for
//! an execve(2), already before the call); the entry at the call's end is a `Returns` then, and a
//! `Call` otherwise.

use super::effects::{MemoryBefore, contents, ranges_of};
use super::engine::ExactRecorder;
use super::files::Opened;
use super::filters::{FILTER_ARGUMENT, PROGRAM_BYTES, installs_filter, is_of_filter};
use super::maps::changes_mappings;
use super::process::{Process, extended_of, state_of};
use super::scratch::Scratch;
use super::special::{ends_process, written_by_answer};
use super::thread::{Activity, CurrentCall, Thread};
use crate::capture::Error;
use crate::capture::error::gone_is_fine;
use crate::capture::restart::will_restart_call;
use crate::common::{Addr, AddrRange, Tid};
use crate::engine::{Phase, SignalStop};
use crate::insn::Registers;
use crate::recording::log::{CallEffects, LogEvent, Write, after_call};
use crate::syscalls::{Call, Effects, Model, OpenCall, Property};
use crate::tracee::call_numbers::{
    CLONE, CLONE3, EXECVE, EXECVEAT, EXIT, FORK, PROCESS_VM_WRITEV, RESTART_SYSCALL, RT_SIGRETURN,
    VFORK,
};
use crate::tracee::trap_flag::r11_without_trap_flag;
use crate::tracee::{PtraceEvent, SiginfoBytes, Stop, Tracee, siginfo};
use std::path::Path;
use std::time::Duration;

/// The effects of a call that a filter (seccomp) prevented are those of a call with this result.
const NOT_MADE: i64 = -libc::ENOSYS as i64;
/// The result of a call that a handler interrupts and that the kernel would otherwise make again.
const INTERRUPTED: i64 = -libc::EINTR as i64;
/// The maximum time for which a thread keeps the token in a call that may block, and in one that
/// should not (`LONG_CALL`).
pub(super) const SHORT_CALL: Duration = Duration::from_micros(30);
const LONG_CALL: Duration = Duration::from_millis(2);

/// The meaning of a stop of a thread in a system call.
enum CallStop {
    /// The call goes on once the caller resumes the thread.
    GoesOn,
    /// The thread stays in its group stop (`PTRACE_LISTEN`). Its next stop will be reported.
    InGroupStop,
    /// The call is done: this is the trap of the step through it.
    Done,
    /// A signal of the program is to be delivered.
    Signal(SiginfoBytes),
}

impl ExactRecorder {
    /// Handles a system call that the thread with the token is about to make: reports it to the
    /// debugger, which stops the thread before the call; answers it without making it; ends the
    /// recording before it; or lets the thread make it. In the last case, waits for the thread's
    /// next stop and handles it, but waits only a limited time unless the call keeps the token, and
    /// not at all if no other thread can go on.
    pub(super) fn enter_call(&mut self, tid: Tid) -> Result<(), Error> {
        if self.debugger.is_some() {
            let next = self.with_thread(tid, |_, thread| Ok(thread.tracee().registers()?))?;
            if next.is_some_and(|r| self.report_if_caught(tid, &call_of(&r), r.rip)) {
                return Ok(());
            }
        }
        let mut answered = None;
        let entered = self.with_thread(tid, |process, thread| {
            let registers = thread.tracee().registers()?;
            let call = call_of(&registers);
            if let Some(result) = process.answer_to(thread, &call, &registers) {
                process.skip_call(thread, &registers, result)?;
                answered = Some(call.number);
                return Ok(None);
            }
            // A `restart_syscall(2)` has the effects of the call that it makes again.
            let restarted = thread.restarted_call.take().filter(|_| call.number == RESTART_SYSCALL);
            let number = restarted.unwrap_or(call.number);
            Ok(Some((registers, Call { number, ..call })))
        })?;
        if let Some(number) = answered {
            return self.report_call_end(tid, number);
        }
        let Some(Some((registers, call))) = entered else { return Ok(()) };
        if let Some(why) = self.reason_to_leave(&call, &registers) {
            return self.stop_recording_because(&why);
        }
        if ends_process(&call) {
            self.note_program_end(tid, &registers);
        }
        self.unshare_cpu_for_call(&call);
        let has_others = self.threads.len() > 1;
        let may_block =
            Model::by_number(call.number).is_none_or(|model| model.has(Property::MayBlock));
        let begun = self.with_thread(tid, |process, thread| {
            process.begin_call(thread, call, &registers, has_others, may_block)
        })?;
        if begun.is_none() {
            return Ok(());
        }
        if keeps_token(call.number) {
            return self.wait_for_call_stop(tid);
        }
        self.wait_in_call_at_most(tid, if may_block { SHORT_CALL } else { LONG_CALL })
    }

    /// Handles a stop of a thread in a system call, which is not its end: completes the call,
    /// delivers a signal, handles the birth of a child, or resumes the thread in the call and waits
    /// for its next stop as `enter_call` does.
    pub(super) fn handle_call_stop(&mut self, tid: Tid, stop: Stop) -> Result<(), Error> {
        if let Stop::Event(event @ (PtraceEvent::Clone | PtraceEvent::Fork | PtraceEvent::Vfork)) =
            stop
        {
            return self.handle_birth(tid, event);
        }
        let meaning =
            self.with_thread(tid, |process, thread| process.classify_call_stop(thread, stop))?;
        match meaning {
            Some(CallStop::Done) => self.finish_call(tid),
            Some(CallStop::Signal(info)) if is_of_filter(&info) => {
                self.keep_filter_signal(tid, info)
            }
            Some(CallStop::Signal(info)) => self.handle_signal_in_call(tid, info),
            Some(CallStop::GoesOn) => {
                let resumed = self.with_thread(tid, |process, thread| {
                    process.reopen_foreign_for_call(thread)?;
                    thread.tracee().step(0)?;
                    Ok(thread.current_call().is_some_and(|c| changes_mappings(c.call.number)))
                })?;
                match resumed {
                    Some(true) => self.wait_for_call_stop(tid),
                    Some(false) => self.wait_in_call_at_most(tid, SHORT_CALL),
                    None => Ok(()),
                }
            }
            Some(CallStop::InGroupStop) | None => Ok(()),
        }
    }

    /// Logs a call that is done, and then the birth of the thread that it made. Reports the call's
    /// end and its child to the debugger, and delivers the signal by which a filter answered.
    fn finish_call(&mut self, tid: Tid) -> Result<(), Error> {
        let made = self.with_thread(tid, |process, thread| {
            let Some(current) = thread.take_call() else { return Ok(None) };
            process.log_done_call(thread, &current)?;
            Ok(Some(current))
        })?;
        let Some(Some(current)) = made else { return Ok(()) };
        self.log_new_thread(tid, &current.call)?;
        self.reshare_cpu_after_call(&current.call)?;
        self.report_call_end(tid, current.call.number)?;
        self.report_child(tid);
        current.filter_signal.map_or(Ok(()), |info| self.handle_signal(tid, info))
    }

    /// Keeps the signal by which a filter answered a call, and resumes the thread. Waits for the
    /// trap of the step through the call, which comes next; then the call is finished, and the
    /// signal is delivered.
    fn keep_filter_signal(&mut self, tid: Tid, info: SiginfoBytes) -> Result<(), Error> {
        self.with_thread(tid, |_, thread| {
            if let Activity::InCall(current) = &mut thread.activity {
                current.filter_signal = Some(info);
            }
            Ok(thread.tracee().step(0)?)
        })?;
        self.wait_for_call_stop(tid)
    }
}

impl Process {
    /// Lets a thread begin a system call: makes ready for it, replaces its buffers if the program
    /// has other threads (`has_others`), and steps the thread into the call without waiting. Keeps
    /// what the end of the call needs in the thread's activity. Logs the beginning of an execve(2);
    /// that of other calls is logged only when another thread gets the token. `may_block` is true
    /// if the call may wait for something.
    fn begin_call(
        &mut self,
        thread: &mut Thread,
        call: Call,
        registers: &Registers,
        has_others: bool,
        may_block: bool,
    ) -> Result<(), Error> {
        self.prepare_call(thread, &call, registers)?;
        let uses_foreign = self.uses_foreign(&call);
        let effects = call.begin(&|addr: Addr, buf: &mut [u8]| self.engine.read_visible(addr, buf));
        let memory_before = self.read_memory_before(&call, registers, &effects);
        // An execve(2) that succeeds does not return to this program.
        let is_logged = matches!(call.number, EXECVE | EXECVEAT);
        if is_logged {
            self.log(thread, registers, LogEvent::Enters { number: call.number })?;
        }
        let area = thread.translated.area;
        let filter_addr = Addr(area.buffer(0));
        let filter = self.filter_for_program(thread.tracee(), &call, filter_addr)?;
        let scratch = if let Some(filter) = filter {
            let range = AddrRange::sized(Addr(call.args[FILTER_ARGUMENT]), PROGRAM_BYTES);
            let argument = (FILTER_ARGUMENT, range);
            Scratch::replace_argument(
                &self.engine,
                thread.tracee(),
                registers,
                argument,
                (filter_addr, &filter),
            )?
        } else if has_others {
            let place = (thread.tracee(), area);
            Scratch::replace_buffers(&self.engine, place, (&call, &effects), registers)?
        } else {
            Scratch::default()
        };
        let extended =
            if has_others && may_block { Some(extended_of(thread.tracee())?) } else { None };
        let current = CurrentCall {
            call,
            effects,
            registers: *registers,
            memory_before,
            file_size_before: self.file_size_before(&call),
            uses_foreign: uses_foreign && scratch.is_empty(),
            was_foreign_closed: false,
            is_repeated: false,
            scratch,
            extended,
            is_logged,
            filter_signal: None,
        };
        thread.activity = Activity::InCall(Box::new(current));
        Ok(thread.tracee().step(0)?)
    }

    /// Determines the meaning of a stop of a thread in a system call. Leaves a thread in its group
    /// stop. After a signal that is the recorder's, restores the program's signal mask and handler.
    /// Sets the thread back to before a call that must be repeated (`repeat_faulted_call`).
    fn classify_call_stop(&mut self, thread: &mut Thread, stop: Stop) -> Result<CallStop, Error> {
        let signal = match stop {
            Stop::Signal(signal) => signal,
            Stop::Group(_) => {
                gone_is_fine(thread.tracee().listen())?;
                return Ok(CallStop::InGroupStop);
            }
            _ => return Ok(CallStop::GoesOn),
        };
        // Such a call has a temporary mask. If the recorder set a mask, the kernel would not
        // restore the program's at the call's return.
        let has_own_mask = thread.current_call().is_some_and(|c| sets_mask(c.call.number))
            && will_restart_call(&thread.tracee().registers()?);
        let why = match self.engine.classify_stop(&thread.translated, Phase::Calls, signal)? {
            // A step's trap comes after the call. A SIGTRAP of the program may come in the call,
            // since the temporary mask lets it.
            SignalStop::Done if has_own_mask => match thread.tracee().signal_info()? {
                info if siginfo::code_of(&info) <= 0 => SignalStop::Program(info),
                _ => SignalStop::Done,
            },
            // The kernel drops a signal while one of the same number is pending: a SIGTRAP that the
            // program ignores took the place of the step's.
            SignalStop::Program(_) if self.engine.ignores_trap(signal) => SignalStop::Done,
            why => why,
        };
        if why.is_tracers() && !has_own_mask {
            self.engine.restore_signal_state(&mut thread.translated, signal)?;
        }
        Ok(match why {
            // The kernel makes the call again, unless a handler begins.
            SignalStop::Done if will_restart_call(&thread.tracee().registers()?) => {
                CallStop::GoesOn
            }
            SignalStop::Done if self.repeat_faulted_call(thread)? => CallStop::GoesOn,
            SignalStop::Done => CallStop::Done,
            SignalStop::Program(info) => CallStop::Signal(info),
            SignalStop::HiddenFault => {
                thread.translated.repeat_fault()?;
                CallStop::GoesOn
            }
            _ => CallStop::GoesOn,
        })
    }

    /// Logs a system call that the recorder answers with `result`, with the memory that
    /// [`Self::answer_to`] has written for it, and moves the thread past it as if the kernel had
    /// returned that.
    pub(super) fn skip_call(
        &mut self,
        thread: &mut Thread,
        registers: &Registers,
        result: i64,
    ) -> Result<(), Error> {
        let number = call_of(registers).number;
        let written = written_by_answer(number, registers, result);
        let writes = contents(&self.engine, written);
        let effects = CallEffects { result, writes, maps: Vec::new(), state: None };
        self.log(thread, registers, LogEvent::Call { number, effects })?;
        let gs_base = thread.translated.gs_base();
        let after = Registers { gs_base, ..after_call(registers, result) };
        Ok(thread.tracee().set_registers(&after)?)
    }

    /// Reads all writable memory before a call whose writes can only be found by comparing it: one
    /// that the model does not know, with a note for the user; one whose child shares the memory
    /// and is not a thread; a `process_vm_writev(2)` to the process itself. Returns `None` without
    /// reading for other calls.
    fn read_memory_before(
        &mut self,
        call: &Call,
        registers: &Registers,
        effects: &OpenCall,
    ) -> Option<MemoryBefore> {
        let is_known = matches!(effects.limit(), Effects::Known(_));
        let is_shared = crate::capture::newborn::shares_memory(
            &Registers { orig_rax: call.number, ..*registers },
            &self.engine.memory,
        ) && !self.makes_thread(call);
        // process_vm_writev(2) takes the number of any thread for that of its process.
        let is_thread =
            |number: u64| Path::new(&format!("/proc/{}/task/{number}", self.pid())).exists();
        let writes_itself = call.number == PROCESS_VM_WRITEV && is_thread(call.args[0]);
        if is_known && !is_shared && !writes_itself {
            return None;
        }
        if !is_known {
            let name = Model::by_number(call.number).map_or("?", |model| model.name);
            self.add_user_note(format!(
                "what the system call {name} ({}) writes was found by comparing memory",
                call.number
            ));
        }
        Some(MemoryBefore::read(&self.engine, self.pid()))
    }

    /// Completes a call that is done: restores registers and buffers that the recorder replaced for
    /// the call, takes note of the call's effects on files, mappings and filters, and logs it with
    /// all memory that it wrote.
    fn log_done_call(&mut self, thread: &mut Thread, current: &CurrentCall) -> Result<(), Error> {
        let CurrentCall { call, registers: before, .. } = current;
        let mut after = thread.tracee().registers()?;
        if call.number == RT_SIGRETURN {
            thread.translated.return_from_handler(&after)?;
        } else {
            after.r11 = r11_without_trap_flag(&after);
        }
        after.orig_rax = u64::MAX;
        current.scratch.restore_arguments(&mut after);
        thread.tracee().set_registers(&after)?;
        let in_rax = after.rax.cast_signed();
        // The call was not made if a filter answered with a signal: RAX is the call's number.
        let result = if current.filter_signal.is_some() { NOT_MADE } else { in_rax };
        if self.engine.has_foreign() && !current.scratch.is_empty() {
            self.engine.open_foreign_for_call(thread.tracee(), call)?;
        }
        current.scratch.copy_back(&mut self.engine, &current.effects, result);
        thread.registered.note_call(call, result);
        if installs_filter(call) && result == 0 {
            // The filter must see calls at their addresses in the program, not in the code cache.
            self.is_filtered = true;
            self.engine.stop_at_calls();
        }
        let mut maps = self.map_changes(thread, call, result)?;
        if let Some(before) = &current.memory_before {
            maps.extend(self.mapping_changes_since(thread, &before.mappings)?);
        }
        let mut writes = self.writes_of(current, result);
        writes.extend(self.note_file_effects(thread, call, result, current.file_size_before)?);
        if let Some(range) = self.memory_file_write(call, result) {
            self.engine.forget_code(range);
            writes.extend(contents(&self.engine, [range]));
        }
        let expected = after_call(before, in_rax);
        let same =
            crate::recording::log::check_of(&expected) == crate::recording::log::check_of(&after);
        let state = if same && call.number != RT_SIGRETURN {
            None
        } else {
            Some(Box::new(state_of(thread.tracee(), &after)?))
        };
        let effects = CallEffects { result: in_rax, writes, maps, state };
        let event = if current.is_logged {
            LogEvent::Returns { effects }
        } else {
            LogEvent::Call { number: call.number, effects }
        };
        self.log(thread, before, event)
    }

    /// Takes note of the effects of a completed call on files and descriptors: puts copies in the
    /// place of lists of mappings that it opened (`maps_files`), updates the classes of
    /// descriptors, and drops translated code from files that it wrote. Lets all later calls stop
    /// the thread if they may wait because of this one. Returns the memory of mapped files that it
    /// may have written. The file that it changed had `file_size_before` bytes before.
    pub(super) fn note_file_effects(
        &mut self,
        thread: &Thread,
        call: &Call,
        result: i64,
        file_size_before: u64,
    ) -> Result<Vec<Write>, Error> {
        let opened = self.opened_by(call, result);
        if may_make_calls_wait(call, opened.as_ref()) {
            self.engine.stop_at_calls();
        }
        self.hide_recorder_mappings(thread, call, opened.as_ref())?;
        let in_files = self.mapped_file_writes(call, result, file_size_before);
        // These may contain code, of a library, say.
        for range in &in_files {
            self.engine.forget_code(*range);
        }
        self.note_memory_file(call, result, opened.as_ref());
        self.learn_descriptors(call, result);
        Ok(contents(&self.engine, in_files))
    }

    /// Reads the memory that a call wrote which returned `result`: by the model, and by comparing
    /// if the memory was read before.
    fn writes_of(&self, current: &CurrentCall, result: i64) -> Vec<Write> {
        let memory = |addr: Addr, buf: &mut [u8]| self.engine.read_visible(addr, buf);
        let written = ranges_of(current.effects.end(result, &memory));
        let mut writes = contents(&self.engine, written);
        if let Some(before) = &current.memory_before {
            writes.extend(before.changes(&self.engine, self.pid()));
        }
        writes
    }

    /// Restores the call's arguments in a thread's registers, and copies the bytes in the
    /// recorder's buffers to the program's, in a call that is ended by a signal's handler or by the
    /// end of the recording. A call that the kernel would repeat has the effects of `EINTR`. Does
    /// nothing if no buffer was replaced.
    pub(super) fn give_back_scratch(
        &mut self,
        tracee: Tracee,
        current: &CurrentCall,
    ) -> Result<(), Error> {
        if current.scratch.is_empty() {
            return Ok(());
        }
        let mut registers = tracee.registers()?;
        current.scratch.restore_arguments(&mut registers);
        tracee.set_registers(&registers)?;
        let result = result_of_interrupted(registers.rax);
        current.scratch.copy_back(&mut self.engine, &current.effects, result);
        Ok(())
    }

    /// Reads the memory that a call wrote before a signal ended it. `rax` is the thread's RAX at
    /// the signal's stop, before the delivery.
    pub(super) fn writes_of_interrupted(&self, current: &CurrentCall, rax: u64) -> Vec<Write> {
        self.writes_of(current, result_of_interrupted(rax))
    }
}

/// Returns the result of a call that a signal's handler ends, by RAX before the handler: `EINTR`
/// for a call that the kernel would make again without a handler.
fn result_of_interrupted(rax: u64) -> i64 {
    let registers = Registers { rax, orig_rax: 0, ..Registers::default() };
    if will_restart_call(&registers) { INTERRUPTED } else { rax.cast_signed() }
}

/// Returns true if no other thread executes anything until a call of this number is done, or its
/// child born, or the thread gone.
fn keeps_token(number: u64) -> bool {
    changes_mappings(number) || matches!(number, CLONE | CLONE3 | FORK | VFORK | EXIT)
}

/// Returns true if later calls may wait for long because of this one: for a socket that lingers, or
/// for a file system that the program itself serves. They must not be made in the code cache, where
/// no other thread runs until they return.
fn may_make_calls_wait(call: &Call, opened: Option<&Opened>) -> bool {
    const SETSOCKOPT: u64 = 54;
    let [_, level, name, ..] = call.args;
    let lingers = call.number == SETSOCKOPT
        && (level, name) == (libc::SOL_SOCKET as u64, libc::SO_LINGER as u64);
    lingers || opened.is_some_and(|file| file.path == Path::new("/dev/fuse"))
}

/// Returns true if a call sets the mask of signals for its duration: `rt_sigsuspend`, `pselect6`,
/// `ppoll`, `epoll_pwait`, `io_pgetevents`, `epoll_pwait2`.
fn sets_mask(number: u64) -> bool {
    matches!(number, 130 | 270 | 271 | 281 | 333 | 441)
}

/// Returns the call that a thread with these registers is about to make. The kernel looks at the
/// low half of the number only.
pub(super) fn call_of(r: &Registers) -> Call {
    Call { number: r.rax & u64::from(u32::MAX), args: [r.rdi, r.rsi, r.rdx, r.r10, r.r8, r.r9] }
}
