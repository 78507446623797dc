//! Compiles programs and compares the results of queries with `addr2line`, `nm` and gdb.

mod debug_files;
mod handmade;
mod hostile;
mod oracles;
mod tables;

use super::*;
use crate::common::{Addr, AddrRange};
use crate::image::Bytes;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Reads a file of this machine.
fn disk(path: &Path) -> Option<Bytes> {
    std::fs::read(path).ok().map(Bytes::from)
}

const BIAS: u64 = 0x5555_0000_0000;

/// Returns the symbols of the program at `path`, loaded at `BIAS`.
fn symbols(path: &Path) -> Symbols {
    symbols_with(path, disk)
}

fn symbols_with(path: &Path, files: impl Files + 'static) -> Symbols {
    let mut symbols = Symbols::new(files);
    let range = AddrRange::sized(Addr(BIAS), 1 << 32);
    symbols.add_module(path.to_str().unwrap(), disk(path).unwrap(), BIAS, range);
    symbols
}

/// Returns a tool's output; prints a notice and returns `None` if it is missing.
fn run(tool: &str, args: &[&str]) -> Option<String> {
    let Ok(output) = Command::new(tool).args(args).env("LC_ALL", "C").output() else {
        // Not eprintln!, which the test harness captures.
        let _ = std::io::Write::write_fmt(
            &mut std::io::stderr(),
            format_args!(
                "SKIPPED: {tool} is not installed; install it to test symbols against it\n"
            ),
        );
        return None;
    };
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{tool} {args:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Some(said)
}

/// A compiled program, with its temporary directory, which is removed on drop.
struct Program {
    directory: tempfile::TempDir,
    path: PathBuf,
}

impl Program {
    fn arg(&self) -> &str {
        self.path.to_str().unwrap()
    }
}

/// Compiles `source`, a file of this directory; `None` if there is no compiler.
fn compile(compiler: &str, source: &str, options: &[&str]) -> Option<Program> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("program");
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/symbols/tests").join(source);
    let mut args = vec![from.to_str().unwrap(), "-o", path.to_str().unwrap()];
    args.extend(options);
    run(compiler, &args)?;
    Some(Program { directory, path })
}

/// Returns the addresses of instructions in `.text`, as listed by objdump; for a large program, a
/// sample from all of it.
fn instructions(program: &Program) -> Option<Vec<u64>> {
    let listing = run("objdump", &["-d", "-j", ".text", "--no-show-raw-insn", program.arg()])?;
    let address = |line: &str| u64::from_str_radix(line.trim().split_once(":\t")?.0, 16).ok();
    let all: Vec<u64> = listing.lines().filter_map(address).collect();
    let step = all.len() / 5000 + 1;
    Some(all.into_iter().step_by(step).collect())
}
