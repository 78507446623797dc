//! The x86-64 registers, by gdb's names, each with a value or without.

/// A register. The order is gdb's numbering of the target description that the gdb room serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Register(u8);

/// Names and sizes in bits of runs of registers that look alike.
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
const ST0: u8 = 24;
const FCTRL: u8 = 32;
const XMM0: u8 = 40;
const MXCSR: u8 = 56;
const ORIG_RAX: u8 = 57;
const FS_BASE: u8 = 58;
const GS_BASE: u8 = 59;
const YMM0H: u8 = 60;
const COUNT: u8 = 76;

impl Register {
    /// Accumulator; return values and system call numbers.
    pub const RAX: Self = Self(0);
    /// Base pointer.
    pub const RBP: Self = Self(6);
    /// Stack pointer.
    pub const RSP: Self = Self(7);
    /// Instruction pointer.
    pub const RIP: Self = Self(16);
    /// Flags.
    pub const EFLAGS: Self = Self(17);
    /// Base of the FS segment: the thread's control block.
    pub const FS_BASE: Self = Self(FS_BASE);
    /// Base of the GS segment.
    pub const GS_BASE: Self = Self(GS_BASE);
    /// The system call number at entry to the kernel, or -1.
    pub const ORIG_RAX: Self = Self(ORIG_RAX);
    /// SSE control and status.
    pub const MXCSR: Self = Self(MXCSR);

    /// The register of a number.
    pub fn from_number(number: usize) -> Option<Self> {
        u8::try_from(number).ok().filter(|number| *number < COUNT).map(Self)
    }

    /// Its number, from 0.
    pub fn number(self) -> usize {
        usize::from(self.0)
    }

    /// General register `index` in gdb's order: rax, rbx, rcx, rdx, rsi, rdi, rbp, rsp, r8 to r15.
    pub fn general(index: u8) -> Option<Self> {
        (index < 16).then_some(Self(index))
    }

    /// x87 stack register `index`.
    pub fn st(index: u8) -> Option<Self> {
        (index < 8).then_some(Self(ST0 + index))
    }

    /// SSE register `index`.
    pub fn xmm(index: u8) -> Option<Self> {
        (index < 16).then_some(Self(XMM0 + index))
    }

    /// Upper half of AVX register `index`.
    pub fn ymm_high(index: u8) -> Option<Self> {
        (index < 16).then_some(Self(YMM0H + index))
    }

    /// The register of a name, as [`name`](Self::name) gives it.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::all().find(|register| register.name() == name)
    }

    /// gdb's name.
    pub fn name(self) -> String {
        match self.0 {
            n @ ST0..FCTRL => format!("st{}", n - ST0),
            n @ FCTRL..XMM0 => X87_CONTROL[usize::from(n - FCTRL)].to_owned(),
            n @ XMM0..MXCSR => format!("xmm{}", n - XMM0),
            MXCSR => "mxcsr".to_owned(),
            ORIG_RAX => "orig_rax".to_owned(),
            FS_BASE => "fs_base".to_owned(),
            GS_BASE => "gs_base".to_owned(),
            n @ YMM0H.. => format!("ymm{}h", n - YMM0H),
            n => NAMED[usize::from(n)].0.to_owned(),
        }
    }

    /// Its size.
    pub fn size_bytes(self) -> usize {
        match self.0 {
            ST0..FCTRL => 10,
            FCTRL..XMM0 | MXCSR => 4,
            XMM0..MXCSR | YMM0H.. => 16,
            ORIG_RAX..YMM0H => 8,
            n => usize::from(NAMED[usize::from(n)].1 / 8),
        }
    }

    /// Every register in order.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..COUNT).map(Self)
    }
}

/// A set of registers, each known or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registers {
    values: [Option<u128>; COUNT as usize],
}

impl Default for Registers {
    fn default() -> Self {
        Self { values: [None; COUNT as usize] }
    }
}

impl Registers {
    /// The value of a register, where known.
    pub fn get(&self, register: Register) -> Option<u128> {
        self.values[register.number()]
    }

    /// Makes a register known, or unknown again.
    pub fn set(&mut self, register: Register, value: Option<u128>) {
        self.values[register.number()] = value;
    }

    /// The bytes of a register in memory order, where known.
    pub fn bytes(&self, register: Register) -> Option<Vec<u8>> {
        let value = self.get(register)?;
        Some(value.to_le_bytes()[..register.size_bytes()].to_vec())
    }

    /// Whether every general register, the instruction pointer and the flags are known.
    pub fn has_all_general(&self) -> bool {
        self.values[..=Register::EFLAGS.number()].iter().all(Option::is_some)
    }

    /// Whether any AVX upper half is known.
    pub fn has_avx(&self) -> bool {
        self.values[usize::from(YMM0H)..].iter().any(Option::is_some)
    }
}
