//! The records of perf.data about the operating system's actions (`PERF_RECORD_*` of
//! `perf_event_open(2)`).

use super::attr::{Attr, SampleId, Trailers};
use super::fields::{BadPerfData, Fields};
use super::numbers::{
    MISC_COMM_EXEC, MISC_MMAP_BUILD_ID, MISC_MMAP_DATA, MISC_SWITCH_OUT, RECORD_AUX, RECORD_COMM,
    RECORD_EXIT, RECORD_FORK, RECORD_HEADER_BYTES, RECORD_ITRACE_START, RECORD_LOST,
    RECORD_LOST_SAMPLES, RECORD_MMAP, RECORD_MMAP2, RECORD_SWITCH, RECORD_SWITCH_CPU_WIDE,
};
use crate::common::{Addr, AddrRange, Pid, Tid};

/// A record with its position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PerfRecord {
    /// The file offset in bytes; for compressed records, that of the first compressed record.
    pub offset: u64,
    /// The task, time and CPU.
    pub id: SampleId,
    /// The event.
    pub event: PerfEvent,
}

/// An action of the operating system.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PerfEvent {
    /// A file or memory was mapped.
    Map(Box<PerfMap>),
    /// A thread got a name; if by exec, all its mappings are gone.
    Comm {
        /// The thread's process.
        pid: Pid,
        /// The thread.
        tid: Tid,
        /// The name.
        name: String,
        /// True if the thread executed another program.
        exec: bool,
    },
    /// A thread started, in the same or in a new process.
    Fork {
        /// The thread that started, and its process.
        child: (Pid, Tid),
        /// The process and the thread that created the child.
        parent: (Pid, Tid),
    },
    /// A thread ended.
    Exit {
        /// The thread's process.
        pid: Pid,
        /// The thread.
        tid: Tid,
    },
    /// Tracing of a thread started.
    ItraceStart {
        /// The thread's process.
        pid: Pid,
        /// The thread.
        tid: Tid,
    },
    /// Trace bytes were written to an AUX area.
    Aux {
        /// The stream offset of the first byte.
        offset: u64,
        /// The number of bytes.
        size: u64,
        /// `PERF_AUX_FLAG_*`.
        flags: u64,
    },
    /// A CPU switched from or to the record's thread.
    Switch {
        /// True if the CPU switched away from the thread, false if to it.
        out: bool,
        /// The next or the previous thread, if known.
        other: Option<(Pid, Tid)>,
    },
    /// This many records were lost before this one.
    Lost(u64),
}

/// A mapping of a file or of memory in a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PerfMap {
    /// The process that the mapping belongs to.
    pub pid: Pid,
    /// The thread that created the mapping.
    pub tid: Tid,
    /// The mapped addresses.
    pub range: AddrRange,
    /// The file offset of the first byte, in bytes.
    pub file_offset: u64,
    /// True if the pages are writable.
    pub writable: bool,
    /// True if the pages are executable.
    pub executable: bool,
    /// True if writes by others are visible.
    pub shared: bool,
    /// The file's build id; empty if unknown.
    pub build_id: Vec<u8>,
    /// The file's path, or a name given by the kernel.
    pub name: String,
}

impl PerfEvent {
    /// Flag bits of [`PerfEvent::Aux`] for a loss of trace bytes after these: truncated, partial,
    /// collision.
    pub const AUX_LOSSES: u64 = 1 | 4 | 8;
    /// The flag bit for an area that is a self-overwriting ring buffer.
    pub const AUX_OVERWRITE: u64 = 2;
}

/// A parser of records as the kernel writes them to the ring buffer of an event.
#[derive(Clone, Debug)]
pub struct PerfRecords {
    /// The formats of the trailers, which follow the records' bodies.
    trailers: Trailers,
}

impl PerfRecords {
    /// Creates a parser for an event with these attributes.
    #[must_use]
    pub fn of(attr: &Attr) -> Self {
        Self { trailers: Trailers::of(std::slice::from_ref(attr)) }
    }

    /// Parses one whole record, including its header; `None` if its type is not relevant. Fails,
    /// with offset 0, if the record is too short.
    pub fn parse(&self, bytes: &[u8]) -> Result<Option<PerfRecord>, BadPerfData> {
        let cut = |Damaged| BadPerfData { offset: 0, what: "the record is shorter than its kind" };
        parse(0, bytes, &self.trailers).map_err(cut)
    }
}

const PROT_WRITE: u32 = 2;
const PROT_EXEC: u32 = 4;
const MAP_SHARED: u32 = 1;
const BUILD_ID_LIMIT_BYTES: usize = 20;

/// Error for a record that is shorter than its type requires.
#[derive(Debug)]
pub(super) struct Damaged;

/// Parses the record in `bytes`, including its header, which is at file offset `offset`; `None` if
/// its type is not relevant. `trailers` has the format of its trailer: the task, time and CPU after
/// the body.
pub(super) fn parse(
    offset: u64,
    bytes: &[u8],
    trailers: &Trailers,
) -> Result<Option<PerfRecord>, Damaged> {
    let mut header = Fields::new(bytes);
    let kind = header.u32().ok_or(Damaged)?;
    let Some(parser) = parser(kind) else { return Ok(None) };
    let misc = header.u16().ok_or(Damaged)?;
    let trailer = trailers.of_record(bytes);
    let parts = bytes.get(RECORD_HEADER_BYTES..).and_then(|rest| trailer.split(rest));
    let (body, id) = parts.ok_or(Damaged)?;
    let event = parser(misc, Fields::new(body)).ok_or(Damaged)?;
    Ok(Some(PerfRecord { offset, id, event }))
}

/// Parses the body of a record with these flags in its header.
type Parser = fn(u16, Fields<'_>) -> Option<PerfEvent>;

/// Returns the parser for records of a type; `None` if the type is not relevant.
fn parser(kind: u32) -> Option<Parser> {
    Some(match kind {
        RECORD_MMAP => map,
        RECORD_MMAP2 => map2,
        RECORD_COMM => comm,
        RECORD_FORK => fork,
        RECORD_EXIT => exit,
        RECORD_ITRACE_START => itrace_start,
        RECORD_AUX => aux,
        RECORD_SWITCH => |misc, _| Some(switch(misc, None)),
        RECORD_SWITCH_CPU_WIDE => {
            |misc, mut f| Some(switch(misc, Some((Pid(f.i32()?), Tid(f.i32()?)))))
        }
        RECORD_LOST => |_, mut f| f.u64().and_then(|_| f.u64()).map(PerfEvent::Lost),
        RECORD_LOST_SAMPLES => |_, mut f| f.u64().map(PerfEvent::Lost),
        _ => return None,
    })
}

/// Returns the event of a context switch.
fn switch(misc: u16, other: Option<(Pid, Tid)>) -> PerfEvent {
    PerfEvent::Switch { out: misc & MISC_SWITCH_OUT != 0, other }
}

/// Parses `PERF_RECORD_MMAP`, which has no protection: a mapping without the flag for data is
/// executable.
fn map(misc: u16, mut fields: Fields<'_>) -> Option<PerfEvent> {
    let (pid, tid) = (Pid(fields.i32()?), Tid(fields.i32()?));
    let (addr, size, file_offset) = (fields.u64()?, fields.u64()?, fields.u64()?);
    Some(PerfEvent::Map(Box::new(PerfMap {
        pid,
        tid,
        range: AddrRange::sized(Addr(addr), size),
        file_offset,
        writable: false,
        executable: misc & MISC_MMAP_DATA == 0,
        shared: false,
        build_id: Vec::new(),
        name: fields.text()?,
    })))
}

/// Parses `PERF_RECORD_MMAP2`.
fn map2(misc: u16, mut fields: Fields<'_>) -> Option<PerfEvent> {
    let (pid, tid) = (Pid(fields.i32()?), Tid(fields.i32()?));
    let (addr, size, file_offset) = (fields.u64()?, fields.u64()?, fields.u64()?);
    // Device and inode, or the build id.
    let mut identity = Fields::new(fields.take(24)?);
    let mut build_id = Vec::new();
    if misc & MISC_MMAP_BUILD_ID != 0 {
        let size = usize::from(identity.u8()?).min(BUILD_ID_LIMIT_BYTES);
        identity.take(3)?;
        build_id.extend_from_slice(identity.take(size)?);
    }
    let (protection, flags) = (fields.u32()?, fields.u32()?);
    Some(PerfEvent::Map(Box::new(PerfMap {
        pid,
        tid,
        range: AddrRange::sized(Addr(addr), size),
        file_offset,
        writable: protection & PROT_WRITE != 0,
        executable: protection & PROT_EXEC != 0,
        shared: flags & MAP_SHARED != 0,
        build_id,
        name: fields.text()?,
    })))
}

fn comm(misc: u16, mut fields: Fields<'_>) -> Option<PerfEvent> {
    Some(PerfEvent::Comm {
        pid: Pid(fields.i32()?),
        tid: Tid(fields.i32()?),
        name: fields.text()?,
        exec: misc & MISC_COMM_EXEC != 0,
    })
}

fn fork(_: u16, fields: Fields<'_>) -> Option<PerfEvent> {
    let (child, parent) = tasks(fields)?;
    Some(PerfEvent::Fork { child, parent })
}

fn exit(_: u16, fields: Fields<'_>) -> Option<PerfEvent> {
    let ((pid, tid), _) = tasks(fields)?;
    Some(PerfEvent::Exit { pid, tid })
}

/// Parses a thread and its parent, from the fields of a fork or exit.
fn tasks(mut fields: Fields<'_>) -> Option<((Pid, Tid), (Pid, Tid))> {
    let processes = (Pid(fields.i32()?), Pid(fields.i32()?));
    let threads = (Tid(fields.i32()?), Tid(fields.i32()?));
    fields.u64()?;
    Some(((processes.0, threads.0), (processes.1, threads.1)))
}

fn itrace_start(_: u16, mut fields: Fields<'_>) -> Option<PerfEvent> {
    Some(PerfEvent::ItraceStart { pid: Pid(fields.i32()?), tid: Tid(fields.i32()?) })
}

fn aux(_: u16, mut fields: Fields<'_>) -> Option<PerfEvent> {
    Some(PerfEvent::Aux { offset: fields.u64()?, size: fields.u64()?, flags: fields.u64()? })
}
