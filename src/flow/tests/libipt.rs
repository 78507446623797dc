//! Decodes the same traces with Intel's reference decoder, intact and damaged. Prints a notice and
//! skips if gcc or libipt is not installed.

use super::machine::{Mishaps, Traced, execute};
use super::paths::{any_unit, damage, first_difference, whole};
use super::program::{Program, Random};
use crate::common::Addr;
use crate::flow::Code;
use crate::insn::{Class, ExecMode};
use crate::pt::find_psb;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::Command;
use tempfile::TempDir;

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
            // Not eprintln!, which the test harness captures.
            let _ = std::io::Write::write_fmt(
                &mut std::io::stderr(),
                format_args!(
                    "SKIPPED: gcc or libipt-dev is not installed; nothing to compare with\n"
                ),
            );
        }
        compiled.then_some(Self { dir, program })
    }

    /// Returns the addresses of the instructions that the reference lists, and how often it loses
    /// the path.
    fn decode(&self, trace: &[u8], program: &Program) -> (Vec<Addr>, usize) {
        self.decode_damaged(trace, program).expect("the reference decoder reads what is whole")
    }

    /// Decodes a possibly damaged trace. Returns `None` if the decoder crashes on it: 2.0.5 has a
    /// bug.
    fn decode_damaged(&self, trace: &[u8], program: &Program) -> Option<(Vec<Addr>, usize)> {
        let text = self.run("list", trace, program)?;
        let mut code = Code::new(program);
        let (mut addrs, mut gaps) = (Vec::new(), 0);
        for line in text.lines() {
            match line.split_once(' ') {
                Some((ip, count)) => expand(&mut code, program.mode(), ip, count, &mut addrs),
                None => gaps += 1,
            }
        }
        Some((addrs, gaps))
    }

    /// Returns the addresses that the reference's instruction decoder lists; `None` from libipt 2.1
    /// on, where that is the block decoder.
    fn step(&self, trace: &[u8], program: &Program) -> Option<Vec<Addr>> {
        let text = self.run("step", trace, program)?;
        let addr = |line| u64::from_str_radix(line, 16).map(Addr).expect("an address");
        (text != "too new\n").then(|| text.lines().map(addr).collect())
    }

    fn run(&self, mode: &str, trace: &[u8], program: &Program) -> Option<String> {
        let file = |name: &str, bytes: &[u8]| -> PathBuf {
            let path = self.dir.path().join(name);
            fs::write(&path, bytes).expect("a writable directory");
            path
        };
        let output = Command::new(&self.program)
            .arg(mode)
            .arg(file("trace", trace))
            .arg(format!("{:x}", program.start(0)))
            .arg(file("code", program.bytes()))
            .output()
            .expect("the reference decoder runs");
        let status = output.status;
        assert!(status.success() || status.signal().is_some(), "the reference ended with {status}");
        status.success().then(|| String::from_utf8(output.stdout).expect("plain text"))
    }
}

/// Lists the instructions of a block of the reference decoder, which extends through direct
/// branches.
fn expand(code: &mut Code<'_>, mode: ExecMode, ip: &str, count: &str, addrs: &mut Vec<Addr>) {
    let mut ip = Addr(u64::from_str_radix(ip, 16).expect("an address"));
    for _ in 0..count.parse().expect("a count") {
        addrs.push(ip);
        // After a fault, the reference may read on over bytes that are not an instruction.
        let Some(insn) = code.insns(ip, mode, 1).next() else { return };
        ip = match insn.class {
            Class::Jmp { target } | Class::Call { target } => target,
            _ => insn.next(),
        };
    }
}

fn random_run(seed: u64, mishaps: Mishaps) -> (Program, Traced) {
    let mut random = Random::new(seed);
    let runs = 2 + random.below(40);
    let program = Program::random(&mut random, runs);
    // No ranges: the reference takes straight code up to the address of a TIP.PGD for a branch
    // there.
    let config = any_unit(&mut random);
    let traced = execute(&program, seed, 2000, config, mishaps);
    (program, traced)
}

#[test]
fn whole_traces_decode_alike() {
    let Some(reference) = Reference::build() else { return };
    for seed in 0..100 {
        let (program, traced) = random_run(seed, Mishaps::default());
        let theirs = reference.decode(&traced.trace, &program);
        let ours = whole(&traced.trace, &program);
        assert_eq!(first_difference(&ours.addrs, &theirs.0), None, "seed {seed}");
        assert_eq!((ours.gaps.len(), theirs.1), (0, 0), "seed {seed}");
    }
}

/// Decodes programs that are mostly in loops of direct branches: a unit that reports loops omits no
/// round, for either decoder. The reference block decoder takes the address of a TIP.PGD as a place
/// to reach, not as the branch there, so it omits the rounds of a branch to itself; the reference
/// instruction decoder does not.
#[test]
fn circles_decode_alike() {
    let reference = Reference::build();
    let (mut reported, mut of_blocks) = (0, 0);
    for seed in 0..300 {
        let (program, traced) = circling_run(seed, true);
        let ours = whole(&traced.trace, &program);
        assert_eq!(first_difference(&ours.addrs, &traced.addrs), None, "seed {seed}");
        assert_eq!(ours.gaps.len(), 0, "seed {seed}");
        let (_, untold) = circling_run(seed, false);
        reported += usize::from(untold.trace.len() < traced.trace.len());
        let Some(reference) = &reference else { continue };
        if !program.has_branch_to_itself() {
            let theirs = reference.decode(&traced.trace, &program);
            assert_eq!(first_difference(&ours.addrs, &theirs.0), None, "seed {seed}");
            assert_eq!(theirs.1, 0, "seed {seed}");
            of_blocks += 1;
        }
        if let Some(theirs) = reference.step(&traced.trace, &program) {
            assert_eq!(first_difference(&ours.addrs, &theirs), None, "seed {seed}");
        }
    }
    assert!(reported > 100, "circles in {reported} programs only");
    assert!(of_blocks > 100 || reference.is_none(), "{of_blocks} programs only");
}

fn circling_run(seed: u64, report: bool) -> (Program, Traced) {
    let mut random = Random::new(seed);
    let runs = 2 + random.below(12);
    let program = Program::circling(&mut random, runs);
    let mut config = any_unit(&mut random);
    config.report_circles = report;
    let traced = execute(&program, seed, 2000, config, Mishaps::default());
    (program, traced)
}

/// Omits traces that the reference does not follow to the end: it does not know that a PSB+ after
/// an OVF gives the IP where tracing resumes.
#[test]
fn overflows_decode_alike() {
    let Some(reference) = Reference::build() else { return };
    let mut compared = 0;
    for seed in 0..200 {
        let (program, traced) = random_run(seed, Mishaps { overflow: 300, ..Mishaps::default() });
        let theirs = reference.decode(&traced.trace, &program);
        if theirs.1 == 0 {
            let ours = whole(&traced.trace, &program);
            assert_eq!(first_difference(&ours.addrs, &theirs.0), None, "seed {seed}");
            compared += 1;
        }
    }
    assert!(compared > 20, "only {compared} compared");
}

/// Decodes damaged traces, some with overflows. From the next PSB on, our path is the executed one,
/// and so is the reference's; it may detect the damage only there, and then resumes at the PSB
/// after it. Up to the fault, the decoders differ in how much they keep.
#[test]
fn damaged_traces_agree_again() {
    let Some(reference) = Reference::build() else { return };
    let mut compared = 0;
    for seed in 0..200 {
        let overflow = if seed % 2 == 0 { usize::MAX } else { 300 };
        let (program, mut traced) = random_run(seed, Mishaps { overflow, ..Mishaps::default() });
        let whole_from = damage(&mut traced.trace, &mut Random::new(seed ^ 5));
        let Some(next) = find_psb(&traced.trace, whole_from) else { continue };
        let ours = whole(&traced.trace, &program).addrs;
        assert!(ours.ends_with(&whole(&traced.trace[next..], &program).addrs), "seed {seed}");
        let Some(second) = find_psb(&traced.trace, next + 1) else { continue };
        let following = whole(&traced.trace[second..], &program).addrs;
        // See overflows_decode_alike for what it does not follow.
        let Some((_, 0)) = reference.decode_damaged(&traced.trace[second..], &program) else {
            continue;
        };
        let Some((theirs, _)) = reference.decode_damaged(&traced.trace, &program) else { continue };
        assert!(theirs.ends_with(&following), "seed {seed}");
        compared += 1;
    }
    assert!(compared > 100, "only {compared} compared");
}
