//! A call, before and after.

use super::area::Area;
use super::errno::{Outcome, is_unheard_of};
use super::memory::CallerMemory;
use super::resolve::{Knowledge, resolve};
use crate::common::AddrRange;

/// A system call as it enters the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// Its number in RAX.
    pub number: u64,
    /// RDI, RSI, RDX, R10, R8, R9.
    pub args: [u64; 6],
}

/// The memory that the kernel may have written in a call. The ranges may overlap, and may reach
/// over memory that is not mapped, where pointers or lengths of the program do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effects {
    /// These ranges and nothing else.
    Known(Vec<AddrRange>),
    /// These ranges, by the number of an `ioctl` request outside the table. Right if the number
    /// encodes the argument's size and direction, and the argument holds no pointers.
    Assumed(Vec<AddrRange>),
    /// Any memory.
    Unknown,
}

/// A call in the kernel, with the lengths and pointers that it began with.
///
/// A call that a signal interrupted and that goes on as `restart_syscall` is still this one: keep
/// its value, and call [`Self::end`] once more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenCall {
    areas: Vec<Area>,
    knowledge: Knowledge,
}

impl Call {
    /// Reads what the call's effects depend on, before the kernel executes it.
    pub fn begin(self, memory: &dyn CallerMemory) -> OpenCall {
        let (areas, knowledge) = resolve(&self, memory);
        OpenCall { areas, knowledge }
    }
}

impl OpenCall {
    /// Returns the most that the call can write, whatever its result.
    pub fn limit(&self) -> Effects {
        self.effects(self.areas.iter().filter_map(Area::limit).collect())
    }

    /// Returns the memory that the call wrote. `result` is RAX after it; `memory` is read for the lengths
    /// that the kernel returned.
    pub fn end(&self, result: i64, memory: &dyn CallerMemory) -> Effects {
        if self.knowledge != Knowledge::Known && is_unheard_of(result) {
            return Effects::Known(Vec::new());
        }
        let outcome = Outcome::of(result);
        let written = |area: &Area| area.written(outcome, memory);
        self.effects(self.areas.iter().filter_map(written).collect())
    }

    fn effects(&self, ranges: Vec<AddrRange>) -> Effects {
        match self.knowledge {
            Knowledge::Known => Effects::Known(ranges),
            Knowledge::Assumed => Effects::Assumed(ranges),
            Knowledge::Unknown => Effects::Unknown,
        }
    }
}
