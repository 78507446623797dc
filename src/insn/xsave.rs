//! The parts of XSAVE areas that all formats have (SDM volume 1, "XSAVE-Managed State").

use std::ops::Range;

/// The x87 state. This and the next constants are state components: bits of XCR0 and of the header.
pub const X87: u64 = 1;
/// XMM0 to XMM15, and MXCSR.
pub const SSE: u64 = 1 << 1;
/// The upper halves of YMM0 to YMM15.
pub const AVX: u64 = 1 << 2;
/// K0 to K7.
pub const MASKS: u64 = 1 << 5;
/// The upper halves of ZMM0 to ZMM15.
pub const ZMM_HI256: u64 = 1 << 6;
/// ZMM16 to ZMM31.
pub const HI16_ZMM: u64 = 1 << 7;

/// Offset of XMM0 in the area.
pub const XMM: usize = 160;
/// Offset of the enabled state components, which the kernel writes into the bytes of the FXSAVE
/// area that are reserved for software (`arch/x86/kernel/fpu` in the kernel).
pub const XCR0: usize = 464;
/// Offset of the header's first word: the components that are not in their initial state.
pub const XSTATE_BV: usize = 512;
/// Offset of the first component after the header.
pub const EXTENDED: usize = 576;

/// The offsets in an FXSAVE or XSAVE area of the address of the last x87 instruction (FIP).
pub const LAST_X87: Range<usize> = 8..16;
/// The address of the last x87 instruction if it is not known. No instruction is there.
const UNKNOWN: [u8; 8] = [0xff; 8];
/// The end of an unknown address, which no program has (SDM volume 1, "Canonical Addressing").
const UNKNOWN_END: [u8; 2] = [0xff; 2];

/// Overwrites the address of the last x87 instruction in an FXSAVE or XSAVE area by all ones, which
/// means unknown: in a thread that runs translated, it is an address in the code cache. Leaves 0,
/// which means that there is none (always on processors of AMD, except after an exception), and an
/// address that a debugger set ([`keep_last_x87`]). Leaves the address of the instruction's operand
/// (FDP), too. Does nothing to an area that is too short.
pub fn forget_last_x87(area: &mut [u8]) {
    let Some(address) = area.get_mut(LAST_X87) else { return };
    let is_kept = *address == [0; 8] || address.ends_with(&UNKNOWN_END);
    if !is_kept {
        address.copy_from_slice(&UNKNOWN);
    }
}

/// Marks the address of the last x87 instruction as set by a debugger, so that [`forget_last_x87`]
/// leaves it: overwrites its two highest bytes by those of an unknown address. Does nothing to an
/// area that is too short.
pub fn keep_last_x87(area: &mut [u8]) {
    if let Some(end) = area.get_mut(LAST_X87.end - UNKNOWN_END.len()..LAST_X87.end) {
        end.copy_from_slice(&UNKNOWN_END);
    }
}

/// Returns true if the byte at offset `at` of an area is unknown: it is part of the address of the
/// last x87 instruction (FIP, [`LAST_X87`]; not that of its operand), which [`forget_last_x87`] has
/// overwritten. False for any other byte, and if the area is too short.
pub fn is_forgotten(area: &[u8], at: usize) -> bool {
    LAST_X87.contains(&at) && area.get(LAST_X87).is_some_and(|address| *address == UNKNOWN)
}
