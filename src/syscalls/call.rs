//! A system call, before and after the kernel executes it.

use super::area::Area;
use super::errno::{Outcome, is_unsupported};
use super::memory::CallerMemory;
use super::resolve::{Knowledge, resolve};
use super::table::argument_count;
use crate::common::{Addr, AddrRange};

const FUTEX: u64 = 202;
/// The mask of the operation, without its flags (include/uapi/linux/futex.h, `FUTEX_CMD_MASK`).
const FUTEX_OPERATION: u64 = 0x7f;
const LOCK_PI: u64 = 6;
const LOCK_PI2: u64 = 13;
/// The bit that is set in the word of a lock for which threads wait in the kernel.
pub const FUTEX_WAITERS: u32 = 0x8000_0000;

/// A system call as it enters the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// The system call's number, in RAX.
    pub number: u64,
    /// The arguments: RDI, RSI, RDX, R10, R8, R9.
    pub args: [u64; 6],
}

/// The memory that the kernel may have written in a call. The ranges may overlap. They can contain
/// memory that is not mapped, if the program passed such pointers or lengths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effects {
    /// These ranges and nothing else.
    Known(Vec<AddrRange>),
    /// These ranges, derived from the number of an `ioctl` request that is not in the table. They
    /// are right if the number encodes the argument's size and direction, and the argument holds no
    /// pointers.
    Assumed(Vec<AddrRange>),
    /// Any memory.
    Unknown,
}

/// A call in the kernel, with the lengths and pointers that it began with.
///
/// If a signal interrupts the call and it continues as `restart_syscall`, it is still this call:
/// keep this value, and call [`Self::end`] once more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenCall {
    areas: Vec<Area>,
    knowledge: Knowledge,
}

impl Call {
    /// Returns the arguments that the call takes; all six if the table does not know the call. The
    /// registers of further arguments have arbitrary values.
    pub fn arguments(&self) -> &[u64] {
        let count = argument_count(self.number);
        count.and_then(|count| self.args.get(..count)).unwrap_or(&self.args)
    }

    /// Reads the lengths and pointers on which the call's effects depend. To be called before the
    /// kernel executes the call, which may overwrite them.
    pub fn begin(self, memory: &dyn CallerMemory) -> OpenCall {
        let (areas, knowledge) = resolve(&self, memory);
        OpenCall { areas, knowledge }
    }

    /// Returns the address of the priority-inheriting lock for which the call may wait
    /// (`FUTEX_LOCK_PI`, `FUTEX_LOCK_PI2`); `None` for other calls. If it must wait, the kernel
    /// first sets [`FUTEX_WAITERS`] there, which the lock's owner acts on (kernel/futex/pi.c,
    /// `futex_lock_pi_atomic`).
    pub fn pi_lock(&self) -> Option<Addr> {
        let operation = self.args[1] & FUTEX_OPERATION;
        let locks = self.number == FUTEX && matches!(operation, LOCK_PI | LOCK_PI2);
        locks.then_some(Addr(self.args[0]))
    }
}

impl OpenCall {
    /// Returns all memory that the call can write, whatever its result. For use before the kernel
    /// executes the call.
    pub fn limit(&self) -> Effects {
        self.effects(self.areas.iter().filter_map(Area::limit).collect())
    }

    /// Returns the memory that the call may have written, by its `result` (RAX after it). Reads the
    /// lengths that the kernel returned from `memory`.
    pub fn end(&self, result: i64, memory: &dyn CallerMemory) -> Effects {
        if self.knowledge != Knowledge::Known && is_unsupported(result) {
            // The kernel does not know the call or request, so it wrote nothing.
            return Effects::Known(Vec::new());
        }
        let outcome = Outcome::of_result(result);
        let written = |area: &Area| area.written(outcome, memory);
        self.effects(self.areas.iter().filter_map(written).collect())
    }

    /// Returns effects with these ranges, as certain as the model is of the call.
    fn effects(&self, ranges: Vec<AddrRange>) -> Effects {
        match self.knowledge {
            Knowledge::Known => Effects::Known(ranges),
            Knowledge::Assumed => Effects::Assumed(ranges),
            Knowledge::Unknown => Effects::Unknown,
        }
    }
}
