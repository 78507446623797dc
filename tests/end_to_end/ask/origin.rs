//! `contraflow origin`.

use super::{answer, ask, compile, rows};
use crate::support::{Scene, contraflow, have, text};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

/// Goes to each step, and reads the value where it was before, and where it is after the
/// instruction. `STEPS` is a list of positions, threads, and the two places in gdb's words.
const SCRIPT: &str = r#"
import gdb
for option in ["pagination off", "width 0", "style enabled off", "scheduler-locking on"]:
    gdb.execute("set " + option)
with open("OUT", "w") as out:
    for position, thread, before, after, size in STEPS:
        gdb.execute("cf-seek " + position, to_string=True)
        mask = (1 << 8 * size) - 1
        first = int(gdb.parse_and_eval(before)) & mask
        gdb.execute("stepi", to_string=True)
        second = int(gdb.parse_and_eval(after)) & mask
        out.write("%#x %#x\n" % (first, second))
"#;

fn record(scene: &Scene, level: &str) -> Option<PathBuf> {
    let program = compile(scene, "gcc", "origins.c", &["-w", level, "-pthread"])?;
    let input = scene.path("input");
    fs::write(&input, "ABCDEFGHIJ").unwrap();
    let dir = scene.path("recording");
    let output = contraflow()
        .env("CONTRAFLOW_HOME", scene.path("store"))
        .args(["record", "-q", "-o"])
        .arg(&dir)
        .arg("--")
        .args([&program, &input])
        .stdin(Stdio::null())
        .output()
        .expect("contraflow runs");
    assert_eq!(output.status.code(), Some(128 + libc::SIGABRT), "{}", text(&output.stderr));
    Some(dir)
}

fn steps(dir: &Path, value: &str) -> Vec<Value> {
    rows("origin", dir, &[value])
}

/// Returns kind, function and text of the last step.
fn end_of(steps: &[Value]) -> (&str, &str, &str) {
    let last = steps.last().expect("there is a step");
    let cell = |name: &str| last[name].as_str().unwrap_or("");
    (cell("kind"), cell("function"), cell("text"))
}

#[test]
fn values_are_followed_to_what_they_come_from() {
    let scene = Scene::new();
    let Some(dir) = record(&scene, "-O0") else { return };
    let input = scene.path("input").display().to_string();
    for (value, kind, function, part) in [
        ("owner", "system call", "read", format!("of {input}: at byte 2 from argument 2")),
        ("accounts[2]->owner", "system call", "read", "at byte 2".to_owned()),
        ("held", "system call", "read", "at byte 2".to_owned()),
        ("rate", "at start", "_start", "/program from offset 0x".to_owned()),
        ("seven", "constant", "main", "0x7 set in".to_owned()),
        ("nine", "computed", "main", "0x9 computed in".to_owned()),
        ("letter", "at start", "_start", "when the recording began".to_owned()),
        ("name", "at start", "_start", "of [stack], when the recording began".to_owned()),
        ("number", "signal", "on_signal", "in edi by the kernel".to_owned()),
        ("cleared[0]", "signal", "on_signal", "by the kernel".to_owned()),
        ("product", "computed", "worker", "0x2a computed in".to_owned()),
        ("seconds", "system call", "", "written by clock_gettime(".to_owned()),
        ("over", "computed", "main", "0x102 computed in".to_owned()),
        ("picked", "computed", "main", "0x902 computed in".to_owned()),
        ("mixed", "system call", "read", ") = 3: at byte 0 from argument 2".to_owned()),
        ("piped", "system call", "read", format!("of {input}.fifo: at byte 0 from argument 2")),
        ("stamp", "processor", "main", "rdtsc".to_owned()),
        ("fd", "system call", "", format!(" = 3, of {input}")),
        ("same", "computed", "main", "0x0 computed in al".to_owned()),
        ("argc", "at start", "_start", "0x2 was in".to_owned()),
    ] {
        let steps = steps(&dir, value);
        let said = answer("origin", &dir, &[value]);
        assert_eq!(said.lines().count(), steps.len());
        let (last_kind, last_function, last_text) = end_of(&steps);
        assert_eq!(last_kind, kind, "{value}: {said}");
        let is_there = last_function.contains(function);
        let has_part = last_text.contains(&part) || said.contains(&part);
        assert!(is_there && has_part, "{value}: {function} {part} {said}");
        assert_eq!(steps[0]["kind"], "value");
        let copies = &steps[1..steps.len() - 1];
        assert!(copies.iter().all(|step| step["kind"] == "copied"), "{value}: {said}");
    }
}

/// The way through other functions and threads, and over the calls of one that keeps the value.
#[test]
fn the_way_leads_through_functions_and_threads() {
    let scene = Scene::new();
    let Some(dir) = record(&scene, "-O0") else { return };
    let functions = |value| {
        let mut names: Vec<String> = steps(&dir, value)
            .iter()
            .map(|step| step["function"].as_str().unwrap_or("?").to_owned())
            .collect();
        names.dedup();
        names
    };
    assert_eq!(functions("owner"), ["main", "copy", "set", "main", "read_owner", "read"]);
    let held = functions("held");
    assert_eq!(held[..3], ["main", "kept", "main"], "{held:?}");
    assert_eq!(functions("product"), ["main", "worker"]);
    let threads: Vec<Value> =
        steps(&dir, "product").iter().map(|step| step["thread"].clone()).collect();
    assert_ne!(threads.first(), threads.last(), "another thread computed it");
}

fn number(text: &str) -> u64 {
    u64::from_str_radix(text.trim_start_matches("0x"), 16).expect("a number")
}

/// A place in the words of gdb.
fn of_gdb(place: &str, size: usize) -> String {
    if let Some(addr) = place.strip_prefix("memory at ") {
        let kind = match size {
            1 => "unsigned char",
            2 => "unsigned short",
            4 => "unsigned int",
            _ => "unsigned long",
        };
        return format!("*({kind} *) {addr}");
    }
    let (name, bytes) = place.split_once('[').unwrap_or((place, ""));
    if name.starts_with("xmm") {
        format!("${name}.v2_int64[{}]", usize::from(bytes == "8..16]"))
    } else {
        format!("${name}")
    }
}

/// Before each instruction the value is where it is said to come from, and after it where it is said to
/// go, by gdb.
#[test]
fn the_value_is_where_each_step_says() {
    if !have("gdb") {
        return;
    }
    for level in ["-O0", "-O2"] {
        let scene = Scene::new();
        let Some(dir) = record(&scene, level) else { return };
        let mut wanted = Vec::new();
        for value in ["accounts[1]->owner", "accounts[2]->rate", "accounts[0]->id", "shared"] {
            for step in steps(&dir, value).iter().filter(|step| step["kind"] == "copied") {
                let value = step["value"].as_str().expect("it is known").to_owned();
                let (to, said) = (step["where"].as_str().unwrap(), step["text"].as_str().unwrap());
                let from = said.rsplit_once(" from ").expect("it is copied").1;
                let position = step["position"].as_str().unwrap();
                let size = if said.contains("rate") { 8 } else { step_bytes(to, from) };
                let (from, to) = (of_gdb(from, size), of_gdb(to, size));
                let thread = step["thread"].to_string();
                wanted.push(((position.to_owned(), thread, from, to, size), number(&value)));
            }
        }
        assert!(wanted.len() >= 8, "{wanted:?}");
        let listed: Vec<_> = wanted.iter().map(|(step, _)| step).collect();
        let (script, out) = (scene.path("steps.py"), scene.path("steps.out"));
        let content = SCRIPT.replace("OUT", out.to_str().unwrap());
        fs::write(&script, content.replace("STEPS", &format!("{listed:?}"))).unwrap();
        let mut replay = contraflow();
        replay.arg("replay").arg(&dir).args(["--", "-nx", "-batch", "-x"]).arg(&script);
        let output = replay.output().expect("contraflow runs");
        let read = fs::read_to_string(&out).unwrap_or_default();
        assert_eq!(read.lines().count(), wanted.len(), "{}", text(&output.stderr));
        for (line, (step, value)) in read.lines().zip(&wanted) {
            let (before, after) = line.split_once(' ').expect("two numbers");
            assert_eq!((number(before), number(after)), (*value, *value), "{step:?}");
        }
    }
}

/// The size of what is copied, by the names of registers: 32-bit ones, and others.
fn step_bytes(to: &str, from: &str) -> usize {
    let is_half = |name: &str| name.starts_with('e') || name.ends_with('d');
    if is_half(to) || is_half(from) { 4 } else { 8 }
}

#[test]
fn places_positions_and_threads_can_be_given() {
    let scene = Scene::new();
    let Some(dir) = record(&scene, "-O0") else { return };
    let all = steps(&dir, "owner");
    let second = &all[1];
    let addr = second["where"].as_str().unwrap().strip_prefix("memory at ").expect("in memory");
    let of_memory = rows("origin", &dir, &["--bytes", "8", addr]);
    assert_eq!(of_memory[1..], all[1..]);
    // The register that the second step copies, before it does.
    let at = second["position"].as_str().unwrap();
    let of_register = rows("origin", &dir, &["--at", at, "$rax"]);
    assert_eq!(of_register[1..], all[2..]);
    let thread = second["thread"].to_string();
    assert_eq!(rows("origin", &dir, &["--at", at, "--thread", &thread, "$rax"]), of_register);
    assert_eq!(rows("origin", &dir, &["owner", "--limit", "3"]), all[..3]);
    let frame = rows("origin", &dir, &["$rbp", "--frame", "0", "--limit", "1"]);
    assert_eq!(frame[0]["kind"], "value");
}

#[test]
fn what_has_no_origin_is_refused() {
    let scene = Scene::new();
    let Some(dir) = record(&scene, "-O2") else { return };
    for (options, part) in [
        (&["nothing"][..], "no variable \"nothing\""),
        (&["accounts[1]->id + 1"], "in no single place"),
        (&["owner, rate"], "give one expression"),
        (&["shared", "--at", "x"], "no position"),
        (&["shared", "--frame", "99"], "there is no frame 99"),
        (&["shared", "--thread", "1"], "there is no thread 1 there"),
        (&["zzz", "--bytes", "8"], "is no address"),
        (&["0x10", "--bytes", "8"], "there is no memory at 0x10"),
        (&["0xffffffffffffffff", "--bytes", "8"], "there is no memory at"),
        (&["0x10", "--bytes", "99999999999"], "values of up to 65536 bytes"),
        (&["shared", "--at", "99999999"], "after the end of the run"),
    ] {
        let output = ask("origin", &dir, options);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{options:?}: {said}");
        assert!(said.contains(part), "{options:?}: {said}");
    }
}

/// The processor stores the old value if a compare and exchange fails, which is no origin.
#[test]
fn who_failed_to_take_a_lock_is_not_its_writer() {
    let scene = Scene::new();
    let Some(program) = compile(&scene, "gcc", "compared.c", &["-O0"]) else { return };
    let (dir, _) = super::record(&scene, &[], &program);
    let steps = steps(&dir, "the_lock");
    assert_eq!(end_of(&steps).0, "constant", "{steps:?}");
    assert!(steps[1..].iter().all(|step| step["function"] == "take"), "{steps:?}");
}

#[test]
fn the_first_instruction_can_be_the_system_call() {
    let scene = Scene::new();
    let options = ["-nostdlib", "-static", "-no-pie"];
    let Some(program) = compile(&scene, "gcc", "first_call.c", &options) else { return };
    let dir = scene.path("recording");
    let output = contraflow()
        .env("CONTRAFLOW_HOME", scene.path("store"))
        .args(["record", "-q", "-o"])
        .arg(&dir)
        .arg("--")
        .arg(&program)
        .stdin(Stdio::null())
        .output()
        .expect("contraflow runs");
    assert_eq!(output.status.code(), Some(128 + libc::SIGILL), "{}", text(&output.stderr));
    for value in ["$rax", "$rbx"] {
        let steps = steps(&dir, value);
        let (kind, _, text) = end_of(&steps);
        assert!(kind == "system call" && text.contains("by read("), "{value}: {steps:?}");
    }
}

#[test]
fn the_results_of_other_calls_are_no_descriptors() {
    let scene = Scene::new();
    let Some(program) = compile(&scene, "gcc", "asked_input.c", &["-O0"]) else { return };
    let input = scene.path("input");
    fs::write(&input, "A").unwrap();
    let dir = scene.path("recording");
    let output = contraflow()
        .env("CONTRAFLOW_HOME", scene.path("store"))
        .args(["record", "-q", "-o"])
        .arg(&dir)
        .arg("--")
        .arg(&program)
        .stdin(fs::File::open(&input).unwrap())
        .output()
        .expect("contraflow runs");
    assert_eq!(output.status.code(), Some(128 + libc::SIGABRT), "{}", text(&output.stderr));
    let steps = steps(&dir, "letter");
    let (kind, _, text) = end_of(&steps);
    assert!(kind == "system call" && text.contains(" of standard input"), "{steps:?}");
}

#[test]
fn paths_have_no_origins() {
    let scene = Scene::new();
    let Some(program) = compile(&scene, "gcc", "values.c", &["-O0"]) else { return };
    let (dir, _) = super::record(&scene, &["--path"], &program);
    let output = ask("origin", &dir, &["$rax"]);
    let said = text(&output.stderr);
    assert!(said.contains("of the path, which has no values"), "{said}");
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn gdb_follows_values_from_where_it_is() {
    if !have("gdb") {
        return;
    }
    let scene = Scene::new();
    let Some(dir) = record(&scene, "-O0") else { return };
    let mut replay = contraflow();
    replay.arg("replay").arg(&dir).args(["--", "-nx", "-batch"]);
    for command in [
        "handle SIGUSR1 nostop noprint",
        "break copy",
        "reverse-continue",
        "next",
        "cf-origin from->owner",
        "up",
        "cf-origin first.rate",
        "cf-origin first",
        "cf-origin 1 + 1",
    ] {
        replay.args(["-ex", command]);
    }
    let output = replay.output().expect("contraflow runs");
    let said = text(&output.stdout) + &text(&output.stderr);
    assert!(said.contains("written by read("), "{said}");
    assert!(said.contains("/program from offset 0x"), "{said}");
    assert!(said.contains("has no address in this frame"), "{said}");
}
