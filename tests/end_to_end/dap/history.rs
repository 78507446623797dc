//! Requests about the whole history: hits that are sent while they are found, calls over time, the
//! executions of functions.

use super::{Ide, ledger, line, source};
use crate::support::{Scene, contraflow, have, text};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::{Duration, Instant};

impl Ide {
    /// Returns the hits of the events that have come, and asserts that they are those of one search.
    fn hits_found(&mut self, token: &str) -> Vec<Value> {
        let is_found = |event: &&Value| event["event"] == "contraflow/hitsFound";
        let bodies: Vec<Value> =
            self.events.iter().filter(is_found).map(|event| event["body"].clone()).collect();
        self.events.retain(|event| event["event"] != "contraflow/hitsFound");
        assert!(bodies.iter().all(|body| body["token"] == token), "{bodies:?}");
        let hits: Vec<Value> =
            bodies.iter().flat_map(|body| body["hits"].as_array().unwrap().clone()).collect();
        assert_eq!(bodies.last().map(|body| body["count"].clone()), Some(json!(hits.len())));
        hits
    }
}

fn number(position: &Value) -> f64 {
    let text = position.as_str().unwrap();
    let (moment, instructions) = text.split_once('.').unwrap_or((text, "0"));
    moment.parse::<f64>().unwrap() + instructions.parse::<f64>().unwrap() / 65536.0
}

fn positions(hits: &[Value]) -> Vec<String> {
    let mut sorted = hits.to_vec();
    sorted.sort_by(|a, b| number(&b["position"]).total_cmp(&number(&a["position"])));
    sorted.iter().map(|hit| hit["position"].as_str().unwrap().to_owned()).collect()
}

/// Returns a recording of a program of tests/programs.
fn recorded(scene: &Scene, name: &str, options: &[&str], arguments: &[&str]) -> PathBuf {
    let program = scene.compile(name, &["-O0"]);
    let dir = scene.path("recording");
    let mut record = contraflow();
    record.env("CONTRAFLOW_HOME", scene.path("store")).arg("record").args(options);
    let output =
        record.arg("-o").arg(&dir).arg("--").arg(program).args(arguments).output().unwrap();
    assert!(dir.join("manifest.json").exists(), "{}", text(&output.stderr));
    dir
}

#[test]
fn hits_are_sent_while_they_are_found() {
    if !have("gdb") {
        return;
    }
    let scene = Scene::new();
    let (recording, path) = ledger(&scene, true);
    let pushes = line(&path, "new->value = value");
    let (mut ide, _) = Ide::launched(&json!({"recording": recording}), &[]);
    let end = ide.position();
    for (place, values) in [
        (json!({"source": {"path": path}, "line": pushes}), json!([])),
        (json!({"source": {"path": path}, "line": pushes}), json!(["value", "list"])),
        // An expression of gdb's only: gdb visits each hit.
        (json!({"source": {"path": path}, "line": pushes}), json!(["$_siginfo", "sizeof(value)"])),
    ] {
        let mut asked = place;
        (asked["values"], asked["limit"]) = (values.clone(), 1000.into());
        let all = ide.ask("contraflow/hits", &asked);
        asked["token"] = "t".into();
        let answer = ide.ask("contraflow/hits", &asked);
        assert_eq!((&answer["total"], &answer["hits"]), (&json!(5), &json!([])));
        let hits = ide.hits_found("t");
        assert_eq!(positions(&hits), positions(all["hits"].as_array().unwrap()));
        assert_eq!(hits.iter().all(|hit| hit["values"].is_array()), values != json!([]));
    }
    // Functions are searched from the front; so are they beyond a limit.
    let asked = json!({"function": "depth", "token": "f", "limit": 1000, "values": ["n"]});
    assert_eq!(ide.ask("contraflow/hits", &asked)["total"], 301);
    let hits = ide.hits_found("f");
    let n = |hit: &Value| hit["values"][0].as_str().unwrap().parse::<i64>().unwrap();
    assert_eq!(hits.iter().map(n).collect::<Vec<_>>(), (0..=300).rev().collect::<Vec<_>>());
    let asked = json!({"function": "depth", "token": "g", "limit": 7});
    let answer = ide.ask("contraflow/hits", &asked);
    assert_eq!((&answer["hasMore"], &answer["total"]), (&json!(true), &json!(null)));
    assert_eq!(ide.hits_found("g").len(), 7);
    // From a hit on, there are the earlier ones.
    let all = ide.ask("contraflow/hits", &json!({"function": "depth", "limit": 1000}));
    let third = all["hits"][298]["position"].clone();
    let from = json!({"function": "depth", "from": third, "limit": 10});
    assert_eq!(ide.ask("contraflow/hits", &from)["total"], 2);
    let none = json!({"function": "nothing", "token": "n"});
    assert!(ide.refused("contraflow/hits", &none).contains("there is no code of nothing"));
    assert_eq!(ide.position(), end);
    ide.leave();
}

#[test]
fn hits_begin_to_show_at_once_and_end_when_cancelled() {
    if !have("gdb") {
        return;
    }
    for options in [&[][..], &["--path"]] {
        let scene = Scene::new();
        let recording = recorded(&scene, "often.c", options, &[]);
        let path = source("often.c");
        let (mut ide, _) = Ide::launched(&json!({"recording": recording}), &[]);
        let turns = line(&path, "sum += number");
        let asked =
            json!({"source": {"path": path}, "line": turns, "token": 7, "limit": 1_000_000});
        let begun = Instant::now();
        let search = ide.send("contraflow/hits", &asked);
        let first = ide.event("contraflow/hitsFound");
        // A debug build is slow, and so is a busy machine: half a second is measured elsewhere.
        assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
        assert!(!first["hits"].as_array().unwrap().is_empty());
        // The user can go on.
        ide.go("stepBack");
        ide.ask("cancel", &json!({"requestId": search}));
        let answer = ide.response(search);
        assert_eq!((&answer["success"], &answer["message"]), (&json!(false), &json!("cancelled")));
        ide.go("stepBack");
        ide.leave();
    }
}

#[test]
fn the_timeline_has_the_calls_that_are_open_at_each_column() {
    if !have("gdb") {
        return;
    }
    for options in [&[][..], &["--path"]] {
        let scene = Scene::new();
        let dir = recorded(&scene, "ledger.c", options, &["x"]);
        let (mut ide, _) = Ide::launched(&json!({"recording": dir}), &[]);
        let plain = ide.ask("contraflow/timeline", &json!({}));
        assert!(plain["names"].is_null() && plain["threads"][0]["slices"].is_null());
        let whole = ide.ask("contraflow/timeline", &json!({"width": 500}));
        assert_eq!((&whole["from"], &whole["to"]), (&json!(0.0), &json!(1.0)));
        check_slices(&whole);
        let crash = whole["signals"].as_array().unwrap().last().unwrap().clone();
        assert_eq!(
            (&crash["name"], &crash["thread"]),
            (&json!("SIGSEGV"), &whole["threads"][0]["id"])
        );
        // Zoomed in on the recursion, each of its calls is there.
        let depth = ide.ask("contraflow/hits", &json!({"function": "depth", "limit": 1000}));
        let shares: Vec<f64> = depth["hits"]
            .as_array()
            .unwrap()
            .iter()
            .map(|hit| hit["share"].as_f64().unwrap())
            .collect();
        let (first, last) = (shares[300], shares[0]);
        let asked = json!({"width": 5000, "from": first, "to": last});
        let zoomed = ide.ask("contraflow/timeline", &asked);
        check_slices(&zoomed);
        let calls = calls_of(&zoomed, "depth");
        // The chart has so many levels.
        assert!((190..=301).contains(&calls.len()), "{}", calls.len());
        assert_eq!(zoomed["threads"][0]["isDeeper"], true);
        // Each leads to its beginning.
        let thread = zoomed["threads"][0]["id"].as_i64().unwrap();
        for call in calls.iter().take(3) {
            let place = json!({"thread": thread, "instruction": call[4]});
            let position = ide.ask("contraflow/positionOf", &place)["position"].clone();
            ide.go_with("contraflow/seek", &json!({"to": position}));
            assert_eq!(ide.place().0, "depth");
        }
        let nowhere = json!({"thread": thread, "instruction": u64::MAX / 2});
        assert!(!ide.refused("contraflow/positionOf", &nowhere).is_empty());
        assert_eq!(ide.ask("contraflow/gaps", &json!({})), json!({"gaps": whole["gaps"]}));
        ide.leave();
    }
}

fn calls_of(timeline: &Value, name: &str) -> Vec<Vec<Value>> {
    let names = timeline["names"].as_array().unwrap();
    let slices = timeline["threads"][0]["slices"].as_array().unwrap();
    let slices = slices.iter().map(|slice| slice.as_array().unwrap().clone());
    slices
        .filter(|slice| names[usize::try_from(slice[3].as_u64().unwrap()).unwrap()] == name)
        .collect()
}

/// Checks that calls are inside their callers, and do not overlap beside each other.
fn check_slices(timeline: &Value) {
    for thread in timeline["threads"].as_array().unwrap() {
        let slices: Vec<(u64, f64, f64)> = thread["slices"]
            .as_array()
            .unwrap()
            .iter()
            .map(|s| (s[0].as_u64().unwrap(), s[1].as_f64().unwrap(), s[2].as_f64().unwrap()))
            .collect();
        assert!(!slices.is_empty());
        for (number, (level, from, to)) in slices.iter().enumerate() {
            assert!(0.0 <= *from && from <= to && *to <= 1.0, "{from} {to}");
            let rest = &slices[number + 1..];
            assert!(
                rest.iter()
                    .all(|(other, begins, ends)| other != level || begins >= to || ends <= from)
            );
            let is_around = |(other, begins, ends): &(u64, f64, f64)| {
                *other + 1 == *level && begins <= from && ends >= to
            };
            assert!(*level == 0 || slices.iter().any(is_around), "{level} {from} {to}");
        }
    }
}

#[test]
fn functions_have_the_number_of_their_executions() {
    if !have("gdb") {
        return;
    }
    let scene = Scene::new();
    let (recording, path) = ledger(&scene, false);
    let (mut ide, _) = Ide::launched(&json!({"recording": recording}), &[]);
    let counts = ide.ask("contraflow/counts", &json!({"source": {"path": path}}));
    let counts: Vec<(&str, u64)> = counts["functions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|each| (each["name"].as_str().unwrap(), each["count"].as_u64().unwrap()))
        .collect();
    assert_eq!(counts, [("add", 5), ("push", 5), ("depth", 301), ("main", 1)]);
    let other = ide.ask("contraflow/counts", &json!({"source": {"path": "/nothing.c"}}));
    assert_eq!(other, json!({"functions": []}));
    assert!(ide.refused("contraflow/counts", &json!({})).contains("source"));
    ide.leave();
    // A live program has no whole history yet.
    let program = scene.path("ledger");
    let (mut live, _) =
        Ide::launched(&json!({"program": program, "mode": "serve", "stopOnEntry": true}), &[]);
    assert!(live.refused("contraflow/counts", &json!({"source": path})).contains("live"));
    assert!(live.ask("contraflow/timeline", &json!({"width": 100}))["threads"].is_array());
    live.leave();
}

#[test]
fn previous_values_are_shown_by_their_type() {
    if !have("gdb") {
        return;
    }
    let scene = Scene::new();
    let (recording, _) = ledger(&scene, true);
    let (mut ide, _) = Ide::launched(&json!({"recording": recording}), &[]);
    let frame = ide.frame_id();
    let scopes = ide.ask("scopes", &json!({"frameId": frame}))["scopes"].clone();
    let globals = scopes[0]["variablesReference"].clone();
    let asked = json!({"expression": "total", "frameId": frame, "limit": 2});
    let latest = ide.ask("contraflow/writers", &asked);
    let changes = |answer: &Value| -> Vec<(String, String)> {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let writers = answer["writers"].as_array().unwrap();
        writers.iter().map(|each| (text(&each["before"]), text(&each["after"]))).collect()
    };
    let pairs = |numbers: &[(i32, i32)]| {
        numbers.iter().map(|(a, b)| (a.to_string(), b.to_string())).collect::<Vec<_>>()
    };
    assert_eq!(changes(&latest), pairs(&[(10, 15), (6, 10)]));
    // The client has not moved: its frames and variables are still there.
    assert_eq!(changes(&ide.ask("contraflow/writers", &asked)), changes(&latest));
    assert!(!ide.variables(&globals).is_empty());
    let hits = json!({"function": "add", "values": ["a"], "limit": 2});
    ide.ask("contraflow/hits", &hits);
    let total = json!({"expression": "total", "frameId": frame});
    assert_eq!(ide.ask("evaluate", &total)["result"], "15");
    // Earlier ones, of the same place and type, wherever the user is.
    ide.go_with("contraflow/seek", &json!({"to": "start"}));
    let from = latest["writers"][1]["position"].clone();
    let place = json!({
        "memoryReference": latest["memoryReference"], "bytes": latest["bytes"], "from": from, "limit": 10,
    });
    let earlier = ide.ask("contraflow/writers", &place);
    assert_eq!(changes(&earlier)[..2], pairs(&[(3, 6), (1, 3)]));
    assert!(earlier["end"].is_string());
    let register = json!({"expression": "$rax"});
    assert!(ide.refused("contraflow/writers", &register).contains("no place in memory"));
    ide.leave();
}
