//! The x86-64 registers that a user sees, each with a value or unknown.

use crate::insn;

/// A general, segment, x87, SSE, AVX or AVX-512 register, as gdb shows them: each part of a wide
/// vector register is a separate register.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Register(u8);

/// Names and sizes in bits of the registers up to `gs`.
const NAMED: [(&str, u16); 24] = [
    ("rax", 64),
    ("rbx", 64),
    ("rcx", 64),
    ("rdx", 64),
    ("rsi", 64),
    ("rdi", 64),
    ("rbp", 64),
    ("rsp", 64),
    ("r8", 64),
    ("r9", 64),
    ("r10", 64),
    ("r11", 64),
    ("r12", 64),
    ("r13", 64),
    ("r14", 64),
    ("r15", 64),
    ("rip", 64),
    ("eflags", 32),
    ("cs", 32),
    ("ss", 32),
    ("ds", 32),
    ("es", 32),
    ("fs", 32),
    ("gs", 32),
];
const X87_CONTROL: [&str; 8] =
    ["fctrl", "fstat", "ftag", "fiseg", "fioff", "foseg", "fooff", "fop"];
// The numbers of the registers after `NAMED`: the first one of each kind, or a single one.
const ST0: u8 = 24;
const FCTRL: u8 = 32;
const XMM0: u8 = 40;
const MXCSR: u8 = 56;
const ORIG_RAX: u8 = 57;
const FS_BASE: u8 = 58;
const GS_BASE: u8 = 59;
const YMM0H: u8 = 60;
const K0: u8 = 76;
const XMM16: u8 = 84;
const YMM16H: u8 = 100;
const ZMM0H: u8 = 116;
const COUNT: u8 = 148;
/// Size of the largest register.
const WIDEST_BYTES: usize = 32;

/// A numbered register of the extended state, by kind and index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extended {
    /// An x87 stack register.
    St(u8),
    /// An SSE register.
    Xmm(u8),
    /// Bits 128 to 255 of an AVX register.
    YmmHigh(u8),
    /// Bits 256 to 511 of an AVX-512 register.
    ZmmHigh(u8),
    /// An AVX-512 mask register.
    Mask(u8),
}

/// The value of a register in memory order. Bytes beyond the register's size are zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Value([u8; WIDEST_BYTES]);

impl Value {
    /// Creates a value from bytes in memory order. Fewer than those of the largest register are
    /// followed by zeros; further ones are dropped.
    pub fn new(bytes: &[u8]) -> Self {
        let mut value = Self::default();
        let count = bytes.len().min(WIDEST_BYTES);
        value.0[..count].copy_from_slice(&bytes[..count]);
        value
    }

    /// Returns the bytes in memory order.
    pub fn bytes(&self) -> &[u8; WIDEST_BYTES] {
        &self.0
    }

    /// Returns the low 128 bits.
    pub fn low(self) -> u128 {
        self.0.iter().take(16).rev().fold(0, |value, byte| value << 8 | u128::from(*byte))
    }
}

impl From<u128> for Value {
    fn from(value: u128) -> Self {
        Self::new(&value.to_le_bytes())
    }
}

impl Register {
    /// The accumulator: return values and system call numbers.
    pub const RAX: Self = Self(0);
    /// The base pointer.
    pub const RBP: Self = Self(6);
    /// The stack pointer.
    pub const RSP: Self = Self(7);
    /// The instruction pointer.
    pub const RIP: Self = Self(16);
    /// The flags.
    pub const EFLAGS: Self = Self(17);
    /// The base of the FS segment: the thread control block.
    pub const FS_BASE: Self = Self(FS_BASE);
    /// The base of the GS segment.
    pub const GS_BASE: Self = Self(GS_BASE);
    /// The system call number at entry to the kernel, or -1.
    pub const ORIG_RAX: Self = Self(ORIG_RAX);
    /// The SSE control and status register.
    pub const MXCSR: Self = Self(MXCSR);

    /// Returns the register's index in [`KnownRegisters::values`].
    fn index(self) -> usize {
        usize::from(self.0)
    }

    /// Returns the general register, or RIP, with a DWARF number; `None` for other numbers.
    pub fn of_dwarf_number(number: u16) -> Option<Self> {
        Self::from_name(insn::Registers::name_of_dwarf_number(number)?)
    }

    /// Returns x87 stack register `index`; `None` from 8 on.
    pub fn st(index: u8) -> Option<Self> {
        (index < 8).then_some(Self(ST0 + index))
    }

    /// Returns SSE register `index`; `None` from 32 on.
    pub fn xmm(index: u8) -> Option<Self> {
        match index {
            0..16 => Some(Self(XMM0 + index)),
            16..32 => Some(Self(XMM16 + index - 16)),
            _ => None,
        }
    }

    /// Returns the upper half of AVX register `index`; `None` from 32 on.
    pub fn ymm_high(index: u8) -> Option<Self> {
        match index {
            0..16 => Some(Self(YMM0H + index)),
            16..32 => Some(Self(YMM16H + index - 16)),
            _ => None,
        }
    }

    /// Returns the upper half of AVX-512 register `index`; `None` from 32 on.
    pub fn zmm_high(index: u8) -> Option<Self> {
        (index < 32).then_some(Self(ZMM0H + index))
    }

    /// Returns AVX-512 mask register `index`; `None` from 8 on.
    pub fn mask(index: u8) -> Option<Self> {
        (index < 8).then_some(Self(K0 + index))
    }

    /// Returns the kind and index of a numbered register of the extended state: x87 stack, SSE, AVX
    /// or AVX-512. `None` for all others, also for MXCSR and the control registers of x87.
    pub fn extended(self) -> Option<Extended> {
        match self.0 {
            n @ ST0..FCTRL => Some(Extended::St(n - ST0)),
            n @ XMM0..MXCSR => Some(Extended::Xmm(n - XMM0)),
            n @ YMM0H..K0 => Some(Extended::YmmHigh(n - YMM0H)),
            n @ K0..XMM16 => Some(Extended::Mask(n - K0)),
            n @ XMM16..YMM16H => Some(Extended::Xmm(n - XMM16 + 16)),
            n @ YMM16H..ZMM0H => Some(Extended::YmmHigh(n - YMM16H + 16)),
            n @ ZMM0H.. => Some(Extended::ZmmHigh(n - ZMM0H)),
            _ => None,
        }
    }

    /// Returns true for the registers that AVX adds: the upper halves of YMM0 to YMM15.
    pub fn is_avx(self) -> bool {
        (YMM0H..K0).contains(&self.0)
    }

    /// Returns true for the registers that AVX-512 adds.
    pub fn is_avx512(self) -> bool {
        self.0 >= K0
    }

    /// Returns the register with a [`name`](Self::name); `None` if there is none.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::all().find(|register| register.name() == name)
    }

    /// Returns the name of the register, which is gdb's.
    pub fn name(self) -> String {
        match self.extended() {
            Some(Extended::St(n)) => return format!("st{n}"),
            Some(Extended::Xmm(n)) => return format!("xmm{n}"),
            Some(Extended::YmmHigh(n)) => return format!("ymm{n}h"),
            Some(Extended::ZmmHigh(n)) => return format!("zmm{n}h"),
            Some(Extended::Mask(n)) => return format!("k{n}"),
            None => {}
        }
        match self.0 {
            n @ FCTRL..XMM0 => X87_CONTROL[usize::from(n - FCTRL)].to_owned(),
            MXCSR => "mxcsr".to_owned(),
            ORIG_RAX => "orig_rax".to_owned(),
            FS_BASE => "fs_base".to_owned(),
            GS_BASE => "gs_base".to_owned(),
            n => NAMED[usize::from(n)].0.to_owned(),
        }
    }

    /// Returns the register's size in bytes.
    pub fn size_bytes(self) -> usize {
        match self.0 {
            ST0..FCTRL => 10,
            FCTRL..XMM0 | MXCSR => 4,
            XMM0..MXCSR | YMM0H..K0 | XMM16..ZMM0H => 16,
            ORIG_RAX..YMM0H | K0..XMM16 => 8,
            ZMM0H.. => 32,
            n => usize::from(NAMED[usize::from(n)].1 / 8),
        }
    }

    /// Returns an iterator over all registers.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..COUNT).map(Self)
    }
}

/// The values of all registers of a thread, each known or unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownRegisters {
    values: [Option<Value>; COUNT as usize],
}

impl Default for KnownRegisters {
    fn default() -> Self {
        Self { values: [None; COUNT as usize] }
    }
}

impl KnownRegisters {
    /// Returns the low 128 bits of a register, if known.
    pub fn get(&self, register: Register) -> Option<u128> {
        self.value(register).map(Value::low)
    }

    /// Returns the whole value of a register, if known.
    pub fn value(&self, register: Register) -> Option<Value> {
        self.values[register.index()]
    }

    /// Sets a register of up to 128 bits; `None` makes it unknown.
    pub fn set(&mut self, register: Register, value: Option<u128>) {
        self.set_value(register, value.map(Value::from));
    }

    /// Sets a register of any size; `None` makes it unknown. The value must fit the register.
    pub fn set_value(&mut self, register: Register, value: Option<Value>) {
        self.values[register.index()] = value;
    }

    /// Returns the bytes of a register in memory order, if known.
    pub fn bytes(&self, register: Register) -> Option<Vec<u8>> {
        let value = self.value(register)?;
        Some(value.bytes()[..register.size_bytes()].to_vec())
    }

    /// Returns true if every general register, the instruction pointer and the flags are known.
    pub fn has_all_general(&self) -> bool {
        self.values[..=Register::EFLAGS.index()].iter().all(Option::is_some)
    }

    /// Returns true if any upper half of YMM0 to YMM15 is known.
    pub fn has_avx(&self) -> bool {
        Register::all().any(|register| register.is_avx() && self.value(register).is_some())
    }

    /// Returns true if any register of AVX-512 is known.
    pub fn has_avx512(&self) -> bool {
        Register::all().any(|register| register.is_avx512() && self.value(register).is_some())
    }
}
