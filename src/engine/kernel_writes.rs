//! System calls that write into pages whose write permission the tracer took away: the kernel would
//! fail where the program could have written. While there are such pages, threads stop before these
//! calls, and the pages that the calls could write get the program's permissions again first.

use super::error::Error;
use super::guard::EVERYWHERE;
use super::process::TranslatedProcess;
use crate::common::{Addr, AddrRange};
use crate::insn::Registers;
use crate::tracee::Tracee;
use crate::tracee::call_numbers::MADVISE;

const PAGE_BYTES: u64 = 0x1000;
/// The minimum number of bytes that a call is assumed to write at a pointer: any structure fits in
/// a page.
const SMALLEST_REACH: u64 = PAGE_BYTES;
/// The limit of buffer sizes in bytes; a larger argument is a pointer or a flag.
pub(super) const LARGEST_REACH: u64 = 1 << 30;
/// All numbers of system calls are less than this (`arch/x86/entry/syscalls/syscall_64.tbl`).
const CALLS: u64 = 512;
/// `readv`, `recvmsg`, `io_submit`, `preadv`, `recvmmsg`, `process_vm_readv`, `preadv2`: their
/// arguments point to the addresses that they write.
pub(super) const SCATTERING: [u64; 7] = [19, 47, 209, 295, 299, 310, 327];
/// The calls that write more bytes than an argument says, or take more than [`LARGEST_REACH`]: the
/// number of the call, the index of the argument, and the bytes for each unit of it.
const COUNTED: [(u64, usize, u64); 14] = [
    (0, 2, 1),    // read
    (7, 1, 8),    // poll: `struct pollfd`
    (17, 2, 1),   // pread64
    (45, 2, 1),   // recvfrom
    (115, 0, 4),  // getgroups: `gid_t`
    (208, 2, 32), // io_getevents: `struct io_event`
    (232, 2, 12), // epoll_wait: `struct epoll_event`
    (271, 1, 8),  // ppoll
    (279, 1, 4),  // move_pages: the status of a page
    (281, 2, 12), // epoll_pwait
    (318, 1, 1),  // getrandom
    (333, 2, 32), // io_pgetevents
    (441, 2, 12), // epoll_pwait2
    (458, 2, 8),  // listmount: the ID of a mount
];
/// The largest number of bytes that a call writes at a pointer (`MAX_RW_COUNT` of
/// include/linux/fs.h).
const MOST_BYTES: u64 = 0x7fff_f000;
/// Frequent calls that write nothing: `write`, `close`, `lseek`, `pwrite64`, `writev`,
/// `sched_yield`, `getpid`, `sendto`, `sendmsg`, `gettid`, `futex`, `epoll_ctl`, `tgkill`, and the
/// ends `exit` and `exit_group`.
const QUIET: [u64; 15] = [1, 3, 8, 18, 20, 24, 39, 44, 46, 186, 202, 233, 234, 60, 231];

impl TranslatedProcess {
    /// Makes threads stop before each system call that may write memory, from now on and for good.
    /// For a tracer that then calls [`Self::unprotect_for_call`]. Does nothing if they do so
    /// already.
    pub(super) fn watch_kernel_writes(&mut self) {
        if self.watches_kernel_writes {
            return;
        }
        self.watches_kernel_writes = true;
        if self.translator.call_handling().is_some() {
            return self.update_logged_calls();
        }
        self.stop_before_calls((0..CALLS).filter(|call| !QUIET.contains(call)));
    }

    /// Restores the program's permissions on the write-protected pages that the kernel may write in
    /// a call which a thread is about to make, and drops the code that was translated from them.
    /// `registers` are the thread's. Does not know the calls: each argument may be a pointer, to as
    /// many bytes as the largest argument that may be a size, at least a page. Before calls with
    /// vectors of buffers, restores all pages; before madvise(2), those in its range.
    pub fn unprotect_for_call(
        &mut self,
        tracee: Tracee,
        registers: &Registers,
    ) -> Result<(), Error> {
        let r = registers;
        let number = r.rax & u64::from(u32::MAX);
        let args = [r.rdi, r.rsi, r.rdx, r.r10, r.r8, r.r9];
        if SCATTERING.contains(&number) {
            return self.unprotect_and_forget(tracee, EVERYWHERE);
        }
        if number == MADVISE {
            return self.unprotect_and_forget(tracee, AddrRange::sized(Addr(r.rdi), r.rsi));
        }
        let sizes = args.into_iter().filter(|&size| size < LARGEST_REACH);
        let counted = COUNTED.into_iter().filter(|(call, ..)| *call == number);
        let counted = counted.map(|(_, index, unit)| args[index].saturating_mul(unit));
        let reach = sizes.chain(counted.map(|bytes| bytes.min(MOST_BYTES))).max();
        let reach = reach.unwrap_or(0).max(SMALLEST_REACH);
        for pointer in args.into_iter().filter(|&arg| arg >= PAGE_BYTES) {
            let end = pointer.saturating_add(reach);
            self.unprotect_and_forget(tracee, AddrRange::new(Addr(pointer), Addr(end)))?;
        }
        Ok(())
    }
}
