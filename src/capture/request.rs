//! A request to record, and its outcome. Below all backends.

use super::filter::{Code, Filter};
use super::pt_config::PtConfig;
use super::written::Written;
use crate::common::{Pid, Tid};
use crate::recording::{Manifest, Store};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// The shortest time between two keyframes, unless a request has another one.
pub const KEYFRAME_PERIOD: Duration = Duration::from_secs(1);

/// The part of a run that is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum History {
    /// All of it.
    Full,
    /// The end of it, by the last records of each thread.
    Ring {
        /// Bytes of records kept in memory for each thread, while it runs.
        bytes: u64,
    },
    /// All of it until the recording reaches a size, and from there on the end, as a ring.
    Limited {
        /// Bytes of trace and sideband on disk, of each recording.
        bytes: u64,
        /// Bytes of records kept for each thread, as in a ring.
        ring_bytes: u64,
    },
}

impl History {
    /// Returns the description in a recording.
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

/// The order in which threads take turns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Schedule {
    /// One after the other, in slices of one length.
    #[default]
    InTurn,
    /// By chance, in slices of any length, to find bugs that depend on it.
    Chaos,
}

/// A request to record.
#[derive(Clone, Debug)]
pub struct Request {
    /// The process to attach to, instead of running a program.
    pub attach: Option<Pid>,
    /// The only thread of that process to record; `None` for all of them.
    pub only_thread: Option<Tid>,
    /// The program as [`crate::tracee::resolve`] found it.
    pub program: PathBuf,
    /// Its arguments, its own name first.
    pub argv: Vec<OsString>,
    /// Its environment; `None` for that of this process.
    pub env: Option<Vec<(OsString, OsString)>>,
    /// Its working directory; `None` for that of this process.
    pub directory: Option<PathBuf>,
    /// Keep address space randomization.
    pub aslr: bool,
    /// Record the processes that it forks, each in a separate recording.
    pub follow_forks: bool,
    /// The part that is kept. Single-stepping keeps all, and so does the hardware backend with
    /// [`History::Limited`].
    pub history: History,
    /// The time before the end of an exact recording that is kept at least; `None` for the whole
    /// run.
    pub keep: Option<Duration>,
    /// The function at which the recording starts; `None` for the program's first instruction.
    pub start_at: Option<Code>,
    /// The code to trace.
    pub filter: Filter,
    /// Bytes of trace between PSB packets.
    pub psb_period_bytes: u32,
    /// Write the address of each executed instruction, as 8 little-endian bytes, into a file a
    /// thread in this directory: the log that tests compare the trace with.
    pub step_log: Option<PathBuf>,
    /// Write the state of an exactly recorded program at random moments to this file: tests compare
    /// the replay with it.
    pub witness: Option<PathBuf>,
    /// The shortest time between two keyframes of an exact recording.
    pub keyframe_period: Duration,
    /// The order of the threads of an exact recording.
    pub schedule: Schedule,
    /// The configuration of the CPU's PT unit, if used.
    pub pt_config: PtConfig,
    /// The directory of the recording; `None` for a new name in the store.
    pub output: Option<PathBuf>,
    /// Replace an existing recording.
    pub force: bool,
    /// A callback that regularly gets the amount written, while translated programs run.
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

/// The result of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The recording of the program, then those of the processes it forked, where followed.
    pub recordings: Vec<PathBuf>,
    /// The program's manifest.
    pub manifest: Manifest,
    /// Bytes of trace, over all threads.
    pub trace_bytes: u64,
    /// Notes for the user on the recording's limits, a sentence each.
    pub notes: Vec<String>,
}
