//! Sizes of the kernel's structures on x86-64, in bytes; and sizes that follow from arguments.

pub(super) const INT: u64 = 4;
pub(super) const LONG: u64 = 8;
pub(super) const STAT: u64 = 144;
pub(super) const STATX: u64 = 256;
pub(super) const STATFS: u64 = 120;
pub(super) const USTAT: u64 = 32;
pub(super) const TIMESPEC: u64 = 16;
pub(super) const TIMEVAL: u64 = 16;
pub(super) const TIMEZONE: u64 = 8;
pub(super) const ITIMERVAL: u64 = 32;
pub(super) const ITIMERSPEC: u64 = 32;
pub(super) const TIMEX: u64 = 208;
pub(super) const TMS: u64 = 32;
pub(super) const RUSAGE: u64 = 144;
pub(super) const RLIMIT: u64 = 16;
pub(super) const SYSINFO: u64 = 112;
pub(super) const UTSNAME: u64 = 390;
pub(super) const SIGINFO: u64 = 128;
pub(super) const SIGSET: u64 = 8;
pub(super) const SIGACTION: u64 = 32;
pub(super) const STACK: u64 = 24;
pub(super) const POLLFD: u64 = 8;
pub(super) const EPOLL_EVENT: u64 = 12;
pub(super) const IO_EVENT: u64 = 32;
pub(super) const FLOCK: u64 = 32;
pub(super) const MQ_ATTR: u64 = 64;
pub(super) const USER_DESC: u64 = 16;
/// The part of a `siginfo_t` that waitid(2) writes: up to `si_status`.
pub(super) const WAITID_INFO: u64 = 28;
pub(super) const CACHESTAT: u64 = 40;

const PAGE_BYTES: u64 = 4096;
/// The maximum number of descriptors that a process can have (fs/file.c, `sysctl_nr_open_max`).
const MAX_DESCRIPTORS: u64 = 0x7fff_ffc0;

/// Returns the size in bytes of a set of select(2): whole words of 64 bits, for as many descriptors
/// as argument 0 states.
pub(super) fn descriptor_set(args: &[u64; 6]) -> u64 {
    (args[0] & 0xffff_ffff).min(MAX_DESCRIPTORS).div_ceil(64) * 8
}

/// Returns the number of pages in argument 1 bytes, rounded up: mincore(2) writes a byte for each.
pub(super) fn byte_per_page(args: &[u64; 6]) -> u64 {
    args[1].div_ceil(PAGE_BYTES)
}

/// Returns the size in bytes of a node mask: whole words of 64 bits. Argument 2 is one more than
/// the number of bits (mm/mempolicy.c, `copy_nodes_to_user`).
pub(super) fn node_mask(args: &[u64; 6]) -> u64 {
    args[2].saturating_sub(1).div_ceil(64) * 8
}
