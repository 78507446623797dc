//! The parts of a recording that all backends write: its manifest, the threads' entries there, the
//! sideband. Independent of how control flow is recorded.

use super::backend::Backend;
use super::clock::{Clock, now};
use super::error::Error;
use super::host::{features, host_cpu};
use super::request::{History, Request};
use super::shared_cpu::{HelperPlacement, SharedCpu};
use super::signals::SnapshotSignal;
use super::snapshot::SnapshotFile;
use crate::common::{Addr, AddrRange, Pid, Tid, Tsc};
use crate::recording::log::{DeferredEntries, Entry};
use crate::recording::{
    self, Capture, Destination, End, Exit, Hardware, LogTotals, Manifest, Store, ThreadEntry,
    TscClock, Writer, argument_text,
};
use crate::sideband::{Event, Record};
use crate::tracee::{comm, image_of};
use std::collections::VecDeque;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// The age at which pending data is flushed, so that it is not lost if the recorder is killed.
const FLUSH_PERIOD: Duration = Duration::from_millis(200);

/// The recording of a process while it is being written.
#[derive(Debug)]
pub(super) struct Recorder {
    writer: Writer,
    manifest: Manifest,
    clock: Clock,
    threads: Vec<ThreadEntry>,
    /// The threads that have ended, each with the number of log entries before its end: they are
    /// forgotten together with that part of the log. `None` if the whole log is kept.
    ended_threads: Option<VecDeque<(u64, Tid)>>,
    /// The time of the last flush.
    last_flush: Instant,
    /// The time since the start from which on only the end of the history is kept; `None` if the
    /// recording has not become a ring.
    ring_since_ns: Option<u64>,
    /// The file through which other processes request snapshots; `None` if it could not be created.
    snapshot_file: Option<SnapshotFile>,
    /// The store whose caches the recording uses and adds to.
    pub(super) store: Store,
}

/// A recording that was created before the process to record exists.
#[derive(Debug)]
pub(super) struct Prepared {
    destination: Destination,
    writer: Writer,
    manifest: Manifest,
    store: Store,
    /// True if only the end of the log is kept: earlier parts are dropped during the run.
    keeps_end: bool,
}

impl Prepared {
    /// Creates the recording of a program that is about to run or to be attached to: in the
    /// directory that the request names, otherwise in the store. If children are recorded too, also
    /// fails if the store cannot take their recordings.
    pub(super) fn of_program(
        request: &Request,
        backend: Backend,
    ) -> Result<Self, recording::Error> {
        if request.follow_forks && request.output.is_some() {
            // Check first that the store can contain the children's recordings.
            Destination::in_store(&request.store, &request.program)?.roll_back();
        }
        let destination = match &request.output {
            Some(dir) => Destination::named(dir, request.force)?,
            None => Destination::in_store(&request.store, &request.program)?,
        };
        Self::create_at(destination, request, backend)
    }

    /// Creates the recording of a child of the program, in the store.
    pub(super) fn of_child(request: &Request, backend: Backend) -> Result<Self, recording::Error> {
        let destination = Destination::in_store(&request.store, &request.program)?;
        Self::create_at(destination, request, backend)
    }

    /// Creates the recording of a child `pid` that a debugger follows: in the directory that the
    /// request names for the program, with `-PID` added to its name, otherwise in the store.
    pub(super) fn of_followed(
        request: &Request,
        backend: Backend,
        pid: Pid,
    ) -> Result<Self, recording::Error> {
        let Some(dir) = &request.output else { return Self::of_child(request, backend) };
        let mut name = dir.clone().into_os_string();
        name.push(format!("-{pid}"));
        let destination = Destination::named(name.as_ref(), request.force)?;
        Self::create_at(destination, request, backend)
    }

    /// Creates the recording at `destination`. Rolls `destination` back if that fails.
    fn create_at(
        destination: Destination,
        request: &Request,
        backend: Backend,
    ) -> Result<Self, recording::Error> {
        let manifest = starting_manifest(request, backend);
        match Writer::create(destination.dir(), &manifest) {
            Ok(mut writer) => {
                writer.use_known_images(&request.store);
                let store = request.store.clone();
                let keeps_end = request.keep.is_some();
                Ok(Self { destination, writer, manifest, store, keeps_end })
            }
            Err(error) => {
                destination.roll_back();
                Err(error)
            }
        }
    }

    /// Sets the configuration of the PT unit and its PSB period in the manifest.
    pub(super) fn set_hardware(&mut self, hardware: Hardware, psb_period_bytes: u32) {
        self.manifest.capture.hardware = Some(hardware);
        self.manifest.capture.psb_period_bytes = psb_period_bytes.into();
    }

    /// Returns the recording's directory.
    pub(super) fn dir(&self) -> &Path {
        self.destination.dir()
    }

    /// Removes the recording, as there is no process after all, and restores the one that it was to
    /// replace.
    pub(super) fn give_up(self) {
        self.destination.roll_back();
    }

    /// Marks the recording as the store's latest, if it is in the store.
    pub(super) fn set_latest(&self, store: &Store) -> Result<(), recording::Error> {
        store.set_latest(self.destination.dir())
    }
}

impl Recorder {
    /// Starts a prepared recording, now that the process `pid` exists: writes its manifest and
    /// creates the file for requests of snapshots. Removes the recording that this one replaces.
    /// The directory stays from here on, even after a failure.
    pub(super) fn start(prepared: Prepared, pid: Pid) -> Result<Self, recording::Error> {
        let Prepared { destination, writer, mut manifest, store, keeps_end } = prepared;
        manifest.pid = pid;
        manifest.started_unix_ns = now_unix_ns();
        writer.rewrite_starting(&manifest)?;
        let snapshot_file = SnapshotFile::create(writer.dir(), SnapshotSignal::is_handled());
        destination.remove_replaced()?;
        Ok(Self {
            snapshot_file,
            store,
            writer,
            manifest,
            clock: Clock::start(),
            threads: Vec::new(),
            ended_threads: keeps_end.then(VecDeque::new),
            last_flush: Instant::now(),
            ring_since_ns: None,
        })
    }

    /// Returns the recorded process.
    pub(super) fn pid(&self) -> Pid {
        self.manifest.pid
    }

    /// Returns the TSC's start and its mean rate so far.
    pub(super) fn clock_so_far(&self) -> TscClock {
        self.clock.so_far()
    }

    /// Returns the numbers of entries and ticks of the log since the start, and the size of the
    /// kept part, including what is not written out yet; zeros without a log.
    pub(super) fn log_so_far(&self) -> LogTotals {
        self.writer.log_so_far()
    }

    /// Appends an entry to the log; does nothing without one. The entry is on disk after the next
    /// [`Self::flush`]. An error may be that of an earlier entry.
    pub(super) fn log(&mut self, entry: &Entry) -> Result<(), recording::Error> {
        self.writer.log(entry)
    }

    /// Appends entries to the log that are made later, by the thread that writes the log. In the
    /// log, they come before all that is appended after this call.
    pub(super) fn log_later(&mut self, later: DeferredEntries) -> Result<(), recording::Error> {
        self.writer.log_later(later)
    }

    /// Writes out the log, and ends the thread that writes it: it starts again when there is much
    /// to write. Called before this process forks, when it must have one thread.
    pub(super) fn pause_log_thread(&mut self) -> Result<(), recording::Error> {
        self.writer.pause_log_thread()
    }

    /// Moves the thread that writes the log off the CPU of the program, where another has time to
    /// spare. The thread decides that again and again ([`HelperPlacement`]). Call this before there
    /// is much to write: a thread that runs already stays where it is.
    pub(super) fn move_log_thread(&mut self, shared_cpu: &SharedCpu) {
        let placement = Mutex::new(HelperPlacement::of(shared_cpu));
        self.writer.place_log_thread(move || {
            placement.lock().unwrap_or_else(PoisonError::into_inner).choose_cpu();
        });
    }

    /// Writes out the log, and returns the totals of the kept part; `None` if there is no log.
    pub(super) fn log_totals(&mut self) -> Result<Option<LogTotals>, recording::Error> {
        self.writer.log_totals()
    }

    /// Returns the writer of the recording's files.
    pub(super) fn writer(&self) -> &Writer {
        &self.writer
    }

    /// Begins a new part (file) of the log. Called when a keyframe was just written, from which a
    /// replay can start. Fails if the last part has no entries; does nothing without a log.
    pub(super) fn begin_log_part(&mut self) -> Result<(), recording::Error> {
        self.writer.begin_log_part()
    }

    /// Starts the trace of a new thread, and adds the thread to the manifest and the sideband. If
    /// an ended thread had its number, continues the trace and the entry of that one, and records
    /// no second `ThreadStart`.
    pub(super) fn add_thread(&mut self, tid: Tid) -> Result<(), recording::Error> {
        self.writer.start_thread(tid)?;
        // The kernel may give the number of an ended thread to a new one.
        self.ended_threads.iter_mut().for_each(|ended| ended.retain(|(_, ended)| *ended != tid));
        if self.thread_entry(tid).is_none() {
            let pid = self.pid();
            self.threads.push(ThreadEntry {
                tid,
                pid,
                name: String::new(),
                trace_bytes: 0,
                instructions: 0,
                final_pc: None,
            });
            self.record_event(tid, Event::ThreadStart)?;
        }
        Ok(())
    }

    /// Records the end of a thread, with its name (empty if unknown), the number of instructions
    /// to add to its entry (0 if unknown), and the address where it ended. Keeps the earlier name
    /// and address of its entry if these are unknown now.
    pub(super) fn thread_ended(
        &mut self,
        tid: Tid,
        name: String,
        instructions: u64,
        final_pc: Option<Addr>,
    ) -> Result<(), recording::Error> {
        if let Some(entry) = self.thread_entry(tid) {
            // If the kernel gave this number to another thread at an execve(2), the counts add up.
            entry.instructions += instructions;
            entry.final_pc = final_pc.or(entry.final_pc);
            if !name.is_empty() {
                entry.name = name;
            }
        }
        let entries = self.log_so_far().entries;
        self.ended_threads.iter_mut().for_each(|ended| ended.push_back((entries, tid)));
        self.record_event(tid, Event::ThreadExit)
    }

    /// Removes the parts of the log before the one that begins with entry `first`, and removes the
    /// threads that ended there from the manifest. If the whole log is to be kept, removes no
    /// threads.
    pub(super) fn drop_log_before(&mut self, first: u64) -> Result<(), recording::Error> {
        self.writer.drop_log_before(first)?;
        let Some(ended) = &mut self.ended_threads else { return Ok(()) };
        while let Some((_, tid)) = ended.front().copied().filter(|(end, _)| *end <= first) {
            ended.pop_front();
            self.threads.retain(|entry| entry.tid != tid);
        }
        Ok(())
    }

    /// Returns the name of a thread; for one that ended, the name it had then. Empty if unknown.
    pub(super) fn name_of(&self, tid: Tid) -> String {
        let known = self.threads.iter().find(|entry| entry.tid == tid && !entry.name.is_empty());
        known.map_or_else(|| comm(self.pid(), tid), |entry| entry.name.clone())
    }

    /// Returns the last entry of a thread with this number; `None` if there is none.
    fn thread_entry(&mut self, tid: Tid) -> Option<&mut ThreadEntry> {
        // Most threads that end were added lately.
        self.threads.iter_mut().rev().find(|entry| entry.tid == tid)
    }

    /// Appends whole PT packets to a thread's trace, and starts it if there is none.
    pub(super) fn append_trace(
        &mut self,
        tid: Tid,
        packets: &[u8],
    ) -> Result<(), recording::Error> {
        self.writer.trace(tid, packets)
    }

    /// Returns the number of bytes of traces, sideband and log written so far.
    pub(super) fn written_bytes(&self) -> u64 {
        self.writer.grown_bytes()
    }

    /// Notes for the manifest that only the end of the history is kept from now on.
    pub(super) fn note_ring_start(&mut self) {
        self.ring_since_ns = Some(self.elapsed_ns());
    }

    /// Returns the time since the recording started.
    fn elapsed_ns(&self) -> u64 {
        u64::try_from(self.clock.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Appends an event of the operating system to the sideband, with the current time.
    pub(super) fn record_event(&mut self, tid: Tid, event: Event) -> Result<(), recording::Error> {
        self.record_event_at(now(), tid, event)
    }

    /// Appends an event of the operating system to the sideband, with the time `tsc`.
    pub(super) fn record_event_at(
        &mut self,
        tsc: Tsc,
        tid: Tid,
        event: Event,
    ) -> Result<(), recording::Error> {
        self.writer.sideband(&Record { tsc, pid: self.pid(), tid, event })
    }

    /// Sets the IP filter ranges of the PT unit in the manifest. Does nothing if that has no
    /// hardware ([`Prepared::set_hardware`]).
    pub(super) fn set_filter(&mut self, ranges: Vec<AddrRange>) {
        if let Some(hardware) = &mut self.manifest.capture.hardware {
            hardware.filter = ranges;
        }
    }

    /// Reports to requesters that a snapshot starts.
    pub(super) fn begin_snapshot(&mut self) {
        self.snapshot_file.iter_mut().for_each(SnapshotFile::count_started);
    }

    /// Flushes all pending data, and reports to requesters that all snapshots that were started are
    /// on disk.
    pub(super) fn end_snapshot(&mut self) -> Result<(), recording::Error> {
        self.flush()?;
        self.snapshot_file.iter_mut().for_each(SnapshotFile::count_written);
        Ok(())
    }

    /// Writes out all pending data, unless that was done less than [`FLUSH_PERIOD`] ago.
    pub(super) fn flush_if_due(&mut self) -> Result<(), recording::Error> {
        if self.last_flush.elapsed() >= FLUSH_PERIOD { self.flush() } else { Ok(()) }
    }

    /// Writes out all pending data.
    pub(super) fn flush(&mut self) -> Result<(), recording::Error> {
        self.last_flush = Instant::now();
        self.writer.flush()
    }

    /// Completes the recording of a process that ended with `exit`; `None` if that is unknown, or
    /// if it was detached from. Removes the file for requests of snapshots. Returns the directory,
    /// the manifest and the number of bytes of all traces.
    pub(super) fn finish(self, exit: Option<Exit>) -> Result<(PathBuf, Manifest, u64), Error> {
        let duration_ns = self.elapsed_ns();
        let Self {
            mut writer,
            mut manifest,
            clock,
            mut threads,
            ring_since_ns,
            mut snapshot_file,
            ..
        } = self;
        for thread in &mut threads {
            thread.trace_bytes = writer.trace_bytes(thread.tid);
        }
        let trace_bytes = threads.iter().map(|thread| thread.trace_bytes).sum();
        manifest.end = Some(End {
            exit,
            duration_ns,
            instructions: threads.iter().map(|thread| thread.instructions).sum(),
            clock: clock.finish(),
            threads,
            cpus: Vec::new(),
            log: writer.log_totals()?,
            ring_since_ns,
        });
        let dir = writer.finish(&manifest)?;
        snapshot_file.iter_mut().for_each(SnapshotFile::remove);
        Ok((dir, manifest, trace_bytes))
    }
}

/// Returns the time since 1970; 0 if the clock is before that.
fn now_unix_ns() -> u64 {
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since_1970.as_nanos()).unwrap_or(u64::MAX)
}

/// Returns the manifest of a recording that starts. Its process ID is 0 unless the request names a
/// running process.
fn starting_manifest(request: &Request, backend: Backend) -> Manifest {
    let (format, written_by) = Manifest::versions();
    let variable = |(name, value): (OsString, OsString)| {
        format!("{}={}", argument_text(&name), argument_text(&value))
    };
    let (cwd, env) = match request.attach {
        None => {
            let here = || std::env::current_dir().unwrap_or_default();
            (request.directory.clone().unwrap_or_else(here), request.environment())
        }
        Some(pid) => directory_and_environment(pid),
    };
    Manifest {
        format,
        written_by,
        program: argument_text(image_of(&request.program).as_os_str()),
        argv: request.argv.iter().map(|argument| argument_text(argument)).collect(),
        env: env.into_iter().map(variable).collect(),
        cwd: argument_text(cwd.as_os_str()),
        pid: request.attach.unwrap_or(Pid(0)),
        started_unix_ns: now_unix_ns(),
        cpu: host_cpu(),
        features: if backend == Backend::Exact { features() } else { Vec::new() },
        capture: Capture {
            backend: backend.into(),
            psb_period_bytes: request.psb_period_bytes.into(),
            aslr: request.aslr,
            filter: {
                let start = request.start_at.iter().map(|code| format!("from {}", code.words()));
                let only = request.only_thread.iter().map(|tid| format!("only thread {tid}"));
                only.chain(start).chain(request.filter.words()).collect()
            },
            history: history_of(request, backend),
            import: None,
            hardware: None,
        },
        end: None,
    }
}

/// Describes the kept part of the run for the manifest, from [`Request::keep`] or else
/// [`Request::history`], which single-stepping and exact recordings ignore.
fn history_of(request: &Request, backend: Backend) -> String {
    if let Some(keep) = request.keep {
        return format!("at least the last {keep:?}");
    }
    match (backend, request.history) {
        (Backend::Step | Backend::Exact, _) => History::Full.words(),
        (Backend::Perf, History::Ring { .. }) => "the last of each thread's trace".to_owned(),
        (_, history) => history.words(),
    }
}

/// Reads a process's working directory, and the environment with which it started; empty if they
/// cannot be read.
fn directory_and_environment(pid: Pid) -> (PathBuf, Vec<(OsString, OsString)>) {
    let environ = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    let variable = |text: &[u8]| {
        let at = text.iter().position(|&byte| byte == b'=')?;
        let word = |bytes: &[u8]| OsString::from_vec(bytes.to_vec());
        Some((word(&text[..at]), word(&text[at + 1..])))
    };
    let cwd = std::fs::read_link(format!("/proc/{pid}/cwd")).unwrap_or_default();
    (cwd, environ.split(|&byte| byte == 0).filter_map(variable).collect())
}
