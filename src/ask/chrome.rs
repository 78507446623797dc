//! The JSON of Chrome's tracing ("Trace Event Format"), which many viewers read. One instruction is
//! a microsecond.

use super::slices::{SliceEvent, SliceSink, SlicedThread};
use serde_json::{Value, json};
use std::io::{self, Write};

/// A writer of a trace in this JSON: an object with an array of events.
pub(super) struct Chrome<'a> {
    out: &'a mut dyn Write,
    /// Formats a position.
    text: &'a dyn Fn(u64) -> String,
    is_first: bool,
}

impl<'a> Chrome<'a> {
    pub(super) fn begin(
        out: &'a mut dyn Write,
        text: &'a dyn Fn(u64) -> String,
    ) -> io::Result<Self> {
        write!(out, "{{\"traceEvents\": [")?;
        Ok(Self { out, text, is_first: true })
    }

    fn event(&mut self, thread: &SlicedThread, mut event: Value) -> io::Result<()> {
        event["pid"] = json!(thread.pid);
        event["tid"] = json!(thread.tid);
        let between = if std::mem::take(&mut self.is_first) { "\n" } else { ",\n" };
        write!(self.out, "{between}{event}")
    }

    pub(super) fn end(self) -> io::Result<()> {
        writeln!(self.out, "\n]}}")
    }
}

impl SliceSink for Chrome<'_> {
    fn thread(&mut self, thread: &SlicedThread) -> io::Result<()> {
        let name = json!({"ph": "M", "name": "thread_name", "args": {"name": thread.name}});
        self.event(thread, name)
    }

    fn slice(&mut self, thread: &SlicedThread, slice: &SliceEvent) -> io::Result<()> {
        let event = match slice {
            SliceEvent::Begin { at, position, function } => {
                let position = (self.text)(*position);
                json!({"ph": "B", "ts": at, "name": function, "args": {"position": position}})
            }
            SliceEvent::End { at } => json!({"ph": "E", "ts": at}),
            SliceEvent::SystemCall { at, position } => {
                let position = (self.text)(*position);
                let args = json!({"position": position});
                json!({"ph": "i", "s": "t", "ts": at, "name": "system call", "args": args})
            }
            SliceEvent::Gap { at, reason } => {
                json!({"ph": "i", "s": "t", "ts": at, "name": format!("gap: {reason}")})
            }
        };
        self.event(thread, event)
    }

    fn end_thread(&mut self, _: &SlicedThread, _: u64) -> io::Result<()> {
        Ok(())
    }
}
