//! A recording as a [`History`]. The path comes from the timeline. Values come from the *final
//! state*, the registers and memory at the end of the run: all registers of a thread that lived to
//! the end are known once it executes nothing more, before that only RIP. Memory of the past is
//! known only where the program could never write to it ([`AccessTime::Past`]).

use super::around::calls_around;
use super::kernel_events;
use super::source::{LazySymbols, symbols_of};
use super::{
    CallFrame, CodeLocation, Description, EventSearch, EventsAt, FileBytes, Found, FunctionArrival,
    GapInfo, History, KnownRegisters, Library, MissingFrames, Protection, Region, Register,
    RequestedEvents, Search, ThreadInfo, TraceSize,
};
use crate::common::{Addr, Pid, Tid, Tsc};
use crate::image::{Bytes, Image, Section};
use crate::pt::Vendor;
use crate::recording::TscClock;
use crate::state::{self, AccessTime, FinalState};
use crate::timeline::{Frame, KernelEntries, Timeline, pt_cpu_of};
use std::cell::{OnceCell, RefCell};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The call stack of a thread at a position, kept for the next request.
#[derive(Debug)]
struct CachedStack {
    tid: Tid,
    position: u64,
    frames: Vec<CallFrame>,
}

/// An open recording.
#[derive(Debug)]
pub struct Recording {
    timeline: Timeline,
    state: FinalState,
    /// An image without mappings, for positions where none is known.
    empty_image: Arc<Image>,
    /// The last position that can be shown: the timeline's total, or one less if no address is
    /// known there. The values of the end of the run are those at the timeline's total, so they are
    /// not shown in the latter case.
    shown_end: u64,
    /// The functions and lines of the code, read on first use.
    symbols: LazySymbols,
    /// The system calls and signals of the path, searched when a debugger first wants to stop at
    /// them.
    kernel_entries: OnceCell<KernelEntries>,
    /// The call stack returned last, since debuggers request a deep stack in parts.
    last_stack: RefCell<Option<CachedStack>>,
    /// The clock of a recording that is still being made.
    clock: Option<TscClock>,
}

impl Recording {
    /// Joins a timeline with the final state of its run. Leaves out the last position if no address
    /// of the thread that runs there is known, as in a recording that was cut off.
    pub fn new(timeline: Timeline, state: FinalState) -> Self {
        let end = timeline.total();
        let mut recording = Self {
            timeline,
            state,
            empty_image: Arc::default(),
            shown_end: end,
            symbols: LazySymbols::default(),
            kernel_entries: OnceCell::new(),
            last_stack: RefCell::default(),
            clock: None,
        };
        let pc_at_end = recording.running_at(end).and_then(|tid| recording.pc(tid, end));
        if pc_at_end.is_none() {
            // The target of a cut recording's last instruction is unknown, and a debugger cannot
            // show a thread without a pc. The history ends before that instruction.
            recording.shown_end = end.saturating_sub(1);
        }
        recording
    }

    /// Returns the recording with the clock that its manifest lacks while it is being made.
    #[must_use]
    pub fn with_clock(mut self, clock: TscClock) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Returns the timeline.
    pub fn timeline(&self) -> &Timeline {
        &self.timeline
    }

    /// Converts a time of the TSC to nanoseconds since the start of the recording; `None` if the
    /// clock of the recording is unknown.
    fn nanoseconds(&self, tsc: Tsc) -> Option<u64> {
        let end = self.timeline.reader().manifest().end.as_ref();
        let clock = end.map(|end| end.clock).or(self.clock)?;
        clock.is_known().then(|| clock.nanoseconds(tsc))
    }

    /// Returns the facts of a thread. It ended after its last instruction if the final state is
    /// known and does not have the thread. A thread without instructions begins at the total.
    fn thread_info(&self, tid: Tid) -> ThreadInfo {
        let insns = self.timeline.instructions(tid);
        let at = |index| self.timeline.global_of(tid, index);
        let last = insns.checked_sub(1).and_then(at);
        let cut = self.state.core().is_none();
        let survived = cut || self.state.thread(tid).is_some();
        let manifest = self.timeline.reader().manifest();
        let mut entries = manifest.end.iter().flat_map(|end| &end.threads);
        let entry = entries.find(|entry| entry.tid == tid);
        ThreadInfo {
            tid,
            pid: self.timeline.process_of(tid),
            name: entry.map_or_else(String::new, |entry| entry.name.clone()),
            first: at(0).unwrap_or(self.timeline.total()),
            ended: last.filter(|_| !survived).map(|last| last + 1),
        }
    }

    /// Returns true if the thread executes nothing at or after `g`.
    fn is_at_end(&self, tid: Tid, g: u64) -> bool {
        self.timeline.index_of(tid, g) == self.timeline.instructions(tid)
    }

    /// Returns the mapped code and files at a position; those of the end of the run if the time at
    /// the position is unknown. The epochs of a timeline are the spans of time between changes of
    /// the mappings.
    fn image_at(&self, g: u64) -> &Image {
        let images = self.timeline.images();
        let epoch = self.timeline.time_at(g).map(|at| images.epoch_at(at));
        let epoch = epoch.and_then(|number| images.epochs().get(number));
        let last = || images.last().unwrap_or(&self.empty_image);
        if g >= self.timeline.total() { last() } else { epoch.map_or_else(last, |e| &e.image) }
    }

    /// Returns the libraries at the end of the run, with their files; `None` if unknown.
    fn loaded_libraries(&self) -> Option<Vec<state::Library>> {
        let program = self.last_program();
        self.state.libraries(self.image_at(self.timeline.total()), Some(&program))
    }

    /// Returns the path of the program that the first process executed last; without an execve(2)
    /// in the recording, that of its start.
    fn last_program(&self) -> String {
        let manifest = self.timeline.reader().manifest();
        let pid = Pid(manifest.pid.0);
        let last_exec =
            self.timeline.records().iter().rev().find_map(|record| match &record.event {
                crate::sideband::Event::Exec { path } if record.pid == pid => Some(path.clone()),
                _ => None,
            });
        last_exec.unwrap_or_else(|| manifest.program.clone())
    }

    /// Returns the system calls and signals of the path. The first call searches all of it.
    fn kernel_entries(&self) -> &KernelEntries {
        self.kernel_entries.get_or_init(|| KernelEntries::of(&self.timeline))
    }

    /// Returns a thread's frame of the timeline as one of the session.
    fn call_frame(&self, tid: Tid, frame: &Frame) -> CallFrame {
        CallFrame {
            activation: self.timeline.global_of(tid, frame.index),
            entry: Some(frame.entry),
            call_site: Some(frame.site),
            return_address: Some(frame.return_address),
            signal_handler: frame.signal,
        }
    }
}

impl History for Recording {
    fn threads(&self) -> Vec<ThreadInfo> {
        let mut threads: Vec<_> = self.timeline.threads().map(|t| self.thread_info(t)).collect();
        threads.sort_by_key(|thread| thread.first);
        threads
    }

    fn total(&self) -> u64 {
        self.shown_end
    }

    fn running_at(&self, g: u64) -> Option<Tid> {
        self.timeline.running_at(g).or_else(|| {
            let first_thread = self.state.core().and_then(|core| core.contents.threads.first());
            first_thread.map(|thread| thread.tid).or_else(|| self.timeline.running_before(g))
        })
    }

    fn index_of(&self, tid: Tid, g: u64) -> u64 {
        self.timeline.index_of(tid, g)
    }

    fn position_of(&self, tid: Tid, index: u64) -> Option<u64> {
        self.timeline.global_of(tid, index)
    }

    fn pc(&self, tid: Tid, g: u64) -> Option<Addr> {
        let index = self.timeline.index_of(tid, g);
        let recorded = self.timeline.pc(tid, index);
        recorded.or_else(|| {
            let at_end = self.state.thread(tid).filter(|_| self.is_at_end(tid, g));
            at_end.map(|thread| Addr(thread.registers.rip))
        })
    }

    fn stays_in_activation(&self, tid: Tid, g: u64) -> bool {
        self.timeline.stays_in_activation(tid, self.timeline.index_of(tid, g))
    }

    fn find(&self, search: &Search<'_>, interrupted: &dyn Fn() -> bool) -> Found {
        self.timeline.find(search, interrupted)
    }

    fn knows_kernel_events(&self) -> bool {
        true
    }

    fn events_at(&self, g: u64, wanted: &RequestedEvents) -> EventsAt {
        kernel_events::events_at(&self.timeline, self.kernel_entries(), g, wanted)
    }

    fn find_event(&self, search: &EventSearch<'_>, interrupted: &dyn Fn() -> bool) -> Found {
        kernel_events::find_nearest(&self.timeline, self.kernel_entries(), search, interrupted)
    }

    fn call_stack(&self, tid: Tid, g: u64) -> Vec<CallFrame> {
        let mut last = self.last_stack.borrow_mut();
        if last.as_ref().is_none_or(|cached| (cached.tid, cached.position) != (tid, g)) {
            let frames = self.timeline.call_stack(tid, self.timeline.index_of(tid, g));
            let frames = frames.iter().map(|frame| self.call_frame(tid, frame)).collect();
            *last = Some(CachedStack { tid, position: g, frames });
        }
        last.as_ref().map(|cached| cached.frames.clone()).unwrap_or_default()
    }

    fn missing_frames(&self, tid: Tid, g: u64) -> MissingFrames {
        self.timeline.missing_frames(tid, self.timeline.index_of(tid, g))
    }

    fn registers(&self, tid: Tid, g: u64) -> KnownRegisters {
        if let Some(thread) = self.state.thread(tid).filter(|_| self.is_at_end(tid, g)) {
            return KnownRegisters::of(thread);
        }
        let mut known = KnownRegisters::default();
        known.set(Register::RIP, self.pc(tid, g).map(|pc| pc.0.into()));
        known
    }

    fn read_memory(&self, _tid: Tid, g: u64, addr: Addr, buf: &mut [u8]) -> usize {
        let moment = if g >= self.timeline.total() { AccessTime::End } else { AccessTime::Past };
        self.state.read(moment, self.image_at(g), addr, buf)
    }

    fn overlap_ns(&self, tid: Tid, g: u64) -> Option<(Option<u64>, Option<u64>)> {
        let (from, to) = self.timeline.overlap(tid, self.timeline.index_of(tid, g))?;
        let to = (to < Tsc(u64::MAX)).then_some(to);
        Some((self.nanoseconds(from), to.and_then(|to| self.nanoseconds(to))))
    }

    fn is_program_code(&self, addr: Addr) -> bool {
        let program = self.exec_file();
        let section = self.image_at(self.timeline.total()).section_at(addr);
        section.is_some_and(|s| program.is_some_and(|p| p.as_os_str() == &*s.name))
    }

    fn time_ns(&self, g: u64) -> Option<u64> {
        self.nanoseconds(self.timeline.time_at(g)?)
    }

    fn gaps(&self) -> Vec<GapInfo> {
        let of_thread = |tid| {
            self.timeline.gaps(tid).iter().map(move |(index, gap)| GapInfo {
                position: self
                    .timeline
                    .global_of(tid, *index)
                    .unwrap_or(self.shown_end)
                    .min(self.shown_end),
                tid,
                offset_bytes: gap.offset,
                last_ip: gap.last_ip,
                reason: gap.reason.to_string(),
            })
        };
        let mut gaps: Vec<_> = self.timeline.threads().flat_map(of_thread).collect();
        gaps.sort_by_key(|gap| gap.position);
        gaps
    }

    fn describe(&self) -> Description {
        Description::of(self.timeline.reader())
    }

    fn auxv(&self) -> Option<Vec<u8>> {
        let program = self.last_program();
        self.state.auxv(self.image_at(self.timeline.total()), Some(&program))
    }

    fn exec_file(&self) -> Option<PathBuf> {
        Some(PathBuf::from(self.last_program()))
    }

    fn libraries(&self) -> Option<Vec<Library>> {
        let shown = |library: state::Library| {
            let path = library.path().to_owned();
            Library { path, ..Library::from(library.map) }
        };
        Some(self.loaded_libraries()?.into_iter().map(shown).collect())
    }

    fn siginfo(&self, tid: Tid, g: u64) -> Option<Vec<u8>> {
        self.state.thread(tid).filter(|_| self.is_at_end(tid, g))?.siginfo.clone()
    }

    fn file(&self, path: &Path) -> Option<Box<dyn FileBytes>> {
        let images = self.timeline.images();
        let path = path.to_str()?;
        // The dynamic linker may know a file under another path than the kernel.
        let alias = || {
            let loaded = self.loaded_libraries()?;
            let library = loaded.iter().find(|library| library.map.name == path)?;
            images.file(&library.file)
        };
        let bytes = images.file(path).or_else(alias)?;
        Some(Box::new(StoredFile(bytes.clone())))
    }

    fn pt_trace(&self, tid: Tid, since: u64, g: u64) -> Option<Vec<u8>> {
        let [first, end] = [since, g].map(|g| self.timeline.index_of(tid, g));
        let part = (since > 0).then(|| self.timeline.trace_between(tid, first, end)).flatten();
        part.or_else(|| self.timeline.trace_until(tid, end))
    }

    fn pt_cpu(&self) -> Option<(u16, u8, u8)> {
        let cpu = pt_cpu_of(self.timeline.reader().manifest())?;
        (cpu.vendor == Vendor::Intel).then_some((cpu.family, cpu.model, cpu.stepping))
    }

    fn regions(&self, g: u64) -> Option<Vec<Region>> {
        let sections = self.image_at(g).sections();
        let region = |section: &Section| Region {
            range: section.range,
            // Recordings contain code and the writability of pages, not their readability.
            protection: Protection {
                read: true,
                write: section.writable,
                execute: section.executable,
            },
            name: section.name.to_string(),
        };
        let mut regions: Vec<Region> = sections.map(region).collect();
        if g >= self.timeline.total()
            && let Some(core) = self.state.core()
        {
            let known = regions.clone();
            let is_new = |region: &Region| !known.iter().any(|k| k.range.overlaps(region.range));
            regions.extend(core.memory().sections().map(region).filter(is_new));
        }
        regions.sort_by_key(|region| region.range.start);
        Some(regions)
    }

    fn trace_size(&self, tid: Tid) -> Option<TraceSize> {
        let bytes = self.timeline.trace(tid)?.as_ref().len() as u64;
        Some(TraceSize { bytes, segments: self.timeline.segments(tid) as u64 })
    }

    fn started_unix_ns(&self) -> Option<u64> {
        let started = self.timeline.reader().manifest().started_unix_ns;
        (started > 0).then_some(started)
    }

    fn location_of(&self, addr: Addr) -> Option<CodeLocation> {
        self.symbols.get(|| symbols_of(self.timeline.images())).location_of(addr)
    }

    fn addresses_of(&self, location: &str) -> Vec<Addr> {
        self.symbols.get(|| symbols_of(self.timeline.images())).addresses_of(location)
    }

    fn calls_around(&self, tid: Tid, g: u64, count: usize) -> Vec<FunctionArrival> {
        calls_around(&self.timeline, tid, self.timeline.index_of(tid, g), count)
    }
}

/// A file stored in the recording.
struct StoredFile(Bytes);

impl FileBytes for StoredFile {
    fn size_bytes(&self) -> u64 {
        self.0.len() as u64
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> usize {
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(self.0.len());
        let bytes = &self.0[start..];
        let count = bytes.len().min(buf.len());
        buf[..count].copy_from_slice(&bytes[..count]);
        count
    }
}
