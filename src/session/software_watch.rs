//! Software watchpoints: those that do not fit the CPU's debug registers, since they are more than
//! four, or large. The program is single-stepped in *rounds*, in each of which each thread makes
//! one step. Memory watched for writes is compared after each step; for reads, each executed
//! instruction is examined for the memory that it read.
//!
//! The order of one step:
//! 1. The thread executes one instruction. If it enters a system call, it may wait there for
//!    another thread, and is interrupted after [`WAIT_AFTER`].
//! 2. A stop that ends the program or its memory is returned.
//! 3. An accessed watchpoint is returned. If the step also met a signal, the next resume reports
//!    that.
//! 4. A stop to be reported is returned: a breakpoint or a signal, or the step that the debugger
//!    ordered. After others, such as a wait, the round goes on *silently*.
//!
//! A thread that waits is skipped for a number of rounds, which doubles each time. If all threads
//! of a round wait, none is skipped in the next.

use super::live::Live;
use super::watch_split::WatchSplit;
use super::{Access, Action, Breakpoints, Order, Run, Stop, StopReason, Watchpoint};
use crate::common::{Addr, AddrRange, Tid};
use crate::insn::{MAX_INSN_BYTES, Registers, reads};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The time after which a system call counts as waiting, perhaps for another thread.
const WAIT_AFTER: Duration = Duration::from_millis(40);
/// The maximum number of rounds for which a waiting thread is skipped.
const MAX_SKIPPED_ROUNDS: u32 = 1 << 16;

/// The rounds for which a thread is skipped that waits in a system call; zeros if it does not wait.
#[derive(Clone, Copy, Debug, Default)]
struct Skip {
    /// The number of rounds, which doubles each time.
    rounds: u32,
    /// The number of these rounds that are left.
    left: u32,
}

/// A thread's next instruction, with the thread's registers before it.
#[derive(Clone, Copy, Debug)]
struct NextInsn {
    /// The bytes at its address, of which the first `known` could be read.
    code: [u8; MAX_INSN_BYTES],
    known: usize,
    registers: Registers,
}

/// The inputs of one resume with software watchpoints.
struct SoftwareWatch<'a> {
    order: &'a Order,
    breakpoints: &'a Breakpoints,
    split: &'a WatchSplit,
    interrupted: &'a dyn Fn() -> bool,
}

impl Live {
    /// Executes an order by single steps, until memory of a software watchpoint is accessed, or
    /// until another stop, which it returns. The debug registers watch the others.
    pub(super) fn step_with_software_watch(
        &mut self,
        order: &Order,
        breakpoints: &Breakpoints,
        split: &WatchSplit,
        interrupted: &dyn Fn() -> bool,
    ) -> Stop {
        SoftwareWatch { order, breakpoints, split, interrupted }.step_until_access(self)
    }
}

impl SoftwareWatch<'_> {
    /// Steps the threads in rounds until watched memory is accessed, or until another stop.
    fn step_until_access(&self, live: &mut Live) -> Stop {
        let before = self.watched_bytes(live);
        let mut skips: BTreeMap<Tid, Skip> = BTreeMap::new();
        let mut signal = self.order.signal;
        let mut has_waited = false;
        loop {
            let mut all_wait = true;
            for thread in self.threads_to_step(live, has_waited) {
                let skip = skips.entry(thread).or_default();
                if skip.left > 0 {
                    skip.left -= 1;
                    continue;
                }
                let next = self.next_insn(live, thread);
                let (stop, goes_on_silently) = self.step(live, thread, std::mem::take(&mut signal));
                if matches!(stop.reason, StopReason::Gone(_) | StopReason::Executed) {
                    // The watched memory is gone, or that of another program: no access.
                    return stop;
                }
                let skip = skips.entry(thread).or_default();
                if goes_on_silently {
                    skip.rounds = (2 * skip.rounds).clamp(1, MAX_SKIPPED_ROUNDS);
                    skip.left = skip.rounds;
                } else {
                    (*skip, all_wait) = (Skip::default(), false);
                }
                let executed =
                    next.filter(|_| !goes_on_silently && stop.reason == StopReason::Step);
                let read = || executed.and_then(|insn| self.first_read(live, thread, &insn));
                if let Some(accessed) = self.first_written(live, &before).or_else(read) {
                    // The access is reported in place of a signal at this stop.
                    live.report_signal_later();
                    return Stop { thread: stop.thread, reason: StopReason::Watchpoint(accessed) };
                }
                has_waited |= goes_on_silently;
                let steps = self.order.action == Action::Step && thread == self.order.thread;
                if !goes_on_silently && (steps || stop.reason != StopReason::Step) {
                    return stop;
                }
                if (self.interrupted)() {
                    return Stop { thread: stop.thread, reason: StopReason::Interrupted };
                }
            }
            if all_wait {
                skips.clear();
            }
        }
    }

    /// Returns the threads to step in a round: all of the process of the order's thread, which
    /// comes first. Only the order's thread if the order is locked, or if it is a step and no
    /// thread `has_waited` yet.
    fn threads_to_step(&self, live: &Live, has_waited: bool) -> Vec<Tid> {
        let alone = self.order.locked || self.order.action == Action::Step && !has_waited;
        if alone {
            return vec![self.order.thread];
        }
        let all = live.threads();
        let selected = all.iter().find(|thread| thread.tid == self.order.thread);
        let pid = selected.map(|thread| thread.pid).or_else(|| live.process());
        let of_process = all.iter().filter(|thread| Some(thread.pid) == pid);
        let mut threads: Vec<Tid> = of_process.map(|thread| thread.tid).collect();
        threads.sort_by_key(|tid| *tid != self.order.thread);
        threads
    }

    /// Steps one thread by one instruction, and delivers `signal` to it (0 for none). The
    /// debugger's own step stops at every signal; others pass the signals at which the debugger
    /// does not stop. A step that takes longer than [`WAIT_AFTER`] is interrupted. Returns the
    /// stop, and true if it is not to be reported: the thread still waits in a system call, or has
    /// ended while others go on.
    fn step(&self, live: &mut Live, thread: Tid, signal: i32) -> (Stop, bool) {
        let order = Order { action: Action::Step, thread, locked: true, signal, ..*self.order };
        let (since, asked) = (Instant::now(), Cell::new(false));
        let impatient = || {
            asked.set(asked.get() || (self.interrupted)());
            asked.get() || since.elapsed() > WAIT_AFTER
        };
        let is_own_step = self.order.action == Action::Step && thread == self.order.thread;
        let passed = if is_own_step { 0 } else { live.passed_signals() };
        let stop =
            live.resume_program(&order, self.breakpoints, &self.split.hardware, passed, &impatient);
        let is_waiting = stop.reason == StopReason::Interrupted && !asked.get();
        // The other threads continue after one has ended.
        let has_ended = stop.reason == StopReason::NoneRuns && !self.order.locked;
        (stop, is_waiting || has_ended)
    }

    /// Returns the software watchpoints for reads, and those for reads and writes.
    fn watched_for_reads(&self) -> impl Iterator<Item = &Watchpoint> {
        self.split.software.iter().filter(|watchpoint| watchpoint.access != Access::Write)
    }

    /// Returns a thread's next instruction if there are watchpoints for reads; else `None`, since
    /// it is not needed.
    fn next_insn(&self, live: &Live, thread: Tid) -> Option<NextInsn> {
        self.watched_for_reads().next()?;
        let registers = live.live_registers(thread)?;
        let mut code = [0; MAX_INSN_BYTES];
        let known = live.read_memory(thread, Addr(registers.rip), &mut code);
        Some(NextInsn { code, known, registers })
    }

    /// Returns the first watchpoint for reads whose memory an instruction read that the thread has
    /// just executed; `None` if it read none.
    fn first_read(&self, live: &Live, thread: Tid, insn: &NextInsn) -> Option<Watchpoint> {
        let code = insn.code.get(..insn.known)?;
        let read = reads(code, &insn.registers, &live.live_registers(thread)?);
        let is_read = |watchpoint: &&Watchpoint| {
            let range = AddrRange::sized(watchpoint.addr, watchpoint.size_bytes);
            read.iter().any(|read| read.overlaps(range))
        };
        self.watched_for_reads().find(is_read).copied()
    }

    /// Returns the present bytes of each software watchpoint, up to the first unknown one; none for
    /// a watchpoint for reads only.
    fn watched_bytes(&self, live: &Live) -> Vec<Vec<u8>> {
        let value = |watchpoint: &Watchpoint| {
            if watchpoint.access == Access::Read {
                return Vec::new();
            }
            let mut bytes = vec![0; usize::try_from(watchpoint.size_bytes).unwrap_or(0)];
            let known = live.read_memory(self.order.thread, watchpoint.addr, &mut bytes);
            bytes.truncate(known);
            bytes
        };
        self.split.software.iter().map(value).collect()
    }

    /// Returns the first watchpoint whose bytes are no longer those of `before`; `None` if all are.
    /// Memory that can no longer be read counts as changed, and a write of the same value does not.
    fn first_written(&self, live: &Live, before: &[Vec<u8>]) -> Option<Watchpoint> {
        let now = self.watched_bytes(live);
        let changed = before.iter().zip(&now).position(|(before, now)| before != now)?;
        self.split.software.get(changed).copied()
    }
}
