//! Random programs, of every kind of branch and much of what stands between branches: translated,
//! they take the path that stepping shows, and print what they print by themselves.
//!
//! `CONTRAFLOW_SEEDS=1000-1999` runs others than the few of each day.

mod branches;
mod calls;
mod faults;
mod operations;
mod random;
mod source;

use crate::comparison::{first_difference, native, path_of, record, same_output};
use crate::support::{Scene, have, text};
use source::Habits;
use std::path::{Path, PathBuf};
use std::process::Command;

/// How a program is linked.
const STATIC: &[&str] = &["-nostdlib", "-static", "-no-pie", "-DENTRY=_start"];
const STATIC_PIE: &[&str] = &["-nostdlib", "-static-pie", "-DENTRY=_start"];
const DYNAMIC: &[&str] = &["-pie", "-DENTRY=main"];

/// Writes and compiles the program of a seed.
fn compile(scene: &Scene, seed: u64, habits: Habits, link: &[&str], fuel: u64) -> PathBuf {
    let blocks = 20 + seed * 7 % 120;
    let include = scene.path("include");
    std::fs::create_dir_all(&include).unwrap();
    std::fs::write(include.join("blocks.inc"), source::write(seed, blocks, habits)).unwrap();
    let program = scene.path(&format!("generated-{seed}"));
    let mut gcc = Command::new("gcc");
    gcc.arg("-o").arg(&program).arg(format!("-Wa,-I{}", include.display())).args(link);
    gcc.args([format!("-DFUEL_BLOCKS={fuel}"), format!("-DSEED={seed}")]);
    gcc.arg(format!("-DDATA_BYTES={}", source::DATA_BYTES));
    gcc.arg(format!("-DTABLE_BYTES={}", source::TABLE_ENTRIES * 8));
    gcc.arg("-Wl,-z,noexecstack,--no-warn-rwx-segments");
    gcc.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/generated.S"));
    let output = gcc.output().expect("gcc runs");
    assert!(output.status.success(), "seed {seed}: {}", text(&output.stderr));
    program
}

/// A program that branches, faults and makes system calls, and leaves its code as it is.
pub(crate) fn of_seed(scene: &Scene, seed: u64) -> PathBuf {
    compile(scene, seed, Habits { faults: true, calls: true, changes: false }, STATIC, 400)
}

/// The same, without faults and signals.
pub(crate) fn peaceful_of_seed(scene: &Scene, seed: u64) -> PathBuf {
    compile(scene, seed, Habits { calls: true, ..Habits::default() }, STATIC, 400)
}

fn check(seed: u64, habits: Habits, link: &[&str], fuel: u64) -> Result<usize, String> {
    let scene = Scene::new();
    let program = compile(&scene, seed, habits, link, fuel);
    let result = compare(&scene, &program);
    result.map_err(|error| format!("{error}\nin {}", scene.keep().display()))
}

fn compare(scene: &Scene, program: &Path) -> Result<usize, String> {
    let command = [program.to_str().unwrap()];
    let native = native(&command);
    let (soft, translated) = record(scene, "soft", &[], &command);
    same_output(&translated, &native)?;
    let (step, stepped) = record(scene, "step", &[], &command);
    same_output(&stepped, &native).map_err(|error| format!("stepped: {error}"))?;
    first_difference(&path_of(&soft)?, &path_of(&step)?)
}

/// Runs the programs of the seeds, a part of them in each test, and names all that fail.
fn run(part: u64, habits: Habits) {
    if !have("gcc") {
        return;
    }
    let asked = std::env::var("CONTRAFLOW_SEEDS").ok();
    let seeds: Vec<u64> = match asked.as_deref().map(|range| range.split_once('-')) {
        Some(range) => {
            let (first, last) = range.expect("CONTRAFLOW_SEEDS=FIRST-LAST");
            (first.parse().unwrap()..=last.parse().unwrap()).collect()
        }
        None => (part * 100 + 4..part * 100 + 10).collect(),
    };
    let mut failures = Vec::new();
    for &seed in &seeds {
        let (link, fuel) = match seed % 10 {
            9 => (DYNAMIC, 1000),
            odd if odd % 2 == 1 => (STATIC_PIE, 300),
            _ => (STATIC, 400),
        };
        match check(seed, habits, link, fuel) {
            Ok(length) => assert!(length > 100, "seed {seed}: {length} instructions"),
            Err(error) => failures.push(format!("seed {seed}, {link:?}, fuel {fuel}: {error}")),
        }
    }
    let (failed, all) = (failures.len(), seeds.len());
    assert!(failures.is_empty(), "{failed} of {all}:\n{}", failures.join("\n\n"));
}

#[test]
fn branches() {
    run(1, Habits::default());
}

#[test]
fn branches_and_system_calls() {
    run(2, Habits { calls: true, ..Habits::default() });
}

#[test]
fn branches_and_faults() {
    run(3, Habits { faults: true, ..Habits::default() });
}

#[test]
fn branches_in_code_that_changes() {
    run(4, Habits { changes: true, ..Habits::default() });
}

#[test]
fn all_of_it() {
    run(5, Habits { changes: true, faults: true, calls: true });
}
