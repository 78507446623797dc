//! Breakpoints of all kinds, in both directions.

use super::{Ide, ledger, line, shapes};
use crate::support::{Scene, have};
use serde_json::{Value, json};

#[test]
fn conditions_counts_and_messages_hold_in_both_directions() {
    if !have("gdb") {
        return;
    }
    let scene = Scene::new();
    let (recording, path) = ledger(&scene, false);
    let (grows, end) = (line(&path, "total grows"), line(&path, "end of push"));
    let arguments = json!({"recording": recording, "stopOnEntry": true});
    let (mut ide, _) = Ide::launched(&arguments, &[]);
    let set = |ide: &mut Ide, breakpoints: Value| {
        let wanted = json!({"source": {"path": path}, "breakpoints": breakpoints});
        ide.ask("setBreakpoints", &wanted)["breakpoints"].clone()
    };
    let shown = set(
        &mut ide,
        json!([
            {"line": grows, "condition": "a == 3"},
            {"line": end, "logMessage": "push of {value}: {new->value} {nothing}"},
            {"line": 1_000_000},
            {"line": end, "hitCondition": "so many"},
            {"line": grows, "condition": "a =="},
        ]),
    );
    let verified: Vec<_> =
        shown.as_array().unwrap().iter().map(|b| b["verified"].clone()).collect();
    assert_eq!(verified, [true, true, false, false, false]);
    assert_eq!(shown[0]["line"], grows);
    let stop = ide.go("continue");
    assert_eq!(
        (&stop["reason"], &stop["hitBreakpointIds"][0]),
        (&json!("breakpoint"), &shown[0]["id"])
    );
    assert_eq!(ide.value("a"), "3");
    let logged = ["1: 1", "2: 2", "3: 3"];
    for text in logged {
        let output = ide.event("output");
        let wanted = format!("push of {text} <No symbol \"nothing\" in current context.>\n");
        assert_eq!((&output["output"], &output["line"]), (&json!(wanted), &json!(end)));
    }
    ide.go("continue");
    ide.go("reverseContinue");
    assert_eq!(ide.value("a"), "3");
    // The third hit, whatever the direction; breakpoints that stay keep their numbers.
    let before = set(&mut ide, json!([{"line": grows}]))[0]["id"].clone();
    let shown = set(&mut ide, json!([{"line": grows}, {"line": end, "hitCondition": "%2"}]));
    assert_eq!(shown[0]["id"], before);
    set(&mut ide, json!([{"line": end, "hitCondition": "%2"}]));
    ide.go("restart");
    for value in ["2", "4"] {
        ide.go("continue");
        assert_eq!(ide.value("value"), value);
    }
    ide.leave();
}

#[test]
fn functions_and_instructions_stop() {
    if !have("gdb") {
        return;
    }
    let scene = Scene::new();
    let (recording, path) = ledger(&scene, false);
    let arguments = json!({"recording": recording, "stopOnEntry": true});
    let (mut ide, _) = Ide::launched(&arguments, &[]);
    let names =
        json!({"breakpoints": [{"name": "push", "condition": "value == 3"}, {"name": "no such"}]});
    let shown = ide.ask("setFunctionBreakpoints", &names)["breakpoints"].clone();
    assert_eq!((&shown[0]["verified"], &shown[1]["verified"]), (&json!(true), &json!(false)));
    assert_eq!(ide.go("continue")["reason"], "function breakpoint");
    assert_eq!((ide.place().0.as_str(), ide.value("value")), ("push", "3".to_owned()));
    ide.ask("setFunctionBreakpoints", &json!({"breakpoints": []}));
    let code = json!({"memoryReference": ide.value("(long) add"), "instructionOffset": 3, "instructionCount": 1});
    let third = ide.ask("disassemble", &code)["instructions"][0]["address"].clone();
    let wanted = json!({"breakpoints": [{"instructionReference": third}]});
    let shown = ide.ask("setInstructionBreakpoints", &wanted)["breakpoints"].clone();
    assert_eq!(shown[0]["instructionReference"], third);
    assert_eq!(ide.go("reverseContinue")["reason"], "instruction breakpoint");
    assert_eq!(ide.frames()[0]["instructionPointerReference"], third);
    let loaded = ide.ask("loadedSources", &json!({}))["sources"].as_array().unwrap().clone();
    assert!(loaded.iter().any(|source| source["path"] == path.to_str().unwrap()));
    let modules = ide.ask("modules", &json!({}))["modules"].as_array().unwrap().clone();
    assert!(modules.iter().any(|module| module["name"] == "ledger"), "{modules:?}");
    ide.leave();
}

#[test]
fn writes_and_reads_of_data_stop() {
    if !have("gdb") {
        return;
    }
    let scene = Scene::new();
    let (recording, path) = ledger(&scene, false);
    let (mut ide, _) = Ide::launched(&json!({"recording": recording}), &[]);
    let grows = line(&path, "total grows");
    let info = ide.ask("dataBreakpointInfo", &json!({"name": "total"}));
    assert_eq!(info["accessTypes"], json!(["read", "write", "readWrite"]));
    let set = |ide: &mut Ide, access: &str| {
        let wanted = json!({"breakpoints": [{"dataId": info["dataId"], "accessType": access}]});
        assert_eq!(ide.ask("setDataBreakpoints", &wanted)["breakpoints"][0]["verified"], true);
    };
    set(&mut ide, "write");
    for (earlier, later) in [(10, 15), (6, 10), (3, 6)] {
        let stop = ide.go("reverseContinue");
        assert_eq!(stop["reason"], "data breakpoint");
        let text = stop["text"].as_str().unwrap();
        assert!(text.starts_with(&format!("total: {earlier} → {later}; in the past")), "{text}");
        assert_eq!(
            (ide.place(), ide.value("total")),
            (("add".to_owned(), grows), earlier.to_string())
        );
    }
    let stop = ide.go("continue");
    assert!(stop["text"].as_str().unwrap().starts_with("total: 3 → 6"), "{stop}");
    // Memory without a type, by its address.
    let address = ide.value("&total").split(' ').next().unwrap().to_owned();
    let bytes = json!({"name": address, "asAddress": true, "bytes": 4});
    let info = ide.ask("dataBreakpointInfo", &bytes);
    let wanted = json!({"breakpoints": [{"dataId": info["dataId"], "accessType": "write"}]});
    ide.ask("setDataBreakpoints", &wanted);
    assert_eq!(ide.go("continue")["reason"], "data breakpoint");
    let wrong = json!({"breakpoints": [{"dataId": info["dataId"], "accessType": "new"}, {"dataId": "no such"}]});
    let shown = ide.ask("setDataBreakpoints", &wrong)["breakpoints"].clone();
    assert_eq!((&shown[0]["verified"], &shown[1]["verified"]), (&json!(false), &json!(false)));
    let nothing = ide.ask("dataBreakpointInfo", &json!({"name": "1 + 1"}));
    assert_eq!(nothing["dataId"], Value::Null);
    ide.leave();
}

#[test]
fn exceptions_stop_where_they_are_thrown_and_caught() {
    if !have("gdb") {
        return;
    }
    let scene = Scene::new();
    let (recording, path) = shapes(&scene);
    let (mut ide, _) = Ide::launched(&json!({"recording": recording}), &[]);
    ide.ask("setExceptionBreakpoints", &json!({"filters": ["throw", "catch", "panic", "signal"]}));
    let stop = ide.go("reverseContinue");
    assert_eq!((&stop["reason"], &stop["description"]), (&json!("exception"), &json!("C++ catch")));
    let stop = ide.go("reverseContinue");
    let thrown = "C++ throw of std::runtime_error";
    assert_eq!((&stop["reason"], &stop["description"]), (&json!("exception"), &json!(thrown)));
    let info = ide.ask("exceptionInfo", &json!({"threadId": ide.thread}));
    assert_eq!(info["exceptionId"], "std::runtime_error");
    let frames = ide.frames();
    let of_work = frames.iter().find(|frame| frame["name"].as_str().unwrap().starts_with("work"));
    assert_eq!(of_work.unwrap()["line"], line(&path, "// throwing"));
    // To the beginning, where the libraries are not there yet, and back.
    assert_eq!(ide.go("reverseContinue")["description"], "At the start of the recording");
    assert_eq!(ide.go("continue")["description"], thrown);
    ide.leave();
}
