//! Compares ELF symbols and PLT stubs of this machine's programs with `nm`, `objdump` and gdb.

use super::*;
use std::collections::{HashMap, HashSet};

/// Stripped programs and libraries, as distributions ship them.
const STRIPPED: [&str; 3] = ["/bin/ls", "/lib/x86_64-linux-gnu/libc.so.6", "/bin/bash"];

fn present<'a>() -> impl Iterator<Item = &'a Path> {
    STRIPPED.iter().map(Path::new).filter(|path| path.exists())
}

/// Returns the functions that `nm` lists, by address: all names and the size.
fn nm(path: &Path, options: &str) -> Option<HashMap<u64, (HashSet<String>, u64)>> {
    let said = run("nm", &[options, "--defined-only", path.to_str().unwrap()])?;
    let mut functions: HashMap<u64, (HashSet<String>, u64)> = HashMap::new();
    for line in said.lines() {
        let parts: Vec<_> = line.split_whitespace().collect();
        let [address, size, kind, name] = parts[..] else { continue };
        if ["T", "t", "W", "w", "i"].contains(&kind) {
            let number = |text| u64::from_str_radix(text, 16).unwrap();
            let entry = functions.entry(number(address)).or_default();
            entry.0.insert(name.split('@').next().unwrap().to_owned());
            entry.1 = entry.1.max(number(size));
        }
    }
    Some(functions)
}

#[test]
fn functions_are_those_of_nm() {
    for path in present() {
        let Some(functions) = nm(path, "-DS") else { return };
        let symbols = symbols(path);
        for (address, (names, size)) in functions {
            let at = Addr(BIAS + address);
            let found = symbols.function_at(at).unwrap();
            assert!(names.contains(&found.name), "{} at {address:#x}: {found:?}", path.display());
            assert_eq!((found.start, found.offset), (at, 0));
            for inside in [size / 2, size.saturating_sub(1)] {
                let found = symbols.function_at(Addr(BIAS + address + inside)).unwrap();
                assert_eq!(found.start.0 + found.offset, BIAS + address + inside);
            }
            let name = names.iter().next().unwrap();
            assert!(symbols.addresses_of_function(name).contains(&at), "{name}");
        }
    }
}

#[test]
fn stubs_are_those_of_objdump() {
    let options: [&[&str]; 4] =
        [&[], &["-fcf-protection=full", "-Wl,-z,ibtplt"], &["-no-pie"], &["-Wl,-z,now"]];
    let compiled: Vec<_> = options
        .iter()
        .filter_map(|options| compile("gcc", "inlined.c", &[&["-O2"], *options].concat()))
        .collect();
    let compiled = compiled.iter().map(|program| &*program.path);
    let paths: Vec<&Path> = present().chain(compiled).collect();
    for path in paths {
        let Some(listing) = run("objdump", &["-d", path.to_str().unwrap()]) else { return };
        let symbols = symbols(path);
        for line in listing.lines().filter(|line| line.ends_with("@plt>:")) {
            let (address, name) = line.trim_end_matches(">:").split_once(" <").unwrap();
            if name.starts_with('*') {
                continue; // Slots that a resolver function fills have no name.
            }
            let address = u64::from_str_radix(address, 16).unwrap();
            let found = symbols.function_at(Addr(BIAS + address)).unwrap();
            assert_eq!(found.name, name, "{}", path.display());
            assert_eq!(found.offset, 0);
            assert!(symbols.addresses_of_function(name).contains(&found.start));
            let plain = name.trim_end_matches("@plt");
            assert!(!symbols.addresses_of_function(plain).contains(&found.start));
        }
    }
}

#[test]
fn bytes_of_no_function_are_those_of_gdb() {
    for path in present() {
        let Some(functions) = nm(path, "-DS") else { return };
        // Around the ends of functions, where a guess would be wrong.
        let ends = functions.iter().map(|(address, (_, size))| address + size);
        let mut places: Vec<u64> = ends.flat_map(|end| [end - 1, end, end + 64]).collect();
        places.sort_unstable();
        places.truncate(2000);
        let lines: Vec<_> = places.iter().map(|at| format!("info symbol {at:#x}")).collect();
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("script");
        std::fs::write(&file, lines.join("\n")).unwrap();
        let args = ["-nx", "-batch", "-x", file.to_str().unwrap(), path.to_str().unwrap()];
        let Some(said) = run("gdb", &args) else { return };
        let symbols = symbols(path);
        for (place, line) in places.iter().zip(said.lines()) {
            let ours = symbols.function_at(Addr(BIAS + place));
            let is_known = line.contains(" in section ");
            assert_eq!(ours.is_some(), is_known, "{} {place:#x}: {line}", path.display());
        }
    }
}
