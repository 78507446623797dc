//! The memory of a process over time: its mappings of code, and the events of its threads.
//!
//! [`history`] takes perf's records in order of time. A mapping of executable memory, by the
//! process or by the owner of its memory before ([`Process::records`]), becomes an event with the
//! code that was found for it: of a file, the vdso, or the core file. perf reports an exec(2) with
//! the thread's new name only; the next mapping of a file shows the path. A core file has the
//! memory of the last program, so it counts from the last exec(2) on, and all later mappings lie
//! over it.

use super::super::super::error::{Error, ErrorKind};
use super::super::super::export::{ANONYMOUS_NAME, CODE_NAME, CORE_MAP_NAME, CORE_NAME, VDSO_NAME};
use super::super::imported::{ImportedEvent, ImportedEventKind, MappedCode};
use super::PerfOptions;
use super::binaries::Binaries;
use super::process::Process;
use crate::common::{Addr, Tid, Tsc};
use crate::image::Floors;
use crate::image::core::Core;
use crate::image::{Bytes, PAGE_SIZE_BYTES, Section};
use crate::pt::TscToNs;
use crate::sideband::Event;
use crate::sideband::perf_data::{PerfData, PerfEvent, PerfMap, PerfRecord};
use std::collections::{HashMap, HashSet};
use std::path::Path;

/// The sources of code besides the records of perf.data, and the clock of their times.
pub(super) struct CodeSources<'a> {
    pub(super) options: &'a PerfOptions,
    /// The core file, if the user gave one.
    pub(super) core: Option<&'a Core>,
    /// `None` if it is unknown: all events then have the time 0.
    pub(super) clock: Option<TscToNs>,
}

/// Returns the events of the process, in order of time, and the path of its program, if it is
/// known. Among them are the mappings of code, with the code of the files that were found. Adds
/// notes about files that were not.
pub(super) fn history(
    data: &PerfData,
    process: &Process,
    sources: &CodeSources<'_>,
    notes: &mut Vec<String>,
) -> Result<(Vec<ImportedEvent>, Option<String>), Error> {
    let is_exec = |record: &PerfRecord| matches!(&record.event, PerfEvent::Comm { pid, exec: true, .. } if *pid == process.pid);
    // The memory of the core file is the last program's: it counts from the last exec(2) on.
    let last_exec = process.records(data).filter(|(_, record)| is_exec(record)).last();
    let last_exec = last_exec.map(|(_, record)| record);
    let mut history = HistoryBuilder {
        process,
        sources,
        notes,
        threads: process.threads.iter().copied().collect(),
        binaries: Binaries::new(sources.options, &data.build_ids),
        files: HashMap::new(),
        reported: Vec::new(),
        floors: Floors::default(),
        comparable_bytes: COMPARED_LIMIT_BYTES,
        missing_files: 0,
        has_core: false,
        code_bytes: HashMap::new(),
    };
    if last_exec.is_none() {
        history.add_core(Tsc(0), Tid(process.pid.0));
    }
    let mut program = None;
    // perf reports an exec(2) with the thread's new name only; the next mapping of a file shows the
    // path. This is the index in `reported` of the last exec(2), until its file is mapped.
    let mut executed: Option<usize> = None;
    for (owner, record) in process.records(data) {
        let tsc = record.id.time_ns.zip(sources.clock).map_or(Tsc(0), |(ns, clock)| clock.tsc(ns));
        if let PerfEvent::Map(map) = &record.event
            && map.pid == owner
        {
            // A name with brackets is that of an exported file without a path, such as `/[code]`.
            let is_program = map.executable && is_file(&map.name) && !map.name.contains('[');
            if is_program && (executed.is_some() || program.is_none()) {
                program = Some(map.name.clone());
                if let Some(ImportedEvent {
                    kind: ImportedEventKind::Sideband(Event::Exec { path }),
                    ..
                }) = executed.take().and_then(|place| history.reported.get_mut(place))
                {
                    path.clone_from(&map.name);
                }
            }
            history.add_mapping(tsc, map)?;
        } else if let Some((tid, event)) = thread_event(process, record) {
            let mut tsc = tsc;
            if matches!(event, Event::Exec { .. }) {
                tsc = history.floors.exec(tsc);
                executed = Some(history.reported.len());
            }
            history.reported.push(ImportedEvent {
                tsc,
                tid,
                kind: ImportedEventKind::Sideband(event),
            });
            if let PerfEvent::Comm { name, exec: true, .. } = &record.event {
                let kind = ImportedEventKind::Sideband(Event::Comm { name: name.clone() });
                history.reported.push(ImportedEvent { tsc, tid, kind });
            }
            if last_exec.is_some_and(|last| std::ptr::eq(last, record)) {
                // Later mappings lie over the memory of the core file.
                history.add_core(tsc, tid);
            }
        }
    }
    let HistoryBuilder { reported, missing_files, .. } = history;
    if missing_files > NAMED_LIMIT {
        notes.push(format!("{} more files were not found", missing_files - NAMED_LIMIT));
    }
    Ok((reported, program))
}

/// Returns the exec, name, fork, start or end that a record reports, with its thread; `None` for
/// other records and other processes. The path of an exec is the thread's name: perf has no other
/// before the file is mapped.
fn thread_event(process: &Process, record: &PerfRecord) -> Option<(Tid, Event)> {
    let own = process.pid;
    match &record.event {
        PerfEvent::Comm { pid, tid, name, exec } if *pid == own => {
            let (path, name) = (name.clone(), name.clone());
            let event = if *exec { Event::Exec { path } } else { Event::Comm { name } };
            Some((*tid, event))
        }
        PerfEvent::Fork { child, parent } if child.0 == own && parent.0 == own => {
            Some((child.1, Event::ThreadStart))
        }
        PerfEvent::Fork { child, parent } if parent.0 == own => {
            Some((parent.1, Event::Fork { child: child.0 }))
        }
        PerfEvent::Exit { pid, tid } if *pid == own => Some((*tid, Event::ThreadExit)),
        _ => None,
    }
}

/// Returns true if a mapping's name is the path of a file.
fn is_file(name: &str) -> bool {
    name.starts_with('/') && !name.starts_with("//")
}

/// Returns true if a mapping's name is [`CODE_NAME`] or [`CORE_NAME`]: a file that contraflow's
/// export made for code that was in no file.
fn is_exported_code(name: &str) -> bool {
    name == CODE_NAME || name == CORE_NAME
}

fn clamp(size: u64) -> usize {
    usize::try_from(size).unwrap_or(usize::MAX)
}

/// The history of a process while it is made from the records of perf.data.
struct HistoryBuilder<'a> {
    process: &'a Process,
    sources: &'a CodeSources<'a>,
    notes: &'a mut Vec<String>,
    /// The threads of the process.
    threads: HashSet<Tid>,
    binaries: Binaries<'a>,
    /// The file found for each name; `None` if it was not found.
    files: HashMap<String, Option<Bytes>>,
    reported: Vec<ImportedEvent>,
    /// The mappings so far, from which follows the time from which a new one counts.
    floors: Floors,
    /// The number of bytes that may still be compared with the core file. It is limited, since a
    /// hostile file may claim any number.
    comparable_bytes: u64,
    /// The number of files that were not found.
    missing_files: usize,
    /// True once the memory of the core file was added: from the last exec(2) on, as it is the last
    /// program's.
    has_core: bool,
    /// The number of unused bytes of each file of exported code: an export maps each byte once, so
    /// a perf.data file that maps more is wrong.
    code_bytes: HashMap<String, usize>,
}

/// The end of a note about a file that is missing.
pub const CODE_NOT_FOUND: &str = "not found, so its code is unknown";

/// The maximum number of missing files that notes name.
const NAMED_LIMIT: usize = 16;

/// The maximum number of bytes compared with the core file, more than the code of any program.
const COMPARED_LIMIT_BYTES: u64 = 4 << 30;

impl HistoryBuilder<'_> {
    /// Adds the memory of the core file at this time, below all later mappings.
    fn add_core(&mut self, tsc: Tsc, tid: Tid) {
        self.has_core = true;
        let sections = self.sources.core.into_iter().flat_map(|core| core.memory().sections());
        let reported = |section: &Section| {
            let kind = ImportedEventKind::Map(MappedCode::Core(section.clone()));
            ImportedEvent { tsc, tid, kind }
        };
        self.reported.extend(sections.map(reported));
    }

    /// Adds a mapping of code. Ignores mappings without execute permission, and exported code of
    /// the core file if that is given.
    fn add_mapping(&mut self, tsc: Tsc, map: &PerfMap) -> Result<(), Error> {
        let is_file = is_file(&map.name);
        // Memory without execute permission may have been written before, like relocated data.
        // Exported code of the core file is below all other mappings if the core file is given.
        if !map.executable || map.name == CORE_NAME && self.core_holds(map.range.start) {
            return Ok(());
        }
        let tsc = self.floors.map(tsc, map.range);
        let section = Section {
            range: map.range,
            offset: map.file_offset,
            writable: map.writable,
            executable: map.executable,
            name: map.name.as_str().into(),
            ..Section::default()
        };
        let code = if ["[vdso]", VDSO_NAME].contains(&map.name.as_str()) {
            self.vdso_code(map, section)?
        } else if is_file {
            self.file_code(map, section)?
        } else {
            self.code_without_file(map, section)
        };
        let is_own = self.threads.contains(&map.tid);
        let tid = if is_own { map.tid } else { Tid(self.process.pid.0) };
        let kind = match code {
            MappedCode::File(section)
                if is_exported_code(&map.name) && !section.bytes.is_empty() =>
            {
                self.exported_code(&map.name, section)
            }
            code => ImportedEventKind::Map(code),
        };
        self.reported.push(ImportedEvent { tsc, tid, kind });
        Ok(())
    }

    /// Returns the code of a mapping without a file: the core file's if that has it, else the
    /// kernel's if the name has brackets, else unknown code. Always unknown under
    /// [`ANONYMOUS_NAME`], the name that an export gives to such code.
    fn code_without_file(&self, map: &PerfMap, section: Section) -> MappedCode {
        match map.name.as_str() {
            ANONYMOUS_NAME => MappedCode::Anonymous(section),
            _ if self.core_holds(map.range.start) => MappedCode::Core(section),
            name if name.starts_with('[') && name != CORE_MAP_NAME => MappedCode::Special(section),
            _ => MappedCode::Anonymous(section),
        }
    }

    /// Returns the event of a mapping of exported code ([`is_exported_code`]). The code is unknown
    /// if all mappings together have more bytes than the file.
    fn exported_code(&mut self, name: &str, section: Section) -> ImportedEventKind {
        let (range, offset) = (section.range, clamp(section.offset));
        let bytes = section.bytes.get(offset..).unwrap_or_default();
        let bytes = bytes.get(..clamp(range.size_bytes()).min(bytes.len())).unwrap_or_default();
        let left = self.code_bytes.entry(name.to_owned()).or_insert(section.bytes.len());
        match left.checked_sub(bytes.len()) {
            Some(rest) => {
                *left = rest;
                ImportedEventKind::Sideband(Event::Code {
                    addr: range.start,
                    bytes: bytes.to_vec(),
                })
            }
            None => ImportedEventKind::Map(MappedCode::Anonymous(section)),
        }
    }

    /// Returns the code of a mapping of the vdso: from the user's copy or the one that perf kept
    /// ([`Binaries::vdso`]), else, with a symfs, from the exported one, else from the core file. If
    /// there is none, the code is unknown.
    fn vdso_code(&mut self, map: &PerfMap, section: Section) -> Result<MappedCode, Error> {
        let section = Section { name: "[vdso]".into(), ..section };
        let bytes = match self.binaries.vdso(map)? {
            None if self.sources.options.symfs.is_some() => self.binaries.exported_vdso(map)?,
            kept => kept,
        };
        Ok(match bytes {
            Some(bytes) => MappedCode::Special(Section { bytes, ..section }),
            None if self.core_holds(map.range.start) => MappedCode::Core(section),
            None => MappedCode::Special(section),
        })
    }

    /// Returns the code of a mapping of a file. If the file is not found, notes that, and returns
    /// the code of the core file, else unknown code. Fails if all files found have other build IDs,
    /// or if file and core file differ.
    fn file_code(&mut self, map: &PerfMap, section: Section) -> Result<MappedCode, Error> {
        let bytes = if let Some(known) = self.files.get(&map.name) {
            known.clone()
        } else {
            let bytes = self.binaries.of_map(map)?;
            if bytes.is_none() {
                self.missing_files += 1;
            }
            if bytes.is_none() && self.missing_files <= NAMED_LIMIT {
                self.notes.push(format!("{}: {CODE_NOT_FOUND}", map.name));
            }
            self.files.insert(map.name.clone(), bytes.clone());
            bytes
        };
        match bytes {
            Some(bytes) => {
                let section = Section { bytes, ..section };
                // Code made at run time may have changed by the end.
                if !is_exported_code(&map.name) {
                    self.compare_with_core(&section)?;
                }
                Ok(MappedCode::File(section))
            }
            None if self.core_holds(map.range.start) => Ok(MappedCode::Core(section)),
            None => Ok(MappedCode::File(section)),
        }
    }

    /// Returns true if the core file has the memory at `addr`, and was added already.
    fn core_holds(&self, addr: Addr) -> bool {
        let core = self.sources.core.filter(|_| self.has_core);
        core.is_some_and(|core| core.read(addr, &mut [0]) == 1)
    }

    /// Checks that code without write permission is the same in the core file as in its file,
    /// unless the user accepts any binary, or the code is an earlier program's, whose memory the
    /// core file does not have. Checks at most [`COMPARED_LIMIT_BYTES`] in all.
    fn compare_with_core(&mut self, section: &Section) -> Result<(), Error> {
        let options = self.sources.options;
        let is_compared = self.has_core && !options.any_binary && !section.writable;
        let Some(core) = self.sources.core.filter(|_| is_compared) else { return Ok(()) };
        let (mut ran, mut found) = ([0; 4096], [0; 4096]);
        let mut at = section.range.start;
        // There are no bytes beyond the file's end.
        let size = (section.bytes.len() as u64).saturating_sub(section.offset);
        let end = section.range.end.min(Addr(section.range.start.0.saturating_add(size)));
        while at < end && self.comparable_bytes > 0 {
            self.comparable_bytes = self.comparable_bytes.saturating_sub(PAGE_SIZE_BYTES);
            let held = core.read(at, &mut ran).min(section.read(at, &mut found));
            let differs = ran.iter().zip(&found).take(held).position(|(ran, found)| ran != found);
            if let Some(place) = differs {
                let addr = at.wrapping_add(place as u64);
                let path = Path::new(&*section.name);
                return Err(Error::new(path, ErrorKind::OtherBytes { addr }));
            }
            at = at.wrapping_add(PAGE_SIZE_BYTES);
        }
        Ok(())
    }
}
