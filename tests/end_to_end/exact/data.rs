//! Random commands of gdb with data: places and values on an exact recording are those of gdb's own
//! `record full`, in both directions.

use crate::support::{Random, have};
use crate::wander::Walk;

const FUNCTIONS: [&str; 5] = ["add", "descend", "link_up", "halve", "turn"];
const VALUES: [&str; 15] = [
    "total",
    "calls",
    "depth",
    "table",
    "table[3]",
    "text",
    "points",
    "points[1].x",
    "*first",
    "number",
    "color",
    "flags",
    "mean",
    "total * 2 + calls",
    "$rip",
];
/// Those that a watchpoint of the CPU can watch.
const WATCHED: [&str; 9] = [
    "total",
    "calls",
    "depth",
    "table[3]",
    "points[1].x",
    "number.real",
    "color",
    "flags",
    "text[2]",
];
const CONDITIONS: [&str; 5] =
    ["calls % 5 == 2", "total > 300", "color == GREEN", "flags & 4", "depth >= 2"];
const MEMORY: [&str; 6] =
    ["x/8gd table", "x/s text", "x/6xw points", "x/2i $pc", "x/8xb &number", "x/2gx &number"];
const REGISTERS: &str = "info registers rax rbx rcx rdx rsi rdi rbp rsp r8 r9 r10 r11 r12 r13 r14 \
                         r15 rip";
/// gdb's own recording does not restore registers that a MOV with a REX.B prefix changed.
const FIXED: [&str; 8] = [
    "-ffixed-r8",
    "-ffixed-r9",
    "-ffixed-r10",
    "-ffixed-r11",
    "-ffixed-r12",
    "-ffixed-r13",
    "-ffixed-r14",
    "-ffixed-r15",
];
const MOVES: [&str; 13] = [
    "reverse-step",
    "reverse-next",
    "reverse-finish",
    "reverse-stepi",
    "reverse-nexti",
    "reverse-continue",
    "step",
    "next",
    "finish",
    "stepi",
    "nexti",
    "until",
    "continue",
];

/// Returns a command by chance. One in so many sets or deletes a stop, or prints something.
fn command(random: &mut Random) -> String {
    let any = |list: &[&str], random: &mut Random| list[random.below(list.len())].to_owned();
    match random.below(20) {
        0 => format!("break {}", any(&FUNCTIONS, random)),
        1 => format!("break {} if {}", any(&FUNCTIONS, random), any(&CONDITIONS, random)),
        2 => format!("tbreak {}", any(&FUNCTIONS, random)),
        3 => format!("watch {}", any(&WATCHED, random)),
        4 => format!("watch {} if {}", any(&WATCHED, random), any(&CONDITIONS, random)),
        5 => "delete".to_owned(),
        6 => format!("advance {}", any(&FUNCTIONS, random)),
        7 | 8 => format!("print {}", any(&VALUES, random)),
        9 => any(&MEMORY, random),
        10 => REGISTERS.to_owned(),
        11 | 12 => "reverse-continue".to_owned(),
        _ => any(&MOVES, random),
    }
}

/// Walks with so many commands each. Returns the number of lines that were compared, or skipped since gdb
/// is no measure on this CPU.
fn walk(seeds: std::ops::Range<u64>, count: usize) -> usize {
    let (mut compared, mut wrong) = (0, Vec::new());
    for seed in seeds.filter(|_| have("gcc") && have("gdb")) {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let commands: Vec<String> = (0..count).map(|_| command(&mut random)).collect();
        let flags = if seed % 2 == 0 { "-O0" } else { "-Og" };
        let flags = [&[flags, "-w"], FIXED.as_slice()].concat();
        let ([wanted, ours], skipped) = Walk::new("exact/data.c", &flags, &commands).with_values();
        compared += wanted.len() + skipped;
        if let Some(first) = (0..wanted.len()).find(|line| ours.get(*line) != wanted.get(*line)) {
            let around = |lines: &[String]| {
                let lines: Vec<_> = lines.iter().skip(first.saturating_sub(8)).take(10).collect();
                lines.into_iter().fold(String::new(), |text, line| text + line + "\n")
            };
            wrong.push(format!(
                "seed {seed} {flags:?}, line {first}:\n{}by gdb:\n{}of {commands:?}",
                around(&ours),
                around(&wanted)
            ));
        }
    }
    assert!(wrong.is_empty(), "{} walks are others:\n{}", wrong.len(), wrong.join("\n"));
    compared
}

#[test]
fn values_are_those_of_gdbs_own_recording() {
    assert!(walk(1..2, 30) > 30 || !have("gdb"));
}

#[test]
#[ignore = "takes minutes: make check-long"]
fn many_values_are_those_of_gdbs_own_recording() {
    println!("{} lines are alike", walk(2..32, 30));
}
