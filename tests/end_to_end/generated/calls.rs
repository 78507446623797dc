//! System calls whose results are the same each time.

use super::source::Source;

const WRITE: u32 = 1;
const MMAP: u32 = 9;
const MPROTECT: u32 = 10;
const MUNMAP: u32 = 11;
const SIGPROCMASK: u32 = 14;
const MADVISE: u32 = 28;
const SCHED_YIELD: u32 = 24;
const GETPPID_OF_NONE: u32 = 999;

/// Writes a system call.
pub(super) fn call(source: &mut Source) {
    match source.random.below(8) {
        0 => number(source, SCHED_YIELD),
        1 => number(source, GETPPID_OF_NONE),
        2 => {
            source.line("xor %edx, %edx");
            source.line("mov $77, %edi");
            number(source, WRITE);
        }
        3 => {
            // The signals that are blocked: none.
            source.line("xor %edi, %edi");
            source.line("xor %esi, %esi");
            source.line("lea data + 64(%rip), %rdx");
            source.line("mov $8, %r10d");
            number(source, SIGPROCMASK);
        }
        4 if source.habits.changes => {
            // Code loses its permission to be written, and has it again.
            for protection in [5, 7] {
                source.line("lea changed_functions(%rip), %rdi");
                source.line("mov $4096, %esi");
                source.line(format!("mov ${protection}, %edx"));
                number(source, MPROTECT);
                source.line("call changed_1");
            }
        }
        5 if source.habits.changes => fresh_code(source),
        6 => {
            source.line("lea data(%rip), %rdi");
            source.line("mov $16, %esi");
            source.line("xor %edx, %edx");
            number(source, MADVISE);
        }
        _ => {
            // Bits of RAX beyond the number's do not count.
            source.line("xor %edi, %edi");
            source.line("xor %esi, %esi");
            source.line(format!("mov $0x1234567800000000 + {MUNMAP}, %rax"));
            source.line("syscall");
        }
    }
}

fn number(source: &mut Source, number: u32) {
    source.line(format!("mov ${number}, %eax"));
    source.line("syscall");
}

/// A function in new memory, at a fixed address.
fn fresh_code(source: &mut Source) {
    let value = source.random.below(0x7fff_ffff);
    source.line("mov $0x10000000, %rdi");
    source.line("mov $4096, %esi");
    source.line("mov $7, %edx");
    source.line("mov $0x32, %r10d"); // private, anonymous, fixed
    source.line("mov $-1, %r8");
    source.line("xor %r9d, %r9d");
    number(source, MMAP);
    source.line("movb $0xb8, (%rax)");
    source.line(format!("movl ${value}, 1(%rax)"));
    source.line("movb $0xc3, 5(%rax)");
    source.line("call *%rax");
    if source.random.once_in(2) {
        source.line("mov %rax, %rbx");
        source.line("mov $0x10000000, %rdi");
        source.line("mov $4096, %esi");
        number(source, MUNMAP);
    }
}
