//! Compares the results for addresses, lines and functions with those of binutils and gdb.

use super::*;
use std::io::Write;

/// The compiler options that affect the DWARF.
const OPTIONS: [&[&str]; 7] = [
    &["-O0", "-g"],
    &["-O2", "-g"],
    &["-O3", "-g", "-gdwarf-4"],
    &["-O2", "-g", "-gdwarf-3", "-gstrict-dwarf"],
    &["-O2", "-g", "-gz=zlib", "-ffunction-sections", "-Wl,--gc-sections"],
    &["-O2", "-g", "-static"],
    &["-Os", "-g", "-no-pie", "-fcf-protection=full"],
];

/// The functions at an address, innermost first, each with `file:line` without the directory.
type Frames = Vec<(String, Option<(String, u32)>)>;

/// Returns the frames that `addr2line` lists for each address.
fn addr2line(program: &Program, addresses: &[u64]) -> Option<Vec<Frames>> {
    let list = program.directory.path().join("addresses");
    let mut file = std::fs::File::create(&list).unwrap();
    for address in addresses {
        writeln!(file, "{address:#x}").unwrap();
    }
    let list = list.to_str().unwrap();
    let said = run("addr2line", &["-afiC", "-e", program.arg(), &format!("@{list}")])?;
    let mut frames: Vec<Frames> = Vec::new();
    let mut lines = said.lines();
    while let Some(line) = lines.next() {
        if line.starts_with("0x") {
            frames.push(Vec::new());
        } else {
            let place = lines.next().unwrap().split(" (discriminator").next().unwrap();
            let (file, number) = place.rsplit_once(':').unwrap();
            let place = number.parse().ok().map(|number| (base_name(file), number));
            frames.last_mut().unwrap().push((line.to_owned(), place));
        }
    }
    Some(frames)
}

fn base_name(path: &str) -> String {
    Path::new(path).file_name().unwrap().to_string_lossy().into_owned()
}

fn our_frames(symbols: &Symbols, address: u64) -> Frames {
    let frames = symbols.frames_at(Addr(BIAS + address));
    let place = |frame: &Frame| frame.location.as_ref().map(|at| (base_name(&at.file), at.line));
    let name = |frame: &Frame| frame.function.clone().unwrap_or_else(|| "??".to_owned());
    frames.iter().map(|frame| (name(frame), place(frame))).collect()
}

/// Gdb's `file:line` of an address, without the directory, and the functions around it, innermost
/// first.
type GdbSays = (Option<(String, u32)>, Vec<String>);

const GDB_SCRIPT: &str = r"
def functions(pc):
    names, block = [], gdb.block_for_pc(pc)
    while block and not block.is_static and not block.is_global:
        if block.function:
            names.append(block.function.name)
        around = block.superblock
        # Methods of a local class lie in its function's block without being part of it.
        if around and not around.start <= block.start < around.end:
            break
        block = around
    return names

for pc in ADDRESSES:
    sal = gdb.find_pc_line(pc)
    name = os.path.basename(sal.symtab.filename) if sal.symtab else '?'
    print(name, sal.line, *functions(pc), sep='\t')
";

fn gdb_says(program: &Program, addresses: &[u64]) -> Option<Vec<GdbSays>> {
    let script = program.directory.path().join("lines.py");
    let text = format!("import gdb, os\nADDRESSES = {addresses:?}\n{GDB_SCRIPT}");
    std::fs::write(&script, text).unwrap();
    let said = run("gdb", &["-nx", "-batch", "-x", script.to_str().unwrap(), program.arg()])?;
    let parse = |line: &str| {
        let mut parts = line.split('\t').map(str::to_owned);
        let (file, line) = (parts.next().unwrap(), parts.next().unwrap().parse().unwrap());
        ((file != "?" && line > 0).then_some((file, line)), parts.collect())
    };
    Some(said.lines().map(parse).collect())
}

fn for_each_program(mut test: impl FnMut(&Program, &str) -> Option<()>) {
    for (compiler, source) in [("gcc", "inlined.c"), ("g++", "inlined.cc")] {
        for options in OPTIONS {
            let Some(program) = compile(compiler, source, options) else { return };
            if test(&program, &format!("{source} {options:?}")).is_none() {
                return;
            }
        }
    }
}

#[test]
fn lines_and_functions_are_those_of_gdb() {
    for_each_program(assert_same_as_gdb);
}

/// Uses the C library: with its debug file installed, it has DWARF of many producers.
#[test]
fn lines_and_functions_of_the_c_library_are_those_of_gdb() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("libc");
    if std::fs::copy("/lib/x86_64-linux-gnu/libc.so.6", &path).is_ok() {
        assert_same_as_gdb(&Program { directory, path }, "libc");
    }
}

fn assert_same_as_gdb(program: &Program, options: &str) -> Option<()> {
    let addresses = instructions(program)?;
    let expected = gdb_says(program, &addresses)?;
    assert_eq!(expected.len(), addresses.len());
    let symbols = symbols(&program.path);
    for (address, (line, functions)) in addresses.iter().zip(&expected) {
        let ours = symbols.location_at(Addr(BIAS + address));
        let ours = ours.map(|at| (base_name(&at.file), at.line));
        assert_eq!(ours, *line, "{options} at {address:#x}");
        if functions.is_empty() {
            continue; // gdb's blocks come from DWARF only.
        }
        let ours = our_frames(&symbols, *address);
        assert_eq!(ours.len(), functions.len(), "{options} at {address:#x}");
        for ((ours, _), theirs) in ours.iter().zip(functions) {
            assert!(is_same_name(ours, theirs), "{options} at {address:#x}: {ours}, {theirs}");
        }
    }
    Some(())
}

/// Returns true if two demanglers could mean the same function. They spell parameters differently,
/// and local functions that were inlined everywhere have no linkage name with their namespace.
fn is_same_name(ours: &str, theirs: &str) -> bool {
    let last = |name: &str| {
        let plain = names::without_parameters(name);
        let plain = plain.split('<').next().unwrap().to_owned();
        plain.rsplit("::").next().unwrap().to_owned()
    };
    // The demangler in use cannot parse expressions in signatures and leaves such names mangled.
    ours.starts_with("_Z") || last(ours) == last(theirs)
}

#[test]
fn inlined_calls_are_those_of_addr2line() {
    for_each_program(|program, options| {
        let addresses = instructions(program)?;
        let expected = addr2line(program, &addresses)?;
        let symbols = symbols(&program.path);
        for (address, expected) in addresses.iter().zip(&expected) {
            let ours = our_frames(&symbols, *address);
            if ours.last().is_none_or(|frame| frame.0 == "??") {
                continue; // Padding: addr2line takes the function before it.
            }
            let calls = |frames: &Frames| -> Vec<_> {
                frames.iter().skip(1).map(|frame| frame.1.clone()).collect()
            };
            assert_eq!(calls(&ours), calls(expected), "{options} at {address:#x}");
        }
        Some(())
    });
}

/// Returns the addresses at which gdb breaks for each line from 1 to `count` of a source file.
fn gdb_breaks(program: &Program, file: &str, count: u32) -> Option<Vec<Vec<u64>>> {
    let script = program.directory.path().join("breaks.py");
    let text = format!(
        "import gdb\n\
         for line in range(1, {count} + 1):\n\
         \x20   try: print(*sorted({{sal.pc for sal in gdb.decode_line('{file}:%d' % line)[1]}}))\n\
         \x20   except gdb.error: print()\n"
    );
    std::fs::write(&script, text).unwrap();
    let said = run("gdb", &["-nx", "-batch", "-x", script.to_str().unwrap(), program.arg()])?;
    let parse = |line: &str| line.split_whitespace().map(|pc| pc.parse().unwrap()).collect();
    Some(said.lines().map(parse).collect())
}

#[test]
fn breaks_are_those_of_gdb() {
    for_each_program(|program, options| {
        let file = options.split(' ').next().unwrap();
        let expected = gdb_breaks(program, file, 60)?;
        let symbols = symbols(&program.path);
        for (line, expected) in (1..).zip(&expected) {
            let ours = symbols.addresses_of_line(file, line);
            let ours: Vec<u64> = ours.iter().map(|addr| addr.0 - BIAS).collect();
            assert_eq!(ours, *expected, "{options} line {line}");
        }
        Some(())
    });
}
