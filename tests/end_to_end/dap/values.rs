//! Values in the past: what gdb prints of the same recording at the same position.

use super::{Ide, find, ledger, line, shapes};
use crate::support::{Scene, answer, contraflow, have, run_gdb};
use serde_json::{Value, json};
use std::path::Path;

/// Returns what gdb prints for expressions at a position.
fn by_gdb(recording: &Path, position: &str, expressions: &[String]) -> Vec<String> {
    let mut replay = contraflow();
    replay.arg("replay").arg(recording).args(["--", "-nx", "-batch"]);
    let prints: Vec<String> = expressions.iter().map(|e| format!("output {e}")).collect();
    let output = run_gdb(replay, &format!("cf-seek {position}\n{}", prints.join("\n")));
    let untyped = |text: &str| {
        // gdb writes the types of most pointers before them.
        let rest = text.strip_prefix('(').and_then(|text| text.split_once(") "));
        rest.map_or(text, |(_, rest)| rest).to_owned()
    };
    prints.iter().map(|print| untyped(answer(&output, print, 0))).collect()
}

/// Compares variables with what gdb prints for their expressions; structures by their members.
fn compare(ide: &mut Ide, recording: &Path, variables: &[Value]) {
    let position = ide.position();
    let mut all = Vec::new();
    for variable in variables {
        let reference = &variable["variablesReference"];
        if *reference == 0 {
            all.push(variable.clone());
        } else {
            all.extend(ide.variables(reference));
        }
    }
    all.retain(|variable| {
        variable["variablesReference"] == 0 && variable["evaluateName"].is_string()
    });
    assert!(all.len() >= 3, "{all:?}");
    let text =
        |key: &str| all.iter().map(|v| v[key].as_str().unwrap().to_owned()).collect::<Vec<_>>();
    assert_eq!(text("value"), by_gdb(recording, &position, &text("evaluateName")), "{all:?}");
}

#[test]
fn variables_of_c_are_those_that_gdb_prints() {
    if !have("gdb") {
        return;
    }
    let scene = Scene::new();
    let (recording, path) = ledger(&scene, true);
    let end_of_push = line(&path, "// end of push");
    let (mut ide, _) = Ide::launched(&json!({"recording": recording}), &[(&path, &[end_of_push])]);
    // At the crash, at the end.
    let locals = ide.scope("Locals");
    compare(&mut ide, &recording, &locals);
    assert_eq!(find(&locals, "nowhere")["value"], "0x0");
    let point = ide.variables(&find(&locals, "p")["variablesReference"]);
    let names: Vec<_> = point.iter().map(|member| member["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["x", "y", "number", "fraction"]);
    let numbers = find(&locals, "numbers").clone();
    assert_eq!(
        (&numbers["value"], &numbers["indexedVariables"]),
        (&json!("{1, 2, 3, 4, 5}"), &json!(5))
    );
    let page = json!({"variablesReference": numbers["variablesReference"], "filter": "indexed", "start": 2, "count": 2});
    let page = ide.ask("variables", &page)["variables"].clone();
    assert_eq!((&page[0]["name"], &page[1]["value"]), (&json!("[2]"), &json!("4")));
    assert_eq!(page.as_array().unwrap().len(), 2);
    // In the past.
    for _ in 0..3 {
        ide.go("reverseContinue");
        let variables = [ide.scope("Arguments"), ide.scope("Locals")].concat();
        compare(&mut ide, &recording, &variables);
        let globals = ide.scope("Globals of the file");
        assert!(find(&globals, "names")["value"].as_str().unwrap().contains("\"two\""));
        let registers = ide.scope("Registers");
        let position = ide.position();
        let [rip, rsp] = ["rip", "rsp"].map(|name| find(&registers, name)["value"].clone());
        let by_gdb = by_gdb(&recording, &position, &["$rip".to_owned(), "$rsp".to_owned()]);
        assert_eq!([rip, rsp], [json!(by_gdb[0]), json!(by_gdb[1])]);
    }
    // The list is followed through its pointers.
    let new = find(&ide.scope("Locals"), "new").clone();
    let next = find(&ide.variables(&new["variablesReference"]), "next").clone();
    let value = find(&ide.variables(&next["variablesReference"]), "value")["value"].clone();
    assert_eq!(value, json!(ide.value("new->next->value")));
    assert_eq!(find(&ide.scope("Locals"), "new")["evaluateName"], "new");
    ide.leave();
}

#[test]
fn containers_of_cpp_are_paged() {
    if !have("gdb") {
        return;
    }
    let scene = Scene::new();
    let (recording, path) = shapes(&scene);
    let throwing = line(&path, "// throwing");
    let (mut ide, _) = Ide::launched(&json!({"recording": recording}), &[(&path, &[throwing])]);
    ide.go("reverseContinue");
    let arguments = ide.scope("Arguments");
    let ages = find(&arguments, "ages").clone();
    if !ages["value"].as_str().unwrap().starts_with("std::map") {
        eprintln!("SKIPPED: gdb has no printers of the C++ library");
        return;
    }
    let ages = ide.variables(&ages["variablesReference"]);
    let pairs: Vec<_> = ages
        .iter()
        .map(|pair| (pair["name"].as_str().unwrap(), pair["value"].as_str().unwrap()))
        .collect();
    assert_eq!(pairs, [("[\"ann\"]", "30"), ("[\"bob\"]", "40"), ("[\"zoe\"]", "15")]);
    assert_eq!(find(&arguments, "out")["value"], "15");
    // An object is shown as what it is, and its base once.
    let shape = ide.variables(&find(&arguments, "shape")["variablesReference"]);
    assert_eq!(find(&shape, "own_number")["value"], "2");
    assert_eq!(find(&shape, "name")["value"], "\"derived\"");
    let base = ide.variables(&find(&shape, "<Base>")["variablesReference"]);
    assert_eq!(find(&base, "base_number")["value"], "1");
    assert!(base.iter().all(|member| member["name"] != "<Base>"));
    let own_number = find(&shape, "own_number")["evaluateName"].as_str().unwrap().to_owned();
    assert_eq!(ide.value(&own_number), "2");
    // 20,000 elements in the caller's frame: by pages, and as a whole with a rest.
    let frame = ide.frames()[1]["id"].clone();
    let scopes = ide.ask("scopes", &json!({"frameId": frame}));
    let locals = ide.variables(&scopes["scopes"][0]["variablesReference"]);
    let many = find(&locals, "many").clone();
    assert_eq!(many["indexedVariables"], 20000);
    let reference = &many["variablesReference"];
    for (start, count, got) in [(19_990, 100, 10), (0, 100, 100), (5000, 3, 3)] {
        let page = json!({"variablesReference": reference, "start": start, "count": count});
        let page = ide.ask("variables", &page)["variables"].as_array().unwrap().clone();
        assert_eq!((page.len(), &page[0]["name"]), (got, &json!(format!("[{start}]"))));
        assert!(page.iter().all(|element| element["value"] == "6"));
    }
    let whole = ide.variables(reference);
    let more = whole.last().unwrap();
    assert_eq!(more["name"], "[more]");
    assert_eq!(
        ide.variables(&more["variablesReference"])[0]["name"],
        json!(format!("[{}]", whole.len() - 1))
    );
    ide.leave();
}

#[test]
fn memory_and_code_are_shown_and_what_is_unknown_is_said() {
    if !have("gdb") {
        return;
    }
    let scene = Scene::new();
    let (recording, path) = ledger(&scene, true);
    let grows = line(&path, "total grows");
    let (mut ide, _) = Ide::launched(&json!({"recording": recording}), &[(&path, &[grows])]);
    ide.go("reverseContinue");
    let frame = ide.frame_id();
    let total = json!({"expression": "total", "frameId": frame, "context": "watch"});
    let total = ide.ask("evaluate", &total);
    assert_eq!(total["result"], "10");
    let memory = json!({"memoryReference": total["memoryReference"], "count": 4});
    assert_eq!(ide.ask("readMemory", &memory)["data"], "CgAAAA==");
    let unknown = ide.ask("readMemory", &json!({"memoryReference": "0x10", "count": 7}));
    assert_eq!((&unknown["unreadableBytes"], &unknown["data"]), (&json!(7), &Value::Null));
    let stack = ide.value("$sp");
    let end = json!({"memoryReference": "0x7ffffffff000", "offset": -16, "count": 64});
    let end = ide.ask("readMemory", &end);
    assert_eq!(end["unreadableBytes"], 48, "{end}, the stack at {stack}");
    // Exactly as many as were asked for, which include that of the frame.
    let pc = ide.frames()[0]["instructionPointerReference"].clone();
    for (offset, count) in [(-200, 400), (-3, 5), (4, 6), (0, 1), (7, 0), (-5000, 5001)] {
        let asked = json!({"memoryReference": pc, "instructionOffset": offset, "instructionCount": count, "resolveSymbols": true});
        let code = ide.ask("disassemble", &asked)["instructions"].as_array().unwrap().clone();
        assert_eq!(code.len(), count);
        if offset <= 0 && count > 0 {
            let at = usize::try_from(-offset).unwrap();
            assert_eq!(code[at]["address"], pc);
        }
    }
    let nowhere =
        json!({"memoryReference": "0x20", "instructionOffset": -4, "instructionCount": 9});
    let nowhere = ide.ask("disassemble", &nowhere)["instructions"].as_array().unwrap().clone();
    assert!(nowhere.len() == 9 && nowhere.iter().all(|insn| insn["presentationHint"] == "invalid"));
    // gdb's own disassembly of the function.
    let by_gdb = ide.console("disassemble add");
    let asked = json!({"memoryReference": ide.value("(long) add"), "instructionOffset": 0, "instructionCount": 5});
    for insn in ide.ask("disassemble", &asked)["instructions"].as_array().unwrap() {
        let text = insn["instruction"].as_str().unwrap().replace(' ', "");
        assert!(by_gdb.replace([' ', '\t'], "").contains(&text), "{text} is not in {by_gdb}");
    }
    ide.leave();
}

#[test]
fn a_path_recording_shows_what_is_unknown_as_unavailable() {
    if !have("gdb") {
        return;
    }
    let scene = Scene::new();
    let program = scene.compile("ledger.c", &["-O0"]);
    let recording = scene.record_with(&["--full"], &["--", program.to_str().unwrap()]).dir;
    let path = super::source("ledger.c");
    let grows = line(&path, "total grows");
    let (mut ide, _) = Ide::launched(&json!({"recording": recording}), &[(&path, &[grows])]);
    ide.go("reverseContinue");
    assert_eq!(ide.place(), ("add".to_owned(), grows));
    let names: Vec<_> = ide.frames().iter().map(|frame| frame["name"].clone()).collect();
    assert_eq!(names[..2], ["add", "main"]);
    let locals = ide.scope("Locals");
    assert_eq!(find(&locals, "sum")["value"], "<unavailable>");
    let frame = ide.frame_id();
    let info = ide.ask("dataBreakpointInfo", &json!({"name": "sum", "frameId": frame}));
    assert_eq!(info["dataId"], Value::Null);
    for variable in locals.iter().chain(&ide.scope("Arguments")) {
        assert!(!variable.to_string().contains("0x3bad"), "{variable}");
    }
    let hits = ide.ask("contraflow/hits", &json!({"function": "push"}));
    assert_eq!(hits["total"], 5);
    ide.leave();
}
