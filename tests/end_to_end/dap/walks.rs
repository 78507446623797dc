//! Moves in both directions, and the ends of the history.

use super::{Ide, ledger, line, shapes};
use crate::support::{Scene, have};
use serde_json::json;

#[test]
fn a_recording_is_walked_in_both_directions() {
    if !have("gdb") {
        return;
    }
    let scene = Scene::new();
    let (recording, path) = ledger(&scene, false);
    let of_add = line(&path, "end of add");
    let (mut ide, stop) = Ide::launched(&json!({"recording": recording}), &[(&path, &[of_add])]);
    let end = "At the end of the recording: exited with status 0";
    assert_eq!((&stop["reason"], &stop["description"]), (&json!("entry"), &json!(end)));
    // Each call of `add` backwards, then forwards again.
    let mut places = Vec::new();
    for i in (0..5).rev() {
        let stop = ide.go("reverseContinue");
        assert_eq!(stop["reason"], "breakpoint");
        assert!(stop["text"].as_str().unwrap().starts_with("in the past: position "), "{stop}");
        assert_eq!(ide.place(), ("add".to_owned(), of_add));
        assert_eq!((ide.value("a"), ide.value("sum")), (i.to_string(), (i + 1).to_string()));
        places.push(ide.position());
    }
    let stop = ide.go("reverseContinue");
    assert_eq!(stop["description"], "At the start of the recording");
    for place in places.iter().rev() {
        ide.go("continue");
        assert_eq!(ide.position(), *place);
    }
    assert_eq!(ide.go("continue")["description"], end);
    ide.leave();
}

#[test]
fn steps_back_are_the_counterparts_of_steps() {
    if !have("gdb") {
        return;
    }
    let scene = Scene::new();
    let (recording, path) = ledger(&scene, false);
    let sum = line(&path, "int sum");
    let calls = line(&path, "numbers[i] = add");
    let (mut ide, _) = Ide::launched(&json!({"recording": recording}), &[(&path, &[sum])]);
    ide.go("reverseContinue");
    ide.break_at(&path, &[]);
    let start = ide.position();
    for (forth, back) in [("next", "stepBack"), ("stepIn", "contraflow/stepBackInto")] {
        assert_eq!(ide.go(forth)["reason"], "step");
        assert_eq!(ide.place(), ("add".to_owned(), sum + 1));
        ide.go(back);
        assert_eq!((ide.place(), ide.position()), (("add".to_owned(), sum), start.clone()));
    }
    // By one instruction, as the disassembly asks.
    let by_instruction = json!({"threadId": ide.thread, "granularity": "instruction"});
    ide.go_with("next", &by_instruction);
    assert_ne!(ide.position(), start);
    ide.go_with("stepBack", &by_instruction);
    assert_eq!(ide.position(), start);
    // An unknown granularity is no error.
    let unknown =
        json!({"threadId": ide.thread, "granularity": "new", "singleThread": true, "more": 1});
    ide.go_with("next", &unknown);
    ide.go_with("stepBack", &unknown);
    assert_eq!(ide.position(), start);
    // Out of the function, in both directions, and over the call that was left.
    ide.go("contraflow/stepBackOut");
    assert_eq!(ide.place(), ("main".to_owned(), calls));
    ide.go("next");
    assert_eq!(ide.place(), ("main".to_owned(), calls + 1));
    ide.go("stepBack");
    assert_eq!(ide.place(), ("main".to_owned(), calls));
    ide.leave();
}

#[test]
fn a_burst_of_steps_ends_where_single_ones_do() {
    if !have("gdb") {
        return;
    }
    let scene = Scene::new();
    let (recording, path) = ledger(&scene, false);
    let deepest = line(&path, "return 0; // deepest");
    let arguments = json!({"recording": recording});
    let (mut ide, _) = Ide::launched(&arguments, &[(&path, &[deepest])]);
    ide.go("reverseContinue");
    let start = ide.position();
    let mut single = Vec::new();
    for _ in 0..12 {
        ide.go("stepBack");
        single.push(ide.position());
    }
    ide.ask("contraflow/seek", &json!({"to": start}));
    ide.stop();
    let thread = json!({"threadId": ide.thread});
    let sent: Vec<i64> = (0..12).map(|_| ide.send("stepBack", &thread)).collect();
    for seq in sent {
        assert_eq!(ide.response(seq)["success"], true);
    }
    for _ in 0..12 {
        ide.stop();
    }
    assert_eq!(Some(&ide.position()), single.last());
    ide.leave();
}

#[test]
fn threads_and_a_deep_stack_are_shown() {
    if !have("gdb") {
        return;
    }
    let scene = Scene::new();
    let (recording, path) = ledger(&scene, false);
    let deepest = line(&path, "return 0; // deepest");
    let (mut ide, _) = Ide::launched(&json!({"recording": recording}), &[(&path, &[deepest])]);
    ide.go("reverseContinue");
    // 300 calls of `depth`, the one of main, and no frame twice or left out.
    let mut names = Vec::new();
    loop {
        let page = json!({"threadId": ide.thread, "startFrame": names.len(), "levels": 50});
        let answer = ide.ask("stackTrace", &page);
        let frames = answer["stackFrames"].as_array().unwrap();
        names.extend(frames.iter().map(|frame| frame["name"].as_str().unwrap().to_owned()));
        if names.len() >= usize::try_from(answer["totalFrames"].as_u64().unwrap()).unwrap() {
            break;
        }
    }
    assert_eq!(names.iter().filter(|name| *name == "depth").count(), 301);
    assert_eq!(names.iter().position(|name| name == "main"), Some(301));
    ide.leave();

    let scene = Scene::new();
    let (recording, path) = shapes(&scene);
    let inside = line(&path, "in the thread");
    let (mut ide, _) = Ide::launched(&json!({"recording": recording}), &[(&path, &[inside])]);
    let main = ide.thread;
    ide.go("reverseContinue");
    assert_ne!(ide.thread, main);
    let threads = ide.ask("threads", &json!({}))["threads"].as_array().unwrap().clone();
    let ids: Vec<_> = threads.iter().map(|thread| thread["id"].as_i64().unwrap()).collect();
    assert_eq!(ids, [main, ide.thread]);
    let (here, of_main) = (ide.frames(), {
        let other = json!({"threadId": main});
        ide.ask("stackTrace", &other)["stackFrames"].as_array().unwrap().clone()
    });
    assert!(here[0]["line"] == inside && of_main.iter().any(|frame| frame["name"] == "main"));
    // A step goes with the thread of the stop, though another one was looked at.
    let of_other = ide.thread;
    ide.go("stepBack");
    assert_eq!(ide.thread, of_other);
    ide.leave();
}

#[test]
fn restart_and_goto_and_a_frame_again() {
    if !have("gdb") {
        return;
    }
    let scene = Scene::new();
    let (recording, path) = ledger(&scene, true);
    let grows = line(&path, "total grows");
    let at_entry = json!({"recording": recording, "stopOnEntry": true});
    let (mut ide, stop) = Ide::launched(&at_entry, &[]);
    assert_eq!(stop["description"], "At the start of the recording");
    let targets = ide.ask("gotoTargets", &json!({"source": {"path": path}, "line": grows}));
    let id = |at: usize| targets["targets"][at]["id"].clone();
    let [before, after] = [id(0), id(1)];
    let go = |target: &serde_json::Value| json!({"threadId": 1, "targetId": target});
    assert!(ide.refused("goto", &go(&before)).contains("does not run before"));
    ide.go_with("goto", &go(&after));
    assert_eq!((ide.place(), ide.value("a")), (("add".to_owned(), grows), "0".to_owned()));
    ide.go_with("goto", &go(&after));
    assert_eq!((ide.place(), ide.value("a")), (("add".to_owned(), grows), "1".to_owned()));
    ide.go_with("goto", &go(&before));
    assert_eq!(ide.value("a"), "0");
    let frame = ide.frame_id();
    ide.go_with("restartFrame", &json!({"frameId": frame}));
    assert_eq!(ide.place(), ("add".to_owned(), line(&path, "static int add") + 1));
    ide.go_with("restart", &json!({}));
    assert_eq!(ide.event("contraflow/when")["isPast"], true);
    let stop = ide.go("continue");
    let killed = "At the end of the recording: killed by SIGSEGV";
    assert_eq!((&stop["reason"], &stop["description"]), (&json!("exception"), &json!(killed)));
    assert_eq!(ide.place(), ("main".to_owned(), line(&path, "// crash")));
    let info = ide.ask("exceptionInfo", &json!({"threadId": ide.thread}));
    assert_eq!(info["exceptionId"], "SIGSEGV");
    assert!(info["description"].as_str().unwrap().ends_with("address 0x0"), "{info}");
    ide.leave();
}

#[test]
fn code_without_symbols_is_stepped_by_instruction() {
    if !have("gdb") {
        return;
    }
    let scene = Scene::new();
    let program = scene.compile("ledger.c", &["-O0", "-s"]);
    let recording = super::record(&scene, &[&program]);
    let (mut ide, _) = Ide::launched(&json!({"recording": recording}), &[]);
    ide.ask("setFunctionBreakpoints", &json!({"breakpoints": [{"name": "printf"}]}));
    ide.go("reverseContinue");
    ide.ask("setFunctionBreakpoints", &json!({"breakpoints": []}));
    ide.go("stepOut");
    let pc = |ide: &mut Ide| ide.frames()[0]["instructionPointerReference"].clone();
    let (start, of_start) = (ide.position(), pc(&mut ide));
    for (forth, back) in [("next", "stepBack"), ("stepIn", "contraflow/stepBackInto")] {
        assert_eq!(ide.go(forth)["reason"], "step");
        assert_ne!(pc(&mut ide), of_start);
        ide.go(back);
        assert_eq!((ide.position(), pc(&mut ide)), (start.clone(), of_start.clone()));
    }
    ide.leave();
}
