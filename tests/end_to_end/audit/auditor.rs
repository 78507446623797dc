//! Runs a program natively, call by call, and compares what the kernel wrote with the table.
//!
//! Of the threads that share memory, one at a time executes program code. So the memory at a
//! call's end differs from that at the last call's beginning only by what the kernel wrote.

use super::mappings::{replaced, replaced_meanwhile};
use super::report::{Report, Width, variant};
use super::snapshot::Snapshot;
use contraflow::common::{Addr, AddrRange, Pid, Tid};
use contraflow::insn::Registers;
use contraflow::syscalls::{Call, CallerMemory, Effects, Model, OpenCall, Property, Registered};
use contraflow::tracee::{Launch, Memory, PtraceEvent, Stop, Tracee, process_of, wait_any};
use std::collections::{BTreeMap, VecDeque};
use std::ffi::OsString;
use std::path::Path;

const RESTART_SYSCALL: u64 = 219;
const ERESTARTSYS: i64 = -512;
const ERESTART_RESTARTBLOCK: i64 = -516;
const CLONE: u64 = 56;
const VFORK: u64 = 58;
const EXECVE: u64 = 59;
const EXIT: u64 = 60;
const EXIT_GROUP: u64 = 231;
const CLONE3: u64 = 435;
const CLONE_VM: u64 = 0x100;
/// select and pselect6: the kernel takes no more descriptors than the process can have at that time.
const IN_PART: [u64; 2] = [23, 270];

/// Memory that one or more threads share.
struct Space {
    memory: Memory,
    pid: Pid,
    /// As it was when the kernel last was entered or left.
    baseline: Snapshot,
    /// Who executes program code.
    running: Option<Tid>,
    /// Who stands at a call's end, waiting for its turn.
    waiting: VecDeque<Tid>,
    /// What births and ends may still write.
    pending: Vec<AddrRange>,
}

/// A thread.
struct Task {
    space: usize,
    call: Option<InCall>,
    interrupted: Option<OpenCall>,
    registered: Registered,
}

#[derive(Clone)]
struct InCall {
    call: Call,
    open: OpenCall,
}

pub(super) struct Auditor {
    spaces: Vec<Space>,
    tasks: BTreeMap<Tid, Task>,
    /// Children that stopped before their parents told of them.
    early: Vec<Tid>,
    report: Report,
}

struct Reader<'a>(&'a Memory);

impl CallerMemory for Reader<'_> {
    fn read(&self, addr: Addr, buf: &mut [u8]) -> usize {
        self.0.read(addr, buf)
    }
}

/// Runs a program to the end of its last process.
pub(super) fn audit(program: &Path, argv: &[&str], directory: &Path) -> Report {
    let argv: Vec<OsString> = argv.iter().map(OsString::from).collect();
    let env: Vec<_> = std::env::vars_os().collect();
    let launch = Launch { program, argv: &argv, env: &env, directory: Some(directory), aslr: true };
    let pid = launch.start().expect("the program starts");
    let mut auditor = Auditor {
        spaces: Vec::new(),
        tasks: BTreeMap::new(),
        early: Vec::new(),
        report: Report::default(),
    };
    auditor.executed(Tid(pid.0), Call { number: EXECVE, args: [0; 6] });
    while !auditor.tasks.is_empty() {
        let Ok(Some((tid, stop))) = wait_any(true) else { break };
        auditor.stopped(tid, stop);
    }
    auditor.report
}

impl Auditor {
    /// Puts a thread into a new space, where it executes.
    fn new_space(&mut self, tid: Tid, pid: Pid) {
        let memory = Memory::open(pid).expect("its memory");
        self.spaces.push(Space {
            baseline: Snapshot::take(pid, &memory),
            memory,
            pid,
            running: Some(tid),
            waiting: VecDeque::new(),
            pending: Vec::new(),
        });
        let space = self.spaces.len() - 1;
        let task = Task { space, call: None, interrupted: None, registered: Registered::default() };
        self.tasks.insert(tid, task);
    }

    fn stopped(&mut self, tid: Tid, stop: Stop) {
        if !self.tasks.contains_key(&tid) {
            if stop == Stop::Event(PtraceEvent::Stop) {
                self.early.push(tid);
            }
            return;
        }
        match stop {
            Stop::Call if self.tasks[&tid].call.is_none() => self.enters(tid),
            Stop::Call => self.wants_to_run(tid),
            Stop::Event(PtraceEvent::Stop) if self.tasks[&tid].call.is_none() => {
                self.wants_to_run(tid);
            }
            Stop::Event(PtraceEvent::Exec) => {
                self.leaves_program(tid);
                let call = self.tasks[&tid].call.as_ref().expect("exec is a call").call;
                self.executed(tid, call);
            }
            Stop::Event(PtraceEvent::Fork | PtraceEvent::Vfork | PtraceEvent::Clone) => {
                self.gave_birth(tid);
                resume(tid, 0);
            }
            Stop::Event(PtraceEvent::Stop) => resume(tid, 0),
            Stop::Signal(signal) => resume(tid, signal),
            Stop::Group(_) => drop(Tracee(tid).listen()),
            Stop::Event(_) => {
                self.leaves_program(tid);
                resume(tid, 0);
            }
            Stop::Exited(_) | Stop::Killed { .. } => {
                self.leaves_program(tid);
                self.tasks.remove(&tid);
            }
        }
    }

    fn enters(&mut self, tid: Tid) {
        let Ok(registers) = Tracee(tid).registers() else { return };
        let r = &registers;
        let call = Call { number: r.orig_rax, args: [r.rdi, r.rsi, r.rdx, r.r10, r.r8, r.r9] };
        let task = self.tasks.get_mut(&tid).expect("a task");
        let space = &mut self.spaces[task.space];
        let reader = Reader(&space.memory);
        let interrupted = task.interrupted.take();
        let open = match interrupted.filter(|_| call.number == RESTART_SYSCALL) {
            Some(open) => open,
            None => call.begin(&reader),
        };
        space.baseline = Snapshot::take(space.pid, &space.memory);
        if [EXIT, EXIT_GROUP].contains(&call.number) {
            space.pending.extend(task.registered.written_at_end(&reader));
            self.report.count(&variant(&call), 0);
        }
        task.call = Some(InCall { call, open });
        if Model::by_number(call.number).is_some_and(|model| model.has(Property::Denied)) {
            // Without a call, the kernel leaves the ENOSYS that is in RAX.
            let refused = Registers { orig_rax: u64::MAX, ..registers };
            drop(Tracee(tid).set_registers(&refused));
        }
        self.leaves_program(tid);
        resume(tid, 0);
    }

    /// Its turn is over: the next may run.
    fn leaves_program(&mut self, tid: Tid) {
        let space = &mut self.spaces[self.tasks[&tid].space];
        space.waiting.retain(|waiting| *waiting != tid);
        if space.running == Some(tid) {
            space.running = None;
            if self.tasks[&tid].call.is_none() {
                // It was killed, and has written until then.
                space.baseline = Snapshot::take(space.pid, &space.memory);
            }
            if let Some(next) = space.waiting.pop_front() {
                self.runs(next);
            }
        }
    }

    fn wants_to_run(&mut self, tid: Tid) {
        let space = &mut self.spaces[self.tasks[&tid].space];
        match space.running {
            Some(running) if running != tid => space.waiting.push_back(tid),
            _ => self.runs(tid),
        }
    }

    /// A thread whose turn it is leaves the kernel.
    fn runs(&mut self, tid: Tid) {
        let task = self.tasks.get_mut(&tid).expect("a task");
        self.spaces[task.space].running = Some(tid);
        if let Some(in_call) = task.call.take() {
            self.left_kernel(tid, in_call);
        }
        resume(tid, 0);
    }

    fn left_kernel(&mut self, tid: Tid, InCall { call, open }: InCall) {
        let Ok(registers) = Tracee(tid).registers() else { return };
        let result = registers.rax.cast_signed();
        let task = self.tasks.get_mut(&tid).expect("a task");
        let space = task.space;
        let effects = open.end(result, &Reader(&self.spaces[space].memory));
        task.registered.note_call(&call, result);
        if (ERESTART_RESTARTBLOCK..=ERESTARTSYS).contains(&result) {
            task.interrupted = Some(open);
        }
        let name = variant(&call);
        self.report.count(&name, result);
        if Model::by_number(call.number).is_some_and(|model| model.has(Property::WritesOthers)) {
            // The recorder compares its own program's memory, too.
            for space in &mut self.spaces {
                space.baseline = Snapshot::take(space.pid, &space.memory);
            }
            return;
        }
        let claimed = match effects {
            Effects::Known(ranges) => ranges,
            Effects::Assumed(ranges) => {
                self.report.assumed.insert(name.clone());
                ranges
            }
            Effects::Unknown => {
                self.report.unknown.insert(name);
                let space = &mut self.spaces[space];
                space.baseline = Snapshot::take(space.pid, &space.memory);
                return;
            }
        };
        self.compare(space, &call, result, &claimed);
    }

    /// Compares the memory with what it was.
    fn compare(&mut self, space: usize, call: &Call, result: i64, claimed: &[AddrRange]) {
        let others = self.limits_of_others(space);
        let space = &mut self.spaces[space];
        let now = Snapshot::take(space.pid, &space.memory);
        let changes = space.baseline.changes(&now);
        let within = |ranges: &[AddrRange], at: Addr| ranges.iter().any(|r| r.contains(at));
        let name = variant(call);
        let own = changes.iter().filter(|at| within(claimed, **at)).count() as u64;
        let at_ends = changes.iter().filter(|at| within(&space.pending, **at)).count() as u64;
        self.report.written_at_ends += at_ends;
        let replaced = replaced(call, result);
        let explained = |at: Addr| {
            [claimed, &others, &space.pending, &replaced].iter().any(|ranges| within(ranges, at))
        };
        let faults: Vec<_> = changes.into_iter().filter(|at| !explained(*at)).collect();
        if let Some(first) = faults.first() {
            let args = call.args;
            let count = faults.len();
            self.report.faults.push(format!(
                "{name} = {result}: {count} bytes from {first} on are not claimed; arguments \
                 {args:x?}, claimed {claimed:?}"
            ));
        }
        let succeeded = !(-4095..0).contains(&result);
        let must_be_there = succeeded && !IN_PART.contains(&call.number);
        for range in claimed.iter().filter(|range| must_be_there && !now.is_writable(**range)) {
            self.report.faults.push(format!("{name} = {result}: claims {range}, not writable"));
        }
        if succeeded {
            let claimed = claimed.iter().map(|range| range.size_bytes()).sum();
            self.report.measure(&name, Width { claimed, changed: own });
        }
        space.baseline = now;
    }

    /// What the calls in which other threads of the space are may have written or replaced
    /// meanwhile.
    fn limits_of_others(&self, space: usize) -> Vec<AddrRange> {
        let tasks = self.tasks.values().filter(|task| task.space == space);
        let in_calls: Vec<_> = tasks.filter_map(|task| task.call.as_ref()).collect();
        let limits = in_calls.iter().filter_map(|in_call| match in_call.open.limit() {
            Effects::Known(ranges) | Effects::Assumed(ranges) => Some(ranges),
            Effects::Unknown => None,
        });
        let replaced = in_calls.iter().map(|in_call| replaced_meanwhile(&in_call.call));
        limits.chain(replaced).flatten().collect()
    }

    /// A new program: new memory. Its call ends later.
    fn executed(&mut self, tid: Tid, call: Call) {
        self.new_space(tid, process_of(tid).unwrap_or(Pid(tid.0)));
        let open = call.begin(&Reader(&self.spaces.last().expect("a space").memory));
        self.tasks.get_mut(&tid).expect("a task").call = Some(InCall { call, open });
        resume(tid, 0);
    }

    fn gave_birth(&mut self, parent: Tid) {
        let Ok(child) = Tracee(parent).event_message() else { return };
        let child = Tid(i32::try_from(child).expect("a thread's number"));
        let task = &self.tasks[&parent];
        let in_call = task.call.clone().expect("births are calls");
        let space = task.space;
        let reader = Reader(&self.spaces[space].memory);
        if shares_memory(&in_call.call, &reader) {
            let registered = Registered::of_child(&in_call.call, &reader);
            let task = Task { space, call: None, interrupted: None, registered };
            self.tasks.insert(child, task);
            if let Effects::Known(limits) = in_call.open.limit() {
                self.spaces[space].pending.extend(limits);
            }
        } else {
            self.new_space(child, Pid(child.0));
        }
        if let Some(at) = self.early.iter().position(|early| *early == child) {
            self.early.swap_remove(at);
            self.wants_to_run(child);
        }
    }
}

/// Runs on to the next beginning or end of a call.
fn resume(tid: Tid, signal: i32) {
    // The end of a thread that was killed meanwhile is reported later.
    drop(Tracee(tid).resume_to_call(signal));
}

fn shares_memory(call: &Call, memory: &Reader) -> bool {
    let mut flags = [0; 8];
    match call.number {
        VFORK => return true,
        CLONE => flags = call.args[0].to_le_bytes(),
        CLONE3 => drop(memory.read(Addr(call.args[0]), &mut flags)),
        _ => {}
    }
    u64::from_le_bytes(flags) & CLONE_VM != 0
}
