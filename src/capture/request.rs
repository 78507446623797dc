//! A request to record, and the result of a recording, for all backends.

use super::filter::{Code, Filter};
use super::pt_config::PtConfig;
use super::written::Written;
use crate::common::{Pid, Tid};
use crate::recording::{Manifest, Store};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// The default of [`Request::keyframe_period`].
pub const KEYFRAME_PERIOD: Duration = Duration::from_secs(1);

/// The part of a run that is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum History {
    /// The whole run.
    Full,
    /// The end of the run: the last records of each thread.
    Ring {
        /// The size in bytes of the records kept in memory for each thread.
        bytes: u64,
    },
    /// The whole run until the recording reaches a size, and after that only the end, as a ring.
    Limited {
        /// The size in bytes of a recording's traces and sideband on disk at which the ring starts.
        bytes: u64,
        /// The size in bytes of the records kept in memory for each thread, as in a ring.
        ring_bytes: u64,
    },
}

impl History {
    /// Returns the description for the manifest.
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

/// The order in which the threads of an exact recording run, one at a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Schedule {
    /// Round-robin, in slices of one length.
    #[default]
    InTurn,
    /// In random order and slices of random lengths, to find bugs that depend on the order.
    Chaos,
}

/// A request to record a program or a running process.
#[derive(Clone, Debug)]
pub struct Request {
    /// The process to attach to; `None` to launch `program`.
    pub attach: Option<Pid>,
    /// The only thread of the process in `attach` to record; `None` for all of them.
    pub only_thread: Option<Tid>,
    /// The program's file, as [`crate::tracee::resolve`] found it.
    pub program: PathBuf,
    /// The program's arguments; the first is its name.
    pub argv: Vec<OsString>,
    /// The program's environment; `None` for that of this process.
    pub env: Option<Vec<(OsString, OsString)>>,
    /// The program's working directory; `None` for that of this process.
    pub directory: Option<PathBuf>,
    /// True to keep address space randomization.
    pub aslr: bool,
    /// True to record the program's child processes as well, each in a separate recording.
    pub follow_forks: bool,
    /// The part of the run that is kept. Single-stepping and exact recordings ignore this. With
    /// [`History::Limited`], the hardware backend keeps everything.
    pub history: History,
    /// The time before the end of an exact recording that is kept at least; `None` to keep
    /// everything.
    pub keep: Option<Duration>,
    /// The function at which the recording starts; `None` for the program's first instruction.
    pub start_at: Option<Code>,
    /// The filter for the code to trace.
    pub filter: Filter,
    /// The number of bytes of trace between two PSB packets.
    pub psb_period_bytes: u32,
    /// The directory for logs that tests compare the trace with: one file per thread, with the
    /// address of each executed instruction as 8 little-endian bytes. `None` for no logs.
    pub step_log: Option<PathBuf>,
    /// The file for states of an exactly recorded program at random moments, with which tests
    /// compare the replay. `None` for no such file.
    pub witness: Option<PathBuf>,
    /// The minimum time between two keyframes of an exact recording.
    pub keyframe_period: Duration,
    /// The order in which the threads of an exact recording run.
    pub schedule: Schedule,
    /// The configuration of the CPU's PT unit, for the hardware backend.
    pub pt_config: PtConfig,
    /// The directory of the recording; `None` for a new name in the store.
    pub output: Option<PathBuf>,
    /// True to replace an existing recording at `output`.
    pub force: bool,
    /// A callback that gets the amount written now and then, while a translated program runs.
    pub report: Option<fn(&Written)>,
    /// The default place of recordings.
    pub store: Store,
}

impl Request {
    /// Returns the environment of the program.
    pub(super) fn environment(&self) -> Vec<(OsString, OsString)> {
        self.env.clone().unwrap_or_else(|| std::env::vars_os().collect())
    }
}

/// The result of recording a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The directories of the recordings: the program's, then those of its followed child
    /// processes.
    pub recordings: Vec<PathBuf>,
    /// The manifest of the program's recording.
    pub manifest: Manifest,
    /// The number of bytes of the program's traces, over all threads.
    pub trace_bytes: u64,
    /// Notes for the user on limits of the recordings, one sentence each.
    pub notes: Vec<String>,
}
