//! Traps, faults and signals, which the program's handler lets go on.

use super::source::Source;

/// Writes something that raises a signal.
pub(super) fn fault(source: &mut Source) {
    match source.random.below(11) {
        0 => source.line("int3"),
        1 => source.line(".byte 0xcd, 3"),
        2 => resumed(source, &["ud2"]),
        3 => resumed(source, &["xor %ecx, %ecx", "div %ecx"]),
        4 => resumed(source, &["mov 0x10, %rax"]),
        5 => resumed(source, &["movl $1, constant(%rip)"]),
        6 => resumed(source, &["hlt"]),
        7 => resumed(source, &["mov $0x8000000000000000, %r11", "mov (%r11), %rdx"]),
        8 => away(source),
        9 => half_done(source),
        _ => own_signal(source),
    }
}

/// The handler goes on behind the instructions.
fn resumed(source: &mut Source, lines: &[&str]) {
    let behind = source.label();
    let register = source.register(0);
    source.line(format!("lea {behind}(%rip), %{register}"));
    source.line(format!("mov %{register}, resume(%rip)"));
    for line in lines {
        source.line(line);
    }
    source.place(&behind);
}

/// A branch to where no code is.
fn away(source: &mut Source) {
    let register = source.register(0);
    let target = source.random.of(&["0x10", "data"]);
    let behind = source.label();
    source.line(format!("lea {behind}(%rip), %{register}"));
    source.line(format!("mov %{register}, resume(%rip)"));
    if target == "data" {
        source.line(format!("lea data(%rip), %{register}"));
    } else {
        source.line(format!("mov ${target}, %{register}"));
    }
    match source.random.below(3) {
        0 => source.line(format!("jmp *%{register}")),
        1 => {
            source.line(format!("push %{register}"));
            source.line("ret");
        }
        _ => {
            source.line(format!("call *%{register}"));
            source.place(&behind);
            source.line("lea 8(%rsp), %rsp");
            return;
        }
    }
    source.place(&behind);
}

/// A string instruction that comes to the end of what is mapped.
fn half_done(source: &mut Source) {
    resumed(source, &["lea forbidden - 16(%rip), %rdi", "mov $100, %ecx", "rep stosb"]);
}

fn own_signal(source: &mut Source) {
    source.line("mov pid(%rip), %rdi");
    source.line("mov tid(%rip), %rsi");
    source.line("mov $10, %edx");
    source.line("mov $234, %eax"); // tgkill
    source.line("syscall");
    source.line("mov $1, %edi");
    source.line("mov $2, %esi");
}
