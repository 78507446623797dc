//! Other clients, by node: the official test client, `DebugClient` of the npm package
//! `@vscode/debugadapter-testsupport`, if `CONTRAFLOW_TESTSUPPORT` names the directory with its
//! `node_modules`; and the extension for VS Code, without VS Code.

use super::{ledger, line};
use crate::support::{Scene, have, text};
use std::env;
use std::ffi::OsStr;
use std::io::Write;
use std::path::Path;
use std::process::Command;

/// Runs a script of tests/dap on a recording of the ledger.
fn run(script: &str, modules: &OsStr) {
    let scene = Scene::new();
    let (recording, path) = ledger(&scene, false);
    let grows = line(&path, "total grows");
    let output = Command::new("timeout")
        .args(["-s", "KILL", "100", "node", script, env!("CARGO_BIN_EXE_contraflow")])
        .args([&recording, &path])
        .arg(grows.to_string())
        .env("NODE_PATH", modules)
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/dap"))
        .output()
        .expect("node runs");
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
}

#[test]
fn the_official_client_walks_a_recording() {
    let Some(modules) = env::var_os("CONTRAFLOW_TESTSUPPORT") else {
        let note = "SKIPPED: CONTRAFLOW_TESTSUPPORT names no @vscode/debugadapter-testsupport\n";
        let _ = std::io::stderr().write_all(note.as_bytes());
        return;
    };
    if have("gdb") && have("node") {
        run("client.js", &modules);
    }
}

#[test]
fn the_extension_shows_hits_marks_and_writers() {
    if have("gdb") && have("node") {
        run("extension.js", OsStr::new(""));
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
