//! The gdb script as users load it, and the gdb that has not loaded it.

use crate::support::{Scene, answer, contraflow, have, run_gdb, text};
use std::process::Command;

const HINT: &str = "shell contraflow gdbinit > contraflow.gdb";

#[test]
fn it_is_sourced_under_any_name() {
    if !have("gdb") {
        return;
    }
    let scene = Scene::new();
    let script = contraflow().arg("gdbinit").output().unwrap().stdout;
    for name in ["contraflow.py", "contraflow.gdb", "contraflow", ".gdbinit"] {
        let path = scene.path(name);
        std::fs::write(&path, &script).unwrap();
        let mut gdb = Command::new("gdb");
        gdb.args(["-nx", "-q", "-batch"]);
        let output = run_gdb(gdb, &format!("source {}\nhelp cf-seek", path.display()));
        let help = answer(&output, "help cf-seek", 0);
        assert!(help.starts_with("Go to a position"), "{name}: {output}");
        assert!(!output.contains("rror"), "{name}: {output}");
    }
}

/// All sourced scripts share one namespace, and `py-bt` needs a class of this name.
#[test]
fn it_leaves_the_names_of_pythons_script_alone() {
    if !have("gdb") {
        return;
    }
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/gdb-scripts/contraflow.py");
    let mut gdb = Command::new("gdb");
    gdb.args(["-nx", "-q", "-batch"]);
    let commands = format!("python Frame = 'of py-bt'\nsource {script}\npython print(Frame)");
    let said = run_gdb(gdb, &commands);
    assert_eq!(answer(&said, "python print(Frame)", 0), "of py-bt", "{said}");
}

#[test]
fn a_gdb_without_it_is_told_so_on_connecting() {
    if !have("gdb") {
        return;
    }
    let scene = Scene::new();
    let recorded = scene.record(&["/bin/true"]);
    let script = scene.path("script");
    std::fs::write(&script, contraflow().arg("gdbinit").output().unwrap().stdout).unwrap();
    let server = text(contraflow().get_program().as_encoded_bytes());
    let remote = format!("target remote | {server} replay --stdio {}", recorded.dir.display());
    let gdb = |before: &str| {
        let mut gdb = Command::new("gdb");
        gdb.args(["-nx", "-q", "-batch", "/bin/true"]);
        let rest = "reverse-stepi\nshow remote trace-status-packet";
        run_gdb(gdb, &format!("set sysroot /\n{before}{remote}\n{rest}"))
    };
    let without = gdb("");
    assert_eq!(without.matches(HINT).count(), 1, "{without}");
    assert!(answer(&without, &remote, 0).contains(HINT), "{without}");
    let with = gdb(&format!("source {}\n", script.display()));
    assert!(!with.contains(HINT), "{with}");
    let setting = answer(&with, "show remote trace-status-packet", 0);
    assert!(setting.contains("auto-detected"), "{with}");
}
