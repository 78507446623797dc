//! The same program recorded by one backend and by the other, and run by itself.

use crate::support::{Scene, contraflow, have, text};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// Records a run by a backend, without the log of steps that would choose the backend itself. All
/// of its history is kept if the options do not say otherwise.
pub(crate) fn record(
    scene: &Scene,
    backend: &str,
    options: &[&str],
    command: &[&str],
) -> (PathBuf, Output) {
    record_in(scene, backend, options, command, |_| ())
}

/// As [`record`], in surroundings that `set` makes.
pub(crate) fn record_in(
    scene: &Scene,
    backend: &str,
    options: &[&str],
    command: &[&str],
    set: impl Fn(&mut Command),
) -> (PathBuf, Output) {
    let dir = scene.path(backend);
    let mut record = contraflow();
    set(&mut record);
    record.env("CONTRAFLOW_HOME", scene.path("store"));
    record.args(["record", "--quiet", "--backend", backend, "-o"]).arg(&dir).args(options);
    if backend == "soft" && !options.iter().any(|&option| option == "--ring" || option == "--full")
    {
        record.arg("--full");
    }
    let output = record.args(command).stdin(Stdio::null()).output().expect("contraflow runs");
    assert!(dir.join("manifest.json").exists(), "{command:?}: {}", text(&output.stderr));
    (dir, output)
}

/// The addresses that a recording's first thread executed. An error tells of gaps.
pub(crate) fn path_of(dir: &Path) -> Result<Vec<u64>, String> {
    let mut addresses = Vec::new();
    each_address(dir, |ip| addresses.push(ip))?;
    Ok(addresses)
}

/// Calls `see` for each address that a recording's first thread executed. An error tells of gaps.
pub(crate) fn each_address(dir: &Path, mut see: impl FnMut(u64)) -> Result<(), String> {
    let errors = tempfile::NamedTempFile::new().unwrap();
    let mut dump = contraflow();
    dump.args(["dump", "insns", "--addresses"]).arg(dir);
    dump.stdout(Stdio::piped()).stderr(errors.reopen().unwrap());
    let mut dump = dump.spawn().unwrap();
    for line in BufReader::new(dump.stdout.take().unwrap()).lines() {
        see(u64::from_str_radix(&line.unwrap(), 16).unwrap());
    }
    let succeeded = dump.wait().unwrap().success();
    let said = std::fs::read_to_string(errors.path()).unwrap();
    if succeeded && said.is_empty() { Ok(()) } else { Err(format!("gaps: {said}")) }
}

/// As [`path_of`], without the vdso: what that does depends on the time.
pub(crate) fn timeless_path(dir: &Path) -> Result<Vec<u64>, String> {
    let sideband = contraflow().args(["dump", "sideband"]).arg(dir).output().unwrap();
    let sideband = text(&sideband.stdout);
    let line = sideband.lines().find(|line| line.contains(" map ") && line.ends_with(" [vdso]"));
    let range = line.and_then(|line| line.split_once(" map ")?.1.split(' ').next());
    let number = |word: &str| u64::from_str_radix(word.trim_start_matches("0x"), 16).ok();
    let range = range.and_then(|range| range.split_once('-'));
    let range = range.and_then(|(start, end)| Some(number(start)?..number(end)?));
    let mut path = path_of(dir)?;
    if let Some(vdso) = range {
        path.retain(|ip| !vdso.contains(ip));
    }
    Ok(path)
}

/// As [`path_of`], where gaps are a failure.
pub(crate) fn addresses(dir: &Path) -> Vec<u64> {
    path_of(dir).unwrap_or_else(|gaps| panic!("{gaps}"))
}

/// That a recording has no gaps, and as many instructions as its recorder counted. Gives how many.
pub(crate) fn without_gaps(dir: &Path) -> Result<usize, String> {
    let stats = contraflow().args(["dump", "stats"]).arg(dir).output().unwrap();
    let info = contraflow().arg("info").arg(dir).output().unwrap();
    let (stats, info) = (text(&stats.stdout), text(&info.stdout));
    let number = |text: &str, behind: &str| {
        let start = text.find(behind).map(|at| at + behind.len());
        let words = start.map(|start| text[start..].split_whitespace());
        words.and_then(|mut words| words.next()).and_then(|word| word.parse::<usize>().ok())
    };
    if number(&stats, " gaps ") != Some(0) {
        return Err(format!("gaps:\n{stats}"));
    }
    let counted = info.lines().filter(|line| line.starts_with("thread")).map(|line| {
        let (before, _) = line.split_once(" instructions").expect("a count");
        before.rsplit(' ').next().unwrap().parse::<usize>().unwrap()
    });
    let (counted, decoded) = (counted.sum::<usize>(), number(&stats, "\ninstructions "));
    if decoded != Some(counted) {
        return Err(format!("{decoded:?} instructions, {counted} were executed"));
    }
    Ok(counted)
}

/// Runs a command by itself, at the addresses at which the recorder would run it.
pub(crate) fn native(command: &[&str]) -> Output {
    native_in(command, |_| ())
}

/// As [`native`], in surroundings that `set` makes.
pub(crate) fn native_in(command: &[&str], set: impl Fn(&mut Command)) -> Output {
    let mut native = if have("setarch") {
        let mut setarch = Command::new("setarch");
        setarch.arg("-R").arg(command[0]);
        setarch
    } else {
        Command::new(command[0])
    };
    set(&mut native);
    native.args(&command[1..]).stdin(Stdio::null()).output().expect("the program runs")
}

/// The exit status as a shell has it.
pub(crate) fn status(output: &Output) -> i32 {
    use std::os::unix::process::ExitStatusExt;
    let killed = output.status.signal().map(|signal| 128 + signal);
    output.status.code().or(killed).unwrap()
}

/// Whether two runs end alike and print the same, but for errors.
pub(crate) fn same_stdout(got: &Output, wanted: &Output) -> Result<(), String> {
    let without = |output: &Output| Output { stderr: Vec::new(), ..output.clone() };
    same_output(&without(got), &without(wanted))
}

/// What two runs of a command differ in, if they do.
pub(crate) fn same_output(got: &Output, wanted: &Output) -> Result<(), String> {
    let shown = |output: &Output| {
        let start = |bytes: &[u8]| text(&bytes[..bytes.len().min(2000)]);
        let (out, err) = (start(&output.stdout), start(&output.stderr));
        format!("status {}\n{out}\n{err}", status(output))
    };
    let same = status(got) == status(wanted)
        && (&got.stdout, &got.stderr) == (&wanted.stdout, &wanted.stderr);
    if same { Ok(()) } else { Err(format!("{}\ninstead of {}", shown(got), shown(wanted))) }
}

/// A program prints and returns what it does by itself. Gives its recording.
pub(crate) fn passes_through(
    scene: &Scene,
    options: &[&str],
    command: &[&str],
) -> Result<PathBuf, String> {
    let (dir, output) = record(scene, "soft", options, command);
    same_output(&output, &native(command))?;
    Ok(dir)
}

/// The path of a program that does the same each time is what stepping it shows. Gives how many
/// instructions that is.
pub(crate) fn same_path(scene: &Scene, command: &[&str]) -> Result<usize, String> {
    let (soft, translated) = record(scene, "soft", &[], command);
    let (step, stepped) = record(scene, "step", &[], command);
    same_output(&translated, &stepped)?;
    first_difference(&timeless_path(&soft)?, &timeless_path(&step)?)
}

/// Where a path is not as it should be; if it is, its length.
pub(crate) fn first_difference(got: &[u64], wanted: &[u64]) -> Result<usize, String> {
    let differs = got.iter().zip(wanted).position(|(a, b)| a != b);
    let around = |list: &[u64], at: usize| {
        let shown = &list[at.saturating_sub(3)..(at + 3).min(list.len())];
        shown.iter().map(|ip| format!("{ip:x}")).collect::<Vec<_>>().join(" ")
    };
    if let Some(at) = differs {
        let (got, wanted) = (around(got, at), around(wanted, at));
        return Err(format!("instruction {at}: {got} instead of {wanted}"));
    }
    if got.len() == wanted.len() {
        return Ok(got.len());
    }
    Err(format!("{} instructions instead of {}", got.len(), wanted.len()))
}
