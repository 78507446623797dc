//! Conversions between a thread's register sets as the kernel has them and [`KnownRegisters`]:
//! general registers in `user_regs_struct`, x87 and SSE in an FXSAVE area, AVX and AVX-512 in an
//! XSAVE area in standard form ([`xsave`]).

use super::registers::{KnownRegisters, Register, Value};
use super::xsave::{self, CONTROL, Layout};
use crate::image::core::Thread;
use crate::insn::Registers;
use crate::insn::xsave::is_forgotten;
use std::sync::LazyLock;

/// The general registers, each with its index among the words of `user_regs_struct`.
static GENERAL: LazyLock<Vec<(Register, usize)>> = LazyLock::new(|| {
    let with_index = |register: Register| {
        let name = register.name();
        Some((register, Registers::NAMES.iter().position(|known| *known == name)?))
    };
    Register::all().filter_map(with_index).collect()
});

/// A register set of a thread that has a new value in one register.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChangedSet {
    /// The general registers.
    General(Registers),
    /// The XSAVE area.
    Extended(Vec<u8>),
}

impl ChangedSet {
    /// Returns the register set that contains `register`, with a new value there; `None` if the
    /// thread has no such register, general registers are too small for the value, or the XSAVE
    /// area is unknown or too short for AVX. An extended register gets the low bytes of a value
    /// that is wider.
    pub fn of(thread: Thread, register: Register, value: Value) -> Option<Self> {
        let name = register.name();
        let general = u64::try_from(value.low()).ok();
        if let Some(changed) = general.and_then(|value| thread.registers.with(&name, value)) {
            return Some(Self::General(changed));
        }
        let mut area = thread.xstate?;
        xsave::write(&mut area, register, value)?;
        Some(Self::Extended(area))
    }
}

impl KnownRegisters {
    /// Returns all registers that a thread's register sets contain.
    pub fn of(thread: &Thread) -> Self {
        let mut known = Self::default();
        let words = thread.registers.to_words();
        for (register, index) in GENERAL.iter() {
            known.set(*register, words.get(*index).copied().map(u128::from));
        }
        if let Some(area) = thread.fpregs.as_deref() {
            read_fxsave(area, &mut known);
        }
        if let Some(area) = thread.xstate.as_deref() {
            read_avx(area, &mut known);
        }
        known
    }
}

/// Reads the registers of x87 and SSE from an FXSAVE area. Those past its end become unknown.
pub(super) fn read_fxsave(area: &[u8], known: &mut KnownRegisters) {
    let word = |at: usize, size: usize| value(area, at, size);
    for (name, at, size) in CONTROL {
        let value = if name == "ftag" { full_tags(area) } else { word(at, size) };
        if let Some(register) = Register::from_name(name) {
            // FIP is unknown after translated code: the CPU has the address of the copy in the code
            // cache, which the recorder overwrites (`forget_last_x87`).
            known.set(register, value.filter(|_| !is_forgotten(area, at)));
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

/// Returns the two-bit tags that FXSAVE abridges to one bit each, derived from the registers'
/// contents (SDM volume 1, "x87 FPU Tag Word"): valid 0, zero 1, special 2, empty 3. `None` if the
/// area is too short.
pub(super) fn full_tags(area: &[u8]) -> Option<u128> {
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

/// Reads the registers of AVX and AVX-512 from an XSAVE area. Those that the area has no place for
/// become unknown; does nothing if it is too short for AVX.
pub(super) fn read_avx(area: &[u8], known: &mut KnownRegisters) {
    let Some(layout) = Layout::of(area) else { return };
    for register in Register::all().filter(|register| register.is_avx() || register.is_avx512()) {
        known.set_value(register, layout.read(area, register));
    }
}

/// Returns the `size` bytes at offset `at` as a number; `None` if the area is too short.
fn value(area: &[u8], at: usize, size: usize) -> Option<u128> {
    let bytes = area.get(at..at + size)?;
    Some(bytes.iter().rev().fold(0, |value, byte| value << 8 | u128::from(*byte)))
}
