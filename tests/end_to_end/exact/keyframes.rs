//! Keyframes: a replay that begins at one shows what a replay from the beginning shows.

use super::{WHOLE, check, record_with};
use crate::support::{Scene, answer, contraflow, have, run_gdb, text};
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Often enough for some tens of them in a second.
const OFTEN: [&str; 2] = ["--keyframe-period", "10"];

/// Returns the keyframes of a recording.
pub(super) fn keyframes(dir: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(dir.join("keyframes")).expect("it has keyframes");
    files.map(|file| file.unwrap().path()).collect()
}

/// Returns true if there is a keyframe at the end of a recorded run.
pub(super) fn has_one_at_end(dir: &Path) -> bool {
    let mut dump = contraflow();
    let log = text(&dump.args(["dump", "log"]).arg(dir).output().expect("contraflow runs").stdout);
    let last = log.lines().last().and_then(|line| line.split_whitespace().next());
    keyframes(dir).iter().any(|path| path.file_stem().and_then(|stem| stem.to_str()) == last)
}

/// Records a program that runs long enough, and ends by a signal.
fn recorded(scene: &Scene) -> PathBuf {
    let program = scene.compile("exact/keyframes.c", &["-O1", "-pthread"]);
    let (dir, _) = record_with(scene, &OFTEN, &[program.to_str().unwrap()]);
    assert!(keyframes(&dir).len() > 2, "{:?}", keyframes(&dir));
    dir
}

/// Returns what gdb shows at some places of a run, in both directions.
fn shown(dir: &Path) -> String {
    let mut replay = contraflow();
    replay.arg("replay").arg(dir).args(["--", "-nx", "-batch"]);
    let look = |at: &str| {
        format!(
            "cf-seek {at}\ninfo registers\ninfo threads\nthread apply all backtrace 3\np sums\np signals\n\
             p *shared@2\ninfo vector\n"
        )
    };
    let places =
        ["end", "93%", "60%", "75%", "20%", "50%", "94%", "61%", "21%", "end"].map(look).concat();
    // The search goes back to the beginning.
    let back = "cf-find answer\nwatch signals\nreverse-continue\nreverse-continue\np signals\ncf-when\ndelete\n\
                break answer\nreverse-continue\nbacktrace 3\ncf-when\ncontinue\ncf-when\n\
                reverse-stepi\ncf-when\n";
    let settings = "set width 0\nset print frame-arguments none\n";
    run_gdb(replay, &[settings, &places, back].concat())
}

/// Only processors of Intel show the address of each last x87 instruction.
#[test]
fn threads_in_the_midst_of_x87_are_as_recorded() {
    if !have("gcc") || !have("gdb") {
        return;
    }
    let scene = Scene::new();
    let program = scene.compile("exact/x87.c", &["-O1", "-pthread", "-lm"]);
    let (dir, _) = record_with(&scene, &OFTEN, &[program.to_str().unwrap()]);
    let verdict = check(&dir);
    assert!(verdict.starts_with(WHOLE), "{verdict}");
    assert!(has_one_at_end(&dir));
    let mut replay = contraflow();
    replay.arg("replay").arg(&dir).args(["--", "-nx", "-batch"]);
    let said = run_gdb(replay, "thread apply all p $fioff\nthread 2\np $fctrl\n");
    let shown = answer(&said, "thread apply all p $fioff", 0);
    let is_honest = |line: &str| line.ends_with("= <unavailable>") || line.ends_with("= 0");
    let values: Vec<_> = shown.lines().filter(|line| line.starts_with('$')).collect();
    assert!(values.len() == 4 && values.iter().all(|line| is_honest(line)), "{said}");
    assert!(answer(&said, "p $fctrl", 0).ends_with("= 895"), "{said}");
}

/// The words of `check` for all keyframes of a recording.
fn counted(dir: &Path) -> String {
    match keyframes(dir).len() {
        1 => "and 1 keyframe;".to_owned(),
        count => format!("and {count} keyframes;"),
    }
}

#[test]
fn a_replay_from_a_keyframe_shows_what_one_from_the_beginning_shows() {
    if !have("gcc") || !have("gdb") {
        return;
    }
    let scene = Scene::new();
    let dir = recorded(&scene);
    let verdict = check(&dir);
    assert!(verdict.starts_with(WHOLE), "{verdict}");
    assert!(verdict.contains(&counted(&dir)), "{verdict}");
    let with = shown(&dir);
    fs::remove_dir_all(dir.join("keyframes")).unwrap();
    let without = shown(&dir);
    assert!(answer(&with, "backtrace 3", 0).contains("answer ("), "{with}");
    assert!(answer(&with, "cf-find answer", 0).contains("answer at "), "{with}");
    // Of files that gdb reads in a directory of its own.
    let lines = |said: &str| -> Vec<String> {
        said.lines().filter(|line| !line.contains("/root/")).map(str::to_owned).collect()
    };
    let (with, without) = (lines(&with), lines(&without));
    assert!(with.len() > 500, "{with:?}");
    for (number, (with, without)) in with.iter().zip(&without).enumerate() {
        assert_eq!(with, without, "line {number}");
    }
}

/// A keyframe that is damaged, cut, or no keyframe is not used.
#[test]
fn a_damaged_keyframe_is_passed_over() {
    if !have("gcc") || !have("gdb") {
        return;
    }
    let scene = Scene::new();
    let dir = recorded(&scene);
    let end = |dir: &Path| {
        let mut replay = contraflow();
        replay.arg("replay").arg(dir).args(["--", "-nx", "-batch"]);
        let said = run_gdb(replay, "p sums\np signals\ncf-seek 50%\np $rip\np *shared@2\n");
        (said.lines().filter(|line| line.starts_with('$')).map(str::to_owned)).collect::<Vec<_>>()
    };
    let expected = end(&dir);
    assert_eq!(expected.len(), 4, "{expected:?}");
    for (number, path) in keyframes(&dir).into_iter().enumerate() {
        let file = fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
        let size_bytes = file.metadata().unwrap().len();
        match number % 3 {
            0 => file.set_len(size_bytes / 2).unwrap(),
            1 => file.write_all_at(b"damage", size_bytes / 3).unwrap(),
            _ => fs::write(&path, "no keyframe").unwrap(),
        }
    }
    assert_eq!(end(&dir), expected);
}

/// A long run has a keyframe at its end, whose memory is that of the final state.
#[test]
fn the_end_of_a_run_is_a_keyframe() {
    if !have("gcc") {
        return;
    }
    let scene = Scene::new();
    let program = scene.compile("exact/ended.c", &["-O1", "-w", "-pthread"]);
    for kind in ["exit", "abort", "fault", "kill", "overflow", "thread"] {
        let (dir, _) = record_with(&scene, &[], &[program.to_str().unwrap(), kind]);
        let verdict = check(&dir);
        assert!(verdict.starts_with(WHOLE), "{kind}: {verdict}");
        assert!(verdict.contains(&counted(&dir)), "{kind}: {verdict}");
        assert!(has_one_at_end(&dir), "{kind}: {:?}", keyframes(&dir));
        fs::remove_dir_all(&dir).unwrap();
    }
}

/// Large parts of the memory at the end are mapped from the core file, which nobody notices.
#[test]
fn memory_at_the_end_is_the_programs() {
    if !have("gcc") || !have("gdb") {
        return;
    }
    let scene = Scene::new();
    let program = scene.compile("exact/large.c", &["-O1"]);
    // The run is shorter than the period, and has more than its ticks.
    let (dir, _) =
        record_with(&scene, &["--keyframe-period", "3000"], &[program.to_str().unwrap()]);
    let verdict = check(&dir);
    assert!(verdict.starts_with(WHOLE), "{verdict}");
    assert!(has_one_at_end(&dir));
    let shown = || {
        let mut replay = contraflow();
        replay.arg("replay").arg(&dir).args(["--", "-nx", "-batch"]);
        let look = "info proc mappings\np memory[100]\np/x memory[4095]@2\nx/4xw memory+3000000\n\
                    x/2xg memory-8\nx/2xg memory+5*1024*1024-8\n\
                    p reserved[32*1024*1024*1024]@3\np reserved[0]\np (int)grown()\np (int)given_back()\n";
        // A word written there is gone after the diversion.
        let write =
            "set var memory[4096] = 99\np memory[4096]\nstepi\nreverse-stepi\np memory[4096]\n";
        run_gdb(replay, &["set width 0\nup 2\n", look, write, "reverse-stepi\nup\n", look].concat())
    };
    let with = shown();
    assert!(answer(&with, "p memory[100]", 0).ends_with("= 42 '*'"), "{with}");
    for place in 0..2 {
        assert!(answer(&with, "p (int)grown()", place).ends_with("= 0"), "{with}");
        assert!(answer(&with, "p (int)given_back()", place).ends_with("= 0"), "{with}");
    }
    fs::remove_dir_all(dir.join("keyframes")).unwrap();
    assert_eq!(with, shown());
}
