//! Ends that nobody planned, of translated programs and of their recorder: each leaves what was
//! recorded until then, and an error is one clear sentence.

use crate::comparison::{addresses, native, path_of, record, status, without_gaps};
use crate::support::{Scene, contraflow, have, recordings_in, run_gdb, text};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The name of one endless program, in a process's arguments.
fn marker(name: &str) -> String {
    format!("contraflow-test-{name}-{}", std::process::id())
}

/// The process whose last argument is `marker`: not a child of another such one, which has the same
/// arguments.
fn process(marker: &str) -> Option<i32> {
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let all = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let is_it = |pid: &i32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let words: Vec<_> = line.split(|&byte| byte == 0).collect();
        words.first().is_some_and(|word| word.ends_with(b"sh"))
            && words.contains(&marker.as_bytes())
    };
    let found: Vec<i32> = all.filter(is_it).collect();
    let is_child = |pid: &i32| parent_of(*pid).is_none_or(|parent| found.contains(&parent));
    found.iter().copied().find(|pid| !is_child(pid))
}

fn parent_of(pid: i32) -> Option<i32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("PPid:")?.trim().parse().ok())
}

fn wait_until<T>(mut what: impl FnMut() -> Option<T>) -> Option<T> {
    let deadline = Instant::now() + Duration::from_secs(60);
    while Instant::now() < deadline {
        if let Some(result) = what() {
            return Some(result);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    None
}

/// Records an endless program with these options, kills its recorder or itself after a while, and
/// gives the path.
fn killed(name: &str, options: &[&str], kill_recorder: bool, after: Duration) -> Vec<u64> {
    let scene = Scene::new();
    let (dir, marker) = (scene.path("recording"), marker(name));
    let script = "i=0; while :; do i=$((i+1)); : $(echo $i); [ $i = 3 ] && echo three; done";
    let mut recorder = contraflow()
        .env("CONTRAFLOW_HOME", scene.path("store"))
        .args(["record", "-q", "--backend", "soft"])
        .args(options)
        .arg("-o")
        .arg(&dir)
        .args(["/bin/sh", "-c", script, &marker])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = [0; 5];
    std::io::Read::read_exact(recorder.stdout.as_mut().unwrap(), &mut said).unwrap();
    std::thread::sleep(after);
    let pid = process(&marker).expect("the program runs");
    if kill_recorder {
        recorder.kill().unwrap();
        recorder.wait().unwrap();
        let gone = wait_until(|| process(&marker).is_none().then_some(()));
        assert!(gone.is_some(), "the program outlives its recorder");
    } else {
        let killed = Command::new("kill").args(["-9", &pid.to_string()]).status().unwrap();
        assert!(killed.success());
        let status = wait_until(|| recorder.try_wait().unwrap()).expect("the recorder ends");
        assert_eq!(status.code(), Some(128 + 9));
    }
    let info = contraflow().arg("info").arg(&dir).output().unwrap();
    assert!(info.status.success(), "{}", text(&info.stderr));
    let is_cut = text(&info.stdout).contains("cut: the recorder was killed");
    assert_eq!(is_cut, kill_recorder, "{}", text(&info.stdout));
    path_of(&dir).unwrap()
}

#[test]
fn a_killed_program_keeps_its_last_steps() {
    for (number, options) in [&["--full"][..], &["--ring", "1"], &["--full"]].iter().enumerate() {
        let after = Duration::from_millis(37 * number as u64);
        let path = killed(&format!("program-{number}"), options, false, after);
        assert!(path.len() > 1000, "{} instructions", path.len());
    }
}

#[test]
fn a_killed_recorder_leaves_what_it_wrote() {
    for number in 0..2 {
        let after = Duration::from_millis(300 * number);
        // How much that is depends on what was encoded already.
        killed(&format!("recorder-{number}"), &["--full"], true, after);
    }
}

/// What was recorded is written though the program does nothing more.
#[test]
fn a_recorder_that_is_killed_while_its_program_waits() {
    if !have("mkfifo") {
        return;
    }
    let scene = Scene::new();
    let (dir, fifo) = (scene.path("recording"), scene.path("fifo"));
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let mut recorder = contraflow()
        .env("CONTRAFLOW_HOME", scene.path("store"))
        .args(["record", "-q", "--backend", "soft", "--full", "-o"])
        .arg(&dir)
        .args(["/bin/sh", "-c", "read line <\"$0\""])
        .arg(&fifo)
        .spawn()
        .unwrap();
    let written = || {
        let files = std::fs::read_dir(dir.join("trace")).ok()?.flatten();
        let sizes = files.map(|file| file.metadata().map_or(0, |data| data.len()));
        (sizes.sum::<u64>() > 2000).then_some(())
    };
    let written = wait_until(written);
    recorder.kill().unwrap();
    recorder.wait().unwrap();
    assert!(written.is_some(), "nothing is written");
    assert!(path_of(&dir).unwrap().len() > 50_000);
}

/// Runs a shell command in which `$CONTRAFLOW` records.
fn shell(scene: &Scene, script: &str) -> std::process::Output {
    let mut shell = Command::new("sh");
    shell.env("CONTRAFLOW_HOME", scene.path("store")).env("DIR", scene.path("recording"));
    shell.env("CONTRAFLOW", env!("CARGO_BIN_EXE_contraflow"));
    shell.args(["-c", script]).stdin(Stdio::null()).output().expect("sh runs")
}

#[test]
fn an_address_space_that_is_too_small() {
    let scene = Scene::new();
    // In 1 KiB: enough for the recorder itself and for the program, not for what they share.
    let output = shell(
        &scene,
        "ulimit -v 4000000; exec $CONTRAFLOW record -o $DIR --backend soft echo unharmed",
    );
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("address space") && said.contains("ulimit -v"), "{said}");
    assert_eq!(said.trim().lines().count(), 1, "{said}");
    // The program runs unrecorded, or not at all; never half.
    let printed = text(&output.stdout);
    assert!(printed.is_empty() || printed == "unharmed\n", "{printed}");
}

#[test]
fn a_program_that_limits_itself() {
    let scene = Scene::new();
    let script = "ulimit -v 100000; echo limited; (echo child); exec echo again";
    let output = shell(&scene, &format!("exec $CONTRAFLOW record -q -o $DIR sh -c '{script}'"));
    assert_eq!(text(&output.stdout), "limited\nchild\nagain\n", "{}", text(&output.stderr));
}

#[test]
fn a_file_size_limit() {
    let scene = Scene::new();
    let output = shell(
        &scene,
        "ulimit -f 8192; exec $CONTRAFLOW record -o $DIR --full --backend soft \
         sh -c 'i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; echo unharmed'",
    );
    let said = text(&output.stderr);
    assert_eq!(text(&output.stdout), "unharmed\n", "{said}");
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("File too large"), "{said}");
}

#[test]
fn a_hidden_proc() {
    if !have("unshare") {
        return;
    }
    let scene = Scene::new();
    let output = shell(
        &scene,
        "exec unshare -m sh -c 'mount -t tmpfs none /proc && \
         exec $CONTRAFLOW record -o $DIR --backend soft echo unharmed'",
    );
    let said = text(&output.stderr);
    if said.contains("unshare") || said.contains("mount") && !said.contains("is /proc mounted") {
        let _ = std::io::Write::write_fmt(
            &mut std::io::stderr(),
            format_args!("SKIPPED: no mount namespace: {said}"),
        );
        return;
    }
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("is /proc mounted?"), "{said}");
}

#[test]
fn many_threads_end_at_once() {
    if have("gcc") {
        let scene = Scene::new();
        let program = scene.compile("ending.c", &[]);
        for _ in 0..5 {
            let dir = scene.path("recording");
            let mut record = contraflow();
            record.env("CONTRAFLOW_HOME", scene.path("store")).args(["record", "-q", "--force"]);
            let record = record.args(["--backend", "soft", "-o"]).arg(&dir).arg(&program);
            let mut recorder = record.stdout(Stdio::piped()).spawn().unwrap();
            let status = wait_until(|| recorder.try_wait().unwrap());
            if status.is_none() {
                recorder.kill().unwrap();
            }
            assert_eq!(status.expect("no hang").code(), Some(7));
            assert!(!addresses(&dir).is_empty());
        }
    }
}

#[test]
fn children_are_killed_at_any_moment() {
    if !have("gcc") {
        return;
    }
    let scene = Scene::new();
    let program = scene.compile("culled.c", &[]);
    let store = scene.path("store");
    for follows in [true, false] {
        let mut record = contraflow();
        record.env("CONTRAFLOW_HOME", &store).args(["record", "-q", "--full", "--backend", "soft"]);
        record.args(follows.then_some("--follow-forks")).arg("--").arg(&program);
        record.args(["60", "3"]).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut recorder = record.spawn().unwrap();
        let status = wait_until(|| recorder.try_wait().unwrap());
        if status.is_none() {
            recorder.kill().unwrap();
        }
        let output = recorder.wait_with_output().unwrap();
        assert_eq!(status.expect("no hang").code(), Some(7), "{}", text(&output.stderr));
        assert_eq!(text(&output.stdout), "60\n", "{}", text(&output.stderr));
    }
    let dirs = recordings_in(&store);
    let counts: Vec<usize> = dirs.iter().map(|dir| without_gaps(dir).unwrap()).collect();
    // One may be killed between its birth and its first instruction.
    let ran = counts.iter().filter(|&&count| count > 0).count();
    assert!(counts.len() > 20 && ran > counts.len() / 2, "{counts:?}");
}

/// Ends a program of five threads in some way, and gives what gdb knows at the end. Its three
/// threads that wait are there in any case.
fn at_the_end(backend: &str, way: &str, status: i32) -> String {
    let scene = Scene::new();
    let program = scene.compile("lastly.c", &["-ldl"]);
    let command = [program.to_str().unwrap(), way];
    let (dir, output) = record(&scene, backend, &[], &command);
    assert_eq!(crate::comparison::status(&output), status, "{}", text(&output.stderr));
    without_gaps(&dir).unwrap();
    let mut replay = contraflow();
    replay.arg("replay").arg(&dir).args(["--", "-nx", "-batch"]);
    run_gdb(replay, "bt\nprint known_at_the_end\nprint waiting\ninfo threads")
}

#[test]
fn all_threads_and_all_memory_are_known_at_the_end() {
    if !have("gdb") {
        return;
    }
    let cases = [
        ("first", 3, "ends_all", 4),
        ("other", 3, "ends_all", 5),
        ("crash", 128 + 11, "ends_all", 5),
        ("alone", 3, "ends_all", 4),
    ];
    for backend in ["soft", "step"] {
        for (way, status, function, threads) in cases {
            let said = at_the_end(backend, way, status);
            let found = said.lines().filter(|line| line.contains(" Thread ")).count();
            let is_known = said.contains("$1 = 4711") && said.contains("$2 = 3");
            let is_of_culprit = said.split(">>> print").next().unwrap().contains(function);
            assert!(is_known && is_of_culprit && found == threads, "{backend}, {way}:\n{said}");
        }
    }
}

#[test]
fn threads_that_wait_make_way_for_another_program() {
    for backend in ["soft", "step"] {
        let scene = Scene::new();
        let program = scene.compile("lastly.c", &["-ldl"]);
        let (dir, output) = record(&scene, backend, &[], &[program.to_str().unwrap(), "exec"]);
        assert_eq!((text(&output.stdout), status(&output)), ("executed\n".to_owned(), 0));
        without_gaps(&dir).unwrap();
    }
}

#[test]
fn threads_that_are_ended_anywhere_stand_in_the_program() {
    let scene = Scene::new();
    let program = scene.compile("callers.c", &["-O1", "-fno-optimize-sibling-calls", "-pthread"]);
    for round in 0..4 {
        let how: &[_] = if round % 2 == 0 { &["--full"] } else { &["--ring", "16"] };
        let options = [&["--force"], how].concat();
        let (dir, output) = record(&scene, "soft", &options, &[program.to_str().unwrap()]);
        assert_eq!(status(&output), 3, "{}", text(&output.stderr));
        without_gaps(&dir).unwrap();
        let info = text(&contraflow().arg("info").arg(&dir).output().unwrap().stdout);
        let threads: Vec<_> = info.lines().filter(|line| line.starts_with("thread ")).collect();
        assert_eq!(threads.len(), 7, "{info}");
        let mut interrupted = 0;
        for line in threads {
            let tid = line.split_whitespace().nth(1).unwrap();
            let (_, end) = line.split_once("ended at 0x").expect(&info);
            let end = end.split(',').next().unwrap();
            // Those that were ended stand where the kernel interrupted them; the first one made a call.
            let mut dump = contraflow();
            dump.arg("dump").arg(&dir).args(["--thread", tid, "events"]);
            let events = text(&dump.output().unwrap().stdout);
            let last = events.lines().last().expect(&events);
            let is_interrupted = last.contains(&format!("AsyncDisabled {{ at: Addr({end})"));
            assert!(is_interrupted || last.contains(" Disabled"), "{tid} ended at {end}: {last}");
            interrupted += usize::from(is_interrupted);
        }
        assert_eq!(interrupted, 6, "{info}");
    }
}

/// The kernel does not tell of a first thread that is killed at its end, before the others' ends.
#[test]
fn first_threads_that_end_in_silence_are_not_waited_for() {
    if !have("gcc") {
        return;
    }
    let scene = Scene::new();
    let program = scene.compile("first_gone.c", &[]);
    let program = program.to_str().unwrap();
    for backend in ["soft", "step"] {
        for command in [&[program][..], &[program, "apart"]] {
            let options = ["--follow-forks", "--force"];
            let (_, output) = record(&scene, backend, &options, command);
            assert_eq!(text(&output.stdout), text(&native(command).stdout), "{backend}");
        }
    }
}

#[test]
fn a_child_with_no_stack_is_followed() {
    if !have("gcc") {
        return;
    }
    let scene = Scene::new();
    let program = scene.compile("stackless.c", &["-O1"]);
    let (_, output) = record(&scene, "soft", &["--follow-forks"], &[program.to_str().unwrap()]);
    assert_eq!((text(&output.stdout), status(&output)), ("0 7f00 done\n".to_owned(), 0));
    let store = std::fs::read_dir(scene.path("store")).unwrap();
    let children = store.filter(|dir| dir.as_ref().unwrap().path().join("manifest.json").exists());
    assert_eq!(children.count(), 2);
}
