//! Tests the search for debuggers, and the facts that are tried on this machine.

use super::machine::{Machine, said};
use crate::capture::host::{Choice, Facts, Root, Tried};
use std::path::Path;

const GDB: &str = r#"
case "$*" in
*--version) echo "GNU gdb (Ubuntu 12.1-0ubuntu1~22.04) 12.1"; echo "Copyright" ;;
*--configuration) echo "   configure --host=x86_64"; echo "	     --without-intel-pt"; echo "	     --with-python=/usr (relocatable)" ;;
*) exit 1 ;;
esac"#;

const LLDB: &str = r#"
case "$*" in
*--version) echo "lldb version 14.0.6" ;;
*"trace schema intel-pt") echo 'error: no trace plug-in matches the specified type: "intel-pt"' >&2 ;;
*) exit 1 ;;
esac"#;

#[test]
fn debuggers_say_what_they_are() {
    let machine = Machine::skylake()
        .program("usr/bin/gdb", GDB)
        .program("opt/bin/gdb", "exit 1")
        .program("usr/bin/lldb-9", "exit 1")
        .program("usr/bin/lldb-14", LLDB)
        .file("opt/bin/lldb", "no program");
    let found = machine.debuggers("relative:/usr/bin:/opt/bin");
    let [gdb, lldb] = found.as_slice() else { panic!("{found:?}") };
    assert_eq!((gdb.path.as_path(), gdb.version.as_str()), (Path::new("/usr/bin/gdb"), "12.1"));
    assert_eq!((gdb.intel_pt, gdb.python), (Some(false), Some(true)));
    let path = Path::new("/usr/bin/lldb-14");
    assert_eq!((lldb.path.as_path(), lldb.version.as_str()), (path, "14.0.6"));
    assert_eq!((lldb.intel_pt, lldb.in_path), (Some(false), true));
    let facts = Facts { debuggers: Some(found), ..machine.facts() };
    let gdb = said(&facts, "gdb");
    assert_eq!(gdb.good, Some(true));
    assert!(gdb.text.contains("/usr/bin/gdb 12.1, does not decode Intel PT itself"), "{gdb:?}");
    let lldb = said(&facts, "lldb");
    assert!(lldb.text.contains("14.0.6, does not go backwards (22 is the first"), "{lldb:?}");
}

#[test]
fn lldb_is_found_where_debian_puts_it() {
    let schema =
        LLDB.replace("14.0.6", "22.1.8").replace("error: no trace", r#"{ "type": "intel-pt","#);
    let machine = Machine::amd()
        .program("usr/lib/llvm-9/bin/lldb", "exit 1")
        .program("usr/lib/llvm-22/bin/lldb", &schema)
        .file("usr/bin/apt-get", "");
    let found = machine.debuggers("/usr/bin");
    let [lldb] = found.as_slice() else { panic!("{found:?}") };
    assert_eq!((lldb.major(), lldb.intel_pt, lldb.in_path), (22, Some(true), false));
    let facts = Facts { debuggers: Some(found), ..machine.facts() };
    let lldb = said(&facts, "lldb").text;
    assert!(lldb.contains("(not in PATH), goes backwards, decodes Intel PT itself"), "{lldb}");
    // gdb is the most important.
    assert_eq!(said(&facts, "gdb").good, Some(false));
    let better = Choice::of(&facts).better.unwrap();
    assert_eq!(better.command, "sudo apt-get install gdb");
}

/// Starts and kills a program, and checks that nothing is left of it.
#[test]
fn what_is_tried_here_is_undone() {
    let tried = Tried::here(Path::new("/proc/self/exe"));
    assert_eq!(tried.ptrace_fault, None);
    let missing = Tried::here(Path::new("/nowhere/at/all"));
    assert!(missing.ptrace_fault.is_some());
    let facts = Facts { tried: Some(tried), ..Facts::of(&Root::here()) };
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap();
    assert_eq!(facts.cpu.hypervisor, cpuinfo.contains(" hypervisor"));
    let children = std::fs::read_to_string("/proc/thread-self/children").unwrap_or_default();
    assert_eq!(children.trim(), "");
}
