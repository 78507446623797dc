//! Children of exactly recorded programs: with `--follow-forks`, each has a recording of its own,
//! which replays by itself. Programs, and what they start, do the same as without a recorder.

use super::{WHOLE, check, shell_status};
use crate::support::{Scene, contraflow, have, run_gdb, text};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A recorded family.
pub(super) struct Family {
    /// The program, then its children.
    pub(super) recordings: Vec<PathBuf>,
    pub(super) said: String,
}

/// Records a program and its children, whose output and status must be as they are natively, and
/// checks each recording.
pub(super) fn follow(scene: &Scene, command: &[&str]) -> Family {
    let native = Command::new(command[0]).args(&command[1..]).stdin(Stdio::null()).output();
    let native = native.unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let recorded = contraflow()
        .env("CONTRAFLOW_HOME", scene.path("store"))
        .args(["record", "--follow-forks", "--"])
        .args(command)
        .stdin(Stdio::null())
        .output()
        .expect("contraflow runs");
    let said = text(&recorded.stderr);
    assert_eq!(text(&recorded.stdout), text(&native.stdout), "{command:?}: {said}");
    assert_eq!(recorded.status.code(), Some(shell_status(&native)), "{command:?}: {said}");
    let lines = said.lines().filter_map(|line| line.split_once("recorded in "));
    let recordings: Vec<PathBuf> = lines.map(|(_, dir)| PathBuf::from(dir)).collect();
    assert!(!said.contains("not recorded"), "{said}");
    for dir in &recordings {
        let verdict = check(dir);
        assert!(verdict.starts_with(WHOLE), "{command:?}: {}: {verdict}\n{said}", dir.display());
    }
    Family { recordings, said }
}

/// Compiles a program, and follows it, with `others` recordings besides its own.
fn follows(source: &str, arguments: &[&str], others: usize) {
    if !have("gcc") {
        return;
    }
    let scene = Scene::new();
    let program = scene.compile(source, &["-O1"]);
    let command = [&[program.to_str().unwrap()], arguments].concat();
    let family = follow(&scene, &command);
    assert_eq!(family.recordings.len(), 1 + others, "{}", family.said);
    let latest = std::fs::canonicalize(scene.path("store").join("latest")).unwrap();
    assert_eq!(latest, std::fs::canonicalize(&family.recordings[0]).unwrap());
}

fn script(command: &[&str], at_least: usize) {
    if have(command[0]) {
        let scene = Scene::new();
        let family = follow(&scene, command);
        assert!(family.recordings.len() > at_least, "{}", family.said);
    }
}

#[test]
fn forks_and_vforks_and_spawns_are_followed() {
    follows("forks.c", &[], 3);
    follows("starters.c", &[], 5);
}

/// Children in turn and at once, which signals end, which outlive their parents, which have children.
#[test]
fn families_of_all_kinds_are_followed() {
    follows("exact/families.c", &["many", "12"], 12);
    follows("exact/families.c", &["killed"], 4);
    follows("exact/families.c", &["orphan"], 2);
    follows("exact/families.c", &["daemon"], 2);
    follows("exact/families.c", &["threads"], 8);
    follows("exact/families.c", &["masked"], 2);
}

#[test]
fn shells_are_followed() {
    let pipes = "for i in 1 2; do echo $i | cat | tr 1 x; done; (exit 3); echo $? $(echo $(echo sub)); \
                 sleep 0.01 & wait $!; echo $?; kill -9 $$";
    script(&["bash", "-c", pipes], 8);
    script(&["dash", "-c", pipes], 8);
}

#[test]
fn tools_that_start_others_are_followed() {
    script(&["timeout", "5", "sleep", "0.05"], 1);
    script(&["timeout", "0.05", "sleep", "5"], 1);
    script(&["sh", "-c", "echo a b c d | xargs -P 4 -n 1 true"], 5);
    script(&["git", "-c", "alias.x=!echo from a shell", "x"], 1);
}

#[test]
fn python_is_followed() {
    let calls = "\
import os, subprocess
print(subprocess.check_output(['sh', '-c', 'echo $((6 * 7))']).decode(), flush=True)
child = os.fork() or os._exit(sum(range(20)) - 150)
print(os.waitpid(child, 0)[1], flush=True)
";
    script(&["python3", "-c", calls], 2);
}

/// The child's own values, in gdb.
#[test]
fn a_child_is_walked_in_gdb() {
    if !have("gcc") || !have("gdb") {
        return;
    }
    let scene = Scene::new();
    let program = scene.compile("forks.c", &["-O0"]);
    let family = follow(&scene, &[program.to_str().unwrap()]);
    let mut seeds: Vec<String> = Vec::new();
    for dir in &family.recordings[1..3] {
        let mut replay = contraflow();
        replay.arg("replay").arg(dir).args(["--", "-nx", "-batch"]);
        let said = run_gdb(replay, "break child_work\nreverse-continue\nprint seed\nfinish");
        let values = said.lines().filter_map(|line| line.strip_prefix("$1 = "));
        seeds.extend(values.map(str::to_owned));
        assert!(said.contains("Value returned is $2 ="), "{said}");
    }
    assert_eq!(seeds, ["1", "2"]);
}

/// A killed recorder takes its program along, and leaves the children to theirs.
#[test]
fn recordings_of_children_survive_the_recorder() {
    if !have("gcc") {
        return;
    }
    let scene = Scene::new();
    let program = scene.compile("exact/families.c", &["-O1"]);
    let done = scene.path("done");
    let mut recorder = contraflow();
    recorder.env("CONTRAFLOW_HOME", scene.path("store")).args(["record", "--follow-forks", "--"]);
    recorder.arg(&program).arg("outlives").arg(&done).stderr(Stdio::null());
    let mut recorder = recorder.spawn().expect("contraflow runs");
    let begun = || done.exists();
    wait_until("the child runs", begun);
    recorder.kill().unwrap();
    recorder.wait().unwrap();
    wait_until("the child ends", || std::fs::read(&done).is_ok_and(|text| text == b"done\n"));
    let child = scene.path("store").join("families-1");
    wait_until("its recording is complete", || child.join("manifest.json").exists());
    assert!(check(&child).starts_with(WHOLE));
    assert!(cut(&scene.path("store").join("families-0")));
}

fn cut(dir: &Path) -> bool {
    !dir.join("manifest.json").exists() && dir.join("starting.json").exists()
}

pub(super) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = std::time::Instant::now();
    while !is_so() {
        assert!(begun.elapsed().as_secs() < 60, "{what}: not within a minute");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

#[test]
fn the_list_tells_children_apart() {
    if !have("bash") {
        return;
    }
    let scene = Scene::new();
    let family = follow(&scene, &["bash", "-c", "ls / > /dev/null; cat < /dev/null; true"]);
    let list = contraflow().env("CONTRAFLOW_HOME", scene.path("store")).arg("list").output();
    let list = text(&list.unwrap().stdout);
    let of = |dir: &PathBuf| {
        let name = dir.file_name().unwrap().to_str().unwrap();
        let line = list.lines().find(|line| line.starts_with(name)).expect("it is listed");
        line.rsplit_once("; true").expect("it has the arguments").1.to_owned()
    };
    let mut names: Vec<String> = family.recordings.iter().map(of).collect();
    names.sort_unstable();
    assert_eq!(names, ["", " (ended as cat)", " (ended as ls)"], "{list}");
}
