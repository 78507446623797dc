//! System calls after which a process cannot be recorded by translation any more. Its code runs
//! translated, in a *code cache*, memory that the recorder maps in the process.

use super::limits::MAKES_UNTRACED;
use crate::common::Addr;
use crate::insn::Registers;
use crate::tracee::Memory;
use crate::tracee::call_numbers::{CLONE, PRCTL, PRLIMIT64, SECCOMP, SETRLIMIT};

/// The system calls, except clone(2), before which [`reason_to_leave`] must be asked.
pub(in crate::capture) const LEAVING_CALLS: [u64; 4] = [SETRLIMIT, PRCTL, PRLIMIT64, SECCOMP];
const PR_SET_DUMPABLE: u64 = 4;
const PR_SET_SECCOMP: u64 = 22;
const PR_SET_TSC: u64 = 26;
pub(in crate::capture) const PR_TSC_SIGSEGV: u64 = 2;
const PR_SET_SYSCALL_USER_DISPATCH: u64 = 59;
const SECCOMP_SET_MODE_FILTER: u64 = 1;
const CLONE_UNTRACED: u64 = libc::CLONE_UNTRACED as u64;
pub(in crate::capture) const FORBIDS_TIME: &str =
    "forbids itself the time-stamp counter (PR_SET_TSC)";
const RLIMIT_AS: u64 = libc::RLIMIT_AS as u64;
/// The size of the address space of user programs. A limit of this size or more has no effect.
const ADDRESS_SPACE_BYTES: u64 = 1 << 47;

/// Returns the reason, as a clause, why a process cannot be recorded after the system call `number`
/// that a thread with the registers `r` is about to make, so that the recorder detaches before it;
/// `None` if there is none.
pub(in crate::capture) fn reason_to_leave(
    number: u64,
    r: &Registers,
    memory: &Memory,
) -> Option<&'static str> {
    let limits_space = match number {
        SETRLIMIT => r.rdi == RLIMIT_AS && limits_address_space(r.rsi, memory),
        PRLIMIT64 => r.rsi == RLIMIT_AS && r.rdx != 0 && limits_address_space(r.rdx, memory),
        _ => false,
    };
    let filters = match number {
        PRCTL => r.rdi == PR_SET_SECCOMP,
        SECCOMP => r.rdi <= SECCOMP_SET_MODE_FILTER,
        _ => false,
    };
    if limits_space {
        return Some("limits its address space, which the recorder needs a part of,");
    }
    if filters {
        // The filter would apply to the recorder's own calls in the process as well.
        return Some("filters its system calls (seccomp)");
    }
    if number == CLONE && r.rdi & CLONE_UNTRACED != 0 {
        // The new process would run in the code cache without a tracer. LeakSanitizer inspects the
        // program's threads from such a process, which it cannot do while they are traced.
        return Some(MAKES_UNTRACED);
    }
    if number == PRCTL && r.rdi == PR_SET_SYSCALL_USER_DISPATCH && r.rsi != 0 {
        // The recorder's own calls in the process would be redirected as well.
        return Some("redirects its system calls (PR_SET_SYSCALL_USER_DISPATCH)");
    }
    if number == PRCTL && r.rdi == PR_SET_TSC && r.rsi == PR_TSC_SIGSEGV {
        // The code cache reads the counter after each system call.
        return Some(FORBIDS_TIME);
    }
    // After this call the process's mappings are hidden from its tracer (`__ptrace_may_access` in
    // the kernel).
    let hides = number == PRCTL && r.rdi == PR_SET_DUMPABLE && r.rsi == 0;
    let may_look = || nix::unistd::geteuid().is_root();
    (hides && !may_look()).then_some("forbids that it is looked into (PR_SET_DUMPABLE)")
}

/// Returns true if the soft limit of the `struct rlimit` at `addr` is less than
/// [`ADDRESS_SPACE_BYTES`]; false if that is not readable. The hard limit does not count.
fn limits_address_space(addr: u64, memory: &Memory) -> bool {
    let mut soft = [0; 8];
    memory.read(Addr(addr), &mut soft) == soft.len()
        && u64::from_le_bytes(soft) < ADDRESS_SPACE_BYTES
}
