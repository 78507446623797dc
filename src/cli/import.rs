//! `contraflow import`: converts a trace of a CPU's PT unit to a recording.

use super::progress::Bar;
use super::raw::{self, full_path};
use super::raw_arguments::Raw;
use super::record::{recording_argument, size_text};
use super::remedies::note_with_remedy;
use super::{Failure, arguments, count_text, say};
use crate::common::{Addr, Pid, Tid};
use crate::image::elf::{Elf, FileType};
use crate::pt::CrystalRatio;
use crate::recording::import::{Imported, MappedCode, PerfOptions, Totals, open_bundle, open_perf};
use crate::recording::{Destination, Exit, HostCpu, Import, Manifest, Reader, Store, TraceId};
use crate::sideband::perf_data::is_perf_data;
use crate::timeline::{Options, Timeline};
use std::path::Path;
use std::process::ExitCode;

/// Imports a trace. If it cannot be written, restores the recording that was to be replaced. A
/// recording in the store becomes its latest.
pub(super) fn run(arguments: &arguments::Import) -> Result<ExitCode, Failure> {
    let imported = match (&arguments.trace, &arguments.raw.pt) {
        (Some(trace), _) => arguments.open_trace(trace)?,
        (None, Some(pt)) => arguments.raw.open_raw_trace(pt, arguments.quiet)?,
        (None, None) => {
            return Err("give perf.data, an LLDB trace bundle, or a raw trace with --pt".into());
        }
    };
    for note in imported.notes.iter().filter(|_| !arguments.quiet) {
        say(&note_with_remedy(note));
    }
    let store = Store::of_user();
    let destination = match &arguments.output {
        Some(dir) => Destination::named(dir, arguments.force)?,
        None => Destination::in_store(&store, Path::new(&imported.program))?,
    };
    let dir = destination.dir().to_owned();
    let (manifest, gaps) = match write(&imported, &dir, arguments.quiet) {
        Ok(written) => written,
        Err(failure) => {
            destination.roll_back();
            return Err(failure);
        }
    };
    destination.remove_replaced()?;
    store.set_latest(&dir)?;
    if !arguments.quiet {
        print_import(&imported, &manifest, gaps, &dir, &store);
    }
    Ok(ExitCode::SUCCESS)
}

impl arguments::Import {
    /// Opens perf.data or an LLDB trace bundle, whichever it is. Fails if an option of perf.data is
    /// given with a bundle.
    fn open_trace(&self, trace: &Path) -> Result<Imported, Failure> {
        if is_perf_trace(trace)? {
            let with = PerfOptions {
                core: self.raw.core.clone(),
                symfs: self.symfs.clone(),
                vdso: self.vdso.clone(),
                pid: self.pid.map(Pid),
                any_binary: self.any_binary,
            };
            return Ok(open_perf(trace, &with)?);
        }
        let of_perf = [
            ("--core", self.raw.core.is_some()),
            ("--symfs", self.symfs.is_some()),
            ("--vdso", self.vdso.is_some()),
            ("--pid", self.pid.is_some()),
            ("--any-binary", self.any_binary),
        ];
        if let Some((option, _)) = of_perf.iter().find(|(_, given)| *given) {
            let trace = trace.display();
            return Err(format!("{option} requires perf.data, which {trace} is not").into());
        }
        Ok(open_bundle(trace)?)
    }
}

/// Returns true if a path is perf.data, by its first bytes, or a directory of perf: with a file
/// `data`, and without LLDB's `trace.json`. Returns false for any other file; fails if it cannot be
/// read.
fn is_perf_trace(path: &Path) -> Result<bool, Failure> {
    if path.is_dir() {
        return Ok(path.join("data").is_file() && !path.join("trace.json").exists());
    }
    Ok(is_perf_data(raw::map_file(path)?.as_ref()))
}

/// Writes the recording and its index to `dir`, with progress unless `quiet`; returns the manifest
/// and the number of gaps. Prints messages about threads whose trace ends before the state of the
/// core file, also if `quiet`.
fn write(imported: &Imported, dir: &Path, quiet: bool) -> Result<(Manifest, usize), Failure> {
    imported.write(dir)?;
    let mut bar = if quiet { Bar::hidden() } else { Bar::new("indexing") };
    let watch = &mut |progress| bar.show(progress);
    let timeline = Timeline::open_with_progress(Reader::open(dir)?, Options::default(), watch)?;
    drop(bar);
    let instructions = timeline.threads().map(|tid| (tid, timeline.instructions(tid))).collect();
    let totals = Totals { instructions, times: timeline.times() };
    let manifest = timeline.reader().note_totals(&totals)?;
    timeline.save_index()?;
    for (tid, stood) in &imported.final_pcs {
        if let Some(ended) = timeline.path_end(*tid).filter(|ended| ended != stood) {
            say(&format!(
                "thread {tid}: the trace ends at {ended}, but the core is of a state at {stood}: \
                 the instructions in between are unknown"
            ));
        }
    }
    let gaps = timeline.threads().map(|tid| timeline.gaps(tid).len()).sum();
    Ok((manifest, gaps))
}

/// Prints the facts of a finished import; nothing if its manifest has no end.
fn print_import(imported: &Imported, manifest: &Manifest, gaps: usize, dir: &Path, store: &Store) {
    let Some(end) = &manifest.end else { return };
    let bytes: u64 = imported.traces.iter().map(|(_, bytes)| bytes.size_bytes()).sum();
    say(&format!(
        "{} imported: {} instructions ({}, {}, {} of trace)",
        imported.import.source,
        end.instructions,
        count_text(end.threads.len() as u64, "thread"),
        count_text(gaps as u64, "gap"),
        size_text(bytes),
    ));
    say(&format!("recorded in {}", dir.display()));
    say(&format!("step through it with: contraflow replay{}", recording_argument(dir, store)));
}

impl Raw {
    /// Returns the raw trace in `pt` with the facts from the command line. Its thread is the first
    /// one of the core file, or has the ID 1. Prints a message if errata cannot be worked around,
    /// unless `quiet`. Fails if the trace is empty.
    fn open_raw_trace(&self, pt: &Path, quiet: bool) -> Result<Imported, Failure> {
        let trace = raw::map_file(pt)?;
        if trace.as_ref().is_empty() {
            return Err(format!("{}: empty", pt.display()).into());
        }
        let core = self.core()?;
        let contents = core.as_ref().map(|(_, core)| &core.contents);
        let first = contents.and_then(|contents| contents.threads.first());
        let tid = first.map(|thread| thread.tid).filter(|tid| tid.0 > 0).unwrap_or(Tid(1));
        let pid = contents.map(|contents| contents.process.pid).filter(|pid| pid.0 > 0);
        let final_pcs = first.map(|thread| (tid, Addr(thread.registers.rip)));
        let signal = contents.map(|contents| contents.signal).filter(|signal| *signal > 0);
        let memory = core.iter().flat_map(|(_, core)| core.memory().sections());
        let memory = memory.cloned().map(MappedCode::Core);
        let nominal_hz =
            self.nom_freq.filter(|ratio| *ratio > 0).map(|ratio| f64::from(ratio) * 1e8);
        if !quiet {
            self.report_errata();
        }
        let filter = self.filter_range.iter().map(|filter| filter.0).collect();
        Ok(Imported {
            program: self.program(pt)?,
            pid: pid.unwrap_or(Pid(tid.0)),
            threads: vec![tid],
            traces: vec![(TraceId::Thread(tid), trace.into())],
            code: memory.chain(self.file_sections()?.into_iter().map(MappedCode::File)).collect(),
            final_pcs: final_pcs.into_iter().collect(),
            exit: signal.map(Exit::Signal),
            cpu: self.cpu.map(|cpu| HostCpu {
                vendor: "GenuineIntel".to_owned(),
                family: cpu.family.into(),
                model: cpu.model.into(),
                stepping: cpu.stepping.into(),
            }),
            import: Import {
                traced: None,
                kind: "raw trace".to_owned(),
                source: full_path(pt),
                filter,
                mtc_freq: self.mtc_freq,
                cpuid_15: self.cpuid_15.map(|crystal| {
                    let CrystalRatio { ebx, eax } = crystal.0;
                    (ebx, eax)
                }),
                nominal_ratio: self.nom_freq,
            },
            ticks_per_second: nominal_hz,
            core: core.map(|(bytes, _)| bytes),
            ..Imported::default()
        })
    }

    /// Returns the path of the program: the first ELF file that can be one, else the first one or
    /// the trace. Fails if one of the files that it tries cannot be read.
    fn program(&self, pt: &Path) -> Result<String, Failure> {
        for elf in &self.elf {
            let parsed = Elf::parse(&raw::open_bytes(&elf.path)?);
            if parsed.is_ok_and(|elf| elf.is_pie || elf.file_type == FileType::Executable) {
                return Ok(full_path(&elf.path));
            }
        }
        Ok(full_path(self.elf.first().map_or(pt, |elf| &elf.path)))
    }
}
