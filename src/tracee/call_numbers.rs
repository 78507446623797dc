//! The numbers of the system calls that the recorders know (the kernel's
//! `arch/x86/entry/syscalls/syscall_64.tbl`).
#![expect(missing_docs, reason = "the names of the calls")]

pub const CLOSE: u64 = 3;
pub const MMAP: u64 = 9;
pub const MPROTECT: u64 = 10;
pub const MUNMAP: u64 = 11;
pub const RT_SIGACTION: u64 = 13;
pub const RT_SIGPROCMASK: u64 = 14;
pub const RT_SIGRETURN: u64 = 15;
pub const MREMAP: u64 = 25;
pub const MADVISE: u64 = 28;
pub const SHMAT: u64 = 30;
pub const CLONE: u64 = 56;
pub const FORK: u64 = 57;
pub const VFORK: u64 = 58;
pub const EXECVE: u64 = 59;
pub const EXIT: u64 = 60;
pub const SHMDT: u64 = 67;
pub const PRCTL: u64 = 157;
pub const ARCH_PRCTL: u64 = 158;
pub const SETRLIMIT: u64 = 160;
pub const FUTEX: u64 = 202;
pub const SCHED_SETAFFINITY: u64 = 203;
pub const SCHED_GETAFFINITY: u64 = 204;
pub const REMAP_FILE_PAGES: u64 = 216;
pub const RESTART_SYSCALL: u64 = 219;
pub const EXIT_GROUP: u64 = 231;
pub const PRLIMIT64: u64 = 302;
pub const SECCOMP: u64 = 317;
pub const MEMFD_CREATE: u64 = 319;
pub const EXECVEAT: u64 = 322;
pub const PKEY_MPROTECT: u64 = 329;
pub const RSEQ: u64 = 334;
pub const CLONE3: u64 = 435;
