//! What every backend does with a process: the recording's files, the threads' entries, the
//! sideband. Knows nothing of how control flow is captured.

use super::clock::{Clock, now};
use super::error::Error;
use super::filter::{Code, Filter};
use super::host::host_cpu;
use super::perf::PtConfig;
use super::signals::Asking;
use super::snapshot::Bell;
use super::written::Written;
use crate::common::{Addr, AddrRange, Pid, Tid, Tsc};
use crate::recording::{
    self, Capture, Destination, End, Exit, Hardware, Manifest, Store, ThreadEntry, TscClock,
    Writer, argument_text,
};
use crate::sideband::{Event, Record};
use crate::tracee::{comm, image_of};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

/// What is on the disk at most this much later, whatever becomes of the recorder.
const FLUSH_PERIOD: Duration = Duration::from_millis(200);

/// How much of a run is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum History {
    /// All of it.
    Full,
    /// The end of it: what the last records of each thread say.
    Ring {
        /// Bytes of records that are kept of a thread, in memory, while it runs.
        bytes: u64,
    },
    /// All of it until the recording has come to a size, and from there on the end, as a ring.
    Limited {
        /// Bytes of trace and sideband on the disk, of each recording.
        bytes: u64,
        /// As of a ring.
        ring_bytes: u64,
    },
}

impl History {
    /// What a recording says of it.
    pub(super) fn words(self) -> String {
        let ring = |bytes: u64| format!("the last {} MiB of records of each thread", bytes >> 20);
        match self {
            Self::Full => "all".to_owned(),
            Self::Ring { bytes } => ring(bytes),
            Self::Limited { bytes, ring_bytes } => {
                format!("all up to {bytes} bytes, then {}", ring(ring_bytes))
            }
        }
    }
}

/// What to run and how.
#[derive(Clone, Debug)]
pub struct Request {
    /// The process to attach to, instead of running a program.
    pub attach: Option<Pid>,
    /// The only thread of that process to record; none: all of them.
    pub only_thread: Option<Tid>,
    /// The program as [`crate::tracee::resolve`] found it.
    pub program: PathBuf,
    /// Its arguments, its own name first.
    pub argv: Vec<OsString>,
    /// Its environment; none: this process's own.
    pub env: Option<Vec<(OsString, OsString)>>,
    /// Its working directory; none: this process's own.
    pub directory: Option<PathBuf>,
    /// Keep address space randomization.
    pub aslr: bool,
    /// Record the processes that it forks, each as a recording of its own.
    pub follow_forks: bool,
    /// How much is kept. Single-stepping keeps all, and so does the hardware backend where a size
    /// is given ([`History::Limited`]).
    pub history: History,
    /// The function before which the recording begins; none: the program's first instruction.
    pub start_at: Option<Code>,
    /// Which code is traced.
    pub filter: Filter,
    /// Bytes of trace between PSB packets.
    pub psb_period_bytes: u32,
    /// Write the address of each executed instruction, as 8 little-endian bytes, into a file a
    /// thread in this directory: the log that tests compare the trace with.
    pub step_log: Option<PathBuf>,
    /// What a CPU's PT unit is to trace, where one does.
    pub pt_config: PtConfig,
    /// Where to put the recording; none: a new name in the store.
    pub output: Option<PathBuf>,
    /// Replace the recording that is there.
    pub force: bool,
    /// Who hears now and then how much was written, while translated programs run.
    pub report: Option<fn(&Written)>,
    /// Where recordings go by default.
    pub store: Store,
}

impl Request {
    /// The environment of the program.
    pub(super) fn environment(&self) -> Vec<(OsString, OsString)> {
        self.env.clone().unwrap_or_else(|| std::env::vars_os().collect())
    }
}

/// What became of the run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The recording of the program, then those of the processes it forked, where followed.
    pub recordings: Vec<PathBuf>,
    /// The program's manifest.
    pub manifest: Manifest,
    /// Bytes of trace, over all threads.
    pub trace_bytes: u64,
    /// What the user should know of the recording's limits, a sentence each.
    pub notes: Vec<String>,
}

/// A process's recording that is being written.
#[derive(Debug)]
pub(super) struct Recorder {
    writer: Writer,
    manifest: Manifest,
    clock: Clock,
    threads: Vec<ThreadEntry>,
    flushed: Instant,
    ring_since_ns: Option<u64>,
    /// How it can be asked for what is in its rings.
    bell: Option<Bell>,
}

/// A recording that was begun before there is a process to record.
#[derive(Debug)]
pub(super) struct Prepared {
    destination: Destination,
    writer: Writer,
    manifest: Manifest,
}

impl Prepared {
    /// Begins the recording of a program that is to be run.
    pub(super) fn of_program(request: &Request, backend: &str) -> Result<Self, recording::Error> {
        if request.follow_forks && request.output.is_some() {
            // Where the children's recordings will go.
            Destination::in_store(&request.store, &request.program)?.give_up();
        }
        let destination = match &request.output {
            Some(dir) => Destination::named(dir, request.force)?,
            None => Destination::in_store(&request.store, &request.program)?,
        };
        Self::in_place(destination, request, backend)
    }

    /// Begins the recording of a process that the program forked.
    pub(super) fn of_child(request: &Request, backend: &str) -> Result<Self, recording::Error> {
        let destination = Destination::in_store(&request.store, &request.program)?;
        Self::in_place(destination, request, backend)
    }

    /// Begins the recording of a process that a debugger follows: beside the one of its parent.
    pub(super) fn of_followed(
        request: &Request,
        backend: &str,
        pid: Pid,
    ) -> Result<Self, recording::Error> {
        let Some(dir) = &request.output else { return Self::of_child(request, backend) };
        let mut name = dir.clone().into_os_string();
        name.push(format!("-{pid}"));
        let destination = Destination::named(name.as_ref(), request.force)?;
        Self::in_place(destination, request, backend)
    }

    fn in_place(
        destination: Destination,
        request: &Request,
        backend: &str,
    ) -> Result<Self, recording::Error> {
        let manifest = starting_manifest(request, backend);
        match Writer::create(destination.dir(), &manifest) {
            Ok(writer) => Ok(Self { destination, writer, manifest }),
            Err(error) => {
                destination.give_up();
                Err(error)
            }
        }
    }

    /// A CPU takes the trace, like this.
    pub(super) fn set_hardware(&mut self, hardware: Hardware, psb_period_bytes: u32) {
        self.manifest.capture.hardware = Some(hardware);
        self.manifest.capture.psb_period_bytes = psb_period_bytes.into();
    }

    /// Where the recording is to be.
    pub(super) fn dir(&self) -> &Path {
        self.destination.dir()
    }

    /// There is no process after all.
    pub(super) fn give_up(self) {
        self.destination.give_up();
    }

    /// Makes it the store's latest, if it is in the store.
    pub(super) fn set_latest(&self, store: &Store) -> Result<(), recording::Error> {
        store.set_latest(self.destination.dir())
    }
}

impl Recorder {
    /// Goes on with a recording that was begun: the process is `pid`.
    pub(super) fn start(prepared: Prepared, pid: Pid) -> Result<Self, recording::Error> {
        let Prepared { destination, writer, mut manifest } = prepared;
        manifest.pid = pid;
        manifest.started_unix_ns = now_unix_ns();
        writer.restart(&manifest)?;
        let bell = Bell::hang(writer.dir(), Asking::is_possible());
        destination.keep()?;
        Ok(Self {
            bell,
            writer,
            manifest,
            clock: Clock::start(),
            threads: Vec::new(),
            flushed: Instant::now(),
            ring_since_ns: None,
        })
    }

    pub(super) fn pid(&self) -> Pid {
        self.manifest.pid
    }

    /// The clock from the start to now.
    pub(super) fn clock_so_far(&self) -> TscClock {
        self.clock.so_far()
    }

    pub(super) fn writer(&self) -> &Writer {
        &self.writer
    }

    /// Adds a thread.
    pub(super) fn thread(&mut self, tid: Tid) -> Result<(), recording::Error> {
        self.writer.start_thread(tid)?;
        if self.entry(tid).is_none() {
            let pid = self.pid();
            self.threads.push(ThreadEntry {
                tid,
                pid,
                name: String::new(),
                trace_bytes: 0,
                instructions: 0,
                final_pc: None,
            });
            self.event(tid, Event::ThreadStart)?;
        }
        Ok(())
    }

    /// Notes where a thread stands at its end.
    pub(super) fn thread_ended(
        &mut self,
        tid: Tid,
        name: String,
        instructions: u64,
        final_pc: Option<Addr>,
    ) -> Result<(), recording::Error> {
        let trace_bytes = self.writer.trace_bytes(tid);
        if let Some(entry) = self.entry(tid) {
            // A number that the kernel gave to another thread, at its exec, counts on.
            entry.instructions += instructions;
            entry.trace_bytes = trace_bytes;
            entry.final_pc = final_pc.or(entry.final_pc);
            if !name.is_empty() {
                entry.name = name;
            }
        }
        self.event(tid, Event::ThreadExit)
    }

    /// The name of a thread, or the last one that it had.
    pub(super) fn name_of(&self, tid: Tid) -> String {
        let known = self.threads.iter().find(|entry| entry.tid == tid && !entry.name.is_empty());
        known.map_or_else(|| comm(self.pid(), tid), |entry| entry.name.clone())
    }

    fn entry(&mut self, tid: Tid) -> Option<&mut ThreadEntry> {
        self.threads.iter_mut().find(|entry| entry.tid == tid)
    }

    /// Appends whole packets.
    pub(super) fn trace(&mut self, tid: Tid, packets: &[u8]) -> Result<(), recording::Error> {
        self.writer.trace(tid, packets)
    }

    /// Bytes of trace and sideband so far.
    pub(super) fn written_bytes(&self) -> u64 {
        self.writer.grown_bytes()
    }

    /// From now on only the end of the history is kept.
    pub(super) fn becomes_ring(&mut self) {
        self.ring_since_ns = Some(self.elapsed_ns());
    }

    fn elapsed_ns(&self) -> u64 {
        u64::try_from(self.clock.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Appends what the operating system did just now.
    pub(super) fn event(&mut self, tid: Tid, event: Event) -> Result<(), recording::Error> {
        self.event_at(now(), tid, event)
    }

    /// Appends what the operating system did at another time.
    pub(super) fn event_at(
        &mut self,
        tsc: Tsc,
        tid: Tid,
        event: Event,
    ) -> Result<(), recording::Error> {
        self.writer.sideband(&Record { tsc, pid: self.pid(), tid, event })
    }

    /// The IP filter ranges that a CPU was given are these.
    pub(super) fn set_filter(&mut self, ranges: Vec<AddrRange>) {
        if let Some(hardware) = &mut self.manifest.capture.hardware {
            hardware.filter = ranges;
        }
    }

    /// What somebody asked for is looked at now.
    pub(super) fn begin_snapshot(&mut self) {
        self.bell.iter_mut().for_each(Bell::begin);
    }

    /// Writes out what came together, which is what somebody asked for.
    pub(super) fn end_snapshot(&mut self) -> Result<(), recording::Error> {
        self.flush()?;
        self.bell.iter_mut().for_each(Bell::done);
        Ok(())
    }

    /// Writes out what came together, if that was not done a moment ago.
    pub(super) fn flush_if_due(&mut self) -> Result<(), recording::Error> {
        if self.flushed.elapsed() >= FLUSH_PERIOD { self.flush() } else { Ok(()) }
    }

    /// Writes out what came together.
    pub(super) fn flush(&mut self) -> Result<(), recording::Error> {
        self.flushed = Instant::now();
        self.writer.flush()
    }

    /// Completes the recording.
    pub(super) fn finish(self, exit: Option<Exit>) -> Result<(PathBuf, Manifest, u64), Error> {
        let duration_ns = self.elapsed_ns();
        let Self { writer, mut manifest, clock, threads, ring_since_ns, mut bell, .. } = self;
        let trace_bytes = threads.iter().map(|thread| thread.trace_bytes).sum();
        manifest.end = Some(End {
            exit,
            duration_ns,
            instructions: threads.iter().map(|thread| thread.instructions).sum(),
            clock: clock.finish(),
            threads,
            cpus: Vec::new(),
            ring_since_ns,
        });
        let dir = writer.finish(&manifest)?;
        bell.iter_mut().for_each(Bell::take_down);
        Ok((dir, manifest, trace_bytes))
    }
}

fn now_unix_ns() -> u64 {
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since_1970.as_nanos()).unwrap_or(u64::MAX)
}

/// What is known before there is a process.
fn starting_manifest(request: &Request, backend: &str) -> Manifest {
    let (format, written_by) = Manifest::versions();
    let variable = |(name, value): (OsString, OsString)| {
        format!("{}={}", argument_text(&name), argument_text(&value))
    };
    let (cwd, env) = match request.attach {
        None => {
            let here = || std::env::current_dir().unwrap_or_default();
            (request.directory.clone().unwrap_or_else(here), request.environment())
        }
        Some(pid) => surroundings(pid),
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
        capture: Capture {
            backend: backend.to_owned(),
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

/// Single-stepping keeps all.
fn history_of(request: &Request, backend: &str) -> String {
    match (backend, request.history) {
        ("step", _) => History::Full.words(),
        ("perf", History::Ring { .. }) => "the last of each thread's trace".to_owned(),
        (_, history) => history.words(),
    }
}

/// A process's working directory, and the environment that it began with.
fn surroundings(pid: Pid) -> (PathBuf, Vec<(OsString, OsString)>) {
    let environ = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    let variable = |text: &[u8]| {
        let at = text.iter().position(|&byte| byte == b'=')?;
        let word = |bytes: &[u8]| OsString::from_vec(bytes.to_vec());
        Some((word(&text[..at]), word(&text[at + 1..])))
    };
    let cwd = std::fs::read_link(format!("/proc/{pid}/cwd")).unwrap_or_default();
    (cwd, environ.split(|&byte| byte == 0).filter_map(variable).collect())
}
