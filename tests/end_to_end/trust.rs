//! Files of a recording bring no scripts into gdb; those that the machine has for such files are
//! loaded.

use crate::support::{Scene, answer, contraflow, have, run_gdb};
use std::path::Path;
use std::process::Command;

/// A gdb whose user trusts scripts anywhere.
const TRUSTING: [&str; 5] = ["-nx", "-q", "-batch", "-iex", "set auto-load safe-path /"];

fn record(scene: &Scene, program: &Path) {
    let mut record = contraflow();
    record.args(["record", "-q", "--path", "-o"]).arg(scene.path("recording")).arg(program);
    assert_eq!(record.status().expect("contraflow runs").code(), Some(128 + 6));
}

fn replay(scene: &Scene, gdb: &[&str], commands: &str) -> String {
    let mut replay = contraflow();
    replay.current_dir(scene.path("")).arg("replay").arg(scene.path("recording"));
    replay.arg("--").args(gdb);
    run_gdb(replay, commands)
}

#[test]
fn scripts_in_files_of_a_recording_are_not_executed() {
    let scene = Scene::new();
    let program = scene.compile("scripted.c", &[]);
    record(&scene, &program);
    let executed = scene.path("executed");
    let said = replay(&scene, &TRUSTING, "bt\nreverse-stepi\ninfo auto-load python-scripts");
    assert!(said.contains("main") && !executed.exists(), "{said}");
    // Natively the same gdb executes it.
    let mut gdb = Command::new("gdb");
    gdb.current_dir(scene.path("")).args(TRUSTING).arg(program);
    run_gdb(gdb, "info auto-load python-scripts");
    assert!(executed.exists());
}

#[test]
fn installed_pretty_printers_print_values_of_a_recording() {
    let installed = glob("/usr/share/gdb/auto-load/usr/lib/x86_64-linux-gnu", "libstdc++");
    if !have("g++") || !installed {
        eprintln!("SKIPPED: g++ or its pretty-printers are not installed");
        return;
    }
    let scene = Scene::new();
    let program = scene.compile("containers.cpp", &["-O0", "-lstdc++"]);
    record(&scene, &program);
    for options in [&TRUSTING[..3], &TRUSTING] {
        let said = replay(&scene, options, "frame function main\nprint name\nprint numbers");
        assert_eq!(answer(&said, "print name", 0), "$1 = \"hello\"");
        let numbers = answer(&said, "print numbers", 0);
        assert!(numbers.ends_with("= {1, 2, 3}"), "{numbers}");
    }
}

/// A script beside the machine's own file is executed if its directory is trusted, not if all are.
#[test]
fn scripts_beside_files_need_explicit_trust() {
    let scene = Scene::new();
    let compiled = scene.compile("scripted.c", &[]);
    let program = scene.path("bin/scripted");
    std::fs::create_dir(scene.path("bin")).unwrap();
    std::fs::rename(compiled, &program).unwrap();
    std::fs::write(scene.path("bin/scripted-gdb.py"), "print('beside', 6 * 7)").unwrap();
    record(&scene, &program);
    let trusted = format!("add-auto-load-safe-path {}", scene.path("bin").display());
    let explicit = [&TRUSTING[..3], &["-iex", &trusted]].concat();
    for (options, is_executed) in [(&TRUSTING[..3], false), (&TRUSTING, false), (&explicit, true)] {
        let said = replay(&scene, options, "bt");
        assert_eq!(said.contains("beside 42"), is_executed, "{options:?}: {said}");
    }
}

/// Returns true if a directory has a file whose name begins so.
fn glob(directory: &str, begins: &str) -> bool {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name()).any(|name| name.to_string_lossy().starts_with(begins))
}
