//! The inputs of a program: system calls, files, the kernel, the processor.

use crate::common::{Addr, AddrRange, Tid};
use crate::insn::{Registers, ValuePlace, is_syscall};
use crate::recording::log::{Cursor, LogEvent};
use crate::replay::{self, Position, Replay};
use crate::syscalls::{Call, Model};
use std::collections::HashMap;

/// System calls that return a new descriptor, by their names in the kernel's table; fcntl(2) and
/// ioctl(2) do in few cases ([`may_make_descriptor`]).
const MAKE_DESCRIPTORS: [&str; 38] = [
    "accept",
    "accept4",
    "bpf",
    "creat",
    "dup",
    "dup2",
    "dup3",
    "epoll_create",
    "epoll_create1",
    "eventfd",
    "eventfd2",
    "fanotify_init",
    "fcntl",
    "fsmount",
    "fsopen",
    "fspick",
    "inotify_init",
    "inotify_init1",
    "io_uring_setup",
    "ioctl",
    "landlock_create_ruleset",
    "memfd_create",
    "memfd_secret",
    "mq_open",
    "open",
    "open_by_handle_at",
    "open_tree",
    "openat",
    "openat2",
    "perf_event_open",
    "pidfd_getfd",
    "pidfd_open",
    "seccomp",
    "signalfd",
    "signalfd4",
    "socket",
    "timerfd_create",
    "userfaultfd",
];
/// System calls that write new descriptors to memory.
const WRITE_DESCRIPTORS: [&str; 7] =
    ["pipe", "pipe2", "socketpair", "recvmsg", "recvmmsg", "clone", "clone3"];
/// The number of bytes after a pointer argument to which a system call may have written, unless its
/// result is larger.
const WRITTEN_WITHIN_BYTES: u64 = 1 << 12;
const LONGEST_PATH_BYTES: usize = 4096;
/// The maximum number of system calls of which the arguments are looked at, to find the one that
/// made a descriptor.
const MOST_CANDIDATES: usize = 64;
/// Commands of fcntl(2) that return a new descriptor: `F_DUPFD` and `F_DUPFD_CLOEXEC`.
const DUPLICATE: [u64; 2] = [0, 1030];
/// The type of a terminal's requests of ioctl(2), the letter T, and the number of the one that
/// returns a new descriptor (`TIOCGPTPEER`).
const TERMINAL_REQUESTS: (u64, u64) = (0x54, 0x41);

/// An input of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// A system call wrote or returned the value.
    SystemCall(SystemCall),
    /// The value is in the memory with which the program or the recording began.
    AtStart {
        /// The name of the mapping: a file, `[stack]`, or empty.
        name: String,
        /// The offset of the value in the file; `None` if the mapping is no file, or the value is
        /// not the file's.
        offset: Option<u64>,
    },
    /// The kernel set the register when it began a signal's handler.
    SetForHandler,
    /// The register had the value when the thread began.
    AtThreadStart,
    /// The kernel wrote the value outside of system calls: in the frame of a signal, or at the end
    /// of a thread.
    FromKernel,
    /// The value is the processor's: a time, a random number, its features.
    FromProcessor,
}

/// A system call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SystemCall {
    /// The name of the call, or its number as text.
    pub name: String,
    /// The values of its arguments.
    pub arguments: Vec<u64>,
    /// The value that it returned: a negated error number if it failed.
    pub result: i64,
    /// The index of the argument that points to the value or to a place before it, and the value's
    /// offset from this place. `None` if no argument points near the value.
    pub in_argument: Option<(usize, u64)>,
    /// The file that the call opens, or that its descriptor was opened for; `None` if it is
    /// unknown.
    pub file: Option<String>,
}

impl Input {
    /// Returns true if a thread with these registers is in a system call, or about to make one:
    /// `code` are the bytes at its next instruction.
    pub(super) fn is_system_call(before: &Registers, code: &[u8]) -> bool {
        is_syscall(code) || before.orig_rax.cast_signed() >= 0
    }

    /// Returns where the memory `of` was before the system call, if that is a mremap(2) that moved
    /// it; `None` for other calls, and for registers.
    pub(super) fn place_before_mremap(
        before: &Registers,
        after: &Registers,
        of: ValuePlace,
    ) -> Option<ValuePlace> {
        let ValuePlace::Memory(range) = of else { return None };
        let name = Model::by_number(before.rax).map(|model| model.name);
        let offset = range.start.0.checked_sub(after.rax)?;
        let is_moved = name == Some("mremap") && before.rdi != after.rax && offset < before.rsi;
        let start = Addr(before.rdi.wrapping_add(offset));
        is_moved.then(|| ValuePlace::Memory(AddrRange::sized(start, range.size_bytes())))
    }

    /// Describes the system call that wrote `wanted`, by the thread's registers before and after
    /// it. The replay is before the call, and remains there.
    pub(super) fn from_system_call(
        replay: &mut Replay,
        before: &Registers,
        after: &Registers,
        wanted: ValuePlace,
    ) -> Result<Self, replay::Error> {
        let is_in_call = before.orig_rax.cast_signed() >= 0;
        let number = if is_in_call { before.orig_rax } else { before.rax };
        let arguments = [before.rdi, before.rsi, before.rdx, before.r10, before.r8, before.r9];
        let model = Model::by_number(number);
        let name = model.map_or_else(|| number.to_string(), |model| model.name.to_owned());
        let call = Call { number, args: arguments };
        let in_argument = match wanted {
            ValuePlace::Memory(range) => {
                let distance = |argument: u64| range.start.0.checked_sub(argument);
                let most =
                    u64::try_from(after.rax.cast_signed()).unwrap_or(0).max(WRITTEN_WITHIN_BYTES);
                let near = (0..).zip(call.arguments()).filter_map(|(at, argument)| {
                    Some((at, distance(*argument).filter(|distance| *distance < most)?))
                });
                near.min_by_key(|(_, distance)| *distance)
            }
            ValuePlace::Register(_) => None,
        };
        let descriptor = match name.as_str() {
            "read" | "pread64" | "readv" | "preadv" | "recvfrom" | "recvmsg" | "fstat"
            | "ioctl" | "getdents64" | "lseek" | "accept" | "accept4" | "getsockopt" => {
                Some(arguments[0])
            }
            "mmap" => Some(arguments[4]),
            _ => None,
        };
        let descriptor = descriptor.and_then(|fd| i32::try_from(fd.cast_signed()).ok());
        let file = match descriptor.filter(|fd| *fd >= 0) {
            Some(fd) => file_of_descriptor(replay, fd)?,
            None => None,
        };
        let opened = match name.as_str() {
            "open" | "creat" => text_at(replay, arguments[0]),
            "openat" | "openat2" => text_at(replay, arguments[1]),
            _ => None,
        };
        let file = file.or(opened);
        let result = after.rax.cast_signed();
        let arguments = call.arguments().to_vec();
        Ok(Self::SystemCall(SystemCall { name, arguments, result, in_argument, file }))
    }

    /// Describes memory that nothing has written since the recording began. The replay is at its
    /// start. `file_has_value` returns true if a file has the value at an offset: the kernel clears
    /// the memory after a segment's end. If the program began before the recording, its writes are
    /// unknown, and so is the origin.
    pub(super) fn initial_memory(
        replay: &Replay,
        range: AddrRange,
        file_has_value: &dyn Fn(&str, u64) -> bool,
    ) -> Self {
        if !replay.has_first_instruction() {
            return Self::AtStart { name: String::new(), offset: None };
        }
        let mappings = replay.mappings();
        let there = mappings.iter().find(|mapping| mapping.range.contains(range.start));
        let offset = there
            .filter(|there| there.name.starts_with('/'))
            .map(|there| there.offset + (range.start.0 - there.range.start.0));
        let name = there.map(|there| there.name.clone());
        if let (Some(name), Some(offset)) = (&name, offset)
            && file_has_value(name, offset)
        {
            return Self::AtStart { name: name.clone(), offset: Some(offset) };
        }
        let rsp = replay.loaded().map(|thread| Addr(thread.registers.rsp));
        let is_stack = there.zip(rsp).is_some_and(|(there, rsp)| there.range.contains(rsp));
        let name = if is_stack { "[stack]" } else { "" };
        Self::AtStart { name: name.to_owned(), offset: None }
    }
}

/// Returns the path of the file that the next thread has as descriptor `fd`, or a description such
/// as "a socket" or "standard input"; `None` if it is unknown. Moves the replay, and brings it
/// back.
fn file_of_descriptor(replay: &mut Replay, fd: i32) -> Result<Option<String>, replay::Error> {
    let here = replay.exact_position()?;
    let file = file_opened_before(replay, fd, here.entry)?;
    replay.seek(here)?;
    Ok(file)
}

/// Does the same as [`file_of_descriptor`] for the descriptor as it is at entry `before`, but does
/// not bring the replay back. A call whose arguments show that it made no descriptor is passed
/// over: the search goes on before it, for at most [`MOST_CANDIDATES`] calls.
fn file_opened_before(
    replay: &mut Replay,
    fd: i32,
    mut before: u64,
) -> Result<Option<String>, replay::Error> {
    for _ in 0..MOST_CANDIDATES {
        let Some(log) = replay.reader().log()? else { return Ok(None) };
        let call = match opening_call(log.cursor(), fd, before)? {
            Descriptor::Opened(call) => call,
            Descriptor::Unknown => return Ok(None),
        };
        // Without such a call, it was open at the start.
        let Some((entry, number)) = call else {
            if !replay.has_first_instruction() {
                return Ok(None);
            }
            let names = ["standard input", "standard output", "standard error"];
            let name = usize::try_from(fd).ok().and_then(|fd| names.get(fd).copied());
            return Ok(name.map(str::to_owned));
        };
        let name = Model::by_number(number).map_or("", |model| model.name);
        replay.seek(Position::after_entries(entry + 1))?;
        let registers = replay.thread_of_entry(entry)?.map(|thread| thread.registers);
        if let Some(registers) = registers
            && !may_make_descriptor(name, registers.rsi)
        {
            before = entry;
            continue;
        }
        return Ok(registers.and_then(|registers| match name {
            "open" | "creat" => text_at(replay, registers.rdi),
            "openat" | "openat2" => text_at(replay, registers.rsi),
            "socket" | "accept" | "accept4" => Some("a socket".to_owned()),
            _ => None,
        }));
    }
    Ok(None)
}

/// Returns false if a system call with this second argument returns no descriptor: most of
/// fcntl(2), and the requests to terminals of ioctl(2). Their results may be the numbers of
/// descriptors.
fn may_make_descriptor(name: &str, second: u64) -> bool {
    match name {
        "fcntl" => DUPLICATE.contains(&(second & 0xffff_ffff)),
        "ioctl" => {
            let (of_terminal, makes_descriptor) = TERMINAL_REQUESTS;
            second >> 8 & 0xff != of_terminal || second & 0xff == makes_descriptor
        }
        _ => true,
    }
}

/// The origin of a file descriptor.
enum Descriptor {
    /// It was open at the start (`None`), or a system call returned it: the number of the log entry
    /// with the result, and that of the call in the kernel's table.
    Opened(Option<(u64, u64)>),
    /// A system call may have written the descriptor to memory, as pipe(2) does.
    Unknown,
}

/// Reads the log up to entry `before`, and returns the last system call that returned descriptor
/// `fd`. Returns `Unknown` if a later call may have written descriptors to memory, this one or
/// others. Ignores close(2): the descriptor is open at that entry.
fn opening_call(mut cursor: Cursor, fd: i32, before: u64) -> Result<Descriptor, replay::Error> {
    let mut descriptor = Descriptor::Opened(None);
    // The system calls that have not returned: other threads run in between.
    let mut calls: HashMap<Tid, u64> = HashMap::new();
    while cursor.index() < before {
        let index = cursor.index();
        let Some(entry) = cursor.read()? else { break };
        let (number, result) = match &entry.event {
            LogEvent::Enters { number } => {
                calls.insert(entry.tid, *number);
                continue;
            }
            LogEvent::Call { number, effects } => (*number, effects.result),
            LogEvent::Returns { effects } => match calls.remove(&entry.tid) {
                Some(number) => (number, effects.result),
                None => continue,
            },
            _ => continue,
        };
        let name = Model::by_number(number).map_or("", |model| model.name);
        if WRITE_DESCRIPTORS.contains(&name) {
            descriptor = Descriptor::Unknown;
        } else if result == i64::from(fd) && MAKE_DESCRIPTORS.contains(&name) {
            descriptor = Descriptor::Opened(Some((index, number)));
        }
    }
    Ok(descriptor)
}

/// Reads a text that ends with a zero byte, and replaces what is not UTF-8; `None` if it is
/// unreadable or longer than a path.
fn text_at(replay: &Replay, addr: u64) -> Option<String> {
    let mut bytes = vec![0; LONGEST_PATH_BYTES];
    let known = replay.read(Addr(addr), &mut bytes);
    let end = bytes[..known].iter().position(|byte| *byte == 0)?;
    Some(String::from_utf8_lossy(&bytes[..end]).into_owned())
}
