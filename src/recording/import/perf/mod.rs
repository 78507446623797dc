//! Imports of `perf record -e intel_pt//u`, with the files of the program: per thread, per CPU or
//! system-wide, in full or as snapshots. One process becomes a recording.

mod binaries;
mod code;
mod filter;
mod process;
mod streams;
mod switches;
mod tasks;

pub use code::CODE_NOT_FOUND;
pub use process::CHILDREN_LEFT_OUT;

use super::super::error::{At, Error, ErrorKind};
use super::super::format::TraceId;
use super::super::manifest::{Exit, HostCpu, Import};
use super::super::mapped::Mapped;
use super::files::ticks_per_second;
use super::imported::Imported;
use crate::common::{Addr, Pid, Tid};
use crate::image::Bytes;
use crate::image::core::Core;
use crate::pt::TscToNs;
use crate::sideband::perf_data::{AuxInfo, BadPerfData, PerfData};
use process::Process;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The inputs of an import besides the perf.data file.
#[derive(Clone, Debug, Default)]
pub struct PerfOptions {
    /// The path of the process's core file.
    pub core: Option<PathBuf>,
    /// A directory that has the program's files below it, by their paths (perf's `--symfs`).
    pub symfs: Option<PathBuf>,
    /// The path of a copy of the process's vdso.
    pub vdso: Option<PathBuf>,
    /// The process to import, if there are several.
    pub pid: Option<Pid>,
    /// True to accept files whose build IDs or contents are not those that ran.
    pub any_binary: bool,
}

impl PerfOptions {
    fn core(&self) -> Result<Option<(Bytes, Core)>, Error> {
        let Some(path) = &self.core else { return Ok(None) };
        let bytes = open(path)?;
        let core = Core::parse(&bytes);
        Ok(Some((bytes, core.map_err(|error| Error::new(path, ErrorKind::Core(error)))?)))
    }
}

fn open(path: &Path) -> Result<Bytes, Error> {
    Ok(Bytes::new(Mapped::open(path).at(path)?))
}

/// Opens a perf.data file, or the directory that `perf record --kcore` makes, and the files of the
/// program. Imports one process: the one in `options`, else that of the core file, else the only
/// one that was traced. Fails if the trace is in several files (`perf record --threads`), is empty
/// or includes the kernel, if a file is not the one that ran, or if the core file is of another
/// process.
pub fn open_perf(path: &Path, options: &PerfOptions) -> Result<Imported, Error> {
    let path = &if path.is_dir() { path.join("data") } else { path.to_owned() };
    // With `--threads`, perf writes the trace to `data.0`, `data.1` and so on, which are not read.
    if path.ends_with("data") && path.with_extension("0").exists() {
        return Err(Error::new(path, ErrorKind::PerfDirectory));
    }
    let file = Arc::new(Mapped::open(path).at(path)?);
    let refused = |kind| Error::new(path, kind);
    let bad = |bad: BadPerfData| refused(ErrorKind::PerfData(bad));
    let data = PerfData::parse((*file).as_ref()).map_err(bad)?;
    let info = data.aux_info.clone().ok_or_else(|| refused(ErrorKind::NoIntelPt))?;
    let config = check_events(&data, &info).map_err(refused)?;
    let core = options.core()?;
    let contents = core.as_ref().map(|(_, core)| &core.contents);
    let of_core = contents.map(|core| core.process.pid).filter(|pid| pid.0 > 0);
    let process = Process::choose(&data, &info, options.pid.or(of_core)).map_err(refused)?;
    if let Some(of_core) = of_core.filter(|of_core| *of_core != process.pid) {
        return Err(refused(ErrorKind::OtherCore { of_core, process: process.pid }));
    }
    let clock = info.clock.map(|clock| TscToNs {
        zero_ns: clock.zero_ns,
        multiplier: clock.multiplier,
        shift: clock.shift,
    });
    let traces = streams::traces(&data, &info, &process, &file).map_err(refused)?;
    if traces.iter().all(|(_, bytes)| bytes.size_bytes() == 0) {
        return Err(refused(ErrorKind::NoTrace));
    }
    let of_cpus = traces.iter().any(|(id, _)| matches!(id, TraceId::Cpu(_)));
    if of_cpus {
        switches::check(&data, &info).map_err(refused)?;
    }
    let switches = switches::switches(&data, &process, clock, &traces);
    let mut notes = process.notes(&data);
    let sources = code::CodeSources { options, core: core.as_ref().map(|(_, core)| core), clock };
    let (history, program) = code::history(&data, &process, &sources, &mut notes)?;
    let mut threads = process.threads.clone();
    let mut known_threads = threads.iter().copied().collect();
    for thread in contents.iter().flat_map(|core| &core.threads) {
        note_thread(&mut threads, &mut known_threads, thread.tid);
    }
    let final_pcs = contents.iter().flat_map(|core| &core.threads);
    let final_pcs = final_pcs.map(|thread| (thread.tid, Addr(thread.registers.rip)));
    let signal = contents.map(|core| core.signal).filter(|signal| *signal > 0);
    let source = path.to_string_lossy().into_owned();
    Ok(Imported {
        program: program.unwrap_or_else(|| source.clone()),
        pid: process.pid,
        threads,
        traces,
        switches,
        history,
        final_pcs: final_pcs.collect(),
        exit: signal.map(Exit::Signal),
        cpu: data.cpuid.as_deref().and_then(host_cpu),
        import: Import {
            kind: "perf.data".to_owned(),
            source,
            filter: filter::ranges(&info.filter, &data, &process),
            mtc_freq: info.mtc_freq(config),
            cpuid_15: Some(info.tsc_ctc_ratio).filter(|(_, eax)| *eax > 0),
            nominal_ratio: u8::try_from(info.max_nonturbo_ratio).ok().filter(|ratio| *ratio > 0),
            traced: if of_cpus { tasks::traced_tasks(&data) } else { None },
        },
        ticks_per_second: clock.map(ticks_per_second),
        core: core.map(|(bytes, _)| bytes),
        notes,
        ..Imported::default()
    })
}

/// Returns the `config` of the first Intel PT event. Fails if there is none, or if one includes the
/// kernel.
fn check_events(data: &PerfData, info: &AuxInfo) -> Result<u64, ErrorKind> {
    let mut events = data.attrs.iter().filter(|attr| attr.pmu == info.pmu);
    let first = events.next().ok_or(ErrorKind::NoIntelPt)?;
    if !first.excludes_kernel() || events.any(|attr| !attr.excludes_kernel()) {
        return Err(ErrorKind::TracesKernel);
    }
    Ok(first.config)
}

/// Parses perf's `cpuid` string: vendor, family, model, stepping, and fields that are ignored.
/// Returns `None` for other strings.
fn host_cpu(cpuid: &str) -> Option<HostCpu> {
    let mut fields = cpuid.split(',');
    let vendor = fields.next()?.to_owned();
    let mut number = || fields.next()?.parse().ok();
    Some(HostCpu { vendor, family: number()?, model: number()?, stepping: number()? })
}

/// Appends a thread to `threads` unless it is in `known`, or has no positive ID.
fn note_thread(threads: &mut Vec<Tid>, known: &mut std::collections::HashSet<Tid>, tid: Tid) {
    if tid.0 > 0 && known.insert(tid) {
        threads.push(tid);
    }
}

#[cfg(test)]
mod tests;
