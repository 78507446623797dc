//! The recording that a path is written to: the traces of its threads, its sideband events, its
//! files. The `tsc` of an event is a time of the path, which is no clock's.

use super::super::error::Error;
use crate::common::{AddrRange, Tid, Tsc};
use crate::engine::TranslatedProcess;
use crate::insn::Registers;
use crate::recording::log::{Bytes, CallEffects, Content, LogEvent, Mapped};
use crate::recording::{
    BackendName, End, Manifest, PathPlace, Reader, ThreadEntry, TscClock, Writer,
};
use crate::sideband::{Backing, Event, FileId, ImageId, Mapping, MappingSet, Record};
use crate::tracee::{SiginfoBytes, siginfo};
use std::collections::BTreeMap;
use std::path::Path;

/// A recording of packets that is being written.
pub(super) struct WrittenPath {
    writer: Writer,
    manifest: Manifest,
    /// The exact recording that is replayed.
    source: Reader,
    /// The names of the source's stored files that were mapped so far.
    names: BTreeMap<ImageId, String>,
    /// The files that were copied from the source, with their IDs in the events.
    files: BTreeMap<ImageId, FileId>,
    /// The mappings as they were last written.
    mappings: MappingSet,
    threads: Vec<Tid>,
    /// [`PathPlace`]s that are not written yet.
    places: Vec<PathPlace>,
}

/// The number of places that are written at a time.
const PLACES_AT_ONCE: usize = 1000;

impl WrittenPath {
    /// Begins a recording in `dir` of the path of `source`.
    pub(super) fn begin(source: &Reader, dir: &Path, psb_period_bytes: u32) -> Result<Self, Error> {
        let mut manifest = source.manifest().clone();
        manifest.capture.backend = BackendName::Replay;
        manifest.capture.psb_period_bytes = psb_period_bytes.into();
        manifest.end = None;
        let mut writer = Writer::create(dir, &manifest)?;
        writer.start_places()?;
        Ok(Self {
            writer,
            manifest,
            source: Reader::open(source.dir())?,
            names: BTreeMap::new(),
            files: BTreeMap::new(),
            mappings: MappingSet::default(),
            threads: Vec::new(),
            places: Vec::new(),
        })
    }

    /// Appends an event of the operating system.
    pub(super) fn event(&mut self, tsc: u64, tid: Tid, event: Event) -> Result<(), Error> {
        let pid = self.manifest.pid;
        Ok(self.writer.sideband(&Record { tsc: Tsc(tsc), pid, tid, event })?)
    }

    /// Appends a place of the path: a position of the replay with the number of the instruction
    /// there. Writes [`PLACES_AT_ONCE`] at a time.
    pub(super) fn place(&mut self, place: PathPlace) -> Result<(), Error> {
        self.places.push(place);
        if self.places.len() >= PLACES_AT_ONCE { self.write_places() } else { Ok(()) }
    }

    /// Writes the places that are not written yet.
    fn write_places(&mut self) -> Result<(), Error> {
        self.writer.append_places(&self.places)?;
        self.places.clear();
        Ok(())
    }

    /// Appends packets to a thread's trace.
    pub(super) fn trace(&mut self, tid: Tid, packets: &[u8]) -> Result<(), Error> {
        if packets.is_empty() { Ok(()) } else { Ok(self.writer.trace(tid, packets)?) }
    }

    /// Adds a thread, with its event, unless it was added before: a thread survives an execve(2).
    pub(super) fn thread(&mut self, tsc: u64, tid: Tid) -> Result<(), Error> {
        if self.threads.contains(&tid) {
            return Ok(());
        }
        self.writer.start_thread(tid)?;
        self.threads.push(tid);
        self.event(tsc, tid, Event::ThreadStart)
    }

    /// Notes the name under which each stored file among the recorded mappings was mapped, for
    /// [`Self::mappings`]; of several names, the last.
    pub(super) fn note_file_names<'a>(&mut self, mapped: impl IntoIterator<Item = &'a Mapped>) {
        for mapped in mapped {
            if let Content::File { image, .. } = &mapped.content {
                self.names.insert(image.clone(), mapped.name.clone());
            }
        }
    }

    /// Appends the events of a log entry: its system call, return or signal, if it has one.
    /// `before` are the registers of its thread before it.
    pub(super) fn entry_events(
        &mut self,
        tsc: u64,
        tid: Tid,
        event: &LogEvent,
        before: &Registers,
    ) -> Result<(), Error> {
        let r = before;
        let args = [r.rdi, r.rsi, r.rdx, r.r10, r.r8, r.r9];
        let returned = |effects: &CallEffects| Event::SyscallReturn { result: effects.result };
        match event {
            LogEvent::Call { number, effects } => {
                self.event(tsc, tid, Event::Syscall { number: *number, args })?;
                self.event(tsc, tid, returned(effects))
            }
            LogEvent::Enters { number } => {
                self.event(tsc, tid, Event::Syscall { number: *number, args })
            }
            LogEvent::Returns { effects } => self.event(tsc, tid, returned(effects)),
            LogEvent::Signal { siginfo: Bytes(info), .. } => {
                let info: Option<&SiginfoBytes> = info.first_chunk();
                info.map_or(Ok(()), |info| self.event(tsc, tid, signal(info)))
            }
            _ => Ok(()),
        }
    }

    /// Forgets all mappings: another program begins.
    pub(super) fn forget_mappings(&mut self) {
        self.mappings = MappingSet::default();
    }

    /// Appends the changes, since the last call, of the mappings that have code or a file, and the
    /// written code in new ones. [`Self::note_file_names`] must have been called for their files.
    pub(super) fn mappings(
        &mut self,
        tsc: u64,
        tid: Tid,
        engine: &TranslatedProcess,
    ) -> Result<(), Error> {
        let is_recorded = |m: &&Mapping| m.protection.execute || m.is_file();
        let (gone, new) = self.mappings.update(engine.space.mappings().cloned().collect());
        for mapping in gone.iter().filter(is_recorded) {
            self.event(tsc, tid, Event::Unmap { range: mapping.range })?;
        }
        let mut code: Vec<AddrRange> = Vec::new();
        for mapping in new.iter().filter(is_recorded) {
            let backing = self.backing(tsc, tid, mapping)?;
            let (range, protection) = (mapping.range, mapping.protection);
            self.event(tsc, tid, Event::Map { range, protection, backing })?;
            code.extend(protection.execute.then_some(range));
        }
        // A mapping that is recorded anew lacks the bytes that were written there.
        for change in engine.changing_code_in(&code) {
            self.event(tsc, tid, Event::Code { addr: change.addr, bytes: change.bytes })?;
        }
        Ok(())
    }

    /// Returns the backing of a mapping; anonymous, unless it is of a stored file whose name was
    /// noted ([`Self::note_file_names`]). Copies the file to the recording, and appends its events,
    /// when it is first mapped.
    fn backing(&mut self, tsc: u64, tid: Tid, mapping: &Mapping) -> Result<Backing, Error> {
        let file_name = Path::new(&mapping.name).file_name().and_then(|name| name.to_str());
        let image = ImageId(file_name.unwrap_or_default().to_owned());
        let Some(path) = self.names.get(&image).cloned() else { return Ok(Backing::Anonymous) };
        let offset = mapping.offset;
        if let Some(file) = self.files.get(&image) {
            return Ok(Backing::File { file: *file, offset });
        }
        self.writer.store_image_of(&self.source, &image)?;
        let file = FileId(u32::try_from(self.files.len()).unwrap_or(u32::MAX));
        self.files.insert(image.clone(), file);
        self.event(tsc, tid, Event::File { file, path })?;
        self.event(tsc, tid, Event::Image { file, image })?;
        Ok(Backing::File { file, offset })
    }

    /// Completes the recording, with the number of instructions of each thread, and the final state
    /// and end of the source.
    pub(super) fn finish(
        mut self,
        source: &Reader,
        instructions: &[(Tid, u64)],
    ) -> Result<(), Error> {
        self.write_places()?;
        let known = source.manifest().end.as_ref();
        let of_source = |tid| known?.threads.iter().find(|thread| thread.tid == tid);
        let threads: Vec<ThreadEntry> = self
            .threads
            .iter()
            .map(|&tid| ThreadEntry {
                tid,
                pid: self.manifest.pid,
                name: of_source(tid).map(|thread| thread.name.clone()).unwrap_or_default(),
                trace_bytes: self.writer.trace_bytes(tid),
                instructions: instructions.iter().find(|(t, _)| *t == tid).map_or(0, |(_, n)| *n),
                final_pc: of_source(tid).and_then(|thread| thread.final_pc),
            })
            .collect();
        self.writer.store_core_of(source)?;
        self.manifest.end = Some(End {
            exit: known.and_then(|end| end.exit),
            duration_ns: known.map_or(0, |end| end.duration_ns),
            instructions: threads.iter().map(|thread| thread.instructions).sum(),
            // The path's time stamps are moments of the replay, not times.
            clock: TscClock { start: Tsc(0), ticks_per_second: 0.0 },
            threads,
            cpus: Vec::new(),
            log: None,
            ring_since_ns: None,
        });
        self.writer.finish(&self.manifest)?;
        Ok(())
    }
}

/// Returns the event of the signal with this `siginfo_t`; its address is that of a fault, if any.
fn signal(info: &SiginfoBytes) -> Event {
    let (number, code) = (siginfo::signal_of(info), siginfo::code_of(info));
    Event::Signal { number, code, addr: siginfo::fault_address(info) }
}
