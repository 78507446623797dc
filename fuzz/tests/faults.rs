//! Each kind of fault is found, its input is kept, and the line that is printed runs it again.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn feed(file: &Path) -> Output {
    let mut fuzz = Command::new(env!("CARGO_BIN_EXE_contraflow-fuzz"));
    fuzz.arg("faults").arg(file).output().expect("it runs")
}

/// Feeds an input that is at fault; gives what is said and the file that the input is kept in.
fn found(input: &str) -> (String, PathBuf) {
    let file = std::env::temp_dir().join(format!("fault-{}-{input}", std::process::id()));
    fs::write(&file, input).expect("a temporary file");
    let output = feed(&file);
    fs::remove_file(file).expect("a temporary file");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said = String::from_utf8(output.stderr).expect("text");
    let again = said.lines().last().expect("a line").trim();
    let kept = again.strip_prefix("cd fuzz && cargo run --release -- faults ").expect("a command");
    (said.clone(), Path::new(env!("CARGO_MANIFEST_DIR")).join(kept))
}

#[test]
fn each_fault_is_found_and_found_again() {
    let faults = [
        ("panics", "faults: panics on fuzz/artifacts/"),
        ("hangs", "faults: takes more than 500ms on fuzz/artifacts/"),
        ("memory", "faults: aborts; it may have 256 MiB of memory on fuzz/artifacts/"),
        ("stack", "faults: aborts; it may have 256 MiB of memory on fuzz/artifacts/"),
    ];
    for (input, expected) in faults {
        let (said, kept) = found(input);
        assert!(said.contains(expected), "{input}: {said}");
        assert_eq!(fs::read(&kept).expect("the input is kept"), input.as_bytes());
        let again = feed(&kept);
        fs::remove_file(kept).expect("the input is kept");
        assert_eq!(again.status.code(), Some(1), "{again:?}");
    }
}

#[test]
fn what_is_no_fault_is_none() {
    let file = std::env::temp_dir().join(format!("fine-{}", std::process::id()));
    fs::write(&file, "fine").expect("a temporary file");
    let output = feed(&file);
    fs::remove_file(file).expect("a temporary file");
    assert!(output.status.success(), "{output:?}");
}
