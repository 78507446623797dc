//! Two ways through a replay agree: single steps, and runs of translated code with seeks, stops and
//! watches, in both directions.

use super::record;
use crate::support::{Random, Scene, have};
use contraflow::common::{Addr, AddrRange, Tid};
use contraflow::insn::{MAX_INSN_BYTES, Registers, writes};
use contraflow::recording::Reader;
use contraflow::recording::log::{Bytes, LogEvent};
use contraflow::replay::{Goals, MoveEnd, Position, Replay, Watch, WatchKind};
use contraflow::tracee::siginfo;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The places of a window.
const PLACES: usize = 300;
/// Which components are not as they are after a reset. No program sees that; what it may is logged.
const XSTATE_BV: std::ops::Range<usize> = 512..520;
/// Bytes around the stack pointer that are compared.
const STACK_BYTES: usize = 2048;

/// A place of the run, as single steps show it.
#[derive(Debug)]
struct Place {
    at: Position,
    tid: Tid,
    state: State,
    code: Vec<u8>,
    /// False if another entry of the log comes before the instruction here is attempted.
    is_attempted: bool,
}

/// The state of a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct State {
    registers: Registers,
    extended: Option<Vec<u8>>,
    stack: Vec<u8>,
}

pub(super) fn state(replay: &Replay, tid: Tid) -> State {
    let thread = replay.thread(tid).expect("it is readable").expect("the thread is there");
    let mut stack = vec![0; STACK_BYTES];
    let known = replay.read(Addr(thread.registers.rsp), &mut stack);
    stack.truncate(known);
    let registers = Registers { orig_rax: 0, ..thread.registers };
    let mut extended = thread.xstate;
    if let Some(bytes) = extended.as_mut().and_then(|all| all.get_mut(XSTATE_BV)) {
        bytes.fill(0);
    }
    State { registers, extended, stack }
}

/// Returns true if an entry comes to a thread between two instructions, or in a call, and not of an
/// instruction.
fn is_between(event: &LogEvent) -> bool {
    match event {
        LogEvent::Switch { .. } | LogEvent::Returns { .. } | LogEvent::Changed { .. } => true,
        LogEvent::Signal { siginfo: Bytes(info), .. } => {
            let info = info.first_chunk().expect("it is a siginfo");
            siginfo::fault_address(info).is_none() || siginfo::signal_of(info) == libc::SIGTRAP
        }
        _ => false,
    }
}

/// Steps through a window of the run.
fn steps(replay: &mut Replay, start: Position, count: usize) -> Vec<Place> {
    replay.seek(start).expect("it is a position");
    let mut cursor = replay.reader().log().unwrap().expect("it has a log").cursor();
    let mut entry = cursor.read().unwrap();
    let mut places: Vec<Place> = Vec::new();
    while places.len() < count {
        let Some(tid) = replay.running() else {
            // It is not born yet.
            assert_ne!(replay.step_in_order(&[]).expect("it steps"), MoveEnd::NoMoreHistory);
            continue;
        };
        let at = replay.position();
        let state = state(replay, tid);
        let mut code = vec![0; MAX_INSN_BYTES];
        let known = replay.read(Addr(state.registers.rip), &mut code);
        code.truncate(known);
        places.push(Place { at, tid, state, code, is_attempted: true });
        if replay.step_in_order(&[]).expect("it steps") == MoveEnd::NoMoreHistory {
            break;
        }
        let now = replay.position();
        assert!(at < now, "{at} comes before {now}");
        if now.entry != at.entry {
            while cursor.index() <= at.entry {
                entry = cursor.read().unwrap();
            }
            let event = &entry.as_ref().expect("there is an entry").event;
            places.last_mut().expect("there is one").is_attempted = !is_between(event);
        }
    }
    places
}

/// Runs forward from a position, and returns the places up to `end` where it stops.
fn stops_forward(
    replay: &mut Replay,
    (start, end): (Position, Position),
    stops: &BTreeSet<Addr>,
    watches: &[Watch],
) -> Vec<(Position, MoveEnd)> {
    replay.seek(start).expect("it is a position");
    forward(replay, (start, end), Goals::at(stops, &|| false), watches)
}

/// Runs forward from where a replay is, and returns the places up to `end` where it ends.
fn forward(
    replay: &mut Replay,
    (start, end): (Position, Position),
    mut goals: Goals<'_>,
    watches: &[Watch],
) -> Vec<(Position, MoveEnd)> {
    replay.seek(start).expect("it is a position");
    let mut found = Vec::new();
    loop {
        let met = replay.run_forward(&goals, watches).expect("it runs");
        if met == MoveEnd::NoMoreHistory || replay.position() > end {
            return found;
        }
        let is_ahead = matches!(met, MoveEnd::Event(event) if event.is_ahead());
        goals.passed = is_ahead.then(|| replay.position().entry);
        found.push((replay.position(), met));
    }
}

/// Runs backwards from a position, and returns the places down to `start` where it stops, in the
/// order of the run.
fn stops_backward(
    replay: &mut Replay,
    (start, end): (Position, Position),
    stops: &BTreeSet<Addr>,
    watches: &[Watch],
) -> Vec<(Position, MoveEnd)> {
    backward(replay, (start, end), Goals::at(stops, &|| false), watches)
}

/// Runs backwards from `end`, and returns the places down to `start` where it ends, in the order of
/// the run.
fn backward(
    replay: &mut Replay,
    (start, end): (Position, Position),
    goals: Goals<'_>,
    watches: &[Watch],
) -> Vec<(Position, MoveEnd)> {
    replay.seek(end).expect("it is a position");
    let mut found = Vec::new();
    loop {
        let met = replay.run_back(&goals, watches).expect("it runs");
        if met == MoveEnd::NoMoreHistory || replay.position() < start {
            found.reverse();
            return found;
        }
        found.push((replay.position(), met));
    }
}

/// Compares stops at some addresses that the window executes.
fn compare_stops(replay: &mut Replay, places: &[Place], random: &mut Random) {
    let ips: BTreeSet<u64> = places.iter().map(|place| place.state.registers.rip).collect();
    let ips: Vec<u64> = ips.into_iter().collect();
    let any = |random: &mut Random| Addr(ips[random.below(ips.len())]);
    let stops: BTreeSet<Addr> = (0..3).map(|_| any(random)).collect();
    let span = (places[0].at, places[places.len() - 1].at);
    let is_stop =
        |place: &&Place| place.is_attempted && stops.contains(&Addr(place.state.registers.rip));
    let stepped: Vec<Position> = places.iter().filter(is_stop).map(|place| place.at).collect();
    let after_first = stepped.iter().filter(|at| **at > span.0);
    let wanted: Vec<_> = after_first.map(|at| (*at, MoveEnd::Stop)).collect();
    assert_eq!(stops_forward(replay, span, &stops, &[]), wanted, "forward to {stops:?}");
    let before_last = stepped.iter().filter(|at| **at < span.1);
    let wanted: Vec<_> = before_last.map(|at| (*at, MoveEnd::Stop)).collect();
    assert_eq!(stops_backward(replay, span, &stops, &[]), wanted, "back to {stops:?}");
}

/// Compares the system calls and signals of a window: forward, backwards by what the log says, and
/// backwards by a search for an instruction besides.
fn compare_events(replay: &mut Replay, places: &[Place]) {
    let span = (places[0].at, places[places.len() - 1].at);
    let is_within = |(at, _): &(Position, MoveEnd)| span.0 < *at && *at < span.1;
    let none = BTreeSet::new();
    let goals = |stops| Goals { events: &|_| true, ..Goals::at(stops, &|| false) };
    let only = |found: Vec<(Position, MoveEnd)>| {
        let is_event = |(_, met): &(Position, MoveEnd)| matches!(met, MoveEnd::Event(_));
        found.into_iter().filter(is_event).filter(is_within).collect::<Vec<_>>()
    };
    let ahead = only(forward(replay, span, goals(&none), &[]));
    assert_eq!(only(backward(replay, span, goals(&none), &[])), ahead, "by the log");
    let nowhere = BTreeSet::from([Addr(1)]);
    let mut searched = only(backward(replay, span, goals(&nowhere), &[]));
    // A search reports one of two that are at one place.
    searched.retain(|found| ahead.contains(found));
    let places = |found: &[(Position, MoveEnd)]| found.iter().map(|f| f.0).collect::<BTreeSet<_>>();
    assert_eq!(places(&searched), places(&ahead), "by a search");
}

/// Compares the changes of some memory that the window writes.
fn compare_watches(replay: &mut Replay, places: &[Place], random: &mut Random, bytes: u64) {
    let written: Vec<AddrRange> = places
        .windows(2)
        .filter(|pair| pair[0].tid == pair[1].tid)
        .flat_map(|pair| {
            let [before, after] = [&pair[0], &pair[1]].map(|place| &place.state.registers);
            writes(&pair[0].code, before, after)
        })
        .collect();
    let Some(range) = written.get(random.below(written.len().max(1))) else { return };
    let start = Addr(range.start.0 & !(bytes - 1));
    let watch = Watch { range: AddrRange::sized(start, bytes), kind: WatchKind::Write };
    let changes = changes_of(replay, places, watch.range);
    let span = (places[0].at, places[places.len() - 1].at);
    // So that nothing runs far beyond the window.
    let ends = [&places[0], &places[places.len() - 1]].map(|p| Addr(p.state.registers.rip));
    let stops = BTreeSet::from(ends);
    let is_stop =
        |place: &&Place| place.is_attempted && stops.contains(&Addr(place.state.registers.rip));
    // Where both are met, the watch is reported.
    let met = |changes: Vec<Position>| {
        let stopped = places.iter().filter(is_stop).map(|place| (place.at, MoveEnd::Stop));
        let watched = changes.into_iter().map(|at| (at, MoveEnd::Watch(0)));
        stopped.chain(watched).collect::<BTreeMap<_, _>>()
    };
    let mut wanted = met(changes.iter().map(|(_, after)| *after).collect());
    wanted.remove(&span.0);
    let wanted = Vec::from_iter(wanted);
    assert_eq!(stops_forward(replay, span, &stops, &[watch]), wanted, "forward to {watch:?}");
    let mut wanted = met(changes.iter().map(|(before, _)| *before).collect());
    wanted.remove(&span.1);
    let wanted = Vec::from_iter(wanted);
    assert_eq!(stops_backward(replay, span, &stops, &[watch]), wanted, "back to {watch:?}");
}

/// Returns the places before and after each change of memory in the window, by single steps.
fn changes_of(
    replay: &mut Replay,
    places: &[Place],
    range: AddrRange,
) -> Vec<(Position, Position)> {
    let bytes = |replay: &Replay| {
        let mut bytes = vec![0; usize::try_from(range.size_bytes()).unwrap()];
        let known = replay.read(range.start, &mut bytes);
        bytes.truncate(known);
        bytes
    };
    replay.seek(places[0].at).expect("it is a position");
    let (mut before, mut changes) = (bytes(replay), Vec::new());
    while replay.position() < places[places.len() - 1].at {
        let at = replay.position();
        replay.step_in_order(&[]).expect("it steps");
        let now = bytes(replay);
        if now != before {
            changes.push((at, replay.position()));
            before = now;
        }
    }
    changes
}

/// Compares states at some places, reached from anywhere.
fn compare_states(replay: &mut Replay, places: &[Place], random: &mut Random) {
    for _ in 0..12 {
        let place = &places[random.below(places.len())];
        replay.seek(place.at).expect("it is a position");
        assert_eq!(replay.position(), place.at);
        let there = state(replay, place.tid);
        assert_eq!(there.registers, place.state.registers, "at {}", place.at);
        assert!(there.stack == place.state.stack, "the stack at {}", place.at);
        assert!(there.extended == place.state.extended, "the extended state at {}", place.at);
    }
}

/// Compares both ways in some windows of a recording.
pub(super) fn compare(dir: &Path, windows: u64, seed: u64) {
    let mut replay = Replay::open(Reader::open(dir).expect("it is a recording")).expect("it opens");
    replay.go_to_end(&|| false).expect("it replays");
    let mut random = Random(seed);
    for number in 0..windows {
        let moment = random.below(usize::try_from(replay.last_moment()).unwrap()) as u64;
        let start = replay.position_of_moment(if number == 0 { 0 } else { moment });
        let places = steps(&mut replay, start, PLACES);
        if places.len() < 2 {
            continue;
        }
        compare_states(&mut replay, &places, &mut random);
        compare_stops(&mut replay, &places, &mut random);
        compare_events(&mut replay, &places);
        compare_watches(&mut replay, &places, &mut random, 8);
        compare_watches(&mut replay, &places, &mut random, 64);
    }
}

fn walk(source: &str, windows: u64) {
    if have("gcc") {
        let scene = Scene::new();
        let program = scene.compile(source, &["-w", "-O1"]);
        let (dir, _) = record(&scene, &[program.to_str().unwrap()]);
        compare(&dir, windows, 0x9e37_79b9_7f4a_7c15);
    }
}

#[test]
fn races_are_the_same_both_ways() {
    walk("exact/races.c", 2);
    walk("exact/inherited.c", 1);
}

#[test]
fn signals_are_the_same_both_ways() {
    walk("exact/signals.c", 2);
    walk("exact/interrupted.c", 1);
}

#[test]
fn programs_in_programs_are_the_same_both_ways() {
    walk("exact/epochs.c", 2);
}

#[test]
fn tools_are_the_same_both_ways() {
    for command in [&["sh", "-c", "ls /"][..], &["gzip", "-c", "/etc/passwd"]] {
        if have(command[0]) {
            let scene = Scene::new();
            let (dir, _) = record(&scene, command);
            compare(&dir, 2, 0x2545_f491_4f6c_dd1d);
        }
    }
}

/// Windows of longer runs: interpreters, code made at run time, threads, tools.
const LONGER: [&[&str]; 14] = [
    &[
        "python3",
        "-c",
        "import json, re; print(len(json.dumps([re.escape(str(i)) for i in range(9999)])))",
    ],
    &["python3", "-c", PYTHON_THREADS],
    &["perl", "-e", "my %h; $h{$_ % 97} .= $_ for 1..50000; print length(join '', values %h)"],
    &["bash", "-c", "for i in 1 2 3; do echo $i | cat; done; wait; ls / | sort -r | head -3"],
    &["node", "-e", "let s = 0; for (let i = 0; i < 1e6; i++) s += i % 7; console.log(s)"],
    &["xz", "-T2", "-k", "-c", "/bin/bash"],
    &["gzip", "-9", "-c", "/bin/bash"],
    &["bzip2", "-k", "-c", "/bin/bash"],
    &[
        "sqlite3",
        ":memory:",
        "create table t(a); insert into t values(1),(2); select sum(a) from t;",
    ],
    &["git", "--version"],
    &["gcc", "--version"],
    &["openssl", "version", "-a"],
    &["tar", "cf", "/dev/null", "/usr/include/linux"],
    &["sort", "-R", "--random-source=/bin/bash", "/etc/services"],
];

const PYTHON_THREADS: &str = "import threading
def work(n): return sum(i * n for i in range(20000))
ts = [threading.Thread(target=work, args=(n,)) for n in range(4)]
[t.start() for t in ts]; [t.join() for t in ts]; print('done')";

#[test]
#[ignore = "takes minutes: make check-long"]
fn longer_runs_are_the_same_both_ways() {
    for command in LONGER.iter().filter(|command| have(command[0])) {
        let scene = Scene::new();
        let (dir, _) = record(&scene, command);
        compare(&dir, 3, 0x1357_9bdf_0246_8ace);
    }
}
