//! Other clients, by node: the official test client, `DebugClient` of the npm package
//! `@vscode/debugadapter-testsupport`, if `CONTRAFLOW_TESTSUPPORT` names the directory where npm
//! installed it; and the extension for VS Code, without VS Code.

use super::{ledger, line};
use crate::support::{Scene, have, text};
use std::env;
use std::ffi::OsStr;
use std::io::Write;
use std::path::Path;
use std::process::Command;

/// Runs a script of tests/dap with arguments after the binary.
fn run(script: &str, arguments: &[&OsStr], modules: &OsStr) {
    let output = Command::new("timeout")
        .args(["-s", "KILL", "240", "node", script, env!("CARGO_BIN_EXE_contraflow")])
        .args(arguments)
        .env("NODE_PATH", modules)
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/dap"))
        .output()
        .expect("node runs");
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    // It says what it skipped. Not eprintln!, which the test harness swallows.
    let _ = std::io::stderr().write_all(&output.stderr);
}

/// Makes each request by the official client, with the program of tests/dap/programs in a language.
fn make_each_request(language: &str, source: &str, compiler: &[&str]) {
    run_official("client.js", &[language], source, compiler);
}

/// Runs a script of the official client with a program of tests/dap/programs, which is compiled.
fn run_official(script: &str, arguments: &[&str], source: &str, compiler: &[&str]) {
    let Some(directory) = env::var_os("CONTRAFLOW_TESTSUPPORT") else {
        let note = "SKIPPED: CONTRAFLOW_TESTSUPPORT names no @vscode/debugadapter-testsupport\n";
        let _ = std::io::stderr().write_all(note.as_bytes());
        return;
    };
    if !["gdb", "node", compiler[0]].into_iter().all(have) {
        return;
    }
    let scene = Scene::new();
    let program = scene.path("tour");
    let programs = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/dap/programs");
    let mut compile = Command::new(compiler[0]);
    compile.args(&compiler[1..]).arg("-o").arg(&program).arg(programs.join(source));
    let output = compile.output().expect("the compiler runs");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let directory = Path::new(&directory);
    let modules =
        env::join_paths([directory.join("node_modules"), directory.to_path_buf()]).unwrap();
    let place = scene.path("");
    let mut all: Vec<&OsStr> = arguments.iter().map(OsStr::new).collect();
    all.extend([program.as_os_str(), place.as_os_str()]);
    run(script, &all, &modules);
}

#[test]
fn the_official_client_is_shown_a_million_elements_and_hits() {
    run_official("vast.js", &[], "vast.cpp", &["g++", "-g", "-O0", "-pthread"]);
}

#[test]
fn the_official_client_makes_each_request_with_c() {
    make_each_request("c", "tour.c", &["gcc", "-g", "-O0", "-pthread"]);
}

#[test]
fn the_official_client_makes_each_request_with_cpp() {
    make_each_request("cpp", "tour.cpp", &["g++", "-g", "-O0", "-pthread"]);
}

#[test]
fn the_official_client_makes_each_request_with_rust() {
    // Checks for null pointers would be lines of their own.
    make_each_request("rust", "tour.rs", &["rustc", "-g", "-C", "debug-assertions=off"]);
}

#[test]
fn the_extension_shows_hits_marks_and_writers() {
    if have("gdb") && have("node") {
        let scene = Scene::new();
        let (recording, path) = ledger(&scene, false);
        let grows = line(&path, "total grows").to_string();
        let arguments = [recording.as_os_str(), path.as_os_str(), OsStr::new(&grows)];
        run("extension.js", &arguments, OsStr::new(""));
    }
}

#[test]
fn the_extension_is_packed() {
    if !have("python3") {
        return;
    }
    let scene = Scene::new();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/editors");
    let packed = scene.path("contraflow.vsix");
    let script = root.join("mkvsix.py");
    let status = Command::new("python3").arg(script).arg(root.join("vscode")).arg(&packed).status();
    assert!(status.unwrap().success());
    let listed = Command::new("python3").args(["-m", "zipfile", "-l"]).arg(&packed).output();
    let listed = text(&listed.unwrap().stdout);
    for name in ["extension.vsixmanifest", "[Content_Types].xml", "extension/package.json"] {
        assert!(listed.contains(name), "{listed}");
    }
}
