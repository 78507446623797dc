//! perf.data in both directions: captures of real hardware with their cores, files that the perf
//! of this machine writes, and our own recordings by perf's decoder and back.

use crate::import::captures;
use crate::support::{Recorded, Scene, answer, contraflow, have, run_gdb, text};
use contraflow::recording::{Manifest, Reader};
use contraflow::sideband::perf_data::{PerfData, PerfEvent};
use contraflow::sideband::{Backing, Event, Record};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn import(scene: &Scene, name: &str, arguments: &[&str]) -> Output {
    let mut command = contraflow();
    command.env("CONTRAFLOW_HOME", scene.path("store")).arg("import").args(arguments);
    command.arg("-o").arg(scene.path(name)).output().expect("contraflow runs")
}

fn imported(scene: &Scene, name: &str, arguments: &[&str]) -> Output {
    let output = import(scene, name, arguments);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", text(&output.stderr));
    output
}

fn dump(recording: &Path, arguments: &[&str]) -> Output {
    let mut command = contraflow();
    command.arg("dump").args(arguments).arg(recording);
    command.output().expect("contraflow runs")
}

/// Their folders, the thread, and whether the vdso that ran is there.
const CAPTURES: [(&str, &str, bool); 3] = [
    ("control_flow-20180404T163033", "19731", true),
    ("loopy-20180514T145114", "31552", true),
    // The last time of its trace lies behind switches to threads that were not traced.
    ("control_flow-20180515T180451", "11181", false),
];

#[test]
fn captures_of_perf_import_to_their_instructions() {
    let Some(captures) = captures() else { return };
    for (name, tid, has_vdso) in CAPTURES {
        let folder = captures.join("hase").join(name);
        let file = |name: &str| folder.join(name).to_str().unwrap().to_owned();
        let (perf, core) = (file("perf.data.1"), format!("--core={}", file("core.1")));
        let (symfs, vdso) =
            (format!("--symfs={}", file("symfs")), format!("--vdso={}", file("vdso.bin")));
        let expected = fs::read_to_string(folder.join(format!("{name}.addresses.txt"))).unwrap();
        // With the core; without; and with nothing but the core, which has the code.
        for (number, arguments) in
            [vec![&perf, &core, &symfs, &vdso], vec![&perf, &symfs, &vdso], vec![&perf, &core]]
                .into_iter()
                .enumerate()
        {
            let scene = Scene::new();
            let arguments = arguments.into_iter().map(String::as_str);
            let arguments: Vec<_> =
                arguments.filter(|argument| has_vdso || *argument != vdso).collect();
            let said = text(&imported(&scene, "recording", &arguments).stderr);
            let recording = scene.path("recording");
            let dumped = dump(&recording, &["insns", "--addresses", "--thread", tid]);
            assert!(text(&dumped.stdout) == expected, "{name} {number}: {said}");
            assert_eq!(text(&dumped.stderr), "", "{name} {number}");
            let instructions = expected.lines().count();
            let wanted = format!("imported: {instructions} instructions (1 thread, 0 gaps");
            assert!(said.contains(&wanted), "{name} {number}: {said}");
            let info = contraflow().arg("info").arg(&recording).output().unwrap();
            let info = text(&info.stdout);
            for wanted in [&format!("process      {tid}"), "GenuineIntel 6/"] {
                assert!(info.contains(wanted), "{name} {number}: {info}");
            }
        }
    }
}

#[test]
fn gdb_walks_back_from_a_crash_that_perf_captured() {
    let Some(captures) = captures().filter(|_| have("gdb")) else { return };
    let (name, ..) = CAPTURES[0];
    let folder = captures.join("hase").join(name);
    let file = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let scene = Scene::new();
    let core = format!("--core={}", file("core.1"));
    let symfs = format!("--symfs={}", file("symfs"));
    imported(&scene, "recording", &[&file("perf.data.1"), &core, &symfs]);
    let mut replay = contraflow();
    replay.arg("replay").arg(scene.path("recording")).args(["--", "-nx", "-batch"]);
    let commands = "
        backtrace
        info registers rax
        reverse-stepi
        x/i $pc
        reverse-finish
        reverse-continue
        cf-when";
    let output = run_gdb(replay, commands);
    let stack = answer(&output, "backtrace", 0);
    assert!(stack.contains("__restore_sigs") && stack.contains("in main"), "{output}");
    assert!(answer(&output, "info registers rax", 0).contains("0x0"), "{output}");
    assert!(answer(&output, "x/i $pc", 0).contains("syscall"), "{output}");
    assert!(answer(&output, "cf-when", 0).starts_with("position 0 of 1092"), "{output}");
}

#[test]
fn a_wrong_binary_is_refused_unless_forced() {
    let Some(captures) = captures() else { return };
    let (name, ..) = CAPTURES[0];
    let folder = captures.join("hase").join(name);
    let file = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let scene = Scene::new();
    let path = "home/joerg/git/angr/hase/tests/bin/control_flow/control_flow";
    let wrong = scene.path("symfs").join(path);
    fs::create_dir_all(wrong.parent().unwrap()).unwrap();
    // One byte of its code.
    let mut bytes = fs::read(folder.join("control_flow")).unwrap();
    bytes[0x202] ^= 1;
    fs::write(&wrong, bytes).unwrap();
    let symfs = format!("--symfs={}", scene.path("symfs").display());
    let core = format!("--core={}", file("core.1"));
    let perf = file("perf.data.1");
    let arguments = [&perf, &core, &symfs].map(String::as_str);
    let refused = import(&scene, "recording", &arguments);
    let said = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(said.contains("the core has other bytes at 0x400202"), "{said}");
    assert!(!scene.path("recording").exists());
    let forced: Vec<_> = arguments.into_iter().chain(["--any-binary"]).collect();
    imported(&scene, "recording", &forced);
}

/// Files of this machine's perf, which has no hardware PT: read, and refused for that.
#[test]
fn what_perf_writes_here_reads() {
    if !have("perf") {
        return;
    }
    let scene = Scene::new();
    for (name, options) in [("plain", &[][..]), ("compressed", &["-z"]), ("pipe", &["-o", "-"])] {
        let path = scene.path(name);
        let mut perf = Command::new("perf");
        perf.args(["record", "-e", "cpu-clock:u", "-o"]).arg(&path).args(options);
        if name == "pipe" {
            perf.stdout(fs::File::create(&path).unwrap());
        }
        let output = perf.args(["--", "/bin/true"]).output().expect("perf runs");
        let bytes = fs::read(&path).unwrap_or_default();
        if !output.status.success() || bytes.is_empty() {
            eprintln!("SKIPPED: perf records nothing here ({})", text(&output.stderr));
            return;
        }
        let data = PerfData::parse(&bytes).unwrap_or_else(|bad| panic!("{name}: {bad}"));
        let is_exec = |event: &PerfEvent| matches!(event, PerfEvent::Comm { name, exec: true, .. } if name == "true");
        assert!(data.records.iter().any(|record| is_exec(&record.event)), "{name}");
        let is_map = |event: &PerfEvent| matches!(event, PerfEvent::Map(map) if map.executable && map.name.ends_with("/true"));
        assert!(data.records.iter().any(|record| is_map(&record.event)), "{name}");
        assert!(data.records.iter().any(|record| record.id.time_ns.is_some()), "{name}");
        let refused = import(&scene, "recording", &[path.to_str().unwrap()]);
        assert_eq!(refused.status.code(), Some(2));
        let said = text(&refused.stderr);
        assert!(said.contains("has no Intel PT; record with"), "{name}: {said}");
        let cut = scene.path("cut");
        fs::write(&cut, &bytes[..bytes.len() - 9]).unwrap();
        let said = text(&import(&scene, "recording", &[cut.to_str().unwrap()]).stderr);
        assert!(said.contains("at offset 0x"), "{name}: {said}");
    }
}

/// An export of a recording.
fn export(scene: &Scene, recorded: &Recorded, name: &str) -> (PathBuf, PathBuf) {
    let out = scene.path(name);
    let mut command = contraflow();
    command.args(["export", "perf", "-q"]).arg(&recorded.dir).arg("-o").arg(&out);
    let output = command.output().expect("contraflow runs");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let symfs = scene.path(&format!("{name}.symfs"));
    assert!(symfs.is_dir());
    (out, symfs)
}

/// The addresses of each thread, as perf decodes them.
fn by_perf(out: &Path, symfs: &Path) -> BTreeMap<i32, Vec<u64>> {
    let mut perf = Command::new("perf");
    perf.args(["script", "--itrace=i0ns", "-F", "tid,ip", "-i"]).arg(out).arg("--symfs").arg(symfs);
    let output = perf.output().expect("perf runs");
    let mut threads: BTreeMap<i32, Vec<u64>> = BTreeMap::new();
    for line in text(&output.stdout).lines() {
        let mut words = line.split_whitespace();
        let tid = words.next().and_then(|tid| tid.parse().ok());
        let ip = words.next().and_then(|ip| u64::from_str_radix(ip, 16).ok());
        let (Some(tid), Some(ip)) = (tid, ip) else { panic!("{line:?}: {}", text(&output.stderr)) };
        threads.entry(tid).or_default().push(ip);
    }
    assert!(!text(&output.stderr).contains("error"), "{}", text(&output.stderr));
    threads
}

/// The addresses of each thread, as we decode them.
fn by_us(recording: &Path, threads: impl Iterator<Item = i32>) -> BTreeMap<i32, Vec<u64>> {
    let of = |tid: i32| {
        let dumped = dump(recording, &["insns", "--addresses", "--thread", &tid.to_string()]);
        assert_eq!(text(&dumped.stderr), "");
        let stdout = text(&dumped.stdout);
        (tid, stdout.lines().map(|line| u64::from_str_radix(line, 16).unwrap()).collect())
    };
    threads.map(of).collect()
}

fn threads(recording: &Path) -> Vec<i32> {
    let traces = fs::read_dir(recording.join("trace")).unwrap();
    let traces = traces.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    traces.filter_map(|name| name.strip_suffix(".pt")?.parse().ok()).collect()
}

fn assert_same(ours: &BTreeMap<i32, Vec<u64>>, others: &BTreeMap<i32, Vec<u64>>, what: &str) {
    for (tid, expected) in ours {
        let found = others.get(tid).map_or(&[][..], Vec::as_slice);
        let differs = expected.iter().zip(found).position(|(a, b)| a != b);
        assert!(
            expected == found,
            "{what}: thread {tid}: {} and {} instructions, other ones from {differs:?} on",
            expected.len(),
            found.len()
        );
    }
    assert!(ours.values().any(|addresses| addresses.len() > 1000), "{what}");
}

/// perf decodes what we recorded to the instructions that we decode; and what is imported from the
/// export is the recording again, to the last byte of its traces.
fn there_and_back(backend: &[&str], program: &str, flags: &[&str]) {
    let scene = Scene::new();
    let program = scene.compile(program, flags);
    let recorded = scene.record_with(backend, &[program.to_str().unwrap()]);
    let what = format!("{backend:?} {}", program.display());
    let ours = by_us(&recorded.dir, threads(&recorded.dir).into_iter());
    let (out, symfs) = export(&scene, &recorded, "perf.data");
    if have("perf") {
        assert_same(&ours, &by_perf(&out, &symfs), &format!("perf, {what}"));
    }
    let symfs = format!("--symfs={}", symfs.display());
    let core = format!("--core={}", recorded.dir.join("core").display());
    imported(&scene, "back", &[out.to_str().unwrap(), &symfs, &core]);
    let back = scene.path("back");
    assert_same(&ours, &by_us(&back, threads(&back).into_iter()), &what);
    for tid in threads(&recorded.dir) {
        let trace = |dir: &Path| fs::read(dir.join(format!("trace/{tid}.pt"))).unwrap();
        assert!(trace(&back) == trace(&recorded.dir), "{what}: thread {tid}");
    }
    assert_same_content(&back, &recorded.dir, &what);
    assert!(fs::read(back.join("core")).unwrap() == fs::read(recorded.dir.join("core")).unwrap());
    // Once more there and back: each file is the same, to the last byte.
    let again = Recorded { dir: back.clone(), log: scene.path("log"), output: recorded.output };
    let (second, symfs) = export(&scene, &again, "second.data");
    let symfs = format!("--symfs={}", symfs.display());
    imported(&scene, "twice", &[second.to_str().unwrap(), &symfs, &core]);
    assert_same_files(&back, &scene.path("twice"), &what);
}

/// What perf.data can tell of a recording, in words, and the stored code by its content.
fn content(dir: &Path) -> (Vec<String>, Vec<String>) {
    let reader = Reader::open(dir).unwrap();
    let pid = reader.manifest().pid;
    let (mut paths, mut images) = (BTreeMap::new(), BTreeMap::new());
    let (mut maps, mut others) = (Vec::new(), Vec::new());
    for Record { tid, event, .. } in reader.sideband().unwrap() {
        match event {
            Event::File { file, path } => drop(paths.insert(file, path)),
            Event::Image { file, image } => drop(images.insert(file, image)),
            // What the core holds is told of where a core is given.
            Event::Map { protection, backing, .. }
                if !protection.execute || backing == Backing::Core => {}
            Event::Map { range, protection, backing } => {
                let of = match backing {
                    Backing::File { file, offset } => {
                        format!("{} {:?} from {offset:#x}", paths[&file], images.get(&file))
                    }
                    other => format!("{other:?}"),
                };
                maps.push(format!("{range} {} {of}", protection.write));
            }
            Event::ThreadStart if tid.0 == pid.0 => {}
            Event::Exec { .. }
            | Event::Fork { .. }
            | Event::ThreadStart
            | Event::ThreadExit
            | Event::Code { .. } => others.push(format!("{tid} {event:?}")),
            _ => {}
        }
    }
    assert!(!maps.is_empty() && !others.is_empty());
    (maps, others)
}

fn assert_same_content(one: &Path, other: &Path, what: &str) {
    let (one, other) = (content(one), content(other));
    for (one, other) in [(&one.0, &other.0), (&one.1, &other.1)] {
        let differs = one.iter().zip(other).find(|(one, other)| one != other);
        assert_eq!((one.len(), differs), (other.len(), None), "{what}");
    }
}

/// Two recordings are the same but for what they were imported from.
fn assert_same_files(one: &Path, other: &Path, what: &str) {
    let files = |dir: &Path| {
        let inside = ["", "trace", "images"].map(|sub| fs::read_dir(dir.join(sub)).unwrap());
        let paths = inside.into_iter().flatten().map(|entry| entry.unwrap().path());
        let files = paths.filter(|path| path.is_file());
        let mut names: Vec<_> =
            files.map(|path| path.strip_prefix(dir).unwrap().to_owned()).collect();
        names.sort();
        names
    };
    assert_eq!(files(one), files(other), "{what}");
    for name in files(one) {
        let read = |dir: &Path| fs::read(dir.join(&name)).unwrap();
        let same = match name.to_str().unwrap() {
            "manifest.json" => {
                let manifest = |dir: &Path| -> Manifest {
                    let mut manifest: Manifest = serde_json::from_slice(&read(dir)).unwrap();
                    manifest.capture.import.as_mut().unwrap().source.clear();
                    manifest
                };
                manifest(one) == manifest(other)
            }
            // Those of the manifest, and of what names it.
            "checksums" | "index.bin" => true,
            _ => read(one) == read(other),
        };
        if !same && name.ends_with("sideband.bin") {
            let records = |dir: &Path| Reader::open(dir).unwrap().sideband().unwrap();
            assert_eq!(records(one), records(other), "{what}");
        }
        assert!(same, "{what}: {}", name.display());
    }
}

#[test]
fn perf_decodes_what_was_stepped() {
    if have("gcc") {
        there_and_back(&["--backend", "step"], "recursion.c", &["-static"]);
    }
}

#[test]
fn perf_decodes_what_was_translated() {
    if have("gcc") {
        there_and_back(&["--backend", "soft", "--full"], "recursion.c", &[]);
    }
}

#[test]
fn perf_decodes_the_threads_of_a_translated_program() {
    if have("gcc") {
        there_and_back(&["--backend", "soft", "--full"], "threads.c", &[]);
    }
}

#[test]
fn code_that_a_program_made_and_changed_goes_there_and_back() {
    if have("gcc") {
        there_and_back(&["--backend", "soft", "--full"], "selfmod.c", &[]);
    }
}

#[test]
fn an_export_is_written_over_nothing() {
    if !have("gcc") {
        return;
    }
    let scene = Scene::new();
    let program = scene.compile("recursion.c", &["-static"]);
    let recorded = scene.record(&[program.to_str().unwrap()]);
    let (out, symfs) = export(&scene, &recorded, "perf.data");
    let again = |options: &[&str]| {
        let mut command = contraflow();
        command.args(["export", "perf"]).args(options).arg(&recorded.dir).arg("-o").arg(&out);
        command.output().expect("contraflow runs")
    };
    let refused = again(&[]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("exists already; --force"));
    let said = text(&again(&["--force"]).stderr);
    assert!(said.contains("decode it with: perf script -i"), "{said}");
    let spaced = scene.path("a b.data");
    let mut command = contraflow();
    command.args(["export", "perf"]).arg(&recorded.dir).arg("-o").arg(&spaced);
    let said = text(&command.output().unwrap().stderr);
    let words = format!("-i '{0}' --symfs '{0}.symfs' --itrace", spaced.display());
    assert!(said.contains(&words), "{said}");
    // What is no export stays.
    fs::remove_file(symfs.join(".contraflow")).unwrap();
    let refused = again(&["--force"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(symfs.is_dir() && !text(&refused.stderr).contains("panicked"));
    assert!(out.is_file(), "the earlier export is lost");
}

/// The core file has the memory of the second program, which is at the addresses of the first.
#[test]
fn a_program_that_executes_another_goes_there_and_back() {
    if !have("gcc") {
        return;
    }
    let scene = Scene::new();
    let [first, second] =
        ["executes.c", "recursion.c"].map(|name| scene.compile(name, &["-static"]));
    let command = [&first, &second].map(|path| path.to_str().unwrap());
    let recorded = scene.record_with(&["--backend", "soft", "--full"], &command);
    let (out, symfs) = export(&scene, &recorded, "perf.data");
    let symfs = format!("--symfs={}", symfs.display());
    let core = format!("--core={}", recorded.dir.join("core").display());
    imported(&scene, "back", &[out.to_str().unwrap(), &symfs, &core]);
    let listed =
        [&recorded.dir, &scene.path("back")].map(|dir| by_us(dir, threads(dir).into_iter()));
    assert_same(&listed[0], &listed[1], "two programs");
}
