//! The contents of a core file besides memory, for both reading and writing.

use crate::common::{AddrRange, Pid, Tid};
use crate::insn::Registers;

/// The contents of a core file, except for the bytes of memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CoreContents {
    /// The threads; gdb selects the first.
    pub threads: Vec<Thread>,
    /// The signal that ended the process (`pr_cursig`); zero if none did. The kernel stores it in
    /// every thread, and gdb shows the last one it reads.
    pub signal: i32,
    /// The process (`NT_PRPSINFO`).
    pub process: ProcessInfo,
    /// The auxiliary vector as in `/proc/PID/auxv` (`NT_AUXV`); empty if unknown.
    pub auxv: Vec<u8>,
    /// The mapped files (`NT_FILE`).
    pub mappings: Vec<FileMapping>,
    /// The memory segments (`PT_LOAD`).
    pub segments: Vec<CoreSegment>,
}

/// One thread of a core.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Thread {
    /// The thread's ID.
    pub tid: Tid,
    /// Pending signals, one bit each, signal 1 lowest.
    pub pending_signals: u64,
    /// Blocked signals, one bit each, signal 1 lowest.
    pub blocked_signals: u64,
    /// The thread's general registers.
    pub registers: Registers,
    /// The thread's 512 bytes of x87 and SSE state in FXSAVE layout (`NT_FPREGSET`), if known.
    pub fpregs: Option<Vec<u8>>,
    /// The thread's extended state in XSAVE layout (`NT_X86_XSTATE`), if known.
    pub xstate: Option<Vec<u8>>,
    /// The 128 bytes of the `siginfo_t` of the thread's signal (`NT_SIGINFO`), if known.
    pub siginfo: Option<Vec<u8>>,
}

/// The kernel's description of the process (`elf_prpsinfo`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessInfo {
    /// The process ID.
    pub pid: Pid,
    /// The parent's process ID.
    pub parent: Pid,
    /// The ID of the process group.
    pub group: i32,
    /// The ID of the session.
    pub session: i32,
    /// Real user id.
    pub user_id: u32,
    /// Real group id.
    pub group_id: u32,
    /// The kernel's task flags.
    pub flags: u64,
    /// Nice value.
    pub nice: i8,
    /// The name of the executable; the core keeps 15 bytes.
    pub name: Vec<u8>,
    /// The command line, with spaces between the arguments; the core keeps 79 bytes.
    pub arguments: Vec<u8>,
}

/// A mapping of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileMapping {
    /// The mapped addresses.
    pub range: AddrRange,
    /// The file offset of the mapping in bytes; whole pages.
    pub offset: u64,
    /// The path of the file.
    pub path: Vec<u8>,
}

/// A segment of memory.
#[allow(clippy::struct_excessive_bools, reason = "four independent facts")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CoreSegment {
    /// The addresses of the segment.
    pub range: AddrRange,
    /// True if the process may read the segment.
    pub readable: bool,
    /// True if the process may write to the segment.
    pub writable: bool,
    /// True if the process may execute the segment.
    pub executable: bool,
    /// True if the core contains the segment's bytes. If not, it only contains the range, and
    /// readers take the bytes from the mapped file.
    pub dumped: bool,
}
