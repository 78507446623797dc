//! The way back from the end of a run, made ready in pieces while nobody asks: whatever is done of it,
//! the replay shows what one from the beginning shows.

use super::keyframes::{has_one_at_end, keyframes};
use super::walks::{State, state};
use super::{WHOLE, check, record_with};
use crate::support::{Scene, have};
use contraflow::recording::Reader;
use contraflow::replay::{Goals, MoveEnd, Position, Replay};
use std::cell::Cell;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Steps back from the end.
const STEPS: usize = 200;
/// The times that the replay goes on with the way before the user comes.
const MOST_PIECES: usize = 8;
/// Runs of a program whose last keyframe may come just before its end.
const TRIES: usize = 10;

fn at_end(dir: &Path) -> Replay {
    let mut replay = Replay::open(Reader::open(dir).expect("a recording")).expect("it opens");
    replay.go_to_end(&|| false).expect("it replays");
    replay
}

/// Removes the keyframes between the first one and that of the end.
fn leave_first_and_last(dir: &Path) {
    let mut all = keyframes(dir);
    let entry = |path: &PathBuf| path.file_stem()?.to_str()?.parse::<u64>().ok();
    all.sort_by_key(entry);
    let between = all.get(1..all.len().saturating_sub(1)).unwrap_or_default();
    for path in between {
        fs::remove_file(path).expect("it is there");
    }
}

/// Records a command that ends long enough after the keyframe before, so that there is one at its end.
fn recorded(scene: &Scene, command: &[&str], period: &str) -> PathBuf {
    for _ in 0..TRIES {
        let (dir, _) = record_with(scene, &["--keyframe-period", period], command);
        if has_one_at_end(&dir) {
            return dir;
        }
        fs::remove_dir_all(&dir).unwrap();
    }
    panic!("there is no keyframe at the end of {command:?}");
}

/// Lets the replay go on with the way until it asked so many times whether somebody came. Returns how
/// often it asked.
fn prepare(replay: &mut Replay, questions: usize) -> usize {
    let asked = Cell::new(0);
    replay.prepare(&|| asked.replace(asked.get() + 1) >= questions);
    asked.get()
}

/// Returns the states of the thread that ended the program, at the end and before.
fn way_back(replay: &mut Replay) -> Vec<(Position, State)> {
    let tid = replay.running().expect("a thread");
    let (none, never) = (BTreeSet::new(), || false);
    let goals = Goals::at(&none, &never);
    let mut states = vec![(replay.position(), state(replay, tid))];
    while states.len() < STEPS {
        let found = replay.step_back(tid, &goals, &[]).expect("it steps");
        assert_eq!(found, MoveEnd::Target);
        states.push((replay.position(), state(replay, tid)));
    }
    states
}

#[test]
fn the_way_back_is_the_same_however_much_of_it_is_ready() {
    if !have("gcc") {
        return;
    }
    let scene = Scene::new();
    let program = scene.compile("exact/ended.c", &["-O1", "-w", "-pthread"]);
    for (kind, period) in [("exit", "20"), ("fault", "1000")] {
        let dir = recorded(&scene, &[program.to_str().unwrap(), kind], period);
        assert!(check(&dir).starts_with(WHOLE), "{kind}: {}", check(&dir));
        leave_first_and_last(&dir);
        let expected = {
            let mut replay = at_end(&dir);
            assert!(replay.is_at_end());
            let last = replay.position();
            // All of the way is executed, from the beginning on.
            replay.seek(replay.first()).expect("a position");
            replay.seek(last).expect("a position");
            replay.go_to_end(&|| false).expect("it replays");
            way_back(&mut replay)
        };
        for pieces in 0..MOST_PIECES {
            let mut replay = at_end(&dir);
            for _ in 0..pieces {
                prepare(&mut replay, 1);
                assert_eq!(replay.position(), expected[0].0);
            }
            assert_eq!(way_back(&mut replay), expected, "{kind}, {pieces} pieces");
        }
        let mut replay = at_end(&dir);
        let (tid, none) = (replay.running().expect("a thread"), BTreeSet::new());
        let interrupted = replay.step_back(tid, &Goals::at(&none, &|| true), &[]);
        assert_eq!(interrupted.expect("it steps"), MoveEnd::Interrupted, "{kind}");
        assert_eq!((replay.position(), state(&replay, tid)), expected[0]);
        assert_eq!(way_back(&mut replay), expected, "{kind}, after an interruption");
        let mut replay = at_end(&dir);
        assert!(prepare(&mut replay, usize::MAX) > 2, "{kind}: there was a way to go");
        assert!(replay.is_at_end());
        assert_eq!(way_back(&mut replay), expected, "{kind}, the whole way");
        fs::remove_dir_all(&dir).unwrap();
    }
}
