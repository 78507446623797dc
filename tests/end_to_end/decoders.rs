//! Other decoders on what translated programs recorded: Intel's reference block decoder, and LLDB's
//! trace plugin. gdb's is in `btrace`.

use crate::comparison::{addresses, first_difference, record};
use crate::generated;
use crate::support::{Scene, have, text};
use std::path::{Path, PathBuf};
use std::process::Command;

fn skipped(what: &str) {
    // Not eprintln!, which the test harness swallows.
    let _ = std::io::Write::write_fmt(
        &mut std::io::stderr(),
        format_args!("SKIPPED: {what} is not installed\n"),
    );
}

/// The trace of a recording's only thread.
fn trace(dir: &Path) -> PathBuf {
    let files = std::fs::read_dir(dir.join("trace")).unwrap().map(|file| file.unwrap().path());
    let mut traces = files.filter(|file| file.extension().is_some_and(|e| e == "pt"));
    traces.next().expect("a trace")
}

/// The driver of the reference decoder.
fn reference(scene: &Scene) -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/flow/tests/libipt.c");
    let program = scene.path("libipt");
    let mut gcc = Command::new("gcc");
    gcc.arg("-O2").arg("-o").arg(&program).arg(source).arg("-lipt");
    let compiled = gcc.output().is_ok_and(|output| output.status.success());
    if !compiled {
        skipped("libipt-dev");
    }
    compiled.then_some(program)
}

/// A program's code, and where it is.
fn code(scene: &Scene, program: &Path) -> (String, PathBuf) {
    let sections = Command::new("readelf").arg("-SW").arg(program).output().unwrap();
    let sections = text(&sections.stdout);
    let line = sections.split(" .text ").nth(1).expect("a section of code");
    let address = line.split_whitespace().nth(1).unwrap().to_owned();
    let bytes = scene.path("code");
    let mut objcopy = Command::new("objcopy");
    objcopy.args(["-O", "binary", "--only-section=.text"]).arg(program).arg(&bytes);
    assert!(objcopy.status().unwrap().success());
    (address, bytes)
}

#[test]
fn the_reference_decoder_lists_the_same_blocks() {
    let tools = Scene::new();
    if !have("gcc") || !have("objcopy") {
        return;
    }
    let Some(reference) = reference(&tools) else { return };
    for seed in 20..28 {
        let scene = Scene::new();
        let program = generated::of_seed(&scene, seed);
        let (dir, _) = record(&scene, "soft", &[], &[program.to_str().unwrap()]);
        let path = addresses(&dir);
        let (address, bytes) = code(&scene, &program);
        let mut list = Command::new(&reference);
        let output = list.arg("list").arg(trace(&dir)).arg(address).arg(bytes).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        let mut at = 0;
        for line in text(&output.stdout).lines() {
            let (ip, count) = line.split_once(' ').unwrap_or_else(|| {
                panic!("seed {seed}, instruction {at}: {line}, {}", text(&output.stderr))
            });
            let ip = u64::from_str_radix(ip, 16).unwrap();
            assert_eq!(path.get(at), Some(&ip), "seed {seed}, instruction {at}");
            at += count.parse::<usize>().unwrap();
        }
        assert_eq!(at, path.len(), "seed {seed}");
    }
}

/// What LLDB needs to know of a recording of a program that is not moved. The CPU is one that libipt
/// knows, and whose packets need no care: those of translated programs need none on any CPU.
fn bundle(scene: &Scene, dir: &Path, program: &Path) -> PathBuf {
    let trace = trace(dir);
    let tid = trace.file_stem().unwrap().to_str().unwrap().to_owned();
    let description = format!(
        r#"{{"type":"intel-pt","cpuInfo":{{"vendor":"GenuineIntel","family":6,"model":126,"stepping":5}},
        "processes":[{{"pid":{tid},"triple":"x86_64-unknown-linux-gnu",
        "threads":[{{"tid":{tid},"iptTrace":"{}"}}],
        "modules":[{{"systemPath":"{}","loadAddress":"0x400000"}}]}}]}}"#,
        trace.display(),
        program.display(),
    );
    let file = scene.path("trace.json");
    std::fs::write(&file, description).unwrap();
    file
}

fn lldb() -> Option<&'static str> {
    let is_there = |name: &&str| {
        let schema = Command::new(name).args(["-b", "-o", "trace schema intel-pt"]).output();
        schema.is_ok_and(|output| text(&output.stdout).contains("iptTrace"))
    };
    let found = ["lldb", "lldb-22"].into_iter().find(is_there);
    if found.is_none() {
        skipped("an lldb that decodes Intel PT");
    }
    found
}

#[test]
fn lldb_lists_the_same_instructions() {
    let Some(lldb) = lldb() else { return };
    if !have("gcc") {
        return;
    }
    for seed in [30, 31, 32] {
        let scene = Scene::new();
        let program = match seed {
            30 => scene.compile("recursion.c", &["-O1", "-static", "-no-pie"]),
            _ => generated::peaceful_of_seed(&scene, seed),
        };
        let (dir, _) = record(&scene, "soft", &[], &[program.to_str().unwrap()]);
        let (bundle, list) = (bundle(&scene, &dir, &program), scene.path("list"));
        let mut lldb = Command::new(lldb);
        lldb.args(["--no-lldbinit", "-b", "-o", &format!("trace load {}", bundle.display()), "-o"]);
        lldb.arg(format!("thread trace dump instructions -f -r -a -F {}", list.display()));
        let output = lldb.env_remove("DEBUGINFOD_URLS").output().unwrap();
        let listed = std::fs::read_to_string(&list)
            .unwrap_or_else(|_| panic!("{}{}", text(&output.stdout), text(&output.stderr)));
        let shown: Vec<u64> = listed
            .lines()
            .filter_map(|line| line.split_once(": 0x"))
            .map(|(_, address)| u64::from_str_radix(address.trim(), 16).unwrap())
            .collect();
        let compared = first_difference(&shown, &addresses(&dir));
        compared.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
}
