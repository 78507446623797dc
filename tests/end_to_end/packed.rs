//! Packed recordings: replayed after everything that was recorded is gone.

use crate::support::{Scene, answer, contraflow, have, recordings_in, run_gdb, text};
use contraflow::recording::import::Imported;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

fn run(scene: &Scene, arguments: &[&str]) -> Output {
    let mut command = contraflow();
    command.current_dir(scene.path("")).env("CONTRAFLOW_HOME", scene.path("store"));
    command.args(arguments).stdin(Stdio::null()).output().expect("contraflow runs")
}

/// Runs a command that must succeed, and returns all it prints.
fn said(scene: &Scene, arguments: &[&str]) -> String {
    let output = run(scene, arguments);
    let said = text(&output.stdout) + &text(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {said}");
    said
}

/// Records a program of a scene's own, with a library of its own, and removes both.
fn recorded(scene: &Scene, options: &[&str]) -> Option<PathBuf> {
    if !have("gcc") || !have("gdb") {
        return None;
    }
    let place = scene.path("ci");
    fs::create_dir(&place).unwrap();
    fs::write(place.join("part.c"), "int part(int n)\n{\n    return 100 / n;\n}\n").unwrap();
    let main = "int part(int);\nint main(void)\n{\n    int sum = 0;\n    \
                for (int i = 3; i >= 0; i--)\n        sum += part(i);\n    return sum;\n}\n";
    fs::write(place.join("main.c"), main).unwrap();
    for flags in [
        "-shared -fPIC -Wl,-soname,libpart.so.1 -o libpart.so.1.0 part.c",
        "-o main main.c libpart.so -Wl,-rpath,$ORIGIN",
    ] {
        let mut gcc = Command::new("gcc");
        gcc.current_dir(&place).args(["-g", "-O0"]).args(flags.split(' '));
        assert!(gcc.status().unwrap().success());
        for name in ["libpart.so", "libpart.so.1"] {
            let _ = std::os::unix::fs::symlink("libpart.so.1.0", place.join(name));
        }
    }
    // The program is started by another name than that of its file.
    std::os::unix::fs::symlink("main", place.join("start")).unwrap();
    let mut record = contraflow();
    record.args(["record", "-q", "-o"]).arg(scene.path("original")).args(options);
    let status = record.arg(place.join("start")).stdin(Stdio::null()).status().unwrap();
    assert_eq!(status.code(), Some(128 + 8));
    Some(place)
}

/// Walks back through the crash.
fn walk(scene: &Scene, recording: &str) -> String {
    let mut replay = contraflow();
    replay.current_dir(scene.path("")).args(["replay", recording, "--", "-nx", "-batch"]);
    run_gdb(
        replay,
        "bt\ninfo sharedlibrary\ninfo functions -q ^part$\nbreak part\nreverse-continue\n\
         reverse-continue\nprint n\nup\nprint sum\ninfo line",
    )
}

fn assert_walked(walked: &str, has_values: bool) {
    let bt = answer(walked, "bt", 0);
    assert!(bt.contains("in part (") && bt.contains("in main ()"), "{walked}");
    assert!(answer(walked, "info sharedlibrary", 0).contains("libpart.so.1"), "{walked}");
    assert!(answer(walked, "info functions -q ^part$", 0).contains("int part(int);"), "{walked}");
    assert!(answer(walked, "info line", 0).contains("main.c"), "{walked}");
    if has_values {
        assert!(answer(walked, "print n", 0).ends_with("= 1"), "{walked}");
        assert!(answer(walked, "print sum", 0).ends_with("= 83"), "{walked}");
    }
}

/// Packs the recording, and removes it with the program.
fn only_packed(scene: &Scene, place: &Path) {
    let packed = said(scene, &["pack", "original", "-o", "crash.cfpack"]);
    assert!(packed.contains("contraflow replay crash.cfpack"), "{packed}");
    fs::remove_dir_all(scene.path("original")).unwrap();
    fs::remove_dir_all(place).unwrap();
}

#[test]
fn an_exact_one_replays_without_anything_else() {
    let scene = Scene::new();
    let Some(place) = recorded(&scene, &[]) else { return };
    let before = walk(&scene, "original");
    assert_walked(&before, true);
    only_packed(&scene, &place);
    let checked = said(&scene, &["check", "crash.cfpack"]);
    assert!(checked.starts_with("the replay is the recorded run:"), "{checked}");
    assert_walked(&walk(&scene, "crash.cfpack"), true);
    let info = said(&scene, &["info", "crash.cfpack"]);
    assert!(info.starts_with("recording    crash.cfpack\n"), "{info}");
    assert!(said(&scene, &["dump", "log", "crash.cfpack"]).lines().count() > 10);
    // Unpacked into the store it is the latest.
    let unpacked = said(&scene, &["unpack", "crash.cfpack"]);
    assert!(unpacked.ends_with("with: contraflow replay\n"), "{unpacked}");
    let listed = said(&scene, &["list"]);
    assert!(listed.starts_with("start-0 ") && listed.lines().count() == 1, "{listed}");
    said(&scene, &["check"]);
    said(&scene, &["rm", "start-0"]);
    assert_eq!(said(&scene, &["list"]), "");
    said(&scene, &["unpack", "-q", "crash.cfpack", "-o", "here/there"]);
    assert_walked(&walk(&scene, "here/there"), true);
}

#[test]
fn a_path_is_packed_as_well() {
    let scene = Scene::new();
    let Some(place) = recorded(&scene, &["--backend", "soft"]) else { return };
    said(&scene, &["index", "original"]);
    let whole = said(&scene, &["dump", "insns", "--addresses", "original"]);
    only_packed(&scene, &place);
    assert_walked(&walk(&scene, "crash.cfpack"), false);
    assert_eq!(said(&scene, &["dump", "insns", "--addresses", "crash.cfpack"]), whole);
}

#[test]
fn files_and_directories_are_not_overwritten() {
    let scene = Scene::new();
    let recorded = scene.record_with(&["--quiet"], &["/bin/true"]);
    fs::write(scene.path("recording.cfpack"), "mine").unwrap();
    let refused = |arguments: &[&str], why: &str| {
        let output = run(&scene, arguments);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains(why), "{arguments:?}: {said}");
    };
    refused(&["pack", "recording"], "recording.cfpack: exists already; --force replaces it");
    refused(&["replay", "recording.cfpack"], "recording.cfpack: not a packed recording");
    refused(&["unpack", "recording.cfpack", "-o", "new"], "not a packed recording");
    assert!(!scene.path("new").exists());
    assert_eq!(fs::read(scene.path("recording.cfpack")).unwrap(), b"mine");
    said(&scene, &["pack", "recording", "--force", "-q"]);
    fs::create_dir(scene.path("full")).unwrap();
    fs::write(scene.path("full/mine"), "").unwrap();
    refused(&["unpack", "recording.cfpack", "-o", "full"], "not empty, and not a recording");
    refused(&["unpack", "recording.cfpack", "-o", "recording"], "--force replaces it");
    said(&scene, &["unpack", "recording.cfpack", "-o", "recording", "--force"]);
    assert!(recorded.dir.join("manifest.json").exists());
    for command in ["rm", "index", "pack"] {
        refused(&[command, "recording.cfpack"], "a file, not a recording's directory; `contraflow");
    }
    refused(&["unpack", "recording"], "a directory, not a file");
    let hidden = |entry: &fs::DirEntry| entry.file_name().to_string_lossy().starts_with('.');
    let left = fs::read_dir(scene.path("")).unwrap().flatten().filter(hidden).count();
    assert_eq!(left, 0);
}

/// An unpacking that is killed at any time leaves no recording, and the next one removes the rest.
#[test]
fn a_killed_unpacking_leaves_nothing_that_opens() {
    let scene = Scene::new();
    let recorded = scene.record_with(&["--quiet"], &["/bin/true"]);
    // Bytes that take some time.
    let image = recorded.dir.join("images").join("0".repeat(64));
    fs::write(&image, vec![7; 30 << 20]).unwrap();
    let store = scene.path("store");
    let left = || recordings_in(&store).into_iter();
    let is_hidden = |path: &PathBuf| path.file_name().unwrap().to_string_lossy().starts_with('.');
    // It is complete, but for the list, which does not have that file.
    fs::rename(recorded.dir.join("manifest.json"), recorded.dir.join("starting.json")).unwrap();
    fs::remove_file(recorded.dir.join("checksums")).unwrap();
    let hash = Command::new("sha256sum").arg(&image).output().unwrap();
    let name = text(&hash.stdout).split(' ').next().unwrap().to_owned();
    fs::rename(&image, image.with_file_name(name)).unwrap();
    said(&scene, &["pack", "recording", "-q"]);
    let mut interrupted = 0;
    for step in 0..20 {
        let mut command = contraflow();
        command.env("CONTRAFLOW_HOME", &store).args(["unpack", "-q"]);
        let mut child = command.arg(scene.path("recording.cfpack")).spawn().unwrap();
        let deadline = Instant::now() + Duration::from_millis(3 * step);
        while Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
        child.kill().unwrap();
        if child.wait().unwrap().success() {
            continue;
        }
        interrupted += usize::from(left().any(|path| is_hidden(&path)));
        let listed = said(&scene, &["list"]);
        assert!(!listed.contains("cannot be opened"), "{listed}");
    }
    assert!(interrupted > 0);
    said(&scene, &["unpack", "-q", scene.path("recording.cfpack").to_str().unwrap()]);
    assert!(!left().any(|path| is_hidden(&path)), "{:?}", left().collect::<Vec<_>>());
}

/// A program built outside of its sources, with its debug information in a file of its own; a part
/// claims to be of a file that is nobody's source.
#[test]
fn sources_and_debug_files_come_with_it() {
    let scene = Scene::new();
    if !have("gcc") || !have("gdb") || !have("objcopy") {
        return;
    }
    let build = scene.path("proj/build");
    fs::create_dir_all(&build).unwrap();
    fs::create_dir(scene.path("proj/src")).unwrap();
    let half = "int half(int n)\n{\n    return 10 / n; /* here */\n}\n";
    fs::write(scene.path("proj/src/half.c"), half).unwrap();
    let main = "int half(int);\nint main(void)\n{\n    return half(0); /* there */\n}\n\
                #line 1 \"/etc/passwd\"\nint other(void)\n{\n    return 1;\n}\n";
    fs::write(scene.path("proj/src/main.c"), main).unwrap();
    let run_in = |command: &str| {
        let command = command.replace("BUILD", build.to_str().unwrap());
        let mut words = command.split(' ');
        let mut run = Command::new(words.next().unwrap());
        assert!(run.current_dir(&build).args(words).status().unwrap().success(), "{command}");
    };
    run_in("gcc -g -O0 -Wl,--build-id ../src/main.c BUILD/../src/half.c -o prog");
    run_in("objcopy --only-keep-debug prog prog.debug");
    run_in("objcopy --strip-all --add-gnu-debuglink=prog.debug prog");
    let mut record = contraflow();
    record.args(["record", "-q", "-o"]).arg(scene.path("original")).arg(build.join("prog"));
    assert_eq!(record.stdin(Stdio::null()).status().unwrap().code(), Some(128 + 8));
    said(&scene, &["pack", "original", "-o", "plain.cfpack"]);
    said(&scene, &["pack", "original", "-o", "full.cfpack", "--sources"]);
    fs::remove_dir_all(scene.path("original")).unwrap();
    fs::remove_dir_all(scene.path("proj")).unwrap();
    let walk = |recording: &str| {
        let mut replay = contraflow();
        replay.current_dir(scene.path("")).args(["replay", recording, "--", "-nx", "-batch"]);
        run_gdb(replay, "bt\nframe 0\nframe 1")
    };
    let plain = walk("plain.cfpack");
    assert!(answer(&plain, "bt", 0).contains("in half (n=0) at "), "{plain}");
    assert!(!plain.contains("here"), "{plain}");
    said(&scene, &["unpack", "-q", "full.cfpack", "-o", "unpacked"]);
    for recording in ["full.cfpack", "unpacked"] {
        let full = walk(recording);
        assert!(answer(&full, "frame 0", 0).contains("return 10 / n; /* here */"), "{full}");
        assert!(answer(&full, "frame 1", 0).contains("return half(0); /* there */"), "{full}");
    }
    assert!(!scene.path("unpacked/sources/etc").exists());
    // What was added is checked, and packed again.
    said(&scene, &["pack", "unpacked", "-q", "-o", "again.cfpack"]);
    assert!(walk("again.cfpack").contains("here"));
    let main =
        scene.path("unpacked/sources").join(&build.to_str().unwrap()[1..]).join("../src/main.c");
    fs::write(main, "other").unwrap();
    let info = run(&scene, &["info", "unpacked"]);
    assert!(text(&info.stderr).contains("main.c"), "{}", text(&info.stderr));
}

/// The name of the program in a packed recording is another's: it cannot lead out of the store.
#[test]
fn a_program_that_names_another_directory_is_unpacked_into_the_store() {
    let scene = Scene::new();
    fs::create_dir_all(scene.path("other/inside")).unwrap();
    let program = format!("{}/..", scene.path("other/inside").display());
    Imported { program, ..Imported::default() }.write(&scene.path("original")).unwrap();
    said(&scene, &["pack", "-q", "original", "-o", "it.cfpack"]);
    let unpacked = said(&scene, &["unpack", "it.cfpack"]);
    let others: Vec<_> = fs::read_dir(scene.path("other/inside")).unwrap().collect();
    assert!(others.is_empty(), "{unpacked}");
    assert!(said(&scene, &["list"]).starts_with("program-0 "), "{unpacked}");
}
