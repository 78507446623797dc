//! Shared libraries in gdb and LLDB: at the end, in the past, and where a recording has no final
//! state to read the dynamic linker's list from.

use crate::serve::Live;
use crate::support::{Scene, answer, assert_in_order, contraflow, have, lldb, run_gdb, text};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};

/// A recorder at work on `sorts.c`, with a snapshot of what the program did before it waits.
struct AtWork {
    recorder: Child,
    dir: PathBuf,
    program: PathBuf,
}

impl AtWork {
    fn start(scene: &Scene) -> Self {
        let (dir, program) = (scene.path("recording"), scene.compile("sorts.c", &["-O0"]));
        let mut record = contraflow();
        record
            .env("CONTRAFLOW_HOME", scene.path("store"))
            .args(["record", "-q", "--path", "-o"])
            .arg(&dir);
        record.arg(&program).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut recorder = record.spawn().unwrap();
        let mut ready = String::new();
        BufReader::new(recorder.stdout.as_mut().unwrap()).read_line(&mut ready).unwrap();
        assert_eq!(ready, "ready\n");
        let taken = contraflow().arg("snapshot").arg(&dir).output().unwrap();
        assert!(taken.status.success(), "{}", text(&taken.stderr));
        Self { recorder, dir, program }
    }

    /// Lets the program end, so that the recording has a final state.
    fn finish(&mut self) {
        self.recorder.stdin.take().unwrap().write_all(b"x").unwrap();
        assert_eq!(self.recorder.wait().unwrap().code(), Some(0));
    }
}

impl Drop for AtWork {
    fn drop(&mut self) {
        // It may have ended; its program ends with it.
        let _ = self.recorder.kill();
        let _ = self.recorder.wait();
    }
}

fn assert_gdb_knows_libraries(dir: &Path) {
    let mut replay = contraflow();
    replay.arg("replay").arg(dir).args(["--", "-nx", "-batch"]);
    let commands = "\
        info sharedlibrary
        break qsort
        reverse-continue
        backtrace
        info sharedlibrary
        break ascending
        continue
        backtrace";
    let output = run_gdb(replay, commands);
    for nth in 0..2 {
        let libraries = answer(&output, "info sharedlibrary", nth);
        assert_in_order(libraries, &["Yes", "/libc.so.6"]);
        assert!(libraries.contains("/lib64/ld-linux-x86-64.so.2"), "{output}");
    }
    assert!(answer(&output, "break qsort", 0).contains("Breakpoint 1 at 0x7"), "{output}");
    assert!(answer(&output, "reverse-continue", 0).contains("Breakpoint 1, "), "{output}");
    assert_in_order(answer(&output, "backtrace", 0), &["#0", "qsort", "main () at "]);
    let callback = answer(&output, "backtrace", 1);
    assert_in_order(callback, &["#0", "ascending (", "main () at "]);
    assert!(!callback.contains("??"), "{output}");
    assert!(!output.contains("Unable to find dynamic linker"), "{output}");
}

#[test]
fn gdb_knows_those_of_snapshots_and_cut_recordings() {
    if !have("gdb") || !have("gcc") {
        return;
    }
    let scene = Scene::new();
    let mut work = AtWork::start(&scene);
    assert_gdb_knows_libraries(&work.dir);
    work.recorder.kill().unwrap();
    work.recorder.wait().unwrap();
    assert_gdb_knows_libraries(&work.dir);
}

/// A server on a recording, and its address.
pub(crate) fn serve(dir: &Path) -> (Child, String, BufReader<ChildStderr>) {
    let mut replay = contraflow();
    replay.args(["replay", "--once", "--listen", "127.0.0.1:0"]).arg(dir);
    let mut server = replay.stderr(Stdio::piped()).spawn().unwrap();
    let mut stderr = BufReader::new(server.stderr.take().unwrap());
    let address = loop {
        let mut line = String::new();
        assert!(stderr.read_line(&mut line).unwrap() > 0, "the server has ended");
        if let Some(address) = line.trim().strip_prefix("contraflow: listening on ") {
            break address.to_owned();
        }
    };
    (server, address, stderr)
}

fn assert_lldb_knows_libraries(lldb: &str, work: &AtWork) {
    let (mut server, address, _stderr) = serve(&work.dir);
    let remote = format!("gdb-remote {address}");
    let commands = [&*remote, "image list", "b qsort", "process continue --reverse", "image list"];
    let mut command = Command::new(lldb);
    command.args(["--no-lldbinit", "-b"]);
    for text in commands {
        command.args(["-o", text]);
    }
    let output = command.arg(&work.program).stdin(Stdio::null()).output().unwrap();
    server.wait().unwrap();
    let said = text(&output.stdout);
    assert_in_order(
        &said,
        &[
            "(lldb) image list",
            "libc.so.6",
            "(lldb) b qsort",
            "Breakpoint 1: where = libc.so.6`",
            "stop reason = breakpoint 1.1",
            "libc.so.6`",
            "(lldb) image list",
            "libc.so.6",
        ],
    );
}

#[test]
fn lldb_knows_them_with_and_without_a_final_state() {
    let (Some(lldb), true) = (lldb(), have("gcc")) else { return };
    let scene = Scene::new();
    let mut work = AtWork::start(&scene);
    assert_lldb_knows_libraries(lldb, &work);
    work.finish();
    assert_lldb_knows_libraries(lldb, &work);
}

/// Compiles the library of `namespaces.c`.
pub(crate) fn compile_library(scene: &Scene) -> PathBuf {
    let library = scene.path("libbump.so");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/namespaces.c");
    let flags = ["-DLIBRARY", "-shared", "-fPIC", "-g", "-o"];
    let compiled = Command::new("gcc").args(flags).arg(&library).arg(source).status();
    assert!(compiled.unwrap().success());
    library
}

/// Libraries that `dlmopen` loaded, twice into namespaces of their own: in the past and live.
#[test]
fn gdb_knows_those_of_other_namespaces() {
    if !have("gdb") || !have("gcc") {
        return;
    }
    let scene = Scene::new();
    let program = scene.compile("namespaces.c", &["-O0"]);
    let library = compile_library(&scene);
    let library = library.to_str().unwrap();
    let dir = scene.path("exact");
    let mut record = contraflow();
    record.env("CONTRAFLOW_HOME", scene.path("store")).args(["record", "-q", "-o"]).arg(&dir);
    let recorded = record.arg(&program).arg(library).output().unwrap();
    assert_eq!(text(&recorded.stdout), "56\n", "{}", text(&recorded.stderr));
    let mut replay = contraflow();
    replay.arg("replay").arg(dir).args(["--", "-nx", "-batch"]);
    let commands = "info sharedlibrary\nbreak bump\nreverse-continue\nbacktrace\nfinish\n\
                    reverse-continue\nreverse-continue\nprint n\ninfo sharedlibrary";
    let output = run_gdb(replay, commands);
    let loaded = |nth| answer(&output, "info sharedlibrary", nth).matches("/libbump.so").count();
    assert_eq!((loaded(0), loaded(1)), (2, 1), "{output}");
    assert!(answer(&output, "reverse-continue", 0).contains("bump (n=6)"), "{output}");
    // Its copy of the library has added nothing yet.
    assert!(answer(&output, "finish", 0).ends_with("= 6"), "{output}");
    assert_in_order(answer(&output, "backtrace", 0), &["bump (n=6)", "main (argc=2"]);
    assert!(answer(&output, "print n", 0).ends_with("= 5"), "{output}");
    let live = Live::start_by("exact", &scene, &["--once"], &[program.to_str().unwrap(), library]);
    let output = live.gdb(
        &program,
        "set breakpoint pending on\nbreak bump\ncontinue\nprint n\ncontinue\nprint n\n\
         reverse-continue\nprint n\nreverse-continue\nprint n",
    );
    let values = (0..3).map(|nth| answer(&output, "print n", nth).chars().last());
    assert_eq!(values.collect::<Vec<_>>(), [Some('5'), Some('6'), Some('5')], "{output}");
}

/// Libraries that the program names relative to its directory, in debuggers that run elsewhere.
#[test]
fn gdb_knows_those_with_relative_names() {
    if !have("gdb") || !have("gcc") {
        return;
    }
    let scene = Scene::new();
    let program = scene.compile("namespaces.c", &["-O0"]);
    let library = compile_library(&scene);
    let library = library.canonicalize().unwrap();
    for (name, options) in [("exact", &[][..]), ("path", &["--path"])] {
        let dir = scene.path(name);
        let mut record = contraflow();
        record.env("CONTRAFLOW_HOME", scene.path("store")).current_dir(scene.path(""));
        record.args(["record", "-q"]).args(options).arg("-o").arg(&dir);
        let recorded = record.arg(&program).arg("./libbump.so").output().unwrap();
        assert_eq!(text(&recorded.stdout), "56\n", "{}", text(&recorded.stderr));
        let mut replay = contraflow();
        replay.arg("replay").arg(&dir).args(["--", "-nx", "-batch"]);
        let output = run_gdb(replay, "info sharedlibrary\nbreak bump\nreverse-continue\nbacktrace");
        let listed = answer(&output, "info sharedlibrary", 0);
        assert_eq!(listed.matches(library.to_str().unwrap()).count(), 2, "{name}: {output}");
        let stack = answer(&output, "backtrace", 0);
        assert_in_order(stack, &["bump (", "namespaces.c:", "main ("]);
    }
    let mut serve = contraflow();
    serve.env("CONTRAFLOW_HOME", scene.path("store")).current_dir(scene.path(""));
    serve.args(["serve", ":0", "--once", "--"]).arg(&program).arg("./libbump.so");
    let live = Live::listening(serve);
    let output = live.gdb(
        &program,
        "set breakpoint pending on\nbreak bump\ncontinue\nprint n\ninfo sharedlibrary",
    );
    assert!(answer(&output, "print n", 0).ends_with("= 5"), "{output}");
    let listed = answer(&output, "info sharedlibrary", 0);
    assert!(listed.contains(library.to_str().unwrap()), "{output}");
}
