//! Finds the installed gdb and LLDB, and their features as they report them.

use super::root::Root;
use super::run::output;
use serde::Serialize;
use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The first version of LLDB that supports reverse execution over the remote protocol.
pub(super) const FIRST_REVERSE_LLDB: u32 = 22;

/// An installed debugger.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Debugger {
    /// `gdb` or `lldb`.
    pub name: &'static str,
    /// The path of the program.
    pub path: PathBuf,
    /// True if the debugger was found through `PATH`.
    pub in_path: bool,
    /// The debugger's version; empty if unknown.
    pub version: String,
    /// True if the debugger decodes Intel PT itself (libipt); `None` if unknown.
    pub intel_pt: Option<bool>,
    /// True if the debugger has Python; `None` if unknown, as for LLDB.
    pub python: Option<bool>,
}

impl Debugger {
    /// Returns the first number of the version; 0 if unknown.
    pub(super) fn major(&self) -> u32 {
        let digits = self.version.split(|c: char| !c.is_ascii_digit()).next().unwrap_or_default();
        digits.parse().unwrap_or(0)
    }
}

/// Returns the gdb and the LLDB in the directories of `path`; an LLDB also in those of Debian's
/// packages (/usr/lib/llvm-N). Runs them to learn their features.
#[must_use]
pub fn debuggers(root: &Root, path: &OsStr) -> Vec<Debugger> {
    let dirs: Vec<PathBuf> = std::env::split_paths(path).collect();
    let of_gnu = find_program(root, &dirs, |name| name == "gdb").map(|path| gdb(root, path));
    let of_llvm = lldb_in(root, &dirs).map(|path| lldb(root, path, true));
    let of_llvm = of_llvm.or_else(|| {
        let named = |name: &String| name.strip_prefix("llvm-").is_some_and(is_number);
        let places = root.names(Path::new("/usr/lib")).into_iter().filter(named);
        let mut places: Vec<_> = places.map(|name| Path::new("/usr/lib").join(name)).collect();
        places.sort_by_key(|place| number_after_dash(&place.to_string_lossy()));
        let bins = places.into_iter().rev().map(|place| place.join("bin")).collect::<Vec<_>>();
        find_program(root, &bins, |name| name == "lldb").map(|path| lldb(root, path, false))
    });
    of_gnu.into_iter().chain(of_llvm).collect()
}

/// Returns the path of `lldb` in `dirs`, or if there is none, of the `lldb-N` with the highest
/// number.
fn lldb_in(root: &Root, dirs: &[PathBuf]) -> Option<PathBuf> {
    let plain = find_program(root, dirs, |name| name == "lldb");
    plain.or_else(|| {
        let numbered = |name: &str| name.strip_prefix("lldb-").is_some_and(is_number);
        // If several directories have the same version, take the first.
        let found = dirs.iter().rev().filter_map(|dir| {
            let dir = std::slice::from_ref(dir);
            find_program(root, dir, numbered)
        });
        found.max_by_key(|path| number_after_dash(&path.to_string_lossy()))
    })
}

/// Returns true for a text of decimal digits; false if it is empty.
fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Returns the number after the last dash of a text; 0 if there is none.
fn number_after_dash(text: &str) -> u32 {
    text.rsplit('-').next().and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// Returns the path of an executable file whose name matches, in the first of `dirs` that has one;
/// of several there, the one with the highest number after a dash in its name.
fn find_program(root: &Root, dirs: &[PathBuf], matches: impl Fn(&str) -> bool) -> Option<PathBuf> {
    dirs.iter().filter(|dir| dir.is_absolute()).find_map(|dir| {
        let names = root.names(dir).into_iter().filter(|name| matches(name));
        let paths = names.map(|name| dir.join(name)).filter(|path| is_program(&root.path(path)));
        paths.max_by_key(|path| number_after_dash(&path.to_string_lossy()))
    })
}

/// Returns true for a file that somebody may execute.
fn is_program(path: &Path) -> bool {
    let metadata = std::fs::metadata(path);
    metadata.is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

/// Runs a gdb to learn its version and its features.
fn gdb(root: &Root, path: PathBuf) -> Debugger {
    let program = root.path(&path);
    let version = output(&program, &["-nx", "--version"]).unwrap_or_default();
    // `GNU gdb (Debian 13.1-3) 13.1`
    let version = version.lines().next().and_then(|line| line.split_whitespace().next_back());
    let version = version.unwrap_or_default().to_owned();
    let configured = output(&program, &["-nx", "--configuration"]).unwrap_or_default();
    let says = |what: &str| {
        let word = |line: &str| {
            let option = line.trim().strip_prefix("--with")?;
            let (with, option) = match option.strip_prefix("out-") {
                Some(option) => (false, option),
                None => (true, option.strip_prefix('-')?),
            };
            (option.split(['=', ' ']).next() == Some(what)).then_some(with)
        };
        configured.lines().find_map(word)
    };
    let (intel_pt, python) = (says("intel-pt"), says("python"));
    Debugger { name: "gdb", path, in_path: true, version, intel_pt, python }
}

/// Runs an LLDB to learn its version and its features.
fn lldb(root: &Root, path: PathBuf, in_path: bool) -> Debugger {
    let program = root.path(&path);
    let version = output(&program, &["--version"]).unwrap_or_default();
    // `lldb version 22.1.8`; some vendors add words before or after.
    let version = version.split("version ").nth(1).and_then(|rest| rest.split_whitespace().next());
    let version = version.unwrap_or_default().to_owned();
    // LLDB's plug-in for Intel PT describes its trace bundles; without the plug-in, there is no
    // such schema.
    let schema = output(&program, &["--no-lldbinit", "-b", "-o", "trace schema intel-pt"]);
    let intel_pt = schema.and_then(|said| match said {
        said if said.contains("\"type\": \"intel-pt\"") => Some(true),
        said if said.contains("error:") => Some(false),
        _ => None,
    });
    Debugger { name: "lldb", path, in_path, version, intel_pt, python: None }
}
