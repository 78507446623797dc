//! The rows of system calls and signals. The path has the position of each system call, and the log
//! of an exact recording its number and result, in the same order. So the log is read up to each
//! call of the path in turn. A call that blocks has two entries, and other threads run in between:
//! its row waits until the second one.
//!
//! Path and log are matched by moments: numbers of ticks and log entries, counted together. Each
//! tick and each entry begins another moment (module `clock`).

use super::columns::Cell;
use super::rows::{address_cell, place_cells, position_cells};
use super::schema::Table;
use super::texts::Texts;
use crate::ask::error::Error;
use crate::ask::merge::{Event, Sender, merged};
use crate::ask::opened::Asked;
use crate::common::Tid;
use crate::flow::Exit;
use crate::recording::log::{Cursor, Entry, LogEvent};
use crate::session::{Position, signal_name};
use crate::syscalls::Model;
use crate::timeline::Visit;
use crate::tracee::call_numbers::{EXECVE, EXECVEAT};
use std::collections::HashMap;
use std::ops::ControlFlow;

/// The lowest result of a system call that is a negated error number.
const LOWEST_ERROR: i64 = -4095;

/// Takes the rows of a thread, each with its table.
type Sink<'a> = &'a mut dyn FnMut(Table, Tid, Vec<Cell>) -> Result<(), Error>;

/// A system call in the log.
struct LoggedCall {
    tid: Tid,
    /// The moment in which the thread makes the call: the entry begins the next one.
    moment: u64,
    /// The number of the call in the kernel's table.
    number: u64,
    /// The result; `None` if a later entry has it, as the call blocks.
    result: Option<i64>,
}

/// The log of an exact recording, which is read beside the path.
struct LogReader<'a> {
    asked: &'a Asked,
    /// The number of the log's first entry.
    first: u64,
    /// The next entry.
    cursor: Cursor,
    /// The ticks before the next entry, without those since the last one.
    ticks: u64,
    /// The position and the number (in the kernel's table) of each thread's system call that has
    /// not returned. Its row waits.
    open: HashMap<Tid, (u64, u64)>,
    texts: Texts,
}

impl Asked {
    /// Passes the rows of all system calls to `sink`, and of an exact recording those of all
    /// signals. Of a path recording, only the positions of the calls are known. Ends early if
    /// `interrupted` returns true: then the rows of the rest of the run, and of the calls that have
    /// not returned, are missing.
    pub(super) fn kernel_rows(
        &self,
        sink: Sink<'_>,
        interrupted: &(dyn Fn() -> bool + Sync),
    ) -> Result<(), Error> {
        let log = self.replay.as_ref().map(|replay| replay.reader().log()).transpose()?.flatten();
        let mut log = log.map(|log| LogReader {
            asked: self,
            first: log.first(),
            cursor: log.cursor(),
            ticks: 0,
            open: HashMap::new(),
            texts: Texts::default(),
        });
        let walk_one = |tid, sender: &mut Sender<()>| self.send_system_calls(tid, sender);
        merged(&self.tids(), walk_one, |events| {
            for Event { position: at, tid, .. } in events {
                if interrupted() {
                    return Ok(());
                }
                if let Some(log) = &mut log {
                    log.write_call(at, tid, sink)?;
                } else {
                    sink(Table::SystemCalls, tid, system_call_row(at, false, None, None))?;
                }
            }
            log.map_or(Ok(()), |log| log.write_rest(sink))
        })
    }

    /// Walks a thread's path, and sends the positions of its system calls.
    fn send_system_calls(&self, tid: Tid, sender: &mut Sender<()>) {
        // The walk breaks only after the receiver is gone.
        let _: ControlFlow<()> = self.path(tid).walk(&self.functions(), &mut |item| {
            let Visit::Block { index, span, .. } = item.visit else {
                return ControlFlow::Continue(());
            };
            sender.count_step(|| item.clock.position(*index))?;
            if span.exit == Exit::FarCall {
                let last = index + u64::from(span.insns) - 1;
                sender.send(item.clock.position(last), ())?;
            }
            ControlFlow::Continue(())
        });
    }
}

impl LogReader<'_> {
    /// Passes on the rows of signals and returns of earlier entries, and the row of the system call
    /// of thread `tid` at position `at` of the path, unless a later entry has its result: then the
    /// row waits in `open`. Skips calls of the log that the path does not have, such as those in
    /// the vsyscall page. The row has no number and no result if the log does not have the call.
    fn write_call(&mut self, at: u64, tid: Tid, sink: Sink<'_>) -> Result<(), Error> {
        let (moment, _) = Position::parts(at);
        while let Some(logged) = self.next_call(moment, sink)? {
            if logged.tid == tid && logged.moment == moment {
                if logged.result.is_none() {
                    self.open.insert(tid, (at, logged.number));
                    return Ok(());
                }
                let call = system_call_row(at, true, Some(logged.number), logged.result);
                return sink(Table::SystemCalls, tid, call);
            }
        }
        // An instruction that enters the kernel, without an entry in the log.
        sink(Table::SystemCalls, tid, system_call_row(at, true, None, None))
    }

    /// Reads the log up to the next system call in `moment` or before it, and returns that; `None`
    /// if there is no such call. Passes on the rows of signals and returns before it. Leaves the
    /// entries after `moment` unread.
    fn next_call(&mut self, moment: u64, sink: Sink<'_>) -> Result<Option<LoggedCall>, Error> {
        loop {
            let index = self.cursor.index() - self.first;
            let Some(entry) = self.cursor.peek()? else { return Ok(None) };
            // The moment of this entry: the ticks and the entries before it.
            let here = self.ticks.saturating_add(entry.ticks).saturating_add(index);
            if here > moment {
                return Ok(None);
            }
            let Some(entry) = self.cursor.read()? else { return Ok(None) };
            self.ticks = self.ticks.saturating_add(entry.ticks);
            if let Some(logged) = self.process_entry(entry, here, sink)? {
                return Ok(Some(logged));
            }
        }
    }

    /// Processes an entry, which is logged in `moment`. Passes on the row of a signal, and the rows
    /// of the open calls that the entry ends: by their return; without a result by a signal, or by
    /// a change or the end of the thread; or by the start of a program, with result 0 for the call
    /// that executed it. Returns the system call that the thread makes, if it makes one, with its
    /// result unless a later entry has that.
    fn process_entry(
        &mut self,
        entry: Entry,
        moment: u64,
        sink: Sink<'_>,
    ) -> Result<Option<LoggedCall>, Error> {
        let tid = entry.tid;
        match entry.event {
            LogEvent::Call { number, effects } => {
                return Ok(Some(LoggedCall { tid, moment, number, result: Some(effects.result) }));
            }
            LogEvent::Enters { number } => {
                return Ok(Some(LoggedCall { tid, moment, number, result: None }));
            }
            LogEvent::Returns { effects } => {
                self.write_open_call(tid, Some(effects.result), sink)?;
            }
            LogEvent::Signal { place: at, siginfo, handler, .. } => {
                self.write_open_call(tid, None, sink)?;
                let number = siginfo.0.first_chunk().copied().map_or(0, i32::from_le_bytes);
                let [number_cell, text] = position_cells(Position::exact(moment, 0), true);
                let name = signal_name(number).map(Cell::text);
                let mut cells = vec![number_cell, text, Cell::number(number), Cell::or_null(name)];
                cells.extend([Cell::Flag(handler.is_some()), address_cell(at.ip)]);
                cells.extend(place_cells(Some(&*self.asked.place(at.ip)), &mut self.texts));
                sink(Table::Signals, tid, cells)?;
            }
            // The call that the thread was in is not made, or does not return.
            LogEvent::Changed { state: Some(_), .. } | LogEvent::Ends { .. } => {
                self.write_open_call(tid, None, sink)?;
            }
            LogEvent::Start(_) => self.write_open_calls(Some(0), sink)?,
            _ => {}
        }
        Ok(None)
    }

    /// Passes on the row of the system call that a thread is in, if it is in one. `result` is
    /// `None` if the call ended without one.
    fn write_open_call(
        &mut self,
        tid: Tid,
        result: Option<i64>,
        sink: Sink<'_>,
    ) -> Result<(), Error> {
        match self.open.remove(&tid) {
            Some((at, number)) => {
                sink(Table::SystemCalls, tid, system_call_row(at, true, Some(number), result))
            }
            None => Ok(()),
        }
    }

    /// Reads the rest of the log, and passes on the rows of its signals and returns, and then those
    /// of the calls that do not return, by thread.
    fn write_rest(mut self, sink: Sink<'_>) -> Result<(), Error> {
        while self.next_call(u64::MAX, sink)?.is_some() {}
        self.write_open_calls(None, sink)
    }

    /// Passes on the rows of all calls that threads are in, by thread. `executed` is the result of
    /// those that execute a program; others have none.
    fn write_open_calls(&mut self, executed: Option<i64>, sink: Sink<'_>) -> Result<(), Error> {
        let mut open: Vec<Tid> = self.open.keys().copied().collect();
        open.sort_unstable();
        for tid in open {
            let number = self.open.get(&tid).map(|(_, number)| *number);
            let is_execution = matches!(number, Some(EXECVE | EXECVEAT));
            self.write_open_call(tid, executed.filter(|_| is_execution), sink)?;
        }
        Ok(())
    }
}

/// Returns the row of a system call. Its number and result are null if they are unknown, and its
/// error number if the result is no error.
fn system_call_row(at: u64, is_exact: bool, number: Option<u64>, result: Option<i64>) -> Vec<Cell> {
    let name = number.and_then(Model::by_number).map(|model| Cell::text(model.name));
    let error = result.filter(|result| (LOWEST_ERROR..0).contains(result));
    let mut cells = Vec::from(position_cells(at, is_exact));
    cells.extend([
        Cell::or_null(number.map(Cell::number)),
        Cell::or_null(name),
        Cell::or_null(result.map(Cell::Integer)),
        Cell::or_null(error.map(|error| Cell::Integer(-error))),
    ]);
    cells
}
