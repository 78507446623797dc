//! A model of a PMU: it steps the program, passes each step to the model of the PT unit, and writes
//! the packets into an AUX area, as the kernel would. It supports plain programs: steps, system
//! calls, signal handlers, threads.

use super::super::pmu::{AuxArea, Control, Pmu, TraceSource};
use super::kernel::{Kernel, attr};
use crate::capture;
use crate::capture::PerfError as Error;
use crate::capture::clock::now;
use crate::capture::restart::will_restart_call;
use crate::common::{Addr, Tid};
use crate::encode::{Path, Ranges};
use crate::insn::{ExecMode, Insn, MAX_INSN_BYTES, decode};
use crate::recording::Hardware;
use crate::sideband::perf_data::PerfRecords;
use crate::tracee::siginfo::code_of;
use crate::tracee::{self, Memory, PtraceEvent, Signo, Stop, Tracee, wait_for};
use std::collections::BTreeMap;
use std::fs::File;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The number of steps from one scheduling of a thread to the next.
const SLICE_STEPS: u32 = 500;
/// The `si_code` when a stepped thread enters a signal handler.
const HANDLER_ENTERED: i32 = libc::SIGTRAP;
const TRAP_BRKPT: i32 = 1;
/// The size of the SYSCALL instruction.
const SYSCALL_BYTES: u64 = 2;
const TRAP_TRACE: i32 = 2;

/// The kernel's side of a thread's event, as both the PMU and the reader's requests see it.
#[derive(Debug)]
struct Shared {
    kernel: Mutex<Kernel>,
    /// True if the reader is to wait until bytes are lost.
    is_late: bool,
    is_off: AtomicBool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Kernel> {
        self.kernel.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Control for Shared {
    fn enable(&self) {
        self.lock().enable();
    }

    fn disable(&self) {
        self.is_off.store(true, Ordering::Release);
    }

    fn set_filter(&self, _: &str) -> Result<(), Error> {
        unreachable!("it has no ranges")
    }

    fn wait(&self, _: i32) {
        let dropped = self.lock().dropped;
        loop {
            std::thread::sleep(std::time::Duration::from_millis(1));
            let is_late = self.is_late && self.lock().dropped == dropped;
            if !is_late || self.is_off.load(Ordering::Acquire) {
                return;
            }
        }
    }
}

/// A thread that the model traces by single-stepping it.
#[derive(Debug)]
struct Stepped {
    kernel: Arc<Shared>,
    path: Path,
    ip: Addr,
    insn: Option<Insn>,
    steps: u32,
    /// True if the thread may still be in a system call that its path does not contain.
    is_fresh: bool,
    /// True if the debugger requested the current step.
    is_reported: bool,
    /// True if the thread is stopped at the start of a system call.
    in_call: bool,
}

/// A model of a PMU, which traces threads by single-stepping them.
#[derive(Debug)]
pub(super) struct ModelPmu {
    threads: BTreeMap<Tid, Stepped>,
    /// The size of each AUX area, whatever size is requested.
    size_bytes: u64,
    /// The directory of the logs of threads' instructions.
    log: PathBuf,
    /// True if the model waits for the reader, so that nothing is lost. If false, the reader waits
    /// until something is.
    pub(super) is_patient: bool,
    /// True if threads run natively, and nothing is traced.
    pub(super) is_blind: bool,
    /// The number of bytes lost, over all threads.
    pub(super) dropped: u64,
}

impl ModelPmu {
    pub(super) fn new(size_bytes: u64, log: PathBuf) -> Self {
        Self {
            threads: BTreeMap::new(),
            size_bytes,
            log,
            is_patient: true,
            is_blind: false,
            dropped: 0,
        }
    }
}

impl Pmu for ModelPmu {
    fn hardware(&self) -> (Hardware, u32) {
        (Hardware::default(), 2048)
    }

    fn filter_ranges(&self) -> usize {
        0
    }

    fn open(&mut self, tid: Tid, area: AuxArea) -> Result<TraceSource, Error> {
        let mut kernel = Kernel::new(1 << 14, self.size_bytes, area.overwrites);
        kernel.enable();
        let (data, aux) = (kernel.data.plain(false), kernel.aux.plain(area.overwrites));
        let (is_late, is_off) = (!self.is_patient, AtomicBool::new(false));
        let kernel = Arc::new(Shared { kernel: Mutex::new(kernel), is_late, is_off });
        let log = File::create(self.log.join(format!("{tid}.log"))).unwrap();
        let path = Path::new(2048, &Ranges::default(), now, Some(log));
        let ip = Tracee(tid).instruction_pointer().unwrap();
        let (steps, is_fresh) = (0, true);
        let stepped = Stepped {
            kernel: kernel.clone(),
            path,
            ip,
            insn: None,
            steps,
            is_fresh,
            is_reported: false,
            in_call: false,
        };
        self.threads.insert(tid, stepped);
        Ok(TraceSource {
            data: Box::new(data),
            aux: Box::new(aux),
            records: PerfRecords::of(&attr()),
            control: kernel,
            // The model ignores the size that is used.
            area,
        })
    }

    fn resume(
        &mut self,
        tracee: Tracee,
        signal: Signo,
        to_call: bool,
    ) -> Result<(), tracee::Error> {
        match self.threads.get_mut(&tracee.0) {
            Some(thread) if !self.is_blind => {
                thread.is_reported = false;
                thread.go_on(tracee, signal, to_call)
            }
            _ => tracee.resume(signal),
        }
    }

    fn step(&mut self, tracee: Tracee, signal: Signo) -> Result<(), tracee::Error> {
        if let Some(thread) = self.threads.get_mut(&tracee.0) {
            thread.is_reported = true;
            return thread.go_on(tracee, signal, false);
        }
        tracee.step(signal)
    }

    fn is_internal_stop(&mut self, tid: Tid, stop: Stop) -> Result<bool, capture::Error> {
        let is_seen = |_: &&mut Stepped| !self.is_blind;
        let Some(thread) = self.threads.get_mut(&tid).filter(is_seen) else { return Ok(false) };
        let is_step = stop == Stop::Signal(libc::SIGTRAP) && {
            let code = Tracee(tid).signal_info().map(|info| code_of(&info));
            matches!(code, Ok(TRAP_BRKPT | TRAP_TRACE | HANDLER_ENTERED))
        };
        if is_step {
            let info = Tracee(tid).signal_info()?;
            let is_trap = std::mem::take(&mut thread.is_reported) || is_watched(Tracee(tid));
            thread.stepped(Tracee(tid), code_of(&info) == HANDLER_ENTERED)?;
            if is_trap {
                // In the packets, this is a fault of the next instruction.
                thread.path.interrupt(thread.ip);
            }
            self.dropped += thread.output(self.is_patient, is_trap);
            return Ok(!is_trap);
        }
        let pid = tracee::process_of(tid).unwrap_or(crate::common::Pid(tid.0));
        if matches!(stop, Stop::Event(PtraceEvent::Stop)) && Tracee(tid).has_pending_trap(pid) {
            if thread.is_reported || thread.insn.is_some_and(|insn| thread.is_int3(&insn)) {
                // This trap is the debugger's, and is reported when the thread resumes.
                return Ok(false);
            }
            // The thread's single step is done.
            thread.is_reported = false;
            Tracee(tid).resume(0)?;
            if wait_for(tid)? == Stop::Signal(libc::SIGTRAP) {
                let code = code_of(&Tracee(tid).signal_info()?);
                thread.stepped(Tracee(tid), code == HANDLER_ENTERED)?;
            }
        }
        // The thread is stopped in the kernel, and is scheduled out.
        thread.in_call = stop == Stop::Call && !thread.in_call;
        if stop == Stop::Signal(libc::SIGTRAP)
            && thread.insn.is_some_and(|insn| thread.is_int3(&insn))
        {
            // The INT3 is a far transfer, without a FUP.
            thread.path.enter_user(thread.ip);
            if let Some(insn) = thread.insn.take() {
                thread.path.far_branch(insn.ip, insn.next());
            }
        }
        thread.leave(Tracee(tid));
        // The system call is over at its second stop.
        thread.is_fresh &= stop != Stop::Call || thread.in_call;
        self.dropped += thread.output(self.is_patient, true);
        if matches!(stop, Stop::Exited(_) | Stop::Killed { .. }) {
            self.threads.remove(&tid);
        }
        Ok(false)
    }
}

impl Stepped {
    /// Resumes the thread: to the next system call if requested, or by a step.
    fn go_on(&mut self, tracee: Tracee, signal: Signo, to_call: bool) -> Result<(), tracee::Error> {
        if to_call && self.in_call {
            return tracee.resume_to_call(signal);
        }
        self.look(tracee)?;
        let is_call = self.insn.is_some_and(|insn| insn.class.is_far() && !self.is_int3(&insn));
        if to_call && is_call && signal == 0 && !self.is_fresh {
            return tracee.resume_to_call(0);
        }
        self.in_call = false;
        self.step(tracee, signal)
    }

    fn is_int3(&self, insn: &Insn) -> bool {
        insn.class.is_far() && insn.next().0 - insn.ip.0 == 1 && insn.ip == self.ip
    }

    fn look(&mut self, tracee: Tracee) -> Result<(), tracee::Error> {
        // While the thread was stopped, its IP or its code may have changed.
        if self.path.is_out() {
            self.insn = None;
        }
        if self.insn.is_none() {
            let registers = tracee.registers()?;
            let back = if will_restart_call(&registers) { SYSCALL_BYTES } else { 0 };
            self.ip = Addr(registers.rip - back);
            let mut bytes = [0; MAX_INSN_BYTES];
            let pid = crate::common::Pid(tracee.0.0);
            let known = Memory::open(pid).map_or(0, |memory| memory.read(self.ip, &mut bytes));
            self.insn = decode(&bytes[..known], self.ip, ExecMode::Bits64);
        }
        Ok(())
    }

    /// Steps the thread by one instruction.
    fn step(&mut self, tracee: Tracee, signal: Signo) -> Result<(), tracee::Error> {
        if signal != 0 {
            // A handler, or the thread's end, precedes the instruction.
            self.path.interrupt(self.ip);
            self.insn = None;
        }
        tracee.step(signal)
    }

    /// Handles the end of a step, or the entry into a handler.
    fn stepped(&mut self, tracee: Tracee, is_handler: bool) -> Result<(), tracee::Error> {
        let next = tracee.instruction_pointer()?;
        match self.insn.take() {
            _ if is_handler => self.path.interrupt(self.ip),
            // A single step of a REP instruction executes one repetition.
            Some(insn) if insn.rep && next == insn.ip => {
                self.path.enter_user(insn.ip);
                self.insn = Some(insn);
            }
            Some(_) if self.is_fresh && next == self.ip => {}
            Some(insn) => self.path.retire(&insn, next),
            None => {}
        }
        self.is_fresh = false;
        self.ip = next;
        self.steps += 1;
        Ok(())
    }

    /// Ends the traced execution: the thread is stopped by a system call or an interrupt.
    fn leave(&mut self, tracee: Tracee) {
        let is_in_call = tracee.registers().is_ok_and(|r| r.orig_rax.cast_signed() >= 0);
        match self.insn.take().filter(|insn| insn.class.is_far() && is_in_call) {
            Some(insn) => self.path.retire(&insn, insn.next()),
            None => self.path.interrupt(self.ip),
        }
        // The system call that the thread is stopped in is already in the path.
        self.is_fresh |= is_in_call;
    }

    /// Writes the pending packets to the AUX area. Returns the number of bytes lost.
    fn output(&mut self, is_patient: bool, is_out: bool) -> u64 {
        let ends = is_out || self.steps >= SLICE_STEPS;
        if ends {
            self.steps = 0;
            self.path.flush();
        }
        let bytes = self.path.drain();
        let mut kernel = self.kernel.lock();
        let before = kernel.dropped;
        kernel.begin();
        if is_patient {
            // The reader runs in another thread: wait until half of the area is free.
            let place = bytes.len() as u64 + kernel.size_bytes() / 2;
            while !kernel.overwrites() && kernel.space_left() < place {
                kernel.end();
                drop(kernel);
                std::thread::yield_now();
                kernel = self.kernel.lock();
                kernel.begin();
            }
        }
        kernel.trace(&bytes);
        if ends {
            kernel.end();
        }
        kernel.dropped - before
    }
}

/// Returns true if a debug register reports an access (SDM volume 3, "Debug Status Register
/// (DR6)").
fn is_watched(tracee: Tracee) -> bool {
    tracee.debug_register(6).is_ok_and(|status| status & 0xf != 0)
}
