//! The path of an exact recording, as a recording of packets. For each entry of the log, the run is
//! repeated up to the entry's *site*, the place where it happens. Code that records the path fills
//! a trace buffer on the way; its records, and the instructions executed by steps of the CPU,
//! become packets of the thread's trace. Then the entry is applied, and becomes packets and events
//! of the sideband.
//!
//! A thread's trace is on between [`InlineTracer::return_from_kernel`] and
//! [`InlineTracer::enter_kernel`], which do nothing if it is on or off already. Runs, and entries
//! that execute an instruction, switch it on; changed code, steps of the CPU and other entries
//! switch it off. An entry that happens anywhere, for instance while its thread is in a system call
//! ([`Site::Anywhere`]), has no site: nothing runs before it.
//!
//! Times are not those of a clock: each is the replay's moment ([`Replay::moment`]) plus the number
//! of times returned so far. They order all threads exactly, and no two are the same.

mod kept;
mod written;

pub use kept::path_of;

use super::error::Error;
use super::events::Site;
use super::process::Replay;
use crate::common::{Addr, Tid};
use crate::encode::InlineTracer;
use crate::engine::{CodeKind, Rerun, RerunEnd, RerunLimit, vsyscall_at};
use crate::insn::{Insn, Registers};
use crate::recording::log::{Entry, LogEvent, MapChange, PlaceInTick};
use crate::recording::{PathPlace, Reader};
use crate::sideband::Event;
use crate::translate::Bound;
use std::path::Path;
use written::WrittenPath;

/// Bytes of trace between PSB packets, where the recording does not say.
const PSB_PERIOD_BYTES: u32 = 4096;

/// Repeats the run of an exact recording, and writes its path to a new recording in `dir`. Calls
/// `goes_on` with the ticks so far and of the whole run; false ends it with an error.
fn write_path(
    reader: Reader,
    dir: &Path,
    goes_on: &mut dyn FnMut(u64, u64) -> bool,
) -> Result<(), Error> {
    let psb_period_bytes = u32::try_from(reader.manifest().capture.psb_period_bytes).ok();
    let psb_period_bytes = psb_period_bytes.filter(|bytes| *bytes > 0).unwrap_or(PSB_PERIOD_BYTES);
    let replay = Replay::open_as(reader, CodeKind::Rerecording)?;
    let written = WrittenPath::begin(replay.reader(), dir, psb_period_bytes)?;
    let tracer = InlineTracer::new(psb_period_bytes);
    let mut path = PathWriter { replay, tracer, written, extra_time: 0 };
    path.begin_program()?;
    path.write_run(goes_on)?;
    path.finish()
}

/// Repeats a run, and writes its path.
struct PathWriter {
    replay: Replay,
    /// Makes the packets of all threads.
    tracer: InlineTracer,
    written: WrittenPath,
    /// The number of times returned so far; added to the moment, so that no two are the same.
    extra_time: u64,
}

impl PathWriter {
    /// Returns a new time, later than all before: the replay's moment, plus 1 for each time that
    /// was returned, this one included.
    fn next_time(&mut self) -> u64 {
        self.extra_time += 1;
        self.replay.moment(self.replay.position()).saturating_add(self.extra_time)
    }

    /// Writes an event of a thread, with a new time.
    fn event(&mut self, tid: Tid, event: Event) -> Result<(), Error> {
        let tsc = self.next_time();
        self.written.event(tsc, tid, event)
    }

    /// Writes the threads, the mappings and the changed code of a program that begins. The replay
    /// is at its first instruction. Does nothing if no thread is loaded.
    fn begin_program(&mut self) -> Result<(), Error> {
        let Some(tid) = self.replay.epoch.contexts.loaded() else { return Ok(()) };
        let now = self.next_time();
        for tid in self.replay.epoch.contexts.tids() {
            self.written.thread(now, tid)?;
        }
        let start = self.replay.outline.starts.get(self.replay.number);
        let entry = start.and_then(|start| start.cursor().read().transpose()).transpose()?;
        if let Some(LogEvent::Start(start)) = entry.map(|entry| entry.event) {
            self.written.note_file_names(&start.mappings);
        }
        self.write_mappings(tid)?;
        for (addr, bytes) in self.replay.code_written_at_start()? {
            self.event(tid, Event::Code { addr, bytes })?;
        }
        Ok(())
    }

    /// Writes the changes of the mappings since the last call.
    fn write_mappings(&mut self, tid: Tid) -> Result<(), Error> {
        let now = self.next_time();
        self.written.mappings(now, tid, &self.replay.epoch.engine)
    }

    /// Repeats the run to its end, and writes the path up to each entry, then the entry. Fails with
    /// [`Error::Interrupted`] if `goes_on` returns false.
    fn write_run(&mut self, goes_on: &mut dyn FnMut(u64, u64) -> bool) -> Result<(), Error> {
        let total = self.replay.total_ticks();
        loop {
            let done = self.replay.ticks_before(self.replay.position());
            if !goes_on(done, total) {
                return Err(Error::Interrupted);
            }
            let Some(entry) = self.replay.cursor.current()? else { return Ok(()) };
            let site = self.replay.site_of(&entry);
            if site != Site::Anywhere {
                self.load(&entry)?;
                self.write_place(entry.tid)?;
                self.run_to(&entry, site, goes_on)?;
            }
            let insn = self.leave_path_at(&entry, site)?;
            let before = self.replay.registers_of(entry.tid)?;
            if !self.replay.apply_next_entry()? {
                return Ok(());
            }
            self.write_entry(&entry, insn, &before)?;
            self.write_trace(entry.tid)?;
        }
    }

    /// Writes the replay's position, and the number of thread `tid`'s next instruction there
    /// ([`PathPlace`]), by which positions of the replay and the path are converted.
    fn write_place(&mut self, tid: Tid) -> Result<(), Error> {
        let (entry, ticks) = (self.replay.cursor.index(), self.replay.ticks);
        let index = self.tracer.instructions(tid);
        self.written.place(PathPlace { entry, ticks, tid, index })
    }

    /// Loads the thread of an entry into the process. Fails if there is no such thread.
    fn load(&mut self, entry: &Entry) -> Result<(), Error> {
        let (epoch, here) = (&mut self.replay.epoch, self.replay.cursor.index());
        if epoch.contexts.load(entry.tid, epoch.thread.tracee)? {
            return Ok(());
        }
        Err(Error::BadLog { entry: here, what: "it is of a thread that is not there" })
    }

    /// Runs the loaded thread to the site of its entry, and writes its path. Fails if it does not
    /// reach the site, or if `goes_on` returns false.
    fn run_to(
        &mut self,
        entry: &Entry,
        site: Site,
        goes_on: &mut dyn FnMut(u64, u64) -> bool,
    ) -> Result<(), Error> {
        let tid = entry.tid;
        let total = self.replay.total_ticks();
        loop {
            let left = entry.ticks.checked_sub(self.replay.ticks);
            let Some(left) = left else {
                return Err(self.replay.diverged(tid, "its path is longer than the recorded one"));
            };
            let limit = match (site, self.replay.hook_here()?) {
                (Site::Hook, Some(_)) => return Ok(()),
                (Site::Hook, None) => RerunLimit::Records(u64::MAX),
                (Site::Place(place), _) if left == 0 => return self.walk_to(tid, place),
                (_, Some(_)) => {
                    return Err(self.replay.diverged(tid, "it makes a call that was not recorded"));
                }
                (_, None) => self.limit_within(left),
            };
            self.run(tid, limit)?;
            if self.replay.ticks > 0 {
                self.write_place(tid)?;
            }
            if !goes_on(self.replay.ticks_before(self.replay.position()), total) {
                return Err(Error::Interrupted);
            }
        }
    }

    /// Returns a limit for a run of at most `ticks` ticks: the number of records that certainly
    /// have no more; if that is 0, the bound of ticks, which is slower.
    fn limit_within(&self, ticks: u64) -> RerunLimit {
        match self.replay.epoch.engine.translator().records_within(ticks) {
            0 => RerunLimit::Bound(Bound::Ticks(ticks)),
            records => RerunLimit::Records(records),
        }
    }

    /// Runs the loaded thread to a place before its next tick, instruction by instruction, and
    /// writes its path. At a REP instruction, also executes the iterations before the place
    /// ([`Replay::repeat_iterations`]). Fails at a hook before the place, or after a tick that does
    /// not lead there.
    fn walk_to(&mut self, tid: Tid, place: PlaceInTick) -> Result<(), Error> {
        let ticks = self.replay.ticks;
        while self.replay.ip()? != place.ip {
            if self.replay.ticks != ticks || self.replay.hook_here()?.is_some() {
                let what = format!("it does not reach {}", place.ip);
                return Err(self.replay.diverged(tid, what));
            }
            self.run(tid, RerunLimit::Bound(Bound::Instructions(1)))?;
        }
        self.replay.repeat_iterations(tid, place)
    }

    /// Runs the loaded thread once, and writes its path, with code that changed. If the run ends at
    /// an instruction that the cache cannot execute, executes that too, unless it has a hook. If it
    /// ends at a fault, extends a stack, or fails.
    fn run(&mut self, tid: Tid, limit: RerunLimit) -> Result<(), Error> {
        let (now, ip) = (self.next_time(), self.replay.ip()?.0);
        self.tracer.return_from_kernel(tid, ip, now);
        let epoch = &mut self.replay.epoch;
        let Rerun { records, partial, end } = epoch.engine.rerun(&mut epoch.thread, limit)?;
        // The instructions of the last block, if the run ended within it. The address after them,
        // the other half of the pair, is the thread's IP.
        let steps = partial.as_ref().map(|(steps, _)| steps.as_slice());
        let ip = self.replay.ip()?.0;
        let code = self.replay.epoch.engine.translator();
        let ticks = self.tracer.encode_records(code, tid, &records, steps, ip);
        let ticks = ticks.map_err(|_| {
            self.replay.diverged(tid, "it damaged the records of its path, which are in its memory")
        })?;
        self.replay.ticks += ticks;
        self.replay.instructions = None;
        match end {
            RerunEnd::Limit => {}
            RerunEnd::Native if self.replay.hook_here()?.is_some() => {}
            RerunEnd::Native => self.step(tid)?,
            RerunEnd::Changed(changes) => {
                // Makes a point of the trace with a time, from which on the new bytes are valid.
                self.tracer.enter_kernel(tid, ip);
                for change in changes {
                    let (addr, bytes) = (change.addr, change.bytes);
                    self.event(tid, Event::Code { addr, bytes })?;
                }
            }
            RerunEnd::Signal(info) => self.replay.handle_fault(tid, &info)?,
        }
        self.write_trace(tid)
    }

    /// Executes one instruction of the loaded thread by a step of the CPU, and encodes it. If it
    /// faults, extends a stack, or fails. The packets around it give its address and that of the
    /// next one, so that no loop without packets can hide it.
    fn step(&mut self, tid: Tid) -> Result<(), Error> {
        let (now, ip) = (self.next_time(), self.replay.ip()?);
        self.tracer.enter_kernel(tid, ip.0);
        let insn = self.replay.insn_at(ip);
        let signal = self.replay.step_natively()?;
        let next = self.replay.ip()?;
        // A trap comes after its instruction. It has an entry, whose place is here.
        if let Some(info) = signal.filter(|_| next == ip) {
            return self.replay.handle_fault(tid, &info);
        }
        if let Some(insn) = insn {
            self.tracer.return_from_kernel(tid, ip.0, now);
            self.tracer.stepped_insn(tid, &insn, next.0);
            self.tracer.enter_kernel(tid, next.0);
        }
        Ok(())
    }

    /// Ends the thread's path at its entry, where it leaves the program. Returns the instruction
    /// that the entry executes, if it executes one, instead of ending the path: its successor is
    /// not known yet, so the caller encodes it after the entry has happened.
    fn leave_path_at(&mut self, entry: &Entry, site: Site) -> Result<Option<Insn>, Error> {
        if site == Site::Anywhere {
            return Ok(None);
        }
        let ip = self.replay.ip()?;
        let now = self.next_time();
        match entry.event {
            LogEvent::Call { .. }
            | LogEvent::Enters { .. }
            | LogEvent::Ends { .. }
            | LogEvent::Executes { .. }
            | LogEvent::Accesses { .. } => {
                self.tracer.return_from_kernel(entry.tid, ip.0, now);
                // There is no code in the vsyscall page.
                let insn = self.replay.insn_at(ip).filter(|_| vsyscall_at(ip).is_none());
                if insn.is_none() {
                    self.tracer.enter_kernel(entry.tid, ip.0);
                }
                Ok(insn)
            }
            _ => {
                self.tracer.enter_kernel(entry.tid, ip.0);
                Ok(None)
            }
        }
    }

    /// Writes the packets and events of an entry that has happened. `insn` is the instruction that
    /// it executed, if any; `before` are the registers of its thread before it.
    fn write_entry(
        &mut self,
        entry: &Entry,
        insn: Option<Insn>,
        before: &Registers,
    ) -> Result<(), Error> {
        let tid = entry.tid;
        if let LogEvent::Start(start) = &entry.event {
            self.tracer.new_program();
            self.written.forget_mappings();
            self.event(tid, Event::Exec { path: start.program.clone() })?;
            return self.begin_program();
        }
        if let Some(insn) = insn {
            let next = self.replay.registers_of(tid)?.rip;
            if insn.rep && next == insn.ip.0 {
                // A signal stopped it amid its iterations.
                self.tracer.enter_kernel(tid, next);
            } else {
                self.tracer.stepped_insn(tid, &insn, next);
            }
        }
        match &entry.event {
            LogEvent::Born { .. } => {
                let now = self.next_time();
                self.written.thread(now, tid)?;
                self.tracer.set_creation_time(tid, now);
            }
            LogEvent::Ends { .. } => self.event(tid, Event::ThreadExit)?,
            event => {
                let now = self.next_time();
                self.written.entry_events(now, tid, event, before)?;
            }
        }
        let maps = match &entry.event {
            LogEvent::Call { effects, .. } | LogEvent::Returns { effects } => {
                effects.maps.as_slice()
            }
            _ => &[],
        };
        if maps.is_empty() {
            return Ok(());
        }
        self.written.note_file_names(maps.iter().filter_map(|change| match change {
            MapChange::Map(mapped) => Some(mapped),
            _ => None,
        }));
        self.write_mappings(tid)
    }

    /// Moves the packets that a thread's encoder has made to the thread's trace.
    fn write_trace(&mut self, tid: Tid) -> Result<(), Error> {
        let packets = self.tracer.drain(tid);
        self.written.trace(tid, &packets)
    }

    /// Writes the packets that are left, and completes the recording.
    fn finish(self) -> Result<(), Error> {
        let Self { replay, tracer, mut written, .. } = self;
        let mut instructions = Vec::new();
        for (tid, packets, count) in tracer.finish() {
            written.trace(tid, &packets)?;
            instructions.push((tid, count));
        }
        written.finish(replay.reader(), &instructions)
    }
}

impl Replay {
    /// Returns the addresses and bytes of the code that differed from the mapped files when the
    /// recording of the loaded program began.
    fn code_written_at_start(&self) -> Result<Vec<(Addr, Vec<u8>)>, Error> {
        let Some(start) = self.outline.starts.get(self.number) else { return Ok(Vec::new()) };
        let mut cursor = start.cursor();
        cursor.skip()?;
        let mut code = Vec::new();
        while let Some(entry) = cursor.read()? {
            let LogEvent::Memory(write) = entry.event else { break };
            if self.epoch.engine.space.is_executable(write.addr) {
                code.push((write.addr, write.bytes.0));
            }
        }
        Ok(code)
    }
}
