//! Real gdb walks recordings of real programs, back and forth. The addresses that it must show
//! are those that the tracer logged.

use crate::support::{Recorded, Scene, answer, assert_in_order, contraflow, have, run_gdb, text};
use std::fmt::Write as _;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

/// A recorded program of tests/programs, and its first thread.
struct Walk {
    scene: Scene,
    recorded: Recorded,
    log: Vec<u64>,
}

impl Walk {
    fn of(source: &str, flags: &[&str], arguments: &[&str]) -> Option<Self> {
        if !have("gcc") || !have("gdb") {
            return None;
        }
        let scene = Scene::new();
        let program = scene.compile(source, flags);
        let mut command = vec![program.to_str().unwrap()];
        command.extend(arguments);
        let recorded = scene.record(&command);
        Some(Self::new(scene, recorded))
    }

    fn new(scene: Scene, recorded: Recorded) -> Self {
        let log = recorded.logged(recorded.main_thread());
        Self { scene, recorded, log }
    }

    /// Steps `count` instructions back from the end, and forwards again; compares each address
    /// with the log.
    fn assert_steps(&self, count: usize) {
        let mut commands = String::from("print/x $pc\n");
        for direction in ["reverse-stepi", "stepi"] {
            for _ in 0..count {
                let _ = writeln!(commands, "{direction}\nprint/x $pc");
            }
        }
        let output = self.recorded.gdb(&commands);
        let shown: Vec<u64> = output
            .lines()
            .filter_map(|line| line.strip_prefix('$')?.split_once(" = 0x"))
            .map(|(_, pc)| u64::from_str_radix(pc, 16).unwrap())
            .collect();
        assert_eq!(shown.len(), 2 * count + 1, "{output}");
        let back: Vec<u64> = self.log.iter().rev().take(count).copied().collect();
        assert_eq!(&shown[1..=count], &back, "backwards");
        let forth: Vec<u64> = shown[..count].iter().rev().copied().collect();
        assert_eq!(&shown[count + 1..], &forth, "forwards again");
    }
}

#[test]
fn from_the_crash_to_the_bug() {
    let Some(walk) = Walk::of("crash.c", &["-O0"], &[]) else { return };
    let output = walk.recorded.gdb(
        "backtrace
         print length
         reverse-next
         reverse-finish
         reverse-next
         reverse-step
         reverse-step
         backtrace
         list
         reverse-continue
         continue",
    );
    assert_in_order(
        answer(&output, "backtrace", 0),
        &["#0 ", "longest_name", "#1 ", "report () at", "#2 ", "main () at"],
    );
    assert_eq!(answer(&output, "print length", 0), "$1 = 0");
    assert_in_order(answer(&output, "reverse-finish", 0), &["report () at", "longest_name();"]);
    assert_in_order(answer(&output, "reverse-next", 1), &["main () at", "report();"]);
    assert_in_order(answer(&output, "reverse-step", 0), &["retire (", "}"]);
    assert!(answer(&output, "reverse-step", 1).contains("the bug: `a` stays on the list"));
    assert_in_order(answer(&output, "backtrace", 1), &["#0 ", "retire (", "#1 ", "main () at"]);
    assert!(answer(&output, "list", 0).contains("free(a->owner);"));
    assert!(answer(&output, "reverse-continue", 0).contains("No more reverse-execution history"));
    assert_in_order(
        answer(&output, "continue", 0),
        &["No more reverse-execution history", "longest_name", "while (a->owner[length])"],
    );
    walk.assert_steps(40);
}

#[test]
fn unknown_values_are_not_made_up() {
    let Some(walk) = Walk::of("crash.c", &["-O0"], &[]) else { return };
    let output = walk.recorded.gdb(
        "print $rax
         x/2i $pc
         reverse-next
         print $rax
         print $sp
         print accounts
         x/wx &_IO_stdin_used
         x/2i $pc
         set var $rax = 1
         print longest_name()
         continue
         print accounts->balance",
    );
    assert!(answer(&output, "print $rax", 0).starts_with("$1 = "));
    assert_eq!(answer(&output, "print $rax", 1), "$2 = <unavailable>");
    assert_eq!(answer(&output, "print $sp", 0), "$3 = <unavailable>");
    assert!(answer(&output, "print accounts", 0).contains("Cannot access memory"), "{output}");
    // Code and read-only data are known at any time.
    assert!(answer(&output, "x/wx &_IO_stdin_used", 0).ends_with("0x00020001"), "{output}");
    assert_in_order(answer(&output, "x/2i $pc", 1), &["=>", "<longest_name+", "<longest_name+"]);
    assert!(output.contains("the past cannot be changed"), "{output}");
    assert!(answer(&output, "print accounts->balance", 0).ends_with("= 7"), "{output}");
}

#[test]
fn recursion_and_callbacks() {
    for optimization in ["-O0", "-O2"] {
        let Some(walk) = Walk::of("recursion.c", &[optimization], &[]) else { return };
        let output = walk.recorded.gdb(
            "break add
             reverse-continue
             backtrace
             reverse-finish
             up
             delete
             break main
             reverse-continue
             delete
             next
             next
             tbreak qsort
             continue
             reverse-finish
             reverse-next
             reverse-next",
        );
        assert_in_order(answer(&output, "reverse-continue", 0), &["Breakpoint", "add ("]);
        assert_in_order(
            answer(&output, "backtrace", 0),
            &["#0 ", "add (", "#1 ", "walk (", "main () at"],
        );
        assert_in_order(answer(&output, "reverse-finish", 0), &["walk (", "visit(t->value"]);
        assert_in_order(answer(&output, "up", 0), &["#1 "]);
        assert_in_order(answer(&output, "reverse-continue", 1), &["Breakpoint", "main () at"]);
        assert_in_order(answer(&output, "continue", 0), &["qsort"]);
        assert_in_order(answer(&output, "reverse-finish", 1), &["main () at", "qsort(values"]);
        assert!(answer(&output, "reverse-next", 1).contains("walk(root, add, &sum)"), "{output}");
        walk.assert_steps(20);
    }
}

#[test]
fn breakpoints_by_line_in_both_directions() {
    let Some(walk) = Walk::of("recursion.c", &["-O0"], &[]) else { return };
    let output = walk.recorded.gdb(
        "break recursion.c:38
         reverse-continue
         reverse-continue
         reverse-continue
         monitor when
         continue
         continue
         continue
         info breakpoints",
    );
    for nth in 0..3 {
        let stop = answer(&output, "reverse-continue", nth);
        assert_in_order(stop, &["Breakpoint 1, add (", "recursion.c:38"]);
    }
    for nth in 0..2 {
        assert!(answer(&output, "continue", nth).contains("recursion.c:38"), "{output}");
    }
    assert!(answer(&output, "continue", 2).contains("No more reverse-execution history"));
    assert!(answer(&output, "monitor when", 0).starts_with("position "), "{output}");
    assert!(answer(&output, "info breakpoints", 0).contains("already hit 5 times"), "{output}");
}

#[test]
fn a_stripped_program_of_the_system() {
    if !have("gdb") {
        return;
    }
    let scene = Scene::new();
    let recorded = scene.record(&["/bin/ls", "-l", "/etc/passwd"]);
    let walk = Walk::new(scene, recorded);
    walk.assert_steps(30);
    let output = walk.recorded.gdb(
        "break write
         reverse-continue
         backtrace 1
         monitor when
         reverse-finish
         reverse-continue
         continue
         monitor when",
    );
    assert_in_order(answer(&output, "reverse-continue", 0), &["Breakpoint 1", "write"]);
    assert!(answer(&output, "reverse-continue", 1).contains("No more reverse-execution history"));
    assert_in_order(answer(&output, "continue", 0), &["Breakpoint 1", "write"]);
    assert_eq!(answer(&output, "monitor when", 0), answer(&output, "monitor when", 1));
}

#[test]
fn signal_handlers() {
    let Some(walk) = Walk::of("handler.c", &[], &[]) else { return };
    let output = walk.recorded.gdb(
        "handle SIGUSR1 SIGUSR2 SIGSEGV nostop noprint pass
         break on_usr2
         reverse-continue
         backtrace
         delete
         break on_fault
         continue
         backtrace
         continue
         reverse-continue
         delete
         break on_alarm
         reverse-continue
         reverse-finish
         stepi",
    );
    assert_in_order(answer(&output, "backtrace", 0), &["on_usr2 (", "on_usr1 (", "main () at"]);
    assert_in_order(answer(&output, "continue", 0), &["Breakpoint 2, on_fault ("]);
    assert_in_order(answer(&output, "backtrace", 1), &["#0 ", "on_fault (", "#1 ", "main () at"]);
    assert!(answer(&output, "continue", 1).contains("on_fault ("));
    assert!(answer(&output, "reverse-continue", 1).contains("on_fault ("));
    assert!(answer(&output, "reverse-continue", 2).contains("on_alarm ("));
    assert!(answer(&output, "stepi", 0).contains("on_alarm ("), "{output}");
    walk.assert_steps(20);
}

#[test]
fn four_threads() {
    let Some(walk) = Walk::of("threads.c", &[], &[]) else { return };
    let output = walk.recorded.gdb(
        "info threads
         break work
         reverse-continue
         info threads
         backtrace 2
         reverse-continue
         reverse-continue
         reverse-continue
         thread apply all backtrace 1
         reverse-next
         next
         delete
         reverse-continue
         info threads
         continue
         info threads",
    );
    let threads = |nth| {
        let listed = answer(&output, "info threads", nth).lines();
        listed.filter(|line| line.contains("\"threads\"") && !line.starts_with('[')).count()
    };
    assert_eq!(threads(0), 1, "{output}");
    for nth in 0..4 {
        assert!(answer(&output, "reverse-continue", nth).contains("work ("), "{output}");
    }
    assert_eq!(threads(1), 5, "{output}");
    assert_in_order(answer(&output, "backtrace 2", 0), &["#0 ", "work (", "#1 ", "worker ("]);
    assert_eq!(threads(2), 1, "at the start: {output}");
    assert_eq!(threads(3), 1, "at the end: {output}");
    walk.assert_steps(20);
}

#[test]
fn a_program_that_forks() {
    let Some(walk) = Walk::of("forks.c", &[], &[]) else { return };
    let output = walk.recorded.gdb(
        "break fork
         reverse-continue
         reverse-finish
         reverse-continue
         reverse-continue",
    );
    assert_in_order(answer(&output, "reverse-continue", 0), &["Breakpoint 1", "fork"]);
    assert_in_order(answer(&output, "reverse-finish", 0), &["main (", "fork()"]);
    assert_in_order(answer(&output, "reverse-continue", 1), &["Breakpoint 1", "fork"]);
    assert!(answer(&output, "reverse-continue", 2).contains("No more reverse-execution history"));
    walk.assert_steps(20);
}

/// `target remote` over TCP and over standard streams give the same.
#[test]
fn over_a_socket_and_over_standard_streams() {
    let Some(walk) = Walk::of("crash.c", &["-O0"], &[]) else { return };
    let mut server = contraflow()
        .args(["replay", "--listen", "127.0.0.1:0"])
        .arg(&walk.recorded.dir)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(server.stderr.take().unwrap()).read_line(&mut line).unwrap();
    let address = line.trim().strip_prefix("contraflow: listening on ").expect("an address");
    let script = walk.scene.path("contraflow.py");
    let printed = contraflow().arg("gdbinit").output().unwrap();
    std::fs::write(&script, printed.stdout).unwrap();
    let gdb = |remote: &str, last: &str| {
        let mut gdb = Command::new("gdb");
        gdb.args(["-nx", "-q", "-batch"]).arg(walk.scene.path("crash"));
        let commands = format!(
            "set sysroot /
             source {}
             target remote {remote}
             backtrace
             reverse-step
             reverse-next
             backtrace
             break retire
             reverse-continue
             backtrace
             reverse-finish
             next
             {last}",
            script.display()
        );
        let output = run_gdb(gdb, &commands);
        let from = output.find(">>> backtrace").expect("it connects");
        let to = output.find(&format!(">>> {last}")).expect("it goes to the end");
        output[from..to].to_owned()
    };
    let stdio = format!(
        "| {} replay --stdio {}",
        env!("CARGO_BIN_EXE_contraflow"),
        walk.recorded.dir.display()
    );
    let over_stdio = gdb(&stdio, "detach");
    assert_in_order(&over_stdio, &["longest_name", "main () at", "Breakpoint 1, retire ("]);
    assert_eq!(over_stdio, gdb(address, "detach"));
    // The server outlives a client that detaches, with the position where it left, and ends with
    // one that kills.
    assert!(gdb(address, "kill").contains("retire ("));
    assert!(server.wait().unwrap().success());
}

#[test]
fn interrupting_a_search() {
    let Some(walk) = Walk::of("recursion.c", &["-O0"], &[]) else { return };
    // A condition that is never true makes gdb come back at each hit: long enough to interrupt.
    let mut gdb = contraflow();
    gdb.arg("replay").arg(&walk.recorded.dir).args(["--", "-nx", "-batch"]);
    gdb.args(["-ex", "set pagination off", "-ex", "break *main if 0", "-ex", "break do_lookup_x"]);
    let commands = "python import threading, os, signal; \
        threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()";
    gdb.args(["-ex", commands, "-ex", "ignore 2 1000000", "-ex", "reverse-continue"]);
    gdb.args(["-ex", "monitor when", "-ex", "stepi", "-ex", "print $_exitcode"]);
    let output = gdb.stdin(Stdio::null()).output().unwrap();
    let said = text(&output.stdout) + &text(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("position "), "{said}");
}

#[test]
fn dump_prints_address_function_line_and_disassembly() {
    let Some(walk) = Walk::of("recursion.c", &["-O0"], &[]) else { return };
    let output = text(&walk.recorded.dump(&["insns"]).stdout);
    assert_eq!(output.lines().count(), walk.log.len());
    let main = output.lines().find(|line| line.contains("  main+0x0  ")).expect("main");
    let fields: Vec<_> = main.splitn(4, "  ").collect();
    assert_eq!(fields[0].len(), 16, "{main}");
    assert!(fields[2].contains("recursion.c:5"), "{main}");
    assert_eq!(fields[3], "push %rbp", "{main}");
    let first = format!("{:016x}  _start+0x0  ", walk.log[0]);
    assert!(output.starts_with(&first), "{}", output.lines().next().unwrap());
}
