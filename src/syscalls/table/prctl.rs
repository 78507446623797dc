//! The options of prctl(2) and `arch_prctl(2)` (include/uapi/linux/prctl.h,
//! arch/x86/include/uapi/asm/prctl.h). The kernel refuses options of other architectures on this
//! one.

use super::sizes::{INT, LONG};
use crate::syscalls::model::{Operation, op};
use crate::syscalls::value::Value;
use crate::syscalls::write::{filled, structure};

const PR_SET_MM_MAP_SIZE: u64 = 15;
const PR_SCHED_CORE_GET: u64 = 0;
/// `TASK_COMM_LEN`.
const COMM: u64 = 16;

pub(super) const PRCTL: &[Operation] = &[
    op(1, "PR_SET_PDEATHSIG", &[]),
    op(2, "PR_GET_PDEATHSIG", &[structure(1, INT)]),
    op(3, "PR_GET_DUMPABLE", &[]),
    op(4, "PR_SET_DUMPABLE", &[]),
    op(5, "PR_GET_UNALIGN", &[structure(1, INT)]),
    op(6, "PR_SET_UNALIGN", &[]),
    op(7, "PR_GET_KEEPCAPS", &[]),
    op(8, "PR_SET_KEEPCAPS", &[]),
    op(9, "PR_GET_FPEMU", &[structure(1, INT)]),
    op(10, "PR_SET_FPEMU", &[]),
    op(11, "PR_GET_FPEXC", &[structure(1, INT)]),
    op(12, "PR_SET_FPEXC", &[]),
    op(13, "PR_GET_TIMING", &[]),
    op(14, "PR_SET_TIMING", &[]),
    op(15, "PR_SET_NAME", &[]),
    op(16, "PR_GET_NAME", &[structure(1, COMM)]),
    op(19, "PR_GET_ENDIAN", &[structure(1, INT)]),
    op(20, "PR_SET_ENDIAN", &[]),
    op(21, "PR_GET_SECCOMP", &[]),
    op(22, "PR_SET_SECCOMP", &[]),
    op(23, "PR_CAPBSET_READ", &[]),
    op(24, "PR_CAPBSET_DROP", &[]),
    op(25, "PR_GET_TSC", &[structure(1, INT)]),
    op(26, "PR_SET_TSC", &[]),
    op(27, "PR_GET_SECUREBITS", &[]),
    op(28, "PR_SET_SECUREBITS", &[]),
    op(29, "PR_SET_TIMERSLACK", &[]),
    op(30, "PR_GET_TIMERSLACK", &[]),
    op(31, "PR_TASK_PERF_EVENTS_DISABLE", &[]),
    op(32, "PR_TASK_PERF_EVENTS_ENABLE", &[]),
    op(33, "PR_MCE_KILL", &[]),
    op(34, "PR_MCE_KILL_GET", &[]),
    op(35, "PR_SET_MM", &[structure(2, INT).if_bits(Value::Computed(asks_map_size), 1)]),
    op(36, "PR_SET_CHILD_SUBREAPER", &[]),
    op(37, "PR_GET_CHILD_SUBREAPER", &[structure(1, INT)]),
    op(38, "PR_SET_NO_NEW_PRIVS", &[]),
    op(39, "PR_GET_NO_NEW_PRIVS", &[]),
    op(40, "PR_GET_TID_ADDRESS", &[structure(1, LONG)]),
    op(41, "PR_SET_THP_DISABLE", &[]),
    op(42, "PR_GET_THP_DISABLE", &[]),
    op(43, "PR_MPX_ENABLE_MANAGEMENT", &[]),
    op(44, "PR_MPX_DISABLE_MANAGEMENT", &[]),
    op(45, "PR_SET_FP_MODE", &[]),
    op(46, "PR_GET_FP_MODE", &[]),
    op(47, "PR_CAP_AMBIENT", &[]),
    op(50, "PR_SVE_SET_VL", &[]),
    op(51, "PR_SVE_GET_VL", &[]),
    op(52, "PR_GET_SPECULATION_CTRL", &[]),
    op(53, "PR_SET_SPECULATION_CTRL", &[]),
    op(54, "PR_PAC_RESET_KEYS", &[]),
    op(55, "PR_SET_TAGGED_ADDR_CTRL", &[]),
    op(56, "PR_GET_TAGGED_ADDR_CTRL", &[]),
    op(57, "PR_SET_IO_FLUSHER", &[]),
    op(58, "PR_GET_IO_FLUSHER", &[]),
    op(59, "PR_SET_SYSCALL_USER_DISPATCH", &[]),
    op(60, "PR_PAC_SET_ENABLED_KEYS", &[]),
    op(61, "PR_PAC_GET_ENABLED_KEYS", &[]),
    op(62, "PR_SCHED_CORE", &[structure(4, LONG).if_bits(Value::Computed(asks_cookie), 1)]),
    op(63, "PR_SME_SET_VL", &[]),
    op(64, "PR_SME_GET_VL", &[]),
    op(65, "PR_SET_MDWE", &[]),
    op(66, "PR_GET_MDWE", &[]),
    op(67, "PR_SET_MEMORY_MERGE", &[]),
    op(68, "PR_GET_MEMORY_MERGE", &[]),
    op(69, "PR_RISCV_V_SET_CONTROL", &[]),
    op(70, "PR_RISCV_V_GET_CONTROL", &[]),
    op(71, "PR_RISCV_SET_ICACHE_FLUSH_CTX", &[]),
    op(72, "PR_PPC_GET_DEXCR", &[]),
    op(73, "PR_PPC_SET_DEXCR", &[]),
    op(74, "PR_GET_SHADOW_STACK_STATUS", &[structure(1, LONG)]),
    op(75, "PR_SET_SHADOW_STACK_STATUS", &[]),
    op(76, "PR_LOCK_SHADOW_STACK_STATUS", &[]),
    op(77, "PR_TIMER_CREATE_RESTORE_IDS", &[]),
    op(78, "PR_FUTEX_HASH", &[]),
    op(79, "PR_RSEQ_SLICE_EXTENSION", &[]),
    op(0x4155_5856, "PR_GET_AUXV", &[filled(1, 2)]),
    op(0x5356_4d41, "PR_SET_VMA", &[]),
    op(0x5961_6d61, "PR_SET_PTRACER", &[]),
];

pub(super) const ARCH_PRCTL: &[Operation] = &[
    op(0x1001, "ARCH_SET_GS", &[]),
    op(0x1002, "ARCH_SET_FS", &[]),
    op(0x1003, "ARCH_GET_FS", &[structure(1, LONG)]),
    op(0x1004, "ARCH_GET_GS", &[structure(1, LONG)]),
    op(0x1011, "ARCH_GET_CPUID", &[]),
    op(0x1012, "ARCH_SET_CPUID", &[]),
    op(0x1021, "ARCH_GET_XCOMP_SUPP", &[structure(1, LONG)]),
    op(0x1022, "ARCH_GET_XCOMP_PERM", &[structure(1, LONG)]),
    op(0x1023, "ARCH_REQ_XCOMP_PERM", &[]),
    op(0x1024, "ARCH_GET_XCOMP_GUEST_PERM", &[structure(1, LONG)]),
    op(0x1025, "ARCH_REQ_XCOMP_GUEST_PERM", &[]),
    op(0x2001, "ARCH_MAP_VDSO_X32", &[]),
    op(0x2002, "ARCH_MAP_VDSO_32", &[]),
    op(0x2003, "ARCH_MAP_VDSO_64", &[]),
    op(0x4001, "ARCH_GET_UNTAG_MASK", &[structure(1, LONG)]),
    op(0x4002, "ARCH_ENABLE_TAGGED_ADDR", &[]),
    op(0x4003, "ARCH_GET_MAX_TAG_BITS", &[structure(1, LONG)]),
    op(0x4004, "ARCH_FORCE_TAGGED_SVA", &[]),
    op(0x5001, "ARCH_SHSTK_ENABLE", &[]),
    op(0x5002, "ARCH_SHSTK_DISABLE", &[]),
    op(0x5003, "ARCH_SHSTK_LOCK", &[]),
    op(0x5004, "ARCH_SHSTK_UNLOCK", &[]),
    op(0x5005, "ARCH_SHSTK_STATUS", &[structure(1, LONG)]),
];

fn asks_map_size(args: &[u64; 6]) -> u64 {
    u64::from(args[1] == PR_SET_MM_MAP_SIZE)
}

fn asks_cookie(args: &[u64; 6]) -> u64 {
    u64::from(args[1] == PR_SCHED_CORE_GET)
}
