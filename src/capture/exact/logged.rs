//! System calls that a thread made and logged in the code cache: from there to the recording's log.
//!
//! During a run, translated code makes most calls without a stop, and appends each to the thread's
//! buffer with the *budget* (ticks that are left of the run) at the call. After the run, the
//! recorder moves them to the log. The last call may have stopped the run since its effects are not
//! in the buffer: those are read from the process. Reads of the time-stamp counter are logged like
//! calls.

use super::calls::call_of;
use super::effects::{contents, ranges_of};
use super::process::Process;
use super::thread::Thread;
use crate::capture::Error;
use crate::common::{Addr, Tid};
use crate::engine::{LoggedCalls, MadeCall, Running};
use crate::insn::Registers;
use crate::recording::log::{
    CallEffects, CallEntry, DeferredEntries, Entry, LogEvent, LogSink, check_of,
};
use crate::translate::Counter;

impl Process {
    /// Logs the calls that a thread has made and logged in the code cache since the last call of
    /// this function in a run. Returns the ticks of the run up to the last call: the caller
    /// subtracts them from those of the run, since they are in the log. `running` counts on from
    /// there. Returns 0 if there are no calls.
    pub(super) fn log_run_calls(
        &mut self,
        thread: &mut Thread,
        running: &mut Running,
    ) -> Result<u64, Error> {
        let tracee = thread.tracee();
        let now = || tracee.registers().ok();
        let mut calls = self.engine.take_logged_calls(&thread.translated, now);
        let stopped = calls.split_off_incomplete();
        let mut all = self.log_complete_calls(thread, calls, running)?;
        for call in stopped.iter().flat_map(LoggedCalls::iter) {
            let ticks = running.ticks_until(call.budget);
            thread.ticks = thread.ticks.wrapping_add(ticks);
            all = all.wrapping_add(ticks);
            self.log_stopping_call(thread, &call)?;
        }
        Ok(all)
    }

    /// Logs calls whose effects are all in the thread's buffer. The thread that writes the log
    /// makes their entries, later. Returns the ticks of the run up to the last one, and lets
    /// `running` count on from there; 0 without calls.
    fn log_complete_calls(
        &mut self,
        thread: &mut Thread,
        calls: LoggedCalls,
        running: &mut Running,
    ) -> Result<u64, Error> {
        let Some(last) = calls.last_budget() else { return Ok(0) };
        let tid = thread.tid();
        let mut budget = running.budget();
        let ticks = running.ticks_until(last);
        let mut begun = std::mem::take(&mut thread.ticks);
        let (entries, size_bytes) = (calls.count(), calls.size_bytes());
        let all = begun.wrapping_add(ticks);
        let make = move |log: &mut LogSink| {
            for call in calls.iter() {
                let ticks = budget.wrapping_sub(call.budget);
                append_call(log, tid, std::mem::take(&mut begun).wrapping_add(ticks), &call);
                budget = call.budget;
            }
        };
        self.recorder.log_later(DeferredEntries {
            entries,
            ticks: all,
            size_bytes,
            make: Box::new(make),
        })?;
        Ok(ticks)
    }

    /// Logs a call after which the thread stopped, since its effects are not in the buffer. Reads
    /// the memory that it wrote, and takes note of its effects on files.
    fn log_stopping_call(&mut self, thread: &mut Thread, made: &MadeCall<'_>) -> Result<(), Error> {
        let call = call_of(&made.registers);
        let memory = |addr: Addr, buf: &mut [u8]| self.engine.read_visible(addr, buf);
        let ranges = ranges_of(call.begin(&memory).end(made.result, &memory));
        let mut writes = contents(&self.engine, ranges);
        writes.extend(self.note_file_effects(thread, &call, made.result, 0)?);
        let effects = CallEffects { result: made.result, writes, maps: Vec::new(), state: None };
        self.log(thread, &made.registers, LogEvent::Call { number: call.number, effects })
    }
}

/// Appends the entry of a call, or of an instruction that read the time-stamp counter.
fn append_call(log: &mut LogSink, tid: Tid, ticks: u64, call: &MadeCall<'_>) {
    let check = check_of(&call.registers);
    if let Some(counter) = call.counter {
        let event = counter_read(call, counter);
        return log.entry(&Entry { tid, ticks, check, event });
    }
    let number = call_of(&call.registers).number;
    let (result, written) = (call.result, call.written);
    log.call(&CallEntry { tid, ticks, check, number, result, written });
}

/// Returns the event of an instruction in the code cache that read the time-stamp counter.
fn counter_read(call: &MadeCall<'_>, counter: Counter) -> LogEvent {
    let before = call.registers;
    let time = call.result.cast_unsigned();
    let rcx = match counter {
        Counter::Tsc => before.rcx,
        Counter::TscAux => call.written.0.0,
    };
    let rip = before.rip + counter.insn().len() as u64;
    let after = Registers { rip, rax: time & u64::from(u32::MAX), rdx: time >> 32, rcx, ..before };
    LogEvent::Executes { registers: Box::new(after.into()), extended: None, writes: Vec::new() }
}
