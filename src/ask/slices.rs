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

/// An event of a thread at time `at`: a call begins, the innermost open call ends, a system call,
/// or a gap. `position` is where a user finds it in the recording; in a path recording, it is the
/// time. `function` is a name, or the address as text for code without symbols.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SliceEvent {
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
    fn slice(&mut self, thread: &SlicedThread, slice: &SliceEvent) -> io::Result<()>;
    /// Ends the output of a thread, whose path ends at time `at`.
    fn end_thread(&mut self, thread: &SlicedThread, at: u64) -> io::Result<()>;
}

impl Asked {
    /// Returns a thread with its process and name; the name is empty if it is unknown.
    fn sliced_thread(&self, tid: Tid) -> SlicedThread {
        let manifest = self.timeline.reader().manifest();
        let entries = manifest.end.iter().flat_map(|end| &end.threads);
        let entry = entries.into_iter().find(|entry| entry.tid == tid);
        let name = entry.map(|entry| entry.name.clone()).unwrap_or_default();
        SlicedThread { tid, pid: self.timeline.process_of(tid).0, name }
    }

    /// Passes the calls, system calls and gaps of all threads to `sink`, thread by thread. Calls
    /// `goes_on` now and then with the number of instructions so far and that of the run; if it
    /// returns false, the thread and its open calls end there, no other thread follows, and this
    /// returns false. Fails if the sink does.
    pub(super) fn slices(
        &self,
        sink: &mut dyn SliceSink,
        goes_on: &mut dyn FnMut(u64, u64) -> bool,
    ) -> Result<bool, Error> {
        let functions = self.functions();
        let total = self.timeline.total();
        let mut done = 0;
        for tid in self.tids() {
            let thread = self.sliced_thread(tid);
            sink.thread(&thread)?;
            let mut goes_on_here = |index| goes_on(done + index, total);
            let mut thread_walk =
                ThreadWalk { asked: self, tid, functions: &functions, sink, thread: &thread };
            let end = thread_walk.walk(&mut goes_on_here)?;
            sink.end_thread(&thread, end.at)?;
            if !end.is_whole {
                return Ok(false);
            }
            done += self.timeline.instructions(tid);
        }
        Ok(true)
    }

    /// Returns the time after instruction `instructions - 1` of a thread, its last; 0 if it
    /// executed none.
    fn end_time(&self, tid: Tid, instructions: u64) -> u64 {
        let last = instructions.checked_sub(1);
        last.and_then(|last| self.timeline.global_of(tid, last)).map_or(0, |last| last + 1)
    }
}

/// A walk of one thread, which passes its slices on.
struct ThreadWalk<'a, 's> {
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
const ITEMS_BETWEEN_CALLS: u64 = 1 << 14;

impl ThreadWalk<'_, '_> {
    /// Passes the calls, system calls and gaps of the thread to the sink, and ends the calls that
    /// are open at the end of the path, or where `goes_on` returns false: it is called every
    /// [`ITEMS_BETWEEN_CALLS`] items, with the number of the thread's instructions so far. Fails if
    /// the sink does.
    fn walk(&mut self, goes_on: &mut dyn FnMut(u64) -> bool) -> Result<WalkEnd, Error> {
        let functions = self.functions;
        let name = |ip: Addr| functions.name_at(ip).unwrap_or_else(|| ip.to_string().into());
        let (asked, tid) = (self.asked, self.tid);
        let end_time = asked.end_time(tid, asked.timeline.instructions(tid));
        let time_of = |index| asked.timeline.global_of(tid, index).unwrap_or(end_time);
        let mut tracker: Tracker<()> = Tracker::default();
        let (mut events, mut items) = (Vec::new(), 0_u64);
        let mut end = WalkEnd { at: end_time, is_whole: true };
        let mut result = Ok(());
        let _ = asked.path(tid).walk(functions, &mut |item| {
            let (Visit::Block { index, .. }
            | Visit::Event { index, .. }
            | Visit::Gap { index, .. }) = item.visit;
            tracker.process(item, &mut |change| match change {
                Change::Began(begins) => {
                    let position = item.position();
                    let function = name(begins.ip);
                    let at = time_of(begins.index);
                    events.push(SliceEvent::Begin { at, position, function });
                    // The tracker reports the ends of activations for which this is `Some`.
                    Some(())
                }
                Change::Ended(..) => {
                    events.push(SliceEvent::End { at: time_of(*index) });
                    None
                }
            });
            match item.visit {
                // SYSCALL is a far call.
                Visit::Block { index, span, .. } if span.exit == Exit::FarCall => {
                    let last = index + u64::from(span.insns) - 1;
                    let position = item.clock.position(last);
                    events.push(SliceEvent::SystemCall { at: time_of(last), position });
                }
                Visit::Gap { index, gap, .. } => {
                    events.push(SliceEvent::Gap {
                        at: time_of(*index),
                        reason: gap.reason.to_string(),
                    });
                }
                _ => {}
            }
            let mut drained = events.drain(..);
            result = drained.try_for_each(|event| self.sink.slice(self.thread, &event));
            if result.is_err() {
                return ControlFlow::Break(());
            }
            items += 1;
            if items.is_multiple_of(ITEMS_BETWEEN_CALLS) && !goes_on(*index) {
                end = WalkEnd { at: time_of(*index), is_whole: false };
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
            self.sink.slice(self.thread, &SliceEvent::End { at: end.at })?;
        }
        Ok(end)
    }
}
