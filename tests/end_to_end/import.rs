//! `contraflow import`: traces of real hardware, our own traces given back as raw ones and as an
//! LLDB bundle, and bundles that are broken or mean harm.

use crate::support::{Scene, answer, contraflow, have, run_gdb, text};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The captures of other projects, where they are.
pub(crate) fn captures() -> Option<PathBuf> {
    let dir = std::env::var_os("CONTRAFLOW_CONFORMANCE").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/conformance"),
        PathBuf::from,
    );
    if dir.is_dir() {
        return Some(dir);
    }
    // Not eprintln!, which the test harness swallows.
    let _ = std::io::Write::write_fmt(
        &mut std::io::stderr(),
        format_args!("SKIPPED: no captures at {}; set CONTRAFLOW_CONFORMANCE\n", dir.display()),
    );
    None
}

/// Imports into `recording` of the scene, from a directory.
fn import(scene: &Scene, from: &Path, arguments: &[&str]) -> Output {
    let mut command = contraflow();
    command.env("CONTRAFLOW_HOME", scene.path("store")).current_dir(from);
    command.arg("import").args(arguments).arg("-o").arg(scene.path("recording"));
    command.output().expect("contraflow runs")
}

fn imported(from: &Path, arguments: &[&str]) -> (Scene, Output) {
    let scene = Scene::new();
    let output = import(&scene, from, arguments);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", text(&output.stderr));
    (scene, output)
}

fn dump(scene: &Scene, arguments: &[&str]) -> Output {
    let mut command = contraflow();
    command.arg("dump").args(arguments).arg(scene.path("recording"));
    command.output().expect("contraflow runs")
}

fn gdb(scene: &Scene, commands: &str) -> String {
    let mut replay = contraflow();
    replay.arg("replay").arg(scene.path("recording")).args(["--", "-nx", "-batch"]);
    run_gdb(replay, commands)
}

fn gaps(output: &Output) -> usize {
    text(&output.stderr).lines().filter(|line| line.starts_with("gap: ")).count()
}

/// A capture: where it is, how it is imported, and what each thread's instructions and holes are.
struct Capture {
    folder: &'static str,
    arguments: &'static [&'static str],
    /// A file of addresses, the thread that executed them (all without), holes.
    threads: &'static [(&'static str, Option<&'static str>, usize)],
    cpu: &'static str,
}

const CAPTURES: &[Capture] = &[
    Capture {
        folder: "lldb/intelpt-trace",
        arguments: &["trace.json"],
        threads: &[("3842849.addresses.txt", None, 0)],
        cpu: "GenuineIntel 6/79/1",
    },
    Capture {
        folder: "lldb/intelpt-trace",
        arguments: &["trace_2threads.json"],
        threads: &[
            ("3842849.addresses.txt", Some("3842849"), 0),
            ("3842849.addresses.txt", Some("3842850"), 0),
        ],
        cpu: "GenuineIntel 6/79/1",
    },
    Capture {
        folder: "lldb/intelpt-trace-multi-file",
        arguments: &["multi-file-no-ld.json"],
        threads: &[("multi-file.addresses.txt", None, 1)],
        cpu: "GenuineIntel 6/79/1",
    },
    // The traces of both CPUs have other holes, where they ran other processes or ended.
    Capture {
        folder: "lldb/intelpt-multi-core-trace",
        arguments: &["trace.json"],
        threads: &[
            ("multi-core-45.addresses.txt", Some("3497497"), 0),
            ("multi-core-51.addresses.txt", Some("3497496"), 1),
        ],
        cpu: "GenuineIntel 6/85/4",
    },
    Capture {
        folder: "lldb/intelpt-multi-core-trace",
        arguments: &["trace_with_string_numbers.json"],
        threads: &[
            ("multi-core-45.addresses.txt", Some("3497497"), 0),
            ("multi-core-51.addresses.txt", Some("3497496"), 1),
        ],
        cpu: "GenuineIntel 6/85/4",
    },
    Capture {
        folder: "lldb/intelpt-multi-core-trace",
        arguments: &["--pt=cores/45.intelpt_trace", "--elf=modules/m.out", "--cpu=6/85/4"],
        threads: &[("multi-core-45.addresses.txt", None, 1)],
        cpu: "GenuineIntel 6/85/4",
    },
    Capture {
        folder: "lldb/intelpt-multi-core-trace",
        arguments: &["--pt=cores/51.intelpt_trace", "--elf=modules/m.out", "--cpu=6/85/4"],
        threads: &[("multi-core-51.addresses.txt", None, 3)],
        cpu: "GenuineIntel 6/85/4",
    },
    Capture {
        folder: "hase/control_flow-20180404T163033",
        arguments: &[
            "--pt=perf.data.1-aux-idx1.bin",
            "--core=core.1",
            "--elf=control_flow",
            "--cpu=6/94/3",
        ],
        threads: &[("control_flow-20180404T163033.addresses.txt", Some("19731"), 0)],
        cpu: "GenuineIntel 6/94/3",
    },
    Capture {
        folder: "hase/loopy-20180514T145114",
        arguments: &[
            "--pt=perf.data.1-aux-idx1.bin",
            "--core=core.1",
            "--elf=binaries/home/joerg/git/hase/tests/bin/loopy/loopy",
            "--cpu=6/61/4",
        ],
        threads: &[("loopy-20180514T145114.addresses.txt", None, 0)],
        cpu: "GenuineIntel 6/61/4",
    },
    Capture {
        folder: "dynamorio/hello-cyc",
        arguments: &[
            "--pt=pt.bin",
            "--elf=hello",
            "--cpu=6/85/4",
            "--mtc-freq=3",
            "--cpuid-15=308/2",
            "--nom-freq=37",
        ],
        threads: &[("dynamorio-hello.addresses.txt", None, 0)],
        cpu: "GenuineIntel 6/85/4",
    },
    Capture {
        folder: "dynamorio/hello-libc",
        arguments: &["--pt=pt.bin", "--elf=hello", "--cpu=6/85/7"],
        threads: &[("dynamorio-2aad718d12.addresses.txt", None, 0)],
        cpu: "GenuineIntel 6/85/7",
    },
];

#[test]
fn captures_import_to_their_instructions() {
    let Some(captures) = captures() else { return };
    for capture in CAPTURES {
        let name = format!("{} {:?}", capture.folder, capture.arguments);
        let folder = captures.join(capture.folder);
        let (scene, output) = imported(&folder, capture.arguments);
        let mut instructions = 0;
        for (expected, tid, holes) in capture.threads {
            let thread = tid.map(|tid| ["--thread", tid]);
            let thread = thread.iter().flatten().copied();
            let arguments: Vec<_> = ["insns", "--addresses"].into_iter().chain(thread).collect();
            let dumped = dump(&scene, &arguments);
            let expected = fs::read_to_string(folder.join(expected)).unwrap();
            assert!(text(&dumped.stdout) == expected, "{name} {tid:?}");
            assert_eq!(gaps(&dumped), *holes, "{name}: {}", text(&dumped.stderr));
            instructions += expected.lines().count();
        }
        let holes: usize = capture.threads.iter().map(|(_, _, holes)| holes).sum();
        let said = text(&output.stderr);
        assert!(said.contains(&format!("imported: {instructions} instructions")), "{name}: {said}");
        let gaps = if holes == 1 { "1 gap,".to_owned() } else { format!("{holes} gaps,") };
        assert!(said.contains(&gaps), "{name}: {said}");
        let info = contraflow().arg("info").arg(scene.path("recording")).output().unwrap();
        let info = text(&info.stdout);
        assert!(info.contains(capture.cpu), "{name}: {info}");
        assert!(info.contains(&format!("{instructions} instructions")), "{name}: {info}");
        for nonsense in ["detached", "0 bytes", "lost", "unknown", "directory"] {
            assert!(!info.contains(nonsense), "{name}: {info}");
        }
    }
}

/// Asserts that an import fails with one line, and that nothing comes to be.
fn refused(scene: &Scene, from: &Path, arguments: &[&str], wanted: &str) {
    let output = import(scene, from, arguments);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
    assert!(said.contains(wanted), "{arguments:?}: {wanted:?} is not in {said:?}");
    assert_eq!(said.trim().lines().count(), 1, "{arguments:?}: {said}");
    assert!(!said.contains("panicked"), "{said}");
    assert!(!scene.path("recording").exists(), "{arguments:?}: a recording is left behind");
    assert!(!scene.path("store").exists(), "{arguments:?}: something is left behind");
}

#[test]
fn broken_bundles_are_refused() {
    let Some(captures) = captures() else { return };
    let scene = Scene::new();
    for (bundle, wanted) in [
        ("intelpt-trace/trace_bad.json", "trace_bad.json: processes[0] must be an object"),
        ("intelpt-trace/trace_bad2.json", "trace_bad2.json: cpuInfo.family must be a whole"),
        ("intelpt-trace/trace_bad3.json", "trace_bad3.json: processes[1].pid is missing"),
        ("intelpt-trace/trace_bad4.json", "trace_bad4.json: cpuInfo.family is missing"),
        ("intelpt-trace/trace_bad5.json", "trace_bad5.json: processes[1].pid is missing"),
        ("intelpt-trace/trace_bad_image.json", "a.out: cannot have been loaded at 0xfffff0"),
        ("intelpt-trace/trace_wrong_cpu.json", "cpuInfo.family must be a whole number from 0"),
        (
            "intelpt-multi-core-trace/trace_missing_threads.json",
            "thread 3497497 is in the context switches, but not among the threads",
        ),
        ("intelpt-kernel-trace/trace.json", "traces of a kernel cannot be imported"),
        ("intelpt-kernel-trace/trace_kernel_wo_cpus.json", "traces of a kernel cannot be"),
        ("intelpt-kernel-trace/trace_kernel_with_process.json", "traces of a kernel cannot"),
    ] {
        refused(&scene, &captures.join("lldb"), &[bundle], wanted);
    }
}

#[test]
fn gdb_walks_the_threads_of_a_bundle() {
    let Some(captures) = captures().filter(|_| have("gdb")) else { return };
    let folder = captures.join("lldb/intelpt-multi-core-trace");
    let (scene, _) = imported(&folder, &["trace.json"]);
    let last = |file: &str| {
        let addresses = fs::read_to_string(folder.join(file)).unwrap();
        addresses
            .lines()
            .rev()
            .take(2)
            .map(|line| line.trim_start_matches('0').to_owned())
            .collect()
    };
    let commands = "
        info threads
        thread 1
        reverse-stepi
        x/i $pc
        stepi
        thread 2
        reverse-stepi
        x/i $pc
        reverse-stepi
        x/i $pc
        backtrace
        reverse-continue
        cf-when";
    let output = gdb(&scene, commands);
    let threads = answer(&output, "info threads", 0);
    for tid in ["3497234", "3497496", "3497497"] {
        assert!(threads.contains(tid), "{output}");
    }
    assert!(!output.contains("Python Exception"), "{output}");
    // What both executed last, and one of them before that.
    let [bar, foo]: [Vec<String>; 2] =
        ["multi-core-45.addresses.txt", "multi-core-51.addresses.txt"].map(last);
    let shown = |nth| answer(&output, "x/i $pc", nth);
    assert!(shown(0).contains(&format!("0x{} <_Z3barv", bar[0])), "{output}");
    assert!(shown(1).contains(&format!("0x{} <_Z3foov", foo[0])), "{output}");
    assert!(shown(2).contains(&format!("0x{} <_Z3foov", foo[1])), "{output}");
    assert!(answer(&output, "backtrace", 0).contains("in foo ()"), "{output}");
    assert!(answer(&output, "cf-when", 0).starts_with("position 0 of 81346"), "{output}");
}

#[test]
fn gdb_walks_back_from_a_crash_that_somebody_else_captured() {
    let Some(captures) = captures().filter(|_| have("gdb")) else { return };
    let folder = captures.join("hase/control_flow-20180404T163033");
    let arguments = CAPTURES[7].arguments;
    let (scene, _) = imported(&folder, arguments);
    let commands = "
        backtrace
        info registers rax
        reverse-stepi
        x/i $pc
        info registers rax
        reverse-finish
        reverse-finish
        backtrace
        reverse-continue
        cf-when";
    let output = gdb(&scene, commands);
    let stack = answer(&output, "backtrace", 0);
    assert!(stack.contains("__restore_sigs") && stack.contains("in main"), "{output}");
    assert!(answer(&output, "info registers rax", 0).contains("0x0"), "{output}");
    assert!(answer(&output, "x/i $pc", 0).contains("syscall"), "{output}");
    assert!(answer(&output, "info registers rax", 1).contains("<unavailable>"), "{output}");
    assert!(answer(&output, "backtrace", 1).contains("main"), "{output}");
    assert!(answer(&output, "cf-when", 0).starts_with("position 0 of 1092"), "{output}");
}

/// What we recorded ourselves, given back as somebody else's, is what it was.
#[test]
fn our_own_trace_imports_as_a_raw_one() {
    if !have("gcc") {
        return;
    }
    let scene = Scene::new();
    let program = scene.compile("recursion.c", &["-static"]);
    let program = program.to_str().unwrap();
    let recorded = scene.record(&[program]);
    let tid = recorded.main_thread();
    let trace = recorded.dir.join(format!("trace/{tid}.pt"));
    let core = recorded.dir.join("core");
    let (pt, core) = (format!("--pt={}", trace.display()), format!("--core={}", core.display()));
    let elf = format!("--elf={program}");
    let (given_back, output) = imported(Path::new("/"), &[&pt, &core, &elf, "--cpu=6/85/4"]);
    assert_eq!(text(&output.stderr).lines().count(), 3, "{}", text(&output.stderr));
    let (_, output) = imported(Path::new("/"), &[&pt, &core, &elf, "--quiet"]);
    assert_eq!(text(&output.stderr), "");
    let dumped = dump(&given_back, &["insns", "--addresses"]);
    assert_eq!(gaps(&dumped), 0, "{}", text(&dumped.stderr));
    assert!(dumped.stdout == recorded.dump(&["insns", "--addresses"]).stdout);
    assert!(!dumped.stdout.is_empty());
    if have("gdb") {
        let output = gdb(&given_back, "info threads\nreverse-stepi\nreverse-stepi\nx/i $pc");
        assert!(answer(&output, "info threads", 0).contains(&tid.to_string()), "{output}");
        assert!(answer(&output, "x/i $pc", 0).contains("=> 0x"), "{output}");
    }
    // A core of another moment is not passed off as the end of the trace.
    let bytes = fs::read(&trace).unwrap();
    let cut = given_back.path("cut.pt");
    fs::write(&cut, &bytes[..bytes.len() / 2]).unwrap();
    let pt = format!("--pt={}", cut.display());
    let (shorter, _) = imported(Path::new("/"), &[&pt, &core, &elf, "--cpu=6/85/4"]);
    let part = dump(&shorter, &["insns", "--addresses"]).stdout;
    assert!(dumped.stdout.starts_with(&part[..part.len() / 2]) && part.len() < dumped.stdout.len());
}

/// A bundle of one thread, with a trace of ours and the program.
struct Bundle {
    scene: Scene,
    dir: PathBuf,
}

const DESCRIPTION: &str = r#"{
  "type": "intel-pt",
  "cpuInfo": {"vendor": "GenuineIntel", "family": 6, "model": 85, "stepping": 4},
  "processes": [{
    "pid": 70,
    "threads": [{"tid": 70, "iptTrace": "threads/70"}],
    "modules": [{"file": "modules/p", "systemPath": "/p", "loadAddress": "ADDRESS"}]
  }]
}"#;

impl Bundle {
    fn new() -> Self {
        let scene = Scene::new();
        let dir = scene.path("bundle");
        for sub in ["threads", "modules"] {
            fs::create_dir_all(dir.join(sub)).unwrap();
        }
        fs::copy("/bin/true", dir.join("modules/p")).unwrap();
        fs::write(dir.join("threads/70"), [0x02, 0x82].repeat(8)).unwrap();
        let bundle = Self { scene, dir };
        bundle.describe("ADDRESS", "0x555555554000");
        bundle
    }

    /// Writes the description with some text replaced.
    fn describe(&self, from: &str, to: &str) {
        let text = DESCRIPTION.replace(from, to).replace("ADDRESS", "0x555555554000");
        fs::write(self.dir.join("trace.json"), text).unwrap();
    }

    fn refused(&self, wanted: &str) {
        refused(&self.scene, Path::new("/"), &[self.dir.to_str().unwrap()], wanted);
    }

    fn replaced(&self, name: &str) -> PathBuf {
        let path = self.dir.join(name);
        fs::remove_file(&path).unwrap();
        path
    }
}

fn fifo(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

#[test]
fn bundles_that_mean_harm_are_refused() {
    let bundle = Bundle::new();
    let whole = import(&bundle.scene, Path::new("/"), &[bundle.dir.to_str().unwrap()]);
    assert_eq!(whole.status.code(), Some(0), "{}", text(&whole.stderr));
    // One that is there is left as it is.
    let again = import(&bundle.scene, Path::new("/"), &[bundle.dir.to_str().unwrap()]);
    assert!(text(&again.stderr).contains("holds a recording already"), "{}", text(&again.stderr));
    assert!(bundle.scene.path("recording/manifest.json").exists());
    fs::remove_dir_all(bundle.scene.path("recording")).unwrap();
    let _ = fs::remove_dir_all(bundle.scene.path("store"));

    fs::write(bundle.scene.path("secret"), [0x02, 0x82].repeat(8)).unwrap();
    bundle.describe("threads/70", "../secret");
    bundle.refused("outside of the bundle's directory");
    symlink(bundle.scene.path("secret"), bundle.dir.join("threads/link")).unwrap();
    bundle.describe("threads/70", "threads/link");
    bundle.refused("outside of the bundle's directory");
    bundle.describe("threads/70", "threads/none");
    bundle.refused("threads/none: No such file");
    bundle.describe("threads/70", "threads");
    bundle.refused("threads: a directory, not a file");
    bundle.describe("\"tid\": 70", "\"tid\": 1e99");
    bundle.refused("threads[0].tid must be a whole number");
    bundle.describe("\"iptTrace\": \"threads/70\"", "\"iptTrace\": null");
    bundle.refused("have no traces");
    let two = "\"iptTrace\": \"threads/70\"}, {\"tid\": 70, \"iptTrace\": \"threads/70\"";
    bundle.describe("\"iptTrace\": \"threads/70\"", two);
    bundle.refused("threads[1].tid is 70, as another thread's is");
    bundle.describe("ADDRESS", "0xffffffffffffffff");
    bundle.refused("cannot have been loaded at 0xffffffffffffffff");
    bundle.describe("ADDRESS", "99999999999999999999");
    bundle.refused("loadAddress must be a number of 64 bits");
    let uuid = "\"systemPath\": \"/p\", \"uuid\": \"00112233445566778899AABBCCDDEEFF00112233\"";
    bundle.describe("\"systemPath\": \"/p\"", uuid);
    bundle.refused("its build id is not that of the module that ran");
    bundle.describe("modules/p", "../secret");
    bundle.refused("secret: not an ELF file");
    bundle.refused("; give a program, library or core file");
    bundle.describe("", "");
    fifo(&bundle.replaced("modules/p"));
    bundle.refused("modules/p: a FIFO, not a file");
    fifo(&bundle.replaced("threads/70"));
    bundle.refused("threads/70: a FIFO, not a file");
    fs::write(bundle.replaced("threads/70"), "").unwrap();
    bundle.refused("all of its traces are empty");
    fifo(&bundle.replaced("trace.json"));
    bundle.refused("trace.json: a FIFO, not a file");
    fs::write(bundle.replaced("trace.json"), "[".repeat(100_000)).unwrap();
    bundle.refused("is not JSON");
}

#[test]
fn raw_traces_that_are_none_are_refused() {
    let scene = Scene::new();
    let (empty, pipe) = (scene.path("empty"), scene.path("pipe"));
    fs::write(&empty, "").unwrap();
    fifo(&pipe);
    let (empty, pipe) = (empty.to_str().unwrap(), pipe.to_str().unwrap());
    let cpu = "--cpu=6/85/4";
    refused(&scene, Path::new("/"), &["--pt", empty, cpu], "empty: empty");
    refused(&scene, Path::new("/"), &["--pt", pipe, cpu], "pipe: a FIFO, not a file");
    refused(&scene, Path::new("/"), &["--pt", "/no/such", cpu], "/no/such: No such file");
    let trace = scene.path("trace");
    fs::write(&trace, [0x02, 0x82].repeat(8)).unwrap();
    let trace = trace.to_str().unwrap();
    let core = ["--pt", trace, cpu, "--core", "/bin/true"];
    refused(&scene, Path::new("/"), &core, "not a core file");
    refused(&scene, Path::new("/"), &["--pt", trace, cpu, "--elf", trace], "; give a program");
    refused(&scene, Path::new("/"), &["/no/such/bundle"], "/no/such/bundle: No such file");
}
