//! The vdso of a program that runs already. Its functions read the clock from memory that the
//! kernel changes, so their results do not follow from the program's state. While the program is
//! recorded, each of them makes its system call instead.

use crate::capture::Error;
use crate::common::{Addr, AddrRange, Pid};
use crate::image::elf::exports;
use crate::sideband::Mapping;
use crate::tracee::{self, Memory, Tracee, mappings, wait_for};

/// The functions, and the system calls that do the same (vdso(7)).
const FUNCTIONS: [(&str, u32); 6] = [
    ("__vdso_gettimeofday", 96),
    ("__vdso_time", 201),
    ("__vdso_clock_gettime", 228),
    ("__vdso_clock_getres", 229),
    ("__vdso_getcpu", 309),
    ("__vdso_getrandom", 318),
];
/// The longest that a thread may need to leave one of them.
const MAX_STEPS: u32 = 1_000_000;
/// `mov eax, NUMBER; syscall; ret`.
const STUB_BYTES: usize = 8;

/// A vdso whose functions make system calls.
#[derive(Debug)]
pub(super) struct Vdso {
    range: AddrRange,
    /// The code that the system calls replace.
    old: Vec<(Addr, [u8; STUB_BYTES])>,
}

impl Vdso {
    /// Replaces the functions of a process's vdso, if it has one. All its threads are stopped.
    pub(super) fn replace(
        pid: Pid,
        memory: &Memory,
        threads: &[Tracee],
    ) -> Result<Option<Self>, Error> {
        let is_vdso = |mapping: &Mapping| mapping.name == "[vdso]";
        let Some(mapping) = mappings(pid)?.into_iter().find(is_vdso) else { return Ok(None) };
        let mut vdso = Self { range: mapping.range, old: Vec::new() };
        vdso.bring_out(threads)?;
        for (at, number) in vdso.functions(memory) {
            let mut old = [0; STUB_BYTES];
            if memory.read(at, &mut old) == STUB_BYTES {
                vdso.old.push((at, old));
                write(memory, at, &stub(number))?;
            }
        }
        Ok(Some(vdso))
    }

    /// Puts the functions back. All threads are stopped in the program.
    pub(super) fn restore(&self, memory: &Memory, threads: &[Tracee]) -> Result<(), Error> {
        self.bring_out(threads)?;
        self.old.iter().try_for_each(|(at, old)| write(memory, *at, old))
    }

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

    /// Lets the threads that are in one of the functions execute the rest of it.
    fn bring_out(&self, threads: &[Tracee]) -> Result<(), Error> {
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

fn stub(number: u32) -> [u8; STUB_BYTES] {
    let [a, b, c, d] = number.to_le_bytes();
    [0xb8, a, b, c, d, 0x0f, 0x05, 0xc3]
}

fn write(memory: &Memory, at: Addr, bytes: &[u8]) -> Result<(), Error> {
    memory.write(at, bytes).map_err(|error| {
        let errno = nix::errno::Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO));
        tracee::Error::System { call: "write", errno }.into()
    })
}
