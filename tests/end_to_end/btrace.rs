//! gdb's own decoder as an oracle: `record btrace pt`, fed with our stream, prints the
//! instructions that were executed.

use crate::comparison::{addresses, record};
use crate::generated;
use crate::support::{Recorded, Scene, answer, have};
use std::process::Command;

/// Whether gdb was built with libipt.
pub(crate) fn gdb_has_libipt() -> bool {
    let output = Command::new("gdb").arg("--configuration").output();
    let has = output.is_ok_and(|o| String::from_utf8_lossy(&o.stdout).contains("--with-intel-pt"));
    if !has {
        // Not eprintln!, which the test harness swallows.
        let _ = std::io::Write::write_fmt(
            &mut std::io::stderr(),
            format_args!("SKIPPED: gdb has no libipt\n"),
        );
    }
    has
}

fn assert_gdb_agrees(source: &str, flags: &[&str]) {
    if !have("gcc") || !have("gdb") || !gdb_has_libipt() {
        return;
    }
    let scene = Scene::new();
    let program = scene.compile(source, flags);
    let recorded = scene.record(&[program.to_str().unwrap()]);
    let log = recorded.logged(recorded.main_thread());
    assert!(log.len() > 50_000, "{} instructions", log.len());
    assert_gdb_lists(&recorded, &log);
}

/// The same of what a translated program recorded, where our own decoder says what is right.
fn assert_gdb_agrees_on_soft(scene: &Scene, command: &[&str]) {
    if !have("gdb") || !gdb_has_libipt() {
        return;
    }
    let (dir, output) = record(scene, "soft", &[], command);
    let path = addresses(&dir);
    let recorded = Recorded { dir, log: scene.path("log"), output };
    assert_gdb_lists(&recorded, &path);
}

fn assert_gdb_lists(recorded: &Recorded, path: &[u64]) {
    let output = recorded.gdb(
        "record btrace pt
         info record
         record instruction-history 1,100000000",
    );
    let history = answer(&output, "record instruction-history 1,100000000", 0);
    let shown: Vec<u64> = history
        .lines()
        // An arrow marks the instructions at the address where gdb stands.
        .filter_map(|line| {
            line.split_once('\t')?.1.trim_start_matches(['=', '>', ' ']).strip_prefix("0x")
        })
        .filter_map(|rest| rest.split([' ', '\t', ':']).next())
        .filter_map(|addr| u64::from_str_radix(addr, 16).ok())
        .collect();
    for (number, (ours, gdbs)) in path.iter().zip(&shown).enumerate() {
        assert_eq!(ours, gdbs, "instruction {number}: {ours:x} executed, {gdbs:x} by gdb");
    }
    assert_eq!(path.len(), shown.len(), "{}", &output[..output.len().min(2000)]);
}

#[test]
fn gdb_decodes_the_same_instructions() {
    assert_gdb_agrees("recursion.c", &["-O2"]);
}

#[test]
fn gdb_decodes_an_endless_recursion_alike() {
    assert_gdb_agrees("overflow.c", &["-O0"]);
}

#[test]
fn gdb_decodes_signal_handlers_alike() {
    assert_gdb_agrees("handler.c", &[]);
}

#[test]
fn gdb_decodes_translated_programs_alike() {
    if have("gcc") {
        for (source, flags) in
            [("recursion.c", &["-O2"][..]), ("strings.c", &[]), ("handler.c", &[])]
        {
            let scene = Scene::new();
            let program = scene.compile(source, flags);
            assert_gdb_agrees_on_soft(&scene, &[program.to_str().unwrap()]);
        }
    }
}

#[test]
fn gdb_decodes_generated_programs_alike() {
    if have("gcc") {
        for seed in [1, 2, 3] {
            let scene = Scene::new();
            let program = generated::of_seed(&scene, seed);
            assert_gdb_agrees_on_soft(&scene, &[program.to_str().unwrap()]);
        }
    }
}
