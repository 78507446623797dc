//! Checks the fuzzer itself: each kind of fault is found, its input is kept, and the line that is
//! printed runs it again.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

type Done<T> = Result<T, Box<dyn Error>>;

/// Panics if a fault is not found, or found where there is none.
pub(crate) fn check() -> Done<()> {
    let faults = [
        ("panics", "faults: panics on fuzz/artifacts/"),
        ("hangs", "faults: takes more than 500ms on fuzz/artifacts/"),
        ("memory", "faults: aborts; it may have 256 MiB of memory on fuzz/artifacts/"),
        ("stack", "faults: aborts; it may have 256 MiB of memory on fuzz/artifacts/"),
    ];
    for (input, expected) in faults {
        let (said, kept) = found(input)?;
        assert!(said.contains(expected), "{input}: {said}");
        assert_eq!(fs::read(&kept)?, input.as_bytes());
        let again = feed(&kept)?;
        fs::remove_file(kept)?;
        assert_eq!(again.status.code(), Some(1), "{again:?}");
    }
    let output = of_text("fine")?;
    assert!(output.status.success(), "{output:?}");
    println!("{} kinds of faults are found", faults.len());
    Ok(())
}

/// Returns what is printed of an input at fault, and the file that the input is kept in.
fn found(input: &str) -> Done<(String, PathBuf)> {
    let output = of_text(input)?;
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said = String::from_utf8(output.stderr)?;
    let again = said.lines().last().unwrap_or_default().trim();
    let kept = again
        .strip_prefix("cargo test --test fuzz -- faults ")
        .ok_or("no command to run it again")?;
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join(kept);
    Ok((said, kept))
}

/// Feeds a text from a temporary file.
fn of_text(input: &str) -> Done<Output> {
    let file = std::env::temp_dir().join(format!("fault-{}-{input}", std::process::id()));
    fs::write(&file, input)?;
    let output = feed(&file);
    fs::remove_file(file)?;
    output
}

/// Feeds a file to the target that has faults.
fn feed(file: &Path) -> Done<Output> {
    Ok(Command::new(std::env::current_exe()?).arg("faults").arg(file).output()?)
}
