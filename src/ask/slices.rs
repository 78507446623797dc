//! The calls of a run as slices of time, thread by thread. The unit of time is an instruction: the
//! time of an instruction is its number in the order of all threads.

use super::error::Error;
use super::functions::Functions;
use super::opened::Asked;
use super::tracker::{Change, Tracker};
use crate::common::{Addr, Tid};
use crate::flow::Exit;
use crate::timeline::Visit;
use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;

/// A thread of a run, with its process and its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SlicedThread {
    pub(super) tid: Tid,
    pub(super) pid: i32,
    pub(super) name: String,
}

/// An event of a thread at time `at`: a call begins or ends, a system call, or a gap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Slice {
    Begin { at: u64, position: u64, function: Arc<str> },
    End { at: u64 },
    SystemCall { at: u64, position: u64 },
    Gap { at: u64, reason: String },
}

/// A writer of slices in one format.
pub(super) trait SliceSink {
    /// Begins the output of a thread.
    fn thread(&mut self, thread: &SlicedThread) -> io::Result<()>;
    /// Writes the next event of the thread.
    fn slice(&mut self, thread: &SlicedThread, slice: &Slice) -> io::Result<()>;
    /// Ends the output of a thread, whose path ends at time `at`.
    fn end_thread(&mut self, thread: &SlicedThread, at: u64) -> io::Result<()>;
}

impl Asked {
    fn sliced(&self, tid: Tid) -> SlicedThread {
        let manifest = self.timeline.reader().manifest();
        let entries = manifest.end.iter().flat_map(|end| &end.threads);
        let entry = entries.into_iter().find(|entry| entry.tid == tid);
        let name = entry.map(|entry| entry.name.clone()).unwrap_or_default();
        SlicedThread { tid, pid: self.timeline.process_of(tid).0, name }
    }

    /// Passes the calls, system calls and gaps of all threads to `sink`, thread by thread. Calls
    /// `goes_on` with the number of instructions so far and that of the run; if it returns false,
    /// the thread and its open calls end there, no other thread follows, and this returns false.
    pub(super) fn slices(
        &self,
        sink: &mut dyn SliceSink,
        goes_on: &mut dyn FnMut(u64, u64) -> bool,
    ) -> Result<bool, Error> {
        let functions = self.functions();
        let total = self.timeline.total();
        let mut done = 0;
        for tid in self.tids() {
            let thread = self.sliced(tid);
            sink.thread(&thread)?;
            let mut goes_on_here = |index| goes_on(done + index, total);
            let mut walked =
                Walked { asked: self, tid, functions: &functions, sink, thread: &thread };
            let walk = walked.walk(&mut goes_on_here)?;
            sink.end_thread(&thread, walk.at)?;
            if !walk.is_whole {
                return Ok(false);
            }
            done += self.timeline.instructions(tid);
        }
        Ok(true)
    }

    /// Returns the time at the end of a thread, which executed so many instructions.
    fn end_of(&self, tid: Tid, instructions: u64) -> u64 {
        let last = instructions.checked_sub(1);
        last.and_then(|last| self.timeline.global_of(tid, last)).map_or(0, |last| last + 1)
    }
}

/// A walk of one thread, which passes its slices on.
struct Walked<'a, 's> {
    asked: &'a Asked,
    tid: Tid,
    functions: &'a Functions<'s>,
    sink: &'a mut dyn SliceSink,
    thread: &'a SlicedThread,
}

/// The end of a walk.
struct WalkEnd {
    /// The time of the end.
    at: u64,
    /// True if the walk reached the end of the path.
    is_whole: bool,
}

/// The number of items (blocks, events and gaps) of a path between two calls of `goes_on`.
const BLOCKS: u64 = 1 << 14;

impl Walked<'_, '_> {
    /// Passes the slices of the thread to the sink, and ends those that are open at the end of the
    /// path, or where `goes_on` returns false. Fails if the sink does.
    fn walk(&mut self, goes_on: &mut dyn FnMut(u64) -> bool) -> Result<WalkEnd, Error> {
        let functions = self.functions;
        let name = |ip: Addr| functions.name_at(ip).unwrap_or_else(|| ip.to_string().into());
        let (asked, tid) = (self.asked, self.tid);
        let at_of = |index| asked.timeline.global_of(tid, index).unwrap_or(0);
        let mut tracker: Tracker<()> = Tracker::default();
        let (mut slices, mut blocks) = (Vec::new(), 0_u64);
        let count = asked.timeline.instructions(tid);
        let mut end = WalkEnd { at: asked.end_of(tid, count), is_whole: true };
        let mut result = Ok(());
        let _ = asked.path(tid).walk(functions, &mut |passed| {
            let (Visit::Block { index, .. }
            | Visit::Event { index, .. }
            | Visit::Gap { index, .. }) = passed.visit;
            tracker.pass(passed, &mut |change| match change {
                Change::Began(begins) => {
                    let position = passed.clock.position(*index);
                    let function = name(begins.ip);
                    let at = at_of(begins.index);
                    slices.push(Slice::Begin { at, position, function });
                    Some(())
                }
                Change::Ended(..) => {
                    slices.push(Slice::End { at: at_of(*index) });
                    None
                }
            });
            match passed.visit {
                // SYSCALL is a far call.
                Visit::Block { index, span, .. } if span.exit == Exit::FarCall => {
                    let last = index + u64::from(span.insns) - 1;
                    let position = passed.clock.position(last);
                    slices.push(Slice::SystemCall { at: at_of(last), position });
                }
                Visit::Gap { index, gap, .. } => {
                    slices.push(Slice::Gap { at: at_of(*index), reason: gap.reason.to_string() });
                }
                _ => {}
            }
            let mut drained = slices.drain(..);
            result = drained.try_for_each(|slice| self.sink.slice(self.thread, &slice));
            if result.is_err() {
                return ControlFlow::Break(());
            }
            blocks += 1;
            if blocks.is_multiple_of(BLOCKS) && !goes_on(*index) {
                end = WalkEnd { at: at_of(*index), is_whole: false };
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        });
        result?;
        let mut open = 0_u64;
        tracker.finish(&mut |_| {
            open += 1;
            None
        });
        for _ in 0..open {
            self.sink.slice(self.thread, &Slice::End { at: end.at })?;
        }
        Ok(end)
    }
}
