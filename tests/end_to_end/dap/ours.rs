//! Requests of our own, and the console.

use super::{Ide, ledger, line};
use crate::support::{Scene, have};
use serde_json::json;

#[test]
fn hits_writers_and_marks_lead_through_the_run() {
    if !have("gdb") {
        return;
    }
    let scene = Scene::new();
    let (recording, path) = ledger(&scene, true);
    let grows = line(&path, "total grows");
    let (mut ide, _) = Ide::launched(&json!({"recording": recording}), &[]);
    let end = ide.position();
    let asked =
        json!({"source": {"path": path}, "line": grows, "values": ["a", "total", "nothing"]});
    let hits = ide.ask("contraflow/hits", &asked);
    assert_eq!(hits["total"], 5);
    let values: Vec<_> =
        hits["hits"].as_array().unwrap().iter().map(|hit| hit["values"].clone()).collect();
    let none = "<No symbol \"nothing\" in current context.>";
    let wanted = [("4", "10"), ("3", "6"), ("2", "3"), ("1", "1"), ("0", "0")];
    assert_eq!(values, wanted.map(|(a, total)| json!([a, total, none])));
    assert_eq!(ide.position(), end);
    ide.ask("initialize", &json!({"supportsProgressReporting": true}));
    let few = ide.ask("contraflow/hits", &json!({"function": "add", "limit": 2}));
    assert_eq!((&few["hasMore"], &few["total"]), (&json!(true), &json!(null)));
    assert_eq!(few["hits"].as_array().unwrap().len(), 2);
    let (start, end_of) = (ide.event("progressStart"), ide.event("progressEnd"));
    assert_eq!(
        (&start["cancellable"], &start["progressId"]),
        (&json!(true), &end_of["progressId"])
    );
    // Each hit is a place to go to.
    let third = hits["hits"][2]["position"].as_str().unwrap().to_owned();
    let seek = json!({"to": third});
    let stop = ide.go_with("contraflow/seek", &seek);
    assert_eq!((stop["reason"].as_str(), ide.position()), (Some("goto"), third.clone()));
    assert_eq!((ide.place(), ide.value("total")), (("add".to_owned(), grows), "3".to_owned()));
    ide.ask("contraflow/mark", &json!({"name": "third"}));
    ide.go_with("contraflow/seek", &json!({"to": "end"}));
    ide.go_with("contraflow/seek", &json!({"to": "third"}));
    assert_eq!(ide.position(), third);
    let marks = ide.ask("contraflow/marks", &json!({}));
    let mark = &marks["marks"][0];
    assert_eq!((&mark["name"], &mark["position"]), (&json!("third"), &json!(third)));
    assert_eq!(mark["share"], hits["hits"][2]["share"]);
    ide.ask("contraflow/unmark", &json!({"name": "third"}));
    assert!(ide.refused("contraflow/seek", &json!({"to": "third"})).contains("third"));
    // Who wrote it, from the end on.
    ide.go_with("contraflow/seek", &json!({"to": "end"}));
    let frame = ide.frame_id();
    let total = json!({"expression": "total", "frameId": frame});
    let memory = ide.ask("evaluate", &total)["memoryReference"].clone();
    let asked = json!({"memoryReference": memory, "bytes": 4, "limit": 10});
    let writers = ide.ask("contraflow/writers", &asked);
    let written: Vec<_> = writers["writers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|w| (w["line"].clone(), w["after"].clone()))
        .collect();
    let after = ["0f", "0a", "06", "03", "01"]
        .map(|byte| (json!(grows), json!(format!("{byte} 00 00 00"))));
    assert_eq!(written[..5], after);
    assert!(writers["end"].as_str().unwrap().contains("not changed before"), "{writers}");
    assert_eq!(ide.position(), end);
    let line = ide.ask("contraflow/timeline", &json!({}));
    assert_eq!((&line["gaps"], &line["here"]["isPast"]), (&json!([]), &json!(false)));
    assert!(ide.refused("contraflow/hits", &json!({})).contains("give"));
    assert!(ide.refused("contraflow/hits", &json!({"function": "nothing"})).contains("no code"));
    assert!(ide.refused("contraflow/seek", &json!({"to": "nowhere"})).contains("nowhere"));
    ide.leave();
}

#[test]
fn the_console_takes_commands_that_move() {
    if !have("gdb") {
        return;
    }
    let scene = Scene::new();
    let (recording, path) = ledger(&scene, false);
    let grows = line(&path, "total grows");
    let (mut ide, _) = Ide::launched(&json!({"recording": recording}), &[(&path, &[grows])]);
    assert_eq!(ide.console("p 1 + 1"), "$1 = 2");
    ide.console("reverse-continue");
    let stop = ide.stop();
    assert_eq!(
        (stop["reason"].as_str(), ide.place()),
        (Some("breakpoint"), ("add".to_owned(), grows))
    );
    assert_eq!(ide.console("sum"), "5");
    assert!(ide.console("info locals").contains("sum = 5"));
    assert!(ide.console("cf-when").starts_with(&format!("position {} of", ide.position())));
    ide.console("reverse-next");
    assert_eq!((ide.stop()["reason"].as_str(), ide.place().1), (Some("step"), grows - 1));
    ide.console("cf-seek end");
    assert_eq!(ide.stop()["reason"], "goto");
    assert_eq!(ide.ask("contraflow/when", &json!({}))["isPast"], false);
    ide.console("cf-last total");
    ide.stop();
    assert_eq!(ide.place(), ("add".to_owned(), grows));
    // A function of the program is called, and leaves no trace after the next move.
    ide.break_at(&path, &[]);
    assert_eq!(ide.console("print add(20, 30)"), "$2 = 50");
    assert_eq!(ide.value("total"), "60");
    ide.go("stepBack");
    assert_eq!(ide.value("total"), "10");
    // Hovering calls nothing.
    let frame = ide.frame_id();
    let hover = json!({"expression": "add(1, 2)", "frameId": frame, "context": "hover"});
    ide.refused("evaluate", &hover);
    let hover = json!({"expression": "total", "frameId": frame, "context": "hover"});
    assert_eq!(ide.ask("evaluate", &hover)["result"], "10");
    let refused = |ide: &mut Ide, command: &str| {
        ide.refused("evaluate", &json!({"expression": command, "context": "repl"}))
    };
    for command in ["quit", "python", "commands", "kill", "run", "target remote :1"] {
        assert!(refused(&mut ide, command).contains("cannot be used here"), "{command}");
    }
    assert!(refused(&mut ide, "nothing").contains("No symbol"));
    let targets = |ide: &mut Ide, text: &str| {
        let asked = json!({"text": text, "column": text.len() + 1});
        let answer = ide.ask("completions", &asked)["targets"].as_array().unwrap().clone();
        answer.iter().map(|target| target["label"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert!(targets(&mut ide, "print tot").contains(&"total".to_owned()));
    assert!(targets(&mut ide, "tot").contains(&"total".to_owned()));
    assert!(targets(&mut ide, "cf-se").contains(&"cf-seek".to_owned()));
    let locals = json!({"frameId": ide.frame_id()});
    let scopes = ide.ask("scopes", &locals);
    let set = json!({"variablesReference": scopes["scopes"][1]["variablesReference"], "name": "sum", "value": "3"});
    assert!(ide.refused("setVariable", &set).contains("the past cannot be changed"));
    ide.leave();
}
