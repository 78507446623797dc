//! Copies stopped processes, and starts processes that are empty but for one page. Both make the
//! process execute system calls with a *gadget*, a SYSCALL instruction in its memory.

use super::error::Error;
use super::launch::kill_and_reap;
use super::memory::Memory;
use super::procfs::mappings;
use super::ptrace::Tracee;
use super::stop::{PtraceEvent, Stop};
use super::tiles::{TILES_CODE, TILES_OFFSET};
use super::wait::wait_for;
use crate::common::{Addr, AddrRange, Pid, Tid};
use crate::insn::Registers;
use nix::errno::Errno;
use nix::unistd::{ForkResult, fork};
use std::time::Duration;

const CLONE: u64 = libc::SYS_clone as u64;
const CLOSE_RANGE: u64 = libc::SYS_close_range as u64;
const MMAP: u64 = libc::SYS_mmap as u64;
const MUNMAP: u64 = libc::SYS_munmap as u64;
const RSEQ: u64 = libc::SYS_rseq as u64;
const SETSID: u64 = libc::SYS_setsid as u64;
const RSEQ_UNREGISTER: u64 = 1;
/// The gadget of an empty process, at the start of its page: SYSCALL; INT3.
const GADGET: [u8; 3] = [0x0f, 0x05, 0xcc];
const SYSCALL_BYTES: u64 = 2;
const PAGE_BYTES: u64 = 4096;
/// The end of a program's addresses (arch/x86 in the kernel: `TASK_SIZE_MAX`).
const PROGRAM_END: u64 = (1 << 47) - PAGE_BYTES;

impl Tracee {
    /// Makes the only thread of a stopped process copy the process with clone(2), by the SYSCALL
    /// instruction at `gadget`. Returns the copy: it is traced, is stopped where this process is,
    /// and has the same registers and signal mask. To copy AMX tiles, `gadget` must be the page of
    /// [`start_empty`]: the copy may have to execute the code for tiles that this page contains.
    ///
    /// The thread must not be inside a system call. During the call, all signals are blocked, and
    /// job control stops that arrive are lost. If the thread ends or a request fails, its registers
    /// and mask stay those of the call, and a copy that exists by then stays, stopped; if only
    /// clone(2) fails, they are restored. The caller must end the copy ([`kill_and_reap`]).
    pub fn copy_process(self, gadget: Addr) -> Result<Pid, Error> {
        let registers = self.registers()?;
        let mask = self.signal_mask()?;
        // The copy's parent is this process's parent: the recorder waits for it.
        let flags = libc::CLONE_PARENT as u64;
        let call = Registers {
            rip: gadget.0,
            rax: CLONE,
            orig_rax: u64::MAX,
            rdi: flags,
            rsi: 0,
            rdx: 0,
            r10: 0,
            r8: 0,
            ..registers
        };
        self.set_signal_mask(u64::MAX)?;
        self.set_registers(&call)?;
        // With this `orig_rax`, the kernel restarts no system call when the thread is resumed.
        let restored = Registers { orig_rax: u64::MAX, ..registers };
        let mut child = None;
        let mut has_entered = false;
        // The stops of this thread: the entry of clone(2), the event of the birth, and the exit.
        loop {
            self.resume_to_call(0)?;
            match wait_for(self.0)? {
                Stop::Event(PtraceEvent::Clone | PtraceEvent::Fork) => {
                    let tid = Tid(i32::try_from(self.event_message()?).unwrap_or(0));
                    // The copy is traced from its birth on, and begins with a stop.
                    wait_for(tid)?;
                    let copy = Self(tid);
                    copy.set_registers(&restored)?;
                    copy.set_signal_mask(mask)?;
                    self.copy_tiles(copy, gadget)?;
                    child = Some(Pid(tid.0));
                }
                Stop::Call if !std::mem::replace(&mut has_entered, true) => {}
                Stop::Call => break,
                // All other signals are blocked, so a signal is SIGSTOP. Stops of job control do
                // not disturb the call.
                Stop::Group(_) | Stop::Event(PtraceEvent::Stop) | Stop::Signal(_) => {}
                stop => return Err(Error::Disturbed { tid: self.0, stop }),
            }
        }
        let result = self.registers()?.rax.cast_signed();
        self.set_registers(&restored)?;
        self.set_signal_mask(mask)?;
        let errno = Errno::from_raw(i32::try_from(-result).unwrap_or(libc::EIO));
        child.ok_or(Error::System { call: "clone", errno })
    }
}

/// Starts a process with nothing in it but one page, and returns the process and the page. The page
/// begins with a SYSCALL instruction (a *gadget*), at which the process is stopped. It also
/// contains the code for AMX tiles, and overlaps none of `reserved`. The process is traced by the
/// calling thread, and has no open files and no terminal. It keeps this process's ignored and
/// blocked signals. The caller must end it ([`kill_and_reap`]). If this function fails, no process
/// is left.
pub fn start_empty(reserved: &[AddrRange]) -> Result<(Pid, Addr), Error> {
    // SAFETY: the child makes one system call, again and again.
    let pid = match unsafe { fork() }.map_err(|errno| Error::System { call: "fork", errno })? {
        ForkResult::Child => loop {
            // SAFETY: pause(2) touches no memory.
            unsafe { libc::pause() };
        },
        ForkResult::Parent { child } => Pid(child.as_raw()),
    };
    let emptied = empty_process(pid, reserved);
    if emptied.is_err() {
        kill_and_reap(pid);
    }
    emptied.map(|page| (pid, page))
}

/// Attaches to a new copy of this process and makes it empty itself: it closes its files, starts a
/// session, maps a page that overlaps none of `reserved`, and unmaps all else. Uses a SYSCALL
/// instruction of its C library, at last that of the page. Returns the page, at which the process
/// is stopped. Ignores errors of the calls but mmap(2). If this fails, the caller ends the process,
/// wherever it is then.
fn empty_process(pid: Pid, reserved: &[AddrRange]) -> Result<Addr, Error> {
    let tracee = Tracee(Tid(pid.0));
    tracee.seize()?;
    let memory = Memory::open(pid)?;
    let own = mappings(pid)?;
    let here = stop_near_syscall(tracee, &memory)?;
    // The kernel writes to this memory whenever the thread is scheduled, and it will be unmapped.
    if let Some(rseq) = tracee.rseq().ok().flatten() {
        let (size, signature) = (rseq.size_bytes.into(), rseq.signature.into());
        tracee.inject(here, RSEQ, [rseq.addr, size, RSEQ_UNREGISTER, signature, 0, 0])?;
    }
    tracee.inject(here, CLOSE_RANGE, [0, u64::from(u32::MAX), 0, 0, 0, 0])?;
    tracee.inject(here, SETSID, [0; 6])?;
    let taken: Vec<AddrRange> =
        own.iter().map(|mapping| mapping.range).chain(reserved.iter().copied()).collect();
    let page = free_page(&taken).ok_or(Error::System { call: "mmap", errno: Errno::ENOMEM })?;
    let prot = (libc::PROT_READ | libc::PROT_EXEC) as u64;
    let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE) as u64;
    let at = tracee.inject(here, MMAP, [page.0, PAGE_BYTES, prot, flags, u64::MAX, 0])?;
    if at.cast_unsigned() != page.0 {
        let errno = Errno::from_raw(i32::try_from(-at).unwrap_or(libc::EIO));
        return Err(Error::System { call: "mmap", errno });
    }
    let tiles = page.wrapping_add(TILES_OFFSET);
    let written = memory.write(page, &GADGET).and_then(|()| memory.write(tiles, &TILES_CODE));
    written.map_err(|error| {
        let errno = Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO));
        Error::System { call: "write", errno }
    })?;
    let registers = tracee.registers()?;
    tracee.set_registers(&Registers { rip: page.0, orig_rax: u64::MAX, ..registers })?;
    let following = page.0 + PAGE_BYTES;
    for range in [(0, page.0), (following, PROGRAM_END - following)] {
        tracee.inject(page, MUNMAP, [range.0, range.1, 0, 0, 0, 0])?;
    }
    Ok(page)
}

/// Stops a new copy of this process where a SYSCALL instruction is near: at the latest in pause(2),
/// but the return of fork(2) will do. Returns the address of that instruction. Tries for two
/// seconds, then fails.
fn stop_near_syscall(tracee: Tracee, memory: &Memory) -> Result<Addr, Error> {
    const TRIES: u32 = 2000;
    const PERIOD: Duration = Duration::from_millis(1);
    for _ in 0..TRIES {
        tracee.interrupt()?;
        wait_for(tracee.0)?;
        if let Some(here) = syscall_near(memory, tracee.registers()?.rip) {
            return Ok(here);
        }
        // The process has only just been forked.
        tracee.resume(0)?;
        std::thread::sleep(PERIOD);
    }
    Err(Error::System { call: "pause", errno: Errno::ETIMEDOUT })
}

/// Returns the address of a SYSCALL instruction right before `ip`, or at most 63 bytes after it;
/// `None` if there is none. Compares bytes only: they may be inside another instruction.
fn syscall_near(memory: &Memory, ip: u64) -> Option<Addr> {
    const REACH_BYTES: u64 = 64;
    let candidates = [ip.wrapping_sub(SYSCALL_BYTES)].into_iter().chain(ip..ip + REACH_BYTES);
    candidates.map(Addr).find(|at| {
        let mut bytes = [0; 2];
        memory.read(*at, &mut bytes) == 2 && bytes == GADGET[..2]
    })
}

/// Returns the first page that overlaps no range of `taken`; `None` if there is none. Tries
/// addresses in large steps, so it may miss a free page.
fn free_page(taken: &[AddrRange]) -> Option<Addr> {
    const FIRST: u64 = 0x1000_0000_0000;
    const STEP: usize = 0x40_0000_0000;
    // Some programs map nearly all addresses.
    let all = (FIRST..PROGRAM_END).step_by(STEP);
    all.map(Addr).find(|page| {
        let wanted = AddrRange::sized(*page, PAGE_BYTES);
        !taken.iter().any(|range| range.overlaps(wanted))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_found_between_huge_mappings() {
        let reserved = [AddrRange::new(Addr(0x80_0000_0000), Addr(0x5500_0000_0000))];
        let page = free_page(&reserved).unwrap();
        assert!(page >= reserved[0].end && page.0 < PROGRAM_END);
        assert_eq!(free_page(&[AddrRange::new(Addr(0), Addr(PROGRAM_END))]), None);
    }

    #[test]
    fn an_empty_process_has_one_page_and_can_be_copied() {
        let reserved = [AddrRange::sized(Addr(0x1000_0000_0000), 1 << 40)];
        let (pid, page) = start_empty(&reserved).unwrap();
        let own = |pid| -> Vec<AddrRange> {
            let maps = mappings(pid).unwrap().into_iter();
            maps.filter(|m| m.name != "[vsyscall]").map(|m| m.range).collect()
        };
        assert_eq!(own(pid), [AddrRange::sized(page, PAGE_BYTES)]);
        assert!(!reserved[0].contains(page));
        let tracee = Tracee(Tid(pid.0));
        let before = tracee.registers().unwrap();
        let copy = tracee.copy_process(page).unwrap();
        assert_eq!(tracee.registers().unwrap(), before);
        assert_eq!(Tracee(Tid(copy.0)).registers().unwrap(), before);
        assert_eq!(own(copy), own(pid));
        for pid in [pid, copy] {
            kill_and_reap(pid);
        }
    }
}
