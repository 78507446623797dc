//! An imported trace in memory, and its conversion to a recording. Facts that only decoding shows,
//! such as the number of instructions, are unknown then; [`Reader::note_totals`] adds them later.

use super::super::backend::BackendName;
use super::super::error::Error;
use super::super::format::TraceId;
use super::super::manifest::{
    Capture, CpuEntry, End, Exit, HostCpu, Import, Manifest, ThreadEntry, TscClock,
};
use super::super::manifest_file::replace_manifest;
use super::super::reader::{Reader, Releaser};
use super::super::writer::Writer;
use super::trace_bytes::TraceBytes;
use crate::common::{Addr, Pid, Tid, Tsc};
use crate::image::{Bytes, Section};
use crate::sideband::{Backing, Event, FileId, ImageId, Protection, Record, SwitchKind};
use std::collections::{HashMap, HashSet};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A trace from another tool and the data that belong to it.
#[derive(Clone, Debug, Default)]
pub struct Imported {
    /// The path of the program.
    pub program: String,
    /// The process ID.
    pub pid: Pid,
    /// The threads of the process.
    pub threads: Vec<Tid>,
    /// One trace of each traced thread, or one of each CPU.
    pub traces: Vec<(TraceId, TraceBytes)>,
    /// The context switches of the CPUs.
    pub switches: Vec<CpuSwitch>,
    /// The code mapped at the start of the trace. Later elements lie over earlier ones.
    pub code: Vec<MappedCode>,
    /// The events of the process, including later mappings of code, in order of time.
    pub history: Vec<ImportedEvent>,
    /// The core file of the process at its end.
    pub core: Option<Bytes>,
    /// The final instruction pointers of threads, from the core file.
    pub final_pcs: HashMap<Tid, Addr>,
    /// The ending of the process, if known.
    pub exit: Option<Exit>,
    /// The CPU that wrote the trace, if known.
    pub cpu: Option<HostCpu>,
    /// The source and the settings of the trace.
    pub import: Import,
    /// The frequency of the TSC in ticks per second, if known.
    pub ticks_per_second: Option<f64>,
    /// Notes for the user, one sentence each.
    pub notes: Vec<String>,
}

/// An event of the imported process.
#[derive(Clone, Debug)]
pub struct ImportedEvent {
    /// The time of the event.
    pub tsc: Tsc,
    /// The thread of the event.
    pub tid: Tid,
    /// The event.
    pub kind: ImportedEventKind,
}

/// The kind of an event, with its content.
#[derive(Clone, Debug)]
pub enum ImportedEventKind {
    /// An event other than a mapping.
    Sideband(Event),
    /// A mapping of code over anything mapped there before.
    Map(MappedCode),
}

/// A mapping of code. The section has its addresses; the variant is the source of its bytes.
#[derive(Clone, Debug)]
pub enum MappedCode {
    /// Code of a file; the section has the file's path as its name.
    File(Section),
    /// Code whose bytes the core file contains, at the section's addresses.
    Core(Section),
    /// Code of the kernel; the section's name has brackets, and its bytes are empty if they are
    /// unknown.
    Special(Section),
    /// Unknown code that was in no file.
    Anonymous(Section),
}

impl MappedCode {
    fn section(&self) -> &Section {
        let (Self::File(section)
        | Self::Core(section)
        | Self::Special(section)
        | Self::Anonymous(section)) = self;
        section
    }
}

/// A context switch of a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuSwitch {
    /// The CPU.
    pub cpu: u32,
    /// The time of the switch.
    pub tsc: Tsc,
    /// The kind of switch, with its thread.
    pub kind: SwitchKind,
}

/// The facts about a recording that are only known after decoding.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// The number of instructions of each thread.
    pub instructions: HashMap<Tid, u64>,
    /// The first and the last time in the traces; `None` if there are no times.
    pub times: Option<(Tsc, Tsc)>,
}

impl Imported {
    /// Writes a complete recording of this trace to `dir`, and returns `dir`. The caller makes sure
    /// that `dir` is empty or does not exist, which is not checked (`Destination` does that).
    /// Releases the memory of the imported traces as it goes. If it fails, a cut recording may be
    /// left.
    pub fn write(&self, dir: &Path) -> Result<PathBuf, Error> {
        let starting = self.manifest(None);
        let mut writer = Writer::create(dir, &starting)?;
        for record in self.records(&writer)? {
            writer.sideband(&record)?;
        }
        for (id, bytes) in &self.traces {
            let mut releaser = Releaser::new(bytes.file());
            // Starts the trace: it may have no parts.
            writer.append_imported(*id, &[], &mut |_| ())?;
            for (part, end) in bytes.parts() {
                let start = end.saturating_sub(part.len());
                writer.append_imported(*id, part, &mut |at| releaser.release_before(start + at))?;
            }
            writer.end_trace(*id)?;
        }
        for tid in self.untraced() {
            writer.start_thread(tid)?;
            writer.end_trace(TraceId::Thread(tid))?;
        }
        if let Some(core) = &self.core {
            let written = writer.core_file()?.write_all(core);
            written.map_err(|error| Error::new(&dir.join(super::super::format::CORE), error))?;
        }
        writer.finish(&self.manifest(Some(self.end())))
    }

    /// Returns the threads without a trace, which get an empty one; none if the traces are of CPUs.
    fn untraced(&self) -> Vec<Tid> {
        if self.traces.iter().any(|(id, _)| matches!(id, TraceId::Cpu(_))) {
            return Vec::new();
        }
        let traced: HashSet<TraceId> = self.traces.iter().map(|(id, _)| *id).collect();
        let is_untraced = |tid: &Tid| !traced.contains(&TraceId::Thread(*tid));
        self.threads.iter().copied().filter(is_untraced).collect()
    }

    fn manifest(&self, end: Option<End>) -> Manifest {
        let (format, written_by) = Manifest::versions();
        Manifest {
            format,
            written_by,
            program: self.program.clone(),
            argv: vec![self.program.clone()],
            env: Vec::new(),
            cwd: String::new(),
            pid: self.pid,
            started_unix_ns: 0,
            cpu: self.cpu.clone().unwrap_or_default(),
            features: Vec::new(),
            capture: Capture {
                backend: BackendName::Import,
                psb_period_bytes: 0,
                aslr: true,
                filter: Vec::new(),
                history: String::new(),
                import: Some(self.import.clone()),
                hardware: None,
            },
            end,
        }
    }

    /// Returns the end of the manifest. The facts that only decoding shows ([`Totals`]) are 0.
    fn end(&self) -> End {
        let sizes = self.traces.iter().map(|(id, bytes)| (*id, bytes.size_bytes()));
        let sizes: HashMap<TraceId, u64> = sizes.collect();
        let names = self.names();
        let thread = |tid: &Tid| ThreadEntry {
            tid: *tid,
            pid: self.pid,
            name: names.get(tid).copied().unwrap_or_default().to_owned(),
            trace_bytes: sizes.get(&TraceId::Thread(*tid)).copied().unwrap_or(0),
            instructions: 0,
            final_pc: self.final_pcs.get(tid).copied(),
        };
        let cpu = |(id, bytes): &(TraceId, TraceBytes)| match id {
            TraceId::Cpu(cpu) => Some(CpuEntry { cpu: *cpu, trace_bytes: bytes.size_bytes() }),
            TraceId::Thread(_) => None,
        };
        let ticks_per_second = self.ticks_per_second.unwrap_or(0.0);
        End {
            exit: self.exit,
            duration_ns: 0,
            instructions: 0,
            clock: TscClock { start: Tsc(0), ticks_per_second },
            threads: self.threads.iter().map(thread).collect(),
            cpus: self.traces.iter().filter_map(cpu).collect(),
            log: None,
            ring_since_ns: None,
        }
    }

    /// Returns the last name of each thread.
    fn names(&self) -> HashMap<Tid, &str> {
        let names = self.history.iter().filter_map(|event| match &event.kind {
            ImportedEventKind::Sideband(Event::Comm { name }) => Some((event.tid, name.as_str())),
            _ => None,
        });
        names.collect()
    }

    /// Stores the code as images of the recording. Returns the records of the sideband, in order of
    /// time: the first code, the history and the context switches.
    fn records(&self, writer: &Writer) -> Result<Vec<Record>, Error> {
        let (pid, tid) = (self.pid, self.threads.first().copied().unwrap_or(Tid(self.pid.0)));
        let mut files =
            CodeImages { writer, ids: HashMap::new(), images: Vec::new(), events: Vec::new() };
        for code in &self.code {
            files.add_mapping(code)?;
        }
        let code = files.take_events().map(|event| Record { tsc: Tsc(0), pid, tid, event });
        let mut events: Vec<_> = code.collect();
        for ImportedEvent { tsc, tid, kind } in &self.history {
            match kind {
                ImportedEventKind::Sideband(event) => files.events.push(event.clone()),
                ImportedEventKind::Map(code) => files.add_mapping(code)?,
            }
            let (tsc, tid) = (*tsc, *tid);
            events.extend(files.take_events().map(|event| Record { tsc, pid, tid, event }));
        }
        let switch = |switch: &CpuSwitch| {
            let CpuSwitch { cpu, tsc, kind } = *switch;
            let (pid, tid, event) = match kind {
                SwitchKind::In(pid, tid) => (pid, tid, Event::SwitchIn { cpu }),
                SwitchKind::Out(pid, tid) => (pid, tid, Event::SwitchOut { cpu }),
                SwitchKind::Lost => (pid, tid, Event::SwitchLost { cpu }),
            };
            Record { tsc, pid, tid, event }
        };
        let mut records: Vec<_> =
            events.into_iter().chain(self.switches.iter().map(switch)).collect();
        records.sort_by_key(|record| record.tsc);
        Ok(records)
    }
}

/// The files of mapped code, numbered in the order of first use, and the events of the mappings
/// that are to be written.
struct CodeImages<'a> {
    writer: &'a Writer,
    /// The number and the contents of each file, by path.
    ids: HashMap<Arc<str>, (FileId, Bytes)>,
    /// The bytes that are stored, and their images.
    images: Vec<(Bytes, ImageId)>,
    events: Vec<Event>,
}

impl CodeImages<'_> {
    /// Adds the events of a mapping of code, and stores the code as an image unless it is stored.
    fn add_mapping(&mut self, code: &MappedCode) -> Result<(), Error> {
        let section = code.section();
        let backing = match code {
            MappedCode::Core(_) => Backing::Core,
            MappedCode::File(section) => self.file_backing(section)?,
            MappedCode::Special(section) => Backing::Special {
                name: section.name.to_string(),
                image: self.store_image(&section.bytes)?,
            },
            MappedCode::Anonymous(_) => Backing::Anonymous,
        };
        let Section { range, writable: write, executable: execute, .. } = *section;
        let protection = Protection { read: true, write, execute, shared: false };
        self.events.push(Event::Map { range, protection, backing });
        Ok(())
    }

    /// Returns the backing of a mapping of a file; anonymous memory if the bytes are not those of
    /// the file's first mapping. At that one, stores the file as an image and adds its events.
    fn file_backing(&mut self, section: &Section) -> Result<Backing, Error> {
        let offset = section.offset;
        if let Some((file, bytes)) = self.ids.get(&section.name) {
            // A section of zeros after a file's end has the file's name, but not its contents.
            let same = are_same_bytes(bytes, &section.bytes) || bytes[..] == section.bytes[..];
            let backing = Backing::File { file: *file, offset };
            return Ok(if same { backing } else { Backing::Anonymous });
        }
        let file = FileId(u32::try_from(self.ids.len()).unwrap_or(u32::MAX));
        let image = self.store_image(&section.bytes)?;
        self.ids.insert(section.name.clone(), (file, section.bytes.clone()));
        self.events.push(Event::File { file, path: section.name.to_string() });
        self.events.extend(image.map(|image| Event::Image { file, image }));
        Ok(Backing::File { file, offset })
    }

    /// Stores bytes as an image of the recording, unless they are stored; `None` for no bytes.
    fn store_image(&mut self, bytes: &Bytes) -> Result<Option<ImageId>, Error> {
        if bytes.is_empty() {
            return Ok(None);
        }
        let known = self.images.iter().find(|(known, _)| are_same_bytes(known, bytes));
        if let Some((_, image)) = known {
            return Ok(Some(image.clone()));
        }
        let image = self.writer.image_from_bytes(bytes)?;
        self.images.push((bytes.clone(), image.clone()));
        Ok(Some(image))
    }

    /// Removes and returns the events since the last call.
    fn take_events(&mut self) -> impl Iterator<Item = Event> + use<> {
        std::mem::take(&mut self.events).into_iter()
    }
}

/// Returns true if these are the same bytes in memory, not only equal ones.
fn are_same_bytes(a: &Bytes, b: &Bytes) -> bool {
    std::ptr::eq(a.as_ptr(), b.as_ptr()) && a.len() == b.len()
}

impl Reader {
    /// Adds facts known only after decoding to the manifest of a complete recording, an import or
    /// one with the traces of CPUs, and replaces its manifest and checksums. Threads without a
    /// total get 0 instructions. Returns the new manifest; this reader keeps the old one.
    pub fn note_totals(&self, totals: &Totals) -> Result<Manifest, Error> {
        let mut manifest = self.manifest().clone();
        if let Some(end) = &mut manifest.end {
            for thread in &mut end.threads {
                thread.instructions = totals.instructions.get(&thread.tid).copied().unwrap_or(0);
            }
            end.instructions = totals.instructions.values().sum();
            if let Some((first, last)) = totals.times {
                end.clock.start = first;
                end.duration_ns =
                    if end.clock.is_known() { end.clock.nanoseconds(last) } else { 0 };
            }
        }
        replace_manifest(self.dir(), &manifest, self.sums().cloned().unwrap_or_default())?;
        Ok(manifest)
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::format::MANIFEST;
    use super::*;
    use std::fs;

    // A recorder that is killed while it replaces the manifest, or cannot write it, leaves a
    // complete recording with the old one or the new one.
    #[test]
    fn a_manifest_that_is_not_quite_replaced_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().join("r");
        let imported =
            Imported { program: "/p".to_owned(), threads: vec![Tid(1)], ..Imported::default() };
        imported.write(&dir).unwrap();
        let totals = Totals { instructions: [(Tid(1), 5)].into(), ..Totals::default() };
        let instructions = || {
            let reader = Reader::open(&dir).unwrap();
            assert!(reader.find_damage().is_empty());
            reader.manifest().end.as_ref().unwrap().instructions
        };
        // The file under which a new manifest is written first.
        let partial = dir.join("manifest.partial");
        fs::create_dir(&partial).unwrap();
        assert!(Reader::open(&dir).unwrap().note_totals(&totals).is_err());
        assert_eq!(instructions(), 0);
        // The next write of the checksums fails, after that of the manifest.
        let old = fs::read_to_string(dir.join(MANIFEST)).unwrap();
        let new = old.replace("\"instructions\": 0", "\"instructions\": 5");
        fs::write(dir.join(MANIFEST), new).unwrap();
        assert_eq!(instructions(), 5);
        fs::remove_dir(&partial).unwrap();
        Reader::open(&dir).unwrap().note_totals(&totals).unwrap();
        assert_eq!(instructions(), 5);
        fs::write(dir.join(MANIFEST), old).unwrap();
        assert!(Reader::open(&dir).is_err());
    }
}
