//! The tool `backtrace`: the call stack at the current position. It consists of *activations*, each
//! a call with its stack frame, and is shown as *frames*: the function of each activation, and the
//! functions that are inlined into it. Numbers count frames, innermost first.

use super::answer::Answer;
use super::machine::ThreadMachine;
use super::open_recording::{OpenRecording, page_rows, place_members_of};
use super::requests;
use crate::ask::Place;
use crate::common::{Addr, Tid};
use crate::session::MissingFrames;
use crate::symbols::{self, FrameRegisters};
use crate::values::{Evaluator, Frame};
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// The maximum number of activations that are unwound.
const MOST_ACTIVATIONS: usize = 10_000;

/// An activation of a function, with the functions that are inlined at its place.
pub(super) struct Activation {
    /// The number of the activation's innermost frame.
    pub(super) first_frame: usize,
    /// The registers of the activation; `None` if only the path is known.
    pub(super) registers: Option<FrameRegisters>,
    /// The address of the next instruction in the activation: the return address for callers.
    pub(super) next_pc: Addr,
    /// An address in the instruction that the activation executes: the call for callers.
    pub(super) lookup_pc: Addr,
    /// The frames of the activation, innermost first; never none.
    pub(super) places: Vec<Place>,
}

impl Activation {
    /// Returns true if the frame with number `frame` belongs to the activation.
    pub(super) fn contains(&self, frame: usize) -> bool {
        (self.first_frame..self.first_frame + self.places.len()).contains(&frame)
    }
}

impl OpenRecording {
    /// Returns the activations of a thread at the current position, innermost first: by the unwind
    /// tables if its registers are known, else by the path. By the path, only those callers are
    /// there whose call is in the history ([`crate::session::Run::missing_frames`]). At most
    /// [`MOST_ACTIVATIONS`], or one more by the path; none if the thread has no next instruction.
    pub(super) fn activations(&self, tid: Tid) -> Vec<Activation> {
        let machine = ThreadMachine::new(self.run(), tid);
        let symbols = self.asked.symbols();
        let mut activations = Vec::new();
        let mut first_frame = 0;
        let mut add = |registers: Option<FrameRegisters>, next_pc: Addr, lookup_pc: Addr| {
            let places = self.places_at(lookup_pc);
            let outer_frame = first_frame + places.len();
            activations.push(Activation { first_frame, registers, next_pc, lookup_pc, places });
            first_frame = outer_frame;
        };
        let first = FrameRegisters::innermost(&machine);
        if first.get(crate::symbols::RSP).is_some() {
            let mut frame = Some(first);
            for _ in 0..MOST_ACTIVATIONS {
                let Some(registers) = frame else { break };
                let (Some(next_pc), Some(lookup_pc)) = (registers.pc(), registers.lookup_pc())
                else {
                    break;
                };
                add(Some(registers), next_pc, lookup_pc);
                frame = symbols.caller_of(&registers, &machine);
            }
            return activations;
        }
        let Some(pc) = self.run().pc(tid) else { return activations };
        add(None, pc, pc);
        for frame in self.run().call_stack(tid).into_iter().take(MOST_ACTIVATIONS) {
            if let Some(site) = frame.call_site {
                add(None, frame.return_address.unwrap_or(site), site);
            }
        }
        activations
    }

    /// Returns the function at an address and those that are inlined there, with their lines,
    /// innermost first; at least one place, which is empty if all is unknown.
    fn places_at(&self, addr: Addr) -> Vec<Place> {
        let frames = self.asked.symbols().frames_at(addr);
        let place =
            |frame: symbols::Frame| Place::new(frame.function.map(Arc::from), frame.location);
        let places: Vec<Place> = frames.into_iter().map(place).collect();
        if places.is_empty() { vec![(*self.asked.place(addr)).clone()] } else { places }
    }

    /// Answers `backtrace`: a page of frames, the number of all frames, the number of the first one
    /// of the next page, and the reason why there are no older frames although the stack has them.
    /// The last two are null if there is none.
    pub(super) fn backtrace(&self, wanted: &requests::Backtrace) -> Answer {
        let tid = self.thread(wanted.thread)?;
        let (limit, end) =
            (page_rows(wanted.limit), wanted.skip.saturating_add(page_rows(wanted.limit)));
        let activations = self.activations(tid);
        let total = activations.last().map_or(0, |last| last.first_frame + last.places.len());
        let mut rows = Vec::new();
        for activation in &activations {
            for (number, place) in (activation.first_frame..).zip(&activation.places) {
                if !(wanted.skip..end).contains(&number) {
                    continue;
                }
                let mut row = Map::new();
                row.insert("frame".to_owned(), json!(number));
                row.extend(place_members_of(place, Some(activation.next_pc)));
                let is_innermost = number == activation.first_frame;
                let arguments = if is_innermost { self.arguments(tid, activation) } else { None };
                row.insert("arguments".to_owned(), json!(arguments));
                rows.push(Value::Object(row));
            }
        }
        let is_by_path = activations.first().is_some_and(|first| first.registers.is_none());
        let missing = is_by_path.then(|| missing_text(self.run().missing_frames(tid))).flatten();
        let next = (rows.len() == limit && end < total).then_some(end);
        Ok(json!({
            "position": self.position(),
            "thread": tid.0,
            "frames": rows,
            "total": total,
            "next": next,
            "missing": missing,
        }))
    }

    /// Returns the arguments of the innermost function of an activation by their names, including
    /// those without a known value. `None` without registers or debug information.
    fn arguments(&self, tid: Tid, activation: &Activation) -> Option<Map<String, Value>> {
        let registers = activation.registers.as_ref()?;
        let evaluator = Evaluator::new(self.asked.symbols());
        let bound = evaluator.bind_arguments(activation.lookup_pc)?;
        let machine = ThreadMachine::new(self.run(), tid);
        let frame =
            Frame { registers, machine: &machine, is_innermost: activation.first_frame == 0 };
        let values = evaluator.answer(&bound, &frame).ok()?;
        let values = bound.texts().map(str::to_owned).zip(values);
        Some(values.map(|(name, value)| (name, value.to_json())).collect())
    }
}

/// Returns the reason why the path has no older frames, in words for the client; `None` if it has
/// all of them.
const fn missing_text(missing: MissingFrames) -> Option<&'static str> {
    match missing {
        MissingFrames::Nothing => None,
        MissingFrames::BeforeHistory => Some("older frames are before the recorded history"),
        MissingFrames::Gap => Some("older frames are before a gap in the path"),
        MissingFrames::OtherStack => {
            Some("older frames are not known: the program loaded its stack pointer")
        }
        MissingFrames::StrayReturn => {
            Some("older frames are not known: a return went to an address that no call expected")
        }
    }
}
