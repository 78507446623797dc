//! How a block ends: every kind of branch, each of which may lead to any block.

use super::source::{CONDITIONS, Source, TABLE_ENTRIES};

/// Writes the end of a block.
pub(super) fn branch(source: &mut Source, number: u64) {
    let target = source.block();
    match source.random.below(14) {
        0 => {}
        1 => jump(source, &target),
        2..5 => conditional(source, &target),
        5 => short(source, &target),
        6 => by_register(source, "jmp", &target),
        7 => by_register(source, "call", &target),
        8 => by_memory(source, "jmp"),
        9 => by_memory(source, "call"),
        10 => {
            let long = long(source);
            source.line(format!("{long}call {target}"));
        }
        11 => returns(source),
        12 => elsewhere(source, &target),
        _ => retpoline(source, &target),
    }
    if number + 1 == source.blocks {
        source.line("jmp first_block");
    }
}

fn long(source: &mut Source) -> &'static str {
    source.random.of(&["", "{disp32} "])
}

fn jump(source: &mut Source, target: &str) {
    let long = long(source);
    source.line(format!("{long}jmp {target}"));
}

fn conditional(source: &mut Source, target: &str) {
    let (condition, long) = (source.random.of(&CONDITIONS), long(source));
    source.line(format!("{long}j{condition} {target}"));
    if source.random.once_in(3) {
        let (condition, other) = (source.random.of(&CONDITIONS), source.block());
        source.line(format!("j{condition} {other}"));
    }
}

/// Branches of a byte's reach lead over a jump.
fn short(source: &mut Source, target: &str) {
    let name = source.random.of(&["loop", "loope", "loopne", "jrcxz", "jecxz", "addr32 loop"]);
    let (label, other) = (source.label(), source.block());
    source.line(format!("{name} {label}"));
    source.line(format!("jmp {target}"));
    source.place(&label);
    if source.random.once_in(2) {
        source.line(format!("jmp {other}"));
    }
}

fn by_register(source: &mut Source, name: &str, target: &str) {
    let (register, notrack) = (source.register(0), source.random.of(&["", "", "notrack "]));
    source.line(format!("lea {target}(%rip), %{register}"));
    source.line(format!("{notrack}{name} *%{register}"));
}

fn by_memory(source: &mut Source, name: &str) {
    let entry = source.random.below(TABLE_ENTRIES);
    let register = source.register(0);
    match source.random.below(5) {
        0 | 1 => source.line(format!("{name} *table + {}(%rip)", entry * 8)),
        2 => {
            source.line(format!("lea table(%rip), %{register}"));
            source.line(format!("{name} *{}(%{register})", entry * 8));
        }
        3 => {
            let base = if register == "r11" { "rdx" } else { "r11" };
            source.line(format!("lea table(%rip), %{base}"));
            source.line(format!("mov ${entry}, %{register}"));
            let (base, index) = if register == base { ("r8", register) } else { (base, register) };
            if base == "r8" {
                source.line("lea table(%rip), %r8");
            }
            source.line(format!("{name} *(%{base},%{index},8)"));
        }
        _ => {
            // A call pushes over its own operand.
            source.line(format!("pushq table + {}(%rip)", entry * 8));
            source.line("lea 8(%rsp), %rsp");
            source.line(format!("{name} *-8(%rsp)"));
        }
    }
}

fn returns(source: &mut Source) {
    match source.random.below(3) {
        0 => {
            let bytes = source.random.below(4) * 8;
            source.line(format!("ret ${bytes}"));
        }
        1 => source.line("rep ret"),
        _ => source.line("ret"),
    }
}

/// A return that no call belongs to.
fn elsewhere(source: &mut Source, target: &str) {
    let register = source.register(0);
    source.line(format!("lea {target}(%rip), %{register}"));
    if source.random.once_in(2) {
        source.line(format!("xchg %{register}, (%rsp)"));
    } else {
        source.line(format!("push %{register}"));
    }
    source.line("ret");
}

fn retpoline(source: &mut Source, target: &str) {
    let (here, trap, register) = (source.label(), source.label(), source.register(0));
    source.line(format!("lea {target}(%rip), %{register}"));
    source.line(format!("call {here}"));
    source.place(&trap);
    source.line("pause");
    source.line("lfence");
    source.line(format!("jmp {trap}"));
    source.place(&here);
    source.line(format!("mov %{register}, (%rsp)"));
    source.line("ret");
}
