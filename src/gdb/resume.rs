//! Run control packets: `vCont`, `c`, `s`, `C`, `S`, `bc`, `bs`, and their threads.

use super::chosen::Chosen;
use super::conditions::Conditions;
use super::hex;
use super::signals::Numbering;
use super::thread_id::{self, ThreadChoice};
use crate::common::{Addr, AddrRange, Pid, Tid};
use crate::session::{Action, Direction, Order, Run, Session, Stop, StopReason};

/// The reply to `vCont?`.
pub(super) const ACTIONS: &[u8] = b"vCont;c;C;s;S;r";

/// The number of single steps in a range, besides the first one, after which its rest is executed
/// in one run.
const FEW_STEPS: u32 = 16;

/// A parsed run control packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Resume {
    /// The order for the session.
    pub(super) order: Order,
    /// The range in which the thread continues to step; `None` for one step, or to continue.
    pub(super) range: Option<AddrRange>,
    /// The process to resume, if the packet names no thread of it.
    pub(super) process: Option<Pid>,
    /// Signals for threads other than the order's.
    pub(super) signals: Vec<(Tid, i32)>,
}

impl Resume {
    /// Delivers the signals for other threads and runs until a stop to report, which it returns:
    /// skips stops at breakpoints whose conditions are false, and steps on inside `range`. If a
    /// step ends at such a breakpoint, returns it as a step; such a stop of another thread ends it
    /// as it is. Calls `interrupted` regularly, and stops if it returns true.
    pub(super) fn run<R: Run>(
        &self,
        session: &mut Session<R>,
        conditions: &Conditions,
        interrupted: &dyn Fn() -> bool,
    ) -> Stop {
        for (tid, signal) in &self.signals {
            session.run_mut().queue_signal(*tid, *signal);
        }
        session.set_conditions(conditions.for_run());
        let mut stop = session.resume(self.order, interrupted);
        let mut resumes = 0_u32;
        loop {
            let is_skipped = conditions.skips_stop(session, stop);
            let is_own = stop.thread == self.order.thread;
            if is_skipped && self.order.action == Action::Step && is_own {
                stop.reason = StopReason::Step;
            }
            let stepped = stop.reason == StopReason::Step;
            // The thread that was stopped continues from there.
            let order = Order { thread: stop.thread, signal: 0, ..self.order };
            let goes_on = match (self.order.action, self.range) {
                // After a skipped breakpoint, and after the step off it (below), whose end is not
                // reported.
                (Action::Continue, _) => is_skipped || stepped,
                (Action::Step, Some(range)) => {
                    let pc = session.run().pc(stop.thread);
                    pc.is_some_and(|pc| range.contains(pc)) && stepped && is_own
                }
                // The breakpoint of another thread ends a step: gdb evaluates its condition itself.
                (Action::Step, None) => false,
            };
            if !goes_on {
                return stop;
            }
            if interrupted() {
                return Stop { reason: StopReason::Interrupted, ..stop };
            }
            // Step off a breakpoint first: otherwise it would be reported again, as soon as another
            // thread stops.
            let order = if is_skipped { Order { action: Action::Step, ..order } } else { order };
            resumes = resumes.saturating_add(1);
            let range = self.range.filter(|_| !is_skipped && resumes > FEW_STEPS);
            let ran = range.and_then(|range| session.run_within(&order, range, interrupted));
            stop = ran.unwrap_or_else(|| session.resume(order, interrupted));
        }
    }
}

/// Returns true for a run control packet, well-formed or not; false for `vCont?`, and for `C` and
/// `S` with more than two characters after them.
pub(super) fn is_resume(body: &[u8]) -> bool {
    match body {
        b"bs" | b"bc" | b"c" | b"s" => true,
        [b'C' | b'S', signal @ ..] => signal.len() <= 2,
        _ => body.starts_with(b"vCont;"),
    }
}

/// Parses a run control packet; `None` if it is malformed or has an unsupported action. A malformed
/// or unknown signal counts as none. `chosen` has the thread to step for a packet that names none.
pub(super) fn parse(body: &[u8], chosen: &Chosen, signals: Numbering) -> Option<Resume> {
    let simple = |action, direction| {
        let (thread, locked) = (chosen.thread_to_step(), chosen.only_resumed().is_some());
        let order = Order { action, direction, thread, locked, signal: signal_of(body, signals) };
        Some(Resume { order, range: None, process: None, signals: Vec::new() })
    };
    match body {
        b"bs" => simple(Action::Step, Direction::Backward),
        b"bc" => simple(Action::Continue, Direction::Backward),
        b"s" | [b'S', ..] => simple(Action::Step, Direction::Forward),
        b"c" | [b'C', ..] => simple(Action::Continue, Direction::Forward),
        _ => parse_actions(body.strip_prefix(b"vCont;")?, chosen, signals),
    }
}

/// Returns the kernel's number of the signal in a `C` or `S` action; 0 if there is none, or if it
/// is malformed or the kernel lacks it.
fn signal_of(action: &[u8], signals: Numbering) -> i32 {
    match action {
        [b'C' | b'S', number @ ..] => {
            hex::number(number).and_then(|number| signals.kernel_number(number)).unwrap_or(0)
        }
        _ => 0,
    }
}

/// One `;`-separated action of `vCont`.
struct VContAction {
    action: Action,
    /// The kernel's number of the signal to deliver; 0 for none.
    signal: i32,
    /// The range of `r`.
    range: Option<AddrRange>,
    threads: ThreadChoice,
    /// The process all of whose threads the action names; `None` for others.
    process: Option<Pid>,
}

/// Parses the actions of `vCont` into one resume: by the action of the first thread that they name,
/// or for the thread to step if they name none. The other threads stay stopped if exactly one
/// action names a thread and none is for all; else they run, and of their actions only the signals
/// for named threads count. `None` if an action is malformed or unsupported.
fn parse_actions(list: &[u8], chosen: &Chosen, signals: Numbering) -> Option<Resume> {
    let parts: Vec<VContAction> = list
        .split(|byte| *byte == b';')
        .map(|part| parse_action(part, signals))
        .collect::<Option<_>>()?;
    // The leftmost matching action applies to a thread. One thread steps, or all continue; without
    // an action for the others they stay stopped.
    let is_for_all = |part: &VContAction| {
        !matches!(part.threads, ThreadChoice::One(_)) && part.process.is_none()
    };
    let end = parts.iter().position(is_for_all).map_or(parts.len(), |at| at + 1);
    let parts = &parts[..end];
    let named = parts.iter().find_map(|part| match part.threads {
        ThreadChoice::One(tid) => Some((tid, part)),
        _ => None,
    });
    let for_others = parts.iter().find(|part| !matches!(part.threads, ThreadChoice::One(_)));
    let named_count = parts.len() - usize::from(for_others.is_some());
    let (thread, part) = match (named, for_others) {
        (Some(named), _) => named,
        (None, Some(part)) => (chosen.thread_to_step(), part),
        (None, None) => return None,
    };
    let locked = for_others.is_none() && named_count == 1;
    let (action, signal) = (part.action, part.signal);
    let order = Order { action, direction: Direction::Forward, thread, locked, signal };
    let signals = parts.iter().filter_map(|part| match part.threads {
        ThreadChoice::One(tid) if tid != thread && part.signal != 0 => Some((tid, part.signal)),
        _ => None,
    });
    let signals = signals.collect();
    Some(Resume { order, range: part.range, process: part.process, signals })
}

/// Parses one action, which is for all threads if it names none; `None` if it is malformed or
/// unsupported. A malformed or unknown signal counts as none.
fn parse_action(part: &[u8], signals: Numbering) -> Option<VContAction> {
    let (what, thread, process) = match hex::split(part, b':') {
        Some((what, id)) => (what, thread_id::parse(id)?, thread_id::whole_process(id)),
        None => (part, ThreadChoice::All, None),
    };
    let (action, range) = match what {
        b"c" | [b'C', ..] => (Action::Continue, None),
        b"s" | [b'S', ..] => (Action::Step, None),
        [b'r', range @ ..] => {
            let (start, end) = hex::split(range, b',')?;
            let range = AddrRange::new(Addr(hex::number(start)?), Addr(hex::number(end)?));
            (Action::Step, Some(range))
        }
        _ => return None,
    };
    Some(VContAction { action, signal: signal_of(what, signals), range, threads: thread, process })
}
