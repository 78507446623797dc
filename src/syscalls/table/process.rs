//! Processes and threads: birth, end, waiting, scheduling, limits.

use super::prctl::{ARCH_PRCTL, PRCTL};
use super::ptrace::PTRACE;
use super::sizes::{INT, RLIMIT, RUSAGE, TIMESPEC, USER_DESC, WAITID_INFO};
use crate::syscalls::model::Property::{
    ChangesMappings, ChangesProcess, KeepsPointer, MayBlock, SetsRegisters, WritesOthers,
};
use crate::syscalls::model::{Model, Operation, by_int, call, multiplexed, op};
use crate::syscalls::value::{Value, u64_at};
use crate::syscalls::write::{Write, at_pointer, filled, int_sized, structure};

pub(super) const CALLS: &[Model] = &[
    call(24, "sched_yield", &[], &[]),
    call(56, "clone", CLONE, &[ChangesProcess, KeepsPointer, MayBlock]),
    call(57, "fork", &[], &[ChangesProcess]),
    call(58, "vfork", &[], &[ChangesProcess, MayBlock]),
    call(59, "execve", &[], &[ChangesProcess, ChangesMappings, SetsRegisters]),
    call(60, "exit", &[], &[ChangesProcess]),
    call(61, "wait4", &[structure(1, INT), structure(3, RUSAGE)], &[MayBlock]),
    call(97, "getrlimit", &[structure(1, RLIMIT)], &[]),
    call(98, "getrusage", &[structure(1, RUSAGE)], &[]),
    multiplexed(101, "ptrace", by_int(0), PTRACE, &[WritesOthers]),
    call(135, "personality", &[], &[]),
    call(140, "getpriority", &[], &[]),
    call(141, "setpriority", &[], &[]),
    call(142, "sched_setparam", &[], &[]),
    call(143, "sched_getparam", &[structure(1, INT)], &[]),
    call(144, "sched_setscheduler", &[], &[]),
    call(145, "sched_getscheduler", &[], &[]),
    call(146, "sched_get_priority_max", &[], &[]),
    call(147, "sched_get_priority_min", &[], &[]),
    call(148, "sched_rr_get_interval", &[structure(1, TIMESPEC)], &[]),
    multiplexed(154, "modify_ldt", by_int(0), MODIFY_LDT, &[]),
    multiplexed(157, "prctl", by_int(0), PRCTL, &[KeepsPointer]),
    multiplexed(158, "arch_prctl", by_int(0), ARCH_PRCTL, &[SetsRegisters, ChangesMappings]),
    call(160, "setrlimit", &[], &[]),
    call(203, "sched_setaffinity", &[], &[]),
    call(204, "sched_getaffinity", &[filled(2, 1)], &[]),
    // 64-bit programs get ENOSYS.
    call(205, "set_thread_area", &[structure(0, USER_DESC)], &[]),
    call(211, "get_thread_area", &[structure(0, USER_DESC)], &[]),
    call(218, "set_tid_address", &[], &[KeepsPointer]),
    call(231, "exit_group", &[], &[ChangesProcess]),
    call(247, "waitid", WAITID, &[MayBlock]),
    call(251, "ioprio_set", &[], &[]),
    call(252, "ioprio_get", &[], &[]),
    call(272, "unshare", &[], &[ChangesProcess]),
    call(302, "prlimit64", &[structure(3, RLIMIT)], &[]),
    call(308, "setns", &[], &[ChangesProcess]),
    call(309, "getcpu", &[structure(0, INT), structure(1, INT)], &[]),
    call(312, "kcmp", &[], &[]),
    // The kernel answers a wrong size with the right one, and fails with E2BIG, after which the
    // area counts as written.
    call(314, "sched_setattr", &[structure(1, INT)], &[]),
    call(315, "sched_getattr", &[int_sized(1, 2)], &[]),
    call(322, "execveat", &[], &[ChangesProcess, ChangesMappings, SetsRegisters]),
    call(324, "membarrier", &[], &[]),
    call(334, "rseq", &[int_sized(0, 1)], &[KeepsPointer]),
    call(424, "pidfd_send_signal", &[], &[]),
    call(434, "pidfd_open", &[], &[]),
    call(435, "clone3", CLONE3, &[ChangesProcess, KeepsPointer, MayBlock]),
    call(471, "rseq_slice_yield", &[], &[]),
];

const CLONE_VM: u64 = 0x100;
const CLONE_PIDFD: u64 = 0x1000;
const CLONE_PARENT_SETTID: u64 = 0x10_0000;
const CLONE_CHILD_SETTID: u64 = 0x100_0000;

/// The kernel writes the pidfd before the creation can fail. It writes the child's TID at argument
/// 3 into the child's memory, when the child runs: with `CLONE_VM`, that is the caller's memory.
const CLONE: &[Write] = &[
    structure(2, INT).if_bits(Value::Arg(0), CLONE_PIDFD | CLONE_PARENT_SETTID).always(),
    structure(3, INT).if_bits(Value::Computed(settid_if_shared), CLONE_CHILD_SETTID),
];

/// If the child has its own memory, the kernel writes `child_tid` there. The caller's bytes are
/// then listed although they do not change.
///
/// `struct clone_args`, by offset: 0 `flags`, 8 `pidfd`, 16 `child_tid`, 24 `parent_tid`.
const CLONE3: &[Write] = &[
    at_pointer(u64_at(0, 8), Value::Constant(INT), 1).if_bits(u64_at(0, 0), CLONE_PIDFD).always(),
    at_pointer(u64_at(0, 16), Value::Constant(INT), 1).if_bits(u64_at(0, 0), CLONE_CHILD_SETTID),
    at_pointer(u64_at(0, 24), Value::Constant(INT), 1).if_bits(u64_at(0, 0), CLONE_PARENT_SETTID),
];

/// The kernel writes zeros if no child has changed its state, or if there is no child.
const WAITID: &[Write] = &[structure(2, WAITID_INFO).always(), structure(4, RUSAGE)];

fn settid_if_shared(args: &[u64; 6]) -> u64 {
    if args[0] & CLONE_VM == 0 { 0 } else { args[0] & CLONE_CHILD_SETTID }
}

/// `modify_ldt(2)`.
const MODIFY_LDT: &[Operation] = &[
    op(0, "read", &[filled(1, 2)]),
    op(1, "write, old", &[]),
    op(2, "read the default", &[filled(1, 2)]),
    op(0x11, "write", &[]),
];
