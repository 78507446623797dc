//! The same traces through Intel's reference decoder, whole and damaged. Skips, and says so,
//! where gcc or libipt is not installed.

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
            // Not eprintln!, which the test harness swallows.
            let _ = std::io::Write::write_fmt(
                &mut std::io::stderr(),
                format_args!(
                    "SKIPPED: gcc or libipt-dev is not installed; nothing to compare with\n"
                ),
            );
        }
        compiled.then_some(Self { dir, program })
    }

    /// The instructions that it lists, and how often it loses the path.
    fn decode(&self, trace: &[u8], program: &Program) -> (Vec<Addr>, usize) {
        self.decode_damaged(trace, program).expect("the reference decoder reads what is whole")
    }

    /// The same of what may be damaged. None where it dies of that: 2.0.5 has a fault.
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

    /// What its instruction decoder lists. None from 2.1 on, where that is the block decoder.
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

/// The instructions of a block of the reference decoder, which goes on through direct branches.
fn expand(code: &mut Code<'_>, mode: ExecMode, ip: &str, count: &str, addrs: &mut Vec<Addr>) {
    let mut ip = Addr(u64::from_str_radix(ip, 16).expect("an address"));
    for _ in 0..count.parse().expect("a count") {
        addrs.push(ip);
        // It reads on over bytes that are no instruction, where a fault led it astray.
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
    // It takes straight code up to the address of a TIP.PGD for a branch there: no ranges.
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

/// Programs that are in circles of direct branches most of the time: a unit that tells circles
/// leaves no round out, for either decoder. To the reference block decoder a TIP.PGD with an
/// address is a place that is reached, and not the branch there, so it leaves out the rounds of a
/// branch to itself; the reference instruction decoder does not.
#[test]
fn circles_decode_alike() {
    let reference = Reference::build();
    let (mut told, mut of_blocks) = (0, 0);
    for seed in 0..300 {
        let (program, traced) = circling_run(seed, true);
        let ours = whole(&traced.trace, &program);
        assert_eq!(first_difference(&ours.addrs, &traced.addrs), None, "seed {seed}");
        assert_eq!(ours.gaps.len(), 0, "seed {seed}");
        let (_, untold) = circling_run(seed, false);
        told += usize::from(untold.trace.len() < traced.trace.len());
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
    assert!(told > 100, "circles in {told} programs only");
    assert!(of_blocks > 100 || reference.is_none(), "{of_blocks} programs only");
}

fn circling_run(seed: u64, tell: bool) -> (Program, Traced) {
    let mut random = Random::new(seed);
    let runs = 2 + random.below(12);
    let program = Program::circling(&mut random, runs);
    let mut config = any_unit(&mut random);
    config.tell_circles = tell;
    let traced = execute(&program, seed, 2000, config, Mishaps::default());
    (program, traced)
}

/// It does not know that a PSB+ behind an OVF tells where tracing goes on: traces that it does not
/// follow to the end are left out.
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

/// Damaged traces, with overflows in some: we agree with what was executed from the next PSB on,
/// and so does the reference, which may notice damage as late as there and then goes on at the one
/// behind it. Before that they differ in how much each keeps of what came before the fault.
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
        let behind = whole(&traced.trace[second..], &program).addrs;
        // See overflows_decode_alike for what it does not follow.
        let Some((_, 0)) = reference.decode_damaged(&traced.trace[second..], &program) else {
            continue;
        };
        let Some((theirs, _)) = reference.decode_damaged(&traced.trace, &program) else { continue };
        assert!(theirs.ends_with(&behind), "seed {seed}");
        compared += 1;
    }
    assert!(compared > 100, "only {compared} compared");
}
