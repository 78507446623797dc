//! A trace of Perfetto: packets of track events. The field numbers are those of Perfetto's
//! `protos/perfetto/trace/perfetto_trace.proto`. One instruction is a nanosecond.

use super::proto::Message;
use super::slices::{SliceEvent, SliceSink, SlicedThread};
use std::collections::HashMap;
use std::io::{self, Write};

/// Trace.packet.
const PACKET: u32 = 1;
/// The fields of `TracePacket`.
const TIMESTAMP: u32 = 8;
const SEQUENCE_ID: u32 = 10;
const TRACK_EVENT: u32 = 11;
const INTERNED_DATA: u32 = 12;
const SEQUENCE_FLAGS: u32 = 13;
const TRACK_DESCRIPTOR: u32 = 60;
/// Flags in `SEQUENCE_FLAGS`: `SEQ_INCREMENTAL_STATE_CLEARED`, and, as `NEEDS_STATE`,
/// `SEQ_NEEDS_INCREMENTAL_STATE`.
const CLEARED: u64 = 1;
const NEEDS_STATE: u64 = 2;
/// `TrackEvent.Type`.
const SLICE_BEGIN: u64 = 1;
const SLICE_END: u64 = 2;
const INSTANT: u64 = 3;
/// The interned name of the annotation with the position.
const POSITION: u64 = 1;

/// A writer of a trace of Perfetto.
pub(super) struct Perfetto<'a> {
    out: &'a mut dyn Write,
    /// Formats a position.
    text: &'a dyn Fn(u64) -> String,
    program: &'a str,
    /// The interned IDs of the names of slices.
    names: HashMap<String, u64>,
    /// The processes whose tracks are written.
    pids: Vec<i32>,
}

impl<'a> Perfetto<'a> {
    /// Begins a trace: writes the packet that defines the name of the annotation with the position.
    /// `text` formats positions. There is no end to write.
    pub(super) fn begin(
        out: &'a mut dyn Write,
        program: &'a str,
        text: &'a dyn Fn(u64) -> String,
    ) -> io::Result<Self> {
        let mut trace = Self { out, text, program, names: HashMap::new(), pids: Vec::new() };
        trace.packet(|packet| {
            packet.number(SEQUENCE_ID, 1).number(SEQUENCE_FLAGS, CLEARED);
            // InternedData.debug_annotation_names { iid, name }.
            packet.message(INTERNED_DATA, |data| {
                data.message(3, |name| {
                    name.number(1, POSITION).text(2, "position");
                });
            });
        })?;
        Ok(trace)
    }

    /// Writes a packet, whose fields `fill` adds.
    fn packet(&mut self, fill: impl FnOnce(&mut Message)) -> io::Result<()> {
        let mut trace = Message::default();
        trace.message(PACKET, fill);
        self.out.write_all(trace.bytes())
    }

    /// Returns the interned ID of a name. Adds the definition of a new name to `packet`, which the
    /// caller has to write.
    fn name(&mut self, packet: &mut Message, name: &str) -> u64 {
        if let Some(known) = self.names.get(name) {
            return *known;
        }
        let number = self.names.len() as u64 + 1;
        self.names.insert(name.to_owned(), number);
        // InternedData.event_names { iid, name }.
        packet.message(INTERNED_DATA, |data| {
            data.message(2, |event| {
                event.number(1, number).text(2, name);
            });
        });
        number
    }

    /// Writes an event on the track of a thread: its time, type, name and position.
    fn event(
        &mut self,
        thread: &SlicedThread,
        at: u64,
        kind: u64,
        name: Option<&str>,
        position: Option<u64>,
    ) -> io::Result<()> {
        let mut packet = Message::default();
        let track = track_of(thread);
        packet.number(TIMESTAMP, at).number(SEQUENCE_ID, 1).number(SEQUENCE_FLAGS, NEEDS_STATE);
        let name = name.map(|name| self.name(&mut packet, name));
        let text = position.map(self.text);
        packet.message(TRACK_EVENT, |event| {
            // TrackEvent { debug_annotations, type, name_iid, track_uuid }.
            if let Some(text) = text {
                event.message(4, |annotation| {
                    annotation.number(1, POSITION).text(6, &text);
                });
            }
            event.number(9, kind);
            if let Some(name) = name {
                event.number(10, name);
            }
            event.number(11, track);
        });
        let mut whole = Message::default();
        whole.raw(PACKET, packet.bytes());
        self.out.write_all(whole.bytes())
    }
}

/// Returns the UUID of a thread's track. The UUID of a process's track is the process ID.
fn track_of(thread: &SlicedThread) -> u64 {
    1 << 32 | u64::from(thread.tid.0.unsigned_abs())
}

impl SliceSink for Perfetto<'_> {
    fn thread(&mut self, thread: &SlicedThread) -> io::Result<()> {
        let process = u64::from(thread.pid.unsigned_abs());
        if !self.pids.contains(&thread.pid) {
            self.pids.push(thread.pid);
            let program = self.program;
            // TrackDescriptor { uuid, process: ProcessDescriptor { pid, process_name } }.
            self.packet(|packet| {
                packet.number(SEQUENCE_ID, 1).message(TRACK_DESCRIPTOR, |track| {
                    track.number(1, process).message(3, |of| {
                        of.number(1, process).text(6, program);
                    });
                });
            })?;
        }
        let tid = u64::from(thread.tid.0.unsigned_abs());
        // TrackDescriptor { uuid, thread: ThreadDescriptor { pid, tid, thread_name },
        // parent_uuid }.
        self.packet(|packet| {
            packet.number(SEQUENCE_ID, 1).message(TRACK_DESCRIPTOR, |track| {
                track.number(1, track_of(thread)).number(5, process).message(4, |of| {
                    of.number(1, process).number(2, tid).text(5, &thread.name);
                });
            });
        })
    }

    fn slice(&mut self, thread: &SlicedThread, slice: &SliceEvent) -> io::Result<()> {
        match slice {
            SliceEvent::Begin { at, position, function } => {
                self.event(thread, *at, SLICE_BEGIN, Some(function), Some(*position))
            }
            SliceEvent::End { at } => self.event(thread, *at, SLICE_END, None, None),
            SliceEvent::SystemCall { at, position } => {
                self.event(thread, *at, INSTANT, Some("system call"), Some(*position))
            }
            SliceEvent::Gap { at, reason } => {
                self.event(thread, *at, INSTANT, Some(&format!("gap: {reason}")), None)
            }
        }
    }

    fn end_thread(&mut self, _: &SlicedThread, _: u64) -> io::Result<()> {
        Ok(())
    }
}
