//! Diversions: a debugger changes registers and memory at a position, or calls a function there.
//!
//! 1. The first change begins the diversion ([`Replay::begin_diversion`]): it keeps a checkpoint
//!    at the position, and maps the *lent* memory, which is the debugger's own ([`super::lent`]).
//! 2. Threads run in the replay's process, but without the log ([`Replay::run_diverted`],
//!    [`Replay::step_diverted`]). System calls are made there if they change nothing outside;
//!    others are imitated or refused. The replay's position stays.
//! 3. The caller ends the diversion ([`Replay::end_diversion`]) before it moves the replay: a copy
//!    of the checkpoint replaces the process. Only lent memory keeps its contents.

use super::error::Error;
use super::goals::Goals;
use super::position::Position;
use super::process::Replay;
use crate::common::{Addr, AddrRange, Tid};
use crate::engine::{RunEnd, RunLimit, RunOutcome, Stepped};
use crate::insn::Registers;
use crate::recording::log::{Bytes, after_call};
use crate::tracee::call_numbers::{
    BRK, CLOCK_GETRES, CLOCK_GETTIME, EXIT, EXIT_GROUP, FUTEX, GETPID, GETTID, GETTIMEOFDAY,
    MADVISE, MMAP, MPROTECT, MREMAP, MUNMAP, RT_SIGACTION, RT_SIGPROCMASK, SCHED_YIELD, TGKILL,
    TIME, WRITE, WRITEV,
};
use crate::tracee::siginfo;
use crate::translate::{Bound, Hook};
use std::collections::{BTreeMap, BTreeSet};

/// Ticks between two checks whether the user has interrupted the run.
const CHUNK_TICKS: u64 = 20_000_000;
// Flags of mmap(2), mremap(2) and futex(2), and results of system calls.
const PRIVATE: u64 = libc::MAP_PRIVATE as u64;
const ANONYMOUS: u64 = libc::MAP_ANONYMOUS as u64;
const FIXED: u64 = (libc::MAP_FIXED | libc::MAP_FIXED_NOREPLACE) as u64;
const EXECUTABLE: u64 = libc::PROT_EXEC as u64;
const REMAP_FIXED: u64 = libc::MREMAP_FIXED as u64;
const FUTEX_OPERATION: u64 = 0x7f;
const FUTEX_WAKE: u64 = 1;
const ENOSYS: i64 = -libc::ENOSYS as i64;
const EBADF: i64 = -libc::EBADF as i64;
const EFAULT: i64 = -libc::EFAULT as i64;
const EAGAIN: i64 = -libc::EAGAIN as i64;
/// The maximum number of bytes that are printed from one buffer of a call.
const LARGEST_OUTPUT: u64 = 1 << 20;
/// The maximum number of buffers of a writev(2) (`IOV_MAX`).
const MOST_PARTS: u64 = 1024;
/// The maximum number of waits (futex(2)) for a lock in one run: another thread, which does not
/// run, has the lock then.
const MOST_WAITS: u32 = 1000;

/// The place at which a diversion began, and to which its end returns.
#[derive(Debug)]
pub(super) struct DiversionOrigin {
    position: Position,
    /// The instruction and stack pointers of the threads at `position`.
    pointers: BTreeMap<Tid, (u64, u64)>,
    /// True if the checkpoint at `position` is kept for this diversion alone.
    owns_checkpoint: bool,
    /// [`Replay::is_at_end`] at `position`.
    is_at_end: bool,
}

/// The reason why a run in a diversion ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiversionEnd {
    /// The thread is at a stop that the goals accept.
    Stop,
    /// The thread has executed one instruction.
    Step,
    /// The thread gets this signal, by a fault or from itself. The signal is not delivered.
    Signal(i32),
    /// The thread is at a call that ends it or its process, or waits for another thread. It stays
    /// there.
    Stuck,
    /// The user interrupted the run.
    Interrupted,
}

impl Replay {
    /// Returns true if there is a diversion, in which a thread has another instruction or stack
    /// pointer than when the diversion began. In a diversion also true for a thread that does not
    /// exist. Other changed registers do not count.
    pub fn has_moved_in_diversion(&self, tid: Tid) -> bool {
        let here = self.registers_of(tid).ok().map(|registers| (registers.rip, registers.rsp));
        let diverted = self.diverted.as_ref();
        diverted.is_some_and(|diverted| diverted.pointers.get(&tid).copied() != here)
    }

    /// Begins a diversion at the current position, unless there is one: keeps a checkpoint to
    /// return to, and maps lent memory.
    fn begin_diversion(&mut self) -> Result<(), Error> {
        if self.diverted.is_some() {
            return Ok(());
        }
        let position = self.exact_position()?;
        let owns_checkpoint = self.epoch.keep_near_checkpoint(position, &self.cursor)?;
        let pointers_of = |tid| self.registers_of(tid).ok().map(|r| (tid, (r.rip, r.rsp)));
        let pointers = self.threads().into_iter().filter_map(pointers_of).collect();
        let is_at_end = self.is_at_end;
        self.diverted = Some(DiversionOrigin { position, pointers, owns_checkpoint, is_at_end });
        let mapped = self.map_all_lent();
        if mapped.is_err() {
            self.end_diversion()?;
        }
        mapped
    }

    /// Ends the diversion, if there is one: the replay's process, position and memory are as before
    /// it. Only memory that is lent to the debugger ([`Self::lend`]) keeps its contents. After an
    /// error there is no diversion either, but the process may still have its state.
    pub fn end_diversion(&mut self) -> Result<(), Error> {
        let Some(diverted) = self.diverted.take() else { return Ok(()) };
        self.keep_lent();
        self.restore_checkpoint(diverted.position)?;
        if diverted.owns_checkpoint {
            self.epoch.checkpoints.remove_near(diverted.position);
        }
        self.is_at_end = diverted.is_at_end;
        Ok(())
    }

    /// Sets the general registers of a thread, if it exists. Begins a diversion first if there is
    /// none.
    pub fn divert_registers(&mut self, tid: Tid, registers: &Registers) -> Result<(), Error> {
        self.begin_diversion()?;
        self.epoch.set_registers(tid, *registers)
    }

    /// Sets the extended state (XSAVE area) of a thread, if it exists. Begins a diversion first if
    /// there is none.
    pub fn divert_extended(&mut self, tid: Tid, extended: Vec<u8>) -> Result<(), Error> {
        self.begin_diversion()?;
        self.epoch.contexts.set_extended(tid, &Bytes(extended), self.epoch.thread.tracee)
    }

    /// Writes memory. Begins a diversion first if there is none and the memory is the program's:
    /// memory that is lent to the debugger can be written at any time. Fails for unmapped memory
    /// and for the replay's own; a diversion has then begun.
    pub fn divert_memory(&mut self, addr: Addr, bytes: &[u8]) -> Result<(), Error> {
        if self.write_lent(addr, bytes) {
            return Ok(());
        }
        self.begin_diversion()?;
        self.epoch.overwrite(addr, bytes)
    }

    /// Runs one thread, which must exist, in a diversion, which must have begun, up to one of the
    /// stops that the goals accept, or to another [`DiversionEnd`]. It stops where it begins only
    /// if the debugger has moved the thread to that stop. Acts of the kernel do not end it, also
    /// those that are goals. Other threads do not run. `print` gets what the thread writes to its
    /// standard output and error.
    pub fn run_diverted(
        &mut self,
        tid: Tid,
        goals: &Goals<'_>,
        print: &mut dyn FnMut(&[u8]),
    ) -> Result<DiversionEnd, Error> {
        self.epoch.contexts.load(tid, self.epoch.thread.tracee)?;
        // A run does not stop where it begins. But if the debugger itself set the thread to a stop,
        // such as the start of a function that it calls, the thread has not been there before.
        let was_set_to_stop = goals.stops.contains(&self.ip()?) && self.has_moved_in_diversion(tid);
        if was_set_to_stop && (goals.accepts)(self) {
            return Ok(DiversionEnd::Stop);
        }
        self.epoch.engine.set_stops(&goals.stops.iter().map(|addr| addr.0).collect());
        let end = self.run_to_stop(goals, print);
        self.epoch.engine.set_stops(&BTreeSet::new());
        end
    }

    /// Runs the loaded thread up to a stop or another [`DiversionEnd`], in parts of
    /// [`CHUNK_TICKS`]. The caller has set the stops in the engine.
    fn run_to_stop(
        &mut self,
        goals: &Goals<'_>,
        print: &mut dyn FnMut(&[u8]),
    ) -> Result<DiversionEnd, Error> {
        let mut waits = 0;
        loop {
            // A path may overdraw a budget, so a short distance has an exact bound instead.
            let bound = || RunLimit::Bound(Bound::Ticks(CHUNK_TICKS));
            let budget = self.epoch.engine.budget(CHUNK_TICKS);
            let distance = budget.map_or_else(bound, RunLimit::Budget);
            let end = match self.epoch.run(distance)? {
                RunOutcome::Ended(ran) => ran.end,
                // The kernel raised the signal: the thread's code faulted.
                RunOutcome::Signal(_, info) if siginfo::code_of(&info) > 0 => {
                    return Ok(DiversionEnd::Signal(siginfo::signal_of(&info)));
                }
                // A signal that a process sent is ignored.
                RunOutcome::Signal(..) => RunEnd::Signal,
                RunOutcome::Other(_) | RunOutcome::IncompleteCall | RunOutcome::Glance(_) => {
                    return Err(Error::Killed);
                }
            };
            match end {
                RunEnd::Stop if (goals.accepts)(self) => return Ok(DiversionEnd::Stop),
                // The thread is at an instruction that has to be executed here, one at a time.
                RunEnd::Native(_) => {
                    if let Some(end) = self.step_or_answer(print, &mut waits)? {
                        return Ok(end);
                    }
                    let ip = self.ip()?;
                    if self.epoch.engine.translator().is_stop(ip.0) && (goals.accepts)(self) {
                        return Ok(DiversionEnd::Stop);
                    }
                }
                RunEnd::Stop | RunEnd::Limit | RunEnd::Watchpoint | RunEnd::Signal => {}
            }
            if (goals.interrupted)() {
                return Ok(DiversionEnd::Interrupted);
            }
        }
    }

    /// Executes one instruction of a thread, which must exist, in a diversion, which must have
    /// begun. Answers it if it is a system call. Returns [`DiversionEnd::Step`], a signal that it
    /// raised, or [`DiversionEnd::Stuck`]. Ignores stops.
    pub fn step_diverted(
        &mut self,
        tid: Tid,
        print: &mut dyn FnMut(&[u8]),
    ) -> Result<DiversionEnd, Error> {
        self.epoch.contexts.load(tid, self.epoch.thread.tracee)?;
        Ok(self.step_or_answer(print, &mut 0)?.unwrap_or(DiversionEnd::Step))
    }

    /// Executes one instruction of the loaded thread; answers it if it is a system call. Returns
    /// why the thread has to end its run there; `None` if it can go on. `waits` is the number of
    /// its waits for locks (futex(2)) so far.
    fn step_or_answer(
        &mut self,
        print: &mut dyn FnMut(&[u8]),
        waits: &mut u32,
    ) -> Result<Option<DiversionEnd>, Error> {
        if self.hook_here()? == Some(Hook::SystemCall) {
            return self.answer_call(print, waits);
        }
        Ok(match self.epoch.step()? {
            Stepped::Signal(info) if siginfo::code_of(&info) > 0 => {
                Some(DiversionEnd::Signal(siginfo::signal_of(&info)))
            }
            Stepped::Done | Stepped::Signal(_) => None,
            Stepped::Other(_) => return Err(Error::Killed),
        })
    }

    /// Answers the system call at which the loaded thread is: makes or imitates harmless ones, and
    /// refuses the others (`ENOSYS`), by their results in the registers. Returns why the thread's
    /// run ends there, if it does: the call is not answered ([`DiversionEnd::Stuck`]), or raised a
    /// signal.
    fn answer_call(
        &mut self,
        print: &mut dyn FnMut(&[u8]),
        waits: &mut u32,
    ) -> Result<Option<DiversionEnd>, Error> {
        let tracee = self.epoch.thread.tracee;
        let registers = tracee.registers()?;
        let Registers { rax: number, rdi, rsi, rdx, r10, r8, r9, .. } = registers;
        let args = [rdi, rsi, rdx, r10, r8, r9];
        // The signal that the thread sends, with which the run ends after the call.
        let raised = i32::try_from(rdx).ok().filter(|signal| number == TGKILL && *signal > 0);
        let result = match number {
            // As abort(3) and raise(3) do.
            TGKILL if raised.is_some() => 0,
            EXIT | EXIT_GROUP => return Ok(Some(DiversionEnd::Stuck)),
            FUTEX if rsi & FUTEX_OPERATION == FUTEX_WAKE => 0,
            FUTEX => {
                *waits += 1;
                if *waits > MOST_WAITS {
                    return Ok(Some(DiversionEnd::Stuck));
                }
                EAGAIN
            }
            MMAP | MUNMAP | MPROTECT | MREMAP | MADVISE => self.change_mappings(number, args)?,
            WRITE | WRITEV if !(1..=2).contains(&rdi) => EBADF,
            WRITE => self.print_buffer(rsi, rdx, print),
            WRITEV => self.print_buffers(rsi, rdx, print),
            CLOCK_GETTIME | CLOCK_GETRES | GETTIMEOFDAY | TIME => {
                tracee.inject(self.epoch.page, number, args)?
            }
            GETPID => i64::from(self.pid().0),
            GETTID => i64::from(self.epoch.contexts.loaded().unwrap_or_default().0),
            // For brk(2), 0 is a failure: malloc(3) maps memory then.
            BRK | RT_SIGPROCMASK | RT_SIGACTION | SCHED_YIELD => 0,
            _ => ENOSYS,
        };
        let after = Registers { orig_rax: u64::MAX, ..after_call(&registers, result) };
        tracee.set_registers(&after)?;
        Ok(raised.map(DiversionEnd::Signal))
    }

    /// Makes a call that changes mappings, and returns its result, also that of a failure. Refuses
    /// (`ENOSYS`) to map a file or shared memory, to map or move to a fixed address, and to move,
    /// advise on or make executable memory that is mapped from the core file of the final state, as
    /// in a keyframe at the run's end ([`super::final_memory`]). Fails for the replay's own memory.
    fn change_mappings(&mut self, number: u64, args: [u64; 6]) -> Result<i64, Error> {
        let [start, size, protection, fourth, ..] = args;
        let range = AddrRange::sized(Addr(start), size);
        let is_refused = match number {
            MMAP => fourth & (PRIVATE | ANONYMOUS | FIXED) != PRIVATE | ANONYMOUS,
            // A larger or discarded mapping of a file would have the file's bytes, not zeros.
            MREMAP => fourth & REMAP_FIXED != 0 || self.epoch.is_mapped_from_core(range),
            MADVISE => self.epoch.is_mapped_from_core(range),
            // Code of a file is taken to be constant.
            MPROTECT => protection & EXECUTABLE != 0 && self.epoch.is_mapped_from_core(range),
            _ => false,
        };
        if is_refused {
            return Ok(ENOSYS);
        }
        if number != MMAP {
            self.epoch.drop_code_in(range)?;
        }
        let result = self.epoch.thread.tracee.inject(self.epoch.page, number, args)?;
        self.epoch.refresh_mappings()?;
        Ok(result)
    }

    /// Passes the readable bytes from the start of a buffer, at most 1 MiB, to `print`. Returns
    /// their number, as write(2) does; `EFAULT` if there is none.
    fn print_buffer(&self, start: u64, size: u64, print: &mut dyn FnMut(&[u8])) -> i64 {
        let printed = size.min(LARGEST_OUTPUT);
        let mut bytes = vec![0; usize::try_from(printed).unwrap_or(0)];
        let known = self.read(Addr(start), &mut bytes);
        if known == 0 && size > 0 {
            return EFAULT;
        }
        print(&bytes[..known]);
        i64::try_from(known).unwrap_or(0)
    }

    /// Passes the buffers of a writev(2), at most 1024, to `print`, up to the first that is not
    /// printed as a whole: its caller may go on from there. The array at `parts` has the address
    /// and size of each. Returns the number of bytes; `EFAULT` if nothing is readable.
    fn print_buffers(&self, parts: u64, count: u64, print: &mut dyn FnMut(&[u8])) -> i64 {
        let mut printed = 0;
        for number in 0..count.min(MOST_PARTS) {
            let mut part = [0; 16];
            let known = self.read(Addr(parts.wrapping_add(number * 16)), &mut part);
            let word = |at: usize| part[at..].first_chunk().map_or(0, |w| u64::from_le_bytes(*w));
            let is_known = known == part.len();
            let result = if is_known { self.print_buffer(word(0), word(8), print) } else { EFAULT };
            if result < 0 {
                return if printed > 0 { printed } else { result };
            }
            printed += result;
            if result.cast_unsigned() < word(8) {
                break;
            }
        }
        printed
    }
}
