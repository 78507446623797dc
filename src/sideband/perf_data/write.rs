//! Writes perf.data, the counterpart of the reader. perf can read the files.

use super::attr::Attr;
use super::aux::AuxInfo;
use super::header::BuildId;
use super::numbers::{
    AUXTRACE_INTEL_PT, FEATURE_ARCH, FEATURE_AUXTRACE, FEATURE_BUILD_ID, FEATURE_CPUID,
    FEATURE_EVENT_DESC, FILE_HEADER_BYTES, MAGIC, MISC_BUILD_ID_SIZE, MISC_COMM_EXEC,
    MISC_MMAP_BUILD_ID, MISC_SWITCH_OUT, MISC_USER, PIPE_HEADER_BYTES, RECORD_AUX, RECORD_AUXTRACE,
    RECORD_AUXTRACE_INFO, RECORD_COMM, RECORD_EXIT, RECORD_FINISHED_ROUND, RECORD_FORK,
    RECORD_HEADER_ATTR, RECORD_HEADER_BUILD_ID, RECORD_HEADER_BYTES, RECORD_HEADER_FEATURE,
    RECORD_ITRACE_START, RECORD_LOST, RECORD_MMAP2, RECORD_SWITCH, RECORD_SWITCH_CPU_WIDE,
    SAMPLE_CPU, SAMPLE_IDENTIFIER, SAMPLE_TID, SAMPLE_TIME,
};
use super::record::{PerfEvent, PerfMap, PerfRecord};
use super::{AuxTrace, SampleId};
use crate::common::{Pid, Tid};
use std::io::{self, Write};

/// The size of the attributes in Linux 4.17 and later.
const ATTR_BYTES: u32 = 112;
/// The size of an entry of the table of attributes: with the position and the size of the event's
/// ids.
const ATTR_ENTRY_BYTES: u64 = ATTR_BYTES as u64 + 16;
/// The size of the position and the size of a section, in the table of features.
const FEATURE_ENTRY_BYTES: u64 = 16;
/// `PERF_TYPE_SOFTWARE`.
const SOFTWARE: u32 = 1;
/// `PERF_COUNT_SW_DUMMY`.
const DUMMY: u64 = 9;
/// The size of an `AUXTRACE` record without the bytes of the trace.
const AUXTRACE_BYTES: usize = RECORD_HEADER_BYTES + 40;
/// A field of samples, of which these files have none. `perf record` sets it in all events.
const SAMPLE_FIELD: u64 = super::numbers::SAMPLE_IP;

/// The fields of each record's trailer.
const TRAILER: u64 = SAMPLE_TID | SAMPLE_TIME | SAMPLE_CPU | SAMPLE_IDENTIFIER;

/// An event of the file, with its name.
#[derive(Clone, Debug, PartialEq, Eq)]
struct NamedEvent {
    name: String,
    attr: Attr,
}

/// A perf.data file that is being built, of side-band records and AUX areas.
#[derive(Clone, Debug, Default)]
pub struct PerfWriter {
    events: Vec<NamedEvent>,
    /// The encoded `AUXTRACE_INFO` record; empty without one.
    info: Vec<u8>,
    records: Vec<u8>,
    build_ids: Vec<u8>,
    cpuid: String,
    /// The id of the event that records belong to.
    event_id: u64,
}

impl PerfWriter {
    /// Creates a file without events and records. `cpuid` is perf's name of the CPU; empty if
    /// unknown.
    #[must_use]
    pub fn new(cpuid: &str) -> Self {
        Self { cpuid: cpuid.to_owned(), ..Self::default() }
    }

    /// Adds an event with these attributes; the following records belong to it. The trailer of each
    /// record has thread, time and CPU.
    pub fn add_event(&mut self, name: &str, pmu: u32, config: u64, flags: u64) {
        self.event_id = self.events.len() as u64 + 1;
        let attr = Attr {
            pmu,
            config,
            sample_type: TRAILER | SAMPLE_FIELD,
            flags: flags | super::numbers::ATTR_SAMPLE_ID_ALL,
            ids: vec![self.event_id],
        };
        self.events.push(NamedEvent { name: name.to_owned(), attr });
    }

    /// Adds the two events of Intel PT, without the kernel: the trace, and one for side-band
    /// records, to which the following records belong.
    pub fn add_intel_pt_events(&mut self, pmu: u32, config: u64) {
        use super::numbers as n;
        let user = n::ATTR_EXCLUDE_KERNEL | n::ATTR_EXCLUDE_HV;
        self.add_event("intel_pt//u", pmu, config, user);
        let reports = n::ATTR_MMAP | n::ATTR_MMAP2 | n::ATTR_COMM | n::ATTR_COMM_EXEC;
        let reports = reports | n::ATTR_TASK | n::ATTR_CONTEXT_SWITCH;
        self.add_event("dummy:u", SOFTWARE, DUMMY, user | reports);
    }

    /// Sets the Intel PT settings of the AUX areas, in place of earlier ones.
    pub fn set_aux_info(&mut self, info: &AuxInfo) {
        let clock = info.clock;
        let filter = info.filter.as_bytes();
        let words = [
            u64::from(info.pmu),
            clock.map_or(0, |clock| clock.shift.into()),
            clock.map_or(0, |clock| clock.multiplier.into()),
            clock.map_or(0, |clock| clock.zero_ns),
            clock.is_some().into(),
            info.tsc_bit,
            info.noretcomp_bit,
            info.sched_switch,
            info.snapshot.into(),
            info.per_cpu.into(),
            info.mtc_bit,
            info.mtc_freq_bits,
            info.tsc_ctc_ratio.0.into(),
            info.tsc_ctc_ratio.1.into(),
            info.cyc_bit,
            info.max_nonturbo_ratio,
            filter.len() as u64,
        ];
        let mut body = AUXTRACE_INTEL_PT.to_le_bytes().to_vec();
        body.extend([0; 4]);
        body.extend(words.into_iter().flat_map(u64::to_le_bytes));
        if !filter.is_empty() {
            body.extend(padded(&[filter, &[0]].concat()));
        }
        self.info = encode_record(RECORD_AUXTRACE_INFO, 0, &body);
    }

    /// Adds a file's build id, cut to 20 bytes.
    pub fn add_build_id(&mut self, build_id: &BuildId) {
        let mut id = build_id.id.clone();
        let size = u8::try_from(id.len()).unwrap_or(20).min(20);
        id.resize(20, 0);
        let mut body = (-1_i32).to_le_bytes().to_vec();
        body.extend(id);
        body.extend([size, 0, 0, 0]);
        body.extend(padded_text(&build_id.name));
        let misc = MISC_USER | MISC_BUILD_ID_SIZE;
        self.build_ids.extend(encode_record(RECORD_HEADER_BUILD_ID, misc, &body));
    }

    /// Adds a record of the last event that was added. Truncates a name to 4096 bytes. Ignores the
    /// record's file offset.
    pub fn add_record(&mut self, record: &PerfRecord) {
        let (kind, misc, mut body) = encode_event(&record.event);
        body.extend(self.trailer(&record.id));
        self.records.extend(encode_record(kind, misc, &body));
    }

    /// Encodes the trailer of a record of the last event that was added.
    fn trailer(&self, id: &SampleId) -> Vec<u8> {
        let (pid, tid) = id.task.unwrap_or((Pid(-1), Tid(-1)));
        let mut bytes = task_bytes(pid, tid);
        bytes.extend(id.time_ns.unwrap_or(0).to_le_bytes());
        bytes.extend(id.cpu.unwrap_or(u32::MAX).to_le_bytes());
        bytes.extend([0; 4]);
        bytes.extend(self.event_id.to_le_bytes());
        bytes
    }

    /// Returns the encoded records so far, as they are in the file, for compression by the caller.
    #[must_use]
    pub fn records(&self) -> &[u8] {
        &self.records
    }

    /// Replaces the encoded records so far by `bytes`: complete `COMPRESSED` records that contain
    /// them. Changes nothing else.
    pub fn replace_records(&mut self, bytes: Vec<u8>) {
        self.records = bytes;
    }

    /// Writes the file with a file header. The AUX areas, each with the bytes of its trace, precede
    /// the other records. Their file positions in `traces` are ignored: this computes new ones.
    ///
    /// The layout is: file header, ids of the events, attributes, records, table of features,
    /// sections of features.
    pub fn write(&self, traces: &[(AuxTrace, &[u8])], out: &mut impl Write) -> io::Result<()> {
        let ids: Vec<u64> = self.events.iter().flat_map(|event| event.attr.ids.clone()).collect();
        let attrs_at = FILE_HEADER_BYTES + 8 * ids.len() as u64;
        let data_at = attrs_at + ATTR_ENTRY_BYTES * self.events.len() as u64;
        let traces_bytes: usize =
            traces.iter().map(|(_, bytes)| AUXTRACE_BYTES + bytes.len() + padding(bytes)).sum();
        let round = encode_record(RECORD_FINISHED_ROUND, 0, &[]);
        let data_bytes = (self.info.len() + traces_bytes + self.records.len() + round.len()) as u64;
        let mut features = self.features();
        if !traces.is_empty() {
            let index = aux_index(traces, data_at + self.info.len() as u64);
            features.push((FEATURE_AUXTRACE, index));
        }
        out.write_all(MAGIC)?;
        let bits = features.iter().fold(0_u64, |bits, (number, _)| bits | 1 << number);
        let sizes = [FILE_HEADER_BYTES, ATTR_ENTRY_BYTES];
        let attrs = [attrs_at, data_at - attrs_at];
        let (data, event_types) = ([data_at, data_bytes], [0, 0]);
        let words = [sizes, attrs, data, event_types, [bits, 0], [0, 0]];
        words.as_flattened().iter().try_for_each(|word| out.write_all(&word.to_le_bytes()))?;
        ids.iter().try_for_each(|id| out.write_all(&id.to_le_bytes()))?;
        let mut ids_at = FILE_HEADER_BYTES;
        for event in &self.events {
            let size = 8 * event.attr.ids.len() as u64;
            out.write_all(&attr_bytes(&event.attr))?;
            out.write_all(&ids_at.to_le_bytes())?;
            out.write_all(&size.to_le_bytes())?;
            ids_at += size;
        }
        out.write_all(&self.info)?;
        for (trace, bytes) in traces {
            let zeros = padding(bytes);
            out.write_all(&auxtrace_record(trace, bytes.len() + zeros))?;
            out.write_all(bytes)?;
            out.write_all(&[0; 8][..zeros])?;
        }
        out.write_all(&self.records)?;
        out.write_all(&round)?;
        let mut section_at = data_at + data_bytes + FEATURE_ENTRY_BYTES * features.len() as u64;
        for (_, section) in &features {
            out.write_all(&section_at.to_le_bytes())?;
            out.write_all(&(section.len() as u64).to_le_bytes())?;
            section_at += section.len() as u64;
        }
        features.iter().try_for_each(|(_, section)| out.write_all(section))
    }

    /// Writes the file in pipe format: everything in records, the AUX areas, each with the bytes of
    /// its trace, last but for the end of the round.
    pub fn write_to_pipe(
        &self,
        traces: &[(AuxTrace, &[u8])],
        out: &mut impl Write,
    ) -> io::Result<()> {
        out.write_all(MAGIC)?;
        out.write_all(&PIPE_HEADER_BYTES.to_le_bytes())?;
        for event in &self.events {
            let ids = event.attr.ids.iter().flat_map(|id| id.to_le_bytes());
            let body: Vec<u8> = attr_bytes(&event.attr).into_iter().chain(ids).collect();
            out.write_all(&encode_record(RECORD_HEADER_ATTR, 0, &body))?;
        }
        for (number, section) in self.features() {
            let body = [&u64::from(number).to_le_bytes()[..], &section].concat();
            out.write_all(&encode_record(RECORD_HEADER_FEATURE, 0, &body))?;
        }
        out.write_all(&self.info)?;
        out.write_all(&self.records)?;
        for (trace, bytes) in traces {
            let padded = padded(bytes);
            out.write_all(&auxtrace_record(trace, padded.len()))?;
            out.write_all(&padded)?;
        }
        out.write_all(&encode_record(RECORD_FINISHED_ROUND, 0, &[]))
    }

    /// Returns the feature sections that both formats have, each with its number, in ascending
    /// order.
    fn features(&self) -> Vec<(u32, Vec<u8>)> {
        let mut features = Vec::new();
        if !self.build_ids.is_empty() {
            features.push((FEATURE_BUILD_ID, self.build_ids.clone()));
        }
        features.push((FEATURE_ARCH, sized_text("x86_64")));
        if !self.cpuid.is_empty() {
            features.push((FEATURE_CPUID, sized_text(&self.cpuid)));
        }
        features.push((FEATURE_EVENT_DESC, self.event_desc()));
        features
    }

    /// Encodes the feature section that repeats the events, with their names.
    fn event_desc(&self) -> Vec<u8> {
        let count = u32::try_from(self.events.len()).unwrap_or(0);
        let mut bytes = [count.to_le_bytes(), ATTR_BYTES.to_le_bytes()].concat();
        for event in &self.events {
            bytes.extend(attr_bytes(&event.attr));
            bytes.extend(u32::try_from(event.attr.ids.len()).unwrap_or(0).to_le_bytes());
            bytes.extend(sized_text(&event.name));
            bytes.extend(event.attr.ids.iter().flat_map(|id| id.to_le_bytes()));
        }
        bytes
    }
}

/// Encodes the feature section with the positions of the AUX areas, from which perf reads them. The
/// first is at `first_at`.
fn aux_index(traces: &[(AuxTrace, &[u8])], first_at: u64) -> Vec<u8> {
    let mut index = (traces.len() as u64).to_le_bytes().to_vec();
    let mut area_at = first_at;
    for (_, bytes) in traces {
        index.extend(area_at.to_le_bytes());
        index.extend((AUXTRACE_BYTES as u64).to_le_bytes());
        area_at += (AUXTRACE_BYTES + bytes.len() + padding(bytes)) as u64;
    }
    index
}

/// Returns the number of NULs after the bytes of an AUX area, up to a multiple of 8 bytes.
const fn padding(bytes: &[u8]) -> usize {
    bytes.len().next_multiple_of(8) - bytes.len()
}

/// Encodes an `AUXTRACE` record, to be followed by `size_bytes` trace bytes.
fn auxtrace_record(trace: &AuxTrace, size_bytes: usize) -> Vec<u8> {
    let mut body = (size_bytes as u64).to_le_bytes().to_vec();
    body.extend(trace.stream_offset.to_le_bytes());
    body.extend(trace.reference.to_le_bytes());
    body.extend(trace.index.to_le_bytes());
    body.extend(trace.tid.map_or(-1, |tid| tid.0).to_le_bytes());
    let cpu = trace.cpu.and_then(|cpu| i32::try_from(cpu).ok());
    body.extend(cpu.unwrap_or(-1).to_le_bytes());
    body.extend([0; 4]);
    encode_record(RECORD_AUXTRACE, 0, &body)
}

/// Encodes a record with its header and this body. Cuts a body with which the record would be
/// larger than 65528 bytes, the largest multiple of 8 in its size field: from the end, where the
/// trailer is.
fn encode_record(kind: u32, misc: u16, body: &[u8]) -> Vec<u8> {
    let room = usize::from(u16::MAX) - 7 - RECORD_HEADER_BYTES;
    let body = body.get(..room).unwrap_or(body);
    let size = u16::try_from(RECORD_HEADER_BYTES + body.len()).unwrap_or(u16::MAX);
    let mut bytes = kind.to_le_bytes().to_vec();
    bytes.extend(misc.to_le_bytes());
    bytes.extend(size.to_le_bytes());
    bytes.extend(body);
    bytes
}

/// Returns the type, the flags and the body of an event's record.
fn encode_event(event: &PerfEvent) -> (u32, u16, Vec<u8>) {
    match event {
        PerfEvent::Map(map) => encode_map(map),
        PerfEvent::Comm { pid, tid, name, exec } => {
            let misc = if *exec { MISC_COMM_EXEC } else { 0 };
            let body = [task_bytes(*pid, *tid), padded_text(name)].concat();
            (RECORD_COMM, misc | MISC_USER, body)
        }
        PerfEvent::Fork { child, parent } => {
            (RECORD_FORK, MISC_USER, fork_or_exit_body(*child, *parent))
        }
        PerfEvent::Exit { pid, tid } => {
            (RECORD_EXIT, MISC_USER, fork_or_exit_body((*pid, *tid), (*pid, *tid)))
        }
        PerfEvent::ItraceStart { pid, tid } => {
            (RECORD_ITRACE_START, MISC_USER, task_bytes(*pid, *tid))
        }
        PerfEvent::Aux { offset, size, flags } => {
            let words = [*offset, *size, *flags];
            (RECORD_AUX, 0, words.into_iter().flat_map(u64::to_le_bytes).collect())
        }
        PerfEvent::Switch { out, other } => {
            let misc = if *out { MISC_SWITCH_OUT } else { 0 };
            match other {
                Some((pid, tid)) => (RECORD_SWITCH_CPU_WIDE, misc, task_bytes(*pid, *tid)),
                None => (RECORD_SWITCH, misc, Vec::new()),
            }
        }
        PerfEvent::Lost(count) => {
            (RECORD_LOST, 0, [0, *count].into_iter().flat_map(u64::to_le_bytes).collect())
        }
    }
}

/// Returns the type (`PERF_RECORD_MMAP2`), the flags and the body of the record of a mapping of
/// user space. It is always readable, and has the build id, cut to 20 bytes, in place of device
/// and inode; zeros if there is none.
fn encode_map(map: &PerfMap) -> (u32, u16, Vec<u8>) {
    let mut body = task_bytes(map.pid, map.tid);
    let words = [map.range.start.0, map.range.size_bytes(), map.file_offset];
    body.extend(words.into_iter().flat_map(u64::to_le_bytes));
    let size = u8::try_from(map.build_id.len()).unwrap_or(0).min(20);
    let mut identity = vec![size, 0, 0, 0];
    identity.extend(&map.build_id);
    identity.resize(24, 0);
    body.extend(identity);
    let bit = |set: bool, bit: u32| if set { bit } else { 0 };
    let protection = 1 | bit(map.writable, 2) | bit(map.executable, 4);
    body.extend(protection.to_le_bytes());
    body.extend((if map.shared { 1_u32 } else { 2 }).to_le_bytes());
    body.extend(padded_text(&map.name));
    let misc = if size > 0 { MISC_MMAP_BUILD_ID } else { 0 };
    (RECORD_MMAP2, misc | MISC_USER, body)
}

/// Encodes a process and thread.
fn task_bytes(pid: Pid, tid: Tid) -> Vec<u8> {
    [pid.0.to_le_bytes(), tid.0.to_le_bytes()].concat()
}

/// Encodes the body of the record of a fork or exit: a thread and its parent, and the time 0, since
/// the trailer has the time.
fn fork_or_exit_body(child: (Pid, Tid), parent: (Pid, Tid)) -> Vec<u8> {
    let numbers = [child.0.0, parent.0.0, child.1.0, parent.1.0];
    let numbers = numbers.into_iter().flat_map(i32::to_le_bytes);
    numbers.chain([0; 8]).collect()
}

/// The maximum size of a text: no path is longer, and a record has room for it.
const TEXT_LIMIT_BYTES: usize = 4096;

/// Encodes a text with at least one NUL after it, up to a multiple of 8 bytes. Cuts it to
/// [`TEXT_LIMIT_BYTES`], even within a character.
fn padded_text(text: &str) -> Vec<u8> {
    let bytes = text.as_bytes();
    let bytes = bytes.get(..TEXT_LIMIT_BYTES).unwrap_or(bytes);
    let mut bytes = bytes.to_vec();
    bytes.resize((bytes.len() + 1).next_multiple_of(8), 0);
    bytes
}

/// Returns the bytes with NULs after them, up to a multiple of 8 bytes; without a NUL if their
/// number is one already.
fn padded(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    bytes
}

/// Encodes a text with its size before it, and NULs after it. The size includes the NULs. Cuts the
/// text as [`padded_text`] does.
fn sized_text(text: &str) -> Vec<u8> {
    let text = padded_text(text);
    [&u32::try_from(text.len()).unwrap_or(0).to_le_bytes()[..], &text].concat()
}

/// Encodes the attributes of an event.
fn attr_bytes(attr: &Attr) -> Vec<u8> {
    let mut bytes = [attr.pmu.to_le_bytes(), ATTR_BYTES.to_le_bytes()].concat();
    let words = [attr.config, 1, attr.sample_type, 0, attr.flags];
    bytes.extend(words.into_iter().flat_map(u64::to_le_bytes));
    bytes.resize(ATTR_BYTES as usize, 0);
    bytes
}
