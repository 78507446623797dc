//! Compiles, records, and runs gdb. Knows nothing of what is tested.

use contraflow::recording::Reader;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::{env, fs};

/// The binary under test.
pub(crate) fn contraflow() -> Command {
    Command::new(env!("CARGO_BIN_EXE_contraflow"))
}

/// Whether a tool is there. Says loudly what is not tested without it.
pub(crate) fn have(tool: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    let found = env::split_paths(&path).any(|dir| dir.join(tool).is_file());
    if !found {
        // Not eprintln!, which the test harness swallows.
        let _ = std::io::Write::write_fmt(
            &mut std::io::stderr(),
            format_args!("SKIPPED: {tool} is not installed\n"),
        );
    }
    found
}

/// An LLDB that goes backwards, which LLDB 21 and older cannot. Says loudly if there is none.
pub(crate) fn lldb() -> Option<&'static str> {
    let goes_back = |lldb: &&str| {
        let help = Command::new(lldb).args(["-b", "-o", "help process continue"]).output();
        help.is_ok_and(|help| text(&help.stdout).contains("--reverse"))
    };
    let found = ["lldb-22", "lldb"].into_iter().find(goes_back);
    if found.is_none() {
        let _ = writeln!(std::io::stderr(), "SKIPPED: no LLDB that goes backwards is installed");
    }
    found
}

/// A directory of its own for a test, removed with it.
pub(crate) struct Scene {
    dir: tempfile::TempDir,
}

impl Scene {
    pub(crate) fn new() -> Self {
        let scene = Self { dir: tempfile::tempdir().expect("a temporary directory") };
        if let Some(cache) = std::env::var_os("CONTRAFLOW_TEST_CACHE") {
            let store = scene.path("store");
            std::fs::create_dir_all(&store).unwrap();
            std::os::unix::fs::symlink(cache, store.join(".contraflow-cache")).unwrap();
        }
        scene
    }

    /// Returns the command of a program that overwrites a library, that library, and its new content.
    pub(crate) fn overwritten(&self) -> [PathBuf; 3] {
        let first = self.compile("counting.c", &["-O0", "-shared", "-fPIC"]);
        let library = self.path("library.so");
        std::fs::rename(&first, &library).unwrap();
        let second = self.compile("counting.c", &["-O0", "-shared", "-fPIC", "-DSECOND"]);
        [self.compile("overwritten.c", &["-ldl"]), library, second]
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Leaves the directory where it is, for who looks into a failure.
    pub(crate) fn keep(self) -> PathBuf {
        self.dir.keep()
    }

    /// Compiles a program of tests/programs or examples.
    pub(crate) fn compile(&self, source: &str, flags: &[&str]) -> PathBuf {
        let compiled = self.compile_by_gcc(source, flags);
        compiled.unwrap_or_else(|said| panic!("{said}"))
    }

    /// The same, of a program whose libraries may not be there. Says so loudly.
    pub(crate) fn try_compile(&self, source: &str, flags: &[&str]) -> Option<PathBuf> {
        let compiled = self.compile_by_gcc(source, flags);
        let said = compiled.as_ref().err().map(|said| format!("SKIPPED: {said}\n"));
        let _ = std::io::stderr().write_all(said.unwrap_or_default().as_bytes());
        compiled.ok()
    }

    fn compile_by_gcc(&self, source: &str, flags: &[&str]) -> Result<PathBuf, String> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let places = ["tests/programs", "examples/crash"].map(|dir| root.join(dir).join(source));
        let source = places.iter().find(|path| path.exists()).expect("the source");
        let program = self.path(source.file_stem().unwrap().to_str().unwrap());
        let mut gcc = Command::new("gcc");
        gcc.args(["-g", "-pthread", "-o"]).arg(&program).arg(source).args(flags);
        let output = gcc.output().expect("gcc runs");
        if output.status.success() { Ok(program) } else { Err(text(&output.stderr)) }
    }

    /// Records a run and gives its recording.
    pub(crate) fn record(&self, command: &[&str]) -> Recorded {
        self.record_with(&[], command)
    }

    pub(crate) fn record_with(&self, options: &[&str], command: &[&str]) -> Recorded {
        let dir = self.path("recording");
        let log = self.path("log");
        fs::create_dir_all(&log).unwrap();
        let output = contraflow()
            .env("CONTRAFLOW_HOME", self.path("store"))
            .arg("record")
            .args(options)
            .arg("--step-log")
            .arg(&log)
            .arg("-o")
            .arg(&dir)
            .args(command)
            .stdin(Stdio::null())
            .output()
            .expect("contraflow runs");
        assert!(dir.join("manifest.json").exists(), "{}", text(&output.stderr));
        Recorded { dir, log, output }
    }
}

/// A recording, the log of its steps, and what its program printed.
pub(crate) struct Recorded {
    pub(crate) dir: PathBuf,
    pub(crate) log: PathBuf,
    pub(crate) output: Output,
}

impl Recorded {
    /// The addresses that the tracer logged, of a thread.
    pub(crate) fn logged(&self, tid: i32) -> Vec<u64> {
        let bytes = fs::read(self.log.join(format!("{tid}.log"))).unwrap_or_default();
        bytes.chunks_exact(8).map(|b| u64::from_le_bytes(b.try_into().unwrap())).collect()
    }

    /// The threads, by their logs.
    pub(crate) fn threads(&self) -> Vec<i32> {
        let logs = fs::read_dir(&self.log).unwrap().map(|entry| entry.unwrap().path());
        let mut tids: Vec<i32> =
            logs.map(|log| log.file_stem().unwrap().to_str().unwrap().parse().unwrap()).collect();
        tids.sort_unstable();
        tids
    }

    /// The first thread: its number is that of the process. Others may have lower ones, as numbers are
    /// used again.
    pub(crate) fn main_thread(&self) -> i32 {
        let reader = Reader::open(&self.dir).expect("it opens");
        reader.manifest().pid.0
    }

    /// `contraflow dump` of this recording.
    pub(crate) fn dump(&self, arguments: &[&str]) -> Output {
        let mut command = contraflow();
        command.arg("dump").args(arguments).arg(&self.dir);
        command.output().expect("contraflow runs")
    }

    /// What gdb prints when it runs these commands on the recording, through `replay`.
    pub(crate) fn gdb(&self, commands: &str) -> String {
        self.gdb_with(&[], commands)
    }

    pub(crate) fn gdb_with(&self, options: &[&str], commands: &str) -> String {
        let mut replay = contraflow();
        replay.arg("replay").args(options).arg(&self.dir).args(["--", "-nx", "-batch"]);
        run_gdb(replay, commands)
    }
}

/// Runs gdb with commands, a line each; `echo` marks what belongs to which.
pub(crate) fn run_gdb(mut gdb: Command, commands: &str) -> String {
    gdb.args(["-ex", "set pagination off", "-ex", "set style enabled off", "-ex", "set width 0"]);
    for line in commands.lines().map(str::trim).filter(|line| !line.is_empty()) {
        gdb.args(["-ex", &format!("echo \\n>>> {line}\\n"), "-ex", line]);
    }
    // Both streams into one file, so that what they say stays in order.
    let both = tempfile::NamedTempFile::new().expect("a temporary file");
    let append = || fs::File::options().append(true).open(both.path()).expect("a temporary file");
    gdb.stdin(Stdio::null()).stdout(append()).stderr(append()).env_remove("DEBUGINFOD_URLS");
    gdb.status().expect("gdb runs");
    text(&fs::read(both.path()).expect("a temporary file"))
}

/// The address of a symbol of a program that is mapped where it was linked to.
pub(crate) fn address_of(program: &Path, symbol: &str) -> u64 {
    let output = Command::new("nm").arg(program).output().expect("nm runs");
    let list = text(&output.stdout);
    let line = list.lines().find(|line| line.ends_with(&format!(" {symbol}")));
    u64::from_str_radix(line.expect("the symbol")[..16].trim(), 16).unwrap()
}

/// Returns the recordings in a store, without its caches.
pub(crate) fn recordings_in(store: &Path) -> Vec<PathBuf> {
    let all = std::fs::read_dir(store).into_iter().flatten().flatten();
    let is_cache = |entry: &std::fs::DirEntry| entry.file_name() == ".contraflow-cache";
    let mut dirs: Vec<_> = all.filter(|entry| !is_cache(entry)).map(|entry| entry.path()).collect();
    dirs.retain(|path| !path.is_symlink());
    dirs.sort();
    dirs
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// What stands behind the `nth` echo of a command.
pub(crate) fn answer<'a>(output: &'a str, command: &str, nth: usize) -> &'a str {
    let marker = format!(">>> {command}\n");
    let rest = output.split(&marker).nth(nth + 1);
    let rest = rest.unwrap_or_else(|| panic!("{command:?} is not in:\n{output}"));
    let rest = rest.split("\n>>> ").next().unwrap();
    // What gdb says at its own end is no answer.
    let end = rest.rfind("[Inferior 1 (").filter(|at| rest[*at..].contains(") detached]"));
    rest[..end.unwrap_or(rest.len())].trim()
}

/// Asserts that texts come in this order.
pub(crate) fn assert_in_order(output: &str, wanted: &[&str]) {
    let mut rest = output;
    for text in wanted {
        let Some(at) = rest.find(text) else {
            panic!("{text:?} is missing, or too early, in:\n{output}")
        };
        rest = &rest[at + text.len()..];
    }
}

/// Numbers that are random enough: xorshift.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).unwrap() % limit
    }
}
