//! The vdso: functions of the kernel that read the clock from memory which the kernel changes, so
//! that their results do not follow from the program's state. A program that runs already may know
//! it: while the program is recorded, each function makes its system call instead ([`Vdso`]).
//! Programs that are recorded from their beginning do not know it (`start`), but the code cache may
//! use its clocks ([`Clocks`]).

use crate::capture::Error;
use crate::common::{Addr, AddrRange, Pid};
use crate::image::elf::exports;
use crate::insn::outside_targets;
use crate::sideband::Mapping;
use crate::tracee::{self, Memory, Tracee, mappings, wait_for};

/// The starts of the names of the kernel's mappings, which a replay does not have.
pub(super) const KERNEL_MAPPINGS: [&str; 2] = ["[vdso]", "[vvar"];
/// The functions, and the numbers of the system calls that do the same (vdso(7)).
const FUNCTIONS: [(&str, u32); 6] = [
    ("__vdso_gettimeofday", 96),
    ("__vdso_time", 201),
    ("__vdso_clock_gettime", 228),
    ("__vdso_clock_getres", 229),
    ("__vdso_getcpu", 309),
    ("__vdso_getrandom", 318),
];
/// The functions that the code cache calls where the program makes their system calls.
const CLOCKS: [&str; 2] = ["__vdso_clock_gettime", "__vdso_gettimeofday"];
/// The maximum number of functions of which a clock may consist, itself included.
const MOST_CALLS: usize = 20;
/// The maximum number of single steps by which a thread is to leave the vdso.
const MAX_STEPS: u32 = 1_000_000;
/// The size of `mov eax, NUMBER; syscall; ret`.
const STUB_BYTES: usize = 8;

/// A vdso whose functions make system calls.
#[derive(Debug)]
pub(super) struct Vdso {
    range: AddrRange,
    /// The replaced starts of its functions: addresses, and the code that was there.
    old: Vec<(Addr, [u8; STUB_BYTES])>,
}

/// The clocks of a vdso that the program does not know: the range of the vdso and its data, and the
/// addresses of the functions in `CLOCKS`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clocks {
    pub(super) range: AddrRange,
    pub(super) functions: [Addr; 2],
}

impl Clocks {
    /// Finds the clocks of a process. Returns `None` if it has no whole vdso with both clocks, or
    /// if they change registers that the code cache does not keep for the program.
    pub(super) fn find(mappings: &[Mapping], memory: &Memory) -> Option<Self> {
        let of_kernel = |m: &&Mapping| KERNEL_MAPPINGS.iter().any(|name| m.name.starts_with(name));
        let parts: Vec<&Mapping> = mappings.iter().filter(of_kernel).collect();
        let is_whole = parts.windows(2).all(|pair| pair[0].range.end == pair[1].range.start);
        let range = AddrRange::new(parts.first()?.range.start, parts.last()?.range.end);
        let code = parts.last().filter(|m| m.name == "[vdso]" && is_whole)?.range;
        let mut bytes = vec![0; usize::try_from(code.size_bytes()).ok()?];
        let known = memory.read(code.start, &mut bytes);
        let exports = exports(&bytes[..known]);
        let function = |name: &str| {
            let (_, start) = exports.iter().find(|(export, _)| *export == name)?;
            is_plain(&bytes[..known], &exports, *start).then(|| code.start.wrapping_add(*start))
        };
        let [get_time, time_of_day] = CLOCKS.map(function);
        Some(Self { range, functions: [get_time?, time_of_day?] })
    }
}

/// Returns true if a function of a vdso, and those that it calls, use general registers alone, as
/// far as this can be decided. `vdso` are the bytes of the vdso, `start` is an offset there. A
/// function ends where the next exported one begins.
fn is_plain(vdso: &[u8], exports: &[(String, u64)], start: u64) -> bool {
    let (mut seen, mut next) = (Vec::new(), vec![start]);
    while let Some(start) = next.pop() {
        let ends = exports.iter().map(|(_, other)| *other).filter(|other| *other > start);
        let body = ends
            .min()
            .and_then(|end| vdso.get(usize::try_from(start).ok()?..usize::try_from(end).ok()?));
        let calls = body.and_then(|body| outside_targets(body, start));
        let Some(calls) = calls.filter(|_| seen.len() < MOST_CALLS) else { return false };
        seen.push(start);
        next.extend(calls.into_iter().filter(|call| !seen.contains(call)));
    }
    true
}

impl Vdso {
    /// Replaces the functions of a process's vdso by ones that make their system calls, after
    /// stepping all threads, which are stopped, out of it. Returns `None` if it has no vdso.
    pub(super) fn replace(
        pid: Pid,
        memory: &Memory,
        threads: &[Tracee],
    ) -> Result<Option<Self>, Error> {
        let is_vdso = |mapping: &Mapping| mapping.name == "[vdso]";
        let Some(mapping) = mappings(pid)?.into_iter().find(is_vdso) else { return Ok(None) };
        let mut vdso = Self { range: mapping.range, old: Vec::new() };
        vdso.step_threads_out(threads)?;
        for (at, number) in vdso.functions(memory) {
            let mut old = [0; STUB_BYTES];
            if memory.read(at, &mut old) == STUB_BYTES {
                vdso.old.push((at, old));
                write(memory, at, &stub(number))?;
            }
        }
        Ok(Some(vdso))
    }

    /// Steps the stopped threads out of the vdso, and restores its original functions.
    pub(super) fn restore(&self, memory: &Memory, threads: &[Tracee]) -> Result<(), Error> {
        self.step_threads_out(threads)?;
        self.old.iter().try_for_each(|(at, old)| write(memory, *at, old))
    }

    /// Returns the addresses of those of [`FUNCTIONS`] that the vdso has, and the numbers of their
    /// system calls.
    fn functions(&self, memory: &Memory) -> Vec<(Addr, u32)> {
        let mut bytes = vec![0; usize::try_from(self.range.size_bytes()).unwrap_or(0)];
        let known = memory.read(self.range.start, &mut bytes);
        let number = |name: &str| FUNCTIONS.iter().find(|(function, _)| *function == name);
        exports(&bytes[..known])
            .iter()
            .filter_map(|(name, start)| {
                let (_, number) = number(name)?;
                Some((self.range.start.wrapping_add(*start), *number))
            })
            .filter(|(at, _)| self.range.contains(*at))
            .collect()
    }

    /// Steps the threads that are in the vdso until they have left it, with all signals blocked. A
    /// thread that is still there after `MAX_STEPS` stays there.
    fn step_threads_out(&self, threads: &[Tracee]) -> Result<(), Error> {
        threads.iter().try_for_each(|tracee| {
            if !self.range.contains(tracee.instruction_pointer()?) {
                return Ok(());
            }
            let mask = tracee.signal_mask()?;
            tracee.set_signal_mask(u64::MAX)?;
            let stepped = self.step_out(*tracee);
            tracee.set_signal_mask(mask)?;
            stepped
        })
    }

    /// Steps a thread until it has left the vdso. Fails if the thread ends.
    fn step_out(&self, tracee: Tracee) -> Result<(), Error> {
        for _ in 0..MAX_STEPS {
            if !self.range.contains(tracee.instruction_pointer()?) {
                break;
            }
            tracee.step(0)?;
            let stop = wait_for(tracee.0)?;
            if stop.is_end() {
                return Err(tracee::Error::Disturbed { tid: tracee.0, stop }.into());
            }
        }
        Ok(())
    }
}

/// Returns the code of a function that makes the system call `number` and returns.
fn stub(number: u32) -> [u8; STUB_BYTES] {
    let [a, b, c, d] = number.to_le_bytes();
    [0xb8, a, b, c, d, 0x0f, 0x05, 0xc3]
}

/// Writes to code, whatever its protection.
fn write(memory: &Memory, at: Addr, bytes: &[u8]) -> Result<(), Error> {
    memory.write(at, bytes).map_err(|error| {
        let errno = nix::errno::Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO));
        tracee::Error::System { call: "write", errno }.into()
    })
}
