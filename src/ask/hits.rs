//! Every execution of some code, with values.
//!
//! A walk of each thread's path sends the executions. For a path recording, these are the hits. For
//! an exact recording, a replay stops at the same code and evaluates the expressions; the path adds
//! the position inside the moment, the depth and the caller.
//!
//! The replay calls `accepts` at each of these stops, and goes on at full speed if that returns
//! false: most hits are evaluated and passed on there. It stops fully where that returns true: for
//! a register that is not known at full speed (it then calls `accepts` again), at an instruction
//! that is not in the path, and at the end of the search.

use super::error::Error;
use super::machine::StoppedThread;
use super::merge::{Merged, Sender, merged};
use super::opened::Asked;
use super::place::Place;
use super::tracker::{Change, EntryKind, NewActivation, Tracker};
use crate::common::{Addr, Tid};
use crate::replay::{Goals, MoveEnd, Replay};
use crate::session::Position;
use crate::symbols::FrameRegisters;
use crate::timeline::Visit;
use crate::values::{Bound, Evaluator, Frame, Missing, Question, Shown};
use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::ops::ControlFlow;
use std::sync::Arc;

/// A question for all executions of some code.
#[derive(Debug)]
pub struct HitsQuestion<'a> {
    /// A function, `FILE:LINE`, or an address.
    pub at: &'a str,
    /// The expressions to evaluate.
    pub print: &'a Question,
    /// The first position at which executions count.
    pub from: u64,
}

/// An execution of the code that was asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct Hit {
    /// The position of the execution.
    pub position: u64,
    /// The thread that executed it.
    pub tid: Tid,
    /// The address of the executed instruction.
    pub addr: Addr,
    /// The function and line.
    pub place: Arc<Place>,
    /// The number of open calls around its function; `None` if the path does not show it.
    pub depth: Option<usize>,
    /// The place from which its function was called; `None` if the path does not show a call, as
    /// for a signal handler, or after a tail call.
    pub caller: Option<Arc<Place>>,
    /// The values of the expressions, in their order; all unavailable if only the path was
    /// recorded.
    pub values: Vec<Shown>,
}

/// An execution as the path shows it.
#[derive(Clone, Copy, Debug)]
struct Execution {
    addr: Addr,
    /// The number of open calls around its function.
    depth: usize,
    /// The address of the call of its function; `None` if the path does not show a call.
    site: Option<Addr>,
}

/// Takes each hit when it is found. A `Break` ends the search.
type Sink<'a> = &'a mut dyn FnMut(Hit) -> Result<ControlFlow<()>, Error>;

impl Asked {
    /// Finds the executions of some code from `question.from` on, in the order of the run, and
    /// passes each to `sink` when it is found, until `sink` breaks or `interrupted` returns true;
    /// neither is an error. Fails before the first one as [`Self::check_hits`] does, later if
    /// `sink` or the replay fails. Moves the replay of an exact recording. Calls `reached` with
    /// positions, as progress.
    pub fn hits(
        &mut self,
        question: &HitsQuestion<'_>,
        sink: Sink<'_>,
        reached: &dyn Fn(u64),
        interrupted: &dyn Fn() -> bool,
    ) -> Result<(), Error> {
        let addrs = self.addresses_of_code(question.at)?;
        let stops: BTreeSet<Addr> = addrs.into_iter().collect();
        let evaluator = Evaluator::new(&self.symbols);
        let bound = evaluator.bind_all(question.print, stops.iter().copied())?;
        let mut replay = self.replay.take();
        let walked = &*self;
        let tids = walked.tids();
        let walk_one = |tid, sender: &mut Sender<Execution>| walked.executions(tid, &stops, sender);
        let search =
            HitSearch { asked: walked, stops: &stops, bound: &bound, evaluator: &evaluator };
        let result = merged(&tids, walk_one, |events| match &mut replay {
            Some(replay) => {
                search.hits_of_replay(replay, events, question, sink, reached, interrupted)
            }
            None => search.hits_of_path(events, question, sink, reached, interrupted),
        });
        drop(evaluator);
        self.replay = replay;
        result
    }

    /// Parses expressions as one question, with one value for each; an empty one if there are none.
    /// Returns `None` if one of the texts contains several expressions. Fails if a text is no
    /// expression.
    pub fn parse_expressions(expressions: &[String]) -> Result<Option<Question>, Error> {
        let question = Question::parse(&expressions.join(", "))?;
        Ok(Some(question).filter(|question| question.texts().count() == expressions.len()))
    }

    /// Fails if there is no such code, or if a name in the expressions has no meaning at any of its
    /// addresses: where only some of them know it, the value is missing at the others. A caller can
    /// report this before it begins an answer.
    pub fn check_hits(&self, question: &HitsQuestion<'_>) -> Result<(), Error> {
        let addrs = self.addresses_of_code(question.at)?;
        let evaluator = Evaluator::new(&self.symbols);
        evaluator.bind_all(question.print, addrs.into_iter())?;
        Ok(())
    }

    /// Walks a thread's path, and sends the executions of some addresses until the receiver is
    /// gone. Without an exact recording, they include the instruction at which the thread was
    /// killed, if it is known.
    fn executions(&self, tid: Tid, stops: &BTreeSet<Addr>, sender: &mut Sender<Execution>) {
        let functions = self.functions();
        let (Some(first), Some(last)) = (stops.first(), stops.last()) else { return };
        let mut tracker: Tracker<Option<Addr>> = Tracker::default();
        let end = self.path(tid).walk(&functions, &mut |item| {
            tracker.process(item, &mut |change| match change {
                Change::Began(NewActivation { entry: EntryKind::Call, site, .. }) => Some(site),
                Change::Began(_) => Some(None),
                Change::Ended(..) => None,
            });
            let Visit::Block { index, span, code, .. } = item.visit else {
                return ControlFlow::Continue(());
            };
            sender.count_step(|| item.clock.position(*index))?;
            // Most blocks are elsewhere.
            if span.ip > *last || span.last < *first {
                return ControlFlow::Continue(());
            }
            for (number, addr) in (*index..).zip(code.addrs()) {
                if stops.contains(addr) {
                    let (depth, site) = (tracker.depth(), tracker.call_site());
                    let executed = Execution { addr: *addr, depth, site };
                    sender.send(item.clock.position(number), executed)?;
                }
            }
            ControlFlow::Continue(())
        });
        let end: ControlFlow<()> = end;
        if end.is_break() || self.places.is_some() {
            return;
        }
        // The instructions of the path do not include the one at which the program was killed.
        let count = self.timeline.instructions(tid);
        if let Some(addr) = self.timeline.pc(tid, count).filter(|addr| stops.contains(addr)) {
            let (depth, site) = (tracker.depth(), tracker.call_site());
            let position = match count.checked_sub(1) {
                Some(last) => self.timeline.global_of(tid, last).map(|last| last + 1),
                None => Some(0),
            };
            let position = position.unwrap_or_else(|| self.timeline.total());
            let _ = sender.send(position, Execution { addr, depth, site });
        }
    }
}

/// A search for executions of the code at `stops`.
struct HitSearch<'a, 's> {
    asked: &'a Asked,
    stops: &'a BTreeSet<Addr>,
    bound: &'a HashMap<Addr, Bound>,
    evaluator: &'a Evaluator<'s>,
}

impl HitSearch<'_, '_> {
    /// Passes the executions of a path from `question.from` on to `sink`, without values, until
    /// `sink` breaks or `interrupted` returns true. Calls `reached` for earlier executions too.
    fn hits_of_path(
        &self,
        events: Merged<Execution>,
        question: &HitsQuestion<'_>,
        sink: Sink<'_>,
        reached: &dyn Fn(u64),
        interrupted: &dyn Fn() -> bool,
    ) -> Result<(), Error> {
        let functions = self.asked.functions();
        let unknown = Shown::Missing(Missing::Unavailable);
        for event in events {
            reached(event.position);
            if interrupted() {
                break;
            }
            if event.position < question.from {
                continue;
            }
            let hit = Hit {
                position: event.position,
                tid: event.tid,
                addr: event.data.addr,
                place: functions.place(event.data.addr),
                depth: Some(event.data.depth),
                caller: event.data.site.map(|site| functions.place(site)),
                values: question.print.texts().map(|_| unknown.clone()).collect(),
            };
            if sink(hit)?.is_break() {
                break;
            }
        }
        Ok(())
    }

    /// Replays the run once from the moment of `question.from` on, evaluates the expressions at
    /// each execution, and passes it to `sink`, until `sink` breaks or `interrupted` returns true.
    /// The path's `events` have the number of instructions since the last tick, which a replay at
    /// full speed does not count, and the callers. An instruction that faults is not in the path,
    /// and is a hit without depth and caller. Calls `reached` with the moment of each stop.
    fn hits_of_replay(
        &self,
        replay: &mut Replay,
        events: Merged<Execution>,
        question: &HitsQuestion<'_>,
        sink: Sink<'_>,
        reached: &dyn Fn(u64),
        interrupted: &dyn Fn() -> bool,
    ) -> Result<(), Error> {
        let (from, _) = Position::parts(question.from);
        replay.seek(replay.position_of_moment(from))?;
        let functions = self.asked.functions();
        let search =
            RefCell::new(ReplayedSearch { events, sink, outcome: Ok(ControlFlow::Continue(())) });
        let accepts = |replay: &Replay| {
            let mut search = search.borrow_mut();
            let Some(state) = StoppedThread::next(replay) else { return true };
            let moment = replay.moment(replay.position());
            reached(Position::exact(moment, 0));
            let addr = Addr(state.registers.rip);
            // An instruction that is not executed, as it faults, is not in the path.
            let Some((position, executed)) = search.execution_at(moment, addr) else { return true };
            let hit = self.hit(&state, position, Some(executed), question, &functions);
            // The values needed registers that are not known at full speed: the replay stops fully
            // and calls this again, so the hit is dropped and `events` stay.
            if replay.needs_stop() {
                return true;
            }
            search.events.next();
            search.outcome = hit.and_then(|hit| {
                hit.map_or(Ok(ControlFlow::Continue(())), |hit| (search.sink)(hit))
            });
            !matches!(search.outcome, Ok(ControlFlow::Continue(())))
        };
        let goals = Goals { accepts: &accepts, ..Goals::at(self.stops, interrupted) };
        let mut is_first = true;
        loop {
            // A run does not stop where it begins.
            let is_at_first = is_first && replay.is_at(self.stops)? && accepts(replay);
            is_first = false;
            let found =
                if is_at_first { MoveEnd::Stop } else { replay.run_forward(&goals, &[])? };
            let mut search = search.borrow_mut();
            match std::mem::replace(&mut search.outcome, Ok(ControlFlow::Continue(())))? {
                ControlFlow::Break(()) => return Ok(()),
                ControlFlow::Continue(()) if found != MoveEnd::Stop => return Ok(()),
                ControlFlow::Continue(()) => {}
            }
            // Only an instruction that is not in the path gets here: `accepts` passes the others.
            let at = replay.exact_position()?;
            let position = Position::exact(replay.moment(at), at.instructions);
            let state = StoppedThread::next(replay);
            let hit = match &state {
                Some(state) => self.hit(state, position, None, question, &functions)?,
                None => None,
            };
            if let Some(hit) = hit
                && (search.sink)(hit)?.is_break()
            {
                return Ok(());
            }
        }
    }

    /// Returns an execution at `position` with its values, read from the stopped thread `state`.
    /// `None` if it is before `question.from`, or if no thread is loaded. The depth and the caller
    /// are from `executed`, and unknown without it.
    fn hit(
        &self,
        state: &StoppedThread<'_>,
        position: u64,
        executed: Option<Execution>,
        question: &HitsQuestion<'_>,
        functions: &super::functions::Functions<'_>,
    ) -> Result<Option<Hit>, Error> {
        if position < question.from {
            return Ok(None);
        }
        let addr = Addr(state.registers.rip);
        let Some(tid) = state.replay.loaded().map(|thread| thread.tid) else { return Ok(None) };
        let registers = FrameRegisters::innermost(state);
        let frame = Frame { registers: &registers, machine: state, is_innermost: true };
        let values = match self.bound.get(&addr) {
            Some(bound) => self.evaluator.answer(bound, &frame)?,
            None => question.print.texts().map(|_| Shown::Missing(Missing::Unavailable)).collect(),
        };
        Ok(Some(Hit {
            position,
            tid,
            addr,
            place: functions.place(addr),
            depth: executed.map(|executed| executed.depth),
            caller: executed.and_then(|executed| executed.site).map(|site| functions.place(site)),
            values,
        }))
    }
}

/// The state of a search in a replay: the executions in the path, the sink of hits, and what the
/// sink returned last.
struct ReplayedSearch<'a> {
    events: Merged<Execution>,
    sink: Sink<'a>,
    outcome: Result<ControlFlow<()>, Error>,
}

impl ReplayedSearch<'_> {
    /// Returns the position and the details of the next execution of an address in a moment; `None`
    /// if the path has none. The execution remains in `events`. Drops earlier events: the replay
    /// has passed them.
    fn execution_at(&mut self, moment: u64, addr: Addr) -> Option<(u64, Execution)> {
        loop {
            let next = self.events.peek()?;
            let (event_moment, _) = Position::parts(next.position);
            if event_moment > moment {
                return None;
            }
            if event_moment == moment && next.data.addr == addr {
                return Some((next.position, next.data));
            }
            self.events.next();
        }
    }
}
