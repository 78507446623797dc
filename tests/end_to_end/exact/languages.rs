//! From an effect back to its cause in programs of other languages than C.

use super::record;
use crate::support::{Scene, answer, assert_in_order, contraflow, have, run_gdb, text};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Compiles a program, records its run, and returns what gdb says. None: there is no compiler.
fn gdb(compiler: &[&str], source: &str, commands: &str) -> Option<String> {
    if !have(compiler[0]) || !have("gdb") {
        return None;
    }
    let scene = Scene::new();
    let program = scene.path("program");
    let mut compile = Command::new(compiler[0]);
    compile.args(&compiler[1..]).arg("-o").arg(&program).arg(source_of(source));
    // Go's compiler keeps what it compiled.
    compile.env("GOCACHE", scene.path("go")).env("GOFLAGS", "-mod=mod");
    let output = compile.output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let (dir, _) = record(&scene, &[program.to_str().unwrap()]);
    Some(replay(&dir, &[], commands))
}

fn source_of(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/exact").join(name)
}

fn replay(dir: &Path, options: &[&str], commands: &str) -> String {
    let mut replay = contraflow();
    replay.arg("replay").arg(dir).args(["--", "-nx", "-batch"]).args(options);
    run_gdb(replay, commands)
}

/// The reference that is written through is the vector's old memory.
#[test]
fn an_exception_of_cpp_leads_to_the_stale_reference() {
    let Some(said) = gdb(
        &["g++", "-g", "-O0"],
        "stock.cpp",
        "cf-home
         print name
         print shelf.items.size()
         print shelf.items[0]
         reverse-continue
         cf-seek end
         cf-home
         print shelf.items[0]
         break deliver if count == 3
         reverse-continue
         next
         next
         next
         print &item == &shelf.items[0]
         print box.name",
    ) else {
        return;
    };
    let home = answer(&said, "cf-home", 0);
    assert_in_order(home, &["in sell (", "count=3", "throw std::runtime_error"]);
    assert!(answer(&said, "print name", 0).contains("apples"), "{said}");
    assert!(answer(&said, "print shelf.items.size()", 0).ends_with("= 6"), "{said}");
    // The libraries, and their pretty-printers, are there again after a visit to the program's start.
    assert_eq!(answer(&said, "cf-home", 1), home);
    let item = |nth| answer(&said, "print shelf.items[0]", nth).split_once(" = ").unwrap().1;
    assert_eq!(item(0), item(1));
    assert_in_order(answer(&said, "reverse-continue", 1), &["deliver (", "count=3"]);
    let is_current = answer(&said, "print &item == &shelf.items[0]", 0);
    assert!(is_current.ends_with("= false"), "{said}");
    assert!(answer(&said, "print box.name", 0).contains("box of apples"), "{said}");
}

#[test]
fn a_panic_of_rust_leads_to_the_wrong_index() {
    let Some(said) = gdb(
        &["rustc", "-g"],
        "ledger.rs",
        "break rust_panic
         reverse-continue
         cf-home
         print entry.account
         delete
         break ledger::account_of if branch == 3 && customer == 3
         reverse-continue
         info args
         finish",
    ) else {
        return;
    };
    assert_in_order(answer(&said, "cf-home", 0), &["in ledger::settle (", "entry.account"]);
    assert!(answer(&said, "print entry.account", 0).ends_with("= 18"), "{said}");
    assert_in_order(answer(&said, "reverse-continue", 1), &["hit Breakpoint 2", "account_of"]);
    assert_in_order(answer(&said, "info args", 0), &["customer = 3", "branch = 3"]);
    assert!(answer(&said, "finish", 0).contains("Value returned is $2 = 18"), "{said}");
}

#[test]
fn a_wrong_sum_of_go_leads_to_the_goroutine_that_forgot() {
    let Some(said) = gdb(
        &["go", "build", "-gcflags=all=-N -l"],
        "bank.go",
        "cf-home
         print sum
         print 'main.accounts'[3].balance
         cf-last 'main.accounts'[3].balance
         break main.transfer if from == 2 && amount == 7
         reverse-continue
         info args
         finish
         up
         info locals",
    ) else {
        return;
    };
    assert_in_order(answer(&said, "cf-home", 0), &["in main.main ()", "os.Exit(1)"]);
    assert!(answer(&said, "print sum", 0).ends_with("= 3986"), "{said}");
    let last = answer(&said, "cf-last 'main.accounts'[3].balance", 0);
    assert_in_order(last, &["in main.transfer (", "and becomes "]);
    assert_in_order(answer(&said, "reverse-continue", 0), &["hit Breakpoint 1, main.transfer"]);
    assert_in_order(answer(&said, "info args", 0), &["from = 2", "to = 3", "amount = 7"]);
    assert!(answer(&said, "finish", 0).contains("in main.main.func1 (worker="), "{said}");
}

/// The frames of Python's interpreter at two places of the past, by the script that its installation
/// has beside the interpreter, in a directory that the user trusts.
#[test]
fn the_frames_of_python_are_known_in_the_past() {
    if !have("python3") || !have("gdb") {
        return;
    }
    let ask = ["-c", "import os, sys; print(os.path.realpath(sys.executable))"];
    let python = Command::new("python3").args(ask).output().unwrap();
    let python = text(&python.stdout).trim().to_owned();
    let beside = format!("{python}-gdb.py");
    let installed = format!("/usr/share/gdb/auto-load{beside}");
    if !Path::new(&beside).exists() && !Path::new(&installed).exists() {
        eprintln!("SKIPPED: neither {beside} nor {installed}");
        return;
    }
    let scene = Scene::new();
    let script = source_of("tree.py");
    let (dir, _) = record(&scene, &[&python, script.to_str().unwrap()]);
    let trusted = Path::new(&python).parent().unwrap().display();
    let options = ["-iex", &format!("add-auto-load-safe-path {trusted}")];
    let said =
        replay(&dir, &options, "py-bt\nbreak builtin_len\nreverse-continue\npy-bt\npy-up\nbt 1");
    if said.contains("not defined") {
        eprintln!("SKIPPED: {python} has no symbols");
        return;
    }
    assert_in_order(answer(&said, "py-bt", 0), &["tree.py\", line 21", "os.abort()"]);
    let deep = ["tree.py\", line 14, in spoil", "len(\"spoilt\")", "line 18, in <module>"];
    assert_in_order(answer(&said, "py-bt", 1), &deep);
}
