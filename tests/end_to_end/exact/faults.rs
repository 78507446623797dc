//! Faults put into a log on purpose: a replay finds each, and says where.
#![allow(clippy::ptr_arg, reason = "all faults have one type, and some change the length")]

use super::{WHOLE, check};
use crate::support::{Random, Scene, contraflow, have, text};
use contraflow::recording::log::{Entry, LogEvent};
use contraflow::recording::{Reader, Writer};
use contraflow::replay::{Error, MoveEnd, Position, Replay};
use std::fs;
use std::io::Write;
use std::path::Path;

const READ: u64 = 0;
const FSTAT: u64 = 262;

/// Writes a recording once more, with another log.
fn rewrite(from: &Path, to: &Path, entries: &[Entry]) {
    let reader = Reader::open(from).expect("it is a recording");
    let mut writer = Writer::create(to, reader.manifest()).expect("there is room");
    for record in reader.sideband().expect("it has mappings") {
        writer.sideband(&record).expect("there is room");
    }
    for entry in entries {
        writer.log(entry).expect("there is room");
    }
    for image in fs::read_dir(from.join("images")).expect("it has images") {
        let image = image.expect("it has images");
        fs::copy(image.path(), to.join("images").join(image.file_name())).expect("there is room");
    }
    let core = reader.core().expect("it is whole").expect("it has a core");
    writer.core_file().expect("there is room").write_all(core.as_ref()).expect("there is room");
    let mut manifest = reader.manifest().clone();
    if let Some(end) = &mut manifest.end {
        end.log = writer.log_totals().expect("it has a log");
    }
    writer.finish(&manifest).expect("there is room");
}

fn entries_of(dir: &Path) -> Vec<Entry> {
    let log = Reader::open(dir).expect("it is a recording").log().expect("it is whole");
    let mut cursor = log.expect("it has a log").cursor();
    std::iter::from_fn(|| cursor.read().expect("it is whole")).collect()
}

/// Returns the numbers of entries of which the run depends, after its beginning.
fn those(entries: &[Entry], are: impl Fn(&Entry) -> bool) -> Vec<usize> {
    let begun = entries.iter().rposition(|e| matches!(e.event, LogEvent::Memory(_))).unwrap();
    (begun + 1..entries.len() - 1).filter(|number| are(&entries[*number])).collect()
}

fn is_call(entry: &Entry, wanted: &[u64]) -> bool {
    matches!(&entry.event, LogEvent::Call { number, .. } if wanted.contains(number))
}

/// Returns true if a call wrote more than zeros, where zeros were.
fn writes_something(entry: &Entry) -> bool {
    let LogEvent::Call { effects, .. } = &entry.event else { return false };
    effects.writes.iter().any(|write| write.bytes.0.iter().any(|byte| *byte != 0))
}

/// The faults, each by its name and what it does to a log.
type Fault = fn(&mut Vec<Entry>, &mut Random);

fn a_tick_too_many(entries: &mut Vec<Entry>, random: &mut Random) {
    let all = those(entries, |entry| entry.ticks > 0);
    entries[all[random.below(all.len())]].ticks += 1;
}

fn a_tick_too_few(entries: &mut Vec<Entry>, random: &mut Random) {
    let all = those(entries, |entry| entry.ticks > 0);
    entries[all[random.below(all.len())]].ticks -= 1;
}

fn an_entry_less(entries: &mut Vec<Entry>, random: &mut Random) {
    let all = those(entries, |entry| matches!(entry.event, LogEvent::Call { .. }));
    entries.remove(all[random.below(all.len())]);
}

fn an_entry_twice(entries: &mut Vec<Entry>, random: &mut Random) {
    let all = those(entries, |entry| matches!(entry.event, LogEvent::Call { .. }));
    let number = all[random.below(all.len())];
    entries.insert(number, entries[number].clone());
}

fn a_result_that_is_other(entries: &mut Vec<Entry>, random: &mut Random) {
    let all = those(entries, |entry| is_call(entry, &[READ]));
    let LogEvent::Call { effects, .. } = &mut entries[all[random.below(all.len())]].event else {
        unreachable!("it is a call")
    };
    effects.result -= 1;
}

fn a_byte_that_is_other(entries: &mut Vec<Entry>, random: &mut Random) {
    // Those of the dynamic linker are overwritten later.
    let all = those(entries, |entry| is_call(entry, &[READ]));
    let number = all[all.len() - 1 - random.below(8)];
    let LogEvent::Call { effects, .. } = &mut entries[number].event else {
        unreachable!("it is a call")
    };
    let bytes = &mut effects.writes[0].bytes.0;
    let at = random.below(bytes.len());
    bytes[at] ^= 1 << random.below(8);
}

/// As if the table of system calls did not know that the call writes there.
fn a_write_less(entries: &mut Vec<Entry>, random: &mut Random) {
    let all = those(entries, |entry| is_call(entry, &[READ, FSTAT]) && writes_something(entry));
    let number = all[all.len() - 1 - random.below(8)];
    let LogEvent::Call { effects, .. } = &mut entries[number].event else {
        unreachable!("it is a call")
    };
    effects.writes.clear();
}

fn a_switch_elsewhere(entries: &mut Vec<Entry>, random: &mut Random) {
    let all = those(entries, |entry| matches!(entry.event, LogEvent::Switch { .. }));
    let number = all[random.below(all.len())];
    let LogEvent::Switch { place } = &mut entries[number].event else {
        unreachable!("it is a switch")
    };
    place.ip.0 += 1;
}

const FAULTS: [(&str, Fault); 8] = [
    ("a tick too many", a_tick_too_many),
    ("a tick too few", a_tick_too_few),
    ("an entry less", an_entry_less),
    ("an entry twice", an_entry_twice),
    ("another result", a_result_that_is_other),
    ("another byte", a_byte_that_is_other),
    ("a write less", a_write_less),
    ("a switch elsewhere", a_switch_elsewhere),
];

#[test]
fn each_fault_is_found() {
    if !have("gcc") {
        return;
    }
    let scene = Scene::new();
    let program = scene.compile("exact/kept.c", &["-w", "-O1"]);
    let dir = scene.path("recording");
    let mut recorder = contraflow();
    recorder.env("CONTRAFLOW_HOME", scene.path("store")).args(["record", "--exact", "-o"]);
    let said = text(&recorder.args([&dir, &program]).output().expect("it runs").stderr);
    let entries = entries_of(&dir);
    let mut random = Random(0x1234_5678_9abc_def1);
    let copy = scene.path("copy");
    rewrite(&dir, &copy, &entries);
    let verdict = check(&copy);
    assert!(verdict.starts_with(WHOLE), "{verdict}\n{said}");
    for (name, put) in FAULTS {
        for _ in 0..3 {
            let mut faulty = entries.clone();
            put(&mut faulty, &mut random);
            fs::remove_dir_all(&copy).expect("it is there");
            rewrite(&dir, &copy, &faulty);
            let verdict = check(&copy);
            assert!(!verdict.contains("the replay is the recorded run"), "{name}: {verdict}");
            let named =
                ["differs from the recording at", "the byte at", "makes no sense", "changes"];
            let is_named = named.iter().any(|words| verdict.contains(words));
            assert!(is_named, "{name}: {verdict}");
        }
    }
}

/// No move passes the end of a run that was made to end in an earlier program than the log's last.
#[test]
fn a_run_that_ends_early_has_no_later_program() {
    if !have("gcc") {
        return;
    }
    let scene = Scene::new();
    let program = scene.compile("exact/epochs.c", &["-w"]);
    let dir = scene.path("recording");
    let mut recorder = contraflow();
    recorder.env("CONTRAFLOW_HOME", scene.path("store")).args(["record", "--exact", "-o"]);
    recorder.arg(&dir).arg("--").arg(&program).arg("1").output().expect("it runs");
    let mut entries = entries_of(&dir);
    let is_start = |entry: &Entry| matches!(entry.event, LogEvent::Start(_));
    let second = entries.iter().skip(1).position(is_start).expect("it has programs") + 1;
    let is_call = |entry: &Entry| matches!(entry.event, LogEvent::Call { .. });
    let number = entries[..second - 1].iter().rposition(is_call).expect("it makes calls");
    entries[number].check ^= 1;
    let copy = scene.path("copy");
    rewrite(&dir, &copy, &entries);

    let mut replay = Replay::open(Reader::open(&copy).expect("a recording")).expect("it opens");
    let last = Position::after_entries(entries.len() as u64 - 1);
    let Err(Error::Diverged { position, .. }) =
        replay.seek(Position::after_entries(number as u64 + 1))
    else {
        panic!("it differs")
    };
    replay.end_before(position.entry);
    let path = replay.program().0;
    assert_eq!(replay.go_to_end(&|| false).expect("it is replayed"), MoveEnd::NoMoreHistory);
    assert_eq!(replay.position().entry, position.entry);
    replay.seek(last).expect("it is replayed");
    assert_eq!((replay.position().entry, replay.program().0), (position.entry, path));
}
