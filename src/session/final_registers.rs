//! From a core's register sets to the session's registers: general registers as the kernel's
//! `user_regs_struct` has them, x87 and SSE out of an FXSAVE area, AVX out of an XSAVE area in
//! standard form (SDM volume 1, "XSAVE-Managed State").

use super::{Register, Registers};
use crate::image::core::Thread;

/// Offset of the XSAVE header's `XSTATE_BV` in the area.
const XSTATE_BV: usize = 512;
/// Bit of AVX state in it.
const AVX: u64 = 1 << 2;
/// Offset of the upper halves of the YMM registers.
const YMM_HIGH: usize = 576;

/// All registers that a core tells of a thread.
pub(super) fn registers(thread: &Thread) -> Registers {
    let mut known = Registers::default();
    for register in Register::all() {
        known.set(register, general(thread, &register.name()).map(u128::from));
    }
    if let Some(area) = thread.fpregs.as_deref() {
        fxsave(area, &mut known);
    }
    if let Some(area) = thread.xstate.as_deref() {
        avx(area, &mut known);
    }
    known
}

fn general(thread: &Thread, name: &str) -> Option<u64> {
    use crate::image::core::Registers as Kernel;
    let place = Kernel::NAMES.iter().position(|known| *known == name)?;
    thread.registers.to_words().get(place).copied()
}

/// SDM volume 1, table "Format of an FXSAVE Area" (64-bit mode with REX.W).
fn fxsave(area: &[u8], known: &mut Registers) {
    let word = |at: usize, size: usize| value(area, at, size);
    let named = [
        ("fctrl", word(0, 2)),
        ("fstat", word(2, 2)),
        ("ftag", full_tags(area)),
        ("fop", word(6, 2)),
        ("fioff", word(8, 4)),
        ("fiseg", word(12, 2)),
        ("fooff", word(16, 4)),
        ("foseg", word(20, 2)),
        ("mxcsr", word(24, 4)),
    ];
    for (name, value) in named {
        if let Some(register) = Register::from_name(name) {
            known.set(register, value);
        }
    }
    for i in 0..16_u8 {
        if let Some(st) = Register::st(i) {
            known.set(st, word(32 + 16 * usize::from(i), 10));
        }
        if let Some(xmm) = Register::xmm(i) {
            known.set(xmm, word(160 + 16 * usize::from(i), 16));
        }
    }
}

/// The two-bit tags that FXSAVE abridges to one bit, as the registers' contents give them (SDM
/// volume 1, "x87 FPU Tag Word"): valid 0, zero 1, special 2, empty 3.
fn full_tags(area: &[u8]) -> Option<u128> {
    let top = value(area, 2, 2)? >> 11 & 7;
    let abridged = value(area, 4, 1)?;
    (0..8).try_fold(0, |tags, physical| {
        let stack = usize::try_from((physical + 8 - top) % 8).ok()?;
        let number = value(area, 32 + 16 * stack, 10)?;
        let (exponent, mantissa) = (number >> 64 & 0x7fff, number & u128::from(u64::MAX));
        let tag = match (abridged >> physical & 1, exponent, mantissa) {
            (0, ..) => 3,
            (_, 0, 0) => 1,
            (_, 0 | 0x7fff, _) => 2,
            _ if mantissa >> 63 == 0 => 2,
            _ => 0,
        };
        Some(tags | tag << (2 * physical))
    })
}

fn avx(area: &[u8], known: &mut Registers) {
    let Some(present) = value(area, XSTATE_BV, 8) else { return };
    // What the area leaves out is in its initial state, all zeros (SDM, "XSAVE").
    let in_use = present & u128::from(AVX) != 0;
    for i in 0..16_u8 {
        let stored = value(area, YMM_HIGH + 16 * usize::from(i), 16);
        if let Some(register) = Register::ymm_high(i) {
            known.set(register, stored.map(|value| if in_use { value } else { 0 }));
        }
    }
}

/// Changes a register in an XSAVE area in standard form. None: it is not in there.
pub(super) fn write_extended(area: &mut [u8], register: Register, value: u128) -> Option<()> {
    const X87: u64 = 1;
    const SSE: u64 = 1 << 1;
    let numbered = |of: fn(u8) -> Option<Register>| (0..16).position(|i| of(i) == Some(register));
    let (at, size, component) = match register.name().as_str() {
        "fctrl" => (0, 2, X87),
        "fstat" => (2, 2, X87),
        "fop" => (6, 2, X87),
        "mxcsr" => (24, 4, SSE),
        _ => {
            match (numbered(Register::st), numbered(Register::xmm), numbered(Register::ymm_high)) {
                (Some(i), ..) => (32 + 16 * i, 10, X87),
                (_, Some(i), _) => (160 + 16 * i, 16, SSE),
                (.., Some(i)) => (YMM_HIGH + 16 * i, 16, AVX),
                _ => return None,
            }
        }
    };
    let header: [u8; 8] = area.get(XSTATE_BV..XSTATE_BV + 8)?.try_into().ok()?;
    let present = u64::from_le_bytes(header);
    if component == AVX && present & AVX == 0 {
        // The others are in their initial state.
        area.get_mut(YMM_HIGH..YMM_HIGH + 16 * 16)?.fill(0);
    }
    area[XSTATE_BV..XSTATE_BV + 8].copy_from_slice(&(present | component).to_le_bytes());
    area.get_mut(at..at + size)?.copy_from_slice(&value.to_le_bytes()[..size]);
    Some(())
}

fn value(area: &[u8], at: usize, size: usize) -> Option<u128> {
    let bytes = area.get(at..at + size)?;
    Some(bytes.iter().rev().fold(0, |value, byte| value << 8 | u128::from(*byte)))
}
