//! Restartable sequences (rseq(2)). The kernel moves the IP of a thread that it preempts in a
//! sequence, and must not compare it with the program's addresses while the thread is in the code
//! cache.

use super::error::{Error, checked};
use super::process::TranslatedProcess;
use crate::insn::Registers;
use crate::tracee::call_numbers::RSEQ;
use crate::tracee::{Rseq, Tracee};

const RSEQ_UNREGISTER: u64 = 1;
/// Offset of the address of the current `struct rseq_cs` in `struct rseq`, and the size of the
/// fields of a `struct rseq_cs`: the second is the sequence's start, the third its length, the
/// fourth its abort handler (include/uapi/linux/rseq.h).
const CS: u64 = 8;
const FIELDS: u64 = 8;

impl TranslatedProcess {
    /// Unregisters the restartable sequences of a thread, which is stopped in the program, and
    /// returns the registration; `None` if there is none or the kernel does not report it. If the
    /// thread is in a sequence, moves it to the abort handler first.
    pub fn forbid_rseq(&self, tracee: Tracee) -> Result<Option<Rseq>, Error> {
        // Kernels before 5.13 do not report it, and their C libraries did not use it.
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

    /// Moves a thread that is in a restartable sequence to the sequence's abort handler, as the
    /// kernel does with those that it preempts. Does nothing if it is in none, or the sequence's
    /// description cannot be read.
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
