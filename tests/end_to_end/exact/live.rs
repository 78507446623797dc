//! Live programs that are recorded exactly, under real gdb: back with all values, and forward again to
//! now.

use super::{PART, WHOLE};
use crate::libraries::compile_library;
use crate::serve::{Live, name, tools};
use crate::support::{Scene, answer, assert_in_order, contraflow, text};

/// Past values, watchpoints and conditions; then the program goes on where it was.
#[test]
fn the_past_of_a_live_program_has_all_values() {
    if !tools() {
        return;
    }
    let scene = Scene::new();
    let program = scene.compile("live.c", &["-O0"]);
    let live = Live::start_by("exact", &scene, &["--once"], &[name(&program)]);
    let said = live.gdb(
        &program,
        "break work if n == 3\ncontinue\nprint counter\ndelete\nwatch counter\n\
         reverse-continue\nprint counter\nreverse-continue\nprint counter\nbt\ndelete\n\
         break work if n == 0\nreverse-continue\nprint n\nfinish\ndelete\ncontinue\n\
         print counter\nmonitor when\nnext\nnext\nnext\nprint sum\nreverse-next\nreverse-next\n\
         print n\nbreak on_signal\ncontinue\nhandle SIGUSR1 nostop\ncontinue\nprint counter\n\
         up\ninfo registers rip\nreverse-finish\ndelete\ncontinue\ncontinue\ncontinue",
    );
    assert!(answer(&said, "continue", 0).contains("Breakpoint 1, work (n=3)"), "{said}");
    for (nth, value) in [(0, 3), (1, 2), (2, 1)] {
        let printed = answer(&said, "print counter", nth);
        assert!(printed.ends_with(&format!("= {value}")), "{value}: {said}");
    }
    assert_in_order(answer(&said, "reverse-continue", 0), &["Old value = 3", "New value = 2"]);
    assert_in_order(answer(&said, "bt", 0), &["work (n=1)", "main ("]);
    assert!(answer(&said, "reverse-continue", 2).contains("work (n=0)"), "{said}");
    assert!(answer(&said, "finish", 0).contains("Value returned is $"), "{said}");
    // To now, which is where the program was.
    assert!(answer(&said, "continue", 1).contains("No more reverse-execution history"), "{said}");
    assert!(answer(&said, "continue", 1).contains("work (n=3)"), "{said}");
    assert!(answer(&said, "print counter", 3).ends_with("= 3"), "{said}");
    assert!(answer(&said, "monitor when", 0).contains("exact, 100.00%"), "{said}");
    assert!(answer(&said, "print sum", 0).ends_with("= 0"), "{said}");
    // The last step back is met before the program goes on.
    assert!(answer(&said, "continue", 2).contains("No more reverse-execution history"), "{said}");
    assert!(said.contains("received signal SIGUSR1"), "{said}");
    assert!(said.contains("exited with code 03"), "{said}");
    assert_eq!(live.end(), ("total 35 counter 105\n".to_owned(), Some(0)));
}

/// What a debugger changes, and the functions that it calls, are part of the recording.
#[test]
fn changes_by_a_debugger_are_recorded() {
    if !tools() {
        return;
    }
    let scene = Scene::new();
    let program = scene.compile("live.c", &["-O0"]);
    let kept = scene.path("kept");
    let options = ["--once", "--save", name(&kept)];
    let live = Live::start_by("exact", &scene, &options, &[name(&program)]);
    let said = live.gdb(
        &program,
        "break work\ncontinue\nset var counter = 50\nset var n = 4\nset var $xmm5.uint128 = 77\n\
         print work(3)\ncontinue\nprint counter\nprint $xmm5.uint128\nwatch counter\n\
         reverse-continue\nreverse-continue\nprint counter\nset var counter = 9\nprint counter\n\
         cf-seek end\nprint counter\ndelete\ncontinue\ncontinue\ncontinue",
    );
    // The call stops at its breakpoint first.
    assert!(said.contains("The program being debugged stopped while in a function"), "{said}");
    assert!(answer(&said, "print counter", 0).ends_with("= 51"), "{said}");
    // Back before the change, in a copy of that moment, and to now again.
    assert!(answer(&said, "print counter", 2).ends_with("= 9"), "{said}");
    assert!(answer(&said, "print counter", 3).ends_with("= 51"), "{said}");
    assert!(said.contains("exited with code 03"), "{said}");
    let (printed, status) = live.end();
    assert_eq!(status, Some(0));
    assert!(printed.contains("counter 15"), "{printed}");
    let check = contraflow().arg("check").arg(&kept).output().unwrap();
    assert!(check.status.success(), "{}{}", text(&check.stderr), said);
    assert!(text(&check.stdout).starts_with(WHOLE));
    let log = contraflow().args(["dump", "log"]).arg(&kept).output().unwrap();
    assert!(text(&log.stdout).contains("  changed "), "{}", text(&log.stdout));
}

/// Children that are followed, by fork and by `posix_spawn`: each has a past with values, and a
/// recording.
#[test]
fn followed_children_are_recorded() {
    if !tools() {
        return;
    }
    let scene = Scene::new();
    let program = scene.compile("exact/offspring.c", &["-O0"]);
    let kept = scene.path("kept");
    let options = ["--once", "--save", name(&kept)];
    let live = Live::start_by("exact", &scene, &options, &[name(&program)]);
    let said = live.gdb(
        &program,
        "break work\ncontinue\nset follow-fork-mode child\ncontinue\nprint total\nwatch total\n\
         continue\nreverse-continue\nreverse-continue\ndelete 2\ncontinue\ncontinue\nprint total\n\
         print n\nwatch total\ncontinue\nreverse-continue\nbt\ndelete\ncontinue\ncontinue\ncontinue",
    );
    assert!(said.contains("hit Breakpoint 1, work (n=2)"), "{said}");
    assert!(answer(&said, "print total", 0).ends_with("= 7"), "{said}");
    assert_in_order(answer(&said, "continue", 2), &["Old value = 7", "New value = 21"]);
    assert_in_order(answer(&said, "reverse-continue", 0), &["Old value = 21", "New value = 7"]);
    // Of the program that the child executes:
    assert!(answer(&said, "continue", 4).contains("Breakpoint 1, work (n=3)"), "{said}");
    assert!(answer(&said, "print total", 1).ends_with("= 0"), "{said}");
    assert!(answer(&said, "print n", 0).ends_with("= 3"), "{said}");
    assert_in_order(answer(&said, "continue", 5), &["Old value = 0", "New value = 21"]);
    assert_in_order(answer(&said, "bt", 0), &["work (n=3)", "main (argc=2"]);
    assert!(said.contains("exited with code 025"), "{said}");
    let (printed, _) = live.end();
    assert!(printed.contains("grandchild 21\n"), "{printed}");
    let beside = std::fs::read_dir(scene.path("")).unwrap();
    let mut verdicts = Vec::new();
    for dir in beside.map(|entry| entry.unwrap().path()) {
        if dir.join("manifest.json").exists() {
            let check = contraflow().arg("check").arg(&dir).output().unwrap();
            assert!(check.status.success(), "{}{}", dir.display(), text(&check.stderr));
            verdicts.push(text(&check.stdout));
        }
    }
    // Parent and child went on without their recorder.
    let count = |words| verdicts.iter().filter(|verdict| verdict.starts_with(words)).count();
    assert_eq!([WHOLE, PART].map(count), [1, 2], "{verdicts:?}");
}

/// A debugger calls functions in threads that wait in the kernel. They wait on after that.
#[test]
fn functions_are_called_in_threads_that_wait() {
    if !tools() {
        return;
    }
    let scene = Scene::new();
    let program = scene.compile("exact/called.c", &["-O0", "-w"]);
    let kept = scene.path("kept");
    let options = ["--once", "--save", name(&kept)];
    let live = Live::start_by("exact", &scene, &options, &[name(&program)]);
    let said = live.gdb(
        &program,
        "break ready\ncontinue\nset scheduler-locking on\nthread 2\nprint twice(2)\nthread 3\n\
         print twice(3)\nthread 4\nprint twice(4)\nthread 1\nprint twice(1)\nthread 2\n\
         print twice(5)\nset scheduler-locking off\ndelete\ncontinue\ncontinue",
    );
    for n in 1..=5 {
        let printed = answer(&said, &format!("print twice({n})"), 0);
        assert!(printed.ends_with(&format!("= {}", 2 * n)), "{n}: {said}");
    }
    assert_eq!(live.end(), ("5 calls, 0 failures\n".to_owned(), Some(0)), "{said}");
    let check = contraflow().arg("check").arg(&kept).output().unwrap();
    assert!(check.status.success(), "{}", text(&check.stderr));
}

/// The past of a live program begins at the state that was stored on the way, with what the debugger
/// changed before.
#[test]
fn a_live_program_has_keyframes() {
    if !tools() {
        return;
    }
    let scene = Scene::new();
    let program = scene.compile("exact/keyframes.c", &["-O1", "-g", "-pthread"]);
    let kept = scene.path("kept");
    let options = ["--once", "--save", name(&kept), "--keyframe-period", "10"];
    let live = Live::start_by("exact", &scene, &options, &[name(&program), "20000000"]);
    let said = live.gdb(
        &program,
        "break deep\ncontinue\ndelete\nset var shared[3] = 77\nset var sums[2] = 5\nbreak answer\n\
         continue\nprint shared[3]\nreverse-stepi\nprint sums[2]\nprint shared[3]\n\
         set var sums[2] = 6\nprint sums[2]\nstepi\nprint sums[2]\ndelete\nbreak churn\n\
         reverse-continue\nprint shared[3]\nprint sums[2]\ndelete\nwatch sums[2]\n\
         reverse-continue\ndelete\ncf-seek end\nset var sums[2] = 8\nprint churn(0, 0)\nbreak main\n\
         watch shared[3]\nreverse-continue\ndelete\ncf-seek end\nprint sums[2]\ncontinue\ncontinue",
    );
    for nth in 0..3 {
        assert!(answer(&said, "print shared[3]", nth).ends_with("= 77"), "{nth}: {said}");
    }
    for (nth, value) in [5, 6, 5, 5, 8].into_iter().enumerate() {
        let printed = answer(&said, "print sums[2]", nth);
        assert!(printed.ends_with(&format!("= {value}")), "{nth}: {said}");
    }
    // The debugger's change, which the program met in `deep`.
    assert_in_order(answer(&said, "reverse-continue", 1), &["Old value = 5", "New value = 0"]);
    assert_in_order(answer(&said, "reverse-continue", 2), &["Old value = 77", "New value = 0"]);
    assert!(answer(&said, "print churn(0, 0)", 0).ends_with("= 0"), "{said}");
    assert!(said.contains("received signal SIGSEGV"), "{said}");
    let _ = live.end();
    let check = contraflow().arg("check").arg(&kept).output().unwrap();
    let verdict = text(&check.stdout);
    assert!(check.status.success(), "{}{verdict}", text(&check.stderr));
    let count = kept.join("keyframes").read_dir().expect("it has keyframes").count();
    assert!(count > 2 && verdict.contains(&format!("and {count} keyframes;")), "{verdict}");
}

/// Calls are made without a stop, but for as long as the debugger catches some.
#[test]
fn calls_stop_while_they_are_caught() {
    if !tools() {
        return;
    }
    let scene = Scene::new();
    let program = scene.compile("exact/answered.c", &["-w", "-g", "-O1"]);
    let native = std::process::Command::new(&program).output().expect("it runs");
    let live = Live::start_by("exact", &scene, &["--once"], &[name(&program)]);
    let said = live.gdb(
        &program,
        "break main\ncontinue\ncatch syscall lseek\ncontinue\ncontinue\ndelete\nbreak next\ncontinue\n\
         delete\ncatch syscall clock_gettime\ncontinue\ncontinue\nprint sum\nreverse-continue\n\
         delete\ncontinue\nprint sum\ncontinue",
    );
    assert!(answer(&said, "continue", 1).contains("(call to syscall lseek)"), "{said}");
    assert!(answer(&said, "continue", 2).contains("(returned from syscall lseek)"), "{said}");
    assert!(answer(&said, "continue", 4).contains("(call to syscall clock_gettime)"), "{said}");
    assert!(
        answer(&said, "continue", 5).contains("(returned from syscall clock_gettime)"),
        "{said}"
    );
    // Where the program stands is no earlier place.
    let past = answer(&said, "reverse-continue", 0);
    assert!(past.contains("(call to syscall clock_gettime)"), "{said}");
    assert!(answer(&said, "continue", 6).contains("No more reverse-execution history"), "{said}");
    let sum = |nth| answer(&said, "print sum", nth).split(" = ").nth(1);
    assert_eq!(sum(0), sum(1), "{said}");
    assert_eq!(live.end(), (text(&native.stdout), native.status.code()));
}

/// A return to an address that is not canonical reads its slot of the stack, and faults before it
/// is taken, also where that slot is watched.
#[test]
fn a_watched_return_address_that_is_not_canonical_faults_at_the_return() {
    if !tools() {
        return;
    }
    let scene = Scene::new();
    let program = scene.compile("exact/smashed.c", &["-O0"]);
    let kept = scene.path("kept");
    let options = ["--once", "--save", name(&kept)];
    let live = Live::start_by("exact", &scene, &options, &[name(&program)]);
    let said = live.gdb(
        &program,
        "break smash\ncontinue\nawatch -l *at\ncontinue\ncontinue\nx/i $pc\n\
         reverse-stepi\nx/i $pc\n",
    );
    let stopped = answer(&said, "continue", 2);
    assert!(stopped.contains("received signal SIGSEGV"), "{said}");
    assert!(answer(&said, "x/i $pc", 0).contains("ret"), "{said}");
    assert!(answer(&said, "x/i $pc", 1).contains("pop"), "{said}");
    drop(live);
    let checked = contraflow().arg("check").arg(&kept).output().unwrap();
    assert!(checked.status.success(), "{said}\n{}", text(&checked.stderr));
}

/// The program of the past is that of its time: before an execve(2), and before a dlopen(3).
#[test]
fn the_past_has_the_program_and_the_libraries_of_its_time() {
    if !tools() {
        return;
    }
    let scene = Scene::new();
    let program = scene.compile("live.c", &["-O0"]);
    let command = [name(&program), "then", "/bin/echo", "other"];
    let live = Live::start_by("exact", &scene, &["--once"], &command);
    let said = live.gdb(
        &program,
        "maint packet qXfer:auxv:read::0,400\nhandle SIGUSR1 nostop\ncatch exec\ncontinue\n\
         maint packet qXfer:exec-file:read::0,400\ncf-seek start\n\
         maint packet qXfer:exec-file:read::0,400\nmaint packet qXfer:auxv:read::0,400\nkill",
    );
    let of = |nth| answer(&said, "maint packet qXfer:exec-file:read::0,400", nth);
    assert!(of(0).contains("/echo"), "{said}");
    assert!(of(1).contains("/live"), "{said}");
    let auxv = |nth| answer(&said, "maint packet qXfer:auxv:read::0,400", nth);
    assert!(auxv(0).contains("received: \"l"), "{said}");
    assert_eq!(auxv(0), auxv(1), "{said}");

    let program = scene.compile("namespaces.c", &["-O0"]);
    let library = compile_library(&scene);
    let live = Live::start_by("exact", &scene, &["--once"], &[name(&program), name(&library)]);
    let listed = "maint packet qXfer:libraries-svr4:read::0,4000";
    let said = live.gdb(
        &program,
        &format!(
            "set breakpoint pending on\nbreak bump\ncontinue\n{listed}\ntbreak main\n\
             reverse-continue\n{listed}\nkill"
        ),
    );
    assert!(answer(&said, listed, 0).contains("libbump.so"), "{said}");
    let before = answer(&said, listed, 1);
    assert!(before.contains("libc.so") && !before.contains("libbump.so"), "{said}");
}

/// A search of the past that finds nothing leaves the program at its signal, which was reported.
#[test]
fn a_search_without_a_result_does_not_repeat_a_signal() {
    if !tools() {
        return;
    }
    let scene = Scene::new();
    let program = scene.compile("live.c", &["-O0"]);
    let live = Live::start_by("exact", &scene, &["--once"], &[name(&program)]);
    let said = live.gdb(
        &program,
        "handle SIGUSR1 stop nopass\ncontinue\nmonitor last 0x1000 8\ncontinue\ncontinue",
    );
    assert!(answer(&said, "continue", 0).contains("received signal SIGUSR1"), "{said}");
    assert!(answer(&said, "monitor last 0x1000 8", 0).contains("not changed before"), "{said}");
    assert!(!answer(&said, "continue", 1).contains("received signal"), "{said}");
    assert_eq!(live.end().0, "total 35 counter 5\n", "{said}");
}

/// Steps by `monitor seek` end with the program, and are refused where others are.
#[test]
fn steps_by_seek_end_with_the_program_and_may_be_refused() {
    if !tools() {
        return;
    }
    let scene = Scene::new();
    let program = scene.compile("live.c", &["-O0"]);
    let live = Live::start_by("exact", &scene, &["--once"], &[name(&program)]);
    let said =
        live.gdb(&program, "handle SIGUSR1 nostop\ncontinue\nmonitor seek +1000000000000\nkill");
    let answered = answer(&said, "monitor seek +1000000000000", 0);
    assert!(answered.starts_with("the program is gone"), "{said}");

    let program = scene.compile("forks.c", &["-O0"]);
    let live = Live::start_by("exact", &scene, &["--once"], &[name(&program)]);
    let said =
        live.gdb(&program, "set detach-on-fork off\ncatch fork\ncontinue\nmonitor seek +1\nkill");
    let answered = answer(&said, "monitor seek +1", 0);
    assert!(answered.starts_with("two processes are stopped here"), "{said}");
}
