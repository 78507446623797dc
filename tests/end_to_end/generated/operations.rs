//! What a block does before it branches. No operation leaves anything on the stack.

use super::source::{CHANGING_FUNCTIONS, CONDITIONS, DATA_BYTES, REGISTERS, SUFFIXES, Source};

/// Instructions of two operands.
const BINARY: [&str; 9] = ["add", "adc", "sub", "sbb", "and", "or", "xor", "cmp", "mov"];
const UNARY: [&str; 4] = ["inc", "dec", "neg", "not"];
const SHIFTS: [&str; 7] = ["rol", "ror", "rcl", "rcr", "shl", "shr", "sar"];
/// CF, PF, AF, ZF, SF and OF.
const FLAGS: u64 = 0x8d5;

/// Writes one.
pub(super) fn operation(source: &mut Source) {
    match source.random.below(19) {
        4..7 => data(source),
        7 => flags(source),
        8 => vector(source),
        9 => stack(source),
        10 => string(source),
        11 => red_zone(source),
        12 => address(source),
        13 => small_loop(source),
        14 | 15 if source.habits.changes => change(source),
        16 if source.habits.faults => super::faults::fault(source),
        17 if source.habits.calls => super::calls::call(source),
        18 => {
            let (a, b) = (source.register(0), source.register(0));
            source.line(format!("xchg %{a}, %{b}"));
        }
        _ => arithmetic(source),
    }
}

fn immediate(source: &mut Source, size: usize) -> u64 {
    match size {
        3 => source.random.below(0x100),
        2 => source.random.below(0x1_0000),
        _ => source.random.below(0x7fff_ffff),
    }
}

fn arithmetic(source: &mut Source) {
    let size = source.size();
    let (suffix, to) = (SUFFIXES[size], source.register(size));
    match source.random.below(6) {
        0 => {
            let (name, value) = (source.random.of(&BINARY), immediate(source, size));
            source.line(format!("{name}{suffix} ${value}, %{to}"));
        }
        1 => {
            let name = source.random.of(&UNARY);
            source.line(format!("{name}{suffix} %{to}"));
        }
        2 => {
            let name = source.random.of(&SHIFTS);
            let count = source.random.below(20) + 1;
            let by = if source.random.once_in(3) { "%cl".into() } else { format!("${count}") };
            source.line(format!("{name}{suffix} {by}, %{to}"));
        }
        3 => {
            let (name, from) = (source.random.of(&["imul", "popcnt", "bsr"]), source.register(0));
            let to = source.register(0);
            source.line(format!("{name}q %{from}, %{to}"));
        }
        _ => {
            let (name, from) = (source.random.of(&BINARY), source.register(size));
            source.line(format!("{name}{suffix} %{from}, %{to}"));
        }
    }
}

/// An operand in the data: by RIP, by a register, or by two.
fn operand(source: &mut Source) -> String {
    let offset = source.offset();
    match source.random.below(4) {
        0 | 1 => format!("data + {offset}(%rip)"),
        2 => {
            let base = source.register(0);
            source.line(format!("lea data(%rip), %{base}"));
            format!("{offset}(%{base})")
        }
        _ => {
            let base = source.register(0);
            let index = loop {
                let index = source.register(0);
                if index != base {
                    break index;
                }
            };
            source.line(format!("lea data - 1000(%rip), %{base}"));
            source.line(format!("movq ${}, %{index}", 125 + offset / 8));
            format!("(%{base},%{index},8)")
        }
    }
}

fn data(source: &mut Source) {
    let size = source.size();
    let suffix = SUFFIXES[size];
    let memory = operand(source);
    match source.random.below(7) {
        0 => {
            let (name, value) = (source.random.of(&BINARY), immediate(source, size));
            source.line(format!("{name}{suffix} ${value}, {memory}"));
        }
        1 => {
            let name = source.random.of(&UNARY);
            let lock = source.random.of(&["", "lock "]);
            source.line(format!("{lock}{name}{suffix} {memory}"));
        }
        2 => {
            let (name, register) = (source.random.of(&["xchg", "xadd"]), source.register(size));
            source.line(format!("{name}{suffix} %{register}, {memory}"));
        }
        3 => {
            let (name, to) =
                (source.random.of(&["movzbl", "movsbl", "movzwl"]), source.register(1));
            source.line(format!("{name} {memory}, %{to}"));
        }
        4 => {
            let (name, from) = (source.random.of(&BINARY), source.register(size));
            source.line(format!("{name}{suffix} %{from}, {memory}"));
        }
        5 => {
            let condition = source.random.of(&CONDITIONS);
            source.line(format!("set{condition} {memory}"));
        }
        _ => {
            let (name, to) = (source.random.of(&BINARY), source.register(size));
            source.line(format!("{name}{suffix} {memory}, %{to}"));
        }
    }
}

/// Reads or writes flags.
fn flags(source: &mut Source) {
    match source.random.below(6) {
        0 => {
            let (condition, to) = (source.random.of(&CONDITIONS), source.register(3));
            source.line(format!("set{condition} %{to}"));
        }
        1 => {
            let condition = source.random.of(&CONDITIONS);
            let (from, to) = (source.register(0), source.register(0));
            source.line(format!("cmov{condition}q %{from}, %{to}"));
        }
        2 => {
            let to = source.register(0);
            source.line("pushfq");
            source.line(format!("popq %{to}"));
            source.line(format!("andq ${FLAGS}, %{to}"));
        }
        3 => {
            let mask = source.random.next() & FLAGS;
            source.line("pushfq");
            source.line(format!("xorq ${mask}, (%rsp)"));
            source.line("popfq");
        }
        4 => source.line("lahf"),
        _ => {
            let name = source.random.of(&["clc", "stc", "cmc", "sahf"]);
            source.line(name);
        }
    }
}

fn vector(source: &mut Source) {
    let (a, b) = (source.random.below(4), source.random.below(4));
    let number = source.random.below(256);
    match source.random.below(7) {
        0 => {
            let memory = operand(source);
            source.line(format!("movups {memory}, %xmm{a}"));
        }
        1 => {
            let memory = operand(source);
            source.line(format!("movups %xmm{a}, {memory}"));
        }
        2 => source.line(format!("paddd constant(%rip), %xmm{a}")),
        3 => source.line(format!("pshufd ${number}, constant(%rip), %xmm{a}")),
        4 => source.line(format!("pxor %xmm{b}, %xmm{a}")),
        5 => {
            let from = source.register(0);
            source.line(format!("movq %{from}, %xmm{a}"));
        }
        _ => {
            let to = source.register(0);
            source.line(format!("movq %xmm{a}, %{to}"));
        }
    }
}

/// Pushes and pops, and goes to another stack and back.
fn stack(source: &mut Source) {
    let (a, b) = (source.register(0), source.register(0));
    let memory = format!("data + {}(%rip)", source.offset());
    let lines = match source.random.below(9) {
        0 => vec![format!("push %{a}"), format!("pop %{b}")],
        1 => vec![format!("pushq {memory}"), format!("pop %{b}")],
        2 => vec![format!("push %{a}"), format!("popq {memory}")],
        3 => vec!["push %rsp".into(), "pop %rsp".into()],
        4 => vec![format!("xchg %rsp, %{a}"), format!("xchg %{a}, %rsp")],
        5 => vec!["enter $24, $0".into(), "leave".into()],
        6 => vec![format!("push %{a}"), format!("addq $8, (%rsp)"), format!("pop %{b}")],
        7 => vec![
            format!("push ${}", source.random.below(1000)),
            format!("movw %{}, 3(%rsp)", source.register(2)),
            format!("pop %{b}"),
        ],
        _ => {
            let other = a;
            let pushed = if b == other { "r9" } else { b };
            vec![
                format!("mov %rsp, %{other}"),
                "lea other_stack_top(%rip), %rsp".into(),
                format!("push %{pushed}"),
                format!("pop %{pushed}"),
                format!("mov %{other}, %rsp"),
            ]
        }
    };
    for line in lines {
        source.line(line);
    }
}

fn string(source: &mut Source) {
    let count = source.random.of(&["0", "1", "2", "7", "31", "40"]);
    let (half, suffix) = (DATA_BYTES / 2, SUFFIXES[source.size()]);
    let backwards = source.random.once_in(5);
    let (from, to) = if backwards { (half / 2, half + half / 2) } else { (0, half) };
    source.line(format!("lea data + {from}(%rip), %rsi"));
    source.line(format!("lea data + {to}(%rip), %rdi"));
    source.line(format!("mov ${count}, %ecx"));
    if backwards {
        source.line("std");
    }
    let suffix = if suffix == "l" && source.random.once_in(2) { "b" } else { suffix };
    let name = source.random.of(&[
        "rep movs",
        "rep stos",
        "rep lods",
        "repe cmps",
        "repne cmps",
        "repe scas",
        "repne scas",
        "movs",
    ]);
    source.line(format!("{name}{suffix}"));
    if backwards {
        source.line("cld");
    }
}

fn red_zone(source: &mut Source) {
    let (a, b) = (source.register(0), source.register(0));
    let offset = (source.random.below(16) + 1) * 8;
    source.line(format!("mov %{a}, -{offset}(%rsp)"));
    if source.random.once_in(2) {
        // Over a branch.
        let (label, condition) = (source.label(), source.random.of(&CONDITIONS));
        source.line(format!("j{condition} {label}"));
        source.line(format!("addq $3, -{offset}(%rsp)"));
        source.place(&label);
    }
    source.line(format!("mov -{offset}(%rsp), %{b}"));
}

/// Addresses of code and data, by RIP and by a call.
fn address(source: &mut Source) {
    let (to, block) = (source.register(0), source.block());
    match source.random.below(4) {
        0 => source.line(format!("lea {block}(%rip), %{to}")),
        1 => {
            let offset = source.offset();
            source.line(format!("lea data + {offset}(%rip), %{to}"));
        }
        2 => source.line(format!("movslq {block}(%rip), %{to}")),
        _ => {
            let label = source.label();
            source.line(format!("call {label}"));
            source.place(&label);
            source.line(format!("pop %{to}"));
        }
    }
}

/// A loop of a few rounds, by RCX.
fn small_loop(source: &mut Source) {
    let (head, out) = (source.label(), source.label());
    let rounds = source.random.below(12) + 1;
    source.line(format!("mov ${rounds}, %ecx"));
    source.place(&head);
    let work = loop {
        let work = source.register(0);
        if work != "rcx" {
            break work;
        }
    };
    source.line(format!("adc $5, %{work}"));
    match source.random.below(6) {
        0 => source.line(format!("addr32 loop {head}")),
        1 => source.line(format!("loope {head}")),
        2 => source.line(format!("loopne {head}")),
        3 => {
            source.line(format!("jrcxz {out}"));
            source.line("lea -1(%rcx), %rcx");
            source.line(format!("jmp {head}"));
        }
        4 => {
            source.line(format!("jecxz {out}"));
            source.line("dec %ecx");
            source.line(format!("jnz {head}"));
        }
        _ => source.line(format!("loop {head}")),
    }
    source.place(&out);
}

/// Changes code, and runs it.
fn change(source: &mut Source) {
    let number = source.random.below(CHANGING_FUNCTIONS);
    let value = source.random.below(0x7fff_ffff);
    match source.random.below(9) {
        0 => source.line(format!("movl ${value}, changed_{number} + 1(%rip)")),
        1 => source.line(format!("movb ${}, changed_{number} + 2(%rip)", value & 0xff)),
        2 => source.line(format!("lock incl changed_{number} + 1(%rip)")),
        3 => {
            let from = source.register(1);
            source.line(format!("xchg %{from}, changed_{number} + 1(%rip)"));
        }
        4 => {
            // CLC, STC, CMC, NOP, CLD.
            let byte = source.random.of(&["0xf8", "0xf9", "0xf5", "0x90", "0xfc"]);
            let count = source.random.below(32);
            source.line("lea sled(%rip), %rdi");
            source.line(format!("mov ${byte}, %eax"));
            source.line(format!("mov ${count}, %ecx"));
            source.line("rep stosb");
        }
        5 => {
            // Code comes by pushes.
            let (other, code) = (source.register(0), source.random.of(&["r11", "rcx", "r8"]));
            let other = if other == code { "rdx" } else { other };
            source.line(format!("mov %rsp, %{other}"));
            source.line(format!("movabs $0x90f8f990f5f990fc, %{code}"));
            source.line("lea sled + 16(%rip), %rsp");
            source.line(format!("push %{code}"));
            source.line(format!("mov %{other}, %rsp"));
        }
        6 if source.in_changing => {
            let label = source.label();
            let to = source.register(1);
            let distance = if to.starts_with('r') { 2 } else { 1 };
            source.line(format!("movl ${value}, {label} + {distance}(%rip)"));
            source.place(&label);
            source.line(format!("movl $1, %{to}"));
        }
        7 => {
            // A function is copied over another.
            let from = source.random.below(CHANGING_FUNCTIONS - 1);
            source.line(format!("lea changed_{from}(%rip), %rsi"));
            source.line("lea changed_0(%rip), %rdi");
            source.line("mov $6, %ecx");
            source.line("rep movsb");
        }
        _ => source.line(format!("movups %xmm{}, data + 1000(%rip)", number & 3)),
    }
    let callee = if source.random.once_in(3) { "sled".into() } else { format!("changed_{number}") };
    if source.random.once_in(2) {
        source.line(format!("call {callee}"));
    } else {
        let by = REGISTERS[usize::try_from(source.random.below(15)).unwrap()][0];
        source.line(format!("lea {callee}(%rip), %{by}"));
        source.line(format!("call *%{by}"));
    }
}
