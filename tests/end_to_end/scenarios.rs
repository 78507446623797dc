//! The scenarios of `tests/gdb`: real gdb walks small programs, recorded and live, and must show the
//! same, which is what it shows on its own `record full` or, for values, without recording.
//!
//! A scenario is `NAME.gdb`, the commands; `NAME.expect`, what gdb says; and `NAME.c`. The program
//! stands at `main` first. Lines of the script that begin with `#` say more of it:
//!
//! - `# flags: ...`: for the compiler;
//! - `# program: OTHER.c`: of another scenario;
//! - `# only: ...`: in which of the ways below; recorded, exact, live, live-exact and full, if nothing is
//!   said.
//!
//! Where a scenario goes in the live way, its first commands go forward: what comes after them
//! walks the past.

use crate::serve::Live;
use crate::support::{Scene, contraflow, have, run_gdb};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How a program is walked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// A recording, through `replay`.
    Recorded,
    /// An exact recording, through `replay`.
    Exact,
    /// The program itself, through `serve`.
    Live,
    /// The same, recorded exactly.
    LiveExact,
    /// The same, single-stepped.
    Stepped,
    /// gdb alone, with `record full`.
    Full,
    /// gdb alone.
    Plain,
}

impl Way {
    fn of(word: &str) -> Self {
        match word {
            "recorded" => Self::Recorded,
            "exact" => Self::Exact,
            "live" => Self::Live,
            "live-exact" => Self::LiveExact,
            "stepped" => Self::Stepped,
            "full" => Self::Full,
            "plain" => Self::Plain,
            _ => panic!("no such way: {word}"),
        }
    }
}

struct Scenario {
    name: String,
    program: String,
    flags: Vec<String>,
    ways: Vec<Way>,
    commands: String,
    expected: String,
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/gdb")
}

impl Scenario {
    fn read(script: &Path) -> Self {
        let text = fs::read_to_string(script).unwrap();
        let name = script.file_stem().unwrap().to_str().unwrap().to_owned();
        let (notes, commands): (Vec<&str>, Vec<&str>) =
            text.lines().partition(|line| line.starts_with('#'));
        let note = |key: &str| {
            let mut of_key = notes.iter().filter_map(|line| line.strip_prefix(key));
            of_key.next().map(str::trim).map(str::to_owned)
        };
        let words = |text: String| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let ways =
            note("# only:").unwrap_or_else(|| "recorded exact live live-exact full".to_owned());
        let expected = fs::read_to_string(script.with_extension("expect"));
        Self {
            program: note("# program:").unwrap_or_else(|| format!("{name}.c")),
            flags: note("# flags:").map(words).unwrap_or_default(),
            ways: words(ways).iter().map(|word| Way::of(word)).collect(),
            commands: commands.join("\n"),
            expected: expected.unwrap_or_default(),
            name,
        }
    }
}

/// The programs of a test, each compiled and recorded once.
struct Stage {
    scene: Scene,
    made: Mutex<BTreeSet<PathBuf>>,
}

impl Stage {
    fn new() -> Self {
        Self { scene: Scene::new(), made: Mutex::default() }
    }

    /// Makes a file or a directory unless it is there. The others wait for it.
    fn once(&self, path: &Path, make: impl FnOnce() -> Command) {
        let mut there = self.made.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if there.insert(path.to_owned()) {
            let output = make().stdin(Stdio::null()).output().expect("it runs");
            assert!(path.exists(), "{}", String::from_utf8_lossy(&output.stderr));
        }
    }

    fn program(&self, scenario: &Scenario) -> PathBuf {
        let folder_of_flags = format!("flags{}", scenario.flags.join(""));
        let dir = self.scene.path(&folder_of_flags);
        fs::create_dir_all(&dir).unwrap();
        let program = dir.join(scenario.program.strip_suffix(".c").unwrap());
        self.once(&program, || {
            let mut gcc = Command::new("gcc");
            // Lazy binding would save all vector registers, which `record full` cannot restore.
            gcc.args(["-g", "-pthread", "-Wl,-z,now", "-o"]).arg(&program).args(&scenario.flags);
            gcc.arg(folder().join(&scenario.program));
            gcc
        });
        program
    }

    fn recording(&self, program: &Path, way: Way) -> PathBuf {
        let (kind, options): (_, &[&str]) = match way {
            Way::Exact => ("exact", &["--exact"]),
            _ => ("recording", &["--path"]),
        };
        let dir = program.with_extension(kind);
        self.once(&dir, || {
            let mut record = contraflow();
            record.env("CONTRAFLOW_HOME", self.scene.path("store"));
            record.args(["record", "-q"]).args(options).arg("-o").arg(&dir).arg(program);
            record
        });
        dir
    }

    /// What gdb says.
    fn play(&self, scenario: &Scenario, way: Way) -> String {
        let program = self.program(scenario);
        let said = match way {
            Way::Recorded | Way::Exact => {
                let mut replay = contraflow();
                replay.arg("replay").arg(self.recording(&program, way)).arg("--");
                let start = "cf-seek begin\ntbreak main\ncontinue";
                gdb(replay, start, &scenario.commands)
            }
            Way::Live | Way::LiveExact | Way::Stepped => {
                let backend = match way {
                    Way::LiveExact => "exact",
                    Way::Stepped => "step",
                    _ => "soft",
                };
                let live =
                    Live::start_by(backend, &self.scene, &["--once"], &[program.to_str().unwrap()]);
                let script = concat!(env!("CARGO_MANIFEST_DIR"), "/gdb-scripts/contraflow.py");
                let start = format!(
                    "source {script}\nset sysroot /\nset remotetimeout 60\n\
                     target remote {}\ntbreak main\ncontinue",
                    live.address()
                );
                gdb(of_program(&program), &start, &scenario.commands)
            }
            Way::Full => {
                let start = "set record full insn-number-max unlimited\ntbreak main\n\
                             run >/dev/null\nrecord full";
                gdb(of_program(&program), start, &scenario.commands)
            }
            Way::Plain => {
                gdb(of_program(&program), "tbreak main\nrun >/dev/null", &scenario.commands)
            }
        };
        tidied(&said)
    }
}

fn of_program(program: &Path) -> Command {
    let mut gdb = Command::new("gdb");
    gdb.arg(program);
    gdb
}

fn gdb(mut command: Command, start: &str, commands: &str) -> String {
    // What is installed of the C library's debug information must not matter; and values of
    // arguments and results, which the past does not know, have tests of their own.
    command.args(["-nx", "-q", "-batch", "-iex", "set debug-file-directory /nonexistent"]);
    for setting in ["print frame-arguments presence", "print finish off", "confirm off"] {
        command.args(["-ex", &format!("set {setting}")]);
    }
    run_gdb(command, &format!("{start}\necho START\n{commands}\necho END"))
}

/// Without addresses, folders, empty lines, values returned, and notes on threads that come and go.
/// What is not exported of a library has a name only where its symbols are installed.
fn tidied(said: &str) -> String {
    let (start, from) = said.split_once(">>> echo START\nSTART\n").unwrap_or((said, ""));
    assert!(start.contains("Temporary breakpoint 1, main"), "{start}");
    let body = from.split_once("\n>>> echo END").map_or(from, |(body, _)| body);
    let folder = format!("{}/", folder().display());
    let mut text = String::new();
    for line in body.lines().map(str::trim_end) {
        let executes = line.starts_with("process ") && line.contains(" is executing new program: ");
        let says = line.starts_with('[') || line.starts_with("Using host libthread_db library");
        // The past does not know the value, and its `finish` ends without a breakpoint.
        let returned = line.starts_with("Value returned is ")
            || line.ends_with(" stopped.")
            || line.starts_with("contraflow: the value returned");
        let noise = says || executes || returned;
        if !line.is_empty() && !noise {
            let line = without_processes(&without_addresses(&line.replace(&folder, "")));
            text += match line.split_once(" from /") {
                Some((_, library)) => library.rsplit('/').next().unwrap_or_default(),
                None => &line,
            };
            text.push('\n');
        }
    }
    text
}

fn without_addresses(line: &str) -> String {
    let mut pieces = line.split("0x");
    let mut text = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        text += "ADDR";
        text += piece.trim_start_matches(|c: char| c.is_ascii_hexdigit());
    }
    text
}

fn without_processes(line: &str) -> String {
    let mut pieces = line.split("process ");
    let mut text = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let rest = piece.trim_start_matches(|c: char| c.is_ascii_digit());
        text += if rest.len() < piece.len() { "process PID" } else { "process " };
        text += rest;
    }
    text
}

/// Plays all scenarios that know some ways, in these ways, on all cores.
fn play_all(ways: &[Way]) {
    if !have("gcc") || !have("gdb") {
        return;
    }
    let only = std::env::var("CONTRAFLOW_SCENARIO").ok();
    let scripts = fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path());
    let scripts: BTreeSet<PathBuf> =
        scripts.filter(|path| path.extension().is_some_and(|e| e == "gdb")).collect();
    let scenarios: Vec<Scenario> = scripts.iter().map(|path| Scenario::read(path)).collect();
    let wanted = |scenario: &&Scenario| only.as_ref().is_none_or(|name| *name == scenario.name);
    let jobs: Vec<(&Scenario, Way)> = scenarios
        .iter()
        .filter(wanted)
        .flat_map(|scenario| ways.iter().map(move |way| (scenario, *way)))
        .filter(|(scenario, way)| scenario.ways.contains(way))
        .collect();
    assert!(!jobs.is_empty(), "no scenarios");
    let (stage, next, wrong) = (Stage::new(), AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    let work = || {
        while let Some((scenario, way)) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
            let said = stage.play(scenario, *way);
            if said != scenario.expected {
                let differs = difference(&scenario.expected, &said);
                // A new scenario's expectations begin with this.
                let whole = format!("{}.{way:?}.said", scenario.name);
                fs::write(Path::new(env!("CARGO_TARGET_TMPDIR")).join(whole), &said).unwrap();
                wrong.lock().unwrap().insert(format!("{} {way:?}", scenario.name), differs);
            }
        }
    };
    let workers = std::thread::available_parallelism().map_or(1, std::num::NonZero::get).min(4);
    std::thread::scope(|scope| (0..workers).for_each(|_| drop(scope.spawn(work))));
    let wrong = wrong.into_inner().unwrap();
    let told: Vec<String> = wrong.iter().map(|(what, how)| format!("== {what}\n{how}")).collect();
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), jobs.len(), told.join("\n"));
}

/// Where two texts begin to differ, with what comes before and behind.
fn difference(expected: &str, said: &str) -> String {
    let common = expected.lines().zip(said.lines()).take_while(|(a, b)| a == b).count();
    let around = |text: &str| {
        let lines: Vec<&str> = text.lines().skip(common.saturating_sub(4)).take(10).collect();
        format!("  {}\n", lines.join("\n  "))
    };
    format!("expected:\n{}said:\n{}", around(expected), around(said))
}

#[test]
fn recorded_and_live() {
    play_all(&[Way::Recorded, Way::Live, Way::Stepped]);
}

#[test]
fn exact() {
    play_all(&[Way::Exact, Way::LiveExact]);
}

/// The expectations themselves. `record full` of some versions of gdb cannot restore the registers
/// of some processors.
#[test]
#[ignore = "says something of gdb alone"]
fn gdb_by_itself() {
    play_all(&[Way::Full, Way::Plain]);
}
