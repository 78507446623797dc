//! Each thing that can be wrong is one clear sentence, and exit status 2.

use crate::support::{Scene, contraflow, have, text};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

/// Asserts that a command fails with one line that holds `wanted`.
fn fails(command: &mut Command, wanted: &str) {
    let output = command.output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains(wanted), "{wanted:?} is not in {said:?}");
    assert_eq!(said.trim().lines().count(), 1, "{said}");
    assert!(!said.contains("panicked"), "{said}");
}

fn record(scene: &Scene) -> Command {
    let mut command = contraflow();
    command.env("CONTRAFLOW_HOME", scene.path("store")).arg("record");
    command
}

#[test]
fn what_the_cpu_cannot_trace() {
    let scene = Scene::new();
    let terms = record(&scene).args(["--pt-config", "CYC", "/bin/true"]).output().unwrap();
    assert!(text(&terms.stderr).contains("is no term; give for example cyc,mtc_period=6"));
    if Path::new("/sys/bus/event_source/devices/intel_pt").exists() {
        let skipped = format_args!("SKIPPED: this machine has Intel PT\n");
        let _ = std::io::Write::write_fmt(&mut std::io::stderr(), skipped);
        return;
    }
    let wanted = " Intel PT";
    fails(record(&scene).args(["--backend", "perf", "/bin/true"]), wanted);
    fails(record(&scene).args(["--pt-config", "cyc", "/bin/true"]), wanted);
    assert!(!scene.path("store").exists(), "a recording was begun");
}

#[test]
fn programs_that_cannot_be_recorded() {
    let scene = Scene::new();
    fails(record(&scene).arg("/no/such/program"), "/no/such/program: no such program");
    fails(record(&scene).arg("no-such-program"), "no-such-program: no such program");
    let file = scene.path("file");
    let path = file.to_str().unwrap();
    fs::write(&file, "text").unwrap();
    fails(record(&scene).arg(path), "not executable");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    fails(record(&scene).arg(path), "not an ELF program");
    fs::write(&file, "#!/no/such/interpreter\n").unwrap();
    fails(record(&scene).arg(path), "/no/such/interpreter: no such program");
    fails(record(&scene).arg("/tmp"), "not executable");
    assert!(!scene.path("store").exists(), "a recording was begun");
}

#[test]
fn a_32_bit_program() {
    if !have("gcc") {
        return;
    }
    let scene = Scene::new();
    let program = scene.compile("recursion.c", &[]);
    let mut bytes = fs::read(&program).unwrap();
    (bytes[4], bytes[18]) = (1, 3);
    fs::write(&program, bytes).unwrap();
    fails(record(&scene).arg(program), "a 32-bit program");
}

#[test]
fn a_program_that_is_no_valid_executable() {
    let scene = Scene::new();
    let file = scene.path("elf");
    let mut bytes = fs::read("/bin/true").unwrap();
    bytes.truncate(80);
    fs::write(&file, bytes).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    fails(record(&scene).arg(file), "cannot execute");
}

#[test]
fn a_set_user_id_program() {
    let scene = Scene::new();
    let file = scene.path("setuid");
    fs::copy("/bin/true", &file).unwrap();
    if !is_root() {
        // Not eprintln!, which the test harness swallows.
        let _ = std::io::Write::write_fmt(
            &mut std::io::stderr(),
            format_args!("SKIPPED: only root can make a program set-user-ID to somebody else\n"),
        );
        return;
    }
    std::os::unix::fs::chown(&file, Some(65534), None).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o4755)).unwrap();
    fails(record(&scene).arg(file), "set-user-ID");
}

fn is_root() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    status.lines().any(|line| line.starts_with("Uid:\t0\t"))
}

#[test]
fn recordings_that_do_not_open() {
    let scene = Scene::new();
    let info = |recording: &str| {
        let mut command = contraflow();
        command.env("CONTRAFLOW_HOME", scene.path("store")).args(["info", recording]);
        command
    };
    fails(&mut info("/no/such/recording"), "no such recording");
    fails(
        contraflow().env("CONTRAFLOW_HOME", scene.path("store")).arg("info"),
        "no recordings yet",
    );
    let empty = scene.path("empty");
    fs::create_dir(&empty).unwrap();
    fails(&mut info(empty.to_str().unwrap()), "not a recording");
    let recorded = scene.record(&["/bin/true"]);
    let manifest = recorded.dir.join("manifest.json");
    let whole = fs::read_to_string(&manifest).unwrap();
    let dir = recorded.dir.to_str().unwrap();
    let of_format = |format: u32| {
        let other = whole.replace("\"format\": 5", &format!("\"format\": {format}"));
        assert!(format == 5 || other != whole);
        other
    };
    for format in [1, 6, 99] {
        fs::write(&manifest, of_format(format)).unwrap();
        fails(&mut info(dir), &format!("recording format {format}"));
    }
    fs::write(&manifest, "{").unwrap();
    fails(&mut info(dir), "the manifest cannot be read");
    // Without checksums, as its recorder was killed.
    fs::remove_file(&manifest).unwrap();
    for format in [2, 3, 4, 5] {
        fs::write(recorded.dir.join("starting.json"), of_format(format)).unwrap();
        let output = info(dir).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
    }
}

#[test]
fn images_that_are_gone_show_as_gaps() {
    let scene = Scene::new();
    let recorded = scene.record(&["/bin/true"]);
    for image in fs::read_dir(recorded.dir.join("images")).unwrap() {
        fs::remove_file(image.unwrap().path()).unwrap();
    }
    let output = recorded.dump(&["insns", "--addresses"]);
    assert_eq!(output.status.code(), Some(0));
    let said = text(&output.stderr);
    assert!(said.contains("a stored image is missing"), "{said}");
    assert!(said.contains("gap: offset"), "{said}");
}

/// Whether a file system of so many bytes could be mounted at `dir`.
fn mounted(dir: &Path, options: &str) -> bool {
    fs::create_dir(dir).unwrap();
    let mount = ["-t", "tmpfs", "-o", options, "tmpfs"];
    let mounted = Command::new("mount").args(mount).arg(dir).output();
    let mounted = mounted.is_ok_and(|output| output.status.success());
    if !mounted {
        // Not eprintln!, which the test harness swallows.
        let _ = std::io::Write::write_fmt(
            &mut std::io::stderr(),
            format_args!("SKIPPED: cannot mount a small file system here\n"),
        );
    }
    mounted
}

#[test]
fn a_disk_that_becomes_full() {
    let scene = Scene::new();
    let small = scene.path("small");
    if !mounted(&small, "size=1500k") {
        return;
    }
    let dir = small.join("recording");
    let output = record(&scene)
        .arg("-o")
        .arg(&dir)
        .args(["/bin/sh", "-c", "echo done; exit 3"])
        .output()
        .unwrap();
    let said = text(&output.stderr);
    let complete = dir.join("manifest.json").exists();
    Command::new("umount").arg(&small).status().unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("No space left on device"), "{said}");
    assert!(said.contains("went on unrecorded"), "{said}");
    assert_eq!(text(&output.stdout), "done\n", "the program was harmed");
    assert!(!complete, "a half-written recording is reported as good");
}

/// A command that leaves a file behind where it runs.
fn leaves(scene: &Scene) -> [String; 3] {
    let mark = scene.path("it-ran");
    ["/bin/sh", "-c", &format!("echo > {}", mark.display())].map(str::to_owned)
}

#[test]
fn a_disk_that_takes_no_recording() {
    let scene = Scene::new();
    let small = scene.path("small");
    for (options, reason) in [("size=64k", "No space left"), ("ro", "Read-only file system")] {
        let _ = fs::remove_dir(&small);
        if !mounted(&small, options) {
            return;
        }
        let in_store = |command: &mut Command| {
            fails(command.env("CONTRAFLOW_HOME", small.join("store")), reason);
        };
        let store = small.join("store");
        in_store(contraflow().arg("record").args(leaves(&scene)));
        in_store(contraflow().arg("record").arg("-o").arg(store.join("r")).args(leaves(&scene)));
        let aside = scene.path("aside");
        let mut both = contraflow();
        both.args(["record", "--follow-forks", "-o"]).arg(&aside).args(leaves(&scene));
        in_store(&mut both);
        let left = fs::read_dir(&store).map_or(0, Iterator::count);
        Command::new("umount").arg(&small).status().unwrap();
        assert_eq!(left, 0, "something is left of it");
        assert!(!scene.path("it-ran").exists(), "the program was run");
        assert!(!aside.exists());
    }
}

#[test]
fn directories_that_are_not_written_over() {
    let scene = Scene::new();
    let recorded = scene.record(&["/bin/true"]);
    let to = |dir: &Path| {
        let mut command = record(&scene);
        command.arg("-o").arg(dir);
        command
    };
    let before = fs::read(recorded.dir.join("manifest.json")).unwrap();
    fails(
        to(&recorded.dir).args(leaves(&scene)),
        "holds a recording already; the program was not run; --force",
    );
    let foreign = scene.path("foreign");
    fs::create_dir(&foreign).unwrap();
    fs::write(foreign.join("mine"), "").unwrap();
    fails(to(&foreign).args(leaves(&scene)), "not empty, and not a recording");
    fails(to(&foreign).arg("--force").args(leaves(&scene)), "not empty, and not a recording");
    fails(to(&foreign.join("mine")).args(leaves(&scene)), "Not a directory");
    assert!(!scene.path("it-ran").exists(), "a program was run");
    // A program that does not start replaces nothing.
    let broken = scene.path("broken");
    fs::write(&broken, &fs::read("/bin/true").unwrap()[..80]).unwrap();
    fs::set_permissions(&broken, fs::Permissions::from_mode(0o755)).unwrap();
    fails(to(&recorded.dir).arg("--force").arg(&broken), "cannot execute");
    assert_eq!(fs::read(recorded.dir.join("manifest.json")).unwrap(), before);
    let new = scene.path("new");
    fails(to(&new).arg(&broken), "cannot execute");
    assert!(!new.exists(), "something is left of it");
    assert!(to(&recorded.dir).args(["--force", "/bin/echo"]).status().unwrap().success());
    assert_ne!(fs::read(recorded.dir.join("manifest.json")).unwrap(), before);
    fs::create_dir(&new).unwrap();
    assert!(to(&new).arg("/bin/true").status().unwrap().success());
    let mut names: Vec<_> = fs::read_dir(scene.path("")).unwrap().flatten().collect();
    names.retain(|entry| entry.file_name().to_string_lossy().contains("old"));
    assert!(names.is_empty(), "{names:?}");
}

#[test]
fn what_a_dump_cannot_print() {
    let scene = Scene::new();
    let recorded = scene.record(&["/bin/true"]);
    let dump = |arguments: &[&str], wanted: &str| {
        fails(contraflow().arg("dump").args(arguments).arg(&recorded.dir), wanted);
    };
    let tid = recorded.main_thread();
    dump(&["insns", "--thread", "99"], &format!("no thread 99; the recording has {tid}"));
    let end = recorded.logged(tid).len();
    let beyond = (end + 1).to_string();
    for what in ["insns", "blocks", "events", "calls"] {
        dump(&[what, "--from", &beyond], &format!("the path ends at {end}"));
    }
    let trace = recorded.dir.join(format!("trace/{tid}.pt"));
    let bytes = fs::metadata(&trace).unwrap().len();
    let behind = (bytes + 1).to_string();
    dump(&["packets", "--from", &behind], &format!("the trace ends at {bytes}"));
    dump(&["insns", "--from", "5", "--to", "3"], "--from 5 is after --to 3");
    let mut raw = contraflow();
    raw.args(["dump", "packets", "--from", &behind, "--pt"]).arg(&trace);
    fails(&mut raw, "the trace ends at");
    let last = recorded.dump(&["insns", "--from", &(end - 1).to_string()]);
    assert_eq!((last.status.code(), text(&last.stdout).lines().count()), (Some(0), 1));
}

#[test]
fn periods_that_no_cpu_has() {
    let scene = Scene::new();
    for period in ["0", "5", "2047", "5000", "134217728", "-1", "x"] {
        let output = record(&scene).arg(format!("--psb-period={period}")).arg("/bin/true").output();
        let output = output.unwrap();
        assert_eq!(output.status.code(), Some(2), "{period}");
        assert!(text(&output.stderr).contains("power of two from 2048 to 67108864"), "{period}");
    }
    assert!(!scene.path("store").exists());
}

/// A command with none of the variables that say where recordings go.
fn homeless(scene: &Scene) -> Command {
    let mut command = contraflow();
    for name in ["CONTRAFLOW_HOME", "XDG_DATA_HOME", "HOME"] {
        command.env_remove(name);
    }
    command.current_dir(scene.path(""));
    command
}

#[test]
fn recordings_are_kept_at_home() {
    let scene = Scene::new();
    let (data, home) = (scene.path("data"), scene.path("home"));
    let kept_in = |command: &mut Command, dir: &Path| {
        assert!(command.args(["record", "/bin/true"]).status().unwrap().success());
        assert!(dir.join("contraflow/true-0/manifest.json").exists(), "not in {}", dir.display());
    };
    kept_in(homeless(&scene).env("XDG_DATA_HOME", &data).env("HOME", &home), &data);
    kept_in(
        homeless(&scene).env("XDG_DATA_HOME", "data").env("HOME", &home),
        &home.join(".local/share"),
    );
    // A recording that is named by its path needs no store.
    let named = home.join(".local/share/contraflow/true-0");
    assert!(homeless(&scene).arg("info").arg(named).status().unwrap().success());
    assert!(homeless(&scene).arg("list").status().unwrap().success());
    assert!(!scene.path("contraflow").exists(), "a store in the working directory");
}

#[test]
fn a_user_without_a_home() {
    use std::os::unix::process::CommandExt;
    let scene = Scene::new();
    fs::set_permissions(scene.path(""), fs::Permissions::from_mode(0o777)).unwrap();
    let nobody = |command: &mut Command| {
        let output = command.uid(54321).gid(54321).output();
        if output.is_err() {
            // Not eprintln!, which the test harness swallows.
            let _ = std::io::Write::write_fmt(
                &mut std::io::stderr(),
                format_args!("SKIPPED: cannot become another user here\n"),
            );
        }
        output.ok()
    };
    let Some(output) = nobody(homeless(&scene).arg("record").args(leaves(&scene))) else { return };
    assert_eq!(output.status.code(), Some(2));
    let said = text(&output.stderr);
    assert!(said.contains("no home directory") && said.contains("-o"), "{said}");
    assert!(!scene.path("it-ran").exists(), "the program was run");
    let dir = scene.path("r");
    let output = nobody(homeless(&scene).args(["record", "-o"]).arg(&dir).arg("/bin/true"));
    let output = output.unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
}

#[test]
fn text_that_a_terminal_would_obey() {
    let scene = Scene::new();
    let store = scene.path("store");
    let hostile = "\u{1b}]0;pwned\u{7}\u{1b}[31m\u{9b}2J";
    let dir = store.join(hostile);
    let mut run = record(&scene);
    run.arg("-o").arg(&dir).args(["/bin/sh", "-c", "exit 0", hostile]).arg("\u{202e}txt");
    let output = run.output().unwrap();
    let info = contraflow().arg("info").arg(&dir).output().unwrap();
    // A cut recording has no checksums: its manifest says what anybody wants.
    let manifest = fs::read_to_string(dir.join("manifest.json")).unwrap();
    let cut = store.join("cut");
    fs::create_dir_all(cut.join("trace")).unwrap();
    fs::create_dir_all(cut.join("images")).unwrap();
    let mut value: serde_json::Value = serde_json::from_str(&manifest).unwrap();
    for field in ["program", "cwd", "written_by"] {
        value[field] = hostile.into();
    }
    value["cpu"]["vendor"] = hostile.into();
    value["capture"]["backend"] = hostile.into();
    fs::write(cut.join("starting.json"), value.to_string()).unwrap();
    fs::write(cut.join("sideband.bin"), "").unwrap();
    let of_cut = contraflow().arg("info").arg(&cut).output().unwrap();
    let list = contraflow().env("CONTRAFLOW_HOME", &store).arg("list").output().unwrap();
    let sideband = contraflow().args(["dump", "sideband"]).arg(&dir).output().unwrap();
    let missing = contraflow().arg("info").arg(format!("/{hostile}")).output().unwrap();
    let outputs = [output, info, of_cut, list, sideband, missing];
    for (number, output) in outputs.iter().enumerate() {
        let said = text(&output.stdout) + &text(&output.stderr);
        let obeyed = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
        assert!(!said.contains(obeyed), "output {number}: {said:?}");
        assert!(number == 4 || said.contains("\\x1b]0;pwned\\x07"), "output {number}: {said:?}");
    }
}

#[test]
fn a_port_in_use() {
    let scene = Scene::new();
    let recorded = scene.record(&["/bin/true"]);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let mut command = contraflow();
    command.args(["replay", "--listen", &address]).arg(&recorded.dir);
    fails(&mut command, "cannot listen on");
    let mut command = contraflow();
    command.args(["replay", "--listen", "nonsense"]).arg(&recorded.dir);
    fails(&mut command, "give :PORT, HOST:PORT or unix:PATH");
    // It is noticed before anything is done to the process.
    let mut process = Command::new("sleep").arg("1000").spawn().unwrap();
    let mut command = contraflow();
    command.args(["serve", &address, "-p", &process.id().to_string()]);
    fails(&mut command, "cannot listen on");
    assert_eq!(process.try_wait().unwrap(), None);
    process.kill().unwrap();
    process.wait().unwrap();
}

#[test]
fn ptrace_that_is_refused() {
    let scene = Scene::new();
    // Whoever is traced already cannot be traced again; strace stands for any other tracer.
    if !have("strace") {
        return;
    }
    let mut command = Command::new("strace");
    command.args([
        "-f",
        "-o",
        "/dev/null",
        env!("CARGO_BIN_EXE_contraflow"),
        "record",
        "/bin/true",
    ]);
    command.env("CONTRAFLOW_HOME", scene.path("store"));
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("ptrace is refused"), "{}", text(&output.stderr));
}
