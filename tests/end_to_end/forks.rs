//! Forks of a live program: what a debugger sees and follows, what goes on by itself, and what
//! becomes of all that when the debugger is gone. More is in the scenarios `fork*` of `tests/gdb`.

use crate::serve::{Client, Live, name, tools};
use crate::support::{Scene, answer, assert_in_order, have, lldb, run_gdb, text};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

const BACKENDS: [&str; 3] = ["exact", "soft", "step"];
const GDB: &str = "qSupported:multiprocess+;swbreak+;qRelocInsn+;fork-events+;vfork-events+";
/// For what takes half a second on an idle machine.
const PATIENCE: Duration = Duration::from_secs(60);

fn backends_and(cases: [&'static str; 2]) -> impl Iterator<Item = (&'static str, &'static str)> {
    BACKENDS.into_iter().flat_map(move |backend| cases.map(|case| (backend, case)))
}

fn gdb(live: &Live, commands: &str) -> String {
    let mut gdb = Command::new("gdb");
    gdb.args(["-nx", "-q", "-batch", "-ex", "set sysroot /", "-ex", "set remotetimeout 60"]);
    run_gdb(gdb, &format!("target extended-remote {}\n{commands}", live.address()))
}

/// What a program prints under gdb, which walks back over the last of it, is what it prints by
/// itself.
fn prints_the_same(backend: &str, command: &[&str]) {
    let native = Command::new(command[0]).args(&command[1..]).output().unwrap();
    let scene = Scene::new();
    let live = Live::start_by(backend, &scene, &["--once"], command);
    let said = gdb(
        &live,
        "handle SIGCHLD nostop noprint pass\ncontinue\nreverse-stepi\nreverse-stepi\n\
         reverse-continue\ncontinue\ncontinue",
    );
    assert!(said.contains("Detaching after"), "{said}");
    let ended = match native.status.code() {
        Some(0) => "exited normally".to_owned(),
        status => format!("exited with code {:02o}", status.unwrap()),
    };
    assert!(answer(&said, "continue", 2).contains(&ended), "{said}");
    assert_eq!(live.end().0, text(&native.stdout));
}

#[test]
fn whatever_a_program_starts_runs_as_ever() {
    if !tools() {
        return;
    }
    let scene = Scene::new();
    let program = scene.compile("starters.c", &["-O1"]);
    for backend in BACKENDS {
        prints_the_same(backend, &[name(&program)]);
    }
    if have("bash") {
        let pipes = "for i in 1 2; do echo $i | cat | tr 1 x; done; echo $(ls / >&2 2>/dev/null; \
                     echo sub); (exit 3); echo $?";
        for backend in ["exact", "soft"] {
            prints_the_same(backend, &["bash", "-c", pipes]);
        }
    }
    let interpreter = Path::new("/usr/bin/python3");
    if interpreter.exists() {
        let calls = "import os, subprocess\n\
                     print(subprocess.check_output(['echo', 'called']).decode(), flush=True)\n\
                     print(subprocess.getoutput('echo piped | tr p P'), flush=True)\n\
                     child = os.fork() or os._exit(4)\n\
                     print(os.waitpid(child, 0)[1], flush=True)";
        for backend in ["exact", "soft"] {
            prints_the_same(backend, &[name(interpreter), "-c", calls]);
        }
    }
}

#[test]
fn threads_that_fork_at_once_are_all_told_of() {
    if !tools() {
        return;
    }
    let scene = Scene::new();
    let program = scene.compile("forkers.c", &["-O1"]);
    for backend in BACKENDS {
        let live = Live::start_by(backend, &scene, &["--once"], &[name(&program)]);
        let said = gdb(
            &live,
            "handle SIGCHLD nostop noprint pass\ncontinue\nreverse-stepi\ncontinue\ncontinue",
        );
        assert_eq!(said.matches("Detaching after fork").count(), 16, "{said}");
        assert_eq!(said.matches("Detaching after vfork").count(), 16, "{said}");
        assert_eq!(live.end(), ("0 wrong\n".to_owned(), Some(0)));
    }
}

#[test]
fn both_are_killed_or_left_where_the_user_says_so() {
    if !tools() {
        return;
    }
    let scene = Scene::new();
    let program = scene.compile("starters.c", &["-O1"]);
    for (backend, how) in backends_and(["fork", "vfork"]) {
        for (last, ends) in [("kill", false), ("detach", true)] {
            let file = scene.path(&format!("{backend}-{how}-{last}"));
            let command = [name(&program), how, name(&file)];
            let live = Live::start_by(backend, &scene, &["--once"], &command);
            let said = gdb(&live, &format!("catch {how}\ncontinue\ninfo breakpoints\n{last}"));
            assert!(said.contains("already hit 1 time"), "{said}");
            assert_eq!(live.status(), Some(0));
            if ends {
                assert!(comes(|| fs::read(&file).is_ok_and(|text| text == b"0\n")), "{said}");
            } else {
                std::thread::sleep(Duration::from_millis(700));
                assert!(!file.exists(), "{said}");
            }
        }
    }
}

/// Waits for what must come.
fn comes(there: impl Fn() -> bool) -> bool {
    let since = Instant::now();
    while !there() {
        if since.elapsed() > PATIENCE {
            return false;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    true
}

/// Whether a process is there, and is no zombie.
fn lives(pid: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().next());
    !matches!(state, None | Some("Z" | "X"))
}

/// The process that a field of a stop reply names.
fn process_in(reply: &str, field: &str) -> String {
    let (_, rest) = reply.split_once(&format!("{field}:p")).unwrap_or_else(|| panic!("{reply}"));
    let (pid, _) = rest.split_once('.').unwrap();
    i64::from_str_radix(pid, 16).unwrap().to_string()
}

#[test]
fn nobody_is_left_behind_by_a_client_that_dies_at_a_fork() {
    if !have("gcc") {
        return;
    }
    let scene = Scene::new();
    let program = scene.compile("starters.c", &["-O1"]);
    for (backend, how) in backends_and(["fork", "vfork"]) {
        for policy in ["kill", "detach", "keep"] {
            let file = scene.path(&format!("{backend}-{how}-{policy}"));
            let command = [name(&program), how, name(&file)];
            let options = ["--on-disconnect", policy];
            let live = Live::start_by(backend, &scene, &options, &command);
            let mut client = Client::connect(live.address());
            assert!(client.ask(GDB).contains(&format!("{how}-events+")));
            let reply = client.ask("vCont;c");
            let (parent, child) = (process_in(&reply, "thread"), process_in(&reply, how));
            assert!(lives(&parent) && lives(&child), "{reply}");
            drop(client);
            let what = format!("{backend} {how} {policy}");
            if policy == "keep" {
                assert!(comes(|| !lives(&child)), "{what}: the child goes on by itself");
                assert!(lives(&parent) && !file.exists(), "{what}");
                let mut next = Client::connect(live.address());
                assert!(next.ask("?").starts_with("T05thread:"), "{what}");
                assert_eq!(next.ask("D"), "OK", "{what}");
            }
            assert_eq!(live.status(), Some(0), "{what}");
            assert!(comes(|| !lives(&child) && !lives(&parent)), "{what}");
            assert_eq!(file.exists(), policy != "kill", "{what}");
        }
    }
}

#[test]
fn lldb_follows_whom_it_is_told_to() {
    let (Some(lldb), true) = (lldb(), have("gcc")) else { return };
    let scene = Scene::new();
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/gdb/forks.c");
    let program = scene.path("forks");
    let gcc = Command::new("gcc").args(["-g", "-O0", source, "-o"]).arg(&program).status();
    assert!(gcc.unwrap().success());
    let parents = ["in_parent", "int) n = 0", "in_parent", "int) n = 12", "reverse", "in_parent"];
    let child = ["in_child(how=1)", "int) n = 0", "reverse", "history boundary"];
    for (backend, mode) in backends_and(["parent", "child"]) {
        let live = Live::start_by(backend, &scene, &["--once"], &[name(&program)]);
        let commands = scene.path("commands");
        let walk = match mode {
            "parent" => {
                "process continue\ntarget variable n\nprocess continue\ntarget variable n\n"
            }
            _ => "process continue\ntarget variable n\n",
        };
        let text_of_commands = format!(
            "script lldb.debugger.SetAsync(False)\n\
             settings set target.process.follow-fork-mode {mode}\n\
             gdb-remote {}\nprocess handle SIGCHLD -s false -n false -p true\n\
             breakpoint set -n in_parent\nbreakpoint set -n in_child\n{}\
             process continue --reverse\nkill\nquit\n",
            live.address(),
            walk,
        );
        fs::write(&commands, text_of_commands).unwrap();
        let mut command = Command::new(lldb);
        command.arg("--no-lldbinit").arg(&program).stdin(fs::File::open(&commands).unwrap());
        let said = text(&command.output().unwrap().stdout);
        let wanted: &[&str] = if mode == "parent" { &parents } else { &child };
        assert_in_order(&said, wanted);
        drop(live);
    }
}
