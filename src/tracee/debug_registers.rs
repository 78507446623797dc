//! Watches memory with the CPU's debug registers (SDM volume 3, "Debug Registers"). They report
//! accesses by any code. Each of four registers watches an aligned range of at most 8 bytes, so a
//! watch may need several.

use super::error::Error;
use super::ptrace::Tracee;
use crate::common::Addr;

/// The number of debug registers that hold an address: DR0 to DR3.
const SLOTS: usize = 4;
/// The number of DR6, in which the CPU reports hits.
const STATUS: usize = 6;
/// The number of DR7, which enables the registers.
const CONTROL: usize = 7;
/// The widest range that one register watches.
const WIDEST_BYTES: u64 = 8;

/// A range of memory whose accesses the CPU is to report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watch {
    /// The address of the first byte of the range.
    pub addr: Addr,
    /// The size of the range in bytes.
    pub size_bytes: u64,
    /// True if reads count, too; writes always do.
    pub reads: bool,
}

/// The range that one debug register watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// The address of the range, a multiple of its size.
    addr: u64,
    /// 1, 2, 4 or 8.
    size_bytes: u64,
    /// The watch that it is part of.
    watch: Watch,
}

/// Returns true if the debug registers can watch all of `watches` at once. Counts the registers
/// only: the kernel may still refuse an address.
pub fn can_watch(watches: &[Watch]) -> bool {
    slots(watches).len() <= SLOTS && watches.iter().all(|w| w.size_bytes <= WIDEST_BYTES * 4)
}

/// Divides watches into aligned ranges of 1, 2, 4 or 8 bytes, one for each debug register. If the
/// registers are not enough, returns one range more than there are registers, not all. A watch of 0
/// bytes has no range.
pub fn slots(watches: &[Watch]) -> Vec<Slot> {
    let mut slots = Vec::new();
    for watch in watches {
        let (mut addr, mut rest) = (watch.addr.0, watch.size_bytes);
        while rest > 0 && slots.len() <= SLOTS {
            let fits = |size: &u64| addr.is_multiple_of(*size) && *size <= rest;
            let size_bytes = [WIDEST_BYTES, 4, 2, 1].into_iter().find(fits).unwrap_or(1);
            slots.push(Slot { addr, size_bytes, watch: *watch });
            addr = addr.wrapping_add(size_bytes);
            rest -= size_bytes;
        }
    }
    slots
}

/// Returns the value of DR7 for these ranges, at most four: each register's enable bit, kind of
/// access and width.
fn control(slots: &[Slot]) -> u64 {
    let one = |(index, slot): (usize, &Slot)| {
        let access: u64 = if slot.watch.reads { 0b11 } else { 0b01 };
        let width: u64 = match slot.size_bytes {
            1 => 0b00,
            2 => 0b01,
            4 => 0b11,
            _ => 0b10,
        };
        1 << (2 * index) | (access | width << 2) << (16 + 4 * index)
    };
    slots.iter().enumerate().map(one).fold(0, |all, bits| all | bits)
}

/// The ranges that the debug registers of one thread watch. Each method takes that thread, which
/// must be stopped.
#[derive(Debug, Default)]
pub struct Watched(Vec<Slot>);

impl Watched {
    /// Watches these ranges (at most four) and no others. Does nothing if exactly these, in the
    /// same order, are watched already. Leaves earlier hits in DR6. If it fails, as for an address
    /// that the kernel refuses, the thread watches nothing.
    pub fn set(&mut self, tracee: Tracee, slots: &[Slot]) -> Result<(), Error> {
        if self.0 != slots {
            // If an address is refused, none is enabled.
            self.0.clear();
            write_slots(tracee, slots)?;
            self.0 = slots.to_vec();
        }
        Ok(())
    }

    /// Disables the debug registers, before the thread is detached from: the kernel does not do
    /// that. Does nothing if no range is watched. Does not forget the ranges, so [`Self::set`] must
    /// not follow.
    pub fn end(&self, tracee: Tracee) -> Result<(), Error> {
        if self.0.is_empty() { Ok(()) } else { clear(tracee) }
    }

    /// Forgets all ranges, without a change of the registers: the kernel has cleared them for a new
    /// program.
    pub fn forget(&mut self) {
        self.0.clear();
    }

    /// Returns the address of the watch that was hit since the last call; of several, that with the
    /// lowest debug register. `None` if none was. Clears all hits, as [`Self::take_hits`] does.
    pub fn take_hit(&self, tracee: Tracee) -> Result<Option<Addr>, Error> {
        Ok(self.take_hits(tracee)?.first().map(|hit| hit.addr))
    }

    /// Returns the watches that were hit since the last call, by debug register, and clears the
    /// hits and all else in the thread's DR6. A watch of several registers can be there more than
    /// once. Without hits, leaves DR6 as it is.
    pub fn take_hits(&self, tracee: Tracee) -> Result<Vec<Watch>, Error> {
        if self.0.is_empty() {
            return Ok(Vec::new());
        }
        let status = tracee.debug_register(STATUS)?;
        let hits = self.0.iter().enumerate().filter(|(index, _)| status >> index & 1 != 0);
        let hits: Vec<Watch> = hits.map(|(_, slot)| slot.watch).collect();
        if !hits.is_empty() {
            tracee.set_debug_register(STATUS, 0)?;
        }
        Ok(hits)
    }
}

/// The hits of a thread, as the CPU reports them (DR6).
#[derive(Clone, Copy, Debug)]
pub struct HitStatus(u64);

impl HitStatus {
    /// Reads the hits since [`Watched::take_hits`] last cleared them, and leaves them.
    pub fn read(tracee: Tracee) -> Result<Self, Error> {
        tracee.debug_register(STATUS).map(Self)
    }

    /// Writes the hits back, after steps of the thread: each step replaces them (`exc_debug_user`
    /// in the kernel).
    pub fn restore(self, tracee: Tracee) -> Result<(), Error> {
        tracee.set_debug_register(STATUS, self.0)
    }
}

/// Disables all debug registers of a stopped thread. Leaves DR6, and a [`Watched`] of the thread,
/// as they are.
pub fn clear(tracee: Tracee) -> Result<(), Error> {
    write_slots(tracee, &[])
}

/// Makes a stopped thread's debug registers watch `slots` and nothing else.
fn write_slots(tracee: Tracee, slots: &[Slot]) -> Result<(), Error> {
    tracee.set_debug_register(CONTROL, 0)?;
    for (index, slot) in slots.iter().take(SLOTS).enumerate() {
        tracee.set_debug_register(index, slot.addr)?;
    }
    tracee.set_debug_register(CONTROL, control(slots))
}

#[cfg(test)]
mod tests {
    use super::super::{kill_and_reap, start_empty};
    use super::*;
    use crate::common::Tid;

    fn watch(addr: u64, size_bytes: u64) -> Watch {
        Watch { addr: Addr(addr), size_bytes, reads: false }
    }

    #[test]
    fn slots_are_aligned() {
        let sizes = |addr, size| -> Vec<u64> {
            slots(&[watch(addr, size)]).iter().map(|slot| slot.size_bytes).collect()
        };
        assert_eq!(sizes(0x1000, 8), [8]);
        assert_eq!(sizes(0x1004, 8), [4, 4]);
        assert_eq!(sizes(0x1001, 8), [1, 2, 4, 1]);
        assert!(
            can_watch(&[watch(0x1001, 8)]) && !can_watch(&[watch(0x1001, 8), watch(0x2000, 1)])
        );
        assert!(!can_watch(&[watch(0, u64::MAX)]));
    }

    #[test]
    fn watches_return_after_a_refused_address() {
        let (pid, _) = start_empty(&[]).unwrap();
        let tracee = Tracee(Tid(pid.0));
        let mut watched = Watched::default();
        let (possible, refused) = (slots(&[watch(0x1000, 8)]), slots(&[watch(u64::MAX - 7, 8)]));
        watched.set(tracee, &possible).unwrap();
        assert!(watched.set(tracee, &refused).is_err());
        watched.set(tracee, &possible).unwrap();
        let enabled = tracee.debug_register(CONTROL).unwrap() & 1;
        kill_and_reap(pid);
        assert_eq!(enabled, 1);
    }

    #[test]
    fn the_control_register_of_the_manual() {
        // SDM volume 3, "Debug Control Register (DR7)": L0, R/W0 01, LEN0 11; L1, R/W1 11, LEN1 10.
        let slots = slots(&[watch(0x1000, 4), Watch { reads: true, ..watch(0x2000, 8) }]);
        assert_eq!(control(&slots), 0b1011_1101 << 16 | 0b101);
    }
}
