//! Restartable sequences (rseq(2)). The kernel moves the IP of a thread that it preempts in one,
//! and must not look for it in the program's code while the thread is in the code cache.

use super::error::{Error, checked};
use super::process::TranslatedProcess;
use crate::insn::Registers;
use crate::tracee::call_numbers::RSEQ;
use crate::tracee::{Rseq, Tracee};

const RSEQ_UNREGISTER: u64 = 1;
/// Where `struct rseq` has the address of the `struct rseq_cs` at hand, and where that has the
/// start, the length and the address of its abort handler (include/uapi/linux/rseq.h).
const CS: u64 = 8;
const FIELDS: u64 = 8;

impl TranslatedProcess {
    /// Unregisters a thread's restartable sequences, and returns what was registered.
    pub fn forbid_rseq(&self, tracee: Tracee) -> Result<Option<Rseq>, Error> {
        // Kernels before 5.13 do not tell; theirs were not used by C libraries.
        let Some(rseq) = tracee.rseq().ok().flatten() else { return Ok(None) };
        self.abort_sequence(tracee, rseq)?;
        checked("rseq", self.call_rseq(tracee, rseq, RSEQ_UNREGISTER)?)?;
        Ok(Some(rseq))
    }

    /// Registers a thread's restartable sequences again. Ignores a refusal: the kernel would have
    /// refused the program's own call, too.
    pub fn allow_rseq(&self, tracee: Tracee, rseq: Rseq) -> Result<(), Error> {
        self.call_rseq(tracee, rseq, 0).map(drop)
    }

    fn call_rseq(&self, tracee: Tracee, rseq: Rseq, flags: u64) -> Result<i64, Error> {
        let args = [rseq.addr, rseq.size_bytes.into(), flags, rseq.signature.into(), 0, 0];
        Ok(tracee.inject(self.gadget(), RSEQ, args)?)
    }

    /// Moves a thread in the midst of a sequence to where the kernel moves those that it preempts.
    fn abort_sequence(&self, tracee: Tracee, rseq: Rseq) -> Result<(), Error> {
        let Some(cs) = self.word_at(rseq.addr.wrapping_add(CS)).filter(|&cs| cs != 0) else {
            return Ok(());
        };
        let word = |index: u64| self.word_at(cs.wrapping_add(index * FIELDS));
        let (Some(start), Some(size), Some(abort)) = (word(1), word(2), word(3)) else {
            return Ok(());
        };
        let registers = tracee.registers()?;
        if registers.rip.wrapping_sub(start) < size {
            tracee.set_registers(&Registers { rip: abort, ..registers })?;
        }
        Ok(())
    }
}
