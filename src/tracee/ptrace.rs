//! The ptrace(2) requests that contraflow makes, each as a method of the traced thread.
//!
//! nix's wrappers lack real-time signals, so this file makes the raw call.

use super::error::Error;
use super::procfs::{Signals, process_of, signals};
use super::stop::{PtraceEvent, Signo, Stop};
use super::trap_flag::TRAP_FLAG;
use super::wait::{pending_stop, wait_for, wait_for_killed};
use crate::common::{Addr, Pid, Tid};
use crate::insn::Registers;
use nix::errno::Errno;

/// SIGTRAP's bit in a signal mask. A single step cannot report its end while SIGTRAP is blocked.
pub const TRAP_BIT: u64 = 1 << (libc::SIGTRAP - 1);
/// The code segment selector of 64-bit programs (arch/x86/include/asm/segment.h).
pub const USER_CS_64: u64 = 0x33;

/// A `siginfo_t` as the kernel fills it in.
pub type SiginfoBytes = [u8; size_of::<libc::siginfo_t>()];

/// A thread's registration of restartable sequences (rseq(2)), as the kernel's
/// `struct ptrace_rseq_configuration`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Rseq {
    /// The address of the thread's `struct rseq`.
    pub addr: u64,
    /// The size of that `struct rseq` in bytes.
    pub size_bytes: u32,
    /// The value in front of each abort handler.
    pub signature: u32,
    /// 0: the kernel reports no flags.
    flags: u32,
    padding: u32,
}

impl Rseq {
    /// Creates a registration with these arguments of rseq(2).
    pub const fn new(addr: u64, size_bytes: u32, signature: u32) -> Self {
        Self { addr, size_bytes, signature, flags: 0, padding: 0 }
    }
}

/// A traced thread. Its ptrace requests must come from the thread that traces it. Except for
/// [`Self::seize`] and [`Self::interrupt`], they need it to be stopped, and otherwise fail with an
/// error that [`Error::is_gone`] is true for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tracee(pub Tid);

/// `Registers` has the words of the kernel's `struct user_regs_struct`, in their order.
const _: () = assert!(Registers::NAMES.len() * 8 == size_of::<libc::user_regs_struct>());

impl Tracee {
    /// Attaches to the thread, without stopping it, with a recorder's options: stops at clone,
    /// fork, vfork, exec and exit, and [`Stop::Call`] for stops at system calls. The kernel
    /// attaches the threads and processes that it creates, too. The kernel kills the tracee when
    /// the tracing thread ends.
    pub fn seize(self) -> Result<(), Error> {
        let options = libc::PTRACE_O_EXITKILL
            | libc::PTRACE_O_TRACECLONE
            | libc::PTRACE_O_TRACEFORK
            | libc::PTRACE_O_TRACEVFORK
            | libc::PTRACE_O_TRACEEXEC
            | libc::PTRACE_O_TRACEEXIT
            | libc::PTRACE_O_TRACESYSGOOD;
        self.request("SEIZE", libc::PTRACE_SEIZE, 0, options.cast_unsigned() as usize)
    }

    /// Resumes the thread for one instruction, after delivering `signal` (0: none), and returns at
    /// once. A wait reports the end of the step, as SIGTRAP, which must not be blocked
    /// ([`TRAP_BIT`]).
    pub fn step(self, signal: Signo) -> Result<(), Error> {
        self.request("SINGLESTEP", libc::PTRACE_SINGLESTEP, 0, signal_argument(signal))
    }

    /// Clears the trap flag (TF of EFLAGS) if a step that executed no instruction left it set: RIP
    /// is as in `before`, the registers before the step. The kernel does this itself, except for
    /// POPF and IRET, whose flag it takes for the program's own (`is_setting_trap_flag` in its
    /// arch/x86/kernel/step.c).
    pub fn clear_step_flag(self, before: &Registers) -> Result<(), Error> {
        let now = self.registers()?;
        if now.rip != before.rip || now.eflags & !before.eflags & TRAP_FLAG == 0 {
            return Ok(());
        }
        self.set_registers(&Registers { eflags: now.eflags & !TRAP_FLAG, ..now })
    }

    /// Resumes the thread, after delivering `signal` (0: none), and returns at once. A wait reports
    /// its next stop.
    pub fn resume(self, signal: Signo) -> Result<(), Error> {
        self.request("CONT", libc::PTRACE_CONT, 0, signal_argument(signal))
    }

    /// Resumes the thread to the next system call entry or exit, after delivering `signal` (0:
    /// none), and returns at once. A wait reports [`Stop::Call`], or an earlier stop.
    pub fn resume_to_call(self, signal: Signo) -> Result<(), Error> {
        self.request("SYSCALL", libc::PTRACE_SYSCALL, 0, signal_argument(signal))
    }

    /// Leaves a thread in its group stop, from which SIGCONT can wake it; a later wait reports
    /// that. Must be called in a group stop.
    pub fn listen(self) -> Result<(), Error> {
        self.request("LISTEN", libc::PTRACE_LISTEN, 0, 0)
    }

    /// Requests a stop of the thread, which a wait reports as [`PtraceEvent::Stop`], unless another
    /// stop comes first: that also ends the request.
    pub fn interrupt(self) -> Result<(), Error> {
        self.request("INTERRUPT", libc::PTRACE_INTERRUPT, 0, 0)
    }

    /// Detaches from the stopped thread, which runs on after delivering `signal` (0: none). Leaves
    /// its debug registers enabled: end watches before, or their SIGTRAP kills the program.
    pub fn detach(self, signal: Signo) -> Result<(), Error> {
        self.request("DETACH", libc::PTRACE_DETACH, 0, signal_argument(signal))
    }

    /// Returns the message of the last ptrace event: the number of the new thread or process, an
    /// exit status as wait(2) reports it, or after an exec the thread's former number. Must be
    /// called at the stop of such an event.
    pub fn event_message(self) -> Result<u64, Error> {
        let mut message: libc::c_ulong = 0;
        let at = &raw mut message;
        self.request("GETEVENTMSG", libc::PTRACE_GETEVENTMSG, 0, at as usize)?;
        Ok(message)
    }

    /// Returns the general registers.
    pub fn registers(self) -> Result<Registers, Error> {
        let mut words = [0_u64; 27];
        self.request("GETREGS", libc::PTRACE_GETREGS, 0, words.as_mut_ptr() as usize)?;
        Ok(Registers::from_words(words))
    }

    /// Sets the general registers. To move RIP, also set `orig_rax` to all ones: if the thread was
    /// stopped in a system call that is to be restarted, the kernel may otherwise change RIP and
    /// RAX when it is resumed.
    pub fn set_registers(self, registers: &Registers) -> Result<(), Error> {
        let words = registers.to_words();
        self.request("SETREGS", libc::PTRACE_SETREGS, 0, words.as_ptr() as usize)
    }

    /// Returns RIP alone, which is cheaper than all registers.
    pub fn instruction_pointer(self) -> Result<Addr, Error> {
        Errno::clear();
        let offset = std::mem::offset_of!(libc::user_regs_struct, rip);
        // SAFETY: PEEKUSER reads from the tracee's registers and writes nothing here.
        let value = unsafe { libc::ptrace(libc::PTRACE_PEEKUSER, self.0.0, offset, 0) };
        match Errno::last() {
            // -1 is a valid value too, so only errno shows an error.
            errno if value == -1 && errno != Errno::UnknownErrno => {
                Err(Error::Ptrace { request: "PEEKUSER", tid: self.0, errno })
            }
            _ => Ok(Addr(value.cast_unsigned())),
        }
    }

    /// Returns the `siginfo_t` of the signal that the thread stopped for. Must be called at
    /// [`Stop::Signal`].
    pub fn signal_info(self) -> Result<SiginfoBytes, Error> {
        let mut info = [0_u8; size_of::<libc::siginfo_t>()];
        self.request("GETSIGINFO", libc::PTRACE_GETSIGINFO, 0, info.as_mut_ptr() as usize)?;
        Ok(info)
    }

    /// Replaces the `siginfo_t` of the signal that the thread stopped for.
    pub fn set_signal_info(self, info: &SiginfoBytes) -> Result<(), Error> {
        self.request("SETSIGINFO", libc::PTRACE_SETSIGINFO, 0, info.as_ptr() as usize)
    }

    /// Returns the set of blocked signals, signal 1 in bit 0. If a system call replaced the mask
    /// for its duration (as ppoll does), this is the mask that it restores.
    pub fn signal_mask(self) -> Result<u64, Error> {
        let mut mask = 0_u64;
        let at = &raw mut mask as usize;
        self.request("GETSIGMASK", libc::PTRACE_GETSIGMASK, size_of::<u64>(), at)?;
        Ok(mask)
    }

    /// Returns true if a SIGTRAP of the stopped thread, or of its process `pid`, is pending and not
    /// blocked: its trap occurred together with the event that stopped the thread. False if that
    /// cannot be read.
    pub fn has_pending_trap(self, pid: Pid) -> bool {
        let is_pending = |now: Signals| now.pending & !now.blocked & TRAP_BIT != 0;
        signals(pid, self.0).is_ok_and(is_pending)
    }

    /// Sets the set of blocked signals; SIGKILL and SIGSTOP stay unblocked. Drops a mask that a
    /// system call would restore (as ppoll does, see [`Self::signal_mask`]).
    pub fn set_signal_mask(self, mask: u64) -> Result<(), Error> {
        let at = &raw const mask as usize;
        self.request("SETSIGMASK", libc::PTRACE_SETSIGMASK, size_of::<u64>(), at)
    }

    /// Makes a stopped thread execute a system call with the SYSCALL instruction at `gadget`, waits
    /// for its end, and restores the registers, even if the thread is killed during the call. But
    /// `orig_rax` becomes all ones, so the kernel does not repeat a call in which the thread was
    /// interrupted: move the thread out of it first. Blocks all signals for the duration. Returns
    /// the call's result; an error of the call is a negative number, not an `Err`. Job control
    /// stops that arrive during the call are raised again after it. If the thread is killed, fails
    /// with [`Error::Disturbed`]. If another ptrace request fails, registers and mask stay as they
    /// are then.
    pub fn inject(self, gadget: Addr, number: u64, args: [u64; 6]) -> Result<i64, Error> {
        let registers = self.registers()?;
        let mask = self.signal_mask()?;
        self.set_signal_mask(u64::MAX)?;
        let mut deferred = DeferredStops::default();
        let result = self
            .run_call(&registers, gadget, number, args, &mut deferred)
            .map_err(|error| self.restore_if_killed(&registers, error))?;
        self.set_registers(&Registers { orig_rax: u64::MAX, ..registers })?;
        self.set_signal_mask(mask)?;
        self.raise_deferred_stops(deferred)?;
        Ok(result)
    }

    /// Makes one system call, which [`Self::inject`] prepares: sets the registers for it, and
    /// resumes the thread to its entry and then to its exit. Returns the result. Notes the job
    /// control stops of that time in `deferred`.
    fn run_call(
        self,
        registers: &Registers,
        gadget: Addr,
        number: u64,
        args: [u64; 6],
        deferred: &mut DeferredStops,
    ) -> Result<i64, Error> {
        let [rdi, rsi, rdx, r10, r8, r9] = args;
        let call = Registers {
            rip: gadget.0,
            rax: number,
            orig_rax: u64::MAX,
            rdi,
            rsi,
            rdx,
            r10,
            r8,
            r9,
            ..*registers
        };
        self.set_registers(&call)?;
        // A thread that was killed earlier is in its exit stop. Resuming would end it.
        if let Some(stop) = pending_stop(self.0)? {
            return Err(Error::Disturbed { tid: self.0, stop });
        }
        let mut has_entered = false;
        // A thread that is inside a system call reaches the exit of that call first, with RIP still
        // at `gadget`: then the registers are set anew. At the entry and the exit of the injected
        // call, RIP is after the instruction. These stops raise no signal, so the program's
        // handlers are not affected.
        loop {
            self.resume_until_call(deferred)?;
            let at = self.registers()?;
            if at.rip == gadget.0 {
                self.set_registers(&call)?;
            } else if std::mem::replace(&mut has_entered, true) {
                return Ok(at.rax.cast_signed());
            }
        }
    }

    /// Restores the registers of before a call that failed with `error`, if the thread was killed
    /// during it: the final state is read from them. Waits for the thread's exit stop if need be.
    /// Returns the error for the caller, with that stop if the thread was killed.
    fn restore_if_killed(self, registers: &Registers, error: Error) -> Error {
        let stop = match error {
            Error::Disturbed { stop, .. } => stop,
            error if error.is_gone() => match wait_for_killed(self.0) {
                Ok(stop) => stop,
                Err(error) => return error,
            },
            error => return error,
        };
        if stop == Stop::Event(PtraceEvent::Exit) {
            // If this fails, a second kill ended the thread, and its registers are no longer
            // needed.
            drop(self.set_registers(registers));
        }
        Error::Disturbed { tid: self.0, stop }
    }

    /// Resumes the thread until it enters or leaves a system call. Its signals must be blocked.
    /// Notes job control stops in `deferred`, since they cannot be blocked, and goes on;
    /// [`Self::raise_deferred_stops`] raises them again.
    fn resume_until_call(self, deferred: &mut DeferredStops) -> Result<(), Error> {
        loop {
            self.resume_to_call(0)?;
            match wait_for(self.0)? {
                Stop::Call => return Ok(()),
                stop if deferred.defer(stop) => {}
                stop => return Err(Error::Disturbed { tid: self.0, stop }),
            }
        }
    }

    /// Raises the deferred job control stops again, by a SIGSTOP and a request of a stop; later
    /// waits report them.
    pub fn raise_deferred_stops(self, deferred: DeferredStops) -> Result<(), Error> {
        if deferred.signal {
            self.send(process_of(self.0).unwrap_or(Pid(self.0.0)), libc::SIGSTOP)?;
        }
        if deferred.group {
            self.interrupt()?;
        }
        Ok(())
    }

    /// Sends a signal to the thread (tgkill(2)), which must belong to process `pid`.
    pub fn send(self, pid: Pid, signal: Signo) -> Result<(), Error> {
        // SAFETY: tgkill(2) touches no memory.
        let result = unsafe { libc::syscall(libc::SYS_tgkill, pid.0, self.0.0, signal) };
        Errno::result(result).map(drop).map_err(|errno| Error::Ptrace {
            request: "tgkill",
            tid: self.0,
            errno,
        })
    }

    /// Returns a register set by its ELF note type (`NT_FPREGSET`, `NT_X86_XSTATE`).
    pub fn register_set(self, note_type: u32) -> Result<Vec<u8>, Error> {
        // The largest known state is 11 KiB, with AMX tiles.
        let mut bytes = vec![0_u8; 64 << 10];
        let mut vector = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
        let kind = note_type as usize;
        self.request("GETREGSET", libc::PTRACE_GETREGSET, kind, &raw mut vector as usize)?;
        bytes.truncate(vector.iov_len);
        Ok(bytes)
    }

    /// Returns debug register `number`, from 0 to 7 (SDM volume 3, "Debug Registers"), as the
    /// kernel keeps it for the thread.
    pub fn debug_register(self, number: usize) -> Result<u64, Error> {
        Errno::clear();
        let offset = debug_register_offset(number);
        // SAFETY: PEEKUSER reads from the tracee's registers and writes nothing here.
        let value = unsafe { libc::ptrace(libc::PTRACE_PEEKUSER, self.0.0, offset, 0) };
        match Errno::last() {
            errno if value == -1 && errno != Errno::UnknownErrno => {
                Err(Error::Ptrace { request: "PEEKUSER", tid: self.0, errno })
            }
            _ => Ok(value.cast_unsigned()),
        }
    }

    /// Sets debug register `number`, from 0 to 7. The kernel may refuse the value.
    pub fn set_debug_register(self, number: usize, value: u64) -> Result<(), Error> {
        let offset = debug_register_offset(number);
        let value = usize::try_from(value).unwrap_or(0);
        self.request("POKEUSER", libc::PTRACE_POKEUSER, offset, value)
    }

    /// Sets a register set by its ELF note type.
    pub fn set_register_set(self, note_type: u32, bytes: &[u8]) -> Result<(), Error> {
        // The kernel only reads from this address.
        let base = bytes.as_ptr().cast_mut().cast();
        let vector = libc::iovec { iov_base: base, iov_len: bytes.len() };
        let kind = note_type as usize;
        self.request("SETREGSET", libc::PTRACE_SETREGSET, kind, &raw const vector as usize)
    }

    /// Returns the restartable sequences that the thread registered with the kernel (rseq(2)), if
    /// any. Fails where the kernel does not report them, before Linux 5.13.
    pub fn rseq(self) -> Result<Option<Rseq>, Error> {
        /// `PTRACE_GET_RSEQ_CONFIGURATION` (include/uapi/linux/ptrace.h).
        const GET_RSEQ_CONFIGURATION: libc::c_uint = 0x420f;
        let mut rseq = Rseq::default();
        let at = &raw mut rseq as usize;
        self.request("GET_RSEQ", GET_RSEQ_CONFIGURATION, size_of::<Rseq>(), at)?;
        Ok((rseq.addr != 0).then_some(rseq))
    }

    /// Returns the head of the list of the thread's robust futexes (`get_robust_list(2)`); `None`
    /// if it has none or the kernel does not return it.
    pub fn robust_list(self) -> Option<Addr> {
        let (mut head, mut size) = (0_u64, 0_usize);
        // SAFETY: the call writes these two numbers.
        let asked = unsafe {
            libc::syscall(libc::SYS_get_robust_list, self.0.0, &raw mut head, &raw mut size)
        };
        (asked == 0 && head != 0).then_some(Addr(head))
    }

    /// Sends SIGKILL to a process. Does not wait for its end, or reap it. Ignores failures, as for
    /// a process that is gone.
    pub fn kill_process(pid: Pid) {
        // SAFETY: kill(2) touches no memory. It is no error if the process is already gone.
        unsafe { libc::kill(pid.0, libc::SIGKILL) };
    }

    /// Makes ptrace request `number`; `request` is its name, for an error.
    fn request(
        self,
        request: &'static str,
        number: libc::c_uint,
        addr: usize,
        data: usize,
    ) -> Result<(), Error> {
        // SAFETY: the requests made in this file write at most to the memory that `data` or the
        // iovec at `data` points to. Each caller owns that memory, in the size of the kernel's
        // structure.
        let result = unsafe { libc::ptrace(number, self.0.0, addr, data) };
        Errno::result(result).map(drop).map_err(|errno| Error::Ptrace {
            request,
            tid: self.0,
            errno,
        })
    }
}

/// Job control stops that arrived while they could not be handled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeferredStops {
    /// True for a SIGSTOP that was not delivered.
    signal: bool,
    /// True for a group stop or a requested stop.
    group: bool,
}

impl DeferredStops {
    /// Notes `stop`, to be raised later, and returns true, if it is a group stop, a requested stop,
    /// or a SIGSTOP before its delivery, which the caller then does not deliver. Otherwise returns
    /// false: also for other job control signals, which can be blocked.
    pub fn defer(&mut self, stop: Stop) -> bool {
        match stop {
            Stop::Signal(libc::SIGSTOP) => self.signal = true,
            Stop::Group(_) | Stop::Event(PtraceEvent::Stop) => self.group = true,
            _ => return false,
        }
        true
    }
}

/// Returns a signal as the argument of a ptrace request; 0, for none, if it is negative.
fn signal_argument(signal: Signo) -> usize {
    usize::try_from(signal).unwrap_or(0)
}

/// Returns the offset of a debug register in `struct user`. Does not check the number.
fn debug_register_offset(number: usize) -> usize {
    std::mem::offset_of!(libc::user, u_debugreg) + number * size_of::<u64>()
}
