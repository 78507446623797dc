//! Code caches of earlier runs: recordings are the same with them, without them, and with damaged or
//! outdated ones.

use crate::serve::{Live, name, tools};
use crate::support::{Scene, contraflow, have, text};
use std::path::{Path, PathBuf};

/// A store that no other test uses.
const HOME: &str = "own";

/// Records a program into a directory, with the code caches of a store. Returns what the
/// program printed, and the check of the recording.
fn recorded(scene: &Scene, name: &str, command: &[&str]) -> (String, String) {
    let dir = scene.path(name);
    let home = scene.path(HOME);
    let mut record = contraflow();
    record.env("CONTRAFLOW_HOME", &home).args(["record", "-q", "-o"]).arg(&dir).args(command);
    let output = record.output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let mut check = contraflow();
    let checked = check.env("CONTRAFLOW_HOME", home).arg("check").arg(&dir).output().unwrap();
    assert!(checked.status.success(), "{}", text(&checked.stderr));
    (text(&output.stdout), text(&checked.stdout))
}

/// Returns the files with code caches, and their content.
fn caches(scene: &Scene, store: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let dir = scene.path(store).join(".contraflow-cache/translated");
    let files = std::fs::read_dir(dir).into_iter().flatten().map(|entry| entry.unwrap().path());
    let mut caches: Vec<_> =
        files.map(|path| (path.clone(), std::fs::read(path).unwrap())).collect();
    caches.sort();
    caches
}

fn bytes(path: &Path) -> Vec<u8> {
    std::fs::read(path).unwrap()
}

#[test]
fn a_second_run_translates_nothing_new() {
    const COMMAND: [&str; 2] = ["sha256sum", "/etc/services"];
    if !have(COMMAND[0]) {
        return;
    }
    let scene = Scene::new();
    let (printed, checked) = recorded(&scene, "first", &COMMAND);
    let first = caches(&scene, HOME);
    let (again, also) = recorded(&scene, "second", &COMMAND);
    // Entries and ticks, without the time that the check took.
    let facts = |checked: &str| checked.split(';').next().unwrap().to_owned();
    assert_eq!((again, facts(&also)), (printed.clone(), facts(&checked)));
    // There is one for recordings, and one for replays. A run that had added to one would have
    // replaced it.
    assert!(first.len() == 2 && first == caches(&scene, HOME), "{} caches", first.len());
    for part in 0..3 {
        let damaged = |whole: &[u8]| {
            let mut damaged = whole.to_vec();
            let at = [9, whole.len() / 2, whole.len() - 1][part];
            damaged[at] ^= 1;
            damaged
        };
        for (path, whole) in &first {
            std::fs::write(path, damaged(whole)).unwrap();
        }
        let (again, also) = recorded(&scene, &format!("damaged-{part}"), &COMMAND);
        assert_eq!((again, facts(&also)), (printed.clone(), facts(&checked)));
        for (path, whole) in &first {
            assert_ne!(bytes(path), damaged(whole), "a new one takes the place of a damaged one");
        }
    }
}

/// A library that changes during a run, and from one run to the next: its code is never that of the
/// other version.
#[test]
fn code_of_a_changed_file_is_not_used() {
    let scene = Scene::new();
    let [program, library, second] = scene.overwritten();
    let versions = [bytes(&library), bytes(&second)];
    let command = [&program, &library, &second].map(|path| path.to_str().unwrap());
    let mut printed = [const { Vec::new() }; 2];
    for round in 0..6 {
        let version = round % 2;
        std::fs::write(&library, &versions[version]).unwrap();
        let (said, _) = recorded(&scene, &format!("round-{round}"), &command);
        printed[version].push(said);
    }
    let natively: Vec<String> = (0..2)
        .map(|version| {
            std::fs::write(&library, &versions[version]).unwrap();
            let output = std::process::Command::new(&program).args(&command[1..]).output().unwrap();
            text(&output.stdout)
        })
        .collect();
    assert_ne!(natively[0], natively[1]);
    for (version, said) in printed.iter().enumerate() {
        assert!(said.iter().all(|said| *said == natively[version]), "{said:?}, {natively:?}");
    }
}

/// A child executes the code that its parent changed, not that of its file, which the cache has.
#[test]
fn changed_code_of_a_parent_is_executed_by_its_child() {
    let scene = Scene::new();
    let program = scene.compile("patched_fork.c", &["-O1"]);
    let command = program.to_str().unwrap();
    let (plain, _) = recorded(&scene, "plain", &[command]);
    assert_eq!(plain, "0x11\n");
    assert!(!caches(&scene, HOME).is_empty());
    for round in 0..3 {
        let dir = scene.path(&format!("changed-{round}"));
        let mut record = contraflow();
        record.env("CONTRAFLOW_HOME", scene.path(HOME)).args(["record", "-q", "--follow-forks"]);
        let output = record.arg("-o").arg(&dir).args([command, "x"]).output().unwrap();
        assert_eq!(text(&output.stdout), "0x11\nchild 0x22\nparent 0x22\n");
        let forked = text(&output.stderr);
        let recordings = std::fs::read_dir(scene.path(HOME)).unwrap().map(|of| of.unwrap().path());
        let own = recordings.filter(|path| path.join("manifest.json").exists());
        let all: Vec<PathBuf> = own.chain([dir]).collect();
        assert!(all.len() > 1, "{forked}");
        for recording in all {
            let mut check = contraflow();
            check.env("CONTRAFLOW_HOME", scene.path(HOME)).arg("check").arg(&recording);
            let output = check.output().unwrap();
            assert!(output.status.success(), "{}", text(&output.stderr));
        }
    }
    // No cache has the changed code.
    let (plain, _) = recorded(&scene, "again", &[command]);
    assert_eq!(plain, "0x11\n");
}

/// A debugger's stops are met in code that an earlier run translated, too.
#[test]
fn threads_stop_in_code_of_an_earlier_run() {
    if !tools() {
        return;
    }
    let scene = Scene::new();
    let program = scene.compile("live.c", &["-O0"]);
    let said = ["first", "second"].map(|_| {
        let live = Live::start_by("exact", &scene, &["--once"], &[name(&program)]);
        let said = live.gdb(
            &program,
            "break work\ncontinue\nprint n\nstepi 40\nnext\nprint counter\ncontinue\nprint n\n\
             delete\nwatch counter\nreverse-continue\nreverse-continue\nbt\ndelete\ncontinue\n\
             tbreak write\ncontinue\nbt 1\ncontinue\ncontinue\ncontinue",
        );
        assert_eq!(live.end().1, Some(0));
        said
    });
    assert!(said[0].contains("Old value") && said[0].contains("write ("), "{}", said[0]);
    let lines = |said: &str| {
        // Of a port or a process.
        let is_same = |line: &&str| !line.contains("target remote") && !line.contains("exited");
        said.lines().filter(is_same).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(lines(&said[0]), lines(&said[1]));
    assert!(!caches(&scene, "store").is_empty());
}
