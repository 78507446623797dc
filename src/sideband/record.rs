//! One thing that the operating system did, with its time, process and thread.

use crate::common::{Addr, AddrRange, Pid, Tid, Tsc};
use serde::{Deserialize, Serialize};
use std::fmt;

/// A file that was mapped, numbered from 0 within a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FileId(pub u32);

/// A stored copy of code, named by the SHA-256 of its content in hexadecimal.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ImageId(pub String);

impl fmt::Display for ImageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What a mapping's pages allow, as in `mmap(2)`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "these are the kernel's four flags")]
pub struct Protection {
    /// `PROT_READ`.
    pub read: bool,
    /// `PROT_WRITE`.
    pub write: bool,
    /// `PROT_EXEC`.
    pub execute: bool,
    /// `MAP_SHARED`: what others write shows.
    pub shared: bool,
}

impl fmt::Display for Protection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let flag = |on, c| if on { c } else { '-' };
        write!(
            f,
            "{}{}{}{}",
            flag(self.read, 'r'),
            flag(self.write, 'w'),
            flag(self.execute, 'x'),
            if self.shared { 's' } else { 'p' }
        )
    }
}

/// Where a mapping's bytes come from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Backing {
    /// A file, named by an earlier [`Event::File`], from `offset` bytes on.
    File {
        /// Which file.
        file: FileId,
        /// Where in the file the mapping starts, in bytes.
        offset: u64,
    },
    /// Memory with a name of the kernel's (`[vdso]`, `[stack]`), with its bytes where stored.
    Special {
        /// The name with its brackets.
        name: String,
        /// The bytes, as they stand all through the run.
        image: Option<ImageId>,
    },
    /// Memory of no file.
    Anonymous,
    /// What the recording's core holds there, which stood there all through the run.
    Core,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Event {
    /// A number for a file's path, used by later mappings.
    File {
        /// The number.
        file: FileId,
        /// The path, as the kernel names it.
        path: String,
    },
    /// The file's content was stored in the recording.
    Image {
        /// Which file.
        file: FileId,
        /// Its content.
        image: ImageId,
    },
    /// Memory was mapped or its protection changed; what was there before is gone.
    Map {
        /// Where.
        range: AddrRange,
        /// What its pages allow.
        protection: Protection,
        /// Where its bytes come from.
        backing: Backing,
    },
    /// Memory was unmapped.
    Unmap {
        /// Where.
        range: AddrRange,
    },
    /// From now on these code bytes stand at this address (made or changed at run time).
    Code {
        /// The first byte's address.
        addr: Addr,
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// The process executes another program; all mappings are gone.
    Exec {
        /// The program's path.
        path: String,
    },
    /// The thread has this name now.
    Comm {
        /// At most 15 bytes, as the kernel keeps it.
        name: String,
    },
    /// The process made a child process.
    Fork {
        /// The child.
        child: Pid,
    },
    /// The thread starts.
    ThreadStart,
    /// The thread ended.
    ThreadExit,
    /// A signal was delivered to the thread.
    Signal {
        /// The signal's number.
        number: i32,
        /// `si_code`.
        code: i32,
        /// `si_addr`, for signals that a fault raised.
        addr: Option<Addr>,
    },
    /// The thread entered the kernel by a system call.
    Syscall {
        /// The system call's number (x86-64 table).
        number: u64,
        /// The six arguments, whether the call uses them or not.
        args: [u64; 6],
    },
    /// The system call returned.
    SyscallReturn {
        /// RAX afterwards: a value, or minus an errno.
        result: i64,
    },
    /// From now on the CPU runs this thread, which may be of any process.
    SwitchIn {
        /// The CPU's number.
        cpu: u32,
    },
    /// The CPU ran this thread up to now.
    SwitchOut {
        /// The CPU's number.
        cpu: u32,
    },
    /// Context switches of the CPU before this were lost.
    SwitchLost {
        /// The CPU's number.
        cpu: u32,
    },
}

/// An event with its time and its thread.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// When.
    pub tsc: Tsc,
    /// In which process.
    pub pid: Pid,
    /// In which thread.
    pub tid: Tid,
    /// What.
    pub event: Event,
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} pid {} tid {} {}", self.tsc, self.pid, self.tid, self.event)
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { file, path } => write!(f, "file {} {path}", file.0),
            Self::Image { file, image } => write!(f, "image of file {} {image}", file.0),
            Self::Map { range, protection, backing } => {
                write!(f, "map {range} {protection} {backing}")
            }
            Self::Unmap { range } => write!(f, "unmap {range}"),
            Self::Code { addr, bytes } => write!(f, "code {addr} {} bytes", bytes.len()),
            Self::Exec { path } => write!(f, "exec {path}"),
            Self::Comm { name } => write!(f, "comm {name}"),
            Self::Fork { child } => write!(f, "fork {child}"),
            Self::ThreadStart => f.write_str("thread start"),
            Self::ThreadExit => f.write_str("thread exit"),
            Self::Signal { number, code, addr: Some(addr) } => {
                write!(f, "signal {number} code {code} at {addr}")
            }
            Self::Signal { number, code, addr: None } => write!(f, "signal {number} code {code}"),
            Self::Syscall { number, args } => write!(f, "syscall {number} {args:x?}"),
            Self::SyscallReturn { result } => write!(f, "syscall returns {result}"),
            Self::SwitchIn { cpu } => write!(f, "cpu {cpu} switches to it"),
            Self::SwitchOut { cpu } => write!(f, "cpu {cpu} switches away from it"),
            Self::SwitchLost { cpu } => write!(f, "cpu {cpu} has lost switches before"),
        }
    }
}

impl fmt::Display for Backing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { file, offset } => write!(f, "file {} at {offset:#x}", file.0),
            Self::Special { name, .. } => f.write_str(name),
            Self::Anonymous => f.write_str("anonymous"),
            Self::Core => f.write_str("core"),
        }
    }
}
