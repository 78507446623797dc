//! The recorded process is its own witness: its registers and memory at random moments are those of
//! the replay there.

use super::record_with;
use crate::support::{Scene, have};
use contraflow::common::{Addr, Tid};
use contraflow::insn::Registers;
use contraflow::recording::Reader;
use contraflow::recording::log::{PlaceInTick, check_of};
use contraflow::replay::{Position, Replay};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

const PAGE_BYTES: usize = 4096;
/// Which components are not as they are after a reset. No program sees that; what it may is logged.
const XSTATE_BV: std::ops::Range<usize> = 512..520;
/// At one moment in so many all memory is compared, and at the others what changed.
const WHOLE: usize = 25;

/// The state of a program in the midst of its run.
struct Moment {
    tick: Position,
    place: PlaceInTick,
    tid: Tid,
    threads: Vec<(Tid, Registers, Vec<u8>)>,
    /// Memory that the kernel may be writing.
    busy: Vec<(u64, u64)>,
    gone: Vec<u64>,
    changed: BTreeMap<u64, Vec<u8>>,
}

/// Reads a witness's file, as src/capture/exact/witness.rs describes it.
struct Witness(Vec<u8>, usize);

impl Witness {
    fn word(&mut self) -> u64 {
        u64::from_le_bytes(self.bytes(8).try_into().unwrap())
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        let bytes = self.0[self.1..self.1 + count].to_vec();
        self.1 += count;
        bytes
    }

    fn tid(&mut self) -> Tid {
        Tid(self.word().try_into().unwrap())
    }

    fn list<T>(&mut self, item: impl Fn(&mut Self) -> T) -> Vec<T> {
        let count = self.word();
        (0..count).map(|_| item(self)).collect()
    }
}

impl Iterator for Witness {
    type Item = Moment;

    fn next(&mut self) -> Option<Moment> {
        (self.1 < self.0.len()).then(|| Moment {
            tick: Position { entry: self.word(), ticks: self.word(), instructions: 0 },
            place: PlaceInTick { ip: Addr(self.word()), rcx: self.word() },
            tid: self.tid(),
            threads: self.list(|file| {
                let (tid, words) = (file.tid(), [(); 27].map(|()| file.word()));
                let size = file.word();
                (tid, Registers::from_words(words), file.bytes(size.try_into().unwrap()))
            }),
            busy: self.list(|file| (file.word(), file.word())),
            gone: self.list(Self::word),
            changed: self.list(|file| (file.word(), file.bytes(PAGE_BYTES))).into_iter().collect(),
        })
    }
}

/// The number of moments and of values (registers, words of memory) that were compared.
#[derive(Debug, Default)]
struct Compared {
    moments: u64,
    values: u64,
    /// Moments in the midst of a REP instruction.
    repeated: u64,
    faults: Vec<String>,
}

impl Compared {
    fn threads(&mut self, replay: &Replay, moment: &Moment) {
        let at = moment.tick;
        for (tid, registers, extended) in &moment.threads {
            let Some(there) = replay.thread(*tid).expect("it is readable") else {
                self.faults.push(format!("{at}: thread {tid} is not there"));
                continue;
            };
            if check_of(&there.registers) != check_of(registers) {
                self.faults.push(format!(
                    "{at} {}: thread {tid} has {:x?}, and had {:x?}",
                    moment.place.ip, there.registers, registers
                ));
            }
            let mut own = there.xstate.expect("it has extended state");
            let mut extended = extended.clone();
            own[XSTATE_BV].fill(0);
            extended[XSTATE_BV].fill(0);
            self.values += 24 + extended.len() as u64 / 8;
            if let Some(byte) = (0..extended.len()).find(|i| own.get(*i) != Some(&extended[*i])) {
                let ip = moment.place.ip;
                self.faults
                    .push(format!("{at} {ip}: byte {byte} of thread {tid}'s extended state"));
            }
        }
    }

    fn page(&mut self, replay: &Replay, moment: &Moment, page: u64, bytes: &[u8]) {
        let mut own = [0; PAGE_BYTES];
        let known = replay.read(Addr(page), &mut own);
        self.values += PAGE_BYTES as u64 / 8;
        let is_busy =
            |addr: u64| moment.busy.iter().any(|(start, end)| (*start..*end).contains(&addr));
        let differs =
            |i: &usize| (*i >= known || own[*i] != bytes[*i]) && !is_busy(page + *i as u64);
        if own != *bytes
            && let Some(first) = (0..PAGE_BYTES).find(differs)
        {
            let count = (0..PAGE_BYTES).filter(differs).count();
            self.faults.push(format!(
                "{} {}: {count} bytes from {:#x} on: {:#x}, and was {:#x}, of {known}",
                moment.tick,
                moment.place.ip,
                page + first as u64,
                own[first],
                bytes[first]
            ));
        }
    }
}

/// Compares the replay of a recording with its witness.
fn compare(dir: &Path, witness: &Path) -> Compared {
    let mut replay = Replay::open(Reader::open(dir).expect("it is a recording")).expect("it opens");
    let mut compared = Compared::default();
    let mut memory: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
    let mut places = BTreeSet::new();
    for (number, moment) in Witness(std::fs::read(witness).expect("it is there"), 0).enumerate() {
        replay.seek_place(moment.tick, moment.place).unwrap_or_else(|error| {
            panic!("{} at {}: {error}", moment.tick, moment.place.ip);
        });
        compared.moments += 1;
        if replay.running() != Some(moment.tid) {
            compared.faults.push(format!("{}: another thread runs", moment.tick));
        }
        compared.threads(&replay, &moment);
        for page in &moment.gone {
            memory.remove(page);
        }
        if number % WHOLE == WHOLE - 1 {
            memory.extend(moment.changed.clone());
            for (page, bytes) in &memory {
                compared.page(&replay, &moment, *page, bytes);
            }
        } else {
            for (page, bytes) in &moment.changed {
                compared.page(&replay, &moment, *page, bytes);
            }
            memory.extend(moment.changed);
        }
        let is_new = places.insert((moment.tick, moment.place.ip));
        compared.repeated += u64::from(!is_new);
        if compared.faults.len() > 20 {
            break;
        }
    }
    compared
}

/// Records a command with a witness, and returns what was compared.
fn witness(command: &[&str]) -> Compared {
    let scene = Scene::new();
    let file = scene.path("witness");
    let (dir, _) = record_with(&scene, &["--witness", file.to_str().unwrap()], command);
    let compared = compare(&dir, &file);
    assert!(compared.faults.is_empty(), "{command:?}: {:#?}", compared.faults);
    compared
}

fn compiled(source: &str) -> Compared {
    let scene = Scene::new();
    let program = scene.compile(source, &["-w", "-O1"]);
    witness(&[program.to_str().unwrap()])
}

#[test]
fn a_replay_has_what_the_program_had() {
    if have("gcc") {
        for source in ["exact/signals.c", "exact/races.c", "exact/repeated.c"] {
            let compared = compiled(source);
            assert!(compared.moments > 20, "{source}: {compared:?}");
        }
    }
}

/// Programs of all kinds, those that are not installed left out.
const PROGRAMS: [&[&str]; 24] = [
    &["gzip", "-9", "-c", "/bin/bash"],
    &["bzip2", "-k", "-c", "/bin/ls"],
    &["xz", "-T2", "-k", "-c", "/bin/ls"],
    &["zstd", "-q", "-c", "/bin/bash"],
    &["sort", "-R", "--random-source=/bin/bash", "/etc/services"],
    &["sh", "-c", "ls /; for i in 1 2 3; do echo $i | cat; done"],
    &["bash", "-c", "trap 'echo usr1' USR1; for i in 1 2 3; do kill -USR1 $$; done; wait"],
    &["tar", "cf", "/dev/null", "/usr/include/linux"],
    &["grep", "-rc", "define", "/usr/include/linux"],
    &["perl", "-e", "my %h; $h{$_ % 97} .= $_ for 1..50000; print length(join '', values %h)"],
    &[
        "python3",
        "-c",
        "import json, re; print(len(json.dumps([re.escape(str(i)) for i in range(9999)])))",
    ],
    &["python3", "-c", PYTHON_THREADS],
    &[
        "sqlite3",
        ":memory:",
        "create table t(a); insert into t values(1),(2); select sum(a) from t;",
    ],
    &["node", "-e", "let s = 0; for (let i = 0; i < 1e6; i++) s += i % 7; console.log(s)"],
    &["java", "-Xmx64m", "-XX:+UseSerialGC", "-version"],
    &["git", "--version"],
    &["gcc", "--version"],
    &["openssl", "genrsa", "-out", "/dev/null", "1024"],
    &["lua5.4", "-e", "local t = {} for i = 1, 99999 do t[i % 97] = i end print(t[3])"],
    &[
        "ruby",
        "-e",
        "puts 4.times.map { |i| Thread.new { 2000.times.sum { |j| i * j } } }.map(&:value).inspect",
    ],
    &["php", "-r", "for ($i = 0; $i < 99999; $i++) $a[$i % 97] = $i; echo $a[3];"],
    &[
        "guile",
        "-c",
        "(use-modules (ice-9 threads)) (display (par-map (lambda (x) (* x x)) (iota 50)))",
    ],
    &["ocaml", "-version"],
    &["go", "version"],
];

const PYTHON_THREADS: &str = "import threading
def work(n): return sum(i * n for i in range(20000))
ts = [threading.Thread(target=work, args=(n,)) for n in range(4)]
[t.start() for t in ts]; [t.join() for t in ts]; print('done')";

/// Programs of tests/programs.
const SOURCES: [&str; 11] = [
    "exact/signals.c",
    "exact/interrupted.c",
    "exact/repeated.c",
    "exact/races.c",
    "exact/spinning.c",
    "exact/waiting.c",
    "exact/queues.c",
    "exact/mappings.c",
    "exact/grown.c",
    "exact/counters.c",
    "exact/epochs.c",
];

#[test]
#[ignore = "takes minutes: make check-long"]
fn many_programs_are_their_own_witnesses() {
    let (mut moments, mut values, mut faults) = (0, 0, Vec::new());
    let commands =
        PROGRAMS.iter().filter(|command| have(command[0])).map(|command| command.to_vec());
    let scene = Scene::new();
    let programs: Vec<_> =
        SOURCES.iter().map(|source| scene.compile(source, &["-w", "-O1"])).collect();
    let compiled = programs.iter().map(|program| vec![program.to_str().unwrap()]);
    for command in compiled.chain(commands) {
        let scene = Scene::new();
        let file = scene.path("witness");
        let (dir, _) = record_with(&scene, &["--witness", file.to_str().unwrap()], &command);
        let compared = compare(&dir, &file);
        println!(
            "{command:?}: {} moments, {} again, {} values, {} faults {:#?}",
            compared.moments,
            compared.repeated,
            compared.values,
            compared.faults.len(),
            compared.faults.iter().take(3).collect::<Vec<_>>()
        );
        moments += compared.moments;
        values += compared.values;
        faults.extend(compared.faults);
    }
    println!("{moments} moments, {values} values");
    assert!(faults.is_empty(), "{faults:#?}");
}
