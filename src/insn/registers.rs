//! The general registers of a thread, as the kernel returns them. No vector registers.

/// Lists the fields once, so that the struct, the names and the word order cannot drift apart.
macro_rules! registers {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// The general registers of an x86-64 thread, in the order of the kernel's
        /// `user_regs_struct` (`PTRACE_GETREGS`, `NT_PRSTATUS`).
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Registers { $($(#[$doc])* pub $name: u64,)* }

        impl Registers {
            /// The names of the registers, in the kernel's order.
            pub const NAMES: [&'static str; 27] = [$(stringify!($name)),*];

            /// Creates the registers from 27 words in the kernel's order.
            pub const fn from_words(words: [u64; 27]) -> Self {
                let [$($name),*] = words;
                Self { $($name),* }
            }

            /// Returns the registers as 27 words in the kernel's order.
            pub const fn to_words(&self) -> [u64; 27] {
                [$(self.$name),*]
            }
        }
    };
}

registers! {
    /// R15.
    r15,
    /// R14.
    r14,
    /// R13.
    r13,
    /// R12.
    r12,
    /// RBP.
    rbp,
    /// RBX.
    rbx,
    /// R11.
    r11,
    /// R10.
    r10,
    /// R9.
    r9,
    /// R8.
    r8,
    /// RAX.
    rax,
    /// RCX.
    rcx,
    /// RDX.
    rdx,
    /// RSI.
    rsi,
    /// RDI.
    rdi,
    /// The number of the system call that the thread is in; all ones outside a system call.
    orig_rax,
    /// RIP.
    rip,
    /// CS selector.
    cs,
    /// RFLAGS, under the name used by the kernel and gdb.
    eflags,
    /// RSP.
    rsp,
    /// SS selector.
    ss,
    /// Base address of FS.
    fs_base,
    /// Base address of GS.
    gs_base,
    /// DS selector.
    ds,
    /// ES selector.
    es,
    /// FS selector.
    fs,
    /// GS selector.
    gs,
}

/// The index in `to_words` of each general register, and of RIP, by its DWARF number (System V ABI
/// for AMD64, figure 3.36).
const BY_DWARF_NUMBER: [usize; 17] = [10, 12, 11, 5, 13, 14, 4, 19, 9, 8, 7, 6, 3, 2, 1, 0, 16];

impl Registers {
    /// The size of `user_regs_struct` in bytes.
    pub const SIZE_BYTES: usize = 27 * 8;

    /// Returns a copy with `value` in the register called `name` (one of [`Self::NAMES`], in lower
    /// case); `None` for other names.
    pub fn with(&self, name: &str, value: u64) -> Option<Self> {
        let place = Self::NAMES.iter().position(|known| *known == name)?;
        let mut words = self.to_words();
        words[place] = value;
        Some(Self::from_words(words))
    }

    /// Returns the value of the general register, or of RIP, with a DWARF number; `None` for
    /// others.
    pub fn by_dwarf_number(&self, number: u16) -> Option<u64> {
        let place = BY_DWARF_NUMBER.get(usize::from(number))?;
        Some(self.to_words()[*place])
    }

    /// Returns the name of the general register, or of RIP, with a DWARF number; `None` for others.
    pub fn name_of_dwarf_number(number: u16) -> Option<&'static str> {
        BY_DWARF_NUMBER.get(usize::from(number)).map(|place| Self::NAMES[*place])
    }

    /// Returns the DWARF number of a general register or RIP by its name in [`Self::NAMES`]; `None`
    /// for other names, also for those of its parts, such as `eax`.
    pub fn dwarf_number(name: &str) -> Option<u16> {
        let place = Self::NAMES.iter().position(|known| *known == name)?;
        let number = BY_DWARF_NUMBER.iter().position(|known| *known == place)?;
        u16::try_from(number).ok()
    }

    /// Returns the bytes of the kernel's `user_regs_struct`.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.to_words().iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    /// Parses the bytes of a `user_regs_struct`; `None` if there are too few. Ignores further
    /// bytes.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut words = [0; 27];
        let chunks = bytes.get(..Self::SIZE_BYTES)?.chunks_exact(8);
        for (word, chunk) in words.iter_mut().zip(chunks) {
            *word = u64::from_le_bytes(chunk.try_into().ok()?);
        }
        Some(Self::from_words(words))
    }
}
