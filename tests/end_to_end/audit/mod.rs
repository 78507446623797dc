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
use std::path::Path;
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
