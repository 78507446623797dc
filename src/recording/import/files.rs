//! The files of an LLDB trace bundle. Traces must be in the bundle's own directory; modules may be
//! anywhere, as in LLDB.

use super::super::error::{At, Error, ErrorKind};
use super::super::format::TraceId;
use super::super::manifest::Import;
use super::super::mapped::Mapped;
use super::bundle::{Bundle, Module};
use super::imported::{CpuSwitch, Imported, MappedCode};
use super::trace_bytes::TraceBytes;
use crate::common::Tid;
use crate::image::elf::{Elf, FileType, load_at};
use crate::image::{Bytes, Section};
use crate::pt::TscToNs;
use crate::sideband::{SwitchKind, perf_switches};
use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The maximum size of a bundle's description, in bytes.
const DESCRIPTION_LIMIT_BYTES: u64 = 64 << 20;

/// Opens a bundle, given the path of its description, or of its directory with `trace.json`. Parses
/// the description, and maps and checks the files that it names. Fails if all traces are empty.
pub fn open_bundle(path: &Path) -> Result<Imported, Error> {
    let path = if path.is_dir() { path.join("trace.json") } else { path.to_owned() };
    let description = open(&path)?;
    if description.len() as u64 > DESCRIPTION_LIMIT_BYTES {
        return Err(Error::new(&path, ErrorKind::TooLarge { limit: DESCRIPTION_LIMIT_BYTES }));
    }
    let bundle = Bundle::parse(&description);
    let bundle = bundle.map_err(|bad| Error::new(&path, ErrorKind::Bundle(bad)))?;
    let dir =
        fs::canonicalize(path.parent().unwrap_or(Path::new(""))).or_else(|_| fs::canonicalize("."));
    Opening { dir: dir.at(&path)?, path, bundle }.imported()
}

fn open(path: &Path) -> Result<Bytes, Error> {
    Ok(Bytes::new(Mapped::open(path).at(path)?))
}

/// A bundle whose files are to be opened.
struct Opening {
    /// The path of the description.
    path: PathBuf,
    /// The directory of the description.
    dir: PathBuf,
    bundle: Bundle,
}

impl Opening {
    /// Opens the traces, switches and modules, and returns them as an imported trace. Its program
    /// is the first module that is executable, else the first one, else the description.
    fn imported(&self) -> Result<Imported, Error> {
        let bundle = &self.bundle;
        let mut traces = Vec::new();
        let mut switches = Vec::new();
        for thread in &bundle.threads {
            let trace = thread.trace.as_ref().map(|trace| self.map_inside(trace)).transpose()?;
            if bundle.cpus.is_empty() {
                let trace = trace.unwrap_or_else(|| Mapped::from(Vec::new()));
                traces.push((TraceId::Thread(thread.tid), TraceBytes::from(trace)));
            }
        }
        for cpu in &bundle.cpus {
            traces.push((TraceId::Cpu(cpu.id), self.map_inside(&cpu.trace)?.into()));
            switches.extend(self.switches(cpu.id, &cpu.switches)?);
        }
        if traces.iter().all(|(_, bytes)| bytes.size_bytes() == 0) {
            return Err(Error::new(&self.path, ErrorKind::NoTrace));
        }
        self.check_threads(&switches)?;
        let modules = bundle.modules.iter().map(|module| self.module(module));
        let modules: Vec<_> = modules.collect::<Result<_, _>>()?;
        let main = modules.iter().find(|module| module.is_program).or(modules.first());
        let source = self.path.to_string_lossy().into_owned();
        Ok(Imported {
            program: main.map_or_else(|| source.clone(), |main| main.path.clone()),
            pid: bundle.pid,
            threads: bundle.threads.iter().map(|thread| thread.tid).collect(),
            traces,
            switches,
            code: modules
                .into_iter()
                .flat_map(|module| module.sections)
                .map(MappedCode::File)
                .collect(),
            cpu: Some(bundle.cpu.clone()),
            import: Import { kind: "LLDB trace bundle".to_owned(), source, ..Import::default() },
            ticks_per_second: bundle.clock.map(ticks_per_second),
            ..Imported::default()
        })
    }

    /// Opens a file of the bundle. Fails if it is not in the bundle's directory, links followed.
    fn inside(&self, name: &str) -> Result<Bytes, Error> {
        Ok(Bytes::new(self.map_inside(name)?))
    }

    /// Maps a file of the bundle. Fails if it is not in the bundle's directory, links followed.
    fn map_inside(&self, name: &str) -> Result<Mapped, Error> {
        let path = self.dir.join(name);
        let real = fs::canonicalize(&path).at(&path)?;
        if !real.starts_with(&self.dir) {
            return Err(Error::new(&path, ErrorKind::OutsideBundle));
        }
        Mapped::open(&real).at(&real)
    }

    /// Reads the context switches of a CPU from a file of the bundle's directory. Fails if it is
    /// malformed. None if the bundle has no clock for their times; the file is read even then.
    fn switches(&self, cpu: u32, name: &str) -> Result<Vec<CpuSwitch>, Error> {
        let bytes = self.inside(name)?;
        let switches = perf_switches(&bytes);
        let switches =
            switches.map_err(|bad| Error::new(&self.dir.join(name), ErrorKind::Switches(bad)))?;
        let Some(clock) = self.bundle.clock else { return Ok(Vec::new()) };
        let switch = |switch: crate::sideband::Switch| CpuSwitch {
            cpu,
            tsc: clock.tsc(switch.time_ns),
            kind: switch.kind,
        };
        Ok(switches.into_iter().map(switch).collect())
    }

    /// Rejects switches of threads of the process that the bundle does not list: the instructions
    /// that they executed would belong to no thread.
    fn check_threads(&self, switches: &[CpuSwitch]) -> Result<(), Error> {
        let listed: HashSet<Tid> = self.bundle.threads.iter().map(|thread| thread.tid).collect();
        let stranger = switches.iter().find_map(|switch| match switch.kind {
            SwitchKind::In(pid, tid) | SwitchKind::Out(pid, tid) => {
                (pid == self.bundle.pid && !listed.contains(&tid)).then_some(tid)
            }
            SwitchKind::Lost => None,
        });
        match stranger {
            Some(tid) => Err(Error::new(&self.path, ErrorKind::ThreadNotListed(tid))),
            None => Ok(()),
        }
    }

    /// Opens a module and loads its sections at its address. Fails if its build ID has the length
    /// of the one that the bundle lists, and is another one.
    fn module(&self, module: &Module) -> Result<Loaded, Error> {
        let path = self.dir.join(&module.file);
        let bytes = open(&path)?;
        let refused =
            |error| Error::new(&self.path, ErrorKind::Module { path: path.clone(), error });
        let elf = Elf::parse(&bytes).map_err(refused)?;
        if let (Some(wanted), Some(found)) = (&module.build_id, &elf.build_id)
            && !wanted.is_empty()
            && wanted.len() == found.len()
            && wanted != found
        {
            return Err(Error::new(&path, ErrorKind::OtherModule));
        }
        // gdb requests files by absolute paths.
        let name = if module.system_path.starts_with('/') {
            module.system_path.clone()
        } else {
            fs::canonicalize(&path).at(&path)?.to_string_lossy().into_owned()
        };
        let sections = load_at(&bytes, Some(module.addr), &name).map_err(refused)?;
        let is_program = elf.file_type == FileType::Executable || elf.is_pie;
        Ok(Loaded { path: name, is_program, sections })
    }
}

/// A module that was opened.
struct Loaded {
    /// The absolute path on the traced machine, else that of the opened file.
    path: String,
    /// True if it is executable, and not a library.
    is_program: bool,
    sections: Vec<Section>,
}

#[expect(clippy::cast_precision_loss, reason = "a rate, good to fewer digits")]
pub(super) fn ticks_per_second(clock: TscToNs) -> f64 {
    (1_u64 << clock.shift) as f64 * 1e9 / f64::from(clock.multiplier.max(1))
}
