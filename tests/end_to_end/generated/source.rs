//! The text of a generated program: blocks, each of which does something and then branches.

use super::branches::branch;
use super::operations::operation;
use super::random::Random;
use std::fmt::Write;

/// General registers that a program uses freely; `%rsp` is none of them.
pub(super) const REGISTERS: [[&str; 4]; 15] = [
    ["rax", "eax", "ax", "al"],
    ["rbx", "ebx", "bx", "bl"],
    ["rcx", "ecx", "cx", "cl"],
    ["rdx", "edx", "dx", "dl"],
    ["rsi", "esi", "si", "sil"],
    ["rdi", "edi", "di", "dil"],
    ["rbp", "ebp", "bp", "bpl"],
    ["r8", "r8d", "r8w", "r8b"],
    ["r9", "r9d", "r9w", "r9b"],
    ["r10", "r10d", "r10w", "r10b"],
    ["r11", "r11d", "r11w", "r11b"],
    ["r12", "r12d", "r12w", "r12b"],
    ["r13", "r13d", "r13w", "r13b"],
    ["r14", "r14d", "r14w", "r14b"],
    ["r15", "r15d", "r15w", "r15b"],
];
/// Suffixes of the sizes, in the order of [`REGISTERS`].
pub(super) const SUFFIXES: [&str; 4] = ["q", "l", "w", "b"];
pub(super) const CONDITIONS: [&str; 16] =
    ["o", "no", "b", "ae", "e", "ne", "be", "a", "s", "ns", "p", "np", "l", "ge", "le", "g"];
pub(super) const DATA_BYTES: u64 = 2048;
/// Entries of the table of blocks' addresses.
pub(super) const TABLE_ENTRIES: u64 = 8;
/// Functions that are changed while the program runs.
pub(super) const CHANGING_FUNCTIONS: u64 = 6;

/// What a program may do besides computing and branching.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Habits {
    /// It changes its code.
    pub(super) changes: bool,
    /// It traps, faults and sends signals to itself.
    pub(super) faults: bool,
    /// It makes system calls.
    pub(super) calls: bool,
}

/// A program that is being written.
pub(super) struct Source {
    pub(super) text: String,
    pub(super) random: Random,
    pub(super) blocks: u64,
    pub(super) habits: Habits,
    /// The block that is being written is in a page that the program writes.
    pub(super) in_changing: bool,
    labels: u64,
}

impl Source {
    pub(super) fn line(&mut self, line: impl AsRef<str>) {
        writeln!(self.text, "    {}", line.as_ref()).unwrap();
    }

    pub(super) fn label(&mut self) -> String {
        self.labels += 1;
        format!(".L{}", self.labels)
    }

    pub(super) fn place(&mut self, label: &str) {
        writeln!(self.text, "{label}:").unwrap();
    }

    /// A register in a size of [`SUFFIXES`]. R11, RCX and RDX come more often than others.
    pub(super) fn register(&mut self, size: usize) -> &'static str {
        let number = match self.random.below(8) {
            0 => 10,
            1 => self.random.below(2) + 2,
            _ => self.random.below(15),
        };
        REGISTERS[usize::try_from(number).unwrap()][size]
    }

    pub(super) fn size(&mut self) -> usize {
        usize::try_from(self.random.below(4)).unwrap()
    }

    /// The offset of a datum of up to 64 bytes.
    pub(super) fn offset(&mut self) -> u64 {
        let aligned = self.random.below((DATA_BYTES - 64) / 8) * 8;
        if self.random.once_in(4) { aligned + self.random.below(8) } else { aligned }
    }

    /// Some block.
    pub(super) fn block(&mut self) -> String {
        format!("block_{}", self.random.below(self.blocks))
    }
}

/// Writes the program of a seed, which `tests/programs/generated.S` includes.
pub(super) fn write(seed: u64, blocks: u64, habits: Habits) -> String {
    let random = Random::new(seed);
    let text = String::new();
    let mut source = Source { text, random, blocks, habits, in_changing: false, labels: 0 };
    source.line(".section .changing, \"awx\", @progbits");
    source.line(".balign 4096");
    source.place("changing");
    source.line(".text");
    source.place("fill_table");
    for entry in 0..TABLE_ENTRIES {
        let block = source.block();
        source.line(format!("lea {block}(%rip), %rax"));
        source.line(format!("mov %rax, table + {}(%rip)", entry * 8));
    }
    source.line("ret");
    source.place("first_block");
    for number in 0..blocks {
        section(&mut source, number);
        source.place(&format!("block_{number}"));
        source.line("FUEL");
        for _ in 0..source.random.below(9) {
            operation(&mut source);
        }
        branch(&mut source, number);
    }
    changing(&mut source);
    source.text
}

/// Some blocks are far away, and some in pages that are written.
fn section(source: &mut Source, number: u64) {
    if !source.random.once_in(4) {
        return;
    }
    // What falls through at the end of a section goes on elsewhere.
    source.line(format!("jmp block_{number}"));
    source.in_changing = false;
    match source.random.below(4) {
        0 => {
            source.line(".section .text.far, \"ax\", @progbits");
            let bytes = source.random.below(300);
            source.line(format!(".skip {bytes}, 0x90"));
        }
        1 => {
            source.line(".text");
            source.line(".balign 4096, 0x90");
        }
        2 if source.habits.changes => {
            source.in_changing = true;
            source.line(".section .changing, \"awx\", @progbits");
        }
        _ => source.line(".text"),
    }
}

/// The functions that are changed, one of them across two pages.
fn changing(source: &mut Source) {
    source.line(".section .changing, \"awx\", @progbits");
    source.line(".balign 4096, 0xcc");
    source.place("changed_functions");
    for number in 0..CHANGING_FUNCTIONS {
        if number == CHANGING_FUNCTIONS - 1 {
            source.line(".org changed_functions + 4096 - 3, 0xcc");
        }
        source.place(&format!("changed_{number}"));
        source.line("movl $7, %eax");
        source.line("ret");
    }
    source.place("sled");
    source.line(".skip 32, 0x90");
    source.line("ret");
    source.line(".balign 4096, 0xcc");
    source.place("changing_end");
    source.line(".text");
}
