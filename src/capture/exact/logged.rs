//! System calls that a thread made and logged in the code cache: from there to the recording's log.

use super::calls::call_of;
use super::effects::{contents, ranges_of};
use super::process::Process;
use super::thread::Thread;
use crate::capture::Error;
use crate::common::Addr;
use crate::engine::{Running, TranslatedProcess};
use crate::insn::Registers;
use crate::recording::log::{Bytes, Done, Happening, Write};
use crate::translate::{Counter, LoggedCall};

impl Process {
    /// Logs the calls that a thread has made and logged in the code cache during a run. Returns the
    /// ticks of the run up to the last one, from which `running` counts on.
    pub(super) fn take_calls(
        &mut self,
        thread: &mut Thread,
        running: &mut Running,
    ) -> Result<u64, Error> {
        let tracee = thread.tracee();
        let mut calls = std::mem::take(&mut self.logged_calls);
        let now = || tracee.registers().ok();
        self.engine.take_logged_calls(&thread.translated, now, &mut calls);
        let mut all = 0;
        while let Some(call) = self.engine.next_logged_call(&mut calls) {
            let ticks = running.ticks_until(call.budget);
            thread.ticks += ticks;
            all += ticks;
            if let Some(counter) = call.counter {
                let executed = executed(&call, counter);
                self.log(thread, &call.registers, executed)?;
                continue;
            }
            let number = call_of(&call.registers).number;
            let LoggedCall { registers, result, stops, .. } = call;
            let mut writes = writes_of(&self.engine, call);
            if stops {
                writes.extend(self.note_files(thread, &call_of(&registers), result, 0)?);
            }
            let done = Done { result, writes, maps: Vec::new(), state: None };
            self.log(thread, &registers, Happening::Call { number, done })?;
        }
        self.logged_calls = calls;
        Ok(all)
    }
}

/// Returns the event of an instruction in the code cache that read the time-stamp counter.
fn executed(logged: &LoggedCall, counter: Counter) -> Happening {
    let before = logged.registers;
    let time = logged.result.cast_unsigned();
    let rcx = match counter {
        Counter::Tsc => before.rcx,
        Counter::TscAux => logged.written.0,
    };
    let rip = before.rip + counter.insn().len() as u64;
    let after = Registers { rip, rax: time & u64::from(u32::MAX), rdx: time >> 32, rcx, ..before };
    Happening::Executes { registers: Box::new(after.into()), extended: None, writes: Vec::new() }
}

/// Returns the memory that a call wrote. If the thread stopped after the call, that is read now;
/// otherwise the code cache has logged it.
fn writes_of(engine: &TranslatedProcess, logged: LoggedCall) -> Vec<Write> {
    if logged.stops {
        let memory = |addr: Addr, buf: &mut [u8]| engine.read_visible(addr, buf);
        let open = call_of(&logged.registers).begin(&memory);
        return contents(engine, ranges_of(open.end(logged.result, &memory)));
    }
    let (addr, bytes) = (Addr(logged.written.0), Bytes(logged.written.1));
    if bytes.0.is_empty() { Vec::new() } else { vec![Write { addr, bytes }] }
}
