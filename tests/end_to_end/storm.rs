//! Signals as fast as they can be sent, at every instruction of a translated loop: the handler
//! finds the registers of the program there, and the path has no gaps.

use crate::comparison::{each_address, native, record, same_stdout};
use crate::support::{Scene, address_of, have, text};
use std::path::{Path, PathBuf};

fn compile(scene: &Scene) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/storm_loop.S");
    scene.compile("storm.c", &["-O1", "-static", source.to_str().unwrap()])
}

/// The handler finds nothing wrong, and the path of the first thread has each of its runs.
fn storm(mode: &str) {
    if !have("gcc") || !have("nm") {
        return;
    }
    let signals = std::env::var("CONTRAFLOW_SIGNALS").unwrap_or_else(|_| "24".into());
    let scene = Scene::new();
    let program = compile(&scene);
    let command = [program.to_str().unwrap(), mode, &signals];
    let (dir, output) = record(&scene, "soft", &[], &command);
    same_stdout(&output, &native(&command)).unwrap_or_else(|error| panic!("{mode}: {error}"));
    let entry = address_of(&program, "on_signal");
    let mut entered = 0;
    let gaps = each_address(&dir, |ip| entered += usize::from(ip == entry));
    gaps.unwrap_or_else(|gaps| panic!("{mode}: {gaps}"));
    let told = text(&output.stderr);
    let handled: usize = told.split_once(' ').unwrap().0.parse().unwrap();
    // A timer goes on behind the end.
    let late = if mode == "timer" { entered.saturating_sub(handled) } else { 0 };
    assert_eq!(entered, handled + late, "{mode}: {told}");
}

#[test]
fn plain() {
    storm("plain");
}

#[test]
fn nested() {
    storm("nested");
}

#[test]
fn nested_without_end() {
    storm("nodefer");
}

#[test]
fn all_masked_in_the_handler() {
    storm("masked");
}

#[test]
fn on_another_stack() {
    storm("altstack");
}

#[test]
fn out_of_the_handler() {
    storm("longjmp");
}

#[test]
fn beside_a_thread_that_blocks_all() {
    storm("deaf");
}

#[test]
fn beside_a_thread_that_faults() {
    storm("faults");
}

#[test]
fn from_a_timer() {
    storm("timer");
}

#[test]
fn each_in_its_order() {
    storm("queued");
}

#[test]
fn while_the_program_is_stopped_again_and_again() {
    storm("stopped");
}
