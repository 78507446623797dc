//! System calls that stop the thread: it makes them itself, where it is in the program, by a single
//! step. The trap after the step means that the call is done, and it is logged then. Calls that are
//! made in the code cache are in `logged`.

use super::effects::{Before, contents, ranges_of};
use super::engine::Engine;
use super::files::Opened;
use super::filters::{FILTER_ARGUMENT, PROGRAM_BYTES, installs_filter, is_of_filter};
use super::maps::changes_mappings;
use super::process::{Process, extended_of, state_of};
use super::scratch::Scratch;
use super::special::{is_end, written_for};
use super::thread::{Calling, Doing, Thread};
use crate::capture::Error;
use crate::capture::error::gone_is_fine;
use crate::capture::restart::will_restart_call;
use crate::common::{Addr, AddrRange, Tid};
use crate::engine::{Phase, SignalStop};
use crate::insn::Registers;
use crate::recording::log::{Done, Happening, Write, after_call};
use crate::syscalls::{Call, Effects, Model, OpenCall, Property};
use crate::tracee::call_numbers::{
    CLONE, CLONE3, EXECVE, EXECVEAT, EXIT, FORK, PROCESS_VM_WRITEV, RESTART_SYSCALL, RT_SIGRETURN,
    VFORK,
};
use crate::tracee::trap_flag::r11_without_trap_flag;
use crate::tracee::{PtraceEvent, SiginfoBytes, Stop, Tracee, siginfo};
use std::path::Path;
use std::time::Duration;

/// The effects of a call that was not made are those of one with this result.
const NOT_MADE: i64 = -libc::ENOSYS as i64;
/// The result of a call that a handler interrupts and that the kernel would otherwise make again.
const INTERRUPTED: i64 = -libc::EINTR as i64;
/// The maximum time that a thread keeps the token in a call that may block, and in one that should
/// not (`LONG_CALL`).
pub(super) const SHORT_CALL: Duration = Duration::from_micros(30);
const LONG_CALL: Duration = Duration::from_millis(2);

/// The meaning of a stop in a system call.
enum InCall {
    /// The call goes on, once the thread is resumed.
    GoesOn,
    /// The thread stays in its group stop (`PTRACE_LISTEN`). Its next stop will be reported.
    Resumed,
    /// The call is done.
    Done,
    /// A signal is to be delivered.
    Signal(SiginfoBytes),
}

impl Engine {
    /// Handles a system call that the thread with the token is about to make: reports it to the
    /// debugger, answers it, ends the recording, or lets the thread make it. In the last case,
    /// waits for its end, but only a limited time if other threads can run during the call.
    pub(super) fn enter_call(&mut self, tid: Tid) -> Result<(), Error> {
        if self.debugger.is_some() {
            let next = self.with(tid, |_, thread| Ok(thread.tracee().registers()?))?;
            if next.is_some_and(|r| self.catches(tid, &call_of(&r), r.rip)) {
                return Ok(());
            }
        }
        let mut passed_over = None;
        let entered = self.with(tid, |process, thread| {
            let registers = thread.tracee().registers()?;
            let call = call_of(&registers);
            if let Some(result) = process.answer(thread, &call, &registers) {
                process.pass_over(thread, &registers, result)?;
                passed_over = Some(call.number);
                return Ok(None);
            }
            // A `restart_syscall(2)` has the effects of the call that it makes again.
            let restarted = thread.restarts.take().filter(|_| call.number == RESTART_SYSCALL);
            let number = restarted.unwrap_or(call.number);
            Ok(Some((registers, Call { number, ..call })))
        })?;
        if let Some(number) = passed_over {
            return self.reports_call(tid, number);
        }
        let Some(Some((registers, call))) = entered else { return Ok(()) };
        if let Some(why) = self.reason_to_leave(&call, &registers) {
            return self.leave_for(&why);
        }
        if is_end(&call) {
            self.ends_at(tid, &registers);
        }
        self.answer_for_cpus(&call);
        let has_others = self.threads.len() > 1;
        let may_block =
            Model::by_number(call.number).is_none_or(|model| model.has(Property::MayBlock));
        let begun = self.with(tid, |process, thread| {
            process.prepare_call(thread, &call, &registers)?;
            let uses_foreign = process.uses_foreign(&call);
            let open =
                call.begin(&|addr: Addr, buf: &mut [u8]| process.engine.read_visible(addr, buf));
            let before = process.before_unknown(&call, &registers, &open);
            // An execve(2) that succeeds does not return to this program.
            let is_logged = matches!(call.number, EXECVE | EXECVEAT);
            if is_logged {
                process.log(thread, &registers, Happening::Enters { number: call.number })?;
            }
            let area = thread.translated.area;
            let at = Addr(area.buffer(0));
            let filter = process.filter_for_program(thread.tracee(), &call, at)?;
            let scratch = if let Some(filter) = filter {
                let range = AddrRange::sized(Addr(call.args[FILTER_ARGUMENT]), PROGRAM_BYTES);
                let argument = (FILTER_ARGUMENT, range);
                Scratch::put(&process.engine, thread.tracee(), &registers, argument, (at, &filter))?
            } else if has_others {
                let place = (thread.tracee(), area);
                Scratch::lend(&process.engine, place, (&call, &open), &registers)?
            } else {
                Scratch::default()
            };
            let extended =
                if has_others && may_block { Some(extended_of(thread.tracee())?) } else { None };
            let calling = Calling {
                call,
                open,
                registers,
                before,
                size_before: process.size_before(&call),
                uses_foreign: uses_foreign && scratch.is_empty(),
                was_closed: false,
                is_repeated: false,
                scratch,
                extended,
                is_logged,
                trapped: None,
            };
            thread.doing = Doing::Calls(Box::new(calling));
            Ok(thread.tracee().step(0)?)
        })?;
        if begun.is_none() {
            return Ok(());
        }
        if keeps_token(call.number) {
            return self.wait_for_call(tid);
        }
        self.wait_at_most(tid, if may_block { SHORT_CALL } else { LONG_CALL })
    }

    /// Handles a stop of a thread in a system call: completes the call, delivers a signal, handles
    /// the birth of a child, or lets the thread go on in the call.
    pub(super) fn go_on_in_call(&mut self, tid: Tid, stop: Stop) -> Result<(), Error> {
        if let Stop::Event(event @ (PtraceEvent::Clone | PtraceEvent::Fork | PtraceEvent::Vfork)) =
            stop
        {
            return self.born(tid, event);
        }
        let meaning = self.with(tid, |process, thread| process.in_call(thread, stop))?;
        match meaning {
            Some(InCall::Done) => self.finish_call(tid),
            Some(InCall::Signal(info)) if is_of_filter(&info) => self.trapped(tid, info),
            Some(InCall::Signal(info)) => self.signalled_in_call(tid, info),
            Some(InCall::GoesOn) => {
                let resumed = self.with(tid, |process, thread| {
                    process.open_again(thread)?;
                    thread.tracee().step(0)?;
                    Ok(thread.calling().is_some_and(|c| changes_mappings(c.call.number)))
                })?;
                match resumed {
                    Some(true) => self.wait_for_call(tid),
                    Some(false) => self.wait_at_most(tid, SHORT_CALL),
                    None => Ok(()),
                }
            }
            Some(InCall::Resumed) | None => Ok(()),
        }
    }

    /// Logs a call that is done, and then the birth of the thread that it made. Reports the call
    /// and its child to the debugger, and delivers the signal of a filter.
    fn finish_call(&mut self, tid: Tid) -> Result<(), Error> {
        let made = self.with(tid, |process, thread| {
            let Some(calling) = thread.take_call() else { return Ok(None) };
            process.log_done_call(thread, &calling)?;
            Ok(Some(calling))
        })?;
        let Some(Some(calling)) = made else { return Ok(()) };
        self.after_birth_call(tid, &calling.call)?;
        self.restore_cpus(&calling.call)?;
        self.reports_call(tid, calling.call.number)?;
        self.reports_child(tid);
        calling.trapped.map_or(Ok(()), |info| self.signalled(tid, info))
    }

    /// Keeps the signal by which a filter answered a call. The trap of the step through the call
    /// comes next; then the call is done, and the signal is delivered.
    fn trapped(&mut self, tid: Tid, info: SiginfoBytes) -> Result<(), Error> {
        self.with(tid, |_, thread| {
            if let Doing::Calls(calling) = &mut thread.doing {
                calling.trapped = Some(info);
            }
            Ok(thread.tracee().step(0)?)
        })?;
        self.wait_for_call(tid)
    }
}

impl Process {
    /// Determines the meaning of a stop of a thread in a system call. After a stop that is the
    /// recorder's, restores the program's signal mask and handler.
    fn in_call(&mut self, thread: &mut Thread, stop: Stop) -> Result<InCall, Error> {
        let signal = match stop {
            Stop::Signal(signal) => signal,
            Stop::Group(_) => {
                gone_is_fine(thread.tracee().listen())?;
                return Ok(InCall::Resumed);
            }
            _ => return Ok(InCall::GoesOn),
        };
        // Such a call has a temporary mask. If the recorder set a mask, the kernel would not
        // restore the program's at the call's return.
        let has_own_mask = thread.calling().is_some_and(|c| sets_mask(c.call.number))
            && will_restart_call(&thread.tracee().registers()?);
        let why = match self.engine.signal_stop(&thread.translated, Phase::Calls, signal)? {
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
            SignalStop::Done if will_restart_call(&thread.tracee().registers()?) => InCall::GoesOn,
            SignalStop::Done if self.repeats(thread)? => InCall::GoesOn,
            SignalStop::Done => InCall::Done,
            SignalStop::Program(info) => InCall::Signal(info),
            SignalStop::HiddenFault => {
                thread.translated.fault_again()?;
                InCall::GoesOn
            }
            _ => InCall::GoesOn,
        })
    }

    /// Logs a system call that the recorder answers with `result`, and moves the thread past it.
    pub(super) fn pass_over(
        &mut self,
        thread: &mut Thread,
        registers: &Registers,
        result: i64,
    ) -> Result<(), Error> {
        let number = call_of(registers).number;
        let written = written_for(number, registers, result);
        let writes = contents(&self.engine, written);
        let done = Done { result, writes, maps: Vec::new(), state: None };
        self.log(thread, registers, Happening::Call { number, done })?;
        let gs_base = thread.translated.gs_base();
        let after = Registers { gs_base, ..after_call(registers, result) };
        Ok(thread.tracee().set_registers(&after)?)
    }

    /// Reads all writable memory before a call that may write any of it: one that the model does
    /// not know, which is noted for the user, or whose child shares the memory. `None` for other
    /// calls.
    fn before_unknown(
        &mut self,
        call: &Call,
        registers: &Registers,
        open: &OpenCall,
    ) -> Option<Before> {
        let is_known = matches!(open.limit(), Effects::Known(_));
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
            self.note(format!(
                "what the system call {name} ({}) writes was found by comparing memory",
                call.number
            ));
        }
        Some(Before::read(&self.engine, self.pid()))
    }

    /// Completes a call that is done: restores registers and buffers, and logs the effects.
    fn log_done_call(&mut self, thread: &mut Thread, calling: &Calling) -> Result<(), Error> {
        let Calling { call, registers: before, .. } = calling;
        let mut after = thread.tracee().registers()?;
        if call.number == RT_SIGRETURN {
            thread.translated.return_from_handler(&after)?;
        } else {
            after.r11 = r11_without_trap_flag(&after);
        }
        after.orig_rax = u64::MAX;
        calling.scratch.restore(&mut after);
        thread.tracee().set_registers(&after)?;
        let in_rax = after.rax.cast_signed();
        // The call was not made if a filter answered with a signal: RAX is the call's number.
        let result = if calling.trapped.is_some() { NOT_MADE } else { in_rax };
        if self.engine.has_foreign() && !calling.scratch.is_empty() {
            self.engine.open_foreign_for_call(thread.tracee(), call)?;
        }
        calling.scratch.give_back(&mut self.engine, &calling.open, result);
        thread.registered.note_call(call, result);
        if installs_filter(call) && result == 0 {
            // The filter must see calls at their addresses in the program, not in the code cache.
            self.is_filtered = true;
            self.engine.stop_at_calls();
        }
        let mut maps = self.map_changes(thread, call, result)?;
        if let Some(before) = &calling.before {
            maps.extend(self.changed_since(thread, &before.mappings)?);
        }
        let mut writes = self.writes_of(calling, result);
        writes.extend(self.note_files(thread, call, result, calling.size_before)?);
        if let Some(range) = self.patched(call, result) {
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
        let done = Done { result: in_rax, writes, maps, state };
        let happening = if calling.is_logged {
            Happening::Returns { done }
        } else {
            Happening::Call { number: call.number, done }
        };
        self.log(thread, before, happening)
    }

    /// Takes note of what a completed call did to files and descriptors. Returns the memory of
    /// mapped files that it wrote. The file that it changed had `size_before` bytes before.
    pub(super) fn note_files(
        &mut self,
        thread: &Thread,
        call: &Call,
        result: i64,
        size_before: u64,
    ) -> Result<Vec<Write>, Error> {
        let opened = self.opened_by(call, result);
        if may_delay_others(call, opened.as_ref()) {
            self.engine.stop_at_calls();
        }
        self.hide_own_mappings(thread, call, opened.as_ref())?;
        let in_files = self.mapped_file_writes(call, result, size_before);
        // These may contain code, of a library, say.
        for range in &in_files {
            self.engine.forget_code(*range);
        }
        self.note_descriptors(call, result, opened.as_ref());
        self.learn_descriptors(call, result);
        Ok(contents(&self.engine, in_files))
    }

    /// Reads the memory that a call wrote.
    fn writes_of(&self, calling: &Calling, result: i64) -> Vec<Write> {
        let memory = |addr: Addr, buf: &mut [u8]| self.engine.read_visible(addr, buf);
        let written = ranges_of(calling.open.end(result, &memory));
        let mut writes = contents(&self.engine, written);
        if let Some(before) = &calling.before {
            writes.extend(before.changes(&self.engine, self.pid()));
        }
        writes
    }

    /// Restores the arguments and buffers of a thread whose call is ended by a signal's handler or
    /// by the end of the recording. A call that the kernel would repeat has the effects of `EINTR`.
    pub(super) fn take_from_scratch(
        &mut self,
        tracee: Tracee,
        calling: &Calling,
    ) -> Result<(), Error> {
        if calling.scratch.is_empty() {
            return Ok(());
        }
        let mut registers = tracee.registers()?;
        calling.scratch.restore(&mut registers);
        tracee.set_registers(&registers)?;
        let result = result_of_interrupted(registers.rax);
        calling.scratch.give_back(&mut self.engine, &calling.open, result);
        Ok(())
    }

    /// Reads the memory that a call wrote before a signal ended it. `rax` is the thread's RAX then.
    pub(super) fn writes_of_interrupted(&self, calling: &Calling, rax: u64) -> Vec<Write> {
        self.writes_of(calling, result_of_interrupted(rax))
    }
}

/// Returns the result of a call that a signal's handler ends, by RAX before the handler.
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
fn may_delay_others(call: &Call, opened: Option<&Opened>) -> bool {
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
