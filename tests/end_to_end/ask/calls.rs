//! `contraflow calls`.

use super::{answer, compile, record, rows};
use crate::support::Scene;
use serde_json::json;

#[test]
fn arguments_results_and_durations_are_those_of_the_source() {
    for level in ["-O0", "-O2"] {
        let scene = Scene::new();
        let Some(program) = compile(&scene, "gcc", "values.c", &[level]) else { return };
        let (dir, _) = record(&scene, &[], &program);
        let mut options = vec!["--args", "--returns", "--duration"];
        for name in ["mean", "point_of", "pair_of", "large_of", "name_of", "seven"] {
            options.extend(["--function", name]);
        }
        let all = rows("calls", &dir, &options);
        let calls = |name: &str| {
            let of_it = all.iter().filter(|row| row["function"] == name);
            let found: Vec<_> = of_it.cloned().collect();
            assert_eq!(found.len(), 12, "{name}, {level}");
            found
        };
        for (i, call) in (0_i64..).zip(calls("mean")) {
            let (sum, count) = (1.5 * f64::from(i32::try_from(i).unwrap()), i + 1);
            let mean = sum / f64::from(i32::try_from(count).unwrap());
            assert_eq!(call["arguments"], json!({"sum": sum, "count": count}), "{level}");
            assert_eq!(call["returned"], json!(mean), "{level}");
        }
        for (i, call) in (0_i64..).zip(calls("point_of")) {
            let point = json!({"x": i, "y": -i, "b": i & 7, "c": -(i & 7)});
            assert_eq!(call["arguments"], json!({"i": i}), "{level}");
            assert_eq!(call["returned"], point, "{level}");
        }
        for (i, call) in (0_i64..).zip(calls("pair_of")) {
            let half = f64::from(i32::try_from(i).unwrap()) + 0.5;
            assert_eq!(call["returned"], json!({"a": half, "b": -i}), "{level}");
        }
        for (i, call) in (0_i64..).zip(calls("large_of")) {
            assert_eq!(call["returned"], json!({"words": [i, i + 1, i + 2, i + 3]}), "{level}");
        }
        for (i, call) in calls("name_of").iter().enumerate() {
            let name = if i & 1 == 1 { "odd" } else { "even" };
            assert_eq!(call["returned"]["string"], name, "{level}");
        }
        for call in calls("seven") {
            assert_eq!(call["instructions"], 7, "{level}");
            assert!(call["returned"].is_null() && call["arguments"].is_null(), "{level}");
            assert!(call["caller"].as_str().unwrap().starts_with("work values.c:"), "{level}");
        }
    }
}

#[test]
fn the_position_of_a_call_is_where_gdb_finds_it() {
    let scene = Scene::new();
    let Some(program) = compile(&scene, "gcc", "values.c", &["-O0"]) else { return };
    let (dir, _) = record(&scene, &[], &program);
    let found = rows("calls", &dir, &["--function", "mean", "--returns", "--duration"]);
    let position = |row: &serde_json::Value, name| row[name].as_str().unwrap().to_owned();
    let last = found.last().unwrap();
    let commands = format!(
        "cf-seek {}\npython print(gdb.selected_frame().name(), gdb.parse_and_eval('$pc') == \
         gdb.parse_and_eval('(long)&mean'))\ncf-seek {}\nprint $xmm0.v2_double[0]\n",
        position(last, "position"),
        position(last, "returned_at"),
    );
    let mut replay = crate::support::contraflow();
    replay.arg("replay").arg(&dir).args(["--", "-nx", "-batch"]);
    let said = crate::support::run_gdb(replay, &commands);
    assert!(said.contains("mean True"), "{said}");
    assert!(said.contains(&format!(" = {}", last["returned"])), "{said}");
}

#[test]
fn all_calls_are_nested_and_all_instructions_belong_to_one() {
    let scene = Scene::new();
    let Some(program) = compile(&scene, "gcc", "values.c", &["-O0"]) else { return };
    let (dir, _) = record(&scene, &[], &program);
    let found = rows("calls", &dir, &["--duration"]);
    let of = |name: &str| found.iter().filter(|row| row["function"] == name).collect::<Vec<_>>();
    assert_eq!(of("mean").len(), 12);
    // By way of the PLT.
    let calloc = found.iter().filter(|row| {
        let name = row["function"].as_str().unwrap_or_default();
        name.ends_with("calloc") && row["how"] == "tail call"
    });
    assert!(calloc.count() >= 12);
    let work = of("work")[0];
    // Each call ends before the call around it.
    let inside: u64 = found
        .iter()
        .filter(|row| row["caller"].as_str().is_some_and(|caller| caller.starts_with("work ")))
        .filter(|row| row["how"] == "call")
        .map(|row| row["instructions"].as_u64().unwrap())
        .sum();
    assert!(inside < work["instructions"].as_u64().unwrap());
    let listed = answer("calls", &dir, &[]);
    assert_eq!(listed.lines().count(), found.len());
}

#[test]
fn a_path_has_calls_without_values() {
    let scene = Scene::new();
    let Some(program) = compile(&scene, "gcc", "values.c", &["-O0"]) else { return };
    let (dir, _) = record(&scene, &["--path", "--full"], &program);
    let all = ["--function", "seven", "--args", "--returns", "--duration"];
    let found = rows("calls", &dir, &all);
    assert_eq!(found.len(), 12);
    for call in &found {
        assert_eq!(call["instructions"], 7);
        assert!(call["returned"].is_null() && call["arguments"].is_null());
    }
    let hits = rows("hits", &dir, &["--at", "mean", "--print", "count"]);
    assert_eq!(hits.len(), 12);
    assert!(hits.iter().all(|hit| hit["count"].is_null()));
}

#[test]
fn gdb_asks_and_begins_at_a_position() {
    if !crate::support::have("gdb") {
        return;
    }
    let scene = Scene::new();
    let Some(program) = compile(&scene, "gcc", "values.c", &["-O0"]) else { return };
    let (dir, _) = record(&scene, &[], &program);
    let hits = answer("hits", &dir, &["--at", "mean", "--print", "count, bt 2"]);
    let calls = answer("calls", &dir, &["--function", "mean", "--args", "--returns", "--duration"]);
    let found = rows("hits", &dir, &["--at", "mean"]);
    let position = found[6]["position"].as_str().unwrap();
    let play = |options: &[&str], commands: &str| {
        let mut replay = crate::support::contraflow();
        replay.arg("replay").args(options).arg(&dir).args(["--", "-nx", "-batch"]);
        crate::support::run_gdb(replay, commands)
    };
    let commands = "print count\ncf-hits mean count, bt 2\ncf-calls mean\ncf-calls mean --args\n\
        cf-hits\ncf-hits nothing\n";
    let said = play(&["--at", position], commands);
    let answered = |command: &str| crate::support::answer(&said, command, 0);
    assert_eq!(answered("print count"), "$1 = 7", "{said}");
    assert_eq!(answered("cf-hits mean count, bt 2"), hits.trim(), "{said}");
    assert_eq!(answered("cf-calls mean"), calls.trim(), "{said}");
    assert!(answered("cf-calls mean --args").contains("takes functions alone"), "{said}");
    assert!(answered("cf-hits").contains("needs a function"), "{said}");
    assert!(answered("cf-hits nothing").contains("no code of \"nothing\""), "{said}");
    let refused = play(&["--at", "x"], "");
    assert!(refused.contains("x: give a position"), "{refused}");
}

#[test]
fn threads_handlers_and_longjmp_have_their_calls() {
    let scene = Scene::new();
    let options = ["-O1", "-pthread"];
    let Some(program) = compile(&scene, "gcc", "leaving.c", &options) else { return };
    let (dir, output) = record(&scene, &[], &program);
    let mut asked = vec!["--args", "--returns", "--duration"];
    for name in ["add", "handler", "deep"] {
        asked.extend(["--function", name]);
    }
    let all = rows("calls", &dir, &asked);
    let of = |name: &str| all.iter().filter(|row| row["function"] == name).collect::<Vec<_>>();
    // The program printed each result.
    let mut printed: Vec<i64> =
        crate::support::text(&output.stdout).lines().map(|line| line.parse().unwrap()).collect();
    let mut returned: Vec<i64> =
        of("add").iter().map(|row| row["returned"].as_i64().unwrap()).collect();
    printed.sort_unstable();
    returned.sort_unstable();
    assert_eq!(returned.len(), 150);
    assert_eq!(returned, printed);
    for row in of("add") {
        let (who, sum) = (row["arguments"]["who"].as_i64(), row["returned"].as_i64().unwrap());
        assert_eq!(who, Some(sum % 10), "{row}");
    }
    let threads: std::collections::BTreeSet<_> =
        of("add").iter().map(|row| row["thread"].as_i64()).collect();
    assert_eq!(threads.len(), 3);
    assert_eq!(of("handler").len(), 5);
    for row in of("handler") {
        assert_eq!((&row["how"], &row["arguments"]["number"]), (&json!("signal"), &json!(10)));
        assert!(row["returned_at"].is_string(), "{row}");
    }
    assert_eq!(of("deep").len(), 20);
    assert!(of("deep").iter().all(|row| row["returned_at"].is_null() && row["returned"].is_null()));
}

#[test]
fn returned_vectors_are_those_that_the_program_made_or_unavailable() {
    // gdb reads the upper half of a vector of 16 bytes from XMM1.
    for level in ["-O0", "-O1"] {
        let scene = Scene::new();
        let Some(program) = compile(&scene, "gcc", "vectors.c", &[level, "-w"]) else { return };
        let (dir, _) = record(&scene, &[], &program);
        let four = json!([1.0, 2.0, 3.0, 4.0]);
        let expected = [
            ("four_of", four.clone()),
            ("boxed_of", json!({"of": four})),
            ("two_of", json!([1.0, 2.0])),
            ("pair_of", json!({"a": [1.0, 2.0], "b": [3.0, 4.0]})),
            ("floats_of", json!({"of": four, "all": four})),
            ("across_of", json!({"a": 5, "b": 0xabcde, "f": 1.5})),
            ("one_of", json!(null)),
            ("eight_of", json!(null)),
            ("large_of", json!(null)),
        ];
        let mut options = vec!["--returns", "--function", "mixed_of"];
        for (function, _) in &expected {
            options.extend(["--function", function]);
        }
        let found = rows("calls", &dir, &options);
        let call = |function: &str| found.iter().find(|row| row["function"] == function);
        for (function, value) in &expected {
            // Two of them need AVX.
            let Some(call) = call(function) else {
                assert!(value.is_null(), "{function}, {level}");
                continue;
            };
            assert_eq!(call["returned"], *value, "{function}, {level}");
        }
        let mixed = &call("mixed_of").expect("mixed_of is called")["returned"];
        assert_eq!(mixed["of"], four, "{level}");
    }
}

/// Signals neither hide calls nor leave calls open: each call has the callers that gdb finds in the
/// replayed memory, and a path has the same calls.
#[test]
fn interrupted_calls_have_the_depth_that_gdb_finds() {
    let scene = Scene::new();
    let options = ["-O0", "-fno-plt"];
    let Some(program) = compile(&scene, "gcc", "interrupted.c", &options) else { return };
    let expected = [
        "main",
        "outer",
        "callee",
        "on_fault",
        "callee",
        "returns_to_fault",
        "empty",
        "on_fault",
        "empty",
        "skipped",
        "on_illegal",
        "skipped",
        "on_illegal",
        "after",
        "on_alarm",
        "after",
    ];
    let mut asked = Vec::new();
    for name in std::collections::BTreeSet::from(expected) {
        asked.extend(["--function", name]);
    }
    let (dir, _) = record(&scene, &[], &program);
    let found = rows("calls", &dir, &asked);
    let outline = |rows: &[serde_json::Value]| {
        let of = |row: &serde_json::Value| {
            (row["function"].clone(), row["depth"].clone(), row["how"].clone())
        };
        rows.iter().map(of).collect::<Vec<_>>()
    };
    let names: Vec<_> = found.iter().map(|row| row["function"].as_str().unwrap()).collect();
    assert_eq!(names, expected);
    let path = super::record_as(&scene, "path", &["--path", "--full"], &program, &[]).0;
    assert_eq!(outline(&rows("calls", &path, &asked)), outline(&found));
    // All of them return.
    let timed = rows("calls", &path, &[&asked[..], &["--duration"]].concat());
    assert!(timed.iter().all(|row| row["instructions"].is_u64()), "{timed:?}");
    if !crate::support::have("gdb") {
        return;
    }
    // The names of the frames from the innermost one to main, without the kernel's.
    let show = "python f = gdb.selected_frame(); names = []\n\
                python exec('while f and f.is_valid():\\n if f.type() != gdb.SIGTRAMP_FRAME: \
                names.append(f.name())\\n f = None if f.name() == \"main\" else f.older()')\n\
                python print('FRAMES', len(names), names[0])\n";
    let seeks =
        found.iter().map(|row| format!("cf-seek {}\n{show}", row["position"].as_str().unwrap()));
    let mut replay = crate::support::contraflow();
    replay.arg("replay").arg(&dir).args(["--", "-nx", "-batch"]);
    let said = crate::support::run_gdb(replay, &seeks.collect::<String>());
    let frames: Vec<_> = said.lines().filter_map(|line| line.strip_prefix("FRAMES ")).collect();
    let depth = |row: &serde_json::Value| row["depth"].as_u64().unwrap();
    let calls: Vec<_> = found
        .iter()
        .map(|row| {
            let inside = depth(row) - depth(&found[0]) + 1;
            format!("{inside} {}", row["function"].as_str().unwrap())
        })
        .collect();
    assert_eq!(calls, frames, "{said}");
}
