//! Histories of real programs, which gdb itself wrote down by single-stepping (`record.py`).

use crate::pt;
use contraflow::common::{Addr, Tid};
use contraflow::session::{
    Description, Ending, Instruction, KnownRegisters, Library, Recorded, Register, Run, Scripted,
    Session, Transfer,
};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

/// A compiled test program and its recorded history.
pub(crate) struct Program {
    pub(crate) path: PathBuf,
    pub(crate) history: PathBuf,
    _directory: tempfile::TempDir,
}

/// Where the test's sources are.
pub(crate) fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/gdb_server").join(name)
}

impl Program {
    /// Compiles `programs/NAME.c` with the flags, and records it; threads take turns after `turn`
    /// instructions (0 for one thread).
    pub(crate) fn record(name: &str, flags: &[&str], turn: u32) -> Self {
        let directory = tempfile::tempdir().expect("a directory for the program");
        let path = directory.path().join(name);
        let source_file = source(&format!("programs/{name}.c"));
        let compiled = Command::new("gcc")
            .arg("-g")
            .args(flags)
            .arg("-o")
            .arg(&path)
            .arg(source_file)
            .status();
        assert!(compiled.expect("gcc is installed").success());
        let history = directory.path().join("history");
        let gdb = Command::new("gdb")
            .args(["-nx", "-batch", "-x"])
            .arg(source("record.py"))
            .arg(&path)
            .env("HISTORY", &history)
            .env("TURN", turn.to_string())
            .output()
            .expect("gdb is installed");
        assert!(history.exists(), "{}", String::from_utf8_lossy(&gdb.stderr));
        Self { path, history, _directory: directory }
    }
}

/// Reads a history that `record.py` wrote.
pub(crate) fn load(path: &Path) -> Session<Recorded<Scripted>> {
    Session::new(Recorded::at_end(read(path)))
}

/// The history alone, with PT packets made for it.
pub(crate) fn read(path: &Path) -> Scripted {
    let text = std::fs::read_to_string(path).expect("a history");
    let mut history = Scripted::default();
    history.description.backend = "single steps of gdb".into();
    for line in text.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        read_line(&mut history, &words);
    }
    let run = Recorded::at_end(history.index());
    let tids = run.threads().into_iter().map(|thread| thread.tid);
    let traces = tids.map(|tid| (tid, pt::encode(&run, tid))).collect();
    let mut history = run.into_history();
    history.traces = traces;
    history
}

fn read_line(history: &mut Scripted, words: &[&str]) {
    match words {
        ["insn", tid, pc, size, kind] => history.instructions.push(Instruction {
            tid: tid_of(tid),
            pc: Addr(hex(pc)),
            size_bytes: size.parse().expect("a length"),
            transfer: match *kind {
                "call" => Transfer::Call,
                "ret" => Transfer::Return,
                _ => Transfer::None,
            },
        }),
        ["thread", tid, name @ ..] => {
            history.names.insert(tid_of(tid), name.join(" "));
        }
        ["reg", tid, name, value] => {
            let registers: &mut KnownRegisters =
                history.final_registers.entry(tid_of(tid)).or_default();
            let register = Register::from_name(name).expect("a register");
            registers.set(register, u128::from_str_radix(value, 16).ok());
        }
        ["final", tid] => history.final_thread = Some(tid_of(tid)),
        ["signal", number] => {
            let ending = Ending::Signal(number.parse().expect("a signal"));
            history.description = Description { ending, ..history.description.clone() };
        }
        ["code", addr, bytes] => history.constant_memory.push((Addr(hex(addr)), unhex(bytes))),
        ["data", addr, bytes] => history.final_memory.push((Addr(hex(addr)), unhex(bytes))),
        ["auxv", bytes] => history.auxv = Some(unhex(bytes).to_vec()),
        ["lib", link_map, load_bias, dynamic, path] => {
            let (link_map, load_bias) = (Addr(hex(link_map)), Addr(hex(load_bias)));
            let dynamic = Addr(hex(dynamic));
            let path = (*path).to_owned();
            let library = Library { path, namespace: 0, link_map, load_bias, dynamic };
            history.libraries.get_or_insert_default().push(library);
        }
        ["exec", path] => {
            history.description.program = (*path).into();
            history.exec_file = Some(path.into());
            let bytes = std::fs::read(path).expect("the program");
            history.files.insert(path.into(), bytes.into());
        }
        _ => panic!("not a line of a history: {words:?}"),
    }
}

fn tid_of(word: &str) -> Tid {
    Tid(word.parse().expect("a thread number"))
}

fn hex(word: &str) -> u64 {
    u64::from_str_radix(word, 16).expect("hex digits")
}

fn unhex(word: &str) -> Arc<[u8]> {
    let digits = word.as_bytes().chunks_exact(2);
    digits.map(|pair| hex(std::str::from_utf8(pair).expect("ascii")) as u8).collect()
}
