//! `contraflow export perfetto`, `chrome`, `speedscope` and `pprof`.

use super::{ask, compile, record, rows};
use crate::support::{Scene, contraflow, have, text};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

fn export(scene: &Scene, dir: &Path, format: &str) -> PathBuf {
    let file = scene.path(format);
    let output = contraflow().args(["export", format, "-o"]).arg(&file).arg(dir).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    // It does not replace a file.
    let again = contraflow().args(["export", format, "-o"]).arg(&file).arg(dir).output().unwrap();
    assert_eq!(again.status.code(), Some(2));
    assert!(text(&again.stderr).contains("--force"), "{}", text(&again.stderr));
    file
}

/// Prints the slices of a trace: names in the order of their ends, with durations, by the messages that
/// Perfetto's own Python package describes.
const SLICES: &str = r"
import sys
from perfetto.protos.perfetto.trace import perfetto_trace_pb2
trace = perfetto_trace_pb2.Trace()
trace.ParseFromString(open(sys.argv[1], 'rb').read())
names, open_slices = {}, {}
for packet in trace.packet:
    for name in packet.interned_data.event_names:
        names[name.iid] = name.name
    event = packet.track_event
    stack = open_slices.setdefault(event.track_uuid, [])
    if event.type == event.TYPE_SLICE_BEGIN:
        stack.append((names[event.name_iid], packet.timestamp))
    elif event.type == event.TYPE_SLICE_END:
        name, begin = stack.pop()
        print(name, packet.timestamp - begin)
assert not any(open_slices.values())
";

#[test]
fn slices_are_the_calls_of_the_run() {
    let scene = Scene::new();
    let Some(program) = compile(&scene, "gcc", "values.c", &["-O0"]) else { return };
    let (dir, _) = record(&scene, &[], &program);
    let calls = rows("calls", &dir, &["--duration"]);
    let sevens = calls.iter().filter(|row| row["function"] == "seven").count();
    assert_eq!(sevens, 12);

    let chrome: Value =
        serde_json::from_slice(&fs::read(export(&scene, &dir, "chrome")).unwrap()).unwrap();
    let events = chrome["traceEvents"].as_array().unwrap();
    let of = |phase: &str| events.iter().filter(|event| event["ph"] == phase).collect::<Vec<_>>();
    assert_eq!((of("B").len(), of("E").len()), (calls.len(), calls.len()));
    let first = of("B").into_iter().find(|event| event["name"] == "seven").unwrap();
    let call = calls.iter().find(|row| row["function"] == "seven").unwrap();
    assert_eq!(first["args"]["position"], call["position"]);

    let speedscope: Value =
        serde_json::from_slice(&fs::read(export(&scene, &dir, "speedscope")).unwrap()).unwrap();
    let frames = speedscope["shared"]["frames"].as_array().unwrap();
    let mut open: Vec<(u64, u64)> = Vec::new();
    let mut durations = Vec::new();
    for event in speedscope["profiles"][0]["events"].as_array().unwrap() {
        let (frame, at) = (event["frame"].as_u64().unwrap(), event["at"].as_u64().unwrap());
        if event["type"] == "O" {
            open.push((frame, at));
            continue;
        }
        let (opened, begin) = open.pop().expect("an open frame");
        assert_eq!(opened, frame);
        if frames[usize::try_from(frame).unwrap()]["name"] == "seven" {
            durations.push(at - begin);
        }
    }
    assert!(open.is_empty());
    assert_eq!(durations, [7; 12]);

    let perfetto = export(&scene, &dir, "perfetto");
    let python = Command::new("python3").args(["-c", SLICES]).arg(&perfetto).output();
    let python = python.ok().filter(|output| output.status.success());
    if let Some(output) = python {
        let said = text(&output.stdout);
        assert_eq!(said.lines().count(), calls.len());
        assert_eq!(said.lines().filter(|line| *line == "seven 7").count(), 12);
    } else {
        use std::io::Write;
        let skipped = b"SKIPPED: python3 with the package perfetto is not installed\n";
        let _ = std::io::stderr().write_all(skipped);
    }
}

#[test]
fn pprof_reads_the_profile() {
    if !have("go") {
        return;
    }
    let scene = Scene::new();
    let Some(program) = compile(&scene, "gcc", "values.c", &["-O0"]) else { return };
    let (dir, _) = record(&scene, &[], &program);
    let file = export(&scene, &dir, "pprof");
    let mut pprof = Command::new("go");
    pprof.args(["tool", "pprof", "-top", "-nodefraction=0"]).arg(&file);
    let output = pprof.output().expect("go runs");
    let said = text(&output.stdout);
    let functions = rows("profile", &dir, &[]);
    let all: u64 = functions.iter().map(|row| row["self"].as_u64().unwrap()).sum();
    assert!(said.contains(&format!("of {all} total")), "{said}");
    let work = functions.iter().find(|row| row["function"] == "work").unwrap();
    let line = said.lines().find(|line| line.ends_with(" work")).expect("work");
    let cells: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(cells[0], work["self"].to_string());
    assert_eq!(cells[3], work["total"].to_string());
}

#[test]
fn paths_are_exported_too() {
    let scene = Scene::new();
    let Some(program) = compile(&scene, "gcc", "values.c", &["-O0"]) else { return };
    let (dir, _) = record(&scene, &["--path", "--full"], &program);
    let file = export(&scene, &dir, "chrome");
    let said = fs::read_to_string(file).unwrap();
    assert_eq!(said.matches("\"name\":\"seven\"").count(), 12);
    let nothing = ask("calls", Path::new("/nowhere"), &[]);
    assert_eq!(nothing.status.code(), Some(2));
}

/// siglongjmp out of a handler and exceptions leave calls without a return.
#[test]
fn calls_that_are_left_are_no_longer_open() {
    let scene = Scene::new();
    let Some(program) = compile(&scene, "g++", "thrown.cpp", &["-O1"]) else { return };
    for options in [&[][..], &["--path", "--full", "--force"]] {
        let scene = Scene::new();
        let (dir, _) = record(&scene, options, &program);
        let chrome = fs::read(export(&scene, &dir, "chrome")).unwrap();
        let chrome: Value = serde_json::from_slice(&chrome).unwrap();
        let mut open = Vec::new();
        for event in chrome["traceEvents"].as_array().unwrap() {
            match event["ph"].as_str() {
                Some("B") => open.push(event["name"].as_str().unwrap()),
                Some("E") => drop(open.pop()),
                _ => {}
            }
            if open.last().is_some_and(|name| name.starts_with("last")) {
                break;
            }
        }
        let of_main = open.iter().position(|name| *name == "main").expect("main is open");
        assert_eq!(open.len(), of_main + 2, "{open:?}");
    }
}

#[test]
fn an_interrupted_export_can_be_read() {
    let scene = Scene::new();
    let program = scene.compile("fib.c", &["-O0", "-DN=21"]);
    let (dir, _) = record(&scene, &[], &program);
    let file = scene.path("speedscope");
    let mut export = contraflow();
    export.args(["export", "speedscope", "-o"]).arg(&file).arg(&dir);
    let mut export = export.stderr(Stdio::null()).spawn().unwrap();
    while fs::metadata(&file).map_or(0, |file| file.len()) == 0 {
        assert_eq!(export.try_wait().unwrap(), None, "it ends before it writes anything");
        thread::yield_now();
    }
    Command::new("kill").args(["-INT", &export.id().to_string()]).status().unwrap();
    // It may have been done before the signal.
    export.wait().unwrap();
    let speedscope: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    let events = speedscope["profiles"][0]["events"].as_array().unwrap();
    let of = |kind: &str| events.iter().filter(|event| event["type"] == kind).count();
    assert_eq!(of("O"), of("C"));
}
