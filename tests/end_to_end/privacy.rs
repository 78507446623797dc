//! What is a user's own: recordings, that nobody else may read, and servers, that nobody else may
//! use. And what a recorder may use of its machine: few open files.

use crate::support::{Scene, contraflow, have, run_gdb, text};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// contraflow with `before` said to the shell that starts it.
fn after(before: &str, scene: &Scene) -> Command {
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(format!("{before}; exec \"$@\"")).arg("sh").arg(contraflow().get_program());
    shell.env("CONTRAFLOW_HOME", scene.path("store")).stdin(Stdio::null());
    shell
}

fn files_below(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files_below(&path) } else { vec![path] }).collect()
}

#[test]
fn a_recordings_files_are_for_their_owner_alone() {
    let scene = Scene::new();
    let dir = scene.path("recording");
    fs::create_dir(&dir).unwrap();
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o777)).unwrap();
    let mut record = after("umask 0", &scene);
    let output = record.args(["record", "-o"]).arg(&dir).arg("/bin/true").output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let index = contraflow().arg("index").arg(&dir).output().unwrap();
    assert!(index.status.success(), "{}", text(&index.stderr));
    let files = files_below(&dir);
    assert!(files.len() > 6, "{files:?}");
    for file in files {
        let mode = fs::metadata(&file).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{}", file.display());
    }
}

#[test]
fn directories_of_a_recording_that_are_links_are_refused() {
    for name in ["trace", "images"] {
        let scene = Scene::new();
        let recorded = scene.record(&["/bin/true"]);
        let (inside, outside) = (recorded.dir.join(name), scene.path("outside"));
        fs::rename(&inside, &outside).unwrap();
        symlink(&outside, &inside).unwrap();
        let output = contraflow().arg("info").arg(&recorded.dir).output().unwrap();
        let said = text(&output.stderr);
        assert!(!output.status.success(), "{name}");
        assert!(said.contains(&format!("{name}: a symbolic link, not a directory")), "{said}");
    }
}

#[test]
fn what_a_recorder_leaves_that_is_killed_at_once_opens_or_is_nothing() {
    let scene = Scene::new();
    let recorded = scene.record(&["/bin/true"]);
    // What there is of a recording, file after file, in the order in which it is made.
    let dir = scene.path("killed");
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("starting.partial"), "{").unwrap();
    let again = contraflow().arg("record").arg("-o").arg(&dir).arg("/bin/true").output().unwrap();
    assert!(again.status.success(), "{}", text(&again.stderr));
    fs::remove_dir_all(&dir).unwrap();
    fs::create_dir(&dir).unwrap();
    fs::copy(recorded.dir.join("manifest.json"), dir.join("starting.json")).unwrap();
    for made in ["", "trace", "images", "sideband.bin"] {
        match made {
            "" => {}
            "sideband.bin" => fs::write(dir.join(made), "").unwrap(),
            sub => fs::create_dir(dir.join(sub)).unwrap(),
        }
        for command in [&["info"][..], &["dump", "insns"]] {
            let output = contraflow().args(command).arg(&dir).output().unwrap();
            assert!(output.status.success(), "{made}: {}", text(&output.stderr));
        }
    }
}

fn is_root() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    status.lines().any(|line| line.starts_with("Uid:\t0\t0\t0"))
}

/// What a server at `address` says to a client of another user, who asks for the next stop.
fn said_to_another_user(address: &str) -> String {
    let (host, port) = address.rsplit_once(':').unwrap();
    let client = format!("exec 3<>/dev/tcp/{host}/{port}; printf '$?#3f' >&3; head -c 50 <&3");
    let output = Command::new("bash").args(["-c", &client]).uid(65534).output().unwrap();
    text(&output.stdout)
}

#[test]
fn a_server_lets_in_its_own_user_only() {
    if !is_root() || !have("bash") || !have("gdb") {
        return;
    }
    let scene = Scene::new();
    let recorded = scene.record(&["/bin/true"]);
    let dir = recorded.dir.to_str().unwrap();
    let servers = [
        &["serve", ":0", "--once", "--", "/bin/true"][..],
        &["replay", "--listen", ":0", "--once", dir],
    ];
    for server in servers {
        let mut contraflow = contraflow();
        contraflow.args(server).env("CONTRAFLOW_HOME", scene.path("store")).stdin(Stdio::null());
        let mut server = contraflow.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut says = BufReader::new(server.stderr.take().unwrap());
        let mut line = String::new();
        says.read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("contraflow: listening on ").unwrap().to_owned();
        let said = said_to_another_user(&address);
        assert!(said.contains("E.contraflow serves the user who started it only"), "{said}");
        line.clear();
        says.read_line(&mut line).unwrap();
        assert!(line.contains("refused a connection of user 65534: unix:PATH"), "{line}");
        let mut gdb = Command::new("gdb");
        gdb.args(["-nx", "-q", "-batch"]);
        let said = run_gdb(gdb, &format!("target remote {address}\ninfo threads\nkill"));
        assert!(said.contains("Thread "), "{said}");
        assert_eq!(server.wait().unwrap().code(), Some(0));
    }
}

#[test]
fn threads_that_ended_leave_no_files_open() {
    if !have("gcc") {
        return;
    }
    let scene = Scene::new();
    let program = scene.compile("many_threads.c", &[]);
    let mut record = after("ulimit -n 150", &scene);
    let output = record.args(["record", "--full"]).arg(&program).arg("200").output().unwrap();
    assert_eq!(text(&output.stdout), "200 threads\n", "{}", text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    if !have("gdb") {
        return;
    }
    let serve = format!(
        "sh -c \"ulimit -n 150; exec {} serve --stdio -- {} 200\"",
        contraflow().get_program().display(),
        program.display()
    );
    let mut gdb = Command::new("gdb");
    gdb.args(["-nx", "-q", "-batch", "-ex", "set sysroot /", "-ex", "set remotetimeout 60"]);
    gdb.env("TMPDIR", scene.path(""));
    let said = run_gdb(gdb, &format!("target remote | {serve}\ncontinue"));
    assert!(said.contains("200 threads") && !said.contains("onnection"), "{said}");
}

/// Tests a server whose user may have no more threads than it has: it closes the connections of
/// further clients, and serves the next one.
#[test]
fn a_server_goes_on_without_a_thread_to_refuse_a_client() {
    if !is_root() || !have("bash") {
        return;
    }
    let scene = Scene::new();
    fs::set_permissions(scene.path(""), fs::Permissions::from_mode(0o777)).unwrap();
    let dir = scene.path("of-another-user");
    let as_user = |script: &str, arguments: &[&str]| {
        let mut command = Command::new("bash");
        command.args(["-c", script, "bash"]).arg(contraflow().get_program()).args(arguments);
        command.arg(&dir).env("CONTRAFLOW_HOME", scene.path("of-user")).stdin(Stdio::null());
        command.uid(54322).gid(54322).stdout(Stdio::null());
        command
    };
    let status = as_user("exec \"$@\" /bin/true", &["record", "--path", "-q", "-o"]).status();
    assert!(status.is_ok_and(|status| status.success()));
    let mut server = as_user("ulimit -u 2; exec \"$@\"", &["replay", "--listen", ":0"]);
    let mut server = server.stderr(Stdio::piped()).spawn().unwrap();
    let mut says = BufReader::new(server.stderr.take().unwrap());
    let mut line = String::new();
    says.read_line(&mut line).unwrap();
    let address = line.trim().strip_prefix("contraflow: listening on ").unwrap();
    let client = || {
        let client = TcpStream::connect(address).unwrap();
        client.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        client
    };
    let said_to = |mut client: &TcpStream| {
        let mut said = [0; 5];
        client.write_all(b"$?#3f").and_then(|()| client.read_exact(&mut said)).ok();
        text(&said)
    };
    let first = client();
    assert!(said_to(&first).starts_with("+$T"));
    for _ in 0..2 {
        assert_eq!(said_to(&client()), "\0".repeat(5), "it is closed");
    }
    drop(first);
    assert!((0..100).any(|_| said_to(&client()).starts_with("+$T")), "nobody is served");
    server.kill().unwrap();
    server.wait().unwrap();
}
