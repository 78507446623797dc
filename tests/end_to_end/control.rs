//! Run control of live programs where several things come in one moment: what a debugger is told,
//! and what it gives, is never lost.

use crate::serve::{Client, Live, name, tools};
use crate::support::{Scene, address_of, answer, assert_in_order};

const BACKENDS: [&str; 3] = ["exact", "soft", "step"];

/// What gdb prints for these commands on a program, with each backend.
fn each(source: &str, flags: &[&str], arguments: &[&str], commands: &str, check: fn(&str)) {
    if !tools() {
        return;
    }
    for backend in BACKENDS {
        let scene = Scene::new();
        let program = scene.compile(source, flags);
        let command = [&[name(&program)], arguments].concat();
        let live = Live::start_by(backend, &scene, &["--once"], &command);
        let said = live.gdb(&program, &format!("{commands}\nkill"));
        check(&format!("{backend}:\n{said}"));
    }
}

#[test]
fn functions_without_a_result_are_called() {
    let commands = "break ready\ncontinue\nset var $st0 = 2.5\ncall call_me(5)\nprint called\n\
                    print $st0\nset var $ftag = 0x7fff\nprint/x $ftag\nset var $fioff = 0x1234\n\
                    print/x $fioff\nset var $mxcsr = 0x1f81\nprint $mxcsr";
    each("handlers.c", &["-O0"], &[], commands, |said| {
        assert!(answer(said, "call call_me(5)", 0).is_empty(), "{said}");
        assert!(answer(said, "print called", 0).ends_with("= 5"), "{said}");
        assert!(answer(said, "print $st0", 0).ends_with("= 2.5"), "{said}");
        assert!(answer(said, "print/x $ftag", 0).ends_with("= 0x7fff"), "{said}");
        assert!(answer(said, "print/x $fioff", 0).ends_with("= 0x1234"), "{said}");
        assert!(answer(said, "print $mxcsr", 0).contains("IE"), "{said}");
    });
}

#[test]
fn each_thread_gets_the_signal_that_it_is_given() {
    let commands = "break ready\ncontinue\nthread 2\nqueue-signal SIGUSR1\nthread 3\n\
                    queue-signal SIGUSR2\nthread 1\nbreak done\ncontinue\nprint first\nprint second";
    each("handlers.c", &["-O0"], &[], commands, |said| {
        assert!(answer(said, "continue", 1).contains("hit Breakpoint 2"), "{said}");
        assert!(answer(said, "print first", 0).ends_with("= 1"), "{said}");
        assert!(answer(said, "print second", 0).ends_with("= 1"), "{said}");
    });
}

#[test]
fn a_step_does_not_end_in_a_handler() {
    let commands = "handle SIGALRM nostop noprint pass\nbreak send_alarm\ncontinue\nnext\nnext\n\
                    print third\nbt 1";
    each("handlers.c", &["-O0"], &[], commands, |said| {
        assert!(answer(said, "next", 1).contains("after the alarm"), "{said}");
        assert!(answer(said, "print third", 0).ends_with("= 1"), "{said}");
        assert!(answer(said, "bt 1", 0).starts_with("#0  send_alarm"), "{said}");
    });
}

#[test]
fn a_breakpoint_where_the_program_is_put_stops_it() {
    let commands = "break work\ncontinue\ncontinue\nnext\njump 15\nprint n\ncontinue\nprint n\n\
                    delete\ntbreak main\njump main";
    each("live.c", &["-O0"], &[], commands, |said| {
        assert!(answer(said, "jump 15", 0).contains("Breakpoint 1, work (n=1)"), "{said}");
        assert!(answer(said, "print n", 0).ends_with("= 1"), "{said}");
        assert!(answer(said, "print n", 1).ends_with("= 2"), "{said}");
        assert!(answer(said, "jump main", 0).contains("Temporary breakpoint 2, main"), "{said}");
    });
}

/// A step with a signal ends at the first instruction of its handler.
#[test]
fn a_step_with_a_signal_ends_at_its_handler() {
    let commands = "continue\nstepi\ninfo symbol $pc\nfinish\nnext";
    each("live.c", &["-O0"], &[], commands, |said| {
        assert!(answer(said, "continue", 0).contains("received signal SIGUSR1"), "{said}");
        let symbol = answer(said, "info symbol $pc", 0);
        assert!(symbol.starts_with("on_signal in section .text"), "{said}");
    });
}

/// A breakpoint where there is no memory: gdb says so instead of letting the program go on without it.
#[test]
fn a_breakpoint_without_memory_is_refused() {
    let commands = "break work\ncontinue\nbreak *0\ncontinue\ndelete 2\ncontinue\nprint n";
    each("live.c", &["-O0"], &[], commands, |said| {
        assert!(answer(said, "continue", 1).contains("Cannot insert breakpoint 2"), "{said}");
        assert!(answer(said, "continue", 2).contains("Breakpoint 1, work (n=1)"), "{said}");
        assert!(answer(said, "print n", 0).ends_with("= 1"), "{said}");
    });
}

/// The program's mappings are listed without the recorder's, which cannot be read.
#[test]
fn mappings_are_those_of_the_program() {
    let commands = "break work\ncontinue\npython lines = gdb.execute('info proc mappings', to_string=True)\n\
                    python lines = [line.split() for line in lines.splitlines() if ' r' in line]\n\
                    python lines = [line for line in lines if not line[-1].startswith('[v')]\n\
                    python reads = [gdb.selected_inferior().read_memory(int(line[0], 0), 1) for line in lines]\n\
                    python print('readable', len(reads) > 10, len(reads) == len(lines))\nrun\ninfo proc cwd\n\
                    reverse-stepi\ninfo proc cwd";
    each("live.c", &["-O0"], &[], commands, |said| {
        assert!(said.contains("readable True True"), "{said}");
        assert!(answer(said, "run", 0).contains("the program runs already"), "{said}");
        assert!(answer(said, "info proc cwd", 0).contains("cwd = '/"), "{said}");
        assert!(answer(said, "info proc cwd", 1).contains("the past has no process"), "{said}");
    });
}

#[test]
fn a_thread_that_forks_takes_no_stop_from_another() {
    let laps = "next\nprint lap\ncontinue\n".repeat(20);
    let commands = format!("break laps.c:29\ncontinue\n{laps}kill");
    if !tools() {
        return;
    }
    for backend in BACKENDS {
        let scene = Scene::new();
        let program = scene.compile("laps.c", &["-O0"]);
        let live = Live::start_by(backend, &scene, &["--once"], &[name(&program)]);
        let said = live.gdb(&program, &commands);
        for lap in 0..20 {
            assert!(answer(&said, "next", lap).contains("rest(); // two"), "{backend}: {said}");
            let wanted = format!("= {lap}");
            assert!(answer(&said, "print lap", lap).ends_with(&wanted), "{backend}: {said}");
        }
    }
}

#[test]
fn an_interrupt_between_two_packets_stops_the_next_resume() {
    if !tools() {
        return;
    }
    let scene = Scene::new();
    let program = scene.compile("live.c", &["-O0", "-no-pie"]);
    let live = Live::start(&scene, &[], &[name(&program)]);
    let mut client = Client::connect(live.address());
    let breakpoint = format!("Z0,{:x},1", address_of(&program, "work"));
    assert_eq!(client.ask(&breakpoint), "OK");
    assert!(client.ask("vCont;c").starts_with("T05"));
    client.interrupt();
    assert_eq!(client.ask("m0,1"), "E0e");
    let before = client.ask("p10");
    assert!(client.ask("vCont;c").starts_with("T02"));
    assert_eq!(client.ask("p10"), before);
    assert!(client.ask("vCont;c").starts_with("T05"), "once");
    client.send("k");
}

#[test]
fn the_only_thread_that_runs_may_end() {
    let commands = "break leave\ncontinue\nset scheduler-locking on\ncontinue\ninfo threads\n\
                    thread 1\nset scheduler-locking off\ncontinue\ncontinue";
    each("leaving.c", &["-O0"], &[], commands, |said| {
        assert!(answer(said, "continue", 1).contains("No unwaited-for children left"), "{said}");
        assert!(!answer(said, "info threads", 0).contains("\n  2 "), "{said}");
        assert!(said.contains("exited with code 07"), "{said}");
    });
}

#[test]
fn the_only_thread_that_runs_may_execute_a_program() {
    let commands = "break leave\ncontinue\ndelete\nset scheduler-locking on\ncatch exec\ncontinue\n\
                    set scheduler-locking off\ncontinue\ncontinue";
    each("leaving.c", &["-O0"], &["/bin/true"], commands, |said| {
        assert!(answer(said, "continue", 1).contains("Catchpoint 2 (exec'd"), "{said}");
        assert!(said.contains("exited normally"), "{said}");
    });
}

#[test]
fn every_system_call_is_caught_with_its_return() {
    // The C library's fork is clone(2).
    let catches = "break main\ncontinue\ncatch syscall 999\ncatch syscall clone\n\
                   catch syscall vfork\ncatch syscall execve\n";
    let commands = catches.to_owned() + &"continue\n".repeat(8);
    each("calls.c", &["-O0"], &["again"], &commands, |said| {
        let caught = ["999", "clone", "vfork", "execve"];
        let calls = caught.map(|call| {
            [format!("(call to syscall {call})"), format!("(returned from syscall {call})")]
        });
        let calls: Vec<&str> = calls.iter().flatten().map(String::as_str).collect();
        assert_in_order(said, &calls);
    });
}

#[test]
fn what_a_signal_brings_along_is_kept() {
    let commands = "continue\nprint twice(4)\nprint $_siginfo._sifields._rt.si_sigval.sival_int\n\
                    continue\nset var $_siginfo._sifields._rt.si_sigval.sival_int = 99\n\
                    continue\ncontinue\ncontinue";
    if !tools() {
        return;
    }
    for backend in BACKENDS {
        let scene = Scene::new();
        let program = scene.compile("queued.c", &["-O0"]);
        let live = Live::start_by(backend, &scene, &["--once"], &[name(&program)]);
        let said = live.gdb(&program, commands);
        let value = "print $_siginfo._sifields._rt.si_sigval.sival_int";
        assert!(answer(&said, value, 0).ends_with("= 4711"), "{backend}: {said}");
        assert_eq!(live.end().0, "1 1 4711\n1 1 99\n1 1 4713\n", "{backend}: {said}");
    }
}

/// The kernel forgets that a step's flag is its own where an instruction loads the flags.
#[test]
fn steps_over_popf_leave_no_trap_flag() {
    let commands = "break main\ncontinue\nstepi 60\nprint $eflags & 0x100\nstepi\n\
                    print $eflags & 0x100\ndelete\ncontinue\ncontinue";
    each("flags.c", &["-O0"], &[], commands, |said| {
        for number in 0..2 {
            assert!(answer(said, "print $eflags & 0x100", number).ends_with("= 0"), "{said}");
        }
        assert!(said.contains("exited with code 024"), "{said}");
        assert!(!said.contains("SIGTRAP"), "{said}");
    });
}
