//! Facts found by trying: starting a program under ptrace, and opening a perf event. Both are
//! undone.

use crate::common::Tid;
use crate::tracee::{Launch, Tracee, kill_and_reap};
use nix::errno::Errno;
use serde::Serialize;
use std::os::fd::{FromRawFd, OwnedFd};
use std::path::Path;

/// The results of trying ptrace(2) and perf events on this machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tried {
    /// The reason why no program could be started under ptrace; `None` if one could.
    pub ptrace_fault: Option<String>,
    /// The errno of `perf_event_open(2)`; `None` if it works.
    pub perf_errno: Option<i32>,
}

impl Tried {
    /// Tries ptrace(2) and `perf_event_open(2)` here. `program` is started, stopped before its
    /// first instruction, and killed.
    #[must_use]
    pub fn here(program: &Path) -> Self {
        Self { ptrace_fault: ptrace(program).err(), perf_errno: perf_event().err() }
    }
}

/// Starts a program under ptrace, reads its registers, and kills it before its first instruction.
/// Returns the text of the error if one of these fails.
fn ptrace(program: &Path) -> Result<(), String> {
    let argv = [program.as_os_str().to_owned()];
    let launch = Launch { program, argv: &argv, env: &[], directory: None, aslr: false };
    let pid = launch.start().map_err(|error| error.to_string())?;
    let registers = Tracee(Tid(pid.0)).registers();
    kill_and_reap(pid);
    registers.map(drop).map_err(|error| error.to_string())
}

/// `struct perf_event_attr` in its first version (the kernel's `linux/perf_event.h`).
#[repr(C)]
#[derive(Default)]
struct EventAttr {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    breakpoint_type: u32,
    breakpoint_addr: u64,
}

const TYPE_SOFTWARE: u32 = 1;
const COUNT_SW_DUMMY: u64 = 9;
const EXCLUDE_KERNEL_AND_HYPERVISOR: u64 = 1 << 5 | 1 << 6;
const SIZE_BYTES: u32 = 64;

/// Opens an event of this thread that counts nothing, and closes it. It is allowed wherever any
/// event is. Returns the errno if it is refused.
fn perf_event() -> Result<(), i32> {
    let attr = EventAttr {
        kind: TYPE_SOFTWARE,
        size: SIZE_BYTES,
        config: COUNT_SW_DUMMY,
        flags: EXCLUDE_KERNEL_AND_HYPERVISOR,
        ..EventAttr::default()
    };
    const { assert!(size_of::<EventAttr>() == SIZE_BYTES as usize) };
    let (this_thread, any_cpu, no_group) = (0, -1, -1);
    // SAFETY: the kernel reads `size` bytes of the attributes, which are that large.
    let fd = unsafe {
        libc::syscall(libc::SYS_perf_event_open, &raw const attr, this_thread, any_cpu, no_group, 0)
    };
    match i32::try_from(fd) {
        Ok(fd) if fd >= 0 => {
            // SAFETY: the descriptor is new, and nothing else owns it.
            drop(unsafe { OwnedFd::from_raw_fd(fd) });
            Ok(())
        }
        _ => Err(Errno::last_raw()),
    }
}
