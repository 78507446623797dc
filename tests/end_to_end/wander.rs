//! Random walks through a small program: gdb's own reverse commands must lead to the same places on
//! our recording, and on the live program, as on gdb's own `record full`, which knows all registers
//! at any time.

use crate::serve::Live;
use crate::support::{Random, Scene, contraflow, have};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// How often each is chosen.
const COMMANDS: [(&str, usize); 16] = [
    ("reverse-step", 5),
    ("reverse-next", 5),
    ("reverse-finish", 2),
    ("reverse-stepi", 2),
    ("reverse-nexti", 2),
    ("reverse-continue", 2),
    ("step", 3),
    ("next", 3),
    ("finish", 2),
    ("stepi", 1),
    ("nexti", 1),
    ("until", 2),
    ("continue", 2),
    ("break", 1),
    ("tbreak", 1),
    ("delete", 1),
];
const FUNCTIONS: [&str; 11] = [
    "fibonacci",
    "is_even",
    "is_odd",
    "twice",
    "halved",
    "squares",
    "last",
    "passed_on",
    "chosen",
    "sort",
    "each",
];

impl Random {
    fn command(&mut self) -> String {
        let mut number = self.below(COMMANDS.iter().map(|(_, weight)| weight).sum());
        let mut chosen = COMMANDS.iter().skip_while(|(_, weight)| {
            let later = number >= *weight;
            number = number.saturating_sub(*weight);
            later
        });
        match chosen.next().unwrap().0 {
            kind @ ("break" | "tbreak") => {
                format!("{kind} {}", FUNCTIONS[self.below(FUNCTIONS.len())])
            }
            "until" if self.below(2) == 0 => {
                format!("advance {}", FUNCTIONS[self.below(FUNCTIONS.len())])
            }
            command => command.to_owned(),
        }
    }
}

const VALUES: [(&str, &str); 1] = [("VALUES", "1")];
/// What gdb 13 says on a CPU with AMX, whose state is larger than its own buffer.
const UNWRITABLE: &str = "Couldn't write extended state status";
const HOME: &str = "CONTRAFLOW_HOME";

/// A walk through a program: commands, and where they lead.
pub(crate) struct Walk {
    scene: Scene,
    program: PathBuf,
    commands: PathBuf,
}

impl Walk {
    fn random(seed: u64, count: usize, flags: &[&str]) -> Self {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let text: Vec<String> = (0..count).map(|_| random.command()).collect();
        Self::new("wander.c", flags, &text)
    }

    pub(crate) fn new(source: &str, flags: &[&str], text: &[String]) -> Self {
        let scene = Scene::new();
        let program = scene.compile(source, flags);
        let commands = scene.path("commands");
        fs::write(&commands, text.join("\n")).unwrap();
        Self { scene, program, commands }
    }

    /// Where gdb comes to, when it has begun in this way.
    fn wander(&self, start: &[&str], kind: &[(&str, &str)]) -> String {
        let out = self.scene.path("out");
        let drive = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/end_to_end/wander.py");
        let mut gdb = Command::new("gdb");
        gdb.args(["-nx", "-q", "-batch", "-iex", "set debug-file-directory /nonexistent"]);
        for command in ["set pagination off", "set confirm off"].iter().chain(start) {
            gdb.args(["-ex", command]);
        }
        gdb.arg("-x").arg(drive).arg(&self.program).env("COMMANDS", &self.commands);
        gdb.env("OUT", &out)
            .env("SHELL", "/bin/sh")
            .env_remove("DEBUGINFOD_URLS")
            .stdin(Stdio::null());
        gdb.envs(kind.iter().copied());
        let output = gdb.output().expect("gdb runs");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let walked = fs::read_to_string(&out).unwrap_or_else(|_| panic!("{said}"));
        fs::remove_file(&out).unwrap();
        walked
    }

    fn store(&self) -> PathBuf {
        self.scene.path("store")
    }

    fn by_gdb(&self, kind: &[(&str, &str)]) -> String {
        let endless = "set record full insn-number-max unlimited";
        // The environment of the recording: the addresses of the stack depend on it.
        let alike = format!("set exec-wrapper env -i {HOME}={}", self.store().display());
        // Those of the CPU do not stop its own recording.
        let watches = "set can-use-hw-watchpoints 0";
        let start = [&alike, endless, watches, "break *main", "run"];
        self.wander(&start, kind)
    }

    fn recorded(&self, option: &str, kind: &[(&str, &str)]) -> String {
        let dir = self.scene.path(&format!("recording{option}"));
        let mut record = contraflow();
        record.env_clear().env(HOME, self.store());
        record.args(["record", "-q", option, "-o"]).arg(&dir).arg(&self.program);
        record.stdin(Stdio::null()).output().expect("contraflow runs");
        let contraflow = env!("CARGO_BIN_EXE_contraflow");
        let connect = format!("target remote | {contraflow} replay --stdio {}", dir.display());
        self.wander(&[&source(), &connect], kind)
    }

    fn live(&self) -> String {
        let live = Live::start(&self.scene, &[], &[self.program.to_str().unwrap()]);
        let connect = format!("target remote {}", live.address());
        let start = ["set sysroot /", "set remotetimeout 60", &source(), &connect];
        self.wander(&start, &[("LIVE", "1")])
    }

    /// Returns where gdb comes to, with all values, by its own recording and by an exact one: the lines
    /// up to where its own recording fails, and the number of those after it.
    pub(crate) fn with_values(&self) -> ([Vec<String>; 2], usize) {
        let lines = |text: String| text.lines().map(str::to_owned).collect::<Vec<_>>();
        let mut both = [self.by_gdb(&VALUES), self.recorded("--exact", &VALUES)].map(lines);
        let Some(at) = both[0].iter().position(|line| line.contains(UNWRITABLE)) else {
            return (both, 0);
        };
        println!("SKIPPED: lines from {at} on: gdb cannot write the registers of this CPU");
        let skipped = both[1].len().saturating_sub(at);
        for lines in &mut both {
            lines.truncate(at);
        }
        (both, skipped)
    }

    fn assert_same(&self, seed: u64, flags: &[&str]) {
        let (path, values) = (self.by_gdb(&[]), self.by_gdb(&VALUES));
        for (way, ours, by_gdb) in [
            ("path", self.recorded("--path", &[]), &path),
            ("exact", self.recorded("--exact", &VALUES), &values),
            ("live", self.live(), &path),
        ] {
            let same = by_gdb.lines().zip(ours.lines()).take_while(|(a, b)| a == b).count();
            let around = |text: &str| {
                let lines: Vec<_> = text.lines().skip(same.saturating_sub(5)).take(8).collect();
                lines.join("\n")
            };
            assert!(
                *by_gdb == ours,
                "{way}, seed {seed}, {flags:?}, line {same}:\n{}\nby gdb:\n{}",
                around(&ours),
                around(by_gdb)
            );
        }
    }
}

fn source() -> String {
    concat!("source ", env!("CARGO_MANIFEST_DIR"), "/gdb-scripts/contraflow.py").to_owned()
}

/// The number of commands of a walk.
const LENGTH: usize = 250;

/// `CONTRAFLOW_WALKS=20-40` walks with other seeds.
fn assert_walks(seed: u64, flags: &[&str]) {
    if !have("gcc") || !have("gdb") {
        return;
    }
    let asked = std::env::var("CONTRAFLOW_WALKS").ok();
    let range = asked.as_deref().map(|text| text.split_once('-').expect("FIRST-LAST"));
    let number = |text: &str| text.parse::<u64>().expect("a number");
    let seeds = range.map_or(seed..=seed, |(first, last)| number(first)..=number(last));
    for seed in seeds {
        Walk::random(seed, LENGTH, flags).assert_same(seed, flags);
    }
}

#[test]
fn it_leads_where_gdbs_own_recording_leads() {
    assert_walks(1, &["-O0"]);
}

#[test]
fn it_leads_there_by_other_ways() {
    assert_walks(3, &["-O0"]);
}

/// Without what gdb guesses frames of tail calls from, as it does where it knows all registers: where a
/// caller has left its frame to a callee, `advance` stops at another place then.
const OPTIMIZED: [&str; 3] = ["-O2", "-gdwarf-4", "-gstrict-dwarf"];

#[test]
fn also_in_optimized_code() {
    assert_walks(2, &OPTIMIZED);
}

#[test]
fn in_optimized_code_by_other_ways() {
    assert_walks(4, &OPTIMIZED);
}
