//! A recording as perf.data, for perf's own decoder and all that is built on perf. The code that
//! ran goes into a directory beside it, for `--symfs`: a recording has its own copies of files, the
//! vdso of another boot, and code that never was in a file.

use super::super::error::{At, Error, ErrorKind};
use super::super::format::TraceId;
use super::super::manifest::Manifest;
use super::super::reader::{Reader, Trace};
use super::symfs::Symfs;
use super::taken::{PMU, clock, how};
use super::{CODE_NAME, VDSO_NAME};
use crate::common::{Addr, AddrRange, Pid, Tid, Tsc};
use crate::image::Bytes;
use crate::image::core::Core;
use crate::image::elf::Elf;
use crate::pt::TscToNs;
use crate::sideband::perf_data::{
    AuxTrace, BuildId, PerfEvent, PerfMap, PerfRecord, PerfWriter, SampleId,
};
use crate::sideband::{Backing, Event, FileId, ImageId, Protection, Record};
use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

/// What was written.
#[derive(Clone, Debug)]
pub struct ExportedPerf {
    /// The directory for `--symfs`.
    pub symfs: PathBuf,
    /// Bytes of trace.
    pub trace_bytes: u64,
    /// Images that are gone or damaged: their code is missing.
    pub lost: Vec<String>,
}

/// Writes a recording into `out`, and the code that ran into `out` with `.symfs` behind it. Neither
/// must be there yet; with `replace`, both are removed first.
pub fn export_perf(reader: &Reader, out: &Path, replace: bool) -> Result<ExportedPerf, Error> {
    let mut name = out.as_os_str().to_owned();
    name.push(".symfs");
    let root = PathBuf::from(name);
    if replace {
        remove(out, &root)?;
    }
    let file = match File::create_new(out) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            return Err(Error::new(out, ErrorKind::InTheWay));
        }
        result => result.at(out)?,
    };
    let exported = write(reader, out, file, root);
    if exported.is_err() {
        // What is half written is no use. The fault is told already.
        let _ = fs::remove_file(out);
    }
    exported
}

/// Removes an export, and nothing that was none.
fn remove(out: &Path, root: &Path) -> Result<(), Error> {
    if let Ok(metadata) = fs::symlink_metadata(out) {
        if !metadata.is_file() {
            return Err(Error::new(out, ErrorKind::InTheWay));
        }
        fs::remove_file(out).at(out)?;
    }
    if root.join(MARK).is_file() {
        fs::remove_dir_all(root).at(root)?;
    }
    Ok(())
}

/// A file by which a directory of ours is known.
const MARK: &str = ".contraflow";

fn write(reader: &Reader, out: &Path, file: File, root: PathBuf) -> Result<ExportedPerf, Error> {
    let records = reader.sideband()?;
    let ids = reader.traces()?;
    let traces = ids.iter().map(|id| reader.trace(*id)).collect::<Result<Vec<_>, _>>()?;
    let symfs = Symfs::create(root)?;
    symfs.store(MARK, b"made by contraflow export\n")?;
    let mut telling = Telling::new(reader, &symfs, &records, &ids)?;
    let starts = |record: &Record| (record.event == Event::ThreadStart).then_some(record.tid);
    let born = records.iter().filter_map(starts).collect();
    telling.threads(reader.manifest(), &ids, &traces, &born);
    for record in &records {
        telling.record(record)?;
    }
    telling.code_file()?;
    // perf finds no times without one to begin with; 0 is none.
    let reference = records.iter().map(|record| record.tsc.0).max().unwrap_or(0).max(1);
    let pieces = ids.iter().zip(&traces).zip(0..);
    let pieces: Vec<_> =
        pieces.map(|((id, trace), index)| area(*id, trace, index, reference)).collect();
    let mut file = BufWriter::new(file);
    telling.writer.write(&pieces, &mut file).and_then(|()| file.flush()).at(out)?;
    Ok(ExportedPerf {
        trace_bytes: traces.iter().map(|trace| trace.as_ref().len() as u64).sum(),
        lost: telling.lost,
        symfs: symfs.root().to_owned(),
    })
}

/// A whole trace as the piece of an AUX area.
fn area(id: TraceId, trace: &Trace, index: u32, reference: u64) -> (AuxTrace, &[u8]) {
    let (tid, cpu) = match id {
        TraceId::Thread(tid) => (Some(tid), None),
        TraceId::Cpu(cpu) => (None, Some(cpu)),
    };
    let bytes = trace.as_ref();
    let piece = AuxTrace {
        record_offset: 0,
        start: 0,
        size_bytes: bytes.len(),
        stream_offset: 0,
        reference,
        index,
        tid,
        cpu,
    };
    (piece, bytes)
}

struct Telling<'a> {
    reader: &'a Reader,
    symfs: &'a Symfs,
    writer: PerfWriter,
    clock: TscToNs,
    pid: Pid,
    /// The path and the stored content of each file.
    paths: HashMap<FileId, String>,
    images: HashMap<FileId, ImageId>,
    /// The build ids of what is stored in the directory, by path.
    stored: HashMap<String, Vec<u8>>,
    /// The code that has no file.
    code: Vec<u8>,
    core: Option<Core>,
    lost: Vec<String>,
}

impl<'a> Telling<'a> {
    fn new(
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
        let (info, config) = how(manifest, clock, of_cpus);
        writer.intel_pt_events(PMU, config);
        writer.aux_info(&info);
        let (mut paths, mut images) = (HashMap::new(), HashMap::new());
        let mut needs_core = false;
        for record in records {
            match &record.event {
                Event::File { file, path } => drop(paths.insert(*file, path.clone())),
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
            stored: HashMap::new(),
            code: Vec::new(),
            core,
            lost: Vec::new(),
        })
    }

    /// Who the threads are, but for those that are `born` later, and how much trace there is,
    /// before anything happens.
    fn threads(
        &mut self,
        manifest: &Manifest,
        ids: &[TraceId],
        traces: &[Trace],
        born: &HashSet<Tid>,
    ) {
        let pid = self.pid;
        for thread in manifest.end.iter().flat_map(|end| &end.threads) {
            let (tid, id) = (thread.tid, SampleId::default());
            if tid.0 != pid.0 && !born.contains(&tid) {
                let event = PerfEvent::Fork { child: (pid, tid), parent: (pid, Tid(pid.0)) };
                self.push(id, event);
            }
            if !thread.name.is_empty() {
                let name = thread.name.clone();
                self.push(id, PerfEvent::Comm { pid, tid, name, exec: false });
            }
        }
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

    fn push(&mut self, id: SampleId, event: PerfEvent) {
        self.writer.record(&PerfRecord { offset: 0, id, event });
    }

    fn id(&self, record: &Record) -> SampleId {
        let time_ns = Some(self.clock.ns(record.tsc)).filter(|_| record.tsc > Tsc(0));
        SampleId { task: Some((record.pid, record.tid)), time_ns, cpu: None }
    }

    fn record(&mut self, record: &Record) -> Result<(), Error> {
        let (pid, tid, id) = (record.pid, record.tid, self.id(record));
        let of_cpu = |cpu| SampleId { cpu: Some(cpu), ..id };
        match &record.event {
            Event::Map { range, protection, backing } => {
                self.map(record, *range, *protection, backing)?;
            }
            Event::Code { addr, bytes } => self.code(record, *addr, bytes),
            Event::Exec { path } => {
                let name = path.rsplit('/').next().unwrap_or_default();
                let name = name.chars().take(15).collect();
                self.push(id, PerfEvent::Comm { pid, tid, name, exec: true });
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
            // Nothing of perf's tells of these.
            _ => {}
        }
        Ok(())
    }

    fn map(
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
                (self.stored_as(&path, *file, image.as_ref())?, *offset)
            }
            Backing::Special { name, image } if protection.execute => {
                let is_vdso = name == "[vdso]" && image.is_some();
                let name = if is_vdso { VDSO_NAME } else { name };
                match image.as_ref().filter(|_| is_vdso) {
                    Some(image) => (self.stored_as(name, FileId(u32::MAX), Some(image))?, 0),
                    None => (name.to_owned(), 0),
                }
            }
            Backing::Anonymous | Backing::Core if protection.execute => ("//anon".to_owned(), 0),
            _ => return Ok(()),
        };
        if name.is_empty() {
            return Ok(());
        }
        let build_id = self.stored.get(&name).cloned().unwrap_or_default();
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
        self.push(self.id(record), PerfEvent::Map(Box::new(map)));
        if matches!(backing, Backing::Core) {
            self.of_core(record, range);
        }
        Ok(())
    }

    /// The name of a file whose image is in the directory from now on. Of several files with one
    /// path, the later ones go by their numbers, too.
    fn stored_as(
        &mut self,
        path: &str,
        file: FileId,
        image: Option<&ImageId>,
    ) -> Result<String, Error> {
        let Some(image) = image else { return Ok(path.to_owned()) };
        let first = self.paths.iter().filter(|(_, other)| *other == path).map(|(file, _)| *file);
        let is_first = first.min().is_none_or(|first| first == file);
        let name = if is_first { path.to_owned() } else { format!("{path}~{}", file.0) };
        if self.stored.contains_key(&name) {
            return Ok(name);
        }
        match self.symfs.image(self.reader, image, &name) {
            Ok(bytes) => {
                let elf = Elf::parse(&Bytes::new(bytes).aligned());
                let build_id = elf.ok().and_then(|elf| elf.build_id).unwrap_or_default();
                if !build_id.is_empty() {
                    self.writer.build_id(&BuildId { id: build_id.clone(), name: name.clone() });
                }
                self.stored.insert(name.clone(), build_id);
            }
            Err(Error { kind: ErrorKind::Io(error), path }) => {
                return Err(Error::new(&path, error));
            }
            Err(error) => {
                self.lost.push(error.to_string());
                self.stored.insert(name.clone(), Vec::new());
            }
        }
        Ok(name)
    }

    /// Code that was made at run time, mapped from a file that it never was in.
    fn code(&mut self, record: &Record, addr: Addr, bytes: &[u8]) {
        let map = PerfMap {
            pid: record.pid,
            tid: record.tid,
            range: AddrRange::sized(addr, bytes.len() as u64),
            file_offset: self.code.len() as u64,
            writable: false,
            executable: true,
            shared: false,
            build_id: Vec::new(),
            name: CODE_NAME.to_owned(),
        };
        self.code.extend_from_slice(bytes);
        self.push(self.id(record), PerfEvent::Map(Box::new(map)));
    }

    /// What a core holds in a range.
    fn of_core(&mut self, record: &Record, range: AddrRange) {
        let Some(core) = &self.core else { return };
        let known: Vec<_> = core.memory().sections().filter_map(|part| part.cut(range)).collect();
        for part in known {
            let start = usize::try_from(part.offset).unwrap_or(usize::MAX);
            let size = usize::try_from(part.range.size_bytes()).unwrap_or(0);
            let bytes = part.bytes.get(start..).and_then(|bytes| bytes.get(..size));
            self.code(record, part.range.start, bytes.unwrap_or_default());
        }
    }

    fn code_file(&self) -> Result<(), Error> {
        if self.code.is_empty() { Ok(()) } else { self.symfs.store(CODE_NAME, &self.code) }
    }
}
