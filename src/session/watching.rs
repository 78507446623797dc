//! Watchpoints that do not fit the CPU's debug registers: more than four, or large ones. The
//! program is stepped, one thread after the other. Memory watched for writes is compared after each
//! instruction; for reads, each executed instruction is decoded.

use super::live::Live;
use super::watch_split::Split;
use super::{Access, Action, Breakpoints, Order, Run, Stop, StopReason, Watchpoint};
use crate::common::{Addr, AddrRange, Tid};
use crate::insn::{MAX_INSN_BYTES, Registers, reads};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The time after which a system call counts as waiting, perhaps for another thread.
const PATIENCE: Duration = Duration::from_millis(40);
/// The maximum number of rounds for which a waiting thread is skipped.
const LONGEST_WAIT: u32 = 1 << 16;

/// The rounds for which a thread that waits in a system call is skipped: the length of the pause,
/// which doubles each time, and the rounds of it that are left.
#[derive(Clone, Copy, Debug, Default)]
struct Wait {
    rounds: u32,
    left: u32,
}

/// An instruction that is about to execute.
#[derive(Clone, Copy, Debug)]
struct Insn {
    code: [u8; MAX_INSN_BYTES],
    known: usize,
    registers: Registers,
}

/// The inputs of one resume that steps and compares.
struct Watching<'a> {
    order: &'a Order,
    breakpoints: &'a Breakpoints,
    split: &'a Split,
    interrupted: &'a dyn Fn() -> bool,
}

impl Live {
    /// Steps until watched memory is accessed, or until another stop.
    pub(super) fn step_and_compare(
        &mut self,
        order: &Order,
        breakpoints: &Breakpoints,
        split: &Split,
        interrupted: &dyn Fn() -> bool,
    ) -> Stop {
        Watching { order, breakpoints, split, interrupted }.run(self)
    }
}

impl Watching<'_> {
    /// Steps until watched memory is accessed, or until another stop.
    fn run(&self, live: &mut Live) -> Stop {
        let before = self.values(live);
        let mut waits: BTreeMap<Tid, Wait> = BTreeMap::new();
        let mut signal = self.order.signal;
        let mut has_waited = false;
        loop {
            let mut all_wait = true;
            for thread in self.threads(live, has_waited) {
                let wait = waits.entry(thread).or_default();
                if wait.left > 0 {
                    wait.left -= 1;
                    continue;
                }
                let next = self.next_insn(live, thread);
                let (stop, is_waiting) = self.step(live, thread, std::mem::take(&mut signal));
                let wait = waits.entry(thread).or_default();
                if is_waiting {
                    wait.rounds = (2 * wait.rounds).clamp(1, LONGEST_WAIT);
                    wait.left = wait.rounds;
                } else {
                    (*wait, all_wait) = (Wait::default(), false);
                }
                let executed = next.filter(|_| !is_waiting && stop.reason == StopReason::Step);
                let read = || executed.and_then(|insn| self.read(live, thread, &insn));
                if let Some(accessed) = self.written(live, &before).or_else(read) {
                    return Stop { thread: stop.thread, reason: StopReason::Watchpoint(accessed) };
                }
                has_waited |= is_waiting;
                let steps = self.order.action == Action::Step && thread == self.order.thread;
                if !is_waiting && (steps || stop.reason != StopReason::Step) {
                    return stop;
                }
                if (self.interrupted)() {
                    return Stop { thread: stop.thread, reason: StopReason::Interrupted };
                }
            }
            if all_wait {
                waits.clear();
            }
        }
    }

    /// Returns the threads to run: those of the process of the debugger's thread, which comes
    /// first. A stepping thread runs alone until it has to wait.
    fn threads(&self, live: &Live, has_waited: bool) -> Vec<Tid> {
        let alone = self.order.locked || self.order.action == Action::Step && !has_waited;
        if alone {
            return vec![self.order.thread];
        }
        let all = live.threads();
        let looked_at = all.iter().find(|thread| thread.tid == self.order.thread);
        let pid = looked_at.map(|thread| thread.pid).or_else(|| live.process());
        let of_process = all.iter().filter(|thread| Some(thread.pid) == pid);
        let mut threads: Vec<Tid> = of_process.map(|thread| thread.tid).collect();
        threads.sort_by_key(|tid| *tid != self.order.thread);
        threads
    }

    /// Steps one thread. Returns the stop, and true if the thread waits in a call or is gone.
    fn step(&self, live: &mut Live, thread: Tid, signal: i32) -> (Stop, bool) {
        let order = Order { action: Action::Step, thread, locked: true, signal, ..*self.order };
        let (since, asked) = (Instant::now(), Cell::new(false));
        let impatient = || {
            asked.set(asked.get() || (self.interrupted)());
            asked.get() || since.elapsed() > PATIENCE
        };
        let is_reported = self.order.action == Action::Step && thread == self.order.thread;
        let passed = if is_reported { 0 } else { live.passed() };
        let stop = live.let_go(&order, self.breakpoints, &self.split.fast, passed, &impatient);
        let is_waiting = stop.reason == StopReason::Interrupted && !asked.get();
        // The other threads continue after one has ended.
        let has_ended = stop.reason == StopReason::NoneRuns && !self.order.locked;
        (stop, is_waiting || has_ended)
    }

    fn watched_for_reads(&self) -> impl Iterator<Item = &Watchpoint> {
        self.split.slow.iter().filter(|watchpoint| watchpoint.access != Access::Write)
    }

    /// Returns a thread's next instruction if there are watchpoints for reads.
    fn next_insn(&self, live: &Live, thread: Tid) -> Option<Insn> {
        self.watched_for_reads().next()?;
        let registers = live.live_registers(thread)?;
        let mut code = [0; MAX_INSN_BYTES];
        let known = live.read_memory(thread, Addr(registers.rip), &mut code);
        Some(Insn { code, known, registers })
    }

    /// Returns the watchpoint that an executed instruction of a thread has read.
    fn read(&self, live: &Live, thread: Tid, insn: &Insn) -> Option<Watchpoint> {
        let code = insn.code.get(..insn.known)?;
        let read = reads(code, &insn.registers, &live.live_registers(thread)?);
        let is_read = |watchpoint: &&Watchpoint| {
            let range = AddrRange::sized(watchpoint.addr, watchpoint.size_bytes);
            read.iter().any(|read| read.overlaps(range))
        };
        self.watched_for_reads().find(is_read).copied()
    }

    /// Returns the known bytes of each watchpoint for writes; empty for a watchpoint for reads
    /// only.
    fn values(&self, live: &Live) -> Vec<Vec<u8>> {
        let value = |watchpoint: &Watchpoint| {
            if watchpoint.access == Access::Read {
                return Vec::new();
            }
            let mut bytes = vec![0; usize::try_from(watchpoint.size_bytes).unwrap_or(0)];
            let known = live.read_memory(self.order.thread, watchpoint.addr, &mut bytes);
            bytes.truncate(known);
            bytes
        };
        self.split.slow.iter().map(value).collect()
    }

    /// Returns the first watchpoint whose bytes are no longer those of `before`.
    fn written(&self, live: &Live, before: &[Vec<u8>]) -> Option<Watchpoint> {
        let now = self.values(live);
        let changed = before.iter().zip(&now).position(|(before, now)| before != now)?;
        self.split.slow.get(changed).copied()
    }
}
