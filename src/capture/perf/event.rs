//! The kernel's interface to perf events: `perf_event_open(2)`, the mappings of an event's rings,
//! and its ioctls. Contains no policy.

use super::ring::MappedRing;
use crate::capture::perf_error::Error;
use crate::common::Tid;
use crate::pt::TscToNs;
use crate::sideband::perf_data::Attr;
use nix::errno::Errno;
use std::ffi::CString;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};

/// `PERF_SAMPLE_TID`, `PERF_SAMPLE_TIME`, `PERF_SAMPLE_CPU`: the thread, time and CPU of each
/// record.
pub(super) const SAMPLE: u64 = 1 << 1 | 1 << 2 | 1 << 7;

/// Bits of the flags word that follows `read_format`.
pub(super) mod flag {
    pub(in super::super) const DISABLED: u64 = 1;
    pub(in super::super) const EXCLUDE_KERNEL: u64 = 1 << 5;
    pub(in super::super) const EXCLUDE_HV: u64 = 1 << 6;
    pub(in super::super) const MMAP: u64 = 1 << 8;
    pub(in super::super) const COMM: u64 = 1 << 9;
    pub(in super::super) const TASK: u64 = 1 << 13;
    pub(in super::super) const WATERMARK: u64 = 1 << 14;
    pub(in super::super) const SAMPLE_ID_ALL: u64 = 1 << 18;
    pub(in super::super) const MMAP2: u64 = 1 << 23;
    pub(in super::super) const COMM_EXEC: u64 = 1 << 24;
    pub(in super::super) const USE_CLOCKID: u64 = 1 << 25;
    pub(in super::super) const CONTEXT_SWITCH: u64 = 1 << 26;
    pub(in super::super) const BUILD_ID: u64 = 1 << 34;
}

/// `struct perf_event_attr` of `include/uapi/linux/perf_event.h`, up to its sixth version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(super) struct EventAttr {
    pub(super) kind: u32,
    pub(super) size: u32,
    pub(super) config: u64,
    pub(super) sample_period: u64,
    pub(super) sample_type: u64,
    pub(super) read_format: u64,
    pub(super) flags: u64,
    pub(super) wakeup_watermark: u32,
    pub(super) bp_type: u32,
    pub(super) config1: u64,
    pub(super) config2: u64,
    pub(super) branch_sample_type: u64,
    pub(super) sample_regs_user: u64,
    pub(super) sample_stack_user: u32,
    pub(super) clockid: i32,
    pub(super) sample_regs_intr: u64,
    pub(super) aux_watermark: u32,
    pub(super) sample_max_stack: u16,
    pub(super) reserved_2: u16,
}

impl EventAttr {
    /// Returns the attributes that are needed to parse the event's records.
    pub(super) fn readable(&self) -> Attr {
        Attr { sample_type: self.sample_type, flags: self.flags, ..Attr::default() }
    }
}

/// `PERF_EVENT_IOC_*`: `_IO('$', n)`, and `_IOW('$', 6, char *)`.
const IOC_ENABLE: libc::c_ulong = 0x2400;
const IOC_DISABLE: libc::c_ulong = 0x2401;
const IOC_SET_FILTER: libc::c_ulong = 0x4008_2406;
/// `PERF_FLAG_FD_CLOEXEC`.
const FD_CLOEXEC: libc::c_ulong = 8;

/// An open perf event of a thread.
#[derive(Debug)]
pub(super) struct Event {
    fd: OwnedFd,
    tid: Tid,
}

impl Event {
    /// Opens an event that counts for the thread `tid` (0: the calling one), on any CPU.
    pub(super) fn open(attr: &EventAttr, tid: Tid) -> Result<Self, Error> {
        let size = u32::try_from(size_of::<EventAttr>()).unwrap_or(0);
        let attr = EventAttr { size, ..*attr };
        let (any_cpu, no_group) = (-1, -1);
        // SAFETY: the kernel reads `size` bytes of the structure, which is that large.
        let fd = unsafe {
            let at = &raw const attr;
            libc::syscall(libc::SYS_perf_event_open, at, tid.0, any_cpu, no_group, FD_CLOEXEC)
        };
        let refused = |errno| Error::Open { tid, what: "perf_event_open", errno };
        let fd = Errno::result(fd).map_err(refused)?;
        let fd = i32::try_from(fd).map_err(|_| refused(Errno::EBADF))?;
        // SAFETY: the kernel has just created the descriptor, and nothing else owns it.
        Ok(Self { fd: unsafe { OwnedFd::from_raw_fd(fd) }, tid })
    }

    /// Maps the ring of records: the kernel's control page (`perf_event_mmap_page`), and after it
    /// `pages` pages of records. `pages` is a power of two.
    pub(super) fn map(&self, pages: usize) -> Result<Arc<Mapped>, Error> {
        self.map_at(0, (1 + pages) * PAGE_BYTES, true)
    }

    /// Maps the AUX area, after the ring of records in the file. If `overwrites`, it is mapped
    /// read-only, and the kernel overwrites old bytes.
    pub(super) fn map_aux(
        &self,
        ring: &Mapped,
        size_bytes: usize,
        overwrites: bool,
    ) -> Result<Arc<Mapped>, Error> {
        let offset = ring.size_bytes as u64;
        ring.page().aux_offset.store(offset, Ordering::Relaxed);
        ring.page().aux_size.store(size_bytes as u64, Ordering::Release);
        self.map_at(offset, size_bytes, !overwrites)
    }

    /// Maps the memory of the event at an offset of its file: the ring of records at 0, the AUX
    /// area at another one.
    fn map_at(&self, at: u64, size_bytes: usize, writable: bool) -> Result<Arc<Mapped>, Error> {
        let protection = libc::PROT_READ | if writable { libc::PROT_WRITE } else { 0 };
        let (fd, offset) = (self.fd.as_raw_fd(), at.cast_signed());
        // SAFETY: a new mapping at an address of the kernel's choice overlaps no existing one.
        let base = unsafe {
            let anywhere = std::ptr::null_mut();
            libc::mmap(anywhere, size_bytes, protection, libc::MAP_SHARED, fd, offset)
        };
        let what = if at == 0 { "mmap of the ring" } else { "mmap of the AUX area" };
        let refused = Error::Open { tid: self.tid, what, errno: Errno::last() };
        if base == libc::MAP_FAILED {
            return Err(refused);
        }
        NonNull::new(base).map(|base| Arc::new(Mapped { base, size_bytes })).ok_or(refused)
    }

    /// Enables the event. The kernel disables it when the AUX area is full.
    pub(super) fn enable(&self) {
        // SAFETY: the request touches no memory. It fails for a thread that is gone, which no
        // longer needs it.
        unsafe { libc::ioctl(self.fd.as_raw_fd(), IOC_ENABLE, 0) };
    }

    /// Disables the event.
    pub(super) fn disable(&self) {
        // SAFETY: as above.
        unsafe { libc::ioctl(self.fd.as_raw_fd(), IOC_DISABLE, 0) };
    }

    /// Sets the filter of traced code, in the kernel's syntax.
    pub(super) fn set_filter(&self, filter: &str) -> Result<(), Error> {
        let what = "PERF_EVENT_IOC_SET_FILTER";
        let refused = |errno| Error::Open { tid: self.tid, what, errno };
        let text = CString::new(filter).map_err(|_| refused(Errno::EINVAL))?;
        // SAFETY: the kernel reads the text up to its NUL.
        let result = unsafe { libc::ioctl(self.fd.as_raw_fd(), IOC_SET_FILTER, text.as_ptr()) };
        Errno::result(result).map(drop).map_err(refused)
    }

    /// Waits until the watermark of unread bytes is reached, or for `timeout_ms` milliseconds; for
    /// about one if the thread is gone.
    pub(super) fn wait(&self, timeout_ms: i32) {
        let mut poll = libc::pollfd { fd: self.fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: the kernel accesses one structure, which outlives the call.
        let ready = unsafe { libc::poll(&raw mut poll, 1, timeout_ms) };
        if ready > 0 && poll.revents & libc::POLLIN == 0 {
            // The thread is gone, so poll(2) returns at once.
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }
}

pub(super) const PAGE_BYTES: usize = 4096;

/// `struct perf_event_mmap_page`.
#[derive(Debug)]
#[repr(C)]
struct Page {
    version: u32,
    compat_version: u32,
    lock: AtomicU32,
    index: u32,
    offset: i64,
    time_enabled: u64,
    time_running: u64,
    capabilities: AtomicU64,
    pmc_width: u16,
    time_shift: AtomicU16,
    time_mult: AtomicU32,
    time_offset: u64,
    time_zero: AtomicU64,
    size: u32,
    reserved: [u8; 948],
    data_head: AtomicU64,
    data_tail: AtomicU64,
    data_offset: u64,
    data_size: u64,
    aux_head: AtomicU64,
    aux_tail: AtomicU64,
    aux_offset: AtomicU64,
    aux_size: AtomicU64,
}

const _: () = assert!(std::mem::offset_of!(Page, data_head) == 1024);

/// `cap_user_time_zero`.
const CAP_TIME_ZERO: u64 = 1 << 4;

/// A mapping of a perf event: its ring of records with the page of counters, or its AUX area.
#[derive(Debug)]
pub(super) struct Mapped {
    base: NonNull<libc::c_void>,
    size_bytes: usize,
}

// SAFETY: this value alone owns the mapping, and uses it by the protocol of its counters.
unsafe impl Send for Mapped {}
// SAFETY: the shared parts are atomic, or have one reader.
unsafe impl Sync for Mapped {}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: nothing else uses the mapping any more.
        unsafe { libc::munmap(self.base.as_ptr(), self.size_bytes) };
    }
}

impl Mapped {
    /// Returns the page of counters. Must only be called for the mapping of a ring of records.
    fn page(&self) -> &Page {
        // SAFETY: the first page is mapped and writable, and the kernel accesses the fields that
        // change as atomics.
        unsafe { self.base.cast::<Page>().as_ref() }
    }

    /// Returns the start of the mapping.
    fn bytes(&self) -> NonNull<u8> {
        self.base.cast()
    }

    /// Returns the ring of records.
    pub(super) fn records(self: &Arc<Self>) -> MappedRing {
        let size = self.size_bytes - PAGE_BYTES;
        // SAFETY: the records follow the first page of the mapping.
        let base = unsafe { self.bytes().add(PAGE_BYTES) };
        let (head, tail) = ((&self.page().data_head).into(), (&self.page().data_tail).into());
        // SAFETY: all of it lives as long as the mapping, which the ring owns.
        unsafe { MappedRing::new(base, size as u64, head, Some(tail), self.clone()) }
    }

    /// Returns the AUX area `aux`, whose counters are in this mapping.
    pub(super) fn aux(self: &Arc<Self>, aux: &Arc<Self>, overwrites: bool) -> MappedRing {
        let head = (&self.page().aux_head).into();
        let tail = (!overwrites).then(|| (&self.page().aux_tail).into());
        let owner = Arc::new((self.clone(), aux.clone()));
        // SAFETY: as above, of both mappings.
        unsafe { MappedRing::new(aux.bytes(), aux.size_bytes as u64, head, tail, owner) }
    }

    /// Returns the conversion from the TSC to the times of perf's records; `None` if the kernel
    /// does not provide it.
    pub(super) fn clock(&self) -> Option<TscToNs> {
        let page = self.page();
        for _ in 0..1000 {
            let lock = page.lock.load(Ordering::Acquire);
            let has_clock = page.capabilities.load(Ordering::Acquire) & CAP_TIME_ZERO != 0;
            let shift = page.time_shift.load(Ordering::Acquire);
            let clock = TscToNs {
                zero_ns: page.time_zero.load(Ordering::Acquire),
                multiplier: page.time_mult.load(Ordering::Acquire),
                shift: u8::try_from(shift).unwrap_or(u8::MAX),
            };
            // An even, unchanged count means that the kernel did not write in between (a seqlock).
            if lock & 1 == 0 && page.lock.load(Ordering::Acquire) == lock {
                let is_usable = has_clock && clock.multiplier > 0 && clock.shift < 64;
                return is_usable.then_some(clock);
            }
        }
        None
    }
}
