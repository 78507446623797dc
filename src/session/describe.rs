//! Facts about a run for its user: the program, its ending, source locations of code, libraries,
//! memory mappings, the size of traces and their gaps.

use crate::common::{Addr, AddrRange, Tid};
use crate::recording::{Exit, Reader};
use crate::sideband::{self, Mapping};
use crate::state::LinkMap;
use crate::symbols::without_parameters;
use std::fmt;

/// A description of the recorded program and its run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Description {
    /// The path of the program.
    pub program: String,
    /// The arguments, including the program's name as the first.
    pub arguments: Vec<String>,
    /// The ending of the run.
    pub ending: Ending,
    /// The CPU of the recording, as its vendor names it.
    pub cpu: String,
    /// The name of the capture backend.
    pub backend: String,
}

impl Description {
    /// Returns the description in a recording's manifest.
    pub(super) fn of(reader: &Reader) -> Self {
        let manifest = reader.manifest();
        Self {
            program: manifest.program.clone(),
            arguments: manifest.argv.clone(),
            ending: Ending::of(reader),
            cpu: manifest.cpu.to_string(),
            backend: manifest.capture.backend.to_string(),
        }
    }
}

/// The ending of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ending {
    /// A normal exit with this status.
    Exited(i32),
    /// A death by this signal (the kernel's number).
    Signal(i32),
    /// The program is still running.
    Running,
    /// The recorder detached from the program, which went on.
    Detached,
    /// The ending is unknown, for example because the recorder was killed.
    #[default]
    Unknown,
}

impl Ending {
    /// Returns the ending in a recording's manifest; [`Self::Unknown`] for a recording without an
    /// end, even if its program still runs. An end without an exit is [`Self::Detached`], or
    /// [`Self::Unknown`] in an imported recording.
    pub(super) fn of(reader: &Reader) -> Self {
        let manifest = reader.manifest();
        match manifest.end.as_ref().map(|end| end.exit) {
            Some(Some(Exit::Code(status))) => Self::Exited(status),
            Some(Some(Exit::Signal(number))) => Self::Signal(number),
            Some(None) if manifest.capture.import.is_none() => Self::Detached,
            Some(None) | None => Self::Unknown,
        }
    }
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
            Self::Detached => f.write_str("detached"),
            Self::Unknown => f.write_str("end not recorded"),
        }
    }
}

/// Returns the name of a Linux signal number on x86-64; `None` for real-time signals and for
/// numbers that are no signals.
pub fn signal_name(number: i32) -> Option<&'static str> {
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

/// A location of code in the source: its function, and the line if it is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodeLocation {
    /// The name of the function.
    pub function: String,
    /// The offset from the start of the function, in bytes.
    pub offset: u64,
    /// The name of the file, without directories, and the line number.
    pub line: Option<(String, u32)>,
}

impl fmt::Display for CodeLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // As gdb names the function of a frame.
        f.write_str(without_parameters(&self.function))?;
        if self.offset > 0 {
            write!(f, "+{}", self.offset)?;
        }
        match &self.line {
            Some((file, line)) => write!(f, " at {file}:{line}"),
            None => Ok(()),
        }
    }
}

/// An entry of the dynamic linker's list: a shared library, or the program itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Library {
    /// The path on the machine of the recording; empty for the program itself.
    pub path: String,
    /// The namespace ([`LinkMap::namespace`]).
    pub namespace: u64,
    /// Address of the library's `struct link_map`.
    pub link_map: Addr,
    /// Difference between addresses in memory and in the file (`l_addr`).
    pub load_bias: Addr,
    /// Address of the dynamic section (`l_ld`).
    pub dynamic: Addr,
}

impl Library {
    /// Returns the entries of the dynamic linker's list in its order: first the program itself,
    /// with an empty path, then its libraries. Leaves out the vdso, which has a name without a
    /// directory and no file. A library whose name is relative to a directory of the program gets
    /// the path of its file, which `regions` returns with the mapped memory; it keeps its name if
    /// none is found. Does not call `regions` if there is no such library.
    pub(super) fn from_link_maps(
        maps: Vec<LinkMap>,
        regions: impl FnOnce() -> Option<Vec<Region>>,
    ) -> Vec<Self> {
        let of_file = |map: &LinkMap| map.name.is_empty() || map.name.contains('/');
        let mut libraries: Vec<Self> = maps.into_iter().filter(of_file).map(Self::from).collect();
        let is_relative =
            |library: &Self| library.path.contains('/') && !library.path.starts_with('/');
        if libraries.iter().any(is_relative) {
            let regions = regions().unwrap_or_default();
            for library in libraries.iter_mut().filter(|library| is_relative(library)) {
                let mapped = regions.iter().find(|region| region.range.contains(library.dynamic));
                if let Some(file) = mapped.filter(|region| region.name.starts_with('/')) {
                    library.path.clone_from(&file.name);
                }
            }
        }
        libraries
    }
}

impl From<LinkMap> for Library {
    fn from(map: LinkMap) -> Self {
        Self {
            path: map.name,
            namespace: map.namespace.0,
            link_map: map.addr,
            load_bias: Addr(map.load_bias),
            dynamic: map.dynamic,
        }
    }
}

/// A range of mapped memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Region {
    /// The address range.
    pub range: AddrRange,
    /// The permitted accesses. Of a path this is unknown for reads, which all count as permitted.
    pub protection: Protection,
    /// The path of the mapped file, or a name in brackets; possibly empty.
    pub name: String,
}

impl From<Mapping> for Region {
    fn from(mapping: Mapping) -> Self {
        let sideband::Protection { read, write, execute, .. } = mapping.protection;
        let protection = Protection { read, write, execute };
        Self { range: mapping.range, protection, name: mapping.name }
    }
}

/// The accesses that a memory mapping permits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Protection {
    /// Reads.
    pub read: bool,
    /// Writes.
    pub write: bool,
    /// Instruction fetches.
    pub execute: bool,
}

/// The size of a thread's trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceSize {
    /// The size of the thread's packets in bytes.
    pub bytes: u64,
    /// The number of segments that can be decoded independently, each from a PSB to the next.
    pub segments: u64,
}

/// A gap in the path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GapInfo {
    /// The position after the gap.
    pub position: u64,
    /// The thread whose path has the gap.
    pub tid: Tid,
    /// Byte offset of the gap in the thread's trace.
    pub offset_bytes: u64,
    /// The last known address before the gap.
    pub last_ip: Option<Addr>,
    /// The cause, as a lowercase fragment.
    pub reason: String,
}
