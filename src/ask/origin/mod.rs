//! Where a value came from: backwards from copy to copy, through registers, memory, arguments and
//! results, to what computed it, or brought it into the program.
//!
//! Each step finds the last write of the memory or register that holds the value. A write to memory
//! is found by a replay that runs back and watches it, a write to a register by a search of the
//! path ([`scan`]), which the replay then confirms. [`crate::insn::source_of`] says from where the
//! instruction copied the value; the next step follows that place. A value that does not have its
//! later bytes right after the write was changed in some other way: then it is lost.

mod input;
mod scan;
mod ticks;
mod value;

pub use input::{Input, SystemCall};

use super::error::Error;
use super::machine::{StoppedThread, code_at, read_value, seek};
use super::opened::Asked;
use super::place::Place;
use crate::common::{Addr, AddrRange, Tid};
use crate::insn::{
    Origin, RegisterPart, Registers, Source, ValuePlace, is_failed_exchange, source_of, writes,
};
use crate::recording::log::LogEvent;
use crate::replay::{self, Goals, MoveEnd, Replay, Watch, WatchKind};
use crate::session::Position;
use crate::translate::hook_of;
use crate::values::{Question, Shown};
use scan::{Definition, ExactPath};
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;
use ticks::TickConverter;
use value::{intersection, part_of};

/// The number of low bytes of a vector register that a replay knows.
const XMM_BYTES: u64 = 16;
/// The reason for not following memory whose last known write wrote other bytes.
const WRITTEN_ELSEWHERE: &str =
    "it was written by another process, or as another program began; that is not followed";
/// The reason for not following a register that had another value after its last known write.
const CHANGED_OTHERWISE: &str = "the register was changed in a way that is not followed";

/// The reason for not following a register to a place whose position is unknown.
const PATH_GAP: &str = "the path has a gap there";

/// A question for the origin of a value.
#[derive(Debug)]
pub struct OriginQuestion<'a> {
    /// The value to follow back.
    pub value: FollowedValue<'a>,
    /// The position at which the value is read; `None` for the end of the run.
    pub at: Option<u64>,
    /// The thread whose registers and frames are used; `None` for the one that executes at the
    /// position.
    pub thread: Option<Tid>,
}

/// A value whose origin is asked for.
#[derive(Clone, Copy, Debug)]
pub enum FollowedValue<'a> {
    /// The value of an expression.
    Expression {
        /// One expression.
        text: &'a Question,
        /// The number of the activation in which it is evaluated, 0 for the innermost one; `None`
        /// for the first one that knows its names, those in the program's own file before those in
        /// libraries. Inlined functions have none.
        frame: Option<usize>,
    },
    /// The content of this memory.
    Memory(AddrRange),
}

/// An instruction on the search from a value back to its origin.
#[derive(Clone, Debug, PartialEq)]
pub struct OriginStep {
    /// The position of the instruction that wrote the value; in the first step, the one at which
    /// the value is read.
    pub position: u64,
    /// The thread that executed the instruction.
    pub tid: Tid,
    /// The address of the instruction.
    pub addr: Addr,
    /// The bytes at this address, as many as the longest instruction has.
    pub code: Vec<u8>,
    /// The function and line of the instruction.
    pub place: Arc<Place>,
    /// The memory or register in which the value is after the instruction.
    pub at: ValuePlace,
    /// The bytes of the value; `None` if they cannot be read.
    pub bytes: Option<Vec<u8>>,
    /// The effect of the instruction.
    pub effect: OriginEffect,
}

/// The effect that wrote a value.
#[derive(Clone, Debug, PartialEq)]
pub enum OriginEffect {
    /// None, in the first step: this is the value of the expression, or [`Shown::Missing`] if
    /// memory was asked for.
    Asked(Shown),
    /// An instruction copied the value.
    Copied {
        /// The memory or register that it was copied from.
        from: ValuePlace,
    },
    /// The value is in the bytes of an instruction, or the instruction clears a register.
    Constant,
    /// A CALL pushed it: the address of the instruction after the call.
    ReturnAddress,
    /// An instruction computed the value.
    Computed {
        /// The memory and registers that the instruction read, with their values if they are known.
        operands: Vec<(ValuePlace, Option<Vec<u8>>)>,
    },
    /// The value is an input of the program.
    Input(Input),
    /// The value cannot be followed any further, for this reason.
    Lost(&'static str),
}

/// Takes each step when it is found. A `Break` ends the search.
type Sink<'a> = &'a mut dyn FnMut(OriginStep) -> Result<ControlFlow<()>, Error>;

/// An instruction or system call that wrote a value: its thread and position, and the thread's
/// registers before and after it.
struct Writer {
    tid: Tid,
    position: u64,
    before: Registers,
    after: Registers,
}

/// The result of a search for the last write of a value.
enum LastWrite {
    Writer(Box<Writer>),
    /// No instruction wrote the value: it is an input.
    Input(Input),
    /// The value cannot be followed any further, for this reason.
    Lost(&'static str),
    Interrupted,
}

impl Asked {
    /// Follows a value back to its origin, and passes each step to `sink`, until `sink` breaks or
    /// `interrupted` returns true. Fails if only the path was recorded, if the position is after
    /// the end of the run, or if the value is not there.
    pub fn origin(
        &mut self,
        question: &OriginQuestion<'_>,
        sink: Sink<'_>,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<(), Error> {
        let Some(mut replay) = self.replay.take() else { return Err(Error::NoValues) };
        let interval_starts = replay.interval_starts();
        let result = OriginSearch {
            asked: self,
            interval_starts: &interval_starts,
            replay: &mut replay,
            interrupted,
        }
        .follow(question, sink);
        self.replay = Some(replay);
        result
    }
}

/// A search for the origin of a value. It moves the replay back, from step to step.
struct OriginSearch<'a> {
    asked: &'a Asked,
    replay: &'a mut Replay,
    /// The first moments of the intervals of the log ([`Replay::interval_starts`]).
    interval_starts: &'a [u64],
    interrupted: &'a dyn Fn() -> bool,
}

impl OriginSearch<'_> {
    /// Moves to the position of a question, and passes the steps from there to the origin to
    /// `sink`: first the value itself. Ends without an error if the user interrupts it. Fails if
    /// the position is after the end of the run, or the value is in unreadable memory.
    fn follow(&mut self, question: &OriginQuestion<'_>, sink: Sink<'_>) -> Result<(), Error> {
        match question.at {
            Some(position) => {
                let last = Asked::highest_position_of(self.replay);
                if position > last {
                    return Err(Error::AfterEnd(Position::parts(last).0));
                }
                self.seek(position)?;
            }
            None if self.replay.go_to_end(self.interrupted)? == MoveEnd::Interrupted => {
                return Ok(());
            }
            None => {}
        }
        let first = self.first_step(question)?;
        if let (ValuePlace::Memory(range), None) = (first.at, &first.bytes) {
            return Err(Error::NoMemory(range.start));
        }
        let (mut tid, mut wanted, mut bytes) = (first.tid, first.at, first.bytes.clone());
        if sink(first)?.is_break() {
            return Ok(());
        }
        loop {
            let last_write = match wanted {
                ValuePlace::Memory(range) => self.writer_of_memory(range, bytes.as_deref())?,
                ValuePlace::Register(part) => self.writer_of_register(tid, part)?,
            };
            let (mut step, next) = match last_write {
                LastWrite::Interrupted => return Ok(()),
                LastWrite::Writer(writer) => self.step_of_writer(&writer, wanted)?,
                LastWrite::Input(input) => {
                    (self.step_here(tid, wanted, OriginEffect::Input(input))?, None)
                }
                LastWrite::Lost(why) => {
                    (self.step_here(tid, wanted, OriginEffect::Lost(why))?, None)
                }
            };
            tid = step.tid;
            bytes = bytes.and_then(|bytes| part_of(&bytes, wanted, step.at));
            step.bytes.clone_from(&bytes);
            if sink(step)?.is_break() {
                return Ok(());
            }
            match next {
                Some(next) => wanted = next,
                None => return Ok(()),
            }
        }
    }

    fn seek(&mut self, position: u64) -> Result<(), replay::Error> {
        seek(self.replay, position)
    }

    /// Returns the replay's position as a number ([`Position::exact`]).
    fn position(&mut self) -> Result<u64, replay::Error> {
        let at = self.replay.exact_position()?;
        Ok(Position::exact(self.replay.moment(at), at.instructions))
    }

    /// Returns a step at `addr`, with its place, its code, and the bytes of `at` in `state`.
    fn new_step(
        &self,
        tid: Tid,
        addr: Addr,
        position: u64,
        at: ValuePlace,
        effect: OriginEffect,
        state: &StoppedThread<'_>,
    ) -> OriginStep {
        let (place, code) = (self.asked.functions().place(addr), code_at(self.replay, addr));
        OriginStep { position, tid, addr, code, place, at, bytes: read_value(state, at), effect }
    }

    /// Returns the last step: of the instruction that is next at the replay's position.
    fn step_here(
        &mut self,
        tid: Tid,
        at: ValuePlace,
        effect: OriginEffect,
    ) -> Result<OriginStep, Error> {
        let position = self.position()?;
        let state = StoppedThread::next(self.replay).ok_or(Error::NoValues)?;
        let addr = Addr(state.registers.rip);
        Ok(self.new_step(tid, addr, position, at, effect, &state))
    }

    /// Moves back to right before the last instruction or kernel write that wrote to `range`, and
    /// returns it; if there is none, to the start of the recording, and returns the input there.
    /// Skips failed compare-exchanges, which store what was there. `Lost` if the content after the
    /// write, or at the start, is not `value` (`None`: it must be unreadable).
    fn writer_of_memory(
        &mut self,
        range: AddrRange,
        value: Option<&[u8]>,
    ) -> Result<LastWrite, Error> {
        let none = BTreeSet::new();
        let goals = Goals::at(&none, self.interrupted);
        let watch = Watch { range, kind: WatchKind::Store };
        loop {
            match self.replay.run_back(&goals, &[watch])? {
                MoveEnd::Interrupted => return Ok(LastWrite::Interrupted),
                MoveEnd::Watch(_) => {}
                _ if self.memory_at(range).as_deref() != value => {
                    return Ok(LastWrite::Lost(WRITTEN_ELSEWHERE));
                }
                _ => return Ok(LastWrite::Input(self.input_at_start(range))),
            }
            let tid = self.replay.running().ok_or(Error::NoValues)?;
            let position = self.position()?;
            let before = self.registers(tid)?;
            let after = self.registers_after_step(tid)?;
            let is_same = self.memory_at(range).as_deref() == value;
            self.seek(position)?;
            if !is_same {
                return Ok(LastWrite::Lost(WRITTEN_ELSEWHERE));
            }
            // It stored the value that was there: the search goes on before it.
            if is_failed_exchange(&code_at(self.replay, Addr(before.rip)), &after) {
                continue;
            }
            return Ok(LastWrite::Writer(Box::new(Writer { tid, position, before, after })));
        }
    }

    fn memory_at(&self, range: AddrRange) -> Option<Vec<u8>> {
        let mut bytes = vec![0; usize::try_from(range.size_bytes()).ok()?];
        (self.replay.read(range.start, &mut bytes) == bytes.len()).then_some(bytes)
    }

    /// Describes memory that nothing wrote in the run, at whose start the replay must be.
    fn input_at_start(&self, range: AddrRange) -> Input {
        let has = |name: &str, offset: u64| {
            let file = self.asked.timeline.images().file(name);
            let start = usize::try_from(offset).ok();
            let size = usize::try_from(range.size_bytes()).ok();
            let part = file.zip(start.zip(size)).and_then(|(file, (start, size))| {
                file.get(start..start.checked_add(size)?).map(<[u8]>::to_vec)
            });
            part.is_some() && part == self.memory_at(range)
        };
        Input::initial_memory(self.replay, range, &has)
    }

    /// Moves back to right before the last instruction that wrote a register of a thread, and
    /// returns it. First skips functions that have returned, as they preserve some registers; if
    /// the value after the instruction found is not the present one, searches again without
    /// skipping. `Lost` if it differs then too, at a gap, or for more than 16 bytes of a vector
    /// register. `Input` if no instruction wrote it since the thread or a signal's handler began.
    fn writer_of_register(&mut self, tid: Tid, part: RegisterPart) -> Result<LastWrite, Error> {
        let Some(places) = self.asked.places.as_ref() else { return Err(Error::NoValues) };
        if part.of.vector_number().is_some() && part.offset + part.size_bytes > XMM_BYTES {
            return Ok(LastWrite::Lost(
                "of a vector register, only the first 16 bytes are followed",
            ));
        }
        let path = ExactPath { timeline: &self.asked.timeline, places, tid };
        let here = self.position()?;
        let wanted = ValuePlace::Register(part);
        let value = self.value_of(tid, wanted)?;
        let mut skips_calls = true;
        let ticks = TickConverter { path: &path, interval_starts: self.interval_starts };
        let start = ticks.index_of(here);
        let mut before = start;
        loop {
            let definition = path.last_definition(part, before, skips_calls, self.interrupted);
            let index = match definition {
                None => return Ok(LastWrite::Interrupted),
                Some(Definition::At(index)) => index,
                Some(Definition::Handler(first)) => {
                    let (at, input) = (ticks.position_of(first), Input::SetForHandler);
                    return self.input_at(at, tid, wanted, value.as_ref(), input);
                }
                Some(Definition::None) => {
                    let (at, input) = (ticks.position_of(0), self.input_at_thread_start(tid)?);
                    return self.input_at(at, tid, wanted, value.as_ref(), input);
                }
            };
            let Some(position) = ticks.position_of(index) else {
                return Ok(LastWrite::Lost(PATH_GAP));
            };
            self.seek(position)?;
            let registers = self.registers(tid)?;
            let after = self.registers_after_step(tid)?;
            let is_same = self.value_of(tid, wanted)? == value;
            self.seek(position)?;
            let code = code_at(self.replay, Addr(registers.rip));
            // A conditional write that wrote nothing: the search goes on before it.
            if is_same && source_of(&code, &registers, &after, wanted) == Source::Kept {
                before = index;
                continue;
            }
            if is_same {
                let writer = Writer { tid, position, before: registers, after };
                return Ok(LastWrite::Writer(Box::new(writer)));
            }
            if !skips_calls {
                return Ok(LastWrite::Lost(CHANGED_OTHERWISE));
            }
            skips_calls = false;
            before = start;
        }
    }

    /// Describes a register that nothing wrote on the path of a thread. A thread that was there
    /// when the recording began may have begun before. Moves to the start of the recording.
    fn input_at_thread_start(&mut self, tid: Tid) -> Result<Input, Error> {
        self.replay.seek(self.replay.first())?;
        let is_older = !self.replay.has_first_instruction() && self.replay.thread(tid)?.is_some();
        let at_start = Input::AtStart { name: String::new(), offset: None };
        Ok(if is_older { at_start } else { Input::AtThreadStart })
    }

    /// Moves to a position. Returns `input` if the register has the value there. Returns `Lost` if
    /// it does not, or if the position is unknown.
    fn input_at(
        &mut self,
        position: Option<u64>,
        tid: Tid,
        wanted: ValuePlace,
        value: Option<&Vec<u8>>,
        input: Input,
    ) -> Result<LastWrite, Error> {
        let Some(position) = position else { return Ok(LastWrite::Lost(PATH_GAP)) };
        self.seek(position)?;
        let is_same = self.value_of(tid, wanted)?.as_ref() == value;
        Ok(if is_same { LastWrite::Input(input) } else { LastWrite::Lost(CHANGED_OTHERWISE) })
    }

    /// Moves the replay forward until a thread has executed one instruction, or the system call
    /// that it is in. Returns its registers there.
    fn registers_after_step(&mut self, tid: Tid) -> Result<Registers, Error> {
        let none = BTreeSet::new();
        let goals = Goals::at(&none, self.interrupted);
        self.replay.step_forward(tid, &goals, &[])?;
        self.registers(tid)
    }

    fn registers(&mut self, tid: Tid) -> Result<Registers, Error> {
        let thread = self.replay.thread(tid)?;
        Ok(thread.ok_or(Error::NoValues)?.registers)
    }

    fn value_of(&self, tid: Tid, at: ValuePlace) -> Result<Option<Vec<u8>>, Error> {
        let thread = self.replay.thread(tid)?;
        Ok(thread.and_then(|thread| read_value(&StoppedThread::of_thread(self.replay, thread), at)))
    }

    /// Returns the first part of a value that the next entry of the log writes, or all of the value
    /// if the entry writes none of it, or the value is in a register.
    fn written_by_entry(&mut self, wanted: ValuePlace) -> Result<ValuePlace, Error> {
        let ValuePlace::Memory(range) = wanted else { return Ok(wanted) };
        let next = self.replay.next_entry()?;
        let writes = next.as_ref().map(LogEvent::writes).unwrap_or_default();
        let written = writes.iter().find_map(|write| {
            intersection(range, AddrRange::sized(write.addr, write.bytes.0.len() as u64))
        });
        Ok(written.map_or(wanted, ValuePlace::Memory))
    }

    /// Returns the step of an instruction or system call that wrote a value, and the memory or
    /// register from which it copied the value; `None` if it did not copy it, so that the search
    /// ends. If it wrote only a part of `wanted`, or parts have different origins, both are those
    /// of one part: [`OriginStep::at`]. The replay must be before the instruction. The step has no
    /// bytes yet.
    fn step_of_writer(
        &mut self,
        writer: &Writer,
        wanted: ValuePlace,
    ) -> Result<(OriginStep, Option<ValuePlace>), Error> {
        let Writer { tid, position, before, after } = writer;
        let addr = Addr(before.rip);
        let code = code_at(self.replay, addr);
        let place = self.asked.functions().place(addr);
        let step = |at, effect| OriginStep {
            position: *position,
            tid: *tid,
            addr,
            code: code.clone(),
            place: place.clone(),
            at,
            bytes: None,
            effect,
        };
        if Input::is_system_call(before, &code) {
            let of = self.written_by_entry(wanted)?;
            if let Some(from) = Input::place_before_mremap(before, after, of) {
                return Ok((step(of, OriginEffect::Copied { from }), Some(from)));
            }
            let input = Input::from_system_call(self.replay, before, after, of)?;
            return Ok((step(of, OriginEffect::Input(input)), None));
        }
        let Source::Written { of, from } = source_of(&code, before, after, wanted) else {
            let stores = matches!(wanted, ValuePlace::Memory(range)
                if writes(&code, before, after).iter().any(|written| written.overlaps(range)));
            let input = if stores { Input::FromProcessor } else { Input::FromKernel };
            return Ok((step(wanted, OriginEffect::Input(input)), None));
        };
        let thread = self.replay.thread(*tid)?.ok_or(Error::NoValues)?;
        let state = StoppedThread::of_thread(self.replay, thread);
        let effect = match from {
            Origin::Copied(from) => {
                return Ok((step(of, OriginEffect::Copied { from }), Some(from)));
            }
            Origin::Constant => OriginEffect::Constant,
            Origin::ReturnAddress => OriginEffect::ReturnAddress,
            Origin::Kernel => OriginEffect::Input(Input::FromKernel),
            Origin::Computed(_) if hook_of(&code).is_some() => {
                OriginEffect::Input(Input::FromProcessor)
            }
            Origin::Computed(operands) => {
                let with_value = |place| (place, read_value(&state, place));
                OriginEffect::Computed { operands: operands.into_iter().map(with_value).collect() }
            }
        };
        Ok((step(of, effect), None))
    }
}
