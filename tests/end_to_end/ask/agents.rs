//! `contraflow mcp`: the protocol, message by message, against the command line and gdb on the same
//! recording; and the official Python client.

use super::{compile, line_of, record, rows};
use crate::support::{Recorded, Scene, answer, contraflow, have, text};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// A client.
struct Agent {
    server: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    id: u64,
}

impl Agent {
    fn new() -> Self {
        let mut server = contraflow()
            .arg("mcp")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("contraflow runs");
        let input = server.stdin.take().unwrap();
        let output = BufReader::new(server.stdout.take().unwrap());
        let mut agent = Self { server, input, output, id: 0 };
        let client = json!({"name": "test", "version": "1"});
        let params =
            json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client});
        let begun = agent.request("initialize", &params);
        assert_eq!(begun["result"]["serverInfo"]["name"], "contraflow");
        assert_eq!(begun["result"]["protocolVersion"], "2025-06-18");
        agent.write(r#"{"jsonrpc": "2.0", "method": "notifications/initialized"}"#);
        agent
    }

    /// A client with a recording.
    fn with(recording: &Path) -> Self {
        let mut agent = Self::new();
        agent.call("open", &json!({"recording": recording}));
        agent
    }

    fn write(&mut self, line: &str) {
        writeln!(self.input, "{line}").and_then(|()| self.input.flush()).expect("the server reads");
    }

    fn read(&mut self) -> Value {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("the server writes");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
    }

    fn send(&mut self, method: &str, params: &Value) -> u64 {
        self.id += 1;
        let request = json!({"jsonrpc": "2.0", "id": self.id, "method": method, "params": params});
        self.write(&request.to_string());
        self.id
    }

    fn request(&mut self, method: &str, params: &Value) -> Value {
        let id = self.send(method, params);
        loop {
            let message = self.read();
            if message["id"] == id {
                return message;
            }
        }
    }

    fn result(&mut self, tool: &str, arguments: &Value) -> Value {
        let params = json!({"name": tool, "arguments": arguments});
        let answer = self.request("tools/call", &params);
        assert!(answer["error"].is_null(), "{tool} {arguments}: {answer}");
        answer["result"].clone()
    }

    /// The answer of a tool.
    fn call(&mut self, tool: &str, arguments: &Value) -> Value {
        let result = self.result(tool, arguments);
        assert_eq!(result["isError"], false, "{tool} {arguments}: {result}");
        let said = result["content"][0]["text"].as_str().unwrap();
        let content: Value = serde_json::from_str(said).unwrap();
        assert_eq!(content, result["structuredContent"]);
        content
    }

    /// The sentence of a tool that has no answer.
    fn refused(&mut self, tool: &str, arguments: &Value) -> String {
        let result = self.result(tool, arguments);
        assert_eq!(result["isError"], true, "{tool} {arguments}: {result}");
        let said = result["content"][0]["text"].as_str().unwrap();
        assert!(!said.is_empty() && !said.contains('\n'), "{said}");
        said.to_owned()
    }

    /// The value of an expression.
    fn print(&mut self, expression: &str) -> Value {
        self.call("print", &json!({"expressions": expression}))["values"][0]["value"].clone()
    }

    /// All rows of pages.
    fn all(&mut self, tool: &str, arguments: &Value, key: &str) -> Vec<Value> {
        let mut arguments = arguments.clone();
        let mut all = Vec::new();
        loop {
            let page = self.call(tool, &arguments);
            let rows = page["rows"].as_array().unwrap();
            assert!(rows.len() <= 5);
            all.extend(rows.iter().cloned());
            if page["next"].is_null() {
                return all;
            }
            assert_eq!(rows.len(), 5, "only the last page is short");
            arguments[key] = page["next"].clone();
        }
    }

    /// Leaves, and waits for the server's end.
    fn leave(mut self) {
        drop(self.input);
        assert!(self.server.wait().unwrap().success());
    }
}

fn recorded(scene: &Scene, source: &str, options: &[&str]) -> Recorded {
    let program = scene.compile(source, &["-O0"]);
    let (dir, log) = (scene.path("recording"), scene.path("log"));
    let mut recorder = contraflow();
    recorder.args(["record", "-q", "-o"]).arg(&dir).args(options).arg("--").arg(program);
    let output = recorder.output().expect("contraflow runs");
    assert!(dir.join("manifest.json").exists(), "{}", text(&output.stderr));
    Recorded { dir, log, output }
}

fn crash(scene: &Scene, options: &[&str]) -> Recorded {
    recorded(scene, "crash.c", options)
}

#[test]
fn an_agent_finds_the_bug_of_the_crash() {
    let scene = Scene::new();
    let recorded = crash(&scene, &[]);
    let mut agent = Agent::new();
    assert!(agent.refused("where", &json!({})).contains("open"));
    let here = agent.call("open", &json!({"recording": recorded.dir}));
    assert_eq!((&here["function"], &here["line"]), (&json!("longest_name"), &json!(47)));
    assert_eq!(here["ending"], "killed by SIGSEGV");
    assert_eq!(here["position"], here["end"]);
    let stack = agent.call("backtrace", &json!({"limit": 2}));
    let names: Vec<_> =
        stack["frames"].as_array().unwrap().iter().map(|f| &f["function"]).collect();
    assert_eq!(names, ["longest_name", "report"]);
    let rest = agent.call("backtrace", &json!({"skip": stack["next"]}));
    assert_eq!((&rest["frames"][0]["frame"], &rest["frames"][0]["line"]), (&json!(2), &json!(70)));
    assert_eq!(agent.print("a->owner"), "0x0");
    // The writer of the null pointer, and the values before it.
    let writer = agent.call("back", &json!({"watch": "a->owner"}));
    assert_eq!((&writer["function"], &writer["line"]), (&json!("retire"), &json!(31)));
    let account = agent.print("*a");
    assert_eq!(account["balance"], 50);
    assert_ne!(account["owner"]["pointer"], "0x0");
    let source = agent.call("source", &json!({"limit": 3}));
    assert!(source["lines"][1].as_str().unwrap().contains("the bug"), "{source}");
    assert_eq!((&source["first"], &source["line"]), (&json!(30), &json!(31)));
    let forward = agent.call("forward", &json!({"watch": "a->owner"}));
    assert_eq!(agent.print("a->owner"), "0x0");
    assert_eq!(forward["line"], 32);
    // The origin names the same instruction.
    agent.call("go", &json!({"position": "end"}));
    let origin = agent.call("origin", &json!({"expression": "a->owner"}));
    assert_eq!(origin["rows"][1]["position"], writer["position"]);
    assert_eq!(origin["rows"][1]["kind"], "constant");
    agent.leave();
}

#[test]
fn pages_of_rows_are_those_of_the_command_line() {
    let scene = Scene::new();
    let Some(program) = compile(&scene, "gcc", "values.c", &["-O0"]) else { return };
    let (dir, _) = record(&scene, &[], &program);
    let mut agent = Agent::with(&dir);
    let at = line_of("values.c", "the line");
    let print = "a->id, a->weight, head->name, bt 2";
    let wanted = json!({"at": at, "print": print, "limit": 5});
    let hits = agent.all("hits", &wanted, "from");
    assert_eq!(hits, rows("hits", &dir, &["--at", &at, "--print", print]));
    assert_eq!(hits.len(), 12);
    let wanted = json!({"functions": ["mean", "name_of"], "arguments": true, "results": true,
        "durations": true, "limit": 5});
    let calls = agent.all("calls", &wanted, "skip");
    let options =
        ["--function", "mean", "--function", "name_of", "--args", "--returns", "--duration"];
    assert_eq!(calls, rows("calls", &dir, &options));
    assert_eq!(calls.len(), 24);
    // Each row is a place to go to, where print has the same values.
    for hit in &hits {
        let here = agent.call("go", &json!({"position": hit["position"]}));
        assert_eq!(here["address"], hit["address"]);
        assert_eq!(agent.print("a->id"), hit["a->id"]);
        assert_eq!(agent.print("head->name"), hit["head->name"]);
    }
    // Conditions choose among the hits, in both directions.
    let when = json!({"until": at, "when": "a->id == 3"});
    assert_eq!(agent.call("back", &when)["position"], hits[3]["position"]);
    agent.call("go", &json!({"position": "begin"}));
    assert_eq!(agent.call("forward", &when)["position"], hits[3]["position"]);
    let third = agent.call("forward", &json!({"until": at, "count": 3}));
    assert_eq!(third["position"], hits[6]["position"]);
    let origin = agent.call("origin", &json!({"expression": "a->id"}));
    let position = third["position"].as_str().unwrap();
    let steps = contraflow()
        .args(["origin", "--json", "--at", position])
        .arg(&dir)
        .arg("a->id")
        .output()
        .expect("contraflow runs");
    let steps = text(&steps.stdout);
    let steps: Vec<Value> = steps.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(origin["rows"], json!(steps));
    agent.leave();
}

/// The lines at which gdb is after each of its steps.
fn lines_of_gdb(said: &str, commands: &[String]) -> Vec<u64> {
    let line = |(number, command): (usize, &String)| {
        let shown = answer(said, command, number);
        let shown = shown.lines().last().expect("gdb shows a line");
        shown.split_whitespace().next().unwrap().parse().expect(shown)
    };
    commands.iter().enumerate().map(line).collect()
}

/// Moves a program's debug information to the file `debug`. Returns false if no tool does it.
fn split_debug_information(program: &Path, debug: &Path) -> bool {
    let objcopy = |arguments: &[&std::ffi::OsStr]| {
        Command::new("objcopy").args(arguments).status().expect("objcopy runs").success()
    };
    let link = format!("--add-gnu-debuglink={}", debug.display());
    have("objcopy")
        && objcopy(&["--only-keep-debug".as_ref(), program.as_ref(), debug.as_ref()])
        && objcopy(&["--strip-debug".as_ref(), link.as_ref(), program.as_ref()])
}

#[test]
fn steps_over_lines_are_those_of_gdb() {
    if !have("gdb") {
        return;
    }
    let scene = Scene::new();
    let recorded = crash(&scene, &[]);
    // Before the first line of main, gdb leaves it.
    for (command, tool, steps) in [("next", "forward", 12), ("reverse-next", "back", 6)] {
        let mut agent = Agent::with(&recorded.dir);
        let mut here = agent.call("back", &json!({"until": "report"}));
        if tool == "forward" {
            here = agent.call("back", &json!({"until": "main"}));
        }
        let at = here["position"].as_str().unwrap().to_owned();
        let commands = vec![command.to_owned(); steps];
        let said = recorded.gdb(&format!("cf-seek {at}\n{}", commands.join("\n")));
        let wanted = lines_of_gdb(&said, &commands);
        let ours: Vec<u64> = (0..steps)
            .map(|_| agent.call(tool, &json!({"step": "line"}))["line"].as_u64().unwrap())
            .collect();
        assert_eq!(ours, wanted, "{command}");
        agent.leave();
    }
    // Steps end at the start of the history.
    let mut agent = Agent::with(&recorded.dir);
    let begin = agent.call("go", &json!({"position": "begin"}));
    agent.call("forward", &json!({"step": "instruction", "count": 100}));
    let first = agent.call("back", &json!({"step": "instruction", "count": u32::MAX}));
    assert_eq!(first["position"], begin["position"]);
    agent.leave();
    // Debug information in a file of its own is used too.
    let Some(program) = compile(&scene, "gcc", "compared.c", &["-O0"]) else { return };
    let mut lines = ["whole", "split"].map(|name| {
        let debug = scene.path("program.debug");
        if name == "split" && !split_debug_information(&program, &debug) {
            return None;
        }
        let (dir, _) = super::record_as(&scene, name, &[], &program, &[]);
        let mut agent = Agent::with(&dir);
        agent.call("back", &json!({"until": "main"}));
        let steps: Vec<Value> = (0..3)
            .map(|_| agent.call("forward", &json!({"step": "line"}))["line"].clone())
            .collect();
        agent.leave();
        Some(steps)
    });
    if let Some(split) = lines[1].take() {
        assert_eq!(Some(split), lines[0]);
    }
    // Out of a function and back into it.
    let mut agent = Agent::with(&recorded.dir);
    agent.call("back", &json!({"until": "retire"}));
    let out = agent.call("forward", &json!({"step": "out"}));
    assert_eq!((&out["function"], &out["line"]), (&json!("main"), &json!(70)));
    assert_eq!(out["stopped"], "after a step");
    assert_eq!(agent.call("where", &json!({}))["stopped"], "after a step");
    agent.call("back", &json!({"step": "instruction"}));
    let call = agent.call("back", &json!({"step": "out"}));
    assert_eq!((&call["function"], &call["line"]), (&json!("main"), &json!(69)));
    let said = recorded.gdb("print accounts->owner\nprint sizeof(struct account)");
    assert!(answer(&said, "print sizeof(struct account)", 0).ends_with("= 24"), "{said}");
    // What the debug information alone does not answer, gdb does.
    let shown = agent.call("print", &json!({"expressions": "sizeof(struct account)"}));
    assert_eq!(shown["values"][0]["text"], "24");
    assert_eq!(shown["values"][0]["error"], Value::Null);
    agent.leave();
}

#[test]
fn a_step_over_a_recursive_call_stops_at_the_line_after_it() {
    let scene = Scene::new();
    let Some(program) = compile(&scene, "gcc", "recursive_lines.c", &["-O0"]) else { return };
    let (dir, _) = record(&scene, &[], &program);
    let mut agent = Agent::with(&dir);
    let call = line_of("recursive_lines.c", "// the call");
    agent.call("go", &json!({"position": "begin"}));
    // The outermost activation, the second one, and the third one.
    for (count, n) in [(1, 3), (1, 2), (1, 1)] {
        agent.call("forward", &json!({"until": call, "count": count}));
        assert_eq!(agent.print("n"), n);
        let at = agent.call("where", &json!({}))["position"].clone();
        let next = agent.call("forward", &json!({"step": "line"}));
        let line = format!("recursive_lines.c:{}", next["line"]);
        assert_eq!(line, line_of("recursive_lines.c", "// after it"), "{n}");
        assert_eq!(agent.print("n"), n);
        agent.call("go", &json!({"position": at}));
    }
    agent.leave();
}

#[test]
fn programs_in_cpp_rust_and_go_have_values() {
    let scene = Scene::new();
    for (compiler, name, expression) in
        [("g++", "shapes.cpp", "bt 1"), ("rustc", "shapes.rs", "item.id")]
    {
        let Some(program) = compile(&scene, compiler, name, &[]) else { continue };
        let (dir, _) = super::record_as(&scene, name, &[], &program, &[]);
        let at = line_of(name, "the line");
        let wanted = rows("hits", &dir, &["--at", &at, "--print", expression]);
        let mut agent = Agent::with(&dir);
        for row in wanted.iter().rev() {
            let here = agent.call("back", &json!({"until": at}));
            assert_eq!(here["position"], row["position"]);
            assert_eq!(agent.print(expression), row[expression]);
        }
        assert!(!wanted.is_empty());
        agent.leave();
    }
    if !have("go") {
        return;
    }
    let source = scene.path("main.go");
    let code = "package main\n\nimport \"os\"\n\n//go:noinline\nfunc twice(n int) int {\n\t\
                return n * 2\n}\n\nfunc main() {\n\tn := 1\n\tfor i := 0; i < 3; i++ {\n\t\t\
                n = twice(n)\n\t}\n\tos.Exit(n)\n}\n";
    std::fs::write(&source, code).unwrap();
    let program = scene.path("go");
    let mut go = Command::new("go");
    go.args(["build", "-gcflags=all=-N -l", "-o"]).arg(&program).arg(&source);
    go.env("GOFLAGS", "-mod=mod").env("GOCACHE", scene.path("cache"));
    assert!(go.output().expect("go runs").status.success());
    let dir = scene.path("of-go");
    let recorder = contraflow().args(["record", "-q", "-o"]).arg(&dir).arg(&program).output();
    assert_eq!(recorder.unwrap().status.code(), Some(8));
    let mut agent = Agent::with(&dir);
    for wanted in [4, 2, 1] {
        let here = agent.call("back", &json!({"until": "main.twice"}));
        assert_eq!(here["function"], "main.twice");
        assert_eq!(agent.print("n"), wanted);
    }
    agent.leave();
}

/// Headers of C++ have no extension, as `<initializer_list>`.
#[test]
fn a_header_without_an_extension_comes_with_an_unpacked_recording() {
    let scene = Scene::new();
    let source = scene.path("sum.cpp");
    let code = "#include <initializer_list>\nint main() {\n    int sum = 0;\n    \
                for (int each : {1, 2, 3})\n        sum += each;\n    return sum == 6 ? 0 : 1;\n}\n";
    std::fs::write(&source, code).unwrap();
    let Some(program) = compile(&scene, "g++", source.to_str().unwrap(), &["-O0"]) else { return };
    let (dir, _) = record(&scene, &[], &program);
    let (packed, unpacked) = (scene.path("it.cfpack"), scene.path("unpacked"));
    let mut pack = contraflow();
    pack.args(["pack", "-q", "--sources"]).arg(&dir).arg("-o").arg(&packed);
    assert!(pack.status().unwrap().success());
    let mut unpack = contraflow();
    unpack.args(["unpack", "-q"]).arg(&packed).arg("-o").arg(&unpacked);
    assert!(unpack.status().unwrap().success());
    let mut agent = Agent::with(&unpacked);
    let shown = agent.call("source", &json!({"at": "initializer_list:1"}));
    let file = shown["file"].as_str().unwrap();
    assert!(Path::new(file).starts_with(&unpacked), "{file}");
    assert!(shown["lines"].as_array().unwrap().len() > 10, "{shown}");
    agent.leave();
}

#[test]
fn paths_have_places_and_no_values() {
    let scene = Scene::new();
    let recorded = crash(&scene, &["--path", "--full"]);
    let mut agent = Agent::new();
    let here = agent.call("open", &json!({"recording": recorded.dir}));
    assert_eq!((&here["line"], &here["has_values"]), (&json!(47), &json!(false)));
    // At the end, values are known.
    assert_eq!(agent.print("a->owner"), "0x0");
    let there = agent.call("back", &json!({"until": "crash.c:31"}));
    assert_eq!(there["function"], "retire");
    let stack = agent.call("backtrace", &json!({}));
    assert_eq!(stack["frames"][1]["line"], 69);
    assert_eq!(stack["frames"][1]["arguments"], Value::Null);
    assert_eq!(stack.get("missing"), Some(&Value::Null), "{stack}");
    let shown = agent.call("print", &json!({"expressions": "a, a->balance"}));
    for value in shown["values"].as_array().unwrap() {
        assert_eq!(value["value"], Value::Null, "{shown}");
    }
    let hits = agent.call("hits", &json!({"at": "crash.c:31", "print": "a"}));
    assert_eq!((&hits["rows"][0]["a"], hits["rows"][0]["line"].as_u64()), (&Value::Null, Some(31)));
    assert_eq!(hits["rows"][0]["position"], there["position"]);
    for (tool, wrong) in [
        ("back", json!({"watch": "accounts"})),
        ("forward", json!({"watch": "accounts"})),
        ("back", json!({"step": "line"})),
        ("forward", json!({"step": "out"})),
        ("origin", json!({"expression": "accounts"})),
    ] {
        agent.refused(tool, &wrong);
    }
    assert_eq!(agent.call("where", &json!({}))["position"], there["position"]);
    agent.leave();
}

#[test]
fn a_stack_without_its_outer_frames_says_so() {
    let scene = Scene::new();
    let recorded = crash(&scene, &["--path", "--start-at", "report"]);
    let mut agent = Agent::with(&recorded.dir);
    agent.call("back", &json!({"step": "instruction", "count": 2}));
    let stack = agent.call("backtrace", &json!({}));
    let names: Vec<_> =
        stack["frames"].as_array().unwrap().iter().map(|f| &f["function"]).collect();
    // `main` is known by the return to it.
    assert_eq!(names, ["longest_name", "report", "main"]);
    assert_eq!(stack["missing"], "older frames are before the recorded history");
    // With values, the stack is whole.
    agent.call("go", &json!({"position": "end"}));
    let stack = agent.call("backtrace", &json!({}));
    assert_eq!(stack.get("missing"), Some(&Value::Null), "{stack}");
    agent.leave();
}

#[test]
fn a_value_of_an_unknown_size_is_not_watched() {
    let scene = Scene::new();
    let Some(program) = compile(&scene, "gcc", "sizeless.c", &["-O0"]) else { return };
    let (dir, _) = record(&scene, &[], &program);
    let mut agent = Agent::with(&dir);
    agent.call("back", &json!({"until": "main"}));
    let refused = agent.refused("forward", &json!({"watch": "*hidden"}));
    assert!(refused.contains("size of *hidden is unknown"), "{refused}");
    agent.leave();
}

#[test]
fn wrong_requests_get_a_sentence_and_the_server_goes_on() {
    let scene = Scene::new();
    let recorded = crash(&scene, &[]);
    let mut agent = Agent::with(&recorded.dir);
    let here = agent.call("where", &json!({}));
    let wrong = [("open", json!({"recording": "/nowhere"})), ("no_such_tool", json!({}))];
    for (tool, arguments) in &wrong[1..] {
        agent.refused(tool, arguments);
    }
    for (tool, arguments) in [
        ("where", json!({"more": 1})),
        ("go", json!({})),
        ("go", json!({"position": "x"})),
        ("go", json!({"position": "99999999"})),
        ("go", json!({"position": 5})),
        ("back", json!({"until": "nothing"})),
        ("back", json!({"until": "main", "step": "line"})),
        ("back", json!({"when": "1"})),
        ("back", json!({"watch": "main()"})),
        ("back", json!({"watch": "nothing"})),
        ("back", json!({"watch": "$rax"})),
        ("back", json!({"step": "sideways"})),
        ("back", json!({"count": -1})),
        ("print", json!({"expressions": ""})),
        ("print", json!({"expressions": "a", "frame": 99})),
        ("print", json!({"expressions": "a", "thread": 1})),
        ("backtrace", json!({"thread": 1})),
        ("hits", json!({"at": "crash.c"})),
        ("hits", json!({"at": "main", "print": "nothing"})),
        ("hits", json!({"at": "main", "from": "x"})),
        ("calls", json!({"functions": ["nothing"]})),
        ("origin", json!({"expression": "a->owner +"})),
        ("source", json!({"at": "nothing.c:1"})),
        ("source", json!({"at": "crash.c:9999"})),
    ] {
        agent.refused(tool, &arguments);
    }
    // gdb's own functions run commands of the shell.
    let file = scene.path("written");
    let shell = format!("$_shell(\"touch {}\")", file.display());
    let shown = agent.call("print", &json!({"expressions": shell}));
    assert_eq!(shown["values"][0]["value"], Value::Null);
    assert!(shown["values"][0]["error"].is_string() && !file.exists(), "{shown}");
    for damage in ["{", "[1, 2]", "\"text\"", "{\"jsonrpc\": \"2.0\"}", "\u{0}"] {
        agent.write(damage);
    }
    assert_eq!(agent.request("no/such", &json!({}))["error"]["code"], -32601);
    assert_eq!(agent.call("where", &json!({})), here);
    // A recording that cannot be opened leaves none.
    agent.refused("open", &wrong[0].1);
    agent.call("open", &json!({"recording": recorded.dir}));
    // A damaged one is refused, or shown as far as it goes.
    let log = recorded.dir.join("log");
    if let Ok(bytes) = std::fs::read(&log) {
        std::fs::write(&log, &bytes[..bytes.len() / 2]).unwrap();
    }
    let _ = agent.result("open", &json!({"recording": recorded.dir}));
    agent.result("where", &json!({}));
    agent.leave();
}

#[test]
fn a_cancelled_request_ends_and_so_does_a_server_without_a_client() {
    let scene = Scene::new();
    let recorded = recorded(&scene, "fib.c", &[]);
    let mut agent = Agent::with(&recorded.dir);
    let params = json!({"name": "calls", "arguments": {"arguments": true, "skip": 1_000_000_000}});
    let id = agent.send("tools/call", &params);
    let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled",
        "params": {"requestId": id}});
    agent.write(&cancel.to_string());
    assert_eq!(agent.call("where", &json!({}))["ending"], "exited with status 0");
    // It leaves in the middle of an answer.
    agent.send("tools/call", &params);
    agent.leave();
}

/// A session of the official client. Prints the names of the tools, and the line of the writer.
const CLIENT: &str = r#"
import asyncio, sys
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
async def main():
    server = StdioServerParameters(command=sys.argv[1], args=["mcp"])
    async with stdio_client(server) as (read, write), ClientSession(read, write) as session:
        await session.initialize()
        tools = await session.list_tools()
        print(*[tool.name for tool in tools.tools])
        await session.call_tool("open", {"recording": sys.argv[2]})
        found = await session.call_tool("back", {"watch": "a->owner"})
        print(found.content[0].text)
asyncio.run(main())
"#;

#[test]
fn the_official_client_finds_it_too() {
    // A Python with the package `mcp`.
    let python = std::env::var_os("CONTRAFLOW_MCP_PYTHON").unwrap_or_else(|| "python3".into());
    let has = Command::new(&python).args(["-c", "import mcp"]).output();
    if !has.is_ok_and(|output| output.status.success()) {
        let skipped = b"SKIPPED: python3 with the package mcp is not installed\n";
        let _ = std::io::stderr().write_all(skipped);
        return;
    }
    let scene = Scene::new();
    let recorded = crash(&scene, &[]);
    let mut client = Command::new(python);
    client.args(["-c", CLIENT, env!("CARGO_BIN_EXE_contraflow")]).arg(&recorded.dir);
    let output = client.output().expect("python runs");
    let said = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let (tools, found) = said.trim().split_once('\n').unwrap();
    let names = "open where go back forward backtrace print hits calls origin source";
    assert_eq!(tools, names);
    let found: Value = serde_json::from_str(found).unwrap();
    assert_eq!((&found["function"], &found["line"]), (&json!("retire"), &json!(31)));
}
