//! Every call, with arguments, returned values and durations.
//!
//! A walk of each thread's path sends the steps of its calls ([`CallStep`]), which build the calls
//! up. If values are wanted, a replay stops at the ends of prologues and at returns, and the steps
//! up to each stop are processed there: the step at the stop gets the values.

use super::error::Error;
use super::functions::Functions;
use super::machine::StoppedThread;
use super::merge::{Event, Merged, Sender, merged};
use super::opened::Asked;
use super::place::Place;
use super::sites::Sites;
use super::tracker::{Change, EntryKind, Tracker};
use super::wanted::WantedFunctions;
use crate::common::{Addr, Tid};
use crate::replay::{Goals, Replay};
use crate::session::Position;
use crate::symbols::{FrameRegisters, Signature};
use crate::timeline::Visit;
use crate::values::{Bound, Evaluator, Frame, Shown};
use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::ops::ControlFlow;
use std::sync::Arc;

/// A question for the calls of functions.
#[expect(clippy::struct_excessive_bools, reason = "facts that hold independently of each other")]
#[derive(Clone, Copy, Debug)]
pub struct CallsQuestion<'a> {
    /// The names of the functions whose calls are wanted; empty for all calls.
    pub functions: &'a [String],
    /// True if the arguments are wanted.
    pub arguments: bool,
    /// True if the returned values are wanted.
    pub returns: bool,
    /// True if the durations are wanted.
    pub duration: bool,
    /// True if only calls of functions in the program's own file are wanted.
    pub in_program_file: bool,
}

/// A call.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// The position of the function's first instruction.
    pub position: u64,
    /// The thread that executed the call.
    pub tid: Tid,
    /// The address of the function's first instruction.
    pub addr: Addr,
    /// The name of the function; `None` if its code has no symbols.
    pub function: Option<Arc<str>>,
    /// The number of open calls around this one, whether they are wanted or not.
    pub depth: usize,
    /// The place from which the function was called; `None` for the function in which a thread
    /// begins.
    pub caller: Option<Arc<Place>>,
    /// The kind of entry into the function.
    pub how: CallKind,
    /// The arguments by their names; `None` if they are unknown or not wanted.
    pub arguments: Option<Vec<(String, Shown)>>,
    /// The returned value. `None` if there is none, or it is unknown or not wanted.
    pub returned: Option<Shown>,
    /// The position after the return; `None` if the path shows no return, or if neither returned
    /// values nor durations are wanted.
    pub returned_at: Option<u64>,
    /// The number of instructions that the thread executed from the function's first one to its
    /// return; `None` if `returned_at` is `None`.
    pub instructions: Option<u64>,
}

/// A kind of entry into a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallKind {
    /// A CALL instruction.
    Call,
    /// A jump from another function to the first instruction of this one.
    TailCall,
    /// The kernel began a signal handler.
    Signal,
    /// None: a thread begins in the function, or the path continues in it after a gap or after a
    /// return to a call that the path does not show.
    Start,
}

/// A step of a call on the path of a thread.
#[derive(Clone, Copy, Debug)]
struct CallStep {
    /// The number of the call. The wanted calls of a thread are numbered.
    number: u64,
    /// The address of the next instruction.
    ip: Addr,
    kind: StepKind,
}

#[derive(Clone, Copy, Debug)]
enum StepKind {
    Began {
        /// The number of open calls around it.
        depth: usize,
        /// The address of the call instruction, jump or interrupted instruction.
        site: Option<Addr>,
        how: CallKind,
    },
    /// The prologue has ended: the arguments are where the debug information describes them.
    Prepared,
    /// The call returned after the thread executed this number of instructions in it.
    Returned { instructions: u64 },
    /// The call ended without a return: by longjmp(3), an exception, a gap or the end of the path.
    Lost,
}

/// The values that were read at a step of a call.
enum Values {
    /// The arguments, by their names.
    Arguments(Vec<(String, Shown)>),
    /// The returned value.
    Result(Shown),
}

/// The data that a walk keeps of an open activation.
struct CallData {
    /// The number of the call; `None` if it is not wanted.
    number: Option<u64>,
    /// The number of the function's first instruction, counted per thread.
    index: u64,
    /// The address after the prologue, where the arguments are to be read; `None` if they are not
    /// wanted, or the path has passed it.
    body: Option<Addr>,
}

/// Takes each call when it is known. A `Break` ends the search.
type Sink<'a> = &'a mut dyn FnMut(Call) -> Result<ControlFlow<()>, Error>;

impl Asked {
    /// Fails if one of the named functions does not exist: for a check before an answer begins.
    pub fn check_calls(&self, question: &CallsQuestion<'_>) -> Result<(), Error> {
        self.wanted_functions(question.functions, question.in_program_file).map(|_| ())
    }

    /// Finds calls, and passes each to `sink` when everything that is wanted of it is known (when
    /// it begins, after its prologue, or when it returns or is lost), until `sink` breaks or
    /// `interrupted` returns true: the calls that are open then are not passed. Without an exact
    /// recording, no values are known. Fails as [`Self::check_calls`], `sink` or the replay does.
    /// Calls `reached` with positions, as progress; `u64::MAX` for calls lost at the end of a path.
    pub fn calls(
        &mut self,
        question: CallsQuestion<'_>,
        sink: Sink<'_>,
        reached: &dyn Fn(u64),
        interrupted: &dyn Fn() -> bool,
    ) -> Result<(), Error> {
        let wanted = self.wanted_functions(question.functions, question.in_program_file)?;
        let has_values = self.replay.is_some() && (question.arguments || question.returns);
        let mut sites = Sites::default();
        if has_values {
            sites = self.sites(&wanted, interrupted);
        }
        let mut bodies = HashMap::new();
        if has_values && question.arguments {
            let with_body = |at: &Addr| (*at, self.symbols.address_after_prologue(*at));
            bodies = sites.starts.iter().map(with_body).collect();
        }
        let mut stops: BTreeSet<Addr> = bodies.values().copied().collect();
        if question.returns {
            stops.extend(sites.returns);
        }
        let mut replay = self.replay.take();
        let asked = &*self;
        let walker = Walker { asked, wanted: &wanted, bodies: &bodies };
        let walk_one = |tid, sender: &mut Sender<CallStep>| walker.send_steps(tid, sender);
        let result = merged(&asked.tids(), walk_one, |events| {
            let mut calls = Calls::new(asked, question, sink, events);
            calls.waits_for_arguments = has_values && question.arguments;
            match replay.as_mut().filter(|_| has_values) {
                Some(replay) => calls.process_with_replay(replay, &stops, reached, interrupted),
                None => calls.process_without_values(reached, interrupted),
            }
        });
        self.replay = replay;
        result
    }
}

/// Walks paths, and sends the steps of the wanted calls.
struct Walker<'a> {
    asked: &'a Asked,
    wanted: &'a WantedFunctions,
    /// The address after the prologue of each function whose arguments are wanted, by its start.
    bodies: &'a HashMap<Addr, Addr>,
}

impl Walker<'_> {
    /// Sends the steps of a thread's wanted calls. The calls that are open at the end of the path
    /// are lost at position `u64::MAX`.
    fn send_steps(&self, tid: Tid, sender: &mut Sender<CallStep>) {
        let functions = self.asked.functions();
        let mut tracker: Tracker<CallData> = Tracker::default();
        let (mut count, mut steps) = (0, Vec::new());
        let end = self.asked.path(tid).walk(&functions, &mut |item| {
            tracker.process(item, &mut |change| match change {
                Change::Began(begins) => {
                    let number = self.wanted.contains(begins.ip).then_some(count);
                    count += u64::from(number.is_some());
                    let (ip, depth, site) = (begins.ip, begins.depth, begins.site);
                    let kind = StepKind::Began { depth, site, how: kind_of(begins.entry) };
                    steps.extend(number.map(|number| CallStep { number, ip, kind }));
                    let body = number.and_then(|_| self.bodies.get(&ip).copied());
                    Some(CallData { number, index: begins.index, body })
                }
                Change::Ended(open, returned) => {
                    let kind = returned.map_or(StepKind::Lost, |index| StepKind::Returned {
                        instructions: index.saturating_sub(open.data.index),
                    });
                    let ip = item.ip().unwrap_or_default();
                    steps.extend(open.data.number.map(|number| CallStep { number, ip, kind }));
                    None
                }
            });
            for step in steps.drain(..) {
                sender.send(item.position(), step)?;
            }
            let Visit::Block { index, code, .. } = item.visit else {
                return ControlFlow::Continue(());
            };
            sender.count_step(|| item.position())?;
            if let Some(open) = tracker.innermost()
                && let Some(body) = open.data.body
                && let Some(at) = code.addrs().iter().position(|addr| *addr == body)
            {
                open.data.body = None;
                if let Some(number) = open.data.number {
                    let step = CallStep { number, ip: body, kind: StepKind::Prepared };
                    sender.send(item.clock.position(index + at as u64), step)?;
                }
            }
            ControlFlow::Continue(())
        });
        if end.is_break() {
            return;
        }
        // The calls that are open at the end of the path.
        tracker.finish(&mut |change| {
            if let Change::Ended(open, _) = change
                && let Some(number) = open.data.number
            {
                let step = CallStep { number, ip: open.ip, kind: StepKind::Lost };
                // If the receiver is gone, the step is dropped.
                let _ = sender.send(u64::MAX, step);
            }
            None
        });
    }
}

const fn kind_of(how: EntryKind) -> CallKind {
    match how {
        EntryKind::Start => CallKind::Start,
        EntryKind::Call => CallKind::Call,
        EntryKind::TailCall => CallKind::TailCall,
        EntryKind::Signal => CallKind::Signal,
    }
}

/// A search for calls: the steps of the path, the open calls, and the sink of complete calls.
struct Calls<'a> {
    question: CallsQuestion<'a>,
    sink: Sink<'a>,
    /// The steps of all threads that are not processed yet.
    events: Merged<CallStep>,
    /// The calls that are not complete, by thread and number.
    open: HashMap<(Tid, u64), Call>,
    /// True if a call is complete only after its prologue, where its arguments are read.
    waits_for_arguments: bool,
    functions: Functions<'a>,
    evaluator: Evaluator<'a>,
    /// A cache of the functions' arguments, by the address after the prologue.
    arguments: HashMap<Addr, Option<Bound>>,
    /// A cache of the functions' signatures, by the address of their first instruction.
    signatures: HashMap<Addr, Option<Signature>>,
    /// The result of [`Self::process_up_to_stop`] at the last stop of the replay. The replay ends
    /// if it is not `Continue`.
    outcome: Result<ControlFlow<()>, Error>,
}

impl<'a> Calls<'a> {
    fn new(
        asked: &'a Asked,
        question: CallsQuestion<'a>,
        sink: Sink<'a>,
        events: Merged<CallStep>,
    ) -> Self {
        Self {
            question,
            sink,
            events,
            open: HashMap::new(),
            waits_for_arguments: false,
            functions: asked.functions(),
            evaluator: Evaluator::new(&asked.symbols),
            arguments: HashMap::new(),
            signatures: HashMap::new(),
            outcome: Ok(ControlFlow::Continue(())),
        }
    }

    /// Processes the remaining steps of the path, without values, until the sink breaks or the user
    /// interrupts it.
    fn process_without_values(
        mut self,
        reached: &dyn Fn(u64),
        interrupted: &dyn Fn() -> bool,
    ) -> Result<(), Error> {
        while let Some(event) = self.events.next() {
            reached(event.position);
            if interrupted() || self.process_step(&event, None)?.is_break() {
                break;
            }
        }
        Ok(())
    }

    /// Replays the run from its start, and processes the steps of the path up to each of `stops`,
    /// where arguments or returned values are read; later steps get no values. Ends early, without
    /// an error, if the sink breaks or the user interrupts it.
    fn process_with_replay(
        self,
        replay: &mut Replay,
        stops: &BTreeSet<Addr>,
        reached: &dyn Fn(u64),
        interrupted: &dyn Fn() -> bool,
    ) -> Result<(), Error> {
        replay.seek(replay.first())?;
        let calls = RefCell::new(self);
        let accepts = |replay: &Replay| {
            let mut calls = calls.borrow_mut();
            let Some(state) = StoppedThread::next(replay) else { return false };
            let moment = replay.moment(replay.position());
            reached(Position::exact(moment, 0));
            calls.outcome = calls.process_up_to_stop(&state, moment);
            replay.needs_stop() || !matches!(calls.outcome, Ok(ControlFlow::Continue(())))
        };
        let goals = Goals { accepts: &accepts, ..Goals::at(stops, interrupted) };
        // The first position may already be a stop; a run would pass it.
        let is_first = replay.is_at(stops)?;
        if !(is_first && accepts(replay)) {
            replay.run_forward(&goals, &[])?;
        }
        let mut calls = calls.into_inner();
        let outcome = std::mem::replace(&mut calls.outcome, Ok(ControlFlow::Continue(())))?;
        if outcome.is_break() || interrupted() {
            return Ok(());
        }
        calls.process_without_values(reached, interrupted)
    }

    /// Processes the steps of the path up to a stop of the replay in `moment`. Steps at the stop
    /// get its values. While the replay runs, only some registers are known: at a step that needs
    /// others ([`Replay::needs_stop`]), the processing ends, and the replay stops and calls this
    /// again. Breaks if the sink does.
    fn process_up_to_stop(
        &mut self,
        state: &StoppedThread<'_>,
        moment: u64,
    ) -> Result<ControlFlow<()>, Error> {
        let addr = Addr(state.registers.rip);
        while let Some(next) = self.events.peek() {
            let (step_moment, _) = Position::parts(next.position);
            let is_here = step_moment == moment && next.data.ip == addr;
            let needs_values = match next.data.kind {
                StepKind::Prepared => true,
                StepKind::Returned { .. } => self.question.returns,
                StepKind::Began { .. } | StepKind::Lost => false,
            };
            // The event is after this stop, or needs the values of a later stop in this moment.
            if step_moment > moment || step_moment == moment && needs_values && !is_here {
                break;
            }
            let step = next.data;
            let key = (next.tid, step.number);
            let values =
                if is_here && needs_values { self.read_values(key, step, state) } else { None };
            // The values need more than the known registers: the replay stops and asks again.
            if state.replay.needs_stop() {
                break;
            }
            let Some(event) = self.events.next() else { break };
            if self.process_step(&event, values)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Reads the values that a step of a call needs; `None` if it needs none, or they are unknown.
    fn read_values(
        &mut self,
        key: (Tid, u64),
        step: CallStep,
        state: &StoppedThread<'_>,
    ) -> Option<Values> {
        match step.kind {
            StepKind::Prepared => self.read_arguments(step.ip, state).map(Values::Arguments),
            StepKind::Returned { .. } => {
                let addr = self.open.get(&key)?.addr;
                self.read_result(addr, state).map(Values::Result)
            }
            StepKind::Began { .. } | StepKind::Lost => None,
        }
    }

    /// Processes a step, with its values if they are known. Passes the call to the sink if it is
    /// complete. Breaks if the sink does.
    fn process_step(
        &mut self,
        event: &Event<CallStep>,
        values: Option<Values>,
    ) -> Result<ControlFlow<()>, Error> {
        let key = (event.tid, event.data.number);
        let is_complete = match event.data.kind {
            StepKind::Began { depth, site, how } => {
                let call = self.new_call(event, depth, site, how);
                self.open.insert(key, call);
                let is_plain = !self.question.returns && !self.question.duration;
                is_plain && !self.waits_for_arguments
            }
            StepKind::Prepared => {
                if let Some(call) = self.open.get_mut(&key)
                    && let Some(Values::Arguments(arguments)) = values
                {
                    call.arguments = Some(arguments);
                }
                !self.question.returns && !self.question.duration
            }
            StepKind::Returned { instructions } => {
                if let Some(call) = self.open.get_mut(&key) {
                    if let Some(Values::Result(value)) = values {
                        call.returned = Some(value);
                    }
                    call.returned_at = Some(event.position);
                    call.instructions = Some(instructions);
                }
                true
            }
            StepKind::Lost => true,
        };
        let known = if is_complete { self.open.remove(&key) } else { None };
        match known {
            Some(call) => (self.sink)(call),
            None => Ok(ControlFlow::Continue(())),
        }
    }

    /// Returns a call that begins at a step, without the facts that later steps add.
    fn new_call(
        &self,
        event: &Event<CallStep>,
        depth: usize,
        site: Option<Addr>,
        how: CallKind,
    ) -> Call {
        Call {
            position: event.position,
            tid: event.tid,
            addr: event.data.ip,
            function: self.functions.name_at(event.data.ip),
            depth,
            caller: site.map(|site| self.functions.place(site)),
            how,
            arguments: None,
            returned: None,
            returned_at: None,
            instructions: None,
        }
    }

    fn read_arguments(
        &mut self,
        body: Addr,
        state: &StoppedThread<'_>,
    ) -> Option<Vec<(String, Shown)>> {
        let evaluator = &self.evaluator;
        let bound = self.arguments.entry(body).or_insert_with(|| evaluator.bind_arguments(body));
        let bound = bound.as_ref()?;
        let registers = FrameRegisters::innermost(state);
        let frame = Frame { registers: &registers, machine: state, is_innermost: true };
        let values = evaluator.answer(bound, &frame).ok()?;
        Some(bound.texts().map(str::to_owned).zip(values).collect())
    }

    fn read_result(&mut self, start: Addr, state: &StoppedThread<'_>) -> Option<Shown> {
        let evaluator = &self.evaluator;
        let signature =
            self.signatures.entry(start).or_insert_with(|| evaluator.signature_at(start));
        let registers = FrameRegisters::innermost(state);
        let frame = Frame { registers: &registers, machine: state, is_innermost: true };
        evaluator.returned(signature.as_ref()?, &frame)
    }
}
