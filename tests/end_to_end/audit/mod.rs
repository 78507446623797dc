//! The table of system calls against the kernel: programs run natively, and around each call all
//! writable private memory is compared with the ranges that the table claims.

mod auditor;
mod mappings;
mod report;
mod snapshot;

use crate::support::{Scene, have};
use auditor::audit;
use report::Report;
use std::collections::BTreeSet;
use std::panic::catch_unwind;
use std::path::Path;
use std::sync::Mutex;
use std::thread;

/// Programs that make as many different calls as they can, with poisoned buffers.
const CALLS: [&str; 4] = ["files.c", "processes.c", "sockets.c", "devices.c"];

/// Programs of the system; those that a machine lacks only fail.
const SCRIPTS: [&str; 5] = [
    "ls -lR /usr/share/doc/bash > /dev/null; echo done | cat > file; wc file > /dev/null",
    "echo 'create table t(a); insert into t values(1), (2); select sum(a) from t;' | \
     sqlite3 test.db > /dev/null",
    "git init -q . && git add . && git -c user.name=n -c user.email=e commit -qm m && git log \
     > /dev/null",
    "bash -c 'for i in 1 2 3; do (echo $i); done | sort > sorted; sleep 0.01'",
    "python3 -S -c 'import os, subprocess, threading; t = threading.Thread(target=os.getpid); \
     t.start(); t.join(); subprocess.run([\"true\"])'",
];

/// Runs each program of other testsuites in namespaces of its own, so that no process outlives it.
const ALONE: &str = "exec unshare --pid --fork --kill-child --mount-proc --uts --ipc \
                     timeout -s KILL 30 setsid";
/// The number of audits at a time.
const AUDITORS: usize = 2;

/// Prints what was found, for `--nocapture`, and fails where the kernel wrote unclaimed bytes.
fn judge(report: &Report) {
    let succeeded = &report.succeeded;
    let calls: BTreeSet<_> = succeeded.keys().filter_map(|name| name.split(' ').next()).collect();
    println!("succeeded: {} variants of {} calls", succeeded.len(), calls.len());
    println!("{:?}", succeeded.keys());
    let only_failed = report.failed.iter().filter(|(name, _)| !succeeded.contains_key(*name));
    println!("only failed: {:?}", only_failed.collect::<Vec<_>>());
    println!("unknown: {:?}, assumed: {:?}", report.unknown, report.assumed);
    println!("bytes written at ends of threads: {}", report.written_at_ends);
    assert!(report.faults.is_empty(), "{}", report.faults.join("\n"));
}

fn audit_calls(source: &str) -> Report {
    let scene = Scene::new();
    let program = scene.compile(&format!("calls/{source}"), &["-O1", "-w"]);
    audit(&program, &[source], &scene.path(""))
}

#[test]
fn the_kernel_writes_what_the_table_claims() {
    if !have("gcc") {
        return;
    }
    let mut report = Report::default();
    thread::scope(|scope| {
        let audits = CALLS.map(|source| scope.spawn(move || audit_calls(source)));
        for audit in audits {
            report.add(audit.join().expect("an audit"));
        }
    });
    judge(&report);
    // How many there are depends on what the machine allows.
    assert!(report.succeeded.len() > 250, "{} variants", report.succeeded.len());
    let wide = report.widths.iter().filter(|(_, width)| width.claimed > 1024 + 4 * width.changed);
    let wide: Vec<_> = wide.map(|(name, width)| (name, width.claimed, width.changed)).collect();
    assert!(wide.is_empty(), "claimed, changed: {wide:?}");
}

#[test]
fn the_kernel_writes_what_the_table_claims_for_programs_of_the_system() {
    let scene = Scene::new();
    let mut report = Report::default();
    for script in SCRIPTS {
        report.add(audit(Path::new("/bin/sh"), &["sh", "-c", script], &scene.path("")));
    }
    judge(&report);
}

/// Programs that the Linux Test Project or strace test all calls with. `AUDIT_PROGRAMS` names a file that has
/// the path of one in each line.
#[test]
#[ignore = "needs programs of other testsuites: AUDIT_PROGRAMS"]
fn the_kernel_writes_what_the_table_claims_for_programs_of_testsuites() {
    let Some(list) = std::env::var_os("AUDIT_PROGRAMS") else {
        eprintln!("SKIPPED: AUDIT_PROGRAMS names no list of programs");
        return;
    };
    let list = std::fs::read_to_string(list).expect("the list");
    let programs = Mutex::new(list.lines());
    let scene = Scene::new();
    let audits = || {
        let mut report = Report::default();
        loop {
            let next = programs.lock().unwrap().next();
            let Some(program) = next else { break report };
            let dir = scene.path(&program.replace('/', "_"));
            std::fs::create_dir(&dir).expect("a directory");
            let script = format!("{ALONE} {program} > /dev/null 2>&1 < /dev/null");
            let audited =
                catch_unwind(|| audit(Path::new("/bin/sh"), &["sh", "-c", &script], &dir));
            match audited {
                Ok(audited) => {
                    audited.faults.iter().for_each(|fault| eprintln!("{program}: {fault}"));
                    report.add(audited);
                }
                Err(_) => eprintln!("{program}: the audit failed"),
            }
            // Where it has mounted something, that stays.
            let _ = std::fs::remove_dir_all(dir);
        }
    };
    let mut report = Report::default();
    thread::scope(|scope| {
        let workers: Vec<_> = (0..AUDITORS).map(|_| scope.spawn(audits)).collect();
        for worker in workers {
            report.add(worker.join().expect("an audit"));
        }
    });
    judge(&report);
}
