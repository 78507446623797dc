//! Separate debug files: found by build id and by link, and only the right ones.

use super::*;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// A stripped program, and its debug file under a different name.
struct Split {
    program: Program,
    debug: PathBuf,
    main: u64,
    build_id: String,
}

fn split() -> Option<Split> {
    let program = compile("gcc", "inlined.c", &["-O2", "-g", "-Wl,--build-id"])?;
    let listing = run("nm", &[program.arg()])?;
    let main = listing.lines().find_map(|line| line.strip_suffix(" T main"))?;
    let main = u64::from_str_radix(main, 16).unwrap();
    let notes = run("readelf", &["-n", program.arg()])?;
    let build_id =
        notes.lines().find_map(|line| line.trim().strip_prefix("Build ID: "))?.to_owned();
    let debug = program.directory.path().join("program.debug");
    run("objcopy", &["--only-keep-debug", program.arg(), debug.to_str().unwrap()])?;
    run("strip", &[program.arg()])?;
    Some(Split { program, debug, main, build_id })
}

/// Files by path, with a log of the requested paths.
#[derive(Clone, Default)]
struct Shelf {
    files: HashMap<PathBuf, Bytes>,
    asked: Arc<Mutex<Vec<PathBuf>>>,
}

impl Files for Shelf {
    fn open(&self, path: &Path) -> Option<Bytes> {
        self.asked.lock().unwrap().push(path.to_path_buf());
        self.files.get(path).cloned()
    }
}

impl Split {
    /// Returns the program's symbols if the only file that can be opened is `debug`, at `path`.
    fn symbols(&self, path: &Path, debug: Bytes) -> Symbols {
        let files =
            Shelf { files: HashMap::from([(path.to_path_buf(), debug)]), ..Shelf::default() };
        symbols_with(&self.program.path, files)
    }

    fn by_build_id(&self) -> PathBuf {
        let (first, rest) = self.build_id.split_at(2);
        format!("/usr/lib/debug/.build-id/{first}/{rest}.debug").into()
    }

    fn is_found(&self, path: &Path, debug: Bytes) -> bool {
        let symbols = self.symbols(path, debug);
        let main = Addr(BIAS + self.main);
        let function = symbols.function_at(main).map(|function| function.name);
        let location = symbols.location_at(main);
        assert_eq!(function.is_some(), location.is_some());
        assert!(function.is_none_or(|name| name == "main"));
        assert_eq!(symbols.addresses_of_function("main").contains(&main), location.is_some());
        location.is_some()
    }
}

#[test]
fn a_debug_file_is_found_by_build_id() {
    let Some(split) = split() else { return };
    let debug = disk(&split.debug).unwrap();
    assert!(split.is_found(&split.by_build_id(), debug.clone()));
    assert!(!split.is_found(Path::new("/usr/lib/debug/elsewhere"), debug));
    // A file with another build id is not the right one.
    let other = compile("gcc", "inlined.c", &["-O1", "-g", "-Wl,--build-id"]).unwrap();
    assert!(!split.is_found(&split.by_build_id(), disk(&other.path).unwrap()));
}

#[test]
fn a_debug_file_is_found_by_link() {
    let Some(split) = split() else { return };
    let link = format!("--add-gnu-debuglink={}", split.debug.to_str().unwrap());
    let arg = split.program.arg();
    if run("objcopy", &[&link, "--remove-section=.note.gnu.build-id", arg]).is_none() {
        return;
    }
    let debug = disk(&split.debug).unwrap();
    let directory = split.program.directory.path().to_path_buf();
    let global = Path::new("/usr/lib/debug").join(directory.strip_prefix("/").unwrap());
    for place in [directory.clone(), directory.join(".debug"), global] {
        let path = place.join("program.debug");
        assert!(split.is_found(&path, debug.clone()), "{}", path.display());
        let mut changed = debug.to_vec();
        changed.push(0);
        assert!(!split.is_found(&path, changed.into()), "the checksum must decide");
    }
    assert!(!split.is_found(&directory.join("other.debug"), debug));
}

#[test]
fn packed_debug_sections_are_unpacked() {
    let Some(split) = split() else { return };
    let plain = disk(&split.debug).unwrap();
    let expected = split.symbols(&split.by_build_id(), plain).frames_at(Addr(BIAS + split.main));
    for kind in ["zlib", "zlib-gnu"] {
        let option = format!("--compress-debug-sections={kind}");
        let packed = split.program.directory.path().join(kind);
        let (from, to) = (split.debug.to_str().unwrap(), packed.to_str().unwrap());
        if run("objcopy", &[&option, from, to]).is_none() {
            return;
        }
        let symbols = split.symbols(&split.by_build_id(), disk(&packed).unwrap());
        assert_eq!(symbols.frames_at(Addr(BIAS + split.main)), expected, "{kind}");
    }
}

#[test]
fn split_dwarf_is_read_from_its_own_file() {
    let whole = compile("gcc", "inlined.c", &["-O2", "-g"]);
    let split = compile("gcc", "inlined.c", &["-O2", "-g", "-gsplit-dwarf"]);
    let (Some(whole), Some(split)) = (whole, split) else { return };
    let (expected, found) = (symbols(&whole.path), symbols(&split.path));
    let Some(addresses) = instructions(&whole) else { return };
    for address in addresses {
        let address = Addr(BIAS + address);
        assert_eq!(found.frames_at(address), expected.frames_at(address), "{address}");
    }
    let name = "square";
    assert_eq!(found.addresses_of_function(name), expected.addresses_of_function(name));
    assert!(!expected.addresses_of_function(name).is_empty(), "inlined copies count");
}

#[test]
fn a_module_is_read_only_when_asked_and_dropped_when_covered() {
    let Some(split) = split() else { return };
    let shelf = Shelf::default();
    let asked = shelf.asked.clone();
    let mut symbols = symbols_with(&split.program.path, shelf);
    assert!(asked.lock().unwrap().is_empty());
    let main = Addr(BIAS + split.main);
    assert_eq!(symbols.function_at(Addr(BIAS - 1)), None);
    assert!(asked.lock().unwrap().is_empty());
    assert_eq!(symbols.function_at(main), None);
    assert!(!asked.lock().unwrap().is_empty());
    let debug = disk(&split.debug).unwrap();
    symbols.add_module("other", debug, BIAS, AddrRange::sized(main, 0x1000));
    assert_eq!(symbols.function_at(main).unwrap().name, "main");
    assert_eq!(symbols.function_at(Addr(main.0 + 0x1000)), None);
}

/// Compiles `source` twice. Returns the first program, and the path of its copy that shares a file
/// made by dwz with the second one; `None` without the tools.
fn shared_by_dwz(source: &str) -> Option<(Program, PathBuf)> {
    let compile = |options: &[&str]| compile("g++", source, options);
    let options: [&[&str]; 2] =
        [&["-O2", "-g", "-Wl,--build-id"], &["-O1", "-g", "-Wl,--build-id"]];
    let [Some(first), Some(second)] = options.map(compile) else { return None };
    let directory = first.directory.path();
    let (own, other) = (directory.join("own"), directory.join("other"));
    std::fs::copy(&first.path, &own).unwrap();
    std::fs::copy(&second.path, &other).unwrap();
    let shared = directory.join("shared");
    let paths = [&shared, &own, &other].map(|path| path.to_str().unwrap());
    run("dwz", &["-m", paths[0], "-M", "shared", paths[1], paths[2]])?;
    Some((first, own))
}

#[test]
fn a_global_has_the_name_that_dwz_moved_to_a_shared_file() {
    let Some((first, own)) = shared_by_dwz("declared.cc") else { return };
    for path in [&first.path, &own] {
        let symbols = symbols(path);
        let main = symbols.addresses_of_function("main")[0];
        let variable = symbols.global_at(main, "space::counter");
        assert!(variable.is_some(), "{}", path.display());
    }
    let blind = symbols_with(&own, |_: &Path| None);
    let main = symbols(&own).addresses_of_function("main")[0];
    assert!(blind.global_at(main, "space::counter").is_none(), "the shared file was not needed");
}

#[test]
fn what_dwz_moved_to_a_shared_file_is_found() {
    let Some((first, own)) = shared_by_dwz("inlined.cc") else { return };
    let before = symbols(&first.path);
    let after = symbols(&own);
    let Some(addresses) = instructions(&first) else { return };
    for address in addresses {
        let address = Addr(BIAS + address);
        assert_eq!(after.frames_at(address), before.frames_at(address), "{address}");
    }
    let blind = symbols_with(&own, |_: &Path| None);
    let nameless = |symbols: &Symbols| {
        let frames = instructions(&first).unwrap().into_iter().step_by(7);
        let frames = frames.flat_map(|at| symbols.frames_at(Addr(BIAS + at)));
        frames.filter(|frame| frame.function.is_none()).count()
    };
    assert!(nameless(&blind) > nameless(&after), "the shared file was not needed");
}
