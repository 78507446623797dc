//! Takes over a process that runs already.

use super::engine::Engine;
use super::exact::Registers;
use super::left::{FORBIDS_TIME, PR_TSC_SIGSEGV};
use super::process::Process;
use super::thread::{Place, Thread};
use crate::capture::Error;
use crate::capture::recorder::Prepared;
use crate::capture::restart::stand_before_call;
use crate::common::{Addr, Tid};
use crate::engine::checked;
use crate::tracee::call_numbers::{PRCTL, RSEQ};
use crate::tracee::{self, Rseq, Tracee, USER_CS_64};
use crate::translate::slots;

const RSEQ_UNREGISTER: u64 = 1;

impl Engine {
    /// Begins to record a process whose threads all stand still.
    pub(super) fn take_over(&mut self, prepared: Prepared, tids: &[Tid]) -> Result<(), Error> {
        let pid = self.program;
        let refused = tids.iter().try_for_each(|&tid| leave_call(Tracee(tid), pid));
        let Some(&first) = tids.first().filter(|_| refused.is_ok()) else {
            prepared.give_up();
            return refused;
        };
        prepared.set_latest(&self.request.store)?;
        let mut process = Process::start(prepared, &self.request, pid, Tracee(first), None)?;
        let mut sequences = Vec::new();
        for &tid in tids {
            sequences.push(process.forbid_rseq(Tracee(tid))?);
            process.prepare_area(Tracee(first))?;
        }
        for _ in tids {
            process.window.keep_promise();
        }
        process.read_actions(Tracee(first))?;
        process.was_running = true;
        self.processes.insert(pid, process);
        for (&tid, rseq) in tids.iter().zip(sequences) {
            self.add_thread(tid, pid, Place::Program)?;
            self.with(tid, |process, thread| {
                thread.rseq = rseq;
                process.must_read_time(thread)?;
                process.enter(thread)
            })?;
        }
        // None of them runs before all are in the cache: one could change what another stands in.
        tids.iter().try_for_each(|&tid| self.with(tid, |_, thread| Ok(thread.tracee.resume(0)?)))
    }
}

impl Process {
    /// The code cache reads the time-stamp counter, which a thread may have forbidden itself.
    fn must_read_time(&self, thread: &Thread) -> Result<(), Error> {
        const PR_GET_TSC: u64 = 25;
        let at = thread.area.base + u64::from(slots::RESPONSE);
        let asked = thread.tracee.inject(self.gadget(), PRCTL, [PR_GET_TSC, at, 0, 0, 0, 0])?;
        let mode = self.window.shared.load(thread.area.slot(slots::RESPONSE));
        if asked == 0 && mode & u64::from(u32::MAX) == PR_TSC_SIGSEGV {
            let why = format!("thread {} of it {FORBIDS_TIME}", thread.tid());
            return Err(tracee::Error::NotAttachable { pid: thread.pid, why }.into());
        }
        Ok(())
    }

    /// The kernel moves the IP of a thread that it preempts in a restartable sequence, and must
    /// not look for it in the program's code. Gives what the thread had registered.
    fn forbid_rseq(&self, tracee: Tracee) -> Result<Option<Rseq>, Error> {
        // Kernels before 5.13 do not tell; theirs were not used by C libraries.
        let Some(rseq) = tracee.rseq().ok().flatten() else { return Ok(None) };
        self.abort_sequence(tracee, rseq)?;
        checked("rseq", self.call_rseq(tracee, rseq, RSEQ_UNREGISTER)?)?;
        Ok(Some(rseq))
    }

    /// The thread may use what it registered again. What the kernel does not take, it would not
    /// have taken from the program.
    pub(super) fn allow_rseq(&self, thread: &Thread) -> Result<(), Error> {
        thread.rseq.map_or(Ok(()), |rseq| self.call_rseq(thread.tracee, rseq, 0).map(drop))
    }

    fn call_rseq(&self, tracee: Tracee, rseq: Rseq, flags: u64) -> Result<i64, Error> {
        let args = [rseq.addr, rseq.size_bytes.into(), flags, rseq.signature.into(), 0, 0];
        Ok(tracee.inject(self.gadget(), RSEQ, args)?)
    }

    /// A thread in the midst of a sequence goes where the kernel sends those that it preempts.
    fn abort_sequence(&self, tracee: Tracee, rseq: Rseq) -> Result<(), Error> {
        /// Where `struct rseq` has the address of the `struct rseq_cs` at hand, and where that has
        /// the start, the length and the address of its abort handler (include/uapi/linux/rseq.h).
        const CS: u64 = 8;
        const FIELDS: u64 = 8;
        let word = |at: u64| {
            let mut bytes = [0; 8];
            (self.memory.read(Addr(at), &mut bytes) == 8).then(|| u64::from_le_bytes(bytes))
        };
        let Some(cs) = word(rseq.addr + CS).filter(|&cs| cs != 0) else { return Ok(()) };
        let fields = (word(cs + FIELDS), word(cs + 2 * FIELDS), word(cs + 3 * FIELDS));
        let (Some(start), Some(size), Some(abort)) = fields else { return Ok(()) };
        let registers = tracee.registers()?;
        if registers.rip.wrapping_sub(start) < size {
            tracee.set_registers(&Registers { rip: abort, ..registers })?;
        }
        Ok(())
    }
}

fn leave_call(tracee: Tracee, pid: crate::common::Pid) -> Result<(), Error> {
    let registers = tracee.registers()?;
    if registers.cs != USER_CS_64 {
        let why = "it runs 32-bit code".to_owned();
        return Err(tracee::Error::NotAttachable { pid, why }.into());
    }
    Ok(tracee.set_registers(&stand_before_call(&registers))?)
}
