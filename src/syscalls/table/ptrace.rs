//! The requests of ptrace(2). The kernel's own PEEK requests write the word at argument 3; it is
//! the C library that returns it.

use super::sizes::{LONG, SIGINFO, USER_DESC};
use crate::syscalls::model::{Operation, op};
use crate::syscalls::value::{Value, u32_at, u64_at};
use crate::syscalls::write::{at_pointer, filled, sized, structure};

/// `struct user_regs_struct` and `struct user_i387_struct` (`arch/x86/include/asm/user_64.h`).
const REGISTERS: u64 = 216;
const FP_REGISTERS: u64 = 512;
/// The maximum number of instructions of a filter (`BPF_MAXINSNS`).
const MAX_FILTER: Value = Value::Constant(4096);
const ARCH_GET_FS: u64 = 0x1003;
const ARCH_GET_GS: u64 = 0x1004;

pub(super) const PTRACE: &[Operation] = &[
    op(0, "PTRACE_TRACEME", &[]),
    op(1, "PTRACE_PEEKTEXT", &[structure(3, LONG)]),
    op(2, "PTRACE_PEEKDATA", &[structure(3, LONG)]),
    op(3, "PTRACE_PEEKUSR", &[structure(3, LONG)]),
    op(4, "PTRACE_POKETEXT", &[]),
    op(5, "PTRACE_POKEDATA", &[]),
    op(6, "PTRACE_POKEUSR", &[]),
    op(7, "PTRACE_CONT", &[]),
    op(8, "PTRACE_KILL", &[]),
    op(9, "PTRACE_SINGLESTEP", &[]),
    op(12, "PTRACE_GETREGS", &[structure(3, REGISTERS)]),
    op(13, "PTRACE_SETREGS", &[]),
    op(14, "PTRACE_GETFPREGS", &[structure(3, FP_REGISTERS)]),
    op(15, "PTRACE_SETFPREGS", &[]),
    op(16, "PTRACE_ATTACH", &[]),
    op(17, "PTRACE_DETACH", &[]),
    op(21, "PTRACE_OLDSETOPTIONS", &[]),
    op(24, "PTRACE_SYSCALL", &[]),
    op(25, "PTRACE_GET_THREAD_AREA", &[structure(3, USER_DESC)]),
    op(26, "PTRACE_SET_THREAD_AREA", &[]),
    op(30, "PTRACE_ARCH_PRCTL", &[structure(2, LONG).if_bits(Value::Computed(asks_base), 1)]),
    op(31, "PTRACE_SYSEMU", &[]),
    op(32, "PTRACE_SYSEMU_SINGLESTEP", &[]),
    op(33, "PTRACE_SINGLEBLOCK", &[]),
    op(0x4200, "PTRACE_SETOPTIONS", &[]),
    op(0x4201, "PTRACE_GETEVENTMSG", &[structure(3, LONG)]),
    op(0x4202, "PTRACE_GETSIGINFO", &[structure(3, SIGINFO)]),
    op(0x4203, "PTRACE_SETSIGINFO", &[]),
    // A struct iovec, whose length the kernel sets to the size of the register set.
    op(
        0x4204,
        "PTRACE_GETREGSET",
        &[
            structure(3, LONG).at_offset(8),
            at_pointer(u64_at(3, 0), u64_at(3, 8), 1).counted_by(u64_at(3, 8)),
        ],
    ),
    op(0x4205, "PTRACE_SETREGSET", &[structure(3, LONG).at_offset(8)]),
    op(0x4206, "PTRACE_SEIZE", &[]),
    op(0x4207, "PTRACE_INTERRUPT", &[]),
    op(0x4208, "PTRACE_LISTEN", &[]),
    // struct ptrace_peeksiginfo_args: offset, flags, number.
    op(
        0x4209,
        "PTRACE_PEEKSIGINFO",
        &[at_pointer(Value::Arg(3), u32_at(2, 12), SIGINFO).counted_by_result()],
    ),
    op(0x420a, "PTRACE_GETSIGMASK", &[sized(3, 2)]),
    op(0x420b, "PTRACE_SETSIGMASK", &[]),
    op(
        0x420c,
        "PTRACE_SECCOMP_GET_FILTER",
        &[at_pointer(Value::Arg(3), MAX_FILTER, 8).counted_by_result()],
    ),
    op(0x420d, "PTRACE_SECCOMP_GET_METADATA", &[filled(3, 2)]),
    op(0x420e, "PTRACE_GET_SYSCALL_INFO", &[filled(3, 2)]),
    op(0x420f, "PTRACE_GET_RSEQ_CONFIGURATION", &[filled(3, 2)]),
    op(0x4210, "PTRACE_SET_SYSCALL_USER_DISPATCH_CONFIG", &[]),
    op(0x4211, "PTRACE_GET_SYSCALL_USER_DISPATCH_CONFIG", &[sized(3, 2)]),
    op(0x4212, "PTRACE_SET_SYSCALL_INFO", &[]),
];

fn asks_base(args: &[u64; 6]) -> u64 {
    u64::from([ARCH_GET_FS, ARCH_GET_GS].contains(&args[3]))
}
