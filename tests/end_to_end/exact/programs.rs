//! Programs of one kind each, written for what is hard to record.

use super::{PART, assert_replays, check, record};
use crate::support::{Scene, have, text};

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
    replays(&["exact/signals.c", "exact/interrupted.c", "exact/repeated.c", "exact/vectors.c"]);
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
fn threads_take_turns_however_short_their_calls_are() {
    replays(&["exact/unfair.c"]);
}

#[test]
fn a_process_may_end_while_its_threads_do_not() {
    replays(&["exact/leaving_threads.c", "exact/killed.c", "exact/cancelled.c", "first_gone.c"]);
}

#[test]
fn a_process_may_become_others() {
    replays(&["exact/epochs.c", "execthread.c"]);
}

#[test]
fn children_run_natively() {
    replays(&["exact/children.c", "exact/clones.c", "spawns.c"]);
}

#[test]
fn calls_leave_what_they_left() {
    replays(&["exact/descriptors.c", "exact/vsyscall.c", "kernelwrites.c"]);
}

#[test]
fn memory_is_mapped_as_it_was() {
    replays(&["exact/mappings.c", "remapped.c", "overflow.c"]);
}

#[test]
fn all_views_of_a_file_show_the_same_bytes() {
    replays(&["exact/views.c"]);
}

#[test]
fn code_that_changes_replays() {
    replays(&["selfmod.c", "overwritten.c", "twice.c"]);
}

#[test]
fn instructions_return_what_they_returned() {
    replays(&["exact/processor.c", "strings.c"]);
}

#[test]
fn a_recording_ends_before_memory_is_shared_with_a_child() {
    if have("gcc") {
        let scene = Scene::new();
        let program = scene.compile("exact/family.c", &["-w"]);
        let (dir, recorded) = record(&scene, &[program.to_str().unwrap()]);
        let said = text(&recorded.stderr);
        assert!(
            said.contains("forks while memory is mapped that both processes can write"),
            "{said}"
        );
        let verdict = check(&dir);
        assert!(verdict.starts_with(PART) || verdict.starts_with(super::WHOLE), "{verdict}");
    }
}
