//! Conversion of a recording's sideband to perf's records: threads, programs, mappings, code,
//! context switches. The records are collected in a [`PerfWriter`]; the files of the code are
//! stored at once in `symfs`, the directory for perf's `--symfs`.
//!
//! The order of calls: `add_threads`, `add_traces`, then `add_record` for each record of the
//! sideband in order (`add_exec` for an exec(2) whose new name is known), and `store_code_files`.
//! Code that was in no file is collected in two files for that: [`CODE_NAME`] has the code that was
//! made at run time, [`CORE_NAME`] the code of the core file.

use super::super::error::{Error, ErrorKind};
use super::super::format::TraceId;
use super::super::manifest::Manifest;
use super::super::reader::{Reader, Trace};
use super::symfs::Symfs;
use super::trace_settings::{PMU, clock, trace_settings};
use super::{ANONYMOUS_NAME, CODE_NAME, CORE_MAP_NAME, CORE_NAME, VDSO_NAME};
use crate::common::{Addr, AddrRange, Pid, Tid, Tsc};
use crate::image::core::Core;
use crate::image::elf::Elf;
use crate::image::{Bytes, RangeSet};
use crate::pt::TscToNs;
use crate::sideband::perf_data::{BuildId, PerfEvent, PerfMap, PerfRecord, PerfWriter, SampleId};
use crate::sideband::{Backing, Event, FileId, ImageId, Protection, Record};
use std::collections::{HashMap, HashSet};

/// A converter of a recording's sideband records to perf's records, one after the other.
pub(super) struct Converter<'a> {
    reader: &'a Reader,
    symfs: &'a Symfs,
    pub(super) writer: PerfWriter,
    clock: TscToNs,
    pid: Pid,
    /// The path of each file.
    paths: HashMap<FileId, String>,
    /// The stored image of each file.
    images: HashMap<FileId, ImageId>,
    /// The lowest file ID of each path: this file keeps the path as its name in `symfs`.
    first_files: HashMap<String, FileId>,
    /// The build IDs of the files stored in `symfs` so far, by their names there; empty if unknown.
    build_ids: HashMap<String, Vec<u8>>,
    /// The contents of [`CODE_NAME`] (code made at run time) and of [`CORE_NAME`] (code from the
    /// core file).
    code: Vec<u8>,
    core_code: Vec<u8>,
    core: Option<Core>,
    /// The ranges of code mapped since the last exec(2): from the core file, and from anything
    /// else.
    of_core: RangeSet,
    mapped: RangeSet,
    /// The errors of images that are missing or damaged.
    pub(super) lost: Vec<String>,
}

impl<'a> Converter<'a> {
    /// Creates a converter, with the settings of the traces in its writer. Notes the paths and
    /// images of the files in `records`, without reading these. Fails only if a record maps from
    /// the core file and that cannot be read; a core file that is invalid counts as none.
    pub(super) fn new(
        reader: &'a Reader,
        symfs: &'a Symfs,
        records: &[Record],
        ids: &[TraceId],
    ) -> Result<Self, Error> {
        let manifest = reader.manifest();
        let cpu = &manifest.cpu;
        let cpuid = format!("{},{},{},{}", cpu.vendor, cpu.family, cpu.model, cpu.stepping);
        let cpuid = if cpu.vendor.is_empty() { String::new() } else { cpuid };
        let mut writer = PerfWriter::new(&cpuid);
        let clock = clock(manifest);
        let of_cpus = ids.iter().any(|id| matches!(id, TraceId::Cpu(_)));
        let (info, config) = trace_settings(manifest, clock, of_cpus);
        writer.add_intel_pt_events(PMU, config);
        writer.set_aux_info(&info);
        let (mut paths, mut images) = (HashMap::new(), HashMap::new());
        let mut first_files: HashMap<String, FileId> = HashMap::new();
        let mut needs_core = false;
        for record in records {
            match &record.event {
                Event::File { file, path } => {
                    paths.insert(*file, path.clone());
                    let first = first_files.entry(path.clone()).or_insert(*file);
                    *first = (*file).min(*first);
                }
                Event::Image { file, image } => drop(images.insert(*file, image.clone())),
                Event::Map { backing: Backing::Core, .. } => needs_core = true,
                _ => {}
            }
        }
        let core = if needs_core { reader.core()? } else { None };
        let core = core.and_then(|core| Core::parse(&Bytes::new(core)).ok());
        Ok(Self {
            reader,
            symfs,
            writer,
            clock,
            pid: manifest.pid,
            paths,
            images,
            first_files,
            build_ids: HashMap::new(),
            code: Vec::new(),
            core_code: Vec::new(),
            core,
            of_core: RangeSet::default(),
            mapped: RangeSet::default(),
            lost: Vec::new(),
        })
    }

    /// Adds perf's records for threads, and names of threads, that are in the manifest but not in
    /// `records`. To be called before all other records are added.
    pub(super) fn add_threads(&mut self, manifest: &Manifest, records: &[Record]) {
        let (pid, id) = (self.pid, SampleId::default());
        let (mut born, mut named) = (HashSet::new(), HashSet::new());
        for record in records {
            match record.event {
                Event::ThreadStart => drop(born.insert(record.tid)),
                Event::Comm { .. } => drop(named.insert(record.tid)),
                _ => {}
            }
        }
        for thread in manifest.end.iter().flat_map(|end| &end.threads) {
            let tid = thread.tid;
            if tid.0 != pid.0 && !born.contains(&tid) {
                let event = PerfEvent::Fork { child: (pid, tid), parent: (pid, Tid(pid.0)) };
                self.push(id, event);
            }
            if !thread.name.is_empty() && !named.contains(&tid) {
                let name = thread.name.clone();
                self.push(id, PerfEvent::Comm { pid, tid, name, exec: false });
            }
        }
    }

    /// Adds an `AUX` record with the size of each trace. To be called before the sideband's records
    /// are added.
    pub(super) fn add_traces(&mut self, ids: &[TraceId], traces: &[Trace]) {
        let pid = self.pid;
        for (id, trace) in ids.iter().zip(traces) {
            let size = trace.as_ref().len() as u64;
            let (task, cpu) = match id {
                TraceId::Thread(tid) => (Some((pid, *tid)), None),
                TraceId::Cpu(cpu) => (None, Some(*cpu)),
            };
            let id = SampleId { task, time_ns: None, cpu };
            self.push(id, PerfEvent::Aux { offset: 0, size, flags: 0 });
        }
    }

    /// Adds an exec(2) with the new name of the thread, and forgets all mappings.
    pub(super) fn add_exec(&mut self, record: &Record, name: String) {
        let (pid, tid, id) = (record.pid, record.tid, self.id(record));
        self.push(id, PerfEvent::Comm { pid, tid, name, exec: true });
        self.of_core.clear();
        self.mapped.clear();
    }

    fn push(&mut self, id: SampleId, event: PerfEvent) {
        self.writer.add_record(&PerfRecord { offset: 0, id, event });
    }

    fn id(&self, record: &Record) -> SampleId {
        let time_ns = Some(self.clock.ns(record.tsc)).filter(|_| record.tsc > Tsc(0));
        SampleId { task: Some((record.pid, record.tid)), time_ns, cpu: None }
    }

    /// Adds perf's records for a sideband record; none for an event that perf does not have.
    pub(super) fn add_record(&mut self, record: &Record) -> Result<(), Error> {
        let (pid, tid, id) = (record.pid, record.tid, self.id(record));
        let of_cpu = |cpu| SampleId { cpu: Some(cpu), ..id };
        match &record.event {
            Event::Map { range, protection, backing } => {
                self.add_mapping(record, *range, *protection, backing)?;
            }
            Event::Code { addr, bytes } => self.add_code(record, *addr, bytes),
            Event::Exec { path } => {
                let name = path.rsplit('/').next().unwrap_or_default();
                self.add_exec(record, name.chars().take(15).collect());
            }
            Event::Comm { name } => {
                self.push(id, PerfEvent::Comm { pid, tid, name: name.clone(), exec: false });
            }
            Event::Fork { child } => {
                let child = (*child, Tid(child.0));
                self.push(id, PerfEvent::Fork { child, parent: (pid, tid) });
            }
            Event::ThreadStart => {
                if tid.0 != pid.0 {
                    let parent = (pid, Tid(pid.0));
                    self.push(id, PerfEvent::Fork { child: (pid, tid), parent });
                }
                self.push(id, PerfEvent::ItraceStart { pid, tid });
            }
            Event::ThreadExit => self.push(id, PerfEvent::Exit { pid, tid }),
            Event::SwitchIn { cpu } => {
                self.push(of_cpu(*cpu), PerfEvent::Switch { out: false, other: None });
            }
            Event::SwitchOut { cpu } => {
                self.push(of_cpu(*cpu), PerfEvent::Switch { out: true, other: None });
            }
            Event::SwitchLost { cpu } => self.push(of_cpu(*cpu), PerfEvent::Lost(1)),
            // perf has no records for the other events.
            _ => {}
        }
        Ok(())
    }

    /// Adds a mapping, and stores its file in `symfs`. For executable memory of the core file, adds
    /// its code as well ([`Self::add_core_code`]); adds the code alone if the range overlaps no
    /// code that was mapped since the last exec(2). Skips a file whose path is unknown, and memory
    /// without a file that is not executable, which perf does not need.
    fn add_mapping(
        &mut self,
        record: &Record,
        range: AddrRange,
        protection: Protection,
        backing: &Backing,
    ) -> Result<(), Error> {
        let (name, file_offset) = match backing {
            Backing::File { file, offset } => {
                let path = self.paths.get(file).cloned().unwrap_or_default();
                if path.is_empty() {
                    return Ok(());
                }
                let image = self.images.get(file).cloned();
                (self.store_file(&path, *file, image.as_ref())?, *offset)
            }
            Backing::Special { name, image } if protection.execute => {
                let is_vdso = name == "[vdso]" && image.is_some();
                let name = if is_vdso { VDSO_NAME } else { name };
                match image.as_ref().filter(|_| is_vdso) {
                    Some(image) => (self.store_file(name, FileId(u32::MAX), Some(image))?, 0),
                    None => (name.to_owned(), 0),
                }
            }
            Backing::Core if protection.execute => {
                // Code below all other mappings is known to an importer with the core file, so only
                // tools without it need the copy.
                let is_below = !self.of_core.overlaps(range) && !self.mapped.overlaps(range);
                self.of_core.insert(range);
                if is_below {
                    self.add_core_code(record, range);
                    return Ok(());
                }
                (CORE_MAP_NAME.to_owned(), 0)
            }
            Backing::Anonymous if protection.execute => (ANONYMOUS_NAME.to_owned(), 0),
            _ => return Ok(()),
        };
        if name.is_empty() {
            return Ok(());
        }
        let build_id = self.build_ids.get(&name).cloned().unwrap_or_default();
        let map = PerfMap {
            pid: record.pid,
            tid: record.tid,
            range,
            file_offset,
            writable: protection.write,
            executable: protection.execute,
            shared: protection.shared,
            build_id,
            name,
        };
        if map.executable {
            self.mapped.insert(range);
        }
        self.push(self.id(record), PerfEvent::Map(Box::new(map)));
        if matches!(backing, Backing::Core) {
            self.add_core_code(record, range);
        }
        Ok(())
    }

    /// Stores a file's image in `symfs`, unless it is there, and returns its name there; without an
    /// image returns `path`. If several files have one path, the names of the later ones include
    /// their IDs. If the image is missing or damaged, notes that in `lost`, and returns the name of
    /// a file that is not there.
    fn store_file(
        &mut self,
        path: &str,
        file: FileId,
        image: Option<&ImageId>,
    ) -> Result<String, Error> {
        let Some(image) = image else { return Ok(path.to_owned()) };
        let is_first = self.first_files.get(path).is_none_or(|first| *first == file);
        let name = if is_first { path.to_owned() } else { format!("{path}~{}", file.0) };
        if self.build_ids.contains_key(&name) {
            return Ok(name);
        }
        match self.symfs.store_image(self.reader, image, &name) {
            Ok(bytes) => {
                let elf = Elf::parse(&Bytes::new(bytes).aligned());
                let build_id = elf.ok().and_then(|elf| elf.build_id).unwrap_or_default();
                if !build_id.is_empty() {
                    self.writer.add_build_id(&BuildId { id: build_id.clone(), name: name.clone() });
                }
                self.build_ids.insert(name.clone(), build_id);
            }
            Err(Error { kind: ErrorKind::Io(error), path }) => {
                return Err(Error::new(&path, error));
            }
            Err(error) => {
                self.lost.push(error.to_string());
                self.build_ids.insert(name.clone(), Vec::new());
            }
        }
        Ok(name)
    }

    /// Adds code made at run time, as a mapping of a part of [`CODE_NAME`].
    fn add_code(&mut self, record: &Record, addr: Addr, bytes: &[u8]) {
        let range = AddrRange::sized(addr, bytes.len() as u64);
        self.mapped.insert(range);
        let map = code_map(record, range, CODE_NAME, self.code.len());
        self.code.extend_from_slice(bytes);
        self.push(self.id(record), map);
    }

    /// Adds the code that the core file contains in a range, as mappings of [`CORE_NAME`]; nothing
    /// without a core file.
    fn add_core_code(&mut self, record: &Record, range: AddrRange) {
        let Some(core) = &self.core else { return };
        let known: Vec<_> = core.memory().sections().filter_map(|part| part.cut(range)).collect();
        for part in known {
            let start = usize::try_from(part.offset).unwrap_or(usize::MAX);
            let size = usize::try_from(part.range.size_bytes()).unwrap_or(0);
            let bytes = part.bytes.get(start..).and_then(|bytes| bytes.get(..size));
            let map = code_map(record, part.range, CORE_NAME, self.core_code.len());
            self.core_code.extend_from_slice(bytes.unwrap_or_default());
            self.push(self.id(record), map);
        }
    }

    /// Stores the files [`CODE_NAME`] and [`CORE_NAME`] with the collected code in `symfs`, unless
    /// they are empty. To be called after all records are added.
    pub(super) fn store_code_files(&self) -> Result<(), Error> {
        let files = [(CODE_NAME, &self.code), (CORE_NAME, &self.core_code)];
        let mut files = files.into_iter().filter(|(_, bytes)| !bytes.is_empty());
        files.try_for_each(|(name, bytes)| self.symfs.store(name, bytes))
    }
}

/// Returns perf's mapping of code that was in no file: the part of the exported file `name` at
/// `offset`.
fn code_map(record: &Record, range: AddrRange, name: &str, offset: usize) -> PerfEvent {
    PerfEvent::Map(Box::new(PerfMap {
        pid: record.pid,
        tid: record.tid,
        range,
        file_offset: offset as u64,
        writable: false,
        executable: true,
        shared: false,
        build_id: Vec::new(),
        name: name.to_owned(),
    }))
}
