//! XSAVE areas in standard form, as the kernel reads and writes them (SDM volume 1, "XSAVE-Managed
//! State"; `arch/x86/kernel/fpu` in the kernel). An area consists of *components*, such as x87, SSE
//! and AVX. `XSTATE_BV` in its header has a bit for each that is in use. The others are in their
//! initial state, and their bytes may be stale.

use super::registers::{Extended, Register, Value};
use crate::insn::xsave::{
    AVX, EXTENDED, HI16_ZMM, LAST_X87, MASKS, SSE, X87, XCR0, XMM, XSTATE_BV, ZMM_HI256,
    keep_last_x87,
};
use std::ops::Range;

const AVX512: u64 = MASKS | ZMM_HI256 | HI16_ZMM;
/// Offset of the upper halves of the first 16 YMM registers.
const YMM_HIGH: usize = EXTENDED;

/// The control registers of x87 and SSE: name, offset and size in an FXSAVE area (SDM volume 1,
/// table "Format of an FXSAVE Area", 64-bit mode with REX.W). The area abridges `ftag` to a byte.
pub(super) const CONTROL: [(&str, usize, usize); 9] = [
    ("fctrl", 0, 2),
    ("fstat", 2, 2),
    ("ftag", 4, 1),
    ("fop", 6, 2),
    ("fioff", 8, 4),
    ("fiseg", 12, 2),
    ("fooff", 16, 4),
    ("foseg", 20, 2),
    ("mxcsr", 24, 4),
];

/// The offsets of an area's components. CPUs differ in AVX-512 only (CPUID leaf 0DH): areas of
/// Intel leave room for MPX before it, those of AMD do not.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    /// `None` if the CPU has no AVX-512, or the area is too short for it.
    avx512: Option<Avx512>,
}

#[derive(Clone, Copy, Debug)]
struct Avx512 {
    /// Offset of K0 to K7.
    masks: usize,
    /// Offset of the upper halves of ZMM0 to ZMM15.
    upper_halves: usize,
    /// Offset of ZMM16 to ZMM31.
    zmm16_to_31: usize,
}

const INTEL: Avx512 = Avx512 { masks: 1088, upper_halves: 1152, zmm16_to_31: 1664 };
const AMD: Avx512 = Avx512 { masks: 832, upper_halves: 896, zmm16_to_31: 1408 };
const HI16_ZMM_BYTES: usize = 16 * 64;

/// The location of a register in an area.
struct Field {
    at: usize,
    size: usize,
    /// The bit of the register's state component in `XSTATE_BV`.
    component: u64,
    /// The range of the whole component, for AVX and AVX-512, whose initial states are all zeros.
    /// Empty for x87 and SSE: the kernel writes their registers even in the initial state.
    whole: Range<usize>,
}

impl Layout {
    /// Returns the layout of an area; `None` if it is too short for AVX.
    pub(super) fn of(area: &[u8]) -> Option<Self> {
        area.get(YMM_HIGH..YMM_HIGH + 16 * 16)?;
        let has_avx512 = word(area, XCR0)? & AVX512 == AVX512;
        let fits = |layout: &Avx512| area.len() >= layout.zmm16_to_31 + HI16_ZMM_BYTES;
        let avx512 = [INTEL, AMD].into_iter().find(fits).filter(|_| has_avx512);
        Some(Self { avx512 })
    }

    /// Returns the value of a register of AVX or AVX-512, zero if its component is not in use;
    /// `None` if the area has no place for it.
    pub(super) fn read(self, area: &[u8], register: Register) -> Option<Value> {
        let Field { at, size, component, .. } = self.field(register)?;
        // A component that the area omits is in its initial state (SDM, "XSAVE").
        let in_use = word(area, XSTATE_BV)? & component != 0;
        let stored = area.get(at..at + size)?;
        Some(if in_use { Value::new(stored) } else { Value::default() })
    }

    /// Returns the location of a register of AVX or AVX-512; `None` if the area has no place for
    /// it.
    fn field(self, register: Register) -> Option<Field> {
        match register.extended()? {
            Extended::YmmHigh(n @ 0..16) => {
                let (at, whole) = (YMM_HIGH + 16 * usize::from(n), YMM_HIGH..YMM_HIGH + 16 * 16);
                Some(Field { at, size: 16, component: AVX, whole })
            }
            register => self.avx512?.field(register),
        }
    }
}

/// Returns the location of a register of x87 or SSE, for which every area has a place; `None` for
/// other registers.
fn legacy_field(register: Register) -> Option<Field> {
    let legacy = |at, size, component| Some(Field { at, size, component, whole: 0..0 });
    let name = register.name();
    if let Some((_, at, size)) = CONTROL.iter().find(|(control, ..)| *control == name) {
        return legacy(*at, *size, if name == "mxcsr" { SSE } else { X87 });
    }
    match register.extended()? {
        Extended::St(n) => legacy(32 + 16 * usize::from(n), 10, X87),
        Extended::Xmm(n @ 0..16) => legacy(XMM + 16 * usize::from(n), 16, SSE),
        _ => None,
    }
}

impl Avx512 {
    /// Returns the location of a register that AVX-512 adds. ZMM16 to ZMM31 are in one piece of 64
    /// bytes each, which contains their XMM and YMM parts. Of ZMM0 to ZMM15 only the upper halves
    /// are here.
    fn field(self, register: Extended) -> Option<Field> {
        let masks = self.masks..self.masks + 8 * 8;
        let upper_halves = self.upper_halves..self.upper_halves + 16 * 32;
        let zmm16_to_31 = self.zmm16_to_31..self.zmm16_to_31 + HI16_ZMM_BYTES;
        let high = |n: u8, offset| self.zmm16_to_31 + 64 * usize::from(n - 16) + offset;
        let (at, size, component, whole) = match register {
            Extended::Mask(n) => (self.masks + 8 * usize::from(n), 8, MASKS, masks),
            Extended::ZmmHigh(n @ 0..16) => {
                (self.upper_halves + 32 * usize::from(n), 32, ZMM_HI256, upper_halves)
            }
            Extended::Xmm(n @ 16..) => (high(n, 0), 16, HI16_ZMM, zmm16_to_31),
            Extended::YmmHigh(n @ 16..) => (high(n, 16), 16, HI16_ZMM, zmm16_to_31),
            Extended::ZmmHigh(n) => (high(n, 32), 32, HI16_ZMM, zmm16_to_31),
            _ => return None,
        };
        Some(Field { at, size, component, whole })
    }
}

/// Writes a register to an area, and marks its component as in use. `ftag` is given with two bits
/// for each register; of a value wider than the register, the low bytes are written. Returns
/// `None`, and writes nothing, if the area has no place for it, or is too short for AVX.
pub(super) fn write(area: &mut [u8], register: Register, value: Value) -> Option<()> {
    let extended = || Layout::of(area)?.field(register);
    let Field { at, size, component, whole } = legacy_field(register).or_else(extended)?;
    let is_tags = register.name() == "ftag";
    let value = if is_tags { abridged_tags(value.low()).into() } else { value };
    let present = word(area, XSTATE_BV)?;
    if present & component == 0 {
        // The component becomes present, so its other registers need their initial state.
        area.get_mut(whole)?.fill(0);
    }
    area[XSTATE_BV..XSTATE_BV + 8].copy_from_slice(&(present | component).to_le_bytes());
    area.get_mut(at..at + size)?.copy_from_slice(&value.bytes()[..size]);
    if LAST_X87.contains(&at) {
        // The register is part of the address of the last x87 instruction (FIP). In a thread that
        // runs translated, that is an address in the code cache, and `forget_last_x87` replaces it
        // by all ones (unknown), unless it is marked as set by a debugger.
        keep_last_x87(area);
    }
    Some(())
}

/// Returns the tag byte of an FXSAVE area: a bit for each register that is not empty. In `tags`
/// each register has two bits, and 3 means empty.
fn abridged_tags(tags: u128) -> u128 {
    (0..8).filter(|physical| tags >> (2 * physical) & 3 != 3).map(|physical| 1 << physical).sum()
}

/// Returns the eight bytes at offset `at` as a number; `None` if the area is too short.
fn word(area: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(area.get(at..at + 8)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::super::conversions::{read_avx, read_fxsave};
    use super::super::registers::KnownRegisters;
    use super::*;
    use crate::insn::xsave::forget_last_x87;

    /// Sizes of real areas: Intel with AVX-512 and PKRU, AMD with the same, and AVX alone.
    const AREAS: [(usize, u64, usize); 3] =
        [(2696, AVX512 | 0x207, 32), (2440, AVX512 | 0x207, 32), (832, 7, 16)];

    fn read(area: &[u8]) -> KnownRegisters {
        let mut known = KnownRegisters::default();
        read_fxsave(area, &mut known);
        read_avx(area, &mut known);
        known
    }

    fn area(size: usize, xcr0: u64) -> Vec<u8> {
        let mut area = vec![0; size];
        area[XCR0..XCR0 + 8].copy_from_slice(&xcr0.to_le_bytes());
        // All x87 registers hold 1.0, so the tags depend only on which registers are empty.
        for i in 0..8 {
            write(&mut area, Register::st(i).unwrap(), (0x3fff << 64 | 1 << 63).into()).unwrap();
        }
        area
    }

    #[test]
    fn the_address_of_a_copied_x87_instruction_is_unknown() {
        let mut area = area(AREAS[0].0, AREAS[0].1);
        let value = |area: &[u8], name| read(area).value(Register::from_name(name).unwrap());
        forget_last_x87(&mut area);
        assert_eq!(value(&area, "fioff"), Some(0.into()), "there is none");
        area[8..24].copy_from_slice(&[0x7f; 16]);
        forget_last_x87(&mut area);
        assert_eq!(["fioff", "fiseg"].map(|name| value(&area, name)), [None; 2]);
        assert_eq!(value(&area, "fooff"), Some(0x7f7f_7f7f.into()));
        write(&mut area, Register::from_name("fioff").unwrap(), 0x1234.into()).unwrap();
        forget_last_x87(&mut area);
        assert_eq!(value(&area, "fioff"), Some(0x1234.into()), "a debugger set it");
    }

    #[test]
    fn every_register_that_is_read_of_an_area_can_be_written() {
        for (size, xcr0, vectors) in AREAS {
            let mut area = area(size, xcr0);
            let known = read(&area);
            let readable: Vec<_> = Register::all().filter(|r| known.value(*r).is_some()).collect();
            let beyond_avx = if vectors == 32 { 32 + 8 } else { 0 };
            assert_eq!(readable.len(), 8 + 8 + 1 + 2 * vectors + beyond_avx);
            for (number, register) in readable.iter().enumerate() {
                let value = match register.name().as_str() {
                    "ftag" => 0b1100_1100_0011_1111.into(),
                    "fop" => 0x7a5.into(),
                    name if name.starts_with("st") => (0x3fff << 64 | 3 << 62).into(),
                    _ if register.size_bytes() > 16 => {
                        Value::new(&[u8::try_from(number + 1).unwrap(); 32])
                    }
                    _ => (0x1110 + number as u128).into(),
                };
                let before = read(&area);
                write(&mut area, *register, value).unwrap();
                let now = read(&area);
                assert_eq!(now.value(*register), Some(value), "{}", register.name());
                let others = |r: &Register| r != register && r.name() != "ftag";
                assert!(Register::all().filter(others).all(|r| now.value(r) == before.value(r)));
            }
        }
    }

    #[test]
    fn an_area_without_avx_has_the_registers_of_x87_and_sse() {
        let mut area = area(576, 3);
        for name in ["st3", "xmm0", "xmm15", "fctrl", "mxcsr"] {
            let register = Register::from_name(name).unwrap();
            assert_eq!(write(&mut area, register, 0x1f80.into()), Some(()), "{name}");
            assert_eq!(read(&area).value(register), Some(0x1f80.into()), "{name}");
        }
        let ymm0h = Register::all().find(|r| r.extended() == Some(Extended::YmmHigh(0))).unwrap();
        assert_eq!(write(&mut area, ymm0h, 1.into()), None);
        assert_eq!(write(&mut [0; 512], Register::MXCSR, 1.into()), None);
    }

    #[test]
    fn a_register_that_no_area_holds_is_not_written() {
        let (mut short, mut none) = (area(832, 7), Vec::new());
        assert_eq!(write(&mut short, Register::RAX, 1.into()), None);
        assert_eq!(write(&mut short, Register::zmm_high(0).unwrap(), 1.into()), None);
        assert_eq!(write(&mut none, Register::MXCSR, 1.into()), None);
        // A CPU without AVX-512 whose areas are as large as those with it.
        let large = area(2696, 0x207);
        assert!(!read(&large).has_avx512());
    }
}
