//! Facts about a run that a person asks for: what ran, how it ended, what is missing.

use crate::common::{Addr, AddrRange, Tid};
use std::fmt;

/// What was recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Description {
    /// Path of the program.
    pub program: String,
    /// Its arguments, the program's name first.
    pub arguments: Vec<String>,
    /// How it ended.
    pub ending: Ending,
    /// The CPU of the recording, as its maker calls it.
    pub cpu: String,
    /// What captured the path.
    pub backend: String,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ending {
    /// By itself, with this exit status.
    Exited(i32),
    /// Killed by this signal (the kernel's number).
    Signal(i32),
    /// It has not ended.
    Running,
    /// Not known, for example because the recorder was killed.
    #[default]
    Unknown,
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited(status) => write!(f, "exited with status {status}"),
            Self::Signal(number) => match signal_name(*number) {
                Some(name) => write!(f, "killed by {name}"),
                None => write!(f, "killed by signal {number}"),
            },
            Self::Running => f.write_str("still running"),
            Self::Unknown => f.write_str("end not recorded"),
        }
    }
}

/// The name of a Linux signal number on x86-64.
pub(super) fn signal_name(number: i32) -> Option<&'static str> {
    const NAMES: [&str; 31] = [
        "SIGHUP",
        "SIGINT",
        "SIGQUIT",
        "SIGILL",
        "SIGTRAP",
        "SIGABRT",
        "SIGBUS",
        "SIGFPE",
        "SIGKILL",
        "SIGUSR1",
        "SIGSEGV",
        "SIGUSR2",
        "SIGPIPE",
        "SIGALRM",
        "SIGTERM",
        "SIGSTKFLT",
        "SIGCHLD",
        "SIGCONT",
        "SIGSTOP",
        "SIGTSTP",
        "SIGTTIN",
        "SIGTTOU",
        "SIGURG",
        "SIGXCPU",
        "SIGXFSZ",
        "SIGVTALRM",
        "SIGPROF",
        "SIGWINCH",
        "SIGIO",
        "SIGPWR",
        "SIGSYS",
    ];
    let index = usize::try_from(number).ok()?.checked_sub(1)?;
    NAMES.get(index).copied()
}

/// Where code is in the source, as far as that is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The function.
    pub function: String,
    /// How far into it, in bytes.
    pub offset: u64,
    /// The file and the line.
    pub line: Option<(String, u32)>,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.function)?;
        if self.offset > 0 {
            write!(f, "+{}", self.offset)?;
        }
        match &self.line {
            Some((file, line)) => write!(f, " at {file}:{line}"),
            None => Ok(()),
        }
    }
}

/// A stretch of memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Region {
    /// Its addresses.
    pub range: AddrRange,
    /// What the program may do there.
    pub protection: Protection,
    /// The file that is mapped there, or a name in brackets; possibly empty.
    pub name: String,
}

/// What a program may do with memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Protection {
    /// Read it.
    pub read: bool,
    /// Write it.
    pub write: bool,
    /// Execute it.
    pub execute: bool,
}

/// How much of a trace there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceSize {
    /// Its packets.
    pub bytes: u64,
    /// Pieces that are decoded by themselves, from PSB to PSB.
    pub segments: u64,
}

/// A hole in the path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GapInfo {
    /// The position behind the hole.
    pub position: u64,
    /// The thread whose path it is.
    pub tid: Tid,
    /// Byte offset in the thread's trace.
    pub offset_bytes: u64,
    /// The last address known before it.
    pub last_ip: Option<Addr>,
    /// Why, as a lowercase fragment.
    pub reason: String,
}

/// A shared library in the dynamic linker's list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Library {
    /// Path on the machine of the recording.
    pub path: String,
    /// The linker's namespace that it is in; 0 for all but what `dlmopen` loads.
    pub namespace: u64,
    /// Address of its `struct link_map`.
    pub link_map: Addr,
    /// Difference between its addresses in memory and in its file (`l_addr`).
    pub load_bias: Addr,
    /// Address of its dynamic section (`l_ld`).
    pub dynamic: Addr,
}
