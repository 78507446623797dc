//! Programs of one kind each, written for what is hard to record.

use super::{PART, WHOLE, assert_replays, check, record, record_with};
use crate::support::{Scene, answer, assert_in_order, contraflow, have, run_gdb, text};
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

fn replays_with(source: &str, flags: &[&str]) {
    if have("gcc") {
        let scene = Scene::new();
        let program = scene.compile(source, flags);
        assert_replays(&[program.to_str().unwrap()]);
    }
}

fn replays(sources: &[&str]) {
    for source in sources {
        replays_with(source, &["-w"]);
    }
}

#[test]
fn signals_come_where_they_came() {
    replays(&["exact/pending.c"]);
    replays(&["exact/signals.c", "exact/interrupted.c", "exact/repeated.c", "exact/vectors.c"]);
}

#[test]
fn calls_that_the_cache_logs_replay() {
    replays(&["exact/logged.c", "exact/answered.c"]);
}

#[test]
fn counters_that_the_cache_reads_and_logs_replay() {
    replays_with("exact/counters.c", &["-w", "-pthread"]);
    replays_with("exact/counters.c", &["-w", "-pthread", "-static", "-O2"]);
}

#[test]
fn files_that_are_opened_and_written_without_a_stop_replay() {
    replays_with("exact/opened.c", &["-w", "-pthread"]);
    replays_with("exact/opened.c", &["-w", "-pthread", "-static", "-O1"]);
}

const COUNT_STOPS: &str = r"
def count(command, direction):
    gdb.execute(command)
    stops, here, before = -2, None, ''
    while here != before:
        before = here
        gdb.execute(direction, to_string=True)
        here = gdb.execute('monitor when', to_string=True)
        stops += 1
    gdb.execute('delete')
    print('STOPS', command, direction, stops)
count('catch syscall lseek', 'reverse-continue')
count('catch syscall lseek', 'continue')
count('watch -l now.tv_nsec', 'reverse-continue')
count('watch -l now.tv_nsec', 'continue')
count('break lseek if $rsi % 10 == 7', 'reverse-continue')
";

/// A replay makes no stop for calls in a row, but for those that its user wants to see, and those that
/// change what is watched.
#[test]
fn each_call_in_a_row_is_stopped_at() {
    if !have("gcc") || !have("gdb") {
        return;
    }
    let scene = Scene::new();
    let program = scene.compile("exact/answered.c", &["-w", "-g", "-O1"]);
    let (dir, _) = record(&scene, &[program.to_str().unwrap()]);
    std::fs::write(scene.path("stops.py"), COUNT_STOPS).unwrap();
    let mut gdb = contraflow();
    gdb.arg("replay").arg(&dir).args(["--", "-nx", "-batch"]);
    let said = run_gdb(gdb, &format!("source {}", scene.path("stops.py").display()));
    for expected in [
        "STOPS catch syscall lseek reverse-continue 200\n",
        "STOPS catch syscall lseek continue 200\n",
        "STOPS watch -l now.tv_nsec reverse-continue 300\n",
        "STOPS watch -l now.tv_nsec continue 300\n",
        "STOPS break lseek if $rsi % 10 == 7 reverse-continue 10\n",
    ] {
        assert!(said.contains(expected), "{expected}: {said}");
    }
}

#[test]
fn branches_to_where_no_code_can_be_replay() {
    // It prints addresses of its own.
    replays_with("nowhere.c", &["-w", "-no-pie"]);
}

#[test]
fn static_programs_replay() {
    for source in ["exact/interrupted.c", "exact/waiting.c"] {
        replays_with(source, &["-w", "-static"]);
    }
    replays_with("page_middle.S", &["-nostdlib", "-static", "-no-pie"]);
}

#[test]
fn a_signal_that_is_ignored_stays_ignored() {
    replays(&["exact/ignored_trap.c", "blocked.c"]);
}

#[test]
fn races_end_as_they_did() {
    replays(&["exact/races.c", "exact/spinning.c", "exact/waiting.c", "exact/queues.c"]);
}

#[test]
fn locks_are_marked_when_others_begin_to_wait() {
    replays(&["exact/inherited.c"]);
}

#[test]
fn buffers_that_others_look_at_are_filled_when_they_were() {
    replays(&["exact/filled.c"]);
}

#[test]
fn threads_take_turns_however_short_their_calls_are() {
    replays(&["exact/unfair.c"]);
}

#[test]
fn a_process_may_end_while_its_threads_do_not() {
    replays(&["exact/leaving_threads.c", "exact/killed.c", "exact/cancelled.c", "first_gone.c"]);
}

#[test]
fn a_process_may_become_others() {
    replays(&["exact/epochs.c", "execthread.c", "exact/failed_execs.c"]);
}

#[test]
fn children_run_natively() {
    replays(&["exact/children.c", "exact/clones.c", "spawns.c"]);
}

#[test]
fn calls_leave_what_they_left() {
    replays(&["exact/descriptors.c", "exact/vsyscall.c", "exact/deadline.c", "kernelwrites.c"]);
}

#[test]
fn memory_is_mapped_as_it_was() {
    replays(&["exact/mappings.c", "exact/grown.c", "remapped.c", "overflow.c"]);
    replays(&["exact/fifo_of_mapping.c"]);
}

/// Calls that take longer than a slice change mappings before the log has them.
#[test]
fn threads_that_map_the_same_addresses_replay() {
    for _ in 0..3 {
        replays(&["ending.c"]);
    }
}

/// Garbage collectors read all memory that /proc/self/maps lists.
#[test]
fn lists_of_mappings_have_no_more_than_the_program_has() {
    if have("gcc") {
        let scene = Scene::new();
        let program = scene.compile("maps.c", &["-w"]);
        let dir = scene.path("recording");
        let mut recorder = contraflow();
        recorder.env("CONTRAFLOW_HOME", scene.path("store")).args(["record", "--exact", "-o"]);
        let said = text(&recorder.args([&dir, &program]).output().expect("it runs").stdout);
        // What it prints of its stack's size varies.
        assert!(said.contains("\n1 found"), "{said}");
        let verdict = check(&dir);
        assert!(verdict.starts_with(super::WHOLE), "{verdict}");
    }
}

#[test]
fn all_views_of_a_file_show_the_same_bytes() {
    replays(&["exact/views.c"]);
}

#[test]
fn code_that_changes_replays() {
    replays(&["selfmod.c", "repatched.c", "twice.c", "moved_code.c"]);
}

#[test]
fn a_library_that_is_overwritten_replays() {
    if !have("gcc") {
        return;
    }
    let scene = Scene::new();
    let command = scene.overwritten();
    let dir = scene.path("exact");
    let mut record = contraflow();
    record.args(["record", "-o"]).arg(&dir).arg("--").args(&command);
    let recorded = record.output().expect("contraflow runs");
    assert_eq!(text(&recorded.stdout), "before 16, after 325, changed 225\n");
    // What the file contains now does not matter.
    std::fs::remove_file(&command[1]).unwrap();
    let verdict = check(&dir);
    assert!(verdict.starts_with(WHOLE), "{verdict}");
}

/// Programs for other tests, whose output is the same in each run.
#[test]
fn what_programs_see_of_themselves_replays() {
    replays(&["cpus.c", "dumpable.c", "int80.c", "old_calls.c", "remapped.c", "wide_calls.c"]);
}

#[test]
fn instructions_return_what_they_returned() {
    replays(&["exact/processor.c", "exact/saves.c", "strings.c"]);
}

#[test]
fn a_signal_ends_a_program_that_waits() {
    if have("gcc") && have("timeout") {
        let scene = Scene::new();
        let program = scene.compile("leaver.c", &["-w"]);
        let dir = scene.path("recording");
        // The recorder passes the signal on.
        let mut recorder = Command::new("timeout");
        recorder.arg("0.5").arg(env!("CARGO_BIN_EXE_contraflow"));
        recorder.env("CONTRAFLOW_HOME", scene.path("store"));
        recorder.args(["record", "--exact", "-o"]).args([&dir, &program]);
        recorder.stdin(Stdio::null()).output().expect("it runs");
        let verdict = check(&dir);
        assert!(verdict.starts_with(super::WHOLE), "{verdict}");
    }
}

/// A program whose recorder is killed while the program is stopped in the midst of its code goes on
/// natively from there.
#[test]
fn a_program_outlives_its_recorder() {
    if !have("gcc") {
        return;
    }
    let scene = Scene::new();
    let program = scene.compile("exact/left.c", &["-w", "-O1"]);
    let native = Command::new(&program).output().expect("it runs");
    let last = |output: &[u8]| text(output).lines().last().map(str::to_owned);
    let dir = scene.path("recording");
    let mut recorder = contraflow()
        .env("CONTRAFLOW_HOME", scene.path("store"))
        .args(["record", "--exact", "--on-recorder-death", "go-on", "-o"])
        .args([&dir, &program])
        .stdout(Stdio::piped())
        .spawn()
        .expect("contraflow runs");
    let mut output = BufReader::new(recorder.stdout.take().expect("it is piped"));
    let mut line = String::new();
    output.read_line(&mut line).expect("it prints its number");
    let (pid, own) = (line.trim().to_owned(), recorder.id().to_string());
    let signal = |name: &str, pid: &str| {
        assert!(Command::new("kill").args([name, pid]).status().expect("it runs").success());
    };
    signal("-STOP", &pid);
    wait_until_still(&pid);
    signal("-KILL", &own);
    signal("-CONT", &pid);
    let mut rest = Vec::new();
    output.read_to_end(&mut rest).expect("it is text");
    recorder.wait().expect("it ends");
    assert_eq!(last(&rest), last(&native.stdout));
    let verdict = check(&dir);
    assert!(verdict.starts_with(PART), "{verdict}");
}

/// Waits until a process executes nothing any more.
fn wait_until_still(pid: &str) {
    let user_time = || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("it is there");
        let (_, after) = stat.rsplit_once(')').expect("it has a name");
        after.split_whitespace().nth(11).map(str::to_owned)
    };
    let mut before = None;
    loop {
        let now = user_time();
        if now == before {
            return;
        }
        before = now;
        std::thread::sleep(Duration::from_millis(60));
    }
}

#[test]
fn what_is_easily_recorded_wrongly_replays() {
    if have("gcc") {
        let scene = Scene::new();
        let program = scene.compile("exact/traps.c", &["-w", "-O1", "-pthread"]);
        for part in [
            "holes",
            "advice",
            "stacks",
            "appends",
            "itself",
            "implied",
            "twins",
            "sparse",
            "frames",
            "old",
            "vforks",
            "lingers",
            "stops",
            "unknowns",
            "direct",
            "below",
            "traces",
            "blocks",
            "ends",
            "killed",
            "unlimited",
            "pinned",
            "over",
            "left_behind",
        ] {
            assert_replays(&[program.to_str().unwrap(), part]);
        }
    }
}

#[test]
fn calls_that_shut_the_recorder_out_end_the_recording() {
    if have("gcc") {
        let scene = Scene::new();
        let flags = &["-w", "-O1", "-pthread"];
        let traps = scene.compile("exact/traps.c", flags);
        let timeless = scene.compile("timeless.c", flags);
        let sharing = scene.compile("sharing.c", flags);
        for (program, part, why) in [
            (&traps, "redirects", "redirects its system calls (PR_SET_SYSCALL_USER_DISPATCH)"),
            (&traps, "untraced", "makes a process that must not be traced (CLONE_UNTRACED)"),
            (&traps, "old_map", "by a 32-bit system call"),
            (&traps, "limits", "limits its address space"),
            (&timeless, "", "forbids itself the time-stamp counter"),
            (&sharing, "", "makes a process that shares all of its memory"),
        ] {
            let scene = Scene::new();
            let mut command = vec![program.to_str().unwrap()];
            command.extend(Some(part).filter(|part| !part.is_empty()));
            let (dir, recorded) = record(&scene, &command);
            let said = text(&recorded.stderr);
            assert!(said.contains(why), "{part}: {said}");
            let verdict = check(&dir);
            assert!(verdict.starts_with(PART), "{part}: {verdict}\n{said}");
        }
    }
}

/// Some of its lines differ from those of a run without a recorder, but it ends.
#[test]
fn a_program_that_waits_for_its_traps_gets_them() {
    if have("gcc") {
        let scene = Scene::new();
        let program = scene.compile("traps.c", &["-w", "-pthread"]);
        let dir = scene.path("exact");
        let mut record = contraflow();
        record.args(["record", "-o"]).arg(&dir).arg("--").arg(&program);
        let recorded = record.output().expect("contraflow runs");
        assert_eq!(recorded.status.code(), Some(3), "{}", text(&recorded.stderr));
        assert!(text(&recorded.stdout).contains("\nsigsuspend 1\nsuspended: traps 1,"));
        let verdict = check(&dir);
        assert!(verdict.starts_with(WHOLE), "{verdict}");
    }
}

/// They map most of the address space, and have plans for the rest. The search for leaks at the end is
/// by a process that must not be traced.
#[test]
fn sanitized_programs_replay() {
    if have("gcc") {
        for (sanitizer, verdict) in
            [("address", PART), ("leak", PART), ("thread", WHOLE), ("undefined", WHOLE)]
        {
            let scene = Scene::new();
            let flag = format!("-fsanitize={sanitizer}");
            let Some(program) = scene.try_compile("sanitized.c", &["-O1", &flag]) else { continue };
            let (dir, recorded) = record(&scene, &[program.to_str().unwrap()]);
            let said = check(&dir);
            assert!(said.starts_with(verdict), "{sanitizer}: {said}{}", text(&recorded.stderr));
        }
    }
}

fn gdb_on(dir: &Path, commands: &str) -> String {
    let mut replay = contraflow();
    replay.arg("replay").arg(dir).args(["--", "-nx", "-batch"]);
    run_gdb(replay, commands)
}

/// Their touched pages are recorded, compared and shown, at the end of a path too; the rest costs nothing.
#[test]
fn terabytes_that_are_reserved_are_no_burden() {
    if !have("gcc") || !have("gdb") {
        return;
    }
    let scene = Scene::new();
    let program = scene.compile("exact/reserved.c", &["-O0", "-Wno-use-after-free"]);
    let command = [program.to_str().unwrap()];
    let (dir, recorded) = record_with(&scene, &["--keyframe-period", "1"], &command);
    if text(&recorded.stdout).contains("no room") {
        eprintln!("SKIPPED: the address space is limited");
        return;
    }
    let verdict = check(&dir);
    assert!(verdict.starts_with(WHOLE) && verdict.contains("keyframe"), "{verdict}");
    let asked =
        "print *at\nprint ((char *) at)[-1099511627776 * 5]\nprint ((char *) at)[3298534883327]";
    let past = format!("{asked}\nwatch -l *at\nreverse-continue\nreverse-continue");
    let said = gdb_on(&dir, &past);
    assert_in_order(&said, &["$1 = 5", "$2 = 1", "$3 = 9", "Old value = 5", "New value = 4"]);

    let path = scene.path("path");
    let mut record_path = contraflow();
    record_path.env("CONTRAFLOW_HOME", scene.path("store")).args(["record", "--path", "-o"]);
    let status = record_path.arg(&path).args(command).output().unwrap().status;
    assert_eq!(status.code(), Some(139));
    let said = gdb_on(&path, asked);
    assert_in_order(&said, &["$1 = 5", "$2 = 1", "$3 = 9"]);
}

/// `AddressSanitizer` ends the program that it found a fault in, before it searches for leaks.
#[test]
fn a_fault_that_a_sanitizer_found_replays() {
    if !have("gcc") || !have("gdb") {
        return;
    }
    let scene = Scene::new();
    let flags = ["-O1", "-Wno-use-after-free", "-fsanitize=address"];
    let Some(program) = scene.try_compile("exact/reserved.c", &flags) else { return };
    let (dir, recorded) = record(&scene, &[program.to_str().unwrap(), "freed"]);
    let said = text(&recorded.stderr);
    assert!(said.contains("heap-use-after-free"), "{said}");
    let verdict = check(&dir);
    assert!(verdict.starts_with(WHOLE), "{verdict}");
    let said = gdb_on(&dir, "break reserved.c:set\nreverse-continue\nprint value");
    assert!(said.contains("$1 = 5"), "{said}");
}

/// From the beginning, from keyframes, and of a process that has begun.
#[test]
fn tiles_of_amx_replay() {
    if !have("gcc") {
        return;
    }
    let scene = Scene::new();
    let flags = ["-w", "-O2", "-mamx-tile", "-mamx-int8", "-pthread"];
    let Some(program) = scene.try_compile("exact/tiles.c", &flags) else { return };
    let command = [program.to_str().unwrap()];
    let (dir, recorded) = record_with(&scene, &["--keyframe-period", "1"], &command);
    if text(&recorded.stdout).contains("no tiles") {
        println!("SKIPPED: this CPU has no AMX");
        return;
    }
    assert!(check(&dir).starts_with(WHOLE), "{}", check(&dir));
    let mut replay = contraflow();
    replay.arg("replay").arg(&dir).args(["--", "-nx", "-batch"]);
    let said = run_gdb(
        replay,
        "print sums\nbreak work\nreverse-continue\nprint sums[2]\nreverse-continue\nfinish\n\
         print sums[3] != 0\ncf-seek 50%\ncf-seek end\nprint sums\n",
    );
    for nth in 0..2 {
        let sums = answer(&said, "print sums", nth);
        assert!(sums.contains("-8289613588333459456"), "{nth}: {said}");
    }
}

/// Where it grows, a stack has the protection that it got as a whole.
#[test]
fn code_on_a_stack_that_grows_replays() {
    if !have("gcc") {
        return;
    }
    let scene = Scene::new();
    let program = scene.compile("exact/stackcode.c", &["-O0"]);
    let options = ["--keyframe-period", "1"];
    let (dir, _) = record_with(&scene, &options, &[program.to_str().unwrap()]);
    let verdict = check(&dir);
    assert!(verdict.starts_with(WHOLE) && verdict.contains("keyframe"), "{verdict}");
}

/// `next` over a loop that is one line runs it, and stops where single steps would: at the next line, where a
/// watched value changes in the loop, and at a breakpoint in what it calls.
#[test]
fn loops_of_one_line_are_steps_of_one_run() {
    if !have("gcc") || !have("gdb") {
        return;
    }
    let scene = Scene::new();
    let program = scene.compile("exact/oneline.c", &["-O0", "-pthread"]);
    let (dir, _) = record(&scene, &[program.to_str().unwrap()]);
    let line = |text: &str| {
        let source = include_str!("../../programs/exact/oneline.c");
        1 + source.lines().position(|line| line.contains(text)).unwrap()
    };
    let sums: Vec<usize> = (1..5).map(|number| line(&format!("    sum += {number};"))).collect();
    // By breakpoints: what is there at the beginning of each line.
    let shown = "printf \"%d: %ld %ld\\n\", $_thread, sum, signals";
    let breaks: Vec<String> =
        sums.iter().map(|sum| format!("break {sum}\ncontinue\n{shown}\n")).collect();
    let breaks = breaks.concat();
    let begin = "cf-seek begin\nset pagination off\nbreak main\ncontinue\n";
    let expected = gdb_on(&dir, &format!("{begin}{breaks}"));
    let expected: Vec<&str> = expected.lines().filter(|line| line.starts_with("1: ")).collect();
    assert_eq!(expected.len(), 4, "{expected:?}");
    let to_loop = format!("tbreak {}\ncontinue\n", sums[0] - 1);
    let nexts = format!("next\n{shown}\nnext\n").repeat(4);
    let said = gdb_on(&dir, &format!("{begin}{to_loop}{nexts}"));
    let stepped: Vec<&str> = said.lines().filter(|line| line.starts_with("1: ")).collect();
    assert_eq!(stepped, expected, "{said}");

    // A signal that gdb passes ends such a loop, in its handler.
    let (from, after) = (line("while (signals < 2)"), line("sum += 5;"));
    let to = |last: &str| {
        format!(
            "{begin}handle SIGUSR1 nostop noprint pass\ntbreak {from}\ncontinue\n{last}\n{shown}"
        )
    };
    let shown_by = |last: &str| {
        let said = gdb_on(&dir, &to(last));
        said.lines().find(|line| line.starts_with("1: ")).map(str::to_owned).expect("a value")
    };
    let expected = shown_by(&format!("tbreak {after}\ncontinue"));
    assert_eq!(shown_by("next"), expected);

    let inside = format!(
        "{begin}{to_loop}next\nnext\nwatch watched\nnext\nprint i\ndelete\nnext\nnext\n\
         break twice if number == 25\nnext\nprint number\ndelete\nfinish\nnext\ninfo line"
    );
    let said = gdb_on(&dir, &inside);
    let third = format!("Line {}", sums[2]);
    assert_in_order(
        &said,
        &["New value = 700", "$1 = 700", "twice (number=25)", "$2 = 25", &third],
    );
}
