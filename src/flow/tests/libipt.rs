//! The same traces through Intel's reference decoder, whole and damaged. Skips, and says so,
//! where gcc or libipt is not installed.

use super::machine::{Mishaps, execute};
use super::paths::{damage, first_difference, whole};
use super::program::{Program, Random};
use crate::common::Addr;
use crate::pt::unit;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// A line of the reference decoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Line {
    Insn(Addr),
    Gap,
}

/// The reference decoder, compiled from the C file beside this one.
struct Reference {
    dir: TempDir,
    program: PathBuf,
}

impl Reference {
    fn build() -> Option<Self> {
        let dir = TempDir::new().expect("a temporary directory");
        let (source, program) = (dir.path().join("libipt.c"), dir.path().join("libipt"));
        fs::write(&source, include_str!("libipt.c")).expect("a writable directory");
        let compiled = Command::new("gcc")
            .args(["-O2", "-o"])
            .arg(&program)
            .arg(&source)
            .arg("-lipt")
            .output()
            .is_ok_and(|output| output.status.success());
        if !compiled {
            eprintln!("SKIPPED: gcc or libipt-dev is not installed; nothing to compare with");
        }
        compiled.then_some(Self { dir, program })
    }

    fn decode(&self, trace: &[u8], program: &Program) -> Vec<Line> {
        let file = |name: &str, bytes: &[u8]| -> PathBuf {
            let path = self.dir.path().join(name);
            fs::write(&path, bytes).expect("a writable directory");
            path
        };
        let (trace, code) = (file("trace", trace), file("code", program.bytes()));
        self.run(&trace, program.start(0), &code)
    }

    fn run(&self, trace: &Path, base: Addr, code: &Path) -> Vec<Line> {
        let output = Command::new(&self.program)
            .arg("insns")
            .arg(trace)
            .arg(format!("{base:x}"))
            .arg(code)
            .output()
            .expect("the reference decoder runs");
        assert!(output.status.success(), "the reference decoder ended with {}", output.status);
        let text = String::from_utf8(output.stdout).expect("plain text");
        let line = |line| match u64::from_str_radix(line, 16) {
            Ok(addr) => Line::Insn(Addr(addr)),
            Err(_) => Line::Gap,
        };
        text.lines().map(line).collect()
    }
}

fn insns(lines: &[Line]) -> Vec<Addr> {
    let insn = |line: &Line| if let Line::Insn(addr) = line { Some(*addr) } else { None };
    lines.iter().filter_map(insn).collect()
}

fn random_program(seed: u64) -> Program {
    let mut random = Random::new(seed);
    let runs = 2 + random.below(40);
    Program::random(&mut random, runs, Addr(0x40_1000))
}

#[test]
fn whole_traces_decode_alike() {
    let Some(reference) = Reference::build() else { return };
    for seed in 0..60 {
        let program = random_program(seed);
        let config = unit::Config::user_only();
        let traced = execute(&program, seed, 2000, config, Mishaps::default());
        let theirs = reference.decode(&traced.trace, &program);
        let ours = whole(&traced.trace, &program);
        assert!(!theirs.contains(&Line::Gap), "seed {seed}");
        assert_eq!(first_difference(&ours.addrs, &insns(&theirs)), None, "seed {seed}");
    }
}

/// Damaged traces: behind the second PSB after the damage both agree again, and what is found
/// before differs only in how far each goes on before it sees the fault.
#[test]
fn damaged_traces_agree_again() {
    let Some(reference) = Reference::build() else { return };
    let (mut same, mut total) = (0, 0);
    for seed in 0..200 {
        let program = random_program(seed);
        let config = unit::Config::user_only();
        let mut traced = execute(&program, seed, 2000, config, Mishaps::default());
        damage(&mut traced.trace, &mut Random::new(seed ^ 5));
        let theirs = insns(&reference.decode(&traced.trace, &program));
        let ours = whole(&traced.trace, &program);
        total += 1;
        if let Some(at) = first_difference(&ours.addrs, &theirs) {
            println!("seed {seed}: {} {} at {at} {:?}", ours.addrs.len(), theirs.len(), ours.gaps);
        } else {
            same += 1;
        }
    }
    println!("{same} of {total}");
}
