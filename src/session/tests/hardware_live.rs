//! Live programs traced by the CPU, with a model of a PMU: the debugger sees what is executed, and
//! the past matches what it saw.

use super::hardware::{bare, built, logged, path, request, started, tracer};
use super::*;
use crate::capture::{Backend, History as Kept, Request, live_by_model};
use crate::common::Pid;
use crate::recording::{Exit, Reader};
use crate::timeline::{Options, Timeline};
use std::collections::BTreeSet;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

const SIGUSR1: i32 = 10;
const WRITE: u64 = 1;
pub(super) const SOFTWARE: StopReason = StopReason::Breakpoint(BreakpointKind::Software);

/// Returns the address of a symbol in a program without relocation.
pub(super) fn symbol(program: &Path, name: &str) -> Addr {
    let listed = Command::new("nm").arg(program).output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    let line = listed.lines().find(|line| line.split(' ').nth(2) == Some(name)).unwrap();
    Addr(u64::from_str_radix(line.split(' ').next().unwrap(), 16).unwrap())
}

pub(super) struct Debugged {
    pub(super) session: Session<Live>,
    pub(super) request: Request,
}

impl Debugged {
    pub(super) fn start(request: Request) -> Self {
        let log = request.step_log.clone().unwrap();
        let program = live_by_model(&request, &log).unwrap();
        let live = Live::over(program, Backend::Perf, request.clone());
        Self { session: Session::new(live), request }
    }

    pub(super) fn order(&self, action: Action, direction: Direction) -> Order {
        let thread = self.session.last_stop().thread;
        Order { action, direction, thread, locked: false, signal: 0 }
    }

    pub(super) fn go(&mut self, order: Order) -> StopReason {
        let stop = self.session.resume(order, &NEVER);
        assert_eq!(self.session.run().failure(), None);
        stop.reason
    }

    pub(super) fn forth(&mut self, action: Action) -> StopReason {
        self.go(self.order(action, Direction::Forward))
    }

    fn back(&mut self, action: Action) -> StopReason {
        self.go(self.order(action, Direction::Backward))
    }

    fn thread(&self) -> Tid {
        self.session.last_stop().thread
    }

    pub(super) fn pc(&self) -> Addr {
        self.session.run().pc(self.thread()).unwrap()
    }

    /// Runs to the end and compares the paths of all threads with the executed instructions.
    fn end(mut self, threads: usize) {
        self.session.clear_breakpoints();
        self.session.run_mut().catch_calls(Catches::None);
        loop {
            match self.forth(Action::Continue) {
                StopReason::Gone(ending) => {
                    assert!(matches!(ending, Ending::Exited(1..)), "{ending:?}");
                    break;
                }
                StopReason::Signal(signal) => {
                    let order = self.order(Action::Continue, Direction::Forward);
                    assert!(matches!(self.go(Order { signal, ..order }), StopReason::Edge(_)));
                }
                reason => assert_eq!(reason, StopReason::Edge(Edge::End)),
            }
        }
        let reader = Reader::open(self.request.output.as_ref().unwrap()).unwrap();
        let end = reader.manifest().end.clone().unwrap();
        assert!(matches!(end.exit, Some(Exit::Code(1..))));
        let timeline =
            Timeline::open(reader, Options { workers: 1, ..Options::default() }).unwrap();
        assert_eq!(end.threads.len(), threads);
        for thread in end.threads {
            assert_eq!(timeline.gaps(thread.tid), []);
            let (path, log) = (path(&timeline, thread.tid), logged(&self.request, thread.tid));
            let same = path.iter().zip(&log).take_while(|(a, b)| a == b).count();
            let around = |all: &[u64]| {
                let part = &all[same.saturating_sub(3)..(same + 4).min(all.len())];
                part.iter().map(|ip| format!("{ip:#x}")).collect::<Vec<_>>()
            };
            let (there, executed) = (around(&path), around(&log));
            assert!(path == log, "at {same} of {}: {there:?}, and not {executed:?}", log.len());
        }
    }
}

#[test]
fn breakpoints_and_steps_there_and_back() {
    let Some((_one, scene, program)) = bare() else { return };
    let mut it = Debugged::start(request(scene.path(), &program, "live", Kept::Full));
    let fib = symbol(&program, "fib");
    assert_eq!(it.pc(), symbol(&program, "_start"));
    it.session.insert_breakpoint(BreakpointKind::Software, fib);
    assert_eq!((it.forth(Action::Continue), it.pc()), (SOFTWARE, fib));
    // The debugger sees no INT3.
    let mut byte = [0];
    assert_eq!(it.session.run().read_memory(it.thread(), fib, &mut byte), 1);
    assert_ne!(byte, [0xcc]);
    let mut seen = vec![it.pc()];
    while seen.len() < 40 || it.pc() == fib {
        let reason = it.forth(Action::Step);
        assert!(reason == StopReason::Step || reason == SOFTWARE && it.pc() == fib, "{reason:?}");
        seen.push(it.pc());
    }
    let hits = seen.iter().filter(|pc| **pc == fib).count();
    assert!(hits > 1, "{seen:?}");
    for pc in seen.iter().rev().skip(1) {
        it.back(Action::Step);
        assert_eq!(it.pc(), *pc);
    }
    // Forward through the past to the present, then live.
    for _ in 1..hits {
        assert_eq!((it.forth(Action::Continue), it.pc()), (SOFTWARE, fib));
    }
    let mut reason = it.forth(Action::Continue);
    while matches!(reason, StopReason::Edge(Edge::End)) {
        assert_eq!(it.pc(), *seen.last().unwrap());
        reason = it.forth(Action::Continue);
    }
    assert_eq!((reason, it.pc()), (SOFTWARE, fib));
    for _ in 0..30 {
        assert_eq!((it.forth(Action::Continue), it.pc()), (SOFTWARE, fib));
    }
    for _ in 0..10 {
        assert_eq!((it.back(Action::Continue), it.pc()), (SOFTWARE, fib));
    }
    it.end(2);
}

#[test]
fn threads_signals_system_calls_and_watched_memory() {
    let Some((_one, scene, program)) = bare() else { return };
    let mut it = Debugged::start(request(scene.path(), &program, "live", Kept::Full));
    it.session.run_mut().catch_calls(Catches::Of(BTreeSet::from([WRITE])));
    let first = it.thread();
    for _ in 0..2 {
        assert_eq!(it.forth(Action::Continue), StopReason::Call(WRITE));
        let rax = it.session.run().registers(it.thread()).get(Register::RAX);
        assert_eq!(rax, Some(u128::from(WRITE)));
        assert_eq!(it.forth(Action::Continue), StopReason::CallReturn(WRITE));
    }
    assert_ne!(it.thread(), first, "the thread's own line");
    it.session.run_mut().catch_calls(Catches::None);
    // The session is in another thread now: steps this thread alone.
    let order = it.order(Action::Step, Direction::Forward);
    assert_eq!(it.go(Order { locked: true, ..order }), StopReason::Step);
    assert_eq!(it.forth(Action::Continue), StopReason::Signal(SIGUSR1));
    assert_eq!(it.thread(), first);
    // The handler increments this counter.
    let counter =
        Watchpoint { addr: symbol(&program, "handled"), size_bytes: 4, access: Access::Write };
    assert!(it.session.insert_watchpoint(counter));
    let handler = symbol(&program, "handler");
    it.session.insert_breakpoint(BreakpointKind::Software, handler);
    let order = it.order(Action::Continue, Direction::Forward);
    assert_eq!(it.go(Order { signal: SIGUSR1, ..order }), SOFTWARE);
    assert_eq!(it.pc(), handler);
    for count in 1..4_u32 {
        assert_eq!(it.forth(Action::Continue), StopReason::Watchpoint(counter));
        let mut value = [0; 4];
        it.session.run().read_memory(first, counter.addr, &mut value);
        assert_eq!(u32::from_le_bytes(value), count);
    }
    assert!(it.session.remove_watchpoint(counter));
    assert_eq!((it.back(Action::Continue), it.pc()), (SOFTWARE, handler));
    it.end(2);
}

#[test]
fn a_process_that_was_taken_over_is_left_as_it_was() {
    let Some((_one, scene, _)) = bare() else { return };
    let program = built(scene.path(), "endless");
    let (mut child, pid, tids) = started(&program, 3);
    let request = request(scene.path(), &program, "live", Kept::Full);
    let mut it = Debugged::start(Request { attach: Some(pid), ..request });
    assert_eq!(it.session.threads().len(), 3);
    let memory = std::fs::File::open(format!("/proc/{pid}/mem")).unwrap();
    let byte = |at: Addr| {
        let mut byte = [0];
        memory.read_exact_at(&mut byte, at.0).unwrap();
        byte[0]
    };
    // An address in the loop of all three threads; the model runs some threads more often.
    let at = it.session.run().pc(tids[1]).unwrap();
    let before = byte(at);
    it.session.insert_breakpoint(BreakpointKind::Software, at);
    let mut stopped = BTreeSet::new();
    for _ in 0..60 {
        assert_eq!((it.forth(Action::Continue), it.pc()), (SOFTWARE, at));
        stopped.insert(it.thread());
        if stopped.len() > 1 {
            break;
        }
    }
    assert!(stopped.len() > 1, "{stopped:?}");
    let here = it.session.run().position().unwrap();
    assert_eq!(here.at, here.total);
    let asked = std::time::Instant::now();
    it.session.clear_breakpoints();
    let order = it.order(Action::Continue, Direction::Forward);
    let soon = || asked.elapsed() > std::time::Duration::from_millis(50);
    assert_eq!(it.session.resume(order, &soon).reason, StopReason::Interrupted);
    it.session.run_mut().detach();
    assert_eq!(it.session.run().failure(), None);
    assert_eq!((byte(at), tracer(pid, tids[1])), (before, "0".to_owned()));
    let left = child.try_wait().unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(left, None, "it runs on");
    assert_eq!(Reader::open(&it.request.output.unwrap()).unwrap().manifest().pid, Pid(pid.0));
}

#[test]
fn a_signal_is_given_at_a_breakpoint_on_a_system_call() {
    let Some((_one, scene, program)) = bare() else { return };
    let mut it = Debugged::start(request(scene.path(), &program, "live", Kept::Full));
    it.session.run_mut().catch_calls(Catches::Of(BTreeSet::from([WRITE])));
    assert_eq!(it.forth(Action::Continue), StopReason::Call(WRITE));
    it.session.run_mut().catch_calls(Catches::None);
    let (call, handler) = (it.pc(), symbol(&program, "handler"));
    for at in [call, handler] {
        it.session.insert_breakpoint(BreakpointKind::Software, at);
    }
    let order = it.order(Action::Continue, Direction::Forward);
    assert_eq!(it.go(Order { signal: SIGUSR1, ..order }), SOFTWARE);
    assert_eq!(it.pc(), handler);
    assert_eq!((it.forth(Action::Continue), it.pc()), (SOFTWARE, call));
    it.end(2);
}

/// Executes itself once, with another number of arguments.
const EXECUTES_ITSELF: &str = r#"
__asm__(".globl _start\n_start: cmpq $1, (%rsp)\n jne 1f\n lea path(%rip), %rdi\n push $0\n"
        "push %rdi\n push %rdi\n mov %rsp, %rsi\n xor %edx, %edx\n mov $59, %eax\n syscall\n"
        "1: mov $3, %edi\n mov $231, %eax\n syscall\n"
        "path: .asciz \"/proc/self/exe\"\n");
"#;

#[test]
fn a_caught_execve_returns_in_the_new_program() {
    const EXECVE: u64 = 59;
    let Some((_one, scene, _)) = bare() else { return };
    let (source, program) = (scene.path().join("itself.c"), scene.path().join("itself"));
    std::fs::write(&source, EXECUTES_ITSELF).unwrap();
    let flags = ["-nostdlib", "-static", "-o"];
    let built = Command::new("gcc").args(flags).arg(&program).arg(&source).status().unwrap();
    assert!(built.success());
    let mut it = Debugged::start(request(scene.path(), &program, "live", Kept::Full));
    it.session.run_mut().catch_calls(Catches::Of(BTreeSet::from([EXECVE])));
    assert_eq!(it.forth(Action::Continue), StopReason::Call(EXECVE));
    assert_eq!(it.forth(Action::Continue), StopReason::Executed);
    assert_eq!(it.forth(Action::Continue), StopReason::CallReturn(EXECVE));
    assert!(matches!(it.forth(Action::Continue), StopReason::Edge(Edge::End)));
    assert_eq!(it.forth(Action::Continue), StopReason::Gone(Ending::Exited(3)));
}
