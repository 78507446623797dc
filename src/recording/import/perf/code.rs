//! What became of a process's memory: which code was mapped when, and what else is told of its
//! threads.

use super::super::super::error::{Error, ErrorKind};
use super::super::super::export::{CODE_NAME, VDSO_NAME};
use super::super::imported::{Code, Told, What};
use super::process::Process;
use super::{Perf, binaries};
use crate::common::{Addr, Tid, Tsc};
use crate::image::Floors;
use crate::image::core::Core;
use crate::image::{Bytes, PAGE_SIZE_BYTES, Section};
use crate::pt::TscToNs;
use crate::sideband::Event;
use crate::sideband::perf_data::{PerfData, PerfEvent, PerfMap, PerfRecord};
use std::collections::HashMap;
use std::path::Path;

/// What is known besides the file.
pub(super) struct Known<'a> {
    pub(super) with: &'a Perf,
    pub(super) core: Option<&'a Core>,
    pub(super) clock: Option<TscToNs>,
}

/// What happened to the process, and the path of its program.
pub(super) fn history(
    data: &PerfData,
    process: &Process,
    known: &Known<'_>,
    notes: &mut Vec<String>,
) -> Result<(Vec<Told>, Option<String>), Error> {
    let is_exec = |record: &PerfRecord| matches!(&record.event, PerfEvent::Comm { pid, exec: true, .. } if *pid == process.pid);
    let last_exec = process.records(data).filter(|(_, record)| is_exec(record)).last();
    let last_exec = last_exec.map(|(_, record)| record);
    let (files, told, left_bytes) = (HashMap::new(), Vec::new(), COMPARED_BYTES);
    let floors = Floors::default();
    let mut history = Builder { data, process, known, notes, files, told, floors, left_bytes };
    if last_exec.is_none() {
        history.core(Tsc(0), Tid(process.pid.0));
    }
    let mut program = None;
    // Programs that are executed, until their files are mapped.
    let mut executed: Option<usize> = None;
    for (owner, record) in process.records(data) {
        let tsc = record.id.time_ns.zip(known.clock).map_or(Tsc(0), |(ns, clock)| clock.tsc(ns));
        if let PerfEvent::Map(map) = &record.event
            && map.pid == owner
        {
            let is_program = map.executable && is_file(&map.name) && !map.name.contains('[');
            if is_program && (executed.is_some() || program.is_none()) {
                program = Some(map.name.clone());
                if let Some(Told { what: What::Event(Event::Exec { path }), .. }) =
                    executed.take().and_then(|place| history.told.get_mut(place))
                {
                    path.clone_from(&map.name);
                }
            }
            history.map(tsc, map)?;
        } else if let Some((tid, event)) = event(process, record) {
            let mut tsc = tsc;
            if matches!(event, Event::Exec { .. }) {
                tsc = history.floors.exec(tsc);
                executed = Some(history.told.len());
            }
            history.told.push(Told { tsc, tid, what: What::Event(event) });
            if let PerfEvent::Comm { name, exec: true, .. } = &record.event {
                let what = What::Event(Event::Comm { name: name.clone() });
                history.told.push(Told { tsc, tid, what });
            }
            if last_exec.is_some_and(|last| std::ptr::eq(last, record)) {
                // What is mapped later lies over it.
                history.core(tsc, tid);
            }
        }
    }
    Ok((history.told, program))
}

/// What a record tells of the process's threads.
fn event(process: &Process, record: &PerfRecord) -> Option<(Tid, Event)> {
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

/// Whether a mapping's name is a file's path.
fn is_file(name: &str) -> bool {
    name.starts_with('/') && !name.starts_with("//")
}

fn clamp(size: u64) -> usize {
    usize::try_from(size).unwrap_or(usize::MAX)
}

struct Builder<'a> {
    data: &'a PerfData,
    process: &'a Process,
    known: &'a Known<'a>,
    notes: &'a mut Vec<String>,
    /// What was found under each name.
    files: HashMap<String, Option<Bytes>>,
    told: Vec<Told>,
    floors: Floors,
    /// Bytes of code that are compared with the core yet: a file may tell of any number.
    left_bytes: u64,
}

/// More than any program's code.
const COMPARED_BYTES: u64 = 4 << 30;

impl Builder<'_> {
    /// What the core holds lies below all that is mapped.
    fn core(&mut self, tsc: Tsc, tid: Tid) {
        let sections = self.known.core.into_iter().flat_map(|core| core.memory().sections());
        let told = |section: &Section| {
            let what = What::Map(Code::Core(section.clone()));
            Told { tsc, tid, what }
        };
        self.told.extend(sections.map(told));
    }

    fn map(&mut self, tsc: Tsc, map: &PerfMap) -> Result<(), Error> {
        let is_file = is_file(&map.name);
        // What cannot be executed may have been written to before, as relocated data was.
        if !map.executable {
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
            self.vdso(map, section)?
        } else if is_file {
            self.file(map, section)?
        } else if self.core_holds(map.range.start) {
            Code::Core(section)
        } else {
            Code::Anonymous(section)
        };
        let is_own = self.process.threads.contains(&map.tid);
        let tid = if is_own { map.tid } else { Tid(self.process.pid.0) };
        let what = match code {
            // Code that had no file until it was exported.
            Code::File(section) if map.name == CODE_NAME && !section.bytes.is_empty() => {
                let (range, offset) = (section.range, clamp(section.offset));
                let bytes = section.bytes.get(offset..).unwrap_or_default();
                let size = clamp(range.size_bytes()).min(bytes.len());
                let bytes = bytes.get(..size).unwrap_or_default().to_vec();
                What::Event(Event::Code { addr: range.start, bytes })
            }
            code => What::Map(code),
        };
        self.told.push(Told { tsc, tid, what });
        Ok(())
    }

    fn vdso(&self, map: &PerfMap, section: Section) -> Result<Code, Error> {
        let section = Section { name: "[vdso]".into(), ..section };
        let with = self.known.with;
        let kept = binaries::vdso(&self.build_id(map), with)?;
        let of_symfs = || match &with.symfs {
            Some(_) => binaries::find(VDSO_NAME, &map.build_id, with),
            None => Ok(None),
        };
        let bytes = match kept {
            Some(bytes) => Some(bytes),
            None => of_symfs()?,
        };
        Ok(match bytes {
            Some(bytes) => Code::Special(Section { bytes, ..section }),
            None if self.core_holds(map.range.start) => Code::Core(section),
            None => Code::Special(section),
        })
    }

    fn file(&mut self, map: &PerfMap, section: Section) -> Result<Code, Error> {
        let bytes = if let Some(known) = self.files.get(&map.name) {
            known.clone()
        } else {
            let bytes = binaries::find(&map.name, &self.build_id(map), self.known.with)?;
            if bytes.is_none() {
                self.notes.push(format!(
                    "{}: not found, so its code is not known; --symfs names a directory that has it",
                    map.name
                ));
            }
            self.files.insert(map.name.clone(), bytes.clone());
            bytes
        };
        match bytes {
            Some(bytes) => {
                let section = Section { bytes, ..section };
                self.check(&section)?;
                Ok(Code::File(section))
            }
            None if self.core_holds(map.range.start) => Ok(Code::Core(section)),
            None => Ok(Code::File(section)),
        }
    }

    /// The build id of a mapping's file, by its own record or by the file's list.
    fn build_id(&self, map: &PerfMap) -> Vec<u8> {
        if !map.build_id.is_empty() {
            return map.build_id.clone();
        }
        let listed = self.data.build_ids.iter().find(|listed| listed.name == map.name);
        listed.map(|listed| listed.id.clone()).unwrap_or_default()
    }

    fn core_holds(&self, addr: Addr) -> bool {
        self.known.core.is_some_and(|core| core.read(addr, &mut [0]) == 1)
    }

    /// Code that could not be written is in the core as it is in its file.
    fn check(&mut self, section: &Section) -> Result<(), Error> {
        let with = self.known.with;
        let Some(core) = self.known.core.filter(|_| !with.any_binary && !section.writable) else {
            return Ok(());
        };
        let (mut ran, mut found) = ([0; 4096], [0; 4096]);
        let mut at = section.range.start;
        // What is behind the file's end has no bytes of it.
        let size = (section.bytes.len() as u64).saturating_sub(section.offset);
        let end = section.range.end.min(Addr(section.range.start.0.saturating_add(size)));
        while at < end && self.left_bytes > 0 {
            self.left_bytes = self.left_bytes.saturating_sub(PAGE_SIZE_BYTES);
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
