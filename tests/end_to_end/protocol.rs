//! What gdb and LLDB ask beyond running: the `cf-` commands, programs that they start, system
//! calls that they catch, their own decoders of the trace; on recordings and on live programs.

use crate::serve::{Client, Live, name, tools};
use crate::support::{Scene, answer, assert_in_order, contraflow, have, lldb, run_gdb, text};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

const GDB_SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/gdb-scripts/contraflow.py");
const LLDB_SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/gdb-scripts/contraflow_lldb.py");

/// The position that a `cf-when` or a `cf-seek` tells.
fn position(text: &str) -> u64 {
    let number = text.split("position ").nth(1).and_then(|rest| rest.split(' ').next());
    number.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("{text}"))
}

/// Walks over all commands; the same on a recording and on a live program that stands somewhere.
const TOUR: &str = "cf-find work\ncf-mark here\ncf-seek 50%\ncf-history 2\ncf-when\ncf-seek here\n\
                    cf-when\ncf-seek start\ncf-when\ncf-seek +100\ncf-when\ncf-seek 1ns\n\
                    cf-find live.c:18\ncf-marks\ncf-stats\ncf-gaps\ncomplete cf-seek he\n\
                    cf-unmark here\ncf-seek here\ncf-seek end\ncf-when\nfind /b1 &counter, +64, 1, 2\n\
                    help cf-history";

fn check_tour(said: &str, works: usize) {
    let found = answer(said, "cf-find work", 0);
    assert_eq!(found.matches(": work at live.c:14").count(), works, "{said}");
    assert!(answer(said, "cf-when", 0).contains("UTC, "), "{said}");
    let half = answer(said, "cf-seek 50%", 0);
    assert!(half.contains("% of the history"), "{said}");
    assert_eq!(position(half), position(answer(said, "cf-when", 0)), "{said}");
    let around = answer(said, "cf-history 2", 0);
    assert!(around.lines().any(|line| line.contains("  => ")), "{said}");
    assert_eq!(around.lines().count(), 5, "{said}");
    let here = answer(said, "cf-mark here", 0);
    assert!(
        here.ends_with(&format!("position {}", position(answer(said, "cf-when", 1)))),
        "{said}"
    );
    assert_eq!(position(answer(said, "cf-when", 2)), 0, "{said}");
    assert_eq!(position(answer(said, "cf-when", 3)), 100, "{said}");
    assert!(answer(said, "cf-seek 1ns", 0).contains("position 0 of"), "{said}");
    // The last call may not have come there yet.
    let hits = answer(said, "cf-find live.c:18", 0).lines().count();
    assert!((works..=works + 1).contains(&hits), "{said}");
    assert!(answer(said, "cf-stats", 0).contains("bits an instruction"), "{said}");
    assert!(answer(said, "cf-gaps", 0).contains("no gaps"), "{said}");
    assert!(answer(said, "complete cf-seek he", 0).ends_with("cf-seek here"), "{said}");
    assert!(answer(said, "cf-seek here", 1).contains("No symbol \"here\""), "{said}");
    assert!(answer(said, "help cf-history", 0).contains("Usage: cf-history [N]"), "{said}");
}

#[test]
fn the_commands_of_gdb_on_a_recording() {
    if !tools() {
        return;
    }
    let scene = Scene::new();
    let program = scene.compile("live.c", &["-O0"]);
    let (dir, _) = crate::comparison::record(&scene, "soft", &[], &[name(&program)]);
    let mut replay = contraflow();
    replay.arg("replay").arg(&dir).args(["--", "-nx", "-batch"]);
    let said = run_gdb(replay, TOUR);
    check_tour(&said, 5);
    assert!(answer(&said, "cf-when", 4).contains("the end: exited with status 3"), "{said}");
}

#[test]
fn the_commands_of_gdb_on_a_live_program() {
    if !tools() {
        return;
    }
    let scene = Scene::new();
    let program = scene.compile("live.c", &["-O0"]);
    let live = Live::start(&scene, &[], &[name(&program)]);
    let said = live.gdb(&program, &format!("break work\ncontinue\ncontinue\ncontinue\n{TOUR}"));
    check_tour(&said, 3);
    assert!(answer(&said, "cf-when", 4).contains("still running"), "{said}");
    let found = answer(&said, "find /b1 &counter, +64, 1, 2", 0);
    assert!(found.contains("<counter>") || found.contains("not found"), "{said}");
    assert_eq!(live.end().1, Some(0));
}

#[test]
fn gdb_starts_a_server_and_a_program_by_itself() {
    if !tools() {
        return;
    }
    let scene = Scene::new();
    let program = scene.compile("live.c", &["-O0"]);
    let mut gdb = Command::new("gdb");
    gdb.args(["-nx", "-q", "-batch", "-ex", "set sysroot /", "-ex", "set remotetimeout 60"]);
    gdb.arg(&program).env("CONTRAFLOW_HOME", scene.path("store"));
    let server = env!("CARGO_BIN_EXE_contraflow");
    let connect = format!("target remote | exec {server} serve --stdio -- {}", name(&program));
    let commands = "break work\ncontinue\ncontinue\nprint n\nreverse-continue\nbt\ndelete\n\
                    handle SIGUSR1 nostop\ncontinue\ncontinue\ncontinue";
    let said = run_gdb(gdb, &format!("source {GDB_SCRIPT}\n{connect}\n{commands}"));
    assert!(answer(&said, "print n", 0).ends_with("= 1"), "{said}");
    assert_in_order(answer(&said, "bt", 0), &["#0  work", "in main"]);
    // What the program prints is apart from the protocol.
    assert!(said.contains("total 35 counter 105"), "{said}");
    assert!(said.contains("exited with code 03"), "{said}");
}

/// Characters that the protocol reserves are readable in an error's text, and end no packet.
#[test]
fn errors_of_any_text_are_whole() {
    let scene = Scene::new();
    let live = Live::start(&scene, &[], &[]);
    let mut client = Client::connect(live.address());
    let encoded = |text: &str| {
        let digits = text.bytes().map(|byte| format!("{byte:02x}"));
        digits.collect::<Vec<_>>().concat()
    };
    let directory = format!("QSetWorkingDir:{}", encoded("/no#such$*dir}"));
    assert_eq!(client.ask(&directory), "OK");
    let reply = client.ask(&format!("vRun;{}", encoded("/bin/true")));
    assert_eq!(reply, "E./no\\x23such\\x24\\x2adir\\x7d is no directory to run in");
    assert_eq!(client.ask("!"), "OK");
}

#[test]
fn gdb_runs_programs_one_after_the_other_and_attaches() {
    if !tools() || !have("sleep") {
        return;
    }
    let scene = Scene::new();
    let program = scene.compile("live.c", &["-O0"]);
    let mut sleeper = Command::new("sleep").arg("1000").stdout(Stdio::null()).spawn().unwrap();
    let live = Live::start(&scene, &[], &[]);
    let attach = format!("attach {}", sleeper.id());
    let directory = std::fs::canonicalize(scene.path("")).unwrap();
    let commands = format!(
        "break work\nset env COLOUR=green\nunset env HOME\nset cwd {}\nrun\nbt\n\
         print (char *) getenv(\"COLOUR\")\nprint (char *) getenv(\"HOME\")\n\
         print (char *) get_current_dir_name()\n\
         continue\nreverse-continue\ncf-when\nkill\nrun one \"two three\"\nup\nprint argc\nprint argv[2]\n\
         delete\nhandle SIGUSR1 nostop\ncontinue\nkill\n{attach}\nreverse-stepi\ninfo threads\ndetach\n\
         set remote exec-file /nonexistent\nrun",
        directory.display()
    );
    let connect = format!("target extended-remote {}", live.address);
    let mut gdb = Command::new("gdb");
    gdb.args(["-nx", "-q", "-batch", "-ex", "set sysroot /", "-ex", "set remotetimeout 60"]);
    gdb.arg(&program);
    let program = name(&program);
    let said = run_gdb(
        gdb,
        &format!("source {GDB_SCRIPT}\n{connect}\nset remote exec-file {program}\n{commands}"),
    );
    assert_in_order(answer(&said, "bt", 0), &["#0  work (n=0)", "in main"]);
    let printed = |what: &str| answer(&said, &format!("print {what}"), 0).to_owned();
    assert!(printed("(char *) getenv(\"COLOUR\")").ends_with("\"green\""), "{said}");
    assert!(printed("(char *) getenv(\"HOME\")").ends_with("= 0x0"), "{said}");
    assert!(printed("(char *) get_current_dir_name()").contains(name(&directory)), "{said}");
    assert!(answer(&said, "reverse-continue", 0).contains("Breakpoint 1, work"), "{said}");
    assert!(printed("argc").ends_with("= 3"), "{said}");
    assert!(printed("argv[2]").ends_with("\"two three\""), "{said}");
    assert!(answer(&said, "continue", 1).contains("SIGSEGV"), "{said}");
    assert!(answer(&said, &attach, 0).contains("sleep"), "{said}");
    assert!(answer(&said, "reverse-stepi", 0).contains("0x"), "{said}");
    assert!(answer(&said, "info threads", 0).contains("\"sleep\""), "{said}");
    assert!(answer(&said, "run", 1).contains("/nonexistent"), "{said}");
    assert_eq!(live.end().1, Some(0));
    assert!(sleeper.try_wait().unwrap().is_none(), "it was left");
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
}

#[test]
fn gdb_catches_system_calls() {
    if !tools() {
        return;
    }
    let scene = Scene::new();
    let program = scene.compile("live.c", &["-O0"]);
    let live = Live::start(&scene, &[], &[name(&program)]);
    let said = live.gdb(
        &program,
        "handle SIGUSR1 nostop\ncatch syscall write\ncontinue\nprint $rax\nreverse-stepi\nstepi\n\
         continue\nprint $rax\ndelete\ncatch syscall\ncontinue\ndelete\ncontinue\ncontinue",
    );
    assert!(answer(&said, "continue", 0).contains("(call to syscall write)"), "{said}");
    assert!(answer(&said, "print $rax", 0).ends_with("= 1"), "{said}");
    assert!(answer(&said, "continue", 1).contains("(returned from syscall write)"), "{said}");
    assert!(answer(&said, "print $rax", 1).ends_with("= 21"), "{said}");
    assert!(answer(&said, "continue", 2).contains("(call to syscall exit_group)"), "{said}");
    assert!(said.contains("exited with code 03"), "{said}");
    assert_eq!(live.end(), ("total 35 counter 105\n".to_owned(), Some(0)));
}

#[test]
fn gdb_decodes_the_trace_from_the_middle_and_live() {
    if !tools() || !crate::btrace::gdb_has_libipt() {
        return;
    }
    let scene = Scene::new();
    let program = scene.compile("live.c", &["-O0", "-static"]);
    let live = Live::start(&scene, &[], &[name(&program)]);
    let said = live.gdb(
        &program,
        "break work\ncontinue\ncontinue\ncompare-sections .text\nfind /b &main, +2000, 0x55, 0x48\n\
         record btrace pt\nnext\nnext\nrecord instruction-history\n\
         record stop\nreverse-continue\nnext\nrecord btrace pt\nrecord instruction-history\n\
         record function-call-history /ilc\nrecord stop\nreverse-stepi\ncf-seek end",
    );
    assert!(answer(&said, "compare-sections .text", 0).ends_with(": matched."), "{said}");
    assert!(answer(&said, "find /b &main, +2000, 0x55, 0x48", 0).contains("<main>"), "{said}");
    for nth in 0..2 {
        let listed = answer(&said, "record instruction-history", nth);
        assert!(listed.contains("<work+"), "{said}");
        assert!(!listed.contains("error"), "{said}");
    }
    // The first begins where it was asked for; the second one, in the past, at the program's beginning.
    let listed = |nth| answer(&said, "record instruction-history", nth).lines();
    assert!(listed(0).next().unwrap().starts_with("1\t"), "{said}");
    assert!(listed(0).next().unwrap().contains("<work+"), "{said}");
    assert!(!listed(1).next().unwrap().starts_with("1\t"), "{said}");
    assert!(listed(1).last().unwrap().contains("<work+"), "{said}");
    assert!(answer(&said, "record function-call-history /ilc", 0).contains("main"), "{said}");
    assert_eq!(live.end().1, Some(0));
}

/// gdb as editors drive it.
struct Mi {
    gdb: Child,
    says: BufReader<ChildStdout>,
}

impl Mi {
    fn start() -> Self {
        let mut gdb = Command::new("gdb");
        gdb.args(["-nx", "-q", "-i=mi2", "-ex", "set sysroot /", "-ex", "set remotetimeout 60"]);
        gdb.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut gdb = gdb.spawn().expect("gdb runs");
        let says = BufReader::new(gdb.stdout.take().unwrap());
        Self { gdb, says }
    }

    /// What gdb says up to a line that begins so.
    fn ask(&mut self, command: &str, until: &str) -> String {
        writeln!(self.gdb.stdin.as_mut().unwrap(), "{command}").unwrap();
        let mut said = String::new();
        loop {
            let mut line = String::new();
            let count = self.says.read_line(&mut line).unwrap();
            assert!(count > 0 && !line.starts_with("^error"), "{command}: {said}{line}");
            said.push_str(&line);
            if line.starts_with(until) {
                return said;
            }
        }
    }

    fn go(&mut self, command: &str) -> String {
        self.ask(command, "*stopped")
    }
}

impl Drop for Mi {
    fn drop(&mut self) {
        // It may have gone by itself.
        let _ = self.gdb.kill();
        let _ = self.gdb.wait();
    }
}

/// The commands that Native Debug and other users of gdb/MI send, and in their way.
#[test]
fn the_sequence_of_editors_that_speak_mi() {
    if !tools() {
        return;
    }
    let scene = Scene::new();
    let program = scene.compile("live.c", &["-O0"]);
    let live = Live::start(&scene, &[], &[name(&program)]);
    let mut gdb = Mi::start();
    gdb.ask("-gdb-set mi-async on", "^done");
    gdb.ask(&format!("-file-exec-and-symbols {}", name(&program)), "^done");
    gdb.ask(&format!("-interpreter-exec console \"source {GDB_SCRIPT}\""), "^done");
    gdb.ask(&format!("-target-select remote {}", live.address), "^connected");
    gdb.ask("-break-insert -f live.c:18", "^done");
    assert!(gdb.go("-exec-continue").contains("reason=\"breakpoint-hit\""));
    assert!(gdb.go("-exec-continue").contains("line=\"18\""));
    assert!(gdb.ask("-thread-info", "^done").contains("name=\"live\""));
    let stack = gdb.ask("-stack-list-frames --thread 1", "^done");
    assert_in_order(&stack, &["func=\"work\"", "func=\"main\""]);
    assert!(gdb.go("-exec-step --reverse").contains("func=\"work\""));
    assert!(gdb.go("-exec-finish --reverse").contains("func=\"main\""));
    assert!(gdb.go("-exec-next --reverse").contains("func=\"main\""));
    assert!(gdb.go("-exec-continue --reverse").contains("stopped"));
    let told = gdb.go("-exec-continue --reverse") + &gdb.go("-exec-continue");
    assert!(told.contains("No more reverse-execution history"), "{told}");
    let when = gdb.ask("-interpreter-exec console \"cf-when\"", "^done");
    assert!(when.contains("position "), "{when}");
    gdb.ask("-target-detach", "^done");
    drop(gdb);
    assert_eq!(live.end(), ("total 35 counter 105\n".to_owned(), Some(0)));
}

/// What LLDB prints for commands, a line each.
fn run_lldb(scene: &Scene, lldb: &str, program: &Path, commands: &str) -> String {
    let file = scene.path("commands");
    let first = format!(
        "command script import {LLDB_SCRIPT}\nscript lldb.debugger.SetAsync(False)\n\
         settings set use-color false\n"
    );
    std::fs::write(&file, first + commands + "\nquit\n").unwrap();
    let mut command = Command::new(lldb);
    // In batch mode it leaves where the history ends.
    command.arg("--no-lldbinit").arg(program).stdin(std::fs::File::open(&file).unwrap());
    text(&command.env_remove("DEBUGINFOD_URLS").output().unwrap().stdout)
}

/// What stands behind a command in what LLDB prints.
fn lldb_answer<'a>(said: &'a str, command: &str, nth: usize) -> &'a str {
    let rest = said.split(&format!("(lldb) {command}\n")).nth(nth + 1);
    let rest = rest.unwrap_or_else(|| panic!("{command:?} is not in:\n{said}"));
    rest.split("(lldb) ").next().unwrap().trim()
}

const LLDB_TOUR: &str = "cf-when\nthread list\ncf-mark here\nmemory region $pc\ncf-find work\n\
                         cf-history 1\ncf-seek 50%\ncf-when\nregister read rip\ncf-seek here\ncf-when\n\
                         thread trace start\nthread trace dump instructions -c 2 -r\n\
                         breakpoint set -n work\nprocess handle SIGUSR1 -s false -n false -p true\n\
                         process continue --reverse\nbt\n\
                         thread trace dump instructions -c 1 -r\nthread trace dump function-calls\n\
                         cf-stats\ncf-marks\ncf-unmark here\ncf-seek here";

fn check_lldb_tour(said: &str, works: usize, decodes: bool) {
    let here = position(lldb_answer(said, "cf-when", 0));
    assert!(
        lldb_answer(said, "cf-find work", 0).contains(&format!("{works} hits of work")),
        "{said}"
    );
    assert!(lldb_answer(said, "memory region $pc", 0).contains("r-x"), "{said}");
    let half = position(lldb_answer(said, "cf-when", 1));
    assert_eq!(position(lldb_answer(said, "cf-seek 50%", 0)), half, "{said}");
    assert!(half < here && half > 0, "{said}");
    assert_eq!(position(lldb_answer(said, "cf-when", 2)), here, "{said}");
    let stopped = lldb_answer(said, "process continue --reverse", 0);
    assert!(stopped.contains("stop reason = breakpoint 1.1"), "{said}");
    assert!(lldb_answer(said, "bt", 0).contains("`work"), "{said}");
    assert!(lldb_answer(said, "cf-marks", 0).contains("here: position"), "{said}");
    assert!(lldb_answer(said, "cf-stats", 0).contains("bits an instruction"), "{said}");
    if decodes {
        // LLDB's breakpoint is behind the first instructions of the function.
        let shown = lldb_answer(said, "thread trace dump instructions -c 1 -r", 0);
        assert!(shown.contains("0x"), "{said}");
        let calls = lldb_answer(said, "thread trace dump function-calls", 0);
        assert!(calls.contains("`work") && calls.contains("`main"), "{said}");
    }
}

fn lldb_decodes(lldb: &str) -> bool {
    let schema = Command::new(lldb).args(["-b", "-o", "trace schema intel-pt"]).output();
    schema.is_ok_and(|output| text(&output.stdout).contains("iptTrace"))
}

#[test]
fn the_commands_of_lldb_on_a_recording() {
    let (Some(lldb), true) = (lldb(), have("gcc")) else { return };
    let scene = Scene::new();
    let program = scene.compile("live.c", &["-O0", "-static"]);
    let (dir, _) = crate::comparison::record(&scene, "soft", &[], &[name(&program)]);
    let server = crate::serve::Live::replay(&dir);
    let commands = format!("gdb-remote {}\n{LLDB_TOUR}", server.address);
    let said = run_lldb(&scene, lldb, &program, &commands);
    check_lldb_tour(&said, 5, lldb_decodes(lldb));
    assert!(lldb_answer(&said, "cf-when", 0).contains("exited with status 3"), "{said}");
}

#[test]
fn the_commands_of_lldb_on_a_live_program() {
    let (Some(lldb), true) = (lldb(), have("gcc")) else { return };
    let scene = Scene::new();
    let program = scene.compile("live.c", &["-O0", "-static"]);
    let live = Live::start(&scene, &[], &[name(&program)]);
    let commands = format!(
        "gdb-remote {}\nbreakpoint set -l 18\nprocess continue\nprocess continue\n\
         expression -- (int) work(4)\nexpression -- sum + n\nbreakpoint delete -f\n{LLDB_TOUR}",
        live.address
    );
    let said = run_lldb(&scene, lldb, &program, &commands);
    assert!(lldb_answer(&said, "expression -- (int) work(4)", 0).ends_with("= 24"), "{said}");
    assert!(lldb_answer(&said, "expression -- sum + n", 0).ends_with("= 1"), "{said}");
    let said = said.replace("breakpoint 2.1", "breakpoint 1.1");
    check_lldb_tour(&said, 3, lldb_decodes(lldb));
    assert_eq!(live.end().1, Some(0));
}
