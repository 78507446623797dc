//! A file of speedscope: an evented profile for each thread
//! (speedscope.app/file-format-schema.json).

use super::slices::{SliceEvent, SliceSink, SlicedThread};
use serde_json::json;
use std::collections::HashMap;
use std::io::{self, Write};
use std::sync::Arc;

/// A writer of a file of speedscope. The list of frames comes last, when all are known. System
/// calls and gaps are left out.
pub(super) struct Speedscope<'a> {
    out: &'a mut dyn Write,
    /// The names of functions, by their numbers.
    frames: Vec<Arc<str>>,
    numbers: HashMap<Arc<str>, usize>,
    /// The numbers of the thread's open functions, outermost first.
    open: Vec<usize>,
    is_first_thread: bool,
    is_first_event: bool,
    /// The time of the thread's last event.
    last: u64,
}

impl<'a> Speedscope<'a> {
    pub(super) fn begin(out: &'a mut dyn Write, program: &str) -> io::Result<Self> {
        let schema = "https://www.speedscope.app/file-format-schema.json";
        let (schema, program) = (json!(schema), json!(program));
        write!(out, "{{\"$schema\": {schema}, \"name\": {program}, \"profiles\": [")?;
        Ok(Self {
            out,
            frames: Vec::new(),
            numbers: HashMap::new(),
            open: Vec::new(),
            is_first_thread: true,
            is_first_event: true,
            last: 0,
        })
    }

    fn event(&mut self, kind: &str, frame: usize, at: u64) -> io::Result<()> {
        let between = if std::mem::take(&mut self.is_first_event) { "\n" } else { ",\n" };
        self.last = at;
        write!(self.out, "{between}{}", json!({"type": kind, "frame": frame, "at": at}))
    }

    pub(super) fn end(self) -> io::Result<()> {
        let frames: Vec<_> = self.frames.iter().map(|name| json!({"name": &**name})).collect();
        writeln!(self.out, "\n], \"shared\": {}}}", json!({"frames": frames}))
    }
}

impl SliceSink for Speedscope<'_> {
    fn thread(&mut self, thread: &SlicedThread) -> io::Result<()> {
        let between = if std::mem::take(&mut self.is_first_thread) { "\n" } else { ",\n" };
        let name = json!(format!("{} {}", thread.tid, thread.name).trim_end());
        (self.is_first_event, self.last) = (true, 0);
        self.open.clear();
        write!(
            self.out,
            "{between}{{\"type\": \"evented\", \"name\": {name}, \"unit\": \"none\", \
             \"startValue\": 0, \"events\": ["
        )
    }

    fn slice(&mut self, _: &SlicedThread, slice: &SliceEvent) -> io::Result<()> {
        match slice {
            SliceEvent::Begin { at, function, .. } => {
                let next = self.frames.len();
                let frame = *self.numbers.entry(function.clone()).or_insert(next);
                if frame == next {
                    self.frames.push(function.clone());
                }
                self.open.push(frame);
                self.event("O", frame, *at)
            }
            SliceEvent::End { at } => match self.open.pop() {
                Some(frame) => self.event("C", frame, *at),
                None => Ok(()),
            },
            SliceEvent::SystemCall { .. } | SliceEvent::Gap { .. } => Ok(()),
        }
    }

    fn end_thread(&mut self, _: &SlicedThread, at: u64) -> io::Result<()> {
        write!(self.out, "\n], \"endValue\": {}}}", at.max(self.last))
    }
}
