//! Attaching to a process that runs, and leaving it: it goes on as if nobody had been there.

use crate::exact;
use crate::support::{Scene, answer, contraflow, have, run_gdb, text};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// A process that says it is ready, and echoes bytes, a line each.
struct Subject {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Subject {
    fn start(program: &Path) -> Self {
        let mut command = Command::new(program);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program runs");
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().unwrap());
        let mut subject = Self { child, input, output };
        assert_eq!(subject.line(), "ready");
        subject
    }

    fn pid(&self) -> String {
        self.child.id().to_string()
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    fn signal(&self, name: &str) {
        let sent = Command::new("kill").args(["-s", name, &self.pid()]).status();
        assert!(sent.expect("kill(1) runs").success());
    }

    /// It still answers.
    fn answers(&mut self, byte: char) {
        write!(self.input.as_mut().unwrap(), "{byte}").unwrap();
        assert_eq!(self.line(), byte.to_string());
    }

    /// Its input ends, and so does it. Gives its status.
    fn end(mut self) -> Option<i32> {
        drop(self.input.take());
        let last = self.line();
        let status = self.child.wait().unwrap();
        let mut errors = String::new();
        std::io::Read::read_to_string(self.child.stderr.as_mut().unwrap(), &mut errors).unwrap();
        assert_eq!((last.as_str(), errors.as_str()), ("well", ""));
        status.code()
    }

    fn proc(&self, file: &str) -> String {
        String::from_utf8_lossy(
            &std::fs::read(format!("/proc/{}/{file}", self.child.id())).unwrap(),
        )
        .into_owned()
    }

    fn tracer(&self) -> String {
        let status = self.proc("status");
        status.lines().find_map(|l| l.strip_prefix("TracerPid:")).unwrap().trim().to_owned()
    }
}

/// The kinds of recordings of a running process.
const KINDS: [&str; 2] = ["--exact", "--ring=1"];

fn recorder(scene: &Scene, kind: &str, pid: &str) -> Child {
    let mut record = contraflow();
    record
        .env("CONTRAFLOW_HOME", scene.path("store"))
        .args(["record", "--force", kind, "-p", pid, "-o"]);
    record.arg(scene.path("recording")).stderr(Stdio::piped()).spawn().expect("contraflow runs")
}

fn wait_until(mut what: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !what() {
        assert!(Instant::now() < deadline, "it does not come");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn interrupt(recorder: &Child) {
    let killed = Command::new("kill").args(["-INT", &recorder.id().to_string()]).status().unwrap();
    assert!(killed.success());
}

/// The replay of an exact recording is the recorded run.
fn assert_replays(scene: &Scene, kind: &str, verdict: &str) {
    if kind == "--exact" {
        let check = contraflow().arg("check").arg(scene.path("recording")).output().unwrap();
        let said = text(&check.stdout);
        assert!(said.starts_with(verdict), "{said}{}", text(&check.stderr));
    }
}

/// Instructions of the recording, by threads; there are no gaps.
fn instructions(scene: &Scene) -> usize {
    let dump = contraflow().args(["dump", "stats"]).arg(scene.path("recording")).output().unwrap();
    assert!(dump.status.success(), "{}", text(&dump.stderr));
    let stats = text(&dump.stdout);
    let last = stats.lines().last().unwrap();
    let words: Vec<_> = last.split(' ').collect();
    assert_eq!((words[0], words[2], words[3]), ("instructions", "gaps", "0"), "{stats}");
    words[1].parse().unwrap()
}

#[test]
fn a_process_is_recorded_for_a_while_and_goes_on() {
    if !have("gcc") {
        return;
    }
    let scene = Scene::new();
    let program = scene.compile("attached.c", &["-O1", "-pthread"]);
    let mut subject = Subject::start(&program);
    let before = mappings(&subject);
    // Twice each, in turn.
    for (round, kind) in KINDS.into_iter().chain(KINDS).enumerate() {
        let recorder = recorder(&scene, kind, &subject.pid());
        wait_until(|| subject.proc("maps").contains("memfd:contraflow"));
        subject.answers('a');
        std::thread::sleep(Duration::from_millis(300));
        subject.answers('b');
        interrupt(&recorder);
        let output = recorder.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        assert_eq!(subject.tracer(), "0");
        assert_eq!(mappings(&subject), before, "round {round}");
        subject.answers('c');
        // Its threads compute all the time.
        subject.signal("STOP");
        assert!(instructions(&scene) > 10_000);
        assert_replays(&scene, kind, exact::PART);
        assert!(kind == "--exact" || scene.path("recording/core").exists());
        if have("gdb") {
            let mut replay = contraflow();
            replay.arg("replay").arg(scene.path("recording")).args(["--", "-nx", "-batch"]);
            let said = run_gdb(replay, "cf-when");
            assert!(answer(&said, "cf-when", 0).ends_with("the end: detached"), "{kind}: {said}");
        }
        subject.signal("CONT");
    }
    assert_eq!(subject.end(), Some(7));
}

/// The mappings of files: heaps and stacks come and go.
fn mappings(subject: &Subject) -> Vec<String> {
    let maps = subject.proc("maps");
    let of_file = |line: &&str| line.contains('/');
    maps.lines().filter(of_file).map(str::to_owned).collect()
}

#[test]
fn a_process_that_ends_while_it_is_recorded_has_its_end() {
    if !have("gcc") {
        return;
    }
    for kind in KINDS {
        let scene = Scene::new();
        let program = scene.compile("attached.c", &["-O1", "-pthread"]);
        let mut subject = Subject::start(&program);
        let recorder = recorder(&scene, kind, &subject.pid());
        wait_until(|| subject.proc("maps").contains("memfd:contraflow"));
        // Its input ends when all threads have run under the recorder for a while.
        subject.answers('a');
        std::thread::sleep(Duration::from_millis(300));
        assert_eq!(subject.end(), Some(7));
        let output = recorder.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(7), "{}", text(&output.stderr));
        assert!(instructions(&scene) > 10_000);
        assert_replays(&scene, kind, exact::WHOLE);
        if have("gdb") {
            assert_beginning(&scene, kind);
        }
    }
}

/// All threads are there at the beginning of the recording, with what is known of their stacks.
fn assert_beginning(scene: &Scene, kind: &str) {
    let mut replay = contraflow();
    replay.arg("replay").arg(scene.path("recording")).args(["--", "-nx", "-batch"]);
    let said = run_gdb(replay, "cf-seek begin\nbacktrace\nthread apply all backtrace -3");
    if kind == "--exact" {
        let stacks = answer(&said, "thread apply all backtrace -3", 0);
        let threads = stacks.lines().filter(|line| line.starts_with("Thread ")).count();
        assert!(threads >= 5 && stacks.contains(" in main "), "{said}");
    } else {
        let why = "(older frames are before the recorded history)";
        assert!(answer(&said, "backtrace", 0).ends_with(why), "{said}");
    }
}

#[test]
fn a_recorder_that_fails_leaves_the_process_as_it_was() {
    if !have("gcc") {
        return;
    }
    let scene = Scene::new();
    // Five functions of one name, which are more ranges than a PT unit has.
    let sources: Vec<String> =
        (0..5).map(|n| scene.path(&format!("{n}.c")).display().to_string()).collect();
    for source in &sources {
        std::fs::write(source, "__attribute__((used)) static int same(void) { return 1; }")
            .unwrap();
    }
    let flags: Vec<&str> =
        ["-O1", "-pthread"].into_iter().chain(sources.iter().map(String::as_str)).collect();
    let program = scene.compile("attached.c", &flags);
    let mut subject = Subject::start(&program);
    let before = mappings(&subject);
    let mut record = contraflow();
    record.env("CONTRAFLOW_HOME", scene.path("store")).args(["record", "--filter", "same", "-p"]);
    let output = record.arg(subject.pid()).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let said = text(&output.stderr);
    assert!(said.contains("the filters mean 5 ranges of code, and a PT unit has 4"), "{said}");
    assert_eq!(subject.tracer(), "0");
    assert_eq!(mappings(&subject), before);
    subject.answers('a');
    assert_eq!(subject.end(), Some(7));
}

#[test]
fn what_cannot_be_attached_to_is_refused() {
    let refused = |pid: &str, options: &[&str]| {
        let scene = Scene::new();
        let mut record = contraflow();
        record.env("CONTRAFLOW_HOME", scene.path("store")).args(["record", "-p", pid]);
        let output = record.args(options).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        text(&output.stderr)
    };
    assert!(refused("2147483647", &[]).contains("there is no process 2147483647"));
    let mut child = Command::new("sleep").arg("100").spawn().unwrap();
    let pid = child.id().to_string();
    assert!(
        refused(&pid, &["--backend", "step"]).contains("the step backend records programs from")
    );
    Command::new("kill").args(["-STOP", &pid]).status().unwrap();
    let status = format!("/proc/{pid}/status");
    wait_until(|| std::fs::read_to_string(&status).unwrap().contains("State:\tT"));
    assert!(refused(&pid, &[]).contains("it is stopped"));
    child.kill().unwrap();
    let zombie = || std::fs::read_to_string(&status).unwrap().contains("State:\tZ");
    wait_until(zombie);
    assert!(refused(&pid, &[]).contains(&pid));
    child.wait().unwrap();
}

/// Records `late.c` from a function on. Gives its path by names, and what the recorder said.
fn from(scene: &Scene, kind: &str, function: &str, status: i32) -> (Vec<String>, String) {
    let program = scene.compile("late.c", &["-O1", "-g", "-pthread"]);
    let dir = scene.path("recording");
    let mut record = contraflow();
    record.env("CONTRAFLOW_HOME", scene.path("store")).args(["record", "--force", "-o"]).arg(&dir);
    let output = record.args([kind, "--start-at", function]).arg(program).output().unwrap();
    assert_eq!(output.status.code(), Some(status), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout), "child 5\nlate\n");
    let dump = contraflow().args(["dump", "insns"]).arg(&dir).output().unwrap();
    let lines = text(&dump.stdout).lines().map(str::to_owned).collect();
    (lines, text(&output.stderr))
}

/// A thread that was made right before the function is reached goes on, wherever it was then.
/// Three busy loops delay its start.
#[test]
fn a_thread_that_has_not_begun_at_the_function_goes_on() {
    if !have("gcc") {
        return;
    }
    let scene = Scene::new();
    let program = scene.compile("at_once.c", &["-O1"]);
    let spin = || Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
    let mut spinning: Vec<_> = (0..3).map(|_| spin()).collect();
    let run = |kind: &str| {
        let mut record = contraflow();
        record.args(["record", "-q", "--force", "-o"]).arg(scene.path("recording"));
        let mut record = record.args([kind, "--start-at", "late"]).arg(&program).spawn().unwrap();
        let begun = Instant::now();
        let status = loop {
            let status = record.try_wait().unwrap();
            if status.is_some() || begun.elapsed() > Duration::from_secs(20) {
                break status;
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        let _ = record.kill();
        let _ = record.wait();
        status.and_then(|status| status.code())
    };
    let statuses: Vec<_> = (0..10).flat_map(|_| KINDS.map(run)).collect();
    for spinning in &mut spinning {
        spinning.kill().unwrap();
        spinning.wait().unwrap();
    }
    assert!(statuses.iter().all(|status| *status == Some(9)), "{statuses:?}");
}

#[test]
fn a_recording_begins_at_a_function() {
    if !have("gcc") {
        return;
    }
    for kind in KINDS {
        let scene = Scene::new();
        let (path, _) = from(&scene, kind, "late", 9);
        assert!(path[0].starts_with("thread "), "{}", path[0]);
        assert!(path.iter().any(|line| line.contains("late+0x0")), "{path:?}");
        assert!(instructions(&scene) > 3000);
        assert_replays(&scene, kind, exact::WHOLE);
        let scene = Scene::new();
        let (path, _) = from(&scene, kind, "puts@libc.so.6", 9);
        assert!(path[1].contains("puts+0x0"), "{}", path[1]);
        let (path, said) = from(&Scene::new(), kind, "never", 2);
        assert!(path.is_empty());
        assert!(said.contains("without reaching never: nothing is recorded"), "{said}");
    }
}
