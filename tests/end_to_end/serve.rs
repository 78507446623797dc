//! A live program under real debuggers: forward, backwards from any stop, and on.

use crate::comparison::{path_of, record};
use crate::support::{Scene, answer, assert_in_order, contraflow, have, lldb, run_gdb, text};
use std::cell::Cell;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

thread_local! {
    /// What captures the programs of a test.
    static BACKEND: Cell<&'static str> = const { Cell::new("soft") };
}

/// The tests, of programs that are captured in another way.
macro_rules! also {
    ($name:ident by $backend:literal: $($test:ident)*) => {
        mod $name {
            $(
                #[test]
                fn $test() {
                    super::BACKEND.set($backend);
                    super::$test();
                }
            )*
        }
    };
}

also! { exactly by "exact":
    signals_come_when_the_debugger_lets_them
    watchpoints_are_of_all_threads
    more_watchpoints_than_the_cpu_has
    the_end_of_watched_memory_is_no_write
    a_program_that_was_watched_is_left
    a_program_that_is_left_gets_the_signal_at_which_it_stopped
    signals_that_are_ignored_are_told
    threads_stop_together_and_none_is_lost
    signals_of_several_threads_at_once_all_come
    another_program_is_executed
    a_client_that_kills_and_one_that_hangs_up
    a_program_ends_without_a_stop
}

also! { stepped by "step":
    it_goes_back_from_a_stop_and_on_again
    what_a_debugger_does_leaves_the_path_as_it_is
    signals_come_when_the_debugger_lets_them
    watchpoints_stop_behind_the_access
    watchpoints_are_of_all_threads
    a_program_that_was_watched_is_left
    signals_that_are_ignored_are_told
    threads_stop_together_and_none_is_lost
    signals_of_several_threads_at_once_all_come
    another_program_is_executed
    a_client_that_kills_and_one_that_hangs_up
    lldb_goes_back_from_a_live_stop
}

/// A server with a program, both of which end with the test.
pub(crate) struct Live {
    server: Child,
    pub(crate) address: String,
    says: BufReader<std::process::ChildStderr>,
}

impl Live {
    pub(crate) fn start(scene: &Scene, options: &[&str], command: &[&str]) -> Self {
        Self::start_by(BACKEND.get(), scene, &[&["--once"], options].concat(), command)
    }

    pub(crate) fn start_by(
        backend: &str,
        scene: &Scene,
        options: &[&str],
        command: &[&str],
    ) -> Self {
        let mut serve = contraflow();
        serve.env("CONTRAFLOW_HOME", scene.path("store"));
        serve.args(["serve", ":0"]).args(options);
        if backend != "exact" {
            serve.args(["--backend", backend]);
        }
        if !command.is_empty() {
            serve.arg("--").args(command);
        }
        Self::listening(serve)
    }

    /// A recording instead of a program.
    pub(crate) fn replay(recording: &Path) -> Self {
        let mut replay = contraflow();
        replay.args(["replay", "--listen", ":0", "--once"]).arg(recording);
        Self::listening(replay)
    }

    pub(crate) fn listening(mut serve: Command) -> Self {
        serve.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut server = serve.spawn().expect("contraflow runs");
        let mut says = BufReader::new(server.stderr.take().unwrap());
        let mut line = String::new();
        says.read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("contraflow: listening on ");
        let address = address.unwrap_or_else(|| panic!("{line}")).to_owned();
        Self { server, address, says }
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// What gdb prints for these commands, typed after it connected.
    pub(crate) fn gdb(&self, program: &Path, commands: &str) -> String {
        let mut gdb = Command::new("gdb");
        gdb.args(["-nx", "-q", "-batch", "-ex", "set sysroot /", "-ex", "set remotetimeout 60"])
            .arg(program);
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/gdb-scripts/contraflow.py");
        let connect = format!("source {script}\ntarget remote {}\n", self.address);
        run_gdb(gdb, &(connect + commands))
    }

    /// The server's status, after it has ended; the program may live on.
    pub(crate) fn status(mut self) -> Option<i32> {
        self.server.wait().unwrap().code()
    }

    /// What the program printed, and the server's status, after it has ended.
    pub(crate) fn end(mut self) -> (String, Option<i32>) {
        let mut printed = Vec::new();
        self.server.stdout.take().unwrap().read_to_end(&mut printed).unwrap();
        let mut rest = String::new();
        self.says.read_to_string(&mut rest).unwrap();
        assert!(!rest.contains("contraflow: ") || rest.contains("recorded in"), "{rest}");
        (text(&printed), self.server.wait().unwrap().code())
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        // Where the test has failed.
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

pub(crate) fn tools() -> bool {
    have("gcc") && have("gdb")
}

pub(crate) fn name(program: &Path) -> &str {
    program.to_str().unwrap()
}

#[test]
fn it_goes_back_from_a_stop_and_on_again() {
    if !tools() {
        return;
    }
    let scene = Scene::new();
    let program = scene.compile("live.c", &["-O0"]);
    let live = Live::start(&scene, &[], &[name(&program)]);
    let said = live.gdb(
        &program,
        "break work\ncontinue\nbt\ncontinue\ncontinue\nprint n\nnext\nnext\nnext\nreverse-next\n\
         reverse-continue\nprint n\nset var counter = 7\nbt\nreverse-continue\nreverse-continue\n\
         reverse-continue\ncontinue\ncontinue\ncontinue\nmonitor when\ncontinue\ncontinue\nprint n\ndelete\n\
         finish",
    );
    assert!(answer(&said, "bt", 0).contains("#1  0x"), "{said}");
    assert!(answer(&said, "print n", 0).ends_with("= 2"), "{said}");
    assert!(answer(&said, "reverse-next", 0).contains("sum += i * n"), "{said}");
    assert!(answer(&said, "reverse-continue", 0).contains("Breakpoint 1, work"), "{said}");
    assert!(answer(&said, "print n", 1).contains("Cannot access memory"), "{said}");
    let refused = answer(&said, "set var counter = 7", 0);
    assert!(refused.contains("Cannot access memory"), "{said}");
    // In the past the rest of the frames is there by the path alone.
    assert_in_order(answer(&said, "bt", 1), &["#0  work", "#1  0x", "in main"]);
    assert!(answer(&said, "reverse-continue", 3).contains("No more reverse-execution"), "{said}");
    // Forward through what was captured, to now, and on.
    assert!(answer(&said, "continue", 3).contains("Breakpoint 1, work"), "{said}");
    assert!(answer(&said, "print n", 2).ends_with("= 3"), "{said}");
    assert!(answer(&said, "finish", 0).contains("Value returned is $"), "{said}");
    // gdb left it, and it went on.
    assert_eq!(live.end(), ("total 35 counter 105\n".to_owned(), Some(0)));
}

#[test]
fn what_a_debugger_does_leaves_the_path_as_it_is() {
    if !tools() {
        return;
    }
    let scene = Scene::new();
    let program = scene.compile("live.c", &["-O1", "-static"]);
    let saved = scene.path("saved");
    let live = Live::start(&scene, &["--save", name(&saved)], &[name(&program)]);
    let said = live.gdb(
        &program,
        "break main\ncontinue\nstepi 40\nnext\nnext\nreverse-stepi\nreverse-next\ncontinue\n\
         continue\nbreak work\ncontinue\nfinish\nstepi\nstepi\nreverse-continue\nmonitor seek end\n\
         step\nstep\ncontinue\ncontinue\ncontinue\ncontinue\nbt\nreverse-stepi\ncontinue\n\
         stepi\nstepi\nhandle SIGUSR1 pass nostop\ncontinue\ncontinue\ncontinue\ncontinue",
    );
    assert!(said.contains("exited with code 03"), "{said}");
    assert_eq!(live.end(), ("total 35 counter 105\n".to_owned(), Some(0)));
    let (stepped, _) = record(&scene, "step", &[], &[name(&program)]);
    let (live, stepped) = (path_of(&saved).unwrap(), path_of(&stepped).unwrap());
    let differs = live.iter().zip(&stepped).position(|(a, b)| a != b);
    assert_eq!((differs, live.len()), (None, stepped.len()));
}

#[test]
fn signals_come_when_the_debugger_lets_them() {
    if !tools() {
        return;
    }
    let scene = Scene::new();
    let program = scene.compile("live.c", &["-O0"]);
    let live = Live::start(&scene, &[], &[name(&program), "crash"]);
    let said = live.gdb(
        &program,
        "continue\nprint $_siginfo.si_signo\nreverse-stepi\nreverse-stepi\ncontinue\ncontinue\n\
         print counter\nbt\nup\nprint work(4)\nprint counter\nset var counter = 1000\nprint counter\n\
         set var $xmm7.uint128 = 77\nset var $st0 = 1.5\nset var $r15 = 9\nprint $r15\n\
         print $xmm7.uint128\nprint $st0\nprint $r15 + 1\ncontinue\ncontinue",
    );
    assert!(answer(&said, "continue", 0).contains("Program received signal SIGUSR1"), "{said}");
    assert!(answer(&said, "print $_siginfo.si_signo", 0).ends_with("= 10"), "{said}");
    // Back at the live end the signal still waits.
    assert!(answer(&said, "continue", 1).contains("Program received signal SIGUSR1"), "{said}");
    assert!(answer(&said, "continue", 2).contains("Program received signal SIGSEGV"), "{said}");
    assert!(answer(&said, "print counter", 0).ends_with("= 105"), "{said}");
    assert!(answer(&said, "print work(4)", 0).ends_with("= 24"), "{said}");
    assert!(answer(&said, "print counter", 1).ends_with("= 106"), "{said}");
    assert!(answer(&said, "print counter", 2).ends_with("= 1000"), "{said}");
    assert!(answer(&said, "print $r15", 0).ends_with("= 9"), "{said}");
    assert!(answer(&said, "print $xmm7.uint128", 0).ends_with("= 77"), "{said}");
    assert!(answer(&said, "print $st0", 0).ends_with("= 1.5"), "{said}");
    // At its end it can still be looked at, and is gone after that.
    assert!(answer(&said, "continue", 3).contains("No more reverse-execution"), "{said}");
    assert!(answer(&said, "continue", 4).contains("terminated with signal SIGSEGV"), "{said}");
    assert_eq!(live.end(), ("total 35 counter 105\n".to_owned(), Some(0)));
}

#[test]
fn signals_that_are_ignored_are_told() {
    if !tools() {
        return;
    }
    let scene = Scene::new();
    let shell = Path::new("/bin/sh");
    let script = "trap '' USR1; kill -USR1 $$; kill -WINCH $$; echo on";
    let live = Live::start(&scene, &[], &[name(shell), "-c", script]);
    let said =
        live.gdb(shell, "handle SIGWINCH stop print\ncontinue\ncontinue\ncontinue\ncontinue");
    assert!(answer(&said, "continue", 0).contains("received signal SIGUSR1"), "{said}");
    assert!(answer(&said, "continue", 1).contains("received signal SIGWINCH"), "{said}");
    assert!(said.contains("exited normally"), "{said}");
    assert_eq!(live.end(), ("on\n".to_owned(), Some(0)));
}

#[test]
fn watchpoints_stop_behind_the_access() {
    if !tools() {
        return;
    }
    let scene = Scene::new();
    let program = scene.compile("live.c", &["-O1"]);
    let live = Live::start(&scene, &[], &[name(&program)]);
    let said = live.gdb(
        &program,
        "handle SIGUSR1 nostop noprint\nbreak main\ncontinue\nwatch counter\ncontinue\ncontinue\n\
         stepi\nreverse-stepi\nbt 1\ndelete 2\nreverse-stepi\ncontinue\n\
         awatch *(char (*)[3]) ((char *) &counter + 1)\ncontinue\ndelete\nwatch counter if counter > 100\n\
         continue\nprint counter\ndelete\ncontinue\ncontinue",
    );
    for (nth, value) in [(1, 1), (2, 2)] {
        let text = answer(&said, "continue", nth);
        let wanted = ["Hardware watchpoint 2: counter", &format!("New value = {value}")];
        assert_in_order(text, &wanted);
        assert!(text.contains("work (n="), "{said}");
    }
    // What was written before cannot be told.
    assert!(
        answer(&said, "reverse-stepi", 0).contains("watchpoints cannot be checked in the past"),
        "{said}"
    );
    assert!(answer(&said, "reverse-stepi", 1).contains("return sum"), "{said}");
    assert!(answer(&said, "continue", 3).contains("No more reverse-execution"), "{said}");
    assert!(answer(&said, "continue", 4).contains("access (read/write) watchpoint 3"), "{said}");
    assert!(answer(&said, "continue", 5).contains("New value = 105"), "{said}");
    assert!(said.contains("exited with code 03"), "{said}");
    assert_eq!(live.end(), ("total 35 counter 105\n".to_owned(), Some(0)));
}

#[test]
fn more_watchpoints_than_the_cpu_has() {
    if !tools() {
        return;
    }
    let scene = Scene::new();
    let program = scene.compile("watched.c", &["-O0"]);
    let live = Live::start(&scene, &[], &[name(&program)]);
    let said = live.gdb(
        &program,
        "break main\ncontinue\nwatch a\nwatch b\nwatch c\nwatch d\nwatch e\nwatch f\n\
         watch *(char (*)[40]) &table[1]\ncontinue\ncontinue\ncontinue\ncontinue\ncontinue\n\
         continue\ncontinue\nbt 2\ncontinue\nprint table[3]\nawatch total\nawatch other\n\
         awatch more\nawatch yet\nawatch last\ncontinue\ncontinue\ncontinue\ncontinue\n\
         continue\ndelete\ncontinue\ncontinue",
    );
    for (nth, watched) in ["a", "b", "c", "d", "e", "f"].iter().enumerate() {
        let text = answer(&said, "continue", nth + 1);
        assert_in_order(
            text,
            &[&format!("Hardware watchpoint {}: {watched}", nth + 2), "New value = "],
        );
    }
    // A thread wrote it, while the first one waited for its end.
    assert!(answer(&said, "continue", 7).contains("watchpoint 8"), "{said}");
    assert!(answer(&said, "bt 2", 0).contains("fill"), "{said}");
    assert!(answer(&said, "continue", 8).contains("watchpoint 8"), "{said}");
    // The last is none of the CPU's.
    for (nth, read) in ["total", "other", "more", "yet", "last"].iter().enumerate() {
        let watchpoint = format!("Hardware access (read/write) watchpoint {}: {read}", nth + 9);
        assert_in_order(answer(&said, "continue", nth + 9), &[&watchpoint, "Value = 0"]);
    }
    assert!(said.contains("exited normally"), "{said}");
    assert_eq!(live.end(), ("done 6\n".to_owned(), Some(0)));
}

/// A call that a signal interrupts writes its memory before the signal is reported.
#[test]
fn a_signal_that_comes_with_a_write_is_not_lost() {
    if !tools() {
        return;
    }
    let scene = Scene::new();
    let program = scene.compile("select_interrupted.c", &["-O0"]);
    let live = Live::start(&scene, &[], &[name(&program)]);
    let said = live.gdb(
        &program,
        "break wait_for_signal\ncontinue\nwatch left\ncontinue\ncontinue\ndelete\ncontinue",
    );
    assert!(answer(&said, "continue", 1).contains("watchpoint 2: left"), "{said}");
    assert!(answer(&said, "continue", 2).contains("received signal SIGUSR1"), "{said}");
    assert_eq!(live.end(), ("handled 1\n".to_owned(), Some(0)), "{said}");
}

/// The memory is too large for the CPU's debug registers, and goes with the program at its exit and its exec.
#[test]
fn the_end_of_watched_memory_is_no_write() {
    if !tools() {
        return;
    }
    let scene = Scene::new();
    let program = scene.compile("live.c", &["-O0"]);
    // Few instructions before the end, since each is a step.
    let watch = |before: &str| {
        format!(
            "handle SIGUSR1 nostop noprint\ntbreak main\ncontinue\ntbreak {before}\ncontinue\n\
             watch *(char (*)[256]) main\n"
        )
    };
    for (options, end) in [(&["--no-stop-at-end"][..], 2), (&[], 3)] {
        let live = Live::start(&scene, options, &[name(&program)]);
        let rest = "continue\ncontinue\nprint $_exitcode";
        let said = live.gdb(&program, &(watch("_exit") + rest));
        assert!(answer(&said, "continue", end).contains("exited with code 03"), "{said}");
        assert!(answer(&said, "print $_exitcode", 0).ends_with("= 3"), "{said}");
    }
    let command = [name(&program), "then", "/bin/echo", "other"];
    let live = Live::start(&scene, &[], &command);
    let rest = "catch exec\ncontinue\nkill";
    let said = live.gdb(&program, &(watch("execv") + rest));
    assert!(answer(&said, "continue", 2).contains("is executing new program"), "{said}");
    assert_eq!(live.end(), ("total 35 counter 105\n".to_owned(), Some(0)));
}

#[test]
fn conditions_are_looked_at_by_the_server() {
    if !tools() {
        return;
    }
    let scene = Scene::new();
    let program = scene.compile("adders.c", &["-O1"]);
    let live = Live::start(&scene, &[], &[name(&program)]);
    let said = live.gdb(
        &program,
        "break add if n == 3 && total > 100\ncontinue\nprint n\nprint total > 100\n\
         maintenance info breakpoints\nreverse-continue\ncf-seek end\ndelete\n\
         break add if total * 2 / 3 % 7 == 5 && (total & ~1) != 0\ncontinue\n\
         print total * 2 / 3 % 7\ndelete\ncontinue\nprint total\ncontinue",
    );
    assert!(answer(&said, "continue", 0).contains("Breakpoint 1, add (n="), "{said}");
    assert!(answer(&said, "print n", 0).ends_with("= 3"), "{said}");
    assert!(answer(&said, "print total > 100", 0).ends_with("= 1"), "{said}");
    // In the past the values are not known: a stop, and gdb says why.
    let past = answer(&said, "reverse-continue", 0);
    assert_in_order(past, &["Error in testing", "value is not available", "Breakpoint 1, add"]);
    let listed = answer(&said, "maintenance info breakpoints", 0);
    assert!(listed.contains("(target evals)"), "{said}");
    assert!(answer(&said, "print total * 2 / 3 % 7", 0).ends_with("= 5"), "{said}");
    assert!(answer(&said, "print total", 0).ends_with("= 20000"), "{said}");
    assert!(said.contains("exited normally"), "{said}");
    assert_eq!(live.end(), ("total 20000\n".to_owned(), Some(0)));
}

#[test]
fn what_becomes_of_the_program_when_the_debugger_vanishes() {
    let scene = Scene::new();
    let exists = |pid: u32| {
        let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        !state.is_empty() && !state.contains(") Z")
    };
    for (what, lives) in [("kill", false), ("detach", true)] {
        let live = Live::start(&scene, &["--on-disconnect", what], &["sleep", "1000"]);
        let mut client = Client::connect(&live.address);
        let thread = client.ask("qC");
        let pid = u32::from_str_radix(thread.strip_prefix("QC").unwrap(), 16).unwrap();
        drop(client);
        assert_eq!(live.status(), Some(0), "{what}");
        assert_eq!(exists(pid), lives, "{what}");
        if lives {
            assert_eq!(tracer_and_maps(pid).0, "0");
            assert!(Command::new("kill").arg(pid.to_string()).status().unwrap().success());
        }
    }
    let mut kept = contraflow();
    let kept = kept.args(["serve", ":0", "--once", "--on-disconnect", "keep", "--", "sleep", "1"]);
    assert!(text(&kept.output().unwrap().stderr).contains("cannot be kept"));
}

#[test]
fn watchpoints_are_of_all_threads() {
    if !tools() {
        return;
    }
    let scene = Scene::new();
    let program = scene.compile("adders.c", &["-O1"]);
    let live = Live::start(&scene, &[], &[name(&program)]);
    let said = live.gdb(
        &program,
        // No addition is of more than 4, so none steps over the four values of the condition,
        // in whatever order the threads come.
        "break main\ncontinue\nwatch total if total % 2000 < 4\ncontinue\nprint total\n\
         continue\nprint total\ndelete\ncontinue\ncontinue",
    );
    let mut last = 0;
    for nth in 0..2 {
        assert!(answer(&said, "continue", nth + 1).contains("hit Hardware watchpoint 2"), "{said}");
        let total = answer(&said, "print total", nth).rsplit(' ').next().unwrap();
        let total = total.parse::<u32>().expect(&said);
        assert!(total % 2000 < 4, "{said}");
        // The first value of the condition after the last one: no write was missed.
        assert!(last < total && total < last / 2000 * 2000 + 2004, "{said}");
        last = total;
    }
    assert!(said.contains("exited normally"), "{said}");
    assert_eq!(live.end(), ("total 20000\n".to_owned(), Some(0)));
}

#[test]
fn a_program_that_was_watched_is_left() {
    if !tools() {
        return;
    }
    let scene = Scene::new();
    let program = scene.compile("live.c", &["-O1"]);
    let live = Live::start(&scene, &[], &[name(&program)]);
    let said = live.gdb(&program, "break main\ncontinue\nwatch counter\ncontinue\ndetach");
    assert!(answer(&said, "continue", 1).contains("New value = 1"), "{said}");
    // The CPU does not watch on.
    assert_eq!(live.end(), ("total 35 counter 105\n".to_owned(), Some(0)));
}

#[test]
fn a_program_that_is_left_gets_the_signal_at_which_it_stopped() {
    if !tools() {
        return;
    }
    let scene = Scene::new();
    let shell = Path::new("/bin/sh");
    let script = "trap 'echo caught' USR1; kill -USR1 $$; echo on";
    let live = Live::start(&scene, &[], &[name(shell), "-c", script]);
    let said = live.gdb(shell, "continue\ndetach");
    assert!(answer(&said, "continue", 0).contains("received signal SIGUSR1"), "{said}");
    assert_eq!(live.end(), ("caught\non\n".to_owned(), Some(0)));
}

#[test]
fn threads_stop_together_and_none_is_lost() {
    if !tools() {
        return;
    }
    let scene = Scene::new();
    let program = scene.compile("adders.c", &["-O1"]);
    let live = Live::start(&scene, &[], &[name(&program)]);
    let said = live.gdb(
        &program,
        "break add if total > 100\ncontinue\ninfo threads\nnext\nnext\nnext\nreverse-next\n\
         reverse-stepi\ninfo threads\ncontinue\ntbreak add\ncontinue\ndelete\nstepi\nstepi\nstepi\n\
         set scheduler-locking on\nstepi\nset scheduler-locking off\ncontinue\nprint total\ncontinue",
    );
    assert!(answer(&said, "continue", 0).contains("hit Breakpoint 1, add"), "{said}");
    for nth in 0..2 {
        let threads = answer(&said, "info threads", nth);
        // Not all need have been born, and some may have ended.
        assert!((2..=5).contains(&threads.matches("Thread ").count()), "{threads}");
    }
    assert!(answer(&said, "print total", 0).ends_with("= 20000"), "{said}");
    assert!(said.contains("exited normally"), "{said}");
    assert_eq!(live.end(), ("total 20000\n".to_owned(), Some(0)));
}

#[test]
fn signals_of_several_threads_at_once_all_come() {
    if !tools() {
        return;
    }
    let scene = Scene::new();
    let program = scene.compile("raisers.c", &["-O1"]);
    let live = Live::start(&scene, &[], &[name(&program)]);
    let said = live
        .gdb(&program, &("handle SIGUSR1 stop print pass\n".to_owned() + &"continue\n".repeat(18)));
    assert_eq!(said.matches("received signal SIGUSR1").count(), 15, "{said}");
    assert!(said.contains("exited normally"), "{said}");
    assert_eq!(live.end(), ("15 of 15\n".to_owned(), Some(0)));
}

#[test]
fn another_program_is_executed() {
    if !tools() {
        return;
    }
    let scene = Scene::new();
    let program = scene.compile("live.c", &["-O0"]);
    let command = [name(&program), "then", "/bin/echo", "other"];
    let live = Live::start(&scene, &[], &command);
    let said = live.gdb(
        &program,
        "handle SIGUSR1 nostop\nbreak work\nignore 1 100\ncatch exec\ncontinue\nprint $pc\n\
         continue\ncontinue",
    );
    assert!(said.contains("is executing new program: /usr/bin/echo"), "{said}");
    assert!(said.contains("exited normally"), "{said}");
    assert_eq!(live.end(), ("total 35 counter 105\nother\n".to_owned(), Some(0)));
}

/// Speaks the protocol itself.
pub(crate) struct Client(TcpStream);

impl Client {
    pub(crate) fn connect(address: &str) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(90))).unwrap();
        Self(stream)
    }

    pub(crate) fn send(&mut self, body: &str) {
        let sum = body.bytes().fold(0u8, u8::wrapping_add);
        self.0.write_all(format!("${body}#{sum:02x}").as_bytes()).unwrap();
    }

    /// Ctrl-C.
    pub(crate) fn interrupt(&mut self) {
        self.0.write_all(b"\x03").unwrap();
    }

    pub(crate) fn reply(&mut self) -> String {
        let mut reply = Vec::new();
        let mut byte = [0];
        while !matches!(reply.as_slice(), [.., b'#', _, _]) {
            match self.0.read(&mut byte) {
                Ok(1) => reply.push(byte[0]),
                Ok(_) => break,
                // By the timer of a test beside this one that records in this process.
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => panic!("{error} after {}", text(&reply)),
            }
        }
        let reply = text(&reply);
        let body = reply.trim_start_matches('+').trim_start_matches('$');
        body.split('#').next().unwrap_or_default().to_owned()
    }

    pub(crate) fn ask(&mut self, body: &str) -> String {
        self.send(body);
        self.reply()
    }
}

fn tracer_and_maps(pid: u32) -> (String, String) {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let tracer = status.lines().find_map(|line| line.strip_prefix("TracerPid:")).unwrap();
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    (tracer.trim().to_owned(), maps)
}

#[test]
fn a_server_that_is_told_to_end_leaves_what_was_there_before() {
    let scene = Scene::new();
    let ends = |live: &Live, signal: &str| {
        let server = live.server.id().to_string();
        assert!(Command::new("kill").args([signal, &server]).status().unwrap().success());
    };
    // While it waits for a client; while one looks; while the program runs.
    for (signal, packet) in [("-INT", None), ("-TERM", Some("?")), ("-INT", Some("c"))] {
        let mut subject = Command::new("sleep").arg("1000").spawn().unwrap();
        let pid = subject.id();
        let live = Live::start_by("soft", &scene, &["-p", &pid.to_string()], &[]);
        assert_ne!(tracer_and_maps(pid).0, "0");
        let client = packet.map(|packet| {
            let mut client = Client::connect(&live.address);
            client.ask("qC");
            client.send(packet);
            client
        });
        ends(&live, signal);
        assert_eq!(live.status(), Some(0), "{signal} {packet:?}");
        drop(client);
        assert_eq!(tracer_and_maps(pid).0, "0");
        assert_eq!(subject.try_wait().unwrap(), None);
        subject.kill().unwrap();
        subject.wait().unwrap();
    }
    let live = Live::start_by("soft", &scene, &[], &["sleep", "1000"]);
    let mut client = Client::connect(&live.address);
    let thread = client.ask("qC");
    let pid = i32::from_str_radix(thread.strip_prefix("QC").unwrap(), 16).unwrap();
    ends(&live, "-TERM");
    assert_eq!(live.status(), Some(0));
    assert!(!Path::new(&format!("/proc/{pid}")).exists(), "what it started is killed");
}

/// As `monitor exit` and `disconnect` of gdb do.
#[test]
fn a_server_that_a_client_ended_leaves_what_was_there_before() {
    let scene = Scene::new();
    let mut subject = Command::new("sleep").arg("1000").spawn().unwrap();
    let pid = subject.id();
    let live = Live::start_by("soft", &scene, &["-p", &pid.to_string()], &[]);
    let mut client = Client::connect(&live.address);
    client.ask("qC");
    client.ask("qRcmd,65786974");
    drop(client);
    assert_eq!(live.status(), Some(0));
    assert_eq!(tracer_and_maps(pid).0, "0");
    assert_eq!(subject.try_wait().unwrap(), None);
    subject.kill().unwrap();
    subject.wait().unwrap();
}

#[test]
fn a_running_process_is_interrupted_and_left() {
    if !have("sh") {
        return;
    }
    let scene = Scene::new();
    let mut subject =
        Command::new("sh").args(["-c", "while :; do :; done"]).spawn().expect("a shell");
    let pid = subject.id();
    let live = Live::start(&scene, &["-p", &pid.to_string()], &[]);
    let mut client = Client::connect(&live.address);
    assert!(client.ask("qSupported:swbreak+;qRelocInsn+").contains("ReverseStep+"));
    assert!(client.ask("?").starts_with("T05"));
    for _ in 0..3 {
        client.send("vCont;c");
        std::thread::sleep(Duration::from_millis(300));
        let asked = Instant::now();
        client.0.write_all(&[3]).unwrap();
        assert!(client.reply().starts_with("T02"));
        assert!(asked.elapsed() < Duration::from_secs(30));
        let back = client.ask("bs");
        assert!(back.starts_with("T05") && !back.contains("replaylog"), "{back}");
        assert!(client.ask("vCont;c").contains("replaylog:end"));
    }
    assert_eq!(client.ask("D"), "OK");
    assert_eq!(live.end().1, Some(0));
    let (tracer, maps) = tracer_and_maps(pid);
    assert_eq!(tracer, "0");
    assert!(!maps.contains("contraflow"), "{maps}");
    assert!(subject.try_wait().unwrap().is_none(), "it runs on");
    subject.kill().unwrap();
    subject.wait().unwrap();
}

#[test]
fn a_client_that_kills_and_one_that_hangs_up() {
    let scene = Scene::new();
    for packet in ["k", "vKill;1", ""] {
        let live = Live::start(&scene, &[], &["sleep", "1000"]);
        let mut client = Client::connect(&live.address);
        let thread = client.ask("qC");
        let pid = u32::from_str_radix(thread.strip_prefix("QC").unwrap(), 16).unwrap();
        if !packet.is_empty() {
            client.send(packet);
        }
        drop(client);
        assert_eq!(live.end().1, Some(0));
        let gone = !Path::new(&format!("/proc/{pid}")).exists();
        assert!(gone, "{packet}: the program lives on");
    }
}

/// `--no-stop-at-end`: the past is there at each stop as without it, and the program's end is its exit.
#[test]
fn a_program_ends_without_a_stop() {
    if !tools() {
        return;
    }
    let scene = Scene::new();
    let program = scene.compile("live.c", &["-O0"]);
    let serve = |options: &[&str], commands: &str| {
        Live::start(&scene, options, &[name(&program)]).gdb(&program, commands)
    };
    let commands = "handle SIGUSR1 nostop\nbreak work if n == 3\ncontinue\nreverse-stepi\ndelete\n\
                    continue\ncontinue\nprint $_exitcode";
    let said = serve(&["--no-stop-at-end"], commands);
    // The edge of the past is where the program is now.
    assert!(answer(&said, "continue", 1).contains("No more reverse-execution history"), "{said}");
    assert!(answer(&said, "continue", 2).contains("exited with code 03"), "{said}");
    assert!(answer(&said, "print $_exitcode", 0).ends_with("= 3"), "{said}");
    let said = serve(&[], commands);
    assert!(answer(&said, "continue", 2).contains("No more reverse-execution history"), "{said}");
    assert!(answer(&said, "print $_exitcode", 0).ends_with("= void"), "{said}");
}

#[test]
fn lldb_goes_back_from_a_live_stop() {
    let (Some(lldb), true) = (lldb(), have("gcc")) else { return };
    let scene = Scene::new();
    let program = scene.compile("live.c", &["-O0"]);
    let live = Live::start(&scene, &[], &[name(&program)]);
    let commands = scene.path("commands");
    let connect = format!("script lldb.debugger.SetAsync(False)\ngdb-remote {}\n", live.address);
    let rest = "breakpoint set -n work\nprocess continue\nprocess continue\nframe variable n\n\
                process continue --reverse\nprocess continue --forward\n\
                process continue --forward\nframe variable n\nbreakpoint delete -f\n\
                process handle SIGUSR1 -s false -n false -p true\n\
                process continue --forward\nprocess continue --forward\nquit\n";
    std::fs::write(&commands, connect + rest).unwrap();
    let mut command = Command::new(lldb);
    // In batch mode it leaves where the history ends.
    command.arg("--no-lldbinit").arg(&program).stdin(std::fs::File::open(&commands).unwrap());
    let output = command.output().unwrap();
    let said = text(&output.stdout);
    assert_in_order(&said, &["(int) n = 1", "reverse", "(int) n = 2"]);
    assert!(said.contains("exited with status = 3"), "{said}");
    assert_eq!(live.end().0, "total 35 counter 105\n");
}
