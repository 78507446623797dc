//! The tiles of AMX in a thread's extended state. The kernel has no room for them before the thread
//! uses them (Documentation/arch/x86/xstate.rst), and a copy of a process begins without.

use super::error::Error;
use super::ptrace::Tracee;
use super::stop::Stop;
use super::wait::wait_for;
use crate::common::Addr;
use crate::insn::Registers;

const NT_X86_XSTATE: u32 = 0x202;
/// The offset of `XSTATE_BV`: one bit for each component that is not in its initial configuration
/// (SDM volume 1, "XSAVE Header").
const XSTATE_BV: usize = 512;
const XFEATURE_XTILEDATA: u64 = 18;
/// Offset in `TILES_CODE` of the configuration that its LDTILECFG, of 9 bytes, loads from
/// `[rip + 39]`.
const CONFIGURATION: usize = 9 + 39;
/// Code that uses the tiles and releases them, in the page of an empty process: LDTILECFG
/// `[rip + 39]`; TILEZERO TMM0; TILERELEASE; INT3. Its configuration has one tile: palette 1, 64
/// bytes a row, 16 rows (at bytes 0, 16 and 48: SDM volume 2, "LDTILECFG").
pub(super) const TILES_CODE: [u8; 112] = {
    let mut bytes = [0; 112];
    let code = [
        0xc4, 0xe2, 0x78, 0x49, 0x05, 39, 0, 0, 0, 0xc4, 0xe2, 0x7b, 0x49, 0xc0, 0xc4, 0xe2, 0x78,
        0x49, 0xc0, 0xcc,
    ];
    let mut at = 0;
    while at < code.len() {
        bytes[at] = code[at];
        at += 1;
    }
    bytes[CONFIGURATION] = 1;
    bytes[CONFIGURATION + 16] = 64;
    bytes[CONFIGURATION + 48] = 16;
    bytes
};
/// The offset of this code in the page.
pub(super) const TILES_OFFSET: u64 = 16;

impl Tracee {
    /// Sets the extended state, in the layout of XSAVE, of the only thread of a process that began
    /// empty; it must be stopped. `page` is the one that [`super::start_empty`] returned. If the
    /// state has tiles and the kernel has no room for them yet, first makes the thread execute the
    /// page's code that uses tiles. Fails if the kernel still refuses the state.
    pub fn set_extended_state(self, page: Addr, area: &[u8]) -> Result<(), Error> {
        let set = self.set_register_set(NT_X86_XSTATE, area);
        if set.is_ok() || !has_tiles(area) {
            return set;
        }
        self.use_tiles(page)?;
        self.set_register_set(NT_X86_XSTATE, area)
    }

    /// Copies a thread's tiles, if it uses them, to `to`, the only thread of a copy of its process.
    /// `page` is that of [`super::start_empty`] in the copy: `to` may be made to execute code
    /// there, as [`Self::set_extended_state`] says. Does nothing if this thread's extended state
    /// cannot be read.
    pub(super) fn copy_tiles(self, to: Self, page: Addr) -> Result<(), Error> {
        match self.register_set(NT_X86_XSTATE) {
            Ok(area) if has_tiles(&area) => to.set_extended_state(page, &area),
            _ => Ok(()),
        }
    }

    /// Makes the thread execute the `TILES_CODE` in `page`, so that the kernel makes room for the
    /// tiles, and restores the registers. Drops the signal that ends this: the SIGTRAP of the
    /// code's INT3, or the SIGILL of a process that may not use tiles. Fails if the thread stops
    /// for anything but a signal; the registers are then those of the code.
    fn use_tiles(self, page: Addr) -> Result<(), Error> {
        let before = Registers { orig_rax: u64::MAX, ..self.registers()? };
        self.set_registers(&Registers { rip: page.0 + TILES_OFFSET, ..before })?;
        self.resume(0)?;
        match wait_for(self.0)? {
            Stop::Signal(_) => self.set_registers(&before),
            stop => Err(Error::Disturbed { tid: self.0, stop }),
        }
    }
}

/// Returns true if an XSAVE area has tiles that are not in their initial state, whatever their
/// configuration; false if it is too short for a header.
fn has_tiles(area: &[u8]) -> bool {
    let in_use = area.get(XSTATE_BV..).and_then(<[u8]>::first_chunk).copied();
    in_use.map_or(0, u64::from_le_bytes) >> XFEATURE_XTILEDATA & 1 != 0
}

#[cfg(test)]
mod tests {
    use super::super::call_numbers::ARCH_PRCTL;
    use super::super::{kill_and_reap, start_empty};
    use super::*;
    use crate::common::Tid;

    const ARCH_REQ_XCOMP_PERM: u64 = 0x1023;
    const TILES: u64 = 3 << 17;

    #[test]
    fn a_copy_has_the_tiles() {
        let (pid, page) = start_empty(&[]).unwrap();
        let tracee = Tracee(Tid(pid.0));
        let prctl = |args| tracee.inject(page, ARCH_PRCTL, args).unwrap();
        let asked = prctl([ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA, 0, 0, 0, 0]);
        if asked != 0 {
            println!("SKIPPED: this CPU has no AMX");
            kill_and_reap(pid);
            return;
        }
        let before = tracee.registers().unwrap();
        let mut area = tracee.register_set(NT_X86_XSTATE).unwrap();
        assert!(!has_tiles(&area));
        let in_use = u64::from_le_bytes(*area[XSTATE_BV..].first_chunk().unwrap()) | TILES;
        area[XSTATE_BV..XSTATE_BV + 8].copy_from_slice(&in_use.to_le_bytes());
        // The tiles are at the end, 8 of 1 KiB, and their configuration before them. Without one,
        // they are in their initial state.
        let tiles = area.len() - 8192;
        area[tiles - 64..tiles].copy_from_slice(&TILES_CODE[CONFIGURATION..]);
        area[tiles..tiles + 1024].fill(7);
        tracee.set_extended_state(page, &area).unwrap();
        assert!(tracee.register_set(NT_X86_XSTATE).unwrap() == area);
        let copy = tracee.copy_process(page).unwrap();
        for pid in [pid, copy] {
            let own = Tracee(Tid(pid.0));
            let state = own.register_set(NT_X86_XSTATE).unwrap();
            let differs = (0..area.len()).find(|at| state[*at] != area[*at]);
            assert_eq!(differs, None, "process {pid}");
            assert_eq!(own.registers().unwrap(), before);
            kill_and_reap(pid);
        }
    }
}
