//! A process that runs translated: its recording, its code cache, its encoder.

use super::calls::SEEN_CALLS;
use super::debugger::Debugger;
use super::feed::{Feed, Item};
use super::forced::{Actions, inherited};
use super::harm::Harm;
use super::left::LEAVING_CALLS;
use super::ring::Ring;
use super::thread::{Place, Thread};
use super::turns::Turns;
use crate::capture::clock::now;
use crate::capture::culprit::Culprit;
use crate::capture::filter::Resolver;
use crate::capture::recorder::{History, Prepared, Recorder, Request};
use crate::capture::space::MappingRecorder;
use crate::capture::{Catches, Error};
use crate::common::{Addr, AddrRange, Pid, Tid};
use crate::engine::{
    AddressSpace, Area, BUFFERS, Busy, Change, Pages, Shared, View, Window, ZONE_BYTES, checked,
};
use crate::recording::{Exit, Manifest};
use crate::sideband::{Event, Protection};
use crate::tracee::{Memory, Tracee, comm, executable};
use crate::translate::{Limits, TranslateError, Translator, slots};
use std::path::PathBuf;
use std::sync::Arc;

const PAGE_BYTES: u64 = 0x1000;
const LARGEST_BUFFER_BYTES: u64 = 256 << 20;
const MPROTECT: u64 = 10;
const PROT_WRITE: u64 = 2;

/// A recording that is complete: where it is, its manifest, and bytes of trace.
pub(super) type Finished = (PathBuf, Manifest, u64);

/// A thread that ended.
#[derive(Debug)]
struct Ended {
    tid: Tid,
    name: String,
    final_pc: Option<Addr>,
}

/// A process.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) recorder: Recorder,
    pub(super) memory: Memory,
    pub(super) space: AddressSpace,
    pub(super) mappings: MappingRecorder,
    pub(super) window: Window,
    pub(super) translator: Translator<Arc<Shared>>,
    pub(super) feed: Feed,
    /// What the encoder will be told when a thread ends, where not all is kept.
    pub(super) ring: Option<Ring>,
    /// Bytes of the recording at which only the end of what comes is kept.
    pub(super) limit_bytes: Option<u64>,
    pages: Pages,
    pub(super) resolver: Resolver,
    pub(super) paths_told: usize,
    /// Edges from a number on whose code is as it is since a time.
    pub(super) young: Vec<(usize, u64)>,
    pub(super) edges_told: usize,
    pub(super) pushes_told: usize,
    pub(super) quiet_told: usize,
    ended: Vec<Ended>,
    pub(super) actions: Actions,
    /// It ran by itself before the recorder came.
    pub(super) was_running: bool,
    /// It is on the recorder's CPU, and has one thread.
    pub(super) turns: Option<Turns>,
    /// Why the process must be left alone, once it must.
    pub(super) leaves: Option<&'static str>,
    /// What the program did to the recorder's part of it, if it did.
    pub(super) harm: Harm,
    /// What a debugger wants to stop for, if there is one.
    pub(super) debugger: Option<Debugger>,
    /// Calls that write stop, too.
    pub(super) watches_kernel_writes: bool,
    /// The thread that ended the process, and the signal that did, if one did.
    pub(super) culprit: Culprit,
    /// Trace buffers that were full.
    pub(super) full_buffers: u64,
}

impl Process {
    /// Starts the recording of a process whose threads stand in the program. `tracee` is one.
    pub(super) fn start(
        prepared: Prepared,
        request: &Request,
        pid: Pid,
        tracee: Tracee,
        turns: Option<&Turns>,
    ) -> Result<Self, Error> {
        let recorder = Recorder::start(prepared, pid)?;
        let memory = Memory::open(pid)?;
        let resolver = Resolver::new(&request.filter);
        let buffer_bytes = buffer_bytes(request.history);
        let (window, translator) = cache(tracee, pid, &memory, buffer_bytes)?;
        let (period, ranges) = (request.psb_period_bytes, resolver.ranges().clone());
        let feed = Feed::start(window.shared.clone(), period, ranges, turns);
        let mut process = Self {
            recorder,
            memory,
            space: AddressSpace::default(),
            mappings: MappingRecorder::default(),
            window,
            translator,
            feed,
            ring: matches!(request.history, History::Ring { .. }).then(Ring::default),
            limit_bytes: match request.history {
                History::Limited { bytes, .. } => Some(bytes),
                History::Full | History::Ring { .. } => None,
            },
            pages: Pages::default(),
            resolver,
            paths_told: 0,
            young: Vec::new(),
            edges_told: 0,
            pushes_told: 0,
            quiet_told: 0,
            ended: Vec::new(),
            actions: inherited(tracee.0),
            was_running: false,
            turns: turns.copied(),
            leaves: None,
            harm: Harm::default(),
            debugger: None,
            watches_kernel_writes: false,
            culprit: Culprit::default(),
            full_buffers: 0,
        };
        let begun = process.begin(tracee);
        if begun.as_ref().is_err_and(|error| !error.is_of_end()) {
            // If that fails, it is as it is.
            let _ = process.window.leave(tracee, &process.memory);
        }
        begun.map(|()| process)
    }

    /// Looks at a program that is new, and has an area ready for the first thread.
    fn begin(&mut self, tracee: Tracee) -> Result<(), Error> {
        self.hide_ranges();
        self.look_at_mappings(tracee.0)?;
        self.prepare_area(tracee)?;
        self.window.keep_promise();
        Ok(())
    }

    /// Another program runs in the process, whose only thread stands in it.
    pub(super) fn exec(&mut self, tid: Tid) -> Result<(), Error> {
        let pid = self.recorder.pid();
        let path = executable(pid)?.to_string_lossy().into_owned();
        self.recorder.event(tid, Event::Exec { path })?;
        self.memory = Memory::open(pid)?;
        let (window, translator) = cache(Tracee(tid), pid, &self.memory, self.window.buffer_bytes)?;
        self.window = window;
        self.translator = translator;
        self.feed.tell(tid, Item::Program(self.window.shared.clone()));
        (self.edges_told, self.pushes_told, self.quiet_told) = (0, 0, 0);
        self.harm = Harm::default();
        self.paths_told = 0;
        self.resolver.start_over();
        self.feed.tell(tid, Item::Ranges(self.resolver.ranges().clone()));
        self.young.clear();
        self.actions = inherited(tid);
        self.was_running = false;
        self.watches_kernel_writes = false;
        if let Some(debugger) = &mut self.debugger {
            // The new cache does not stop at calls yet.
            debugger.catches = Catches::None;
        }
        self.translator.set_stops(&self.debugger.as_ref().map(Debugger::stops).unwrap_or_default());
        self.space.clear();
        self.pages.clear();
        self.begin(Tracee(tid))
    }

    fn hide_ranges(&mut self) {
        let known = self.space.hidden().len();
        for range in self.window.ranges.iter().skip(known) {
            self.space.hide(*range);
        }
    }

    /// The SYSCALL instruction by which a thread is made to execute system calls.
    pub(super) fn gadget(&self) -> Addr {
        self.translator.zones().first().map_or(Addr(0), |zone| Addr(zone.gadget))
    }

    /// Has an area ready for a thread to come.
    pub(super) fn prepare_area(&mut self, tracee: Tracee) -> Result<(), Error> {
        let gadget = self.gadget();
        self.window.prepare_area(tracee, gadget)?;
        self.hide_ranges();
        Ok(())
    }

    /// Takes the area that is ready, for a thread.
    pub(super) fn take_area(&mut self) -> Option<(Area, Arc<Busy>)> {
        let (area, busy) = self.window.take_area()?;
        self.window.shared.store(area.slot(slots::TRACE_POINTER), area.buffer(0));
        Some((area, busy))
    }

    /// The mappings may have changed.
    pub(super) fn look_at_mappings(&mut self, tid: Tid) -> Result<(), Error> {
        let changes =
            self.mappings.refresh(&mut self.space, &mut self.recorder, &self.memory, tid)?;
        if changes.code {
            self.pages.forget_stable();
            if self.resolver.update(self.space.mappings()) {
                self.resolver.must_fit()?;
                self.feed.tell(tid, Item::Ranges(self.resolver.ranges().clone()));
            }
        }
        // A mapping that is told anew is told without what was written there.
        for Change { addr, bytes } in self.pages.told_in(&changes.mapped) {
            self.recorder.event(tid, Event::Code { addr, bytes })?;
        }
        Ok(())
    }

    /// Code in `range` is not what it was.
    pub(super) fn forget_code(&mut self, range: AddrRange) {
        self.translator.invalidate(range.start.0, range.end.0);
        for alias in self.space.aliases(range) {
            self.translator.invalidate(alias.start.0, alias.end.0);
        }
        self.pages.forget_stable();
    }

    /// Translates with `act`, makes room where there is none, and tells of code that changed.
    /// `thread` stands still and is about to execute what is at `ip`.
    fn translating<T>(
        &mut self,
        thread: &mut Thread,
        ip: u64,
        mut act: impl FnMut(&mut Translator<Arc<Shared>>, &mut View<'_>) -> Result<T, TranslateError>,
    ) -> Result<T, Error> {
        loop {
            let (result, pages) = self.translate_once(thread, ip, &mut act)?;
            // All that was read is told before: the thread may be killed any time.
            if self.protect_all(thread.tracee, &pages)? {
                return Ok(result);
            }
        }
    }

    /// The same, of code that may not be there any more. Gives the pages that can change, too.
    fn translate_once<T>(
        &mut self,
        thread: &mut Thread,
        ip: u64,
        act: &mut impl FnMut(&mut Translator<Arc<Shared>>, &mut View<'_>) -> Result<T, TranslateError>,
    ) -> Result<(T, Vec<u64>), Error> {
        let before = self.translator.edge_count();
        let mut changes = Vec::new();
        let (result, pages) = loop {
            let mut view = self.pages.view(&self.memory, &self.space);
            let result = act(&mut self.translator, &mut view);
            let (pages, news) = view.finish();
            // What one attempt found changed, the next one knows.
            changes.extend(news);
            match result {
                Ok(result) => break (result, pages),
                Err(TranslateError::NoZone(near)) => {
                    let gadget = self.gadget();
                    let (base, offset) = self.window.zone(thread.tracee, gadget, near)?;
                    self.translator.add_zone(base, ZONE_BYTES, offset);
                    self.hide_ranges();
                }
                Err(error) => return Err(Error::Translate(error)),
            }
        };
        if !changes.is_empty() {
            if thread.place == Place::Cache {
                let pointer = thread.tracee.registers()?.r11;
                self.take_records(thread, pointer);
            }
            // A point of the trace with a time, from which on the new bytes hold.
            self.tell(thread.tid(), Item::Leave { ip });
            for change in changes {
                let event = Event::Code { addr: change.addr, bytes: change.bytes };
                self.recorder.event(thread.tid(), event)?;
            }
            self.tell(thread.tid(), Item::Enter { ip, tsc: now().0 });
        }
        if !pages.is_empty() {
            self.young.push((before, now().0));
        }
        Ok((result, pages))
    }

    /// Writes to pages that code was translated from must not go unnoticed. Gives whether none did
    /// between their reading and now; else what was translated from them is forgotten.
    fn protect_all(&mut self, tracee: Tracee, pages: &[u64]) -> Result<bool, Error> {
        let mut is_current = true;
        for &page in pages {
            let range = AddrRange::sized(Addr(page), PAGE_BYTES);
            let mut was_open = self.protect(tracee, page)?;
            for alias in self.space.aliases(range) {
                was_open |= self.protect(tracee, alias.start.0)?;
            }
            if was_open && self.pages.is_overwritten(page, &self.memory) {
                self.forget_code(range);
                is_current = false;
            }
        }
        Ok(is_current)
    }

    /// Gives whether the page could be written until now.
    fn protect(&mut self, tracee: Tracee, page: u64) -> Result<bool, Error> {
        let protection = self.space.protection(Addr(page));
        let Some(protection) = protection.filter(|p| p.write && !self.space.is_masked(page)) else {
            return Ok(false);
        };
        self.space.mask(page);
        self.watch_kernel_writes();
        self.set_protection(tracee, page, bits_of(protection) & !PROT_WRITE)?;
        Ok(true)
    }

    /// The page may be written again.
    pub(super) fn unprotect(&mut self, tracee: Tracee, page: u64) -> Result<(), Error> {
        match self.space.protection(Addr(page)) {
            Some(protection) if self.space.unmask(page) => {
                self.set_protection(tracee, page, bits_of(protection))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn set_protection(
        &self,
        tracee: Tracee,
        page: u64,
        protection: u64,
    ) -> Result<(), Error> {
        let args = [page, PAGE_BYTES, protection, 0, 0, 0];
        checked("mprotect", tracee.inject(self.gadget(), MPROTECT, args)?)?;
        Ok(())
    }

    /// Gives the address in the cache at which the request of a thread goes on.
    pub(super) fn serve(&mut self, thread: &mut Thread) -> Result<(), Error> {
        let shared = self.window.shared.clone();
        let area = thread.area;
        let slot = |slot| area.slot(slot);
        let request = shared.load(slot(slots::REQUEST));
        let target = shared.load(slot(slots::TARGET));
        let ip = self.translator.requested(request, target);
        let address = self.translating(thread, ip, |t, code| t.serve(request, target, code))?;
        shared.store(slot(slots::RESPONSE), address);
        shared.store(slot(slots::REQUEST), 0);
        Ok(())
    }

    /// Lets a thread that stands in the program go on in the cache.
    pub(super) fn dispatch(&mut self, thread: &mut Thread) -> Result<(), Error> {
        let ip = thread.tracee.registers()?.rip;
        let number = self.translating(thread, ip, |t, code| t.get(ip, code))?;
        self.go_into(thread, number)
    }

    /// The same, even where threads are to stop.
    pub(super) fn dispatch_passing(&mut self, thread: &mut Thread) -> Result<(), Error> {
        let ip = thread.tracee.registers()?.rip;
        let number = self.translating(thread, ip, |t, code| t.get_passing(ip, code))?;
        self.go_into(thread, number)
    }

    fn go_into(&mut self, thread: &mut Thread, number: u32) -> Result<(), Error> {
        let mut registers = thread.tracee.registers()?;
        let body = self.translator.superblock(number).map_or(0, |superblock| superblock.body);
        let shared = &self.window.shared;
        shared.store(thread.area.slot(slots::R11), registers.r11);
        thread.gs_base = registers.gs_base;
        registers.r11 = shared.load(thread.area.slot(slots::TRACE_POINTER));
        if !thread.holds(registers.r11) {
            self.note_harm("overwrote its trace pointer");
        }
        registers.gs_base = thread.area.base;
        registers.rip = body;
        thread.tracee.set_registers(&registers)?;
        thread.place = Place::Cache;
        Ok(())
    }

    /// The name of a thread, or the last one that it had.
    pub(super) fn name_of(&self, tid: Tid) -> String {
        let ended = self.ended.iter().rfind(|ended| ended.tid == tid);
        ended.map_or_else(|| comm(self.recorder.pid(), tid), |ended| ended.name.clone())
    }

    /// Nothing more comes of a thread.
    pub(super) fn thread_ended(&mut self, tid: Tid, final_pc: Option<Addr>) {
        let name = comm(self.recorder.pid(), tid);
        self.tell(tid, Item::End);
        self.tell_kept(tid);
        self.ended.push(Ended { tid, name, final_pc });
    }

    /// Completes the recording of a process that is gone.
    pub(super) fn finish(mut self, exit: Option<Exit>) -> Result<(Finished, Vec<String>), Error> {
        let became_ring = self.has_become_ring();
        let (packets, mut tallies) = self.feed.finish();
        for (tid, bytes) in packets {
            self.recorder.trace(tid, &bytes)?;
        }
        let overwritten = self.ring.is_some_and(|ring| ring.overwritten);
        let mut notes = self.resolver.notes();
        if overwritten {
            let note = if became_ring {
                "the history has a gap between where it reached its largest size and its end"
            } else {
                "the history begins where the ring of records does; --full keeps all of it"
            };
            notes.push(note.to_owned());
        }
        for Ended { tid, name, final_pc } in self.ended {
            // A number that went to another thread, at its exec, ends twice and has one tally.
            let tally = tallies.remove(&tid).unwrap_or_default();
            if tally.damaged {
                notes.push(format!(
                    "the program overwrote the trace buffer of thread {tid}, whose history ends there"
                ));
            }
            self.recorder.thread_ended(tid, name, tally.instructions, final_pc)?;
        }
        Ok((self.recorder.finish(exit)?, notes))
    }
}

/// Bytes of each of a thread's trace buffers.
fn buffer_bytes(history: History) -> u64 {
    const FULL: u64 = 1 << 20;
    const SMALLEST: u64 = 64 << 10;
    match history {
        History::Full => FULL,
        History::Ring { bytes } | History::Limited { ring_bytes: bytes, .. } => {
            (bytes / BUFFERS as u64).clamp(SMALLEST, LARGEST_BUFFER_BYTES) & !(PAGE_BYTES - 1)
        }
    }
}

/// The protection as mprotect(2) has it.
pub(super) fn bits_of(protection: Protection) -> u64 {
    u64::from(protection.read)
        | u64::from(protection.write) << 1
        | u64::from(protection.execute) << 2
}

/// Makes the code cache of a process whose only thread stands in the program.
fn cache(
    tracee: Tracee,
    pid: Pid,
    memory: &Memory,
    buffer_bytes: u64,
) -> Result<(Window, Translator<Arc<Shared>>), Error> {
    let mut window = Window::open(tracee, pid, memory, buffer_bytes)?;
    let classes = u64::from(slots::TARGETS - slots::SYSCALL_CLASSES);
    let mut translator = Translator::new(window.shared.clone(), classes, Limits::default());
    let (base, offset) = window.first_zone(tracee, memory)?;
    translator.add_zone(base, ZONE_BYTES, offset);
    let mut table = vec![0_u8; usize::try_from(classes).unwrap_or(0)];
    for call in SEEN_CALLS.into_iter().chain(LEAVING_CALLS) {
        if let Some(class) = usize::try_from(call).ok().and_then(|call| table.get_mut(call)) {
            *class = 1;
        }
    }
    crate::translate::CacheMemory::write(&window.shared, 0, &table);
    Ok((window, translator))
}
