//! Steps within a range of code, as a debugger makes them for a source line: a run of the replay at
//! full speed, with stops where the thread leaves the range, or may leave it (the *exits*). From
//! there the debugger single-steps.

use super::replay_goals::{conditions_hold, is_requested, key_of, watch_of};
use super::replayed::Replayed;
use super::{Breakpoints, Direction, Order, Run, Stop, StopReason};
use crate::common::{Addr, AddrRange};
use crate::insn::{Class, ExecMode, decode};
use crate::replay::{self, Goals, KernelEvent, MoveEnd, Replay, Watch};
use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};

/// The maximum size of a range, since all of its instructions are decoded.
const MAX_RANGE_BYTES: u64 = 1 << 14;

/// Returns the addresses at which a thread has left a range of code, or may leave it with the next
/// instruction: the range's end, targets of branches outside it, and returns and indirect branches
/// in it. Returns `None` if the code cannot be decoded, or a branch leads into the middle of an
/// instruction.
fn exits_of(range: AddrRange, code: &[u8]) -> Option<BTreeSet<Addr>> {
    let (mut exits, mut starts, mut targets) = (BTreeSet::new(), BTreeSet::new(), Vec::new());
    let mut at = range.start;
    while at < range.end {
        let offset = usize::try_from(at.0 - range.start.0).ok()?;
        let insn = decode(code.get(offset..)?, at, ExecMode::Bits64)?;
        starts.insert(at);
        match insn.class {
            Class::Jcc { target } | Class::Jmp { target } | Class::Call { target } => {
                targets.push(target);
            }
            class if class.is_branch() => _ = exits.insert(at),
            _ => {}
        }
        at = insn.next();
    }
    exits.insert(at);
    let (inside, outside): (Vec<_>, Vec<_>) =
        targets.into_iter().partition(|target| *target < at && range.start <= *target);
    exits.extend(outside);
    inside.iter().all(|target| starts.contains(target)).then_some(exits)
}

impl Replayed {
    /// Runs forward while the order's thread stays in a range of code. Stops at one of its exits
    /// ([`exits_of`]), or earlier at a breakpoint, a watchpoint, a requested system call, or any
    /// signal. Returns `None` if the caller has to single-step the thread: backward, from an exit
    /// or a breakpoint, from outside the range, in a diversion that has moved the thread, in a
    /// range that is too large, or if the code is not known; also, after a move, at a signal of
    /// another thread that is not to stop the run ([`RequestedEvents::passed_signals`]). If it
    /// runs, it ends a diversion first.
    ///
    /// [`RequestedEvents::passed_signals`]: super::RequestedEvents::passed_signals
    pub(super) fn run_in_range(
        &mut self,
        order: &Order,
        range: AddrRange,
        breakpoints: &Breakpoints,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<Option<Stop>, replay::Error> {
        let tid = order.thread;
        let is_small = range.size_bytes() <= MAX_RANGE_BYTES;
        let is_ahead = order.direction == Direction::Forward;
        if !is_ahead || !is_small || self.replay.get_mut().has_moved_in_diversion(tid) {
            return Ok(None);
        }
        let mut code = vec![0; usize::try_from(range.size_bytes()).unwrap_or(0)];
        let known = self.read_memory(tid, range.start, &mut code);
        let exits = (known == code.len()).then(|| exits_of(range, &code)).flatten();
        let here = self.pc(tid).filter(|pc| range.contains(*pc));
        let Some((exits, here)) = exits.zip(here) else { return Ok(None) };
        let stops: BTreeSet<Addr> = breakpoints.addrs().union(&exits).copied().collect();
        if stops.contains(&here) {
            return Ok(None);
        }
        let conditions = breakpoints.conditions().clone();
        let is_exit = |replay: &Replay| {
            let thread = replay.loaded().filter(|thread| thread.tid == tid);
            thread.is_some_and(|thread| exits.contains(&Addr(thread.registers.rip)))
        };
        let is_breakpoint = |replay: &Replay| {
            let at = replay.loaded().map(|thread| Addr(thread.registers.rip));
            at.is_some_and(|at| breakpoints.addrs().contains(&at))
                && conditions_hold(replay, &conditions)
        };
        let accepts = |replay: &Replay| is_breakpoint(replay) || is_exit(replay);
        let wanted = self.wanted.clone();
        // A handler is outside the range. So a client that steps sees the thread's signals, even
        // those that it passes, as gdbserver does: it then runs to the return of the handler.
        let events =
            |event| matches!(event, KernelEvent::Signal(_)) || is_requested(&wanted, event);
        let mut key = DefaultHasher::new();
        (key_of(&conditions, &wanted), tid, range, breakpoints.addrs()).hash(&mut key);
        let key = key.finish();
        // A signal that this thread's last such step reported is not reported again from there.
        let entry = self.replay.get_mut().position().entry;
        let reported = self.reported_signal.take().filter(|reported| *reported == entry);
        let goals = Goals {
            stops: &stops,
            accepts: &accepts,
            events: &events,
            passed: reported,
            key,
            interrupted,
        };
        let watches: Vec<Watch> = breakpoints.watchpoints().iter().map(watch_of).collect();
        let replay = self.replay.get_mut();
        replay.end_diversion()?;
        let found = replay.run_forward(&goals, &watches)?;
        Ok(Some(match found {
            // A step takes the run past the signal of another thread.
            MoveEnd::Event(event)
                if !is_requested(&wanted, event) && self.present_thread() != tid =>
            {
                return Ok(None);
            }
            MoveEnd::Event(KernelEvent::Signal(_)) => {
                self.reported_signal = Some(self.replay.get_mut().position().entry);
                self.stop_of(found, Direction::Forward, breakpoints)
            }
            MoveEnd::Stop if !is_breakpoint(self.replay.get_mut()) => {
                Stop { thread: tid, reason: StopReason::Step }
            }
            found => self.stop_of(found, Direction::Forward, breakpoints),
        }))
    }
}
