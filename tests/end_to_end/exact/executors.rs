//! Three ways to execute a recorded run agree: single steps by the CPU, translated code that stops
//! before each instruction, and translated code at full speed.

use crate::support::{Random, Scene, contraflow, have, text};
use contraflow::common::{Addr, Tid};
use contraflow::insn::Registers;
use contraflow::recording::Reader;
use contraflow::recording::log::{Bytes, Cursor, LogEvent};
use contraflow::replay::{Goals, MoveEnd, Position, Replay};
use contraflow::tracee::siginfo;
use std::cell::RefCell;
use std::collections::{BTreeSet, VecDeque};
use std::path::Path;
use std::process::Stdio;

/// Instructions that are kept at a time.
const PIECE: u64 = 50_000;
/// One tick in so many is a place to which a replay runs at full speed.
const SAMPLED: u64 = 2000;
/// Which components are not as they are after a reset. No program sees that; what it may is logged.
const XSTATE_BV: std::ops::Range<usize> = 512..520;
const READ_BYTES: usize = 1 << 16;

/// The parts of a run that are compared.
#[derive(Clone, Copy)]
struct Windows {
    /// Instructions from the beginning.
    first: u64,
    /// Windows at random places, and the instructions of each.
    count: usize,
    each: u64,
}

/// A place before an instruction.
#[derive(Clone, Debug)]
struct Place {
    at: Position,
    tid: Tid,
    registers: Registers,
}

/// The number of things that were compared.
#[derive(Debug, Default)]
struct Tally {
    programs: u64,
    instructions: u64,
    /// Places that were reached at full speed.
    sampled: u64,
    /// Places where all threads and all memory were compared, and the bytes.
    wholes: u64,
    bytes: u64,
}

/// Returns true if an entry comes to a thread before the instruction that it is at, or in a call.
fn is_beside(event: &LogEvent) -> bool {
    match event {
        LogEvent::Switch { .. }
        | LogEvent::Returns { .. }
        | LogEvent::Changed { .. }
        | LogEvent::Born { .. }
        | LogEvent::Finish { .. } => true,
        LogEvent::Signal { siginfo: Bytes(info), .. } => {
            let info = info.first_chunk().expect("it is a siginfo");
            siginfo::fault_address(info).is_none() || siginfo::signal_of(info) == libc::SIGTRAP
        }
        _ => false,
    }
}

fn known(registers: &Registers) -> Registers {
    Registers { orig_rax: 0, ..*registers }
}

/// One recording, executed in three ways.
struct Executors<'a> {
    what: &'a str,
    stepped: Replay,
    stopped: Replay,
    fast: Replay,
    /// The log, read as far as the steps have come.
    log: Cursor,
    tally: &'a mut Tally,
}

impl<'a> Executors<'a> {
    fn open(dir: &Path, what: &'a str, tally: &'a mut Tally) -> Self {
        let open =
            || Replay::open(Reader::open(dir).expect("it is a recording")).expect("it opens");
        let stepped = open();
        let log = stepped.reader().log().unwrap().expect("it has a log").cursor();
        Self { what, stepped, stopped: open(), fast: open(), log, tally }
    }

    /// Steps over so many instructions. Returns the places before those that were attempted, and
    /// those at which ticks begin.
    fn step(&mut self, count: u64) -> (VecDeque<Place>, Vec<Place>, bool) {
        let (mut places, mut ticks) = (VecDeque::new(), Vec::new());
        for number in 0..count {
            let at = self.stepped.position();
            let place = self.stepped.running().map(|tid| {
                let thread = self.stepped.thread(tid).expect("it is readable").expect("it exists");
                Place { at, tid, registers: known(&thread.registers) }
            });
            let found = self.stepped.step_in_order(&[]);
            let found = found.unwrap_or_else(|error| panic!("{}: {error}", self.what));
            if found == MoveEnd::NoMoreHistory {
                return (places, ticks, false);
            }
            let is_attempted = at.entry == self.stepped.position().entry || {
                let mut entry = None;
                while self.log.index() <= at.entry {
                    entry = self.log.read().expect("it is readable");
                }
                !is_beside(&entry.expect("it was replayed").event)
            };
            if let Some(place) = place.filter(|_| is_attempted) {
                if at.instructions == 0 && number % SAMPLED == 0 {
                    ticks.push(place.clone());
                }
                places.push_back(place);
            }
        }
        (places, ticks, true)
    }

    /// Runs translated code, which stops before each of the instructions.
    fn stop_at(&mut self, places: VecDeque<Place>) {
        let count = places.len() as u64;
        let stops: BTreeSet<Addr> = places.iter().map(|place| place.registers.rip.into()).collect();
        let (places, wrong) = (RefCell::new(places), RefCell::new(None));
        let accepts = |replay: &Replay| {
            let thread = replay.loaded().expect("it executes");
            let own = (thread.tid, known(&thread.registers));
            let mut places = places.borrow_mut();
            let place = places.pop_front().expect("there is one more");
            if own != (place.tid, place.registers) {
                *wrong.borrow_mut() = Some((place, own));
                return true;
            }
            places.is_empty()
        };
        let goals = Goals { accepts: &accepts, ..Goals::at(&stops, &|| false) };
        let found = self.stopped.run_forward(&goals, &[]);
        let found = found.unwrap_or_else(|error| panic!("{}: {error}", self.what));
        if let Some((place, own)) = wrong.into_inner() {
            panic!("{}: stepped {place:x?},\ntranslated {own:x?}", self.what);
        }
        assert_eq!((found, places.into_inner().len()), (MoveEnd::Stop, 0), "{}", self.what);
        self.tally.instructions += count;
    }

    /// Runs at full speed to places.
    fn sample(&mut self, places: &[Place]) {
        for place in places {
            self.fast.seek(place.at).unwrap_or_else(|error| panic!("{}: {error}", self.what));
            let own = self.fast.thread(place.tid).expect("it is readable").expect("it exists");
            assert_eq!(known(&own.registers), place.registers, "{} at {}", self.what, place.at);
            self.tally.sampled += 1;
        }
    }

    /// Compares all threads and all memory at the place that the steps have come to.
    fn compare_all(&mut self) {
        let at = self.stepped.position();
        for other in [&mut self.stopped, &mut self.fast] {
            other.seek(at).unwrap_or_else(|error| panic!("{}: {error}", self.what));
            assert_eq!((other.position(), other.running()), (at, self.stepped.running()));
            assert_eq!(other.threads(), self.stepped.threads(), "{} at {at}", self.what);
            for tid in other.threads() {
                let [own, wanted] = [&*other, &self.stepped].map(|replay| state(replay, tid));
                assert_eq!(own, wanted, "{} at {at}: thread {tid}", self.what);
            }
            self.tally.bytes += compare_memory(&self.stepped, other, self.what);
        }
        self.tally.wholes += 1;
    }

    fn window(&mut self, start: Position, instructions: u64) {
        self.stepped.seek(start).expect("it is a position");
        self.stopped.seek(start).expect("it is a position");
        let (mut left, mut is_first) = (instructions, true);
        while left > 0 {
            let (mut places, ticks, goes_on) = self.step(left.min(PIECE));
            if std::mem::take(&mut is_first) && places.front().is_some_and(|p| p.at == start) {
                // A run passes a stop where it begins.
                places.pop_front();
            }
            if !places.is_empty() {
                self.stop_at(places);
            }
            self.sample(&ticks);
            left = if goes_on { left.saturating_sub(PIECE) } else { 0 };
        }
        self.compare_all();
    }

    fn windows(&mut self, windows: Windows, random: &mut Random) {
        self.window(self.stepped.first(), windows.first);
        let last = usize::try_from(self.stepped.last_moment()).unwrap();
        let mut moments: Vec<usize> = (0..windows.count).map(|_| random.below(last)).collect();
        moments.sort_unstable();
        for moment in moments {
            let start = self.stepped.position_of_moment(moment as u64);
            // What the first window or the one before has is not compared again.
            if start > self.stepped.position() {
                self.window(start, windows.each);
            }
        }
        self.tally.programs += 1;
    }
}

/// Returns the registers of a thread, and its extended state.
fn state(replay: &Replay, tid: Tid) -> (Registers, Option<Vec<u8>>) {
    let thread = replay.thread(tid).expect("it is readable").expect("it exists");
    let mut extended = thread.xstate;
    if let Some(bytes) = extended.as_mut().and_then(|all| all.get_mut(XSTATE_BV)) {
        bytes.fill(0);
    }
    (known(&thread.registers), extended)
}

/// Compares all memory that can be written. Returns its size.
fn compare_memory(one: &Replay, other: &Replay, what: &str) -> u64 {
    let writable = |replay: &Replay| {
        let mut ranges: Vec<(Addr, Addr)> = Vec::new();
        for mapping in replay.mappings().iter().filter(|mapping| mapping.protection.write) {
            match ranges.last_mut().filter(|last| last.1 == mapping.range.start) {
                // The kernel joins neighbours, unless one of them was unmapped for a while.
                Some(last) => last.1 = mapping.range.end,
                None => ranges.push((mapping.range.start, mapping.range.end)),
            }
        }
        ranges
    };
    assert_eq!(writable(one), writable(other), "{what}");
    let (mut compared, mut bytes) = (0, [vec![0; READ_BYTES], vec![0; READ_BYTES]]);
    for (start, end) in writable(one) {
        let mut at = start;
        while at < end {
            let size = READ_BYTES.min(usize::try_from(end.0 - at.0).unwrap());
            let known = [one, other].map(|replay| {
                let buf = &mut bytes[usize::from(!std::ptr::eq(replay, one))];
                replay.read(at, &mut buf[..size])
            });
            assert_eq!(known[0], known[1], "{what}: memory at {at}");
            let [own, others] = &bytes;
            if own[..known[0]] != others[..known[0]] {
                let byte = (0..known[0]).find(|byte| own[*byte] != others[*byte]).unwrap_or(0);
                panic!("{what}: the byte at {} differs", at.wrapping_add(byte as u64));
            }
            compared += known[0] as u64;
            at = at.wrapping_add(size as u64);
        }
    }
    compared
}

fn execute(command: &[&str], windows: Windows, random: &mut Random, tally: &mut Tally) {
    if !have(command[0]) {
        return;
    }
    let scene = Scene::new();
    let dir = scene.path("recording");
    let mut recorder = contraflow();
    recorder.env("CONTRAFLOW_HOME", scene.path("store")).args(["record", "--exact", "-o"]);
    recorder.arg(&dir).arg("--").args(command).current_dir(scene.path(""));
    let output = recorder.stdin(Stdio::null()).output().expect("contraflow runs");
    let what = format!("{command:?}");
    assert!(dir.join("manifest.json").exists(), "{what}: {}", text(&output.stderr));
    Executors::open(&dir, &what, tally).windows(windows, random);
}

const PYTHON: &str = "import threading
def work(n): return sum(i * n for i in range(9000))
ts = [threading.Thread(target=work, args=(n,)) for n in range(4)]
[t.start() for t in ts]; [t.join() for t in ts]; print('done')";

/// Programs of all kinds, those that are not installed left out.
const PROGRAMS: [&[&str]; 33] = [
    &["ls", "-laR", "/etc/apt"],
    &["sort", "-R", "--random-source=/bin/bash", "/etc/services"],
    &["wc", "/etc/services", "/bin/bash"],
    &["sha256sum", "/bin/ls"],
    &["gzip", "-9", "-c", "/bin/ls"],
    &["xz", "-T2", "-k", "-c", "/bin/ls"],
    &["bzip2", "-k", "-c", "/bin/ls"],
    &["zstd", "-q", "-c", "/bin/bash"],
    &[
        "sqlite3",
        ":memory:",
        "create table t(a); insert into t values(1),(2); select sum(a) from t;",
    ],
    &["perl", "-e", "my %h; $h{$_ % 97} .= $_ for 1..20000; print length(join '', values %h)"],
    &["/usr/bin/python3", "-c", PYTHON],
    &["bash", "-c", "trap 'echo usr1' USR1; for i in 1 2 3; do kill -USR1 $$; echo $i | cat; done"],
    &["sh", "-c", "ls / | sort -r | head -3"],
    &["gcc", "-O2", "-c", "-x", "c", "-o", "/dev/null", "/usr/include/stdio.h"],
    &["git", "log", "-3"],
    &["node", "-e", "let s = 0; for (let i = 0; i < 1e6; i++) s += i % 7; console.log(s)"],
    &["java", "-Xmx64m", "-XX:+UseSerialGC", "-version"],
    &["go", "version"],
    &["rustc", "--version"],
    &["openssl", "genrsa", "-out", "/dev/null", "1024"],
    &["lua5.4", "-e", "local t = {} for i = 1, 99999 do t[i % 97] = i end print(t[3])"],
    &[
        "ruby",
        "-e",
        "puts 4.times.map { |i| Thread.new { 900.times.sum { |j| i * j } } }.map(&:value)",
    ],
    &["php", "-r", "for ($i = 0; $i < 99999; $i++) $a[$i % 97] = $i; echo $a[3];"],
    &["awk", "BEGIN { for (i = 0; i < 50000; i++) s += sin(i); print s }"],
    &["tar", "cf", "/dev/null", "/usr/include/linux"],
    &["grep", "-rc", "define", "/usr/include/linux"],
    &["sed", "-n", "s/[aeiou]\\(.\\)/\\1x/gp", "/etc/services"],
    &["find", "/usr/include", "-name", "*.h", "-size", "+40k"],
    &["bc", "-l", "-e", "scale=200; a(1)*4"],
    &["objdump", "-d", "/bin/true"],
    &["gdb", "-nx", "-batch", "-ex", "info functions main", "/bin/true"],
    &["as", "-o", "/dev/null", "/dev/null"],
    // A Rust program with the runtime of tokio, which ends at the end of its input.
    &[env!("CARGO_BIN_EXE_contraflow"), "mcp"],
];

/// Programs of tests/programs.
const SOURCES: [(&str, &[&str]); 10] = [
    ("exact/races/openmp.c", &["-fopenmp"]),
    ("exact/races/async.cpp", &["-lstdc++"]),
    ("exact/races/kicks.c", &[]),
    ("exact/races/mutexes.c", &[]),
    ("exact/races/scheduler.c", &[]),
    ("exact/kills/jit.c", &[]),
    ("exact/kills/calls.c", &[]),
    ("exact/repeated.c", &[]),
    ("exact/answered.c", &[]),
    ("exact/saves.c", &[]),
];

fn execute_compiled(
    sources: &[(&str, &[&str])],
    windows: Windows,
    random: &mut Random,
    tally: &mut Tally,
) {
    let scene = Scene::new();
    for (source, options) in sources.iter().filter(|_| have("gcc")) {
        let options = [&["-w", "-O1"], *options].concat();
        if let Some(program) = scene.try_compile(source, &options) {
            // All that they take: a round, or a file and rounds.
            let arguments: &[&str] = if source.contains("kills") { &["x", "99"] } else { &["1"] };
            let command = [&[program.to_str().unwrap()], arguments].concat();
            execute(&command, windows, random, tally);
        }
    }
}

#[test]
fn steps_and_translated_code_agree() {
    let windows = Windows { first: 1500, count: 1, each: 1000 };
    let (mut random, mut tally) = (Random(0x9e37_79b9_7f4a_7c15), Tally::default());
    execute(&["gzip", "-c", "/etc/services"], windows, &mut random, &mut tally);
    execute_compiled(&[SOURCES[2], SOURCES[3], SOURCES[8]], windows, &mut random, &mut tally);
    println!("{tally:?}");
}

/// `CONTRAFLOW_WINDOWS=2000000,50,100000`: the instructions of the first window, and the number and
/// instructions of others. `CONTRAFLOW_PROGRAMS=gcc,exact/saves.c`: these programs only.
#[test]
#[ignore = "takes minutes: make check-long"]
fn steps_and_translated_code_of_many_programs_agree() {
    let asked = std::env::var("CONTRAFLOW_WINDOWS").unwrap_or_else(|_| "200000,10,10000".into());
    let numbers: Vec<u64> = asked.split(',').map(|n| n.parse().expect("a number")).collect();
    let [first, count, each] = numbers[..] else { panic!("FIRST,COUNT,EACH") };
    let windows = Windows { first, count: usize::try_from(count).unwrap(), each };
    let (mut random, mut all) = (Random(0x1357_9bdf_0246_8ace), Tally::default());
    let chosen = std::env::var("CONTRAFLOW_PROGRAMS").ok();
    let is_chosen = |program: &str| {
        chosen.as_ref().is_none_or(|names| names.split(',').any(|name| name == program))
    };
    let sources: Vec<_> = SOURCES.into_iter().filter(|(source, _)| is_chosen(source)).collect();
    execute_compiled(&sources, windows, &mut random, &mut all);
    for command in PROGRAMS.into_iter().filter(|command| is_chosen(command[0])) {
        let before = all.instructions;
        execute(command, windows, &mut random, &mut all);
        println!("{command:?}: {} instructions", all.instructions - before);
    }
    println!("{all:?}");
    assert!(all.programs > 0, "no such program: {chosen:?}");
}
