//! One action of the operating system, with its time, process and thread.

use crate::common::{Addr, AddrRange, Pid, Tid, Tsc};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The number of a mapped file, from 0 on within a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FileId(pub u32);

/// The ID of a stored copy of code: the SHA-256 of its content in hexadecimal.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ImageId(pub String);

impl fmt::Display for ImageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The permissions of a mapping's pages, as in `mmap(2)`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "these are the kernel's four flags")]
pub struct Protection {
    /// `PROT_READ`.
    pub read: bool,
    /// `PROT_WRITE`.
    pub write: bool,
    /// `PROT_EXEC`.
    pub execute: bool,
    /// `MAP_SHARED`: writes by others are visible.
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

/// The source of a mapping's bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Backing {
    /// A file, declared by an earlier [`Event::File`], from `offset` bytes on.
    File {
        /// The file.
        file: FileId,
        /// The file offset of the mapping, in bytes.
        offset: u64,
    },
    /// Memory with a kernel-given name (`[vdso]`, `[stack]`), and its bytes if stored.
    Special {
        /// The name with its brackets.
        name: String,
        /// The bytes, which do not change during the run.
        image: Option<ImageId>,
    },
    /// Memory without a file.
    Anonymous,
    /// The contents of the recording's core, which do not change during the run.
    Core,
}

/// An action of the operating system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Event {
    /// Assigns a number to a file's path, for later mappings.
    File {
        /// The file's number.
        file: FileId,
        /// The path, as the kernel names it.
        path: String,
    },
    /// A file's content was stored in the recording.
    Image {
        /// The file.
        file: FileId,
        /// The ID of its content.
        image: ImageId,
    },
    /// Memory was mapped or its protection changed; this replaces any previous mapping there.
    Map {
        /// The mapped addresses.
        range: AddrRange,
        /// The permissions of the pages.
        protection: Protection,
        /// The source of the bytes.
        backing: Backing,
    },
    /// Memory was unmapped.
    Unmap {
        /// The addresses that are no longer mapped.
        range: AddrRange,
    },
    /// Code was created or changed at run time: from now on, these bytes are at this address.
    Code {
        /// The address of the first byte.
        addr: Addr,
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// The process executed another program; all mappings are gone.
    Exec {
        /// The program's path.
        path: String,
    },
    /// The thread's name changed.
    Comm {
        /// The name, at most 15 bytes, as the kernel truncates it.
        name: String,
    },
    /// The process created a child process.
    Fork {
        /// The child.
        child: Pid,
    },
    /// The thread started.
    ThreadStart,
    /// The thread ended.
    ThreadExit,
    /// A signal was delivered to the thread.
    Signal {
        /// The signal's number.
        number: i32,
        /// `si_code`.
        code: i32,
        /// `si_addr`, for signals raised by a fault.
        addr: Option<Addr>,
    },
    /// The thread entered the kernel by a system call.
    Syscall {
        /// The system call's number (x86-64 table).
        number: u64,
        /// The six argument registers, whether the call uses them or not.
        args: [u64; 6],
    },
    /// The system call returned.
    SyscallReturn {
        /// RAX after the call: a value, or a negated errno.
        result: i64,
    },
    /// The CPU switched to this thread, which may belong to any process.
    SwitchIn {
        /// The CPU's number.
        cpu: u32,
    },
    /// The CPU switched away from this thread.
    SwitchOut {
        /// The CPU's number.
        cpu: u32,
    },
    /// Earlier context switches of the CPU were lost.
    SwitchLost {
        /// The CPU's number.
        cpu: u32,
    },
}

/// An event with its time and its thread.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The time.
    pub tsc: Tsc,
    /// The process.
    pub pid: Pid,
    /// The thread.
    pub tid: Tid,
    /// The event.
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
