//! Each file of a recording, damaged in each way: `info` names it, and nobody walks on what it
//! says.

use crate::support::{Recorded, Scene, contraflow, text};
use std::fs;
use std::io::{Read, Seek};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// All files of a recording but the index, by their paths in it.
fn files(recorded: &Recorded) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for dir in ["", "trace", "images"] {
        for entry in fs::read_dir(recorded.dir.join(dir)).unwrap() {
            let path = entry.unwrap().path();
            if path.is_file() && !path.ends_with("index.bin") {
                files.push(path.strip_prefix(&recorded.dir).unwrap().to_owned());
            }
        }
    }
    assert!(files.len() >= 8, "{files:?}");
    files
}

/// Runs something that must not wait for anybody.
fn at_once(command: &mut Command) -> Output {
    // Files, which take all that comes.
    let mut streams = [(); 2].map(|()| tempfile::tempfile().unwrap());
    let [stdout, stderr] = streams.each_ref().map(|file| file.try_clone().unwrap());
    let mut child = command.stdin(Stdio::null()).stdout(stdout).stderr(stderr).spawn().unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if Instant::now() > deadline {
            child.kill().unwrap();
            panic!("{command:?} hangs");
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let [stdout, stderr] = streams.each_mut().map(|file| {
        let mut bytes = Vec::new();
        file.rewind().unwrap();
        file.read_to_end(&mut bytes).unwrap();
        bytes
    });
    Output { status, stdout, stderr }
}

/// What `info` complains of, with the exit status that says so.
fn complaint(recorded: &Recorded) -> String {
    let output = at_once(contraflow().arg("info").arg(&recorded.dir));
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(if said.is_empty() { 0 } else { 2 }), "{said}");
    assert!(!said.contains("panicked"), "{said}");
    said
}

fn each_file(harm: impl Fn(&Path, &[u8]), also: impl Fn(&Recorded, &Path)) {
    let scene = Scene::new();
    let recorded = scene.record(&["/bin/true"]);
    assert_eq!(complaint(&recorded), "");
    for file in files(&recorded) {
        let path = recorded.dir.join(&file);
        let bytes = fs::read(&path).unwrap();
        harm(&path, &bytes);
        let said = complaint(&recorded);
        assert!(said.contains(file.to_str().unwrap()), "{} is not in {said:?}", file.display());
        also(&recorded, &file);
        let _ = fs::remove_file(&path);
        fs::write(&path, &bytes).unwrap();
    }
    assert_eq!(complaint(&recorded), "");
}

/// What walks the path must refuse, or say what is lost; the path needs no core.
fn dump_says(recorded: &Recorded, file: &Path) {
    let output = at_once(contraflow().args(["dump", "insns", "--addresses"]).arg(&recorded.dir));
    let said = text(&output.stderr);
    if file.ends_with("core") {
        assert_eq!(said, "");
    } else {
        assert!(said.contains(file.to_str().unwrap()), "{} is not in {said:?}", file.display());
        let refused = output.status.code() == Some(2) && output.stdout.is_empty();
        // Not all code that was mapped was executed.
        assert!(refused || file.starts_with("images"), "{said}");
    }
}

#[test]
fn a_changed_byte() {
    let harm = |path: &Path, bytes: &[u8]| {
        let mut bytes = bytes.to_owned();
        let at = bytes.len() / 2;
        bytes[at] ^= 0x10;
        fs::write(path, bytes).unwrap();
    };
    each_file(harm, dump_says);
}

#[test]
fn a_file_cut_short() {
    each_file(|path, bytes| fs::write(path, &bytes[..bytes.len() / 2]).unwrap(), dump_says);
}

#[test]
fn an_empty_file() {
    each_file(|path, _| fs::write(path, "").unwrap(), dump_says);
}

#[test]
fn a_file_that_is_gone() {
    let scene = Scene::new();
    let recorded = scene.record(&["/bin/true"]);
    for file in files(&recorded).iter().filter(|file| !file.ends_with("manifest.json")) {
        let (path, aside) = (recorded.dir.join(file), scene.path("aside"));
        fs::rename(&path, &aside).unwrap();
        let said = complaint(&recorded);
        assert!(said.contains(file.to_str().unwrap()), "{} is not in {said:?}", file.display());
        fs::rename(&aside, &path).unwrap();
    }
}

#[test]
fn something_else_in_a_files_place() {
    let fifo = |path: &Path, _: &[u8]| {
        fs::remove_file(path).unwrap();
        assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
    };
    each_file(fifo, |recorded, file| {
        dump_says(recorded, file);
        fs::remove_file(recorded.dir.join(file)).unwrap();
        std::os::unix::fs::symlink("/dev/zero", recorded.dir.join(file)).unwrap();
        assert!(complaint(recorded).contains("a symbolic link, not a file"));
    });
}

/// Makes the checksums agree with another manifest.
fn agree(dir: &Path, manifest: &str) {
    let sums = dir.join("checksums");
    let lines = fs::read_to_string(&sums).unwrap();
    let mut lines: Vec<_> = lines.lines().map(str::to_owned).collect();
    lines.pop();
    let sum = |text: &str| format!("{:08x} {}", crc32fast::hash(text.as_bytes()), text.len());
    for line in lines.iter_mut().filter(|line| line.ends_with(" manifest.json")) {
        *line = sum(manifest) + " manifest.json";
    }
    let all = lines.join("\n") + "\n";
    fs::write(&sums, format!("{all}{} checksums\n", sum(&all))).unwrap();
}

/// A count that is not the trace's is said by everything that decodes it.
#[test]
fn a_path_that_is_not_what_was_recorded() {
    let scene = Scene::new();
    let recorded = scene.record(&["/bin/true"]);
    let manifest = recorded.dir.join("manifest.json");
    let mut changed: serde_json::Value =
        serde_json::from_slice(&fs::read(&manifest).unwrap()).unwrap();
    let thread = &mut changed["end"]["threads"][0]["instructions"];
    let count = thread.as_u64().unwrap();
    assert!(!text(&recorded.output.stderr).contains("not exact"));
    *thread = (count + 3).into();
    fs::write(&manifest, changed.to_string()).unwrap();
    agree(&recorded.dir, &changed.to_string());
    let wanted =
        format!("{} instructions were recorded, but its trace decodes to {count}", count + 3);
    let said = text(&recorded.dump(&["stats"]).stderr);
    assert!(said.contains(&wanted), "{said}");
    let said = text(&contraflow().arg("index").arg(&recorded.dir).output().unwrap().stderr);
    assert!(said.contains(&wanted), "{said}");
    let said = text(&contraflow().arg("info").arg(&recorded.dir).output().unwrap().stdout);
    assert!(said.contains(&wanted), "{said}");
}

#[test]
fn a_thread_that_the_manifest_does_not_name() {
    let scene = Scene::new();
    let recorded = scene.record(&["/bin/true"]);
    let manifest = recorded.dir.join("manifest.json");
    let mut value: serde_json::Value =
        serde_json::from_slice(&fs::read(&manifest).unwrap()).unwrap();
    value["end"]["threads"] = serde_json::json!([]);
    fs::write(&manifest, value.to_string()).unwrap();
    assert!(complaint(&recorded).contains("manifest.json: "));
    // Even where the checksums were made to agree.
    agree(&recorded.dir, &value.to_string());
    assert!(complaint(&recorded).contains("the recording does not list it"));
    let dump = recorded.dump(&["insns"]);
    assert_eq!(dump.status.code(), Some(2), "{}", text(&dump.stderr));
}

#[test]
fn a_damaged_core_is_not_used() {
    let scene = Scene::new();
    let recorded = scene.record(&["/bin/true"]);
    let core = recorded.dir.join("core");
    let mut bytes = fs::read(&core).unwrap();
    let at = bytes.len() - 100;
    bytes[at] ^= 1;
    fs::write(&core, bytes).unwrap();
    let output = at_once(contraflow().args(["replay", "--stdio"]).arg(&recorded.dir));
    let said = text(&output.stderr);
    assert!(said.contains("core: damaged"), "{said}");
    assert!(said.contains("the final registers and memory are unknown"), "{said}");
}

#[test]
fn raw_inputs_that_are_no_files() {
    let scene = Scene::new();
    let fifo = scene.path("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let trace = scene.path("trace");
    fs::write(&trace, [0x02, 0x82].repeat(8)).unwrap();
    let link = scene.path("link");
    std::os::unix::fs::symlink(&trace, &link).unwrap();
    let dump = |arguments: &[&str]| {
        let output = at_once(contraflow().args(["dump", "packets"]).args(arguments));
        (output.status.code(), text(&output.stderr))
    };
    assert_eq!(dump(&["--pt", link.to_str().unwrap()]).0, Some(0));
    let (fifo, trace) = (fifo.to_str().unwrap(), trace.to_str().unwrap());
    assert!(dump(&["--pt", fifo]).1.contains("a FIFO, not a file"));
    let at = format!("{fifo}@1000");
    for code in [["--elf", fifo], ["--core", fifo], ["--code", &at], ["--code-list", fifo]] {
        let output = at_once(contraflow().args(["dump", "insns", "--pt", trace]).args(code));
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("a FIFO, not a file"), "{code:?}: {said}");
    }
}

/// A replay says by which features and which maker the recorded CPU differs from this one.
#[test]
fn another_cpu_is_named() {
    let scene = Scene::new();
    let dir = scene.path("exact");
    let mut record = contraflow();
    record.args(["record", "-q", "-o"]).arg(&dir).args(["--", "/bin/true"]);
    assert!(record.status().unwrap().success());
    let check = || contraflow().arg("check").arg(&dir).output().unwrap();
    assert!(!text(&check().stderr).contains("recorded on a CPU"));
    let manifest = dir.join("manifest.json");
    let mut changed: serde_json::Value =
        serde_json::from_slice(&fs::read(&manifest).unwrap()).unwrap();
    changed["features"].as_array_mut().unwrap().push("apl386".into());
    changed["cpu"]["vendor"] = "GenuineOther".into();
    fs::write(&manifest, changed.to_string()).unwrap();
    agree(&dir, &changed.to_string());
    let said = check();
    let sentences = text(&said.stderr);
    for part in ["with apl386, which this one does not have", "of another maker (GenuineOther;"] {
        assert!(sentences.contains(part), "{sentences}");
    }
    assert!(text(&said.stdout).starts_with("the replay is the recorded run:"));
    // Questions replay it for its path the first time.
    for times in ["first", "second"] {
        let calls = contraflow().arg("calls").arg(&dir).args(["--limit", "1"]).output().unwrap();
        let sentences = text(&calls.stderr);
        assert_eq!(sentences.matches("of another maker").count(), 1, "{times}: {sentences}");
    }
}
