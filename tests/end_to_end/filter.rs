//! Filters by address and `TraceStop`: what they leave of a path is what the whole path has in
//! their ranges, by both backends alike.

use crate::support::{Scene, contraflow, have, text};
use std::ops::Range;
use std::path::Path;
use std::process::{Command, Stdio};

/// The path of a recording with these options, and what the recorder said.
fn path(scene: &Scene, program: &Path, options: &[&str]) -> (Vec<u64>, String) {
    let dir = scene.path("recording");
    let mut record = contraflow();
    record.env("CONTRAFLOW_HOME", scene.path("store")).arg("record").args(options);
    record.arg("--force").arg("-o").arg(&dir).arg(program).stdin(Stdio::null());
    let output = record.output().expect("contraflow runs");
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
    let dump = contraflow().args(["dump", "insns", "--addresses"]).arg(&dir).output().unwrap();
    assert_eq!(text(&dump.stderr), "", "gaps");
    let list = text(&dump.stdout).lines().map(|l| u64::from_str_radix(l, 16).unwrap()).collect();
    (list, text(&output.stderr))
}

/// A function's addresses in the running program, as its symbol table has them.
fn function(program: &Path, name: &str, base: u64) -> Range<u64> {
    let output = Command::new("nm").arg("-S").arg(program).output().expect("nm runs");
    let list = text(&output.stdout);
    let line = list.lines().find(|line| line.split(' ').next_back() == Some(name)).unwrap();
    let number = |word: &str| u64::from_str_radix(word, 16).unwrap();
    let words: Vec<_> = line.split(' ').collect();
    let start = base + number(words[0]);
    start..start + number(words[1])
}

/// The program, where its code is, and its whole path.
fn subject(scene: &Scene) -> Option<(std::path::PathBuf, u64, Vec<u64>)> {
    if !have("gcc") || !have("nm") {
        return None;
    }
    let program = scene.compile("filtered.c", &["-O1", "-fno-reorder-blocks-and-partition"]);
    let (whole, _) = path(scene, &program, &["--backend", "soft", "--full"]);
    // A position-independent program is put there where randomization is off.
    Some((program, 0x5555_5555_4000, whole))
}

fn only(whole: &[u64], ranges: &[Range<u64>]) -> Vec<u64> {
    whole.iter().copied().filter(|ip| ranges.iter().any(|range| range.contains(ip))).collect()
}

#[test]
fn a_filter_leaves_what_is_in_its_ranges() {
    let scene = Scene::new();
    let Some((program, base, whole)) = subject(&scene) else { return };
    let at = |name: &str| function(&program, name, base);
    for names in [&["fibonacci"][..], &["worker"], &["worker", "compare"], &["leaf", "main"]] {
        let ranges: Vec<_> = names.iter().map(|name| at(name)).collect();
        let wanted = only(&whole, &ranges);
        assert!(wanted.len() > 100, "{names:?}: {}", wanted.len());
        let options: Vec<_> = names.iter().flat_map(|name| ["--filter", name]).collect();
        for backend in ["soft", "step"] {
            let (got, _) =
                path(&scene, &program, &[&options[..], &["--backend", backend]].concat());
            assert_eq!(got, wanted, "{names:?}, {backend}");
        }
    }
    let range = at("leaf");
    let words = format!("{:x}-{:x}", range.start, range.end - 1);
    let (got, _) = path(&scene, &program, &["--filter-range", &words]);
    assert_eq!(got, only(&whole, &[range]));
}

#[test]
fn a_stop_ends_the_trace() {
    let scene = Scene::new();
    let Some((program, base, whole)) = subject(&scene) else { return };
    let stop = function(&program, "the_end", base);
    let before = &whole[..whole.iter().position(|ip| stop.contains(ip)).unwrap()];
    // A ring of records that goes round many times after the stop.
    for options in [&["--full"][..], &["--ring", "1"], &["--backend", "step"]] {
        let stop_at = [options, &["--stop-at", "the_end"]].concat();
        assert_eq!(path(&scene, &program, &stop_at).0, before, "{options:?}");
        let both = [&stop_at[..], &["--filter", "worker"]].concat();
        let wanted = only(before, &[function(&program, "worker", base)]);
        assert_eq!(path(&scene, &program, &both).0, wanted, "{options:?}");
    }
}

#[test]
fn functions_of_libraries_are_found_and_unknown_ones_are_said() {
    let scene = Scene::new();
    let Some((program, ..)) = subject(&scene) else { return };
    let library = ["--filter", "qsort@libc.so.6"];
    let (soft, _) = path(&scene, &program, &library);
    let (step, _) = path(&scene, &program, &[&library[..], &["--backend", "step"]].concat());
    assert!(!soft.is_empty());
    assert_eq!(soft, step);
    for backend in ["soft", "step"] {
        let (got, said) = path(&scene, &program, &["--filter", "nowhere", "--backend", backend]);
        assert!(got.is_empty());
        assert!(said.contains("no program or library had a function nowhere"), "{said}");
    }
    let five = ["a", "b", "c", "d", "e"].map(|name| ["--filter", name]).concat();
    let output = contraflow().arg("record").args(five).arg(&program).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("5 filters are given, but a PT unit has 4 ranges"));
    assert_eq!(text(&output.stdout), "", "the program was run");
}
