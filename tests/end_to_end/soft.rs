//! The translating backend against the stepping one and against a run without any: the same
//! path, instruction by instruction, and the same output and exit status.

use crate::comparison::{
    addresses, each_address, native, passes_through, record, same_path, same_stdout, without_gaps,
};
use crate::support::{Scene, address_of, contraflow, have, recordings_in, text};
use std::path::PathBuf;

fn assert_same_path(scene: &Scene, command: &[&str]) -> usize {
    same_path(scene, command).unwrap_or_else(|error| panic!("{command:?}: {error}"))
}

fn assert_passes_through(scene: &Scene, options: &[&str], command: &[&str]) -> PathBuf {
    passes_through(scene, options, command).unwrap_or_else(|error| panic!("{command:?}: {error}"))
}

fn same_path_of(source: &str, flags: &[&str]) {
    if have("gcc") {
        let scene = Scene::new();
        let program = scene.compile(source, flags);
        assert!(assert_same_path(&scene, &[program.to_str().unwrap()]) > 10_000);
    }
}

fn output_of(source: &str, options: &[&str]) {
    if have("gcc") {
        let scene = Scene::new();
        let program = scene.compile(source, &[]);
        let dir = assert_passes_through(&scene, options, &[program.to_str().unwrap()]);
        assert!(!addresses(&dir).is_empty());
    }
}

#[test]
fn plain_code_takes_the_same_path() {
    same_path_of("recursion.c", &["-O0"]);
}

#[test]
fn optimized_static_code_takes_the_same_path() {
    same_path_of("recursion.c", &["-O2", "-static"]);
}

#[test]
fn code_that_changes_takes_the_same_path() {
    same_path_of("selfmod.c", &[]);
}

#[test]
fn string_instructions_and_traps_take_the_same_path() {
    same_path_of("strings.c", &[]);
}

#[test]
fn code_that_is_mapped_twice_takes_the_same_path() {
    same_path_of("twice.c", &[]);
}

#[test]
fn code_that_is_moved_takes_the_same_path() {
    same_path_of("moved_code.c", &["-w"]);
    output_of("moved_code.c", &["--full"]);
}

#[test]
fn code_that_another_thread_changes_is_never_stale() {
    if have("gcc") {
        let scene = Scene::new();
        let program = scene.compile("repatched.c", &["-O1", "-pthread"]);
        let options = ["--full", "--force"];
        for _ in 0..3 {
            let dir = assert_passes_through(&scene, &options, &[program.to_str().unwrap()]);
            without_gaps(&dir).unwrap();
        }
    }
}

#[test]
fn code_that_the_kernel_writes_takes_the_same_path() {
    same_path_of("kernelwrites.c", &[]);
    output_of("submitted.c", &[]);
}

#[test]
fn code_that_is_mapped_anew_takes_the_same_path() {
    if have("gcc") {
        let scene = Scene::new();
        let program = scene.compile("stress.c", &["-O1"]);
        assert!(assert_same_path(&scene, &[program.to_str().unwrap(), "moves"]) > 10_000);
    }
}

#[test]
fn libraries_that_come_and_go() {
    if have("gcc") {
        let scene = Scene::new();
        let program = scene.compile("stress.c", &["-O1"]);
        let dir = assert_passes_through(&scene, &[], &[program.to_str().unwrap(), "libraries"]);
        without_gaps(&dir).unwrap_or_else(|gaps| panic!("{gaps}"));
    }
}

#[test]
fn code_on_the_stack_takes_the_same_path() {
    same_path_of("trampoline.c", &["-O0", "-z", "execstack", "-Wl,--no-warn-execstack"]);
}

#[test]
fn branches_to_nowhere_take_the_same_path() {
    same_path_of("nowhere.c", &[]);
}

#[test]
fn a_program_that_filters_its_system_calls_is_left_alone() {
    if have("gcc") {
        for mode in ["strict", "filter", "bad"] {
            let scene = Scene::new();
            let program = scene.compile("seccomp.c", &[]);
            let command = [program.to_str().unwrap(), mode];
            let dir = scene.path("recording");
            let mut record = contraflow();
            record.args(["record", "--backend", "soft", "-o"]).arg(&dir).args(command);
            record.env("CONTRAFLOW_HOME", scene.path("store"));
            let output = record.output().unwrap();
            same_stdout(&output, &native(&command)).unwrap_or_else(|e| panic!("{mode}: {e}"));
            let said = text(&output.stderr);
            assert!(said.contains("filters its system calls (seccomp)"), "{mode}: {said}");
            assert!(addresses(&dir).len() > 10_000);
        }
    }
}

#[test]
fn blocked_traps_stay_blocked() {
    output_of("blocked.c", &[]);
}

#[test]
fn a_crash_takes_the_same_path() {
    same_path_of("crash.c", &[]);
}

#[test]
fn a_program_of_the_system_takes_the_same_path() {
    let scene = Scene::new();
    assert!(assert_same_path(&scene, &["/bin/ls", "-l", "/etc/passwd"]) > 50_000);
}

#[test]
fn a_ring_keeps_the_end() {
    if have("gcc") {
        let scene = Scene::new();
        let program = scene.compile("fib.c", &["-O1"]);
        let program = program.to_str().unwrap();
        let (end, output) = record(&scene, "soft", &["--ring", "1"], &[program]);
        assert_eq!(text(&output.stdout), "46368\n");
        let end = addresses(&end);
        let again = Scene::new();
        let all = addresses(&record(&again, "soft", &["--full"], &[program]).0);
        assert!(end.len() > 100_000 && all.len() > end.len(), "{} {}", end.len(), all.len());
        assert!(all.ends_with(&end));
    }
}

/// What fills several trace buffers has its hot paths translated anew meanwhile.
#[test]
fn hot_code_takes_the_same_path() {
    if !have("gcc") || !have("nm") {
        return;
    }
    let scene = Scene::new();
    let program = scene.compile("phases.c", &["-O1", "-static"]);
    let command = [program.to_str().unwrap(), "4", "10000"];
    let (dir, output) = record(&scene, "soft", &["--ring", "1"], &command);
    same_stdout(&output, &native(&command)).unwrap();
    without_gaps(&dir).unwrap();
    let functions = ["first", "second", "third"].map(|name| address_of(&program, name));
    let mut hash = 1_u64;
    let path = each_address(&dir, |ip| {
        if let Some(number) = functions.iter().position(|&function| function == ip) {
            hash = hash.wrapping_mul(3).wrapping_add(number as u64);
        }
    });
    path.unwrap();
    assert_eq!(format!("{hash}\n"), text(&output.stdout), "{}", text(&output.stderr));
}

#[test]
fn signal_handlers_run_as_by_themselves() {
    output_of("handler.c", &[]);
}

#[test]
fn threads_run_as_by_themselves() {
    output_of("threads.c", &[]);
}

#[test]
fn children_run_as_by_themselves() {
    output_of("forks.c", &[]);
    output_of("spawns.c", &[]);
}

#[test]
fn exec_by_another_thread_runs_as_by_itself() {
    output_of("execthread.c", &[]);
}

#[test]
fn followed_children_have_recordings_of_their_own() {
    if have("gcc") {
        let scene = Scene::new();
        let program = scene.compile("forks.c", &[]);
        assert_passes_through(&scene, &["--follow-forks"], &[program.to_str().unwrap()]);
        let children = recordings_in(&scene.path("store"));
        assert_eq!(children.len(), 3);
        for child in children {
            assert!(!addresses(&child).is_empty());
        }
    }
}

#[test]
fn scripts_with_pipelines_run_as_by_themselves() {
    let scene = Scene::new();
    let script = "for i in 1 2 3; do echo $i | tr 1-3 a-c; done; (exit 4)";
    assert_passes_through(&scene, &[], &["/bin/bash", "-c", script]);
}

#[test]
fn programs_have_their_own_cpus() {
    if have("gcc") {
        let scene = Scene::new();
        let program = scene.compile("cpus.c", &[]);
        let program = program.to_str().unwrap();
        for command in [&[program][..], &[program, "thread"], &[program, "main", "asks"]] {
            for options in [&[][..], &["--follow-forks"]] {
                let scene = Scene::new();
                assert_passes_through(&scene, options, command);
            }
        }
    }
}

#[test]
fn children_share_their_parents_memory() {
    if have("gcc") {
        let scene = Scene::new();
        let program = scene.compile("sharing.c", &["-O1"]);
        for options in [&[][..], &["--follow-forks"]] {
            let scene = Scene::new();
            assert_passes_through(&scene, options, &[program.to_str().unwrap()]);
        }
    }
}

#[test]
fn what_is_saved_meanwhile_is_what_was_recorded() {
    if have("gcc") {
        let scene = Scene::new();
        let program = scene.compile("recursive.c", &["-O2"]);
        let mut record = contraflow();
        record.args(["record", "--full", "-o"]).arg(scene.path("recording")).arg(program);
        let said =
            text(&record.env("CONTRAFLOW_HOME", scene.path("store")).output().unwrap().stderr);
        assert!(said.contains("exited with status 0") && !said.contains("overwrote"), "{said}");
    }
}

#[test]
fn circles_of_jumps_can_be_interrupted() {
    if have("gcc") {
        let scene = Scene::new();
        let program = scene.compile("circles.c", &["-DCIRCLE_MICROSECONDS=1000"]);
        let command = [program.to_str().unwrap(), "alone"];
        let dir = assert_passes_through(&scene, &[], &command);
        without_gaps(&dir).unwrap();
    }
}

/// Calls in a page of which nobody can read the code.
#[test]
fn calls_of_the_vsyscall_page_take_the_same_path() {
    if !have("gcc") {
        return;
    }
    let scene = Scene::new();
    let program = scene.compile("old_calls.c", &["-O0"]);
    let command = [program.to_str().unwrap()];
    if native(&command).status.success() {
        assert!(assert_same_path(&scene, &command) > 10_000);
    } else {
        // Not eprintln!, which the test harness swallows.
        let _ = std::io::Write::write_fmt(
            &mut std::io::stderr(),
            format_args!("SKIPPED: the kernel has no vsyscall page\n"),
        );
    }
}
