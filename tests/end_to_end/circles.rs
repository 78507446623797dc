//! Code that runs in circles of direct branches: made up at random, and walked by gdb.

use crate::support::{Scene, answer, assert_in_order, have};
use std::fmt::Write;

/// The text of a C file with the functions `bodies`, which never return: see
/// `tests/programs/random_circles.c`.
pub(crate) fn bodies(seed: u64, count: usize) -> String {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut text = String::new();
    for number in 0..count {
        let code = body(&mut random, number);
        writeln!(text, "static void body_{number}(void)\n{{\n    __asm__ volatile({code}").unwrap();
        writeln!(text, "        : : \"r\"(body_stack), \"r\"(body_page));\n}}\n").unwrap();
    }
    let names: Vec<_> = (0..count).map(|number| format!("body_{number}")).collect();
    writeln!(text, "static void (*const bodies[])(void) = {{ {} }};", names.join(", ")).unwrap();
    text
}

fn body(random: &mut Random, number: usize) -> String {
    let blocks = 1 + random.below(6);
    let mut code = line("mov %0, %%rsp") + &line("mov %1, %%rbx") + &line("mov $5, %%ecx");
    for block in 0..blocks {
        let label = |block| format!(".Lbody_{number}_{block}");
        code += &line(&format!("{}:", label(block)));
        for _ in 0..random.below(4) {
            code += &line(
                ["nop", "lea 1(%%rdx), %%rdx", "inc %%ecx", "test %%ecx, %%edx"][random.below(4)],
            );
        }
        let target = label(random.below(blocks));
        let tail = match random.below(20) {
            0..8 => format!("jmp {target}"),
            8..11 => format!("call {target}"),
            11 => format!("dec %%ecx\\n jz {target}"),
            12 => format!("jp {target}"),
            13 => format!("lea {target}(%%rip), %%rax\\n jmp *%%rax"),
            14 => format!("lea {target}(%%rip), %%rax\\n push %%rax\\n ret"),
            15 => format!("call 1f\\n jmp {target}\\n 1: ret"),
            16 => format!("ud2\\n jmp {target}"),
            17 => format!("incb (%%rbx)\\n jmp {target}"),
            18 => format!("mov $3, %%ecx\\n lea -3(%%rsp), %%rdi\\n rep stosb\\n jmp {target}"),
            _ => format!("mov $39, %%eax\\n syscall\\n jmp {target}"),
        };
        code += &line(&tail);
    }
    // The last block may go straight on.
    code + &line(&format!("jmp .Lbody_{number}_0"))
}

fn line(code: &str) -> String {
    format!("\n        \"{code}\\n\"")
}

/// A small generator of reproducible random numbers (xorshift64*).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let number = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33;
        usize::try_from(number).expect("64-bit") % limit
    }
}

/// The recursion has only direct calls: all its rounds are in the path, and the end is the end.
#[test]
fn the_whole_of_an_endless_recursion() {
    if !have("gcc") || !have("gdb") {
        return;
    }
    let scene = Scene::new();
    let program = scene.compile("overflow.c", &["-O0"]);
    let recorded = scene.record(&[program.to_str().unwrap()]);
    let log = recorded.logged(recorded.main_thread());
    let output = recorded.gdb(
        "print/x $pc
         print depth
         backtrace -2
         frame 100
         reverse-stepi
         print/x $pc
         break main
         reverse-continue
         backtrace",
    );
    let depth = answer(&output, "print depth", 0).split(" = ").nth(1).unwrap();
    let depth: usize = depth.parse().unwrap();
    assert!(depth > 1000, "{depth}");
    // One frame each, that of main, and perhaps one that found no room.
    let outermost = answer(&output, "backtrace -2", 0);
    assert_in_order(outermost, &["in endless", "in main"]);
    let main = [depth + 1, depth + 2].map(|number| format!("#{number} "));
    assert!(main.iter().any(|number| outermost.contains(number.as_str())), "{depth}: {outermost}");
    assert_in_order(answer(&output, "frame 100", 0), &["#100 ", "in endless"]);
    let pc = answer(&output, "print/x $pc", 1).split("0x").nth(1).unwrap();
    assert_eq!(u64::from_str_radix(pc, 16).ok(), log.last().copied());
    assert_in_order(answer(&output, "backtrace", 0), &["#0  main"]);
}
