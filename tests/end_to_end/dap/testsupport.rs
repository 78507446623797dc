//! The official test client, `DebugClient` of the npm package `@vscode/debugadapter-testsupport`, if
//! it is there: `CONTRAFLOW_TESTSUPPORT` names the directory with its `node_modules`.

use super::{ledger, line};
use crate::support::{Scene, have, text};
use std::env;
use std::process::Command;

#[test]
fn the_official_client_walks_a_recording() {
    let Some(modules) = env::var_os("CONTRAFLOW_TESTSUPPORT") else {
        let note = "SKIPPED: CONTRAFLOW_TESTSUPPORT names no @vscode/debugadapter-testsupport\n";
        let _ = std::io::Write::write_all(&mut std::io::stderr(), note.as_bytes());
        return;
    };
    if !have("gdb") || !have("node") {
        return;
    }
    let scene = Scene::new();
    let (recording, path) = ledger(&scene, false);
    let end = line(&path, "end of add");
    let output = Command::new("timeout")
        .args(["-s", "KILL", "60", "node", "tests/dap/client.js", env!("CARGO_BIN_EXE_contraflow")])
        .args([&recording, &path])
        .arg(end.to_string())
        .env("NODE_PATH", modules)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("node runs");
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
}
