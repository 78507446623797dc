//! The first step of a search for an origin: the memory or register that holds the value of the
//! question. Also parts of such places.

use super::{FollowedValue, OriginEffect, OriginQuestion, OriginSearch, OriginStep};
use crate::ask::error::Error;
use crate::ask::machine::StoppedThread;
use crate::common::{Addr, AddrRange};
use crate::insn::{FullRegister, RegisterPart, ValuePlace};
use crate::symbols::{FrameRegisters, Piece};
use crate::values::{Evaluator, Frame, Located, Missing, Question, Shown};

/// The maximum number of bytes of a value that is followed.
const LARGEST_VALUE_BYTES: u64 = 1 << 16;
/// The maximum number of frames in which a name is sought.
const MOST_FRAMES: usize = 100;

impl OriginSearch<'_> {
    /// Evaluates the value of a question at the replay's position, in the question's thread or else
    /// in the one that executes next, and returns it as the first step. A memory range that the
    /// question names is shown without its value. Fails if there is no such thread, if the value
    /// has no single place, or if memory that is empty or too large is asked for.
    pub(super) fn first_step(
        &mut self,
        question: &OriginQuestion<'_>,
    ) -> Result<OriginStep, Error> {
        let position = self.position()?;
        let executing = self.replay.loaded().map(|thread| thread.tid);
        let tid = question.thread.or(executing).ok_or(Error::NoValues)?;
        let thread = self.replay.thread(tid)?.ok_or(Error::NoThread(tid))?;
        let state = StoppedThread::of_thread(self.replay, thread);
        match question.value {
            FollowedValue::Memory(range) if range.is_empty() => Err(Error::NoMemory(range.start)),
            FollowedValue::Memory(range) if range.size_bytes() > LARGEST_VALUE_BYTES => {
                Err(Error::TooLarge(LARGEST_VALUE_BYTES))
            }
            FollowedValue::Memory(range) => {
                let at = ValuePlace::Memory(range);
                let shown = Shown::Missing(Missing::Unavailable);
                let pc = Addr(state.registers.rip);
                Ok(self.new_step(tid, pc, position, at, OriginEffect::Asked(shown), &state))
            }
            FollowedValue::Expression { text, frame } => {
                let (located, pc) = self.locate_in_frames(text, frame, &state)?;
                let at = self.value_place(&located, pc)?;
                Ok(self.new_step(tid, pc, position, at, OriginEffect::Asked(located.shown), &state))
            }
        }
    }

    /// Evaluates an expression in frame number `frame` (0 is the innermost), or else in the
    /// innermost frame in which it can be evaluated; frames of the program's own file come before
    /// those of libraries. Looks at [`MOST_FRAMES`] frames at most. Also returns a code address in
    /// the frame that was used. Fails if the value is in a register of an outer frame. If it can be
    /// evaluated in no frame, fails with the error of the first frame that was tried, or with
    /// [`Error::NoFrame`] if there is none.
    fn locate_in_frames(
        &self,
        text: &Question,
        frame: Option<usize>,
        state: &StoppedThread<'_>,
    ) -> Result<(Located, Addr), Error> {
        let symbols = &self.asked.symbols;
        let evaluator = Evaluator::new(symbols);
        let callers = |registers: &FrameRegisters| symbols.caller_of(registers, state);
        let frames = std::iter::successors(Some(FrameRegisters::innermost(state)), callers);
        let frames = (0..MOST_FRAMES).zip(frames);
        let mut frames: Vec<_> =
            frames.filter_map(|(at, of)| Some((at, of, of.lookup_pc()?))).collect();
        if let Some(wanted) = frame {
            frames.retain(|(at, ..)| *at == wanted);
        } else {
            let own = self.program_mappings();
            frames.sort_by_key(|(.., pc)| !own.iter().any(|range| range.contains(*pc)));
        }
        let mut first_error = Error::NoFrame(frame.unwrap_or(0));
        for (number, registers, pc) in frames {
            let is_innermost = number == 0;
            let frame = Frame { registers: &registers, machine: state, is_innermost };
            let bound = evaluator.bind(text, pc);
            match bound.and_then(|bound| evaluator.locate(&bound, &frame)) {
                Ok(located) if !is_innermost && is_in_register(&located) => {
                    return Err(Error::OfOuterFrame(number));
                }
                Ok(located) => return Ok((located, pc)),
                // The error of the first frame is the one to report.
                Err(error) if matches!(first_error, Error::NoFrame(_)) => {
                    first_error = error.into();
                }
                Err(_) => {}
            }
        }
        Err(first_error)
    }

    /// Returns the ranges where the program's own file is mapped, code and data, at the replay's
    /// position.
    fn program_mappings(&self) -> Vec<AddrRange> {
        let (program, _) = self.replay.program();
        let mappings = self.replay.mappings().into_iter();
        mappings.filter(|mapping| mapping.name == program).map(|mapping| mapping.range).collect()
    }

    /// Returns the memory or register that holds a value: 8 bytes if the size of the value is
    /// unknown, and at most 64 KiB. Fails if the value is in several parts, in a register that is
    /// not followed, or not there. `pc` is for the error.
    fn value_place(&self, located: &Located, pc: Addr) -> Result<ValuePlace, Error> {
        let size_bytes = located.size_bytes.unwrap_or(8).clamp(1, LARGEST_VALUE_BYTES);
        match located.home.pieces.as_slice() {
            [(_, Piece::Memory(addr))] => {
                Ok(ValuePlace::Memory(AddrRange::sized(*addr, size_bytes)))
            }
            [(_, Piece::Register(number))] => {
                let of = FullRegister::of_dwarf(*number).ok_or(Error::NoPlace)?;
                Ok(ValuePlace::Register(RegisterPart { of, offset: 0, size_bytes }))
            }
            _ if matches!(located.shown, Shown::Missing(_)) => {
                Err(Error::NotThere { place: self.asked.functions().place(pc).to_string() })
            }
            _ => Err(Error::NoPlace),
        }
    }
}

/// Returns true if a part of a value is in a register.
fn is_in_register(located: &Located) -> bool {
    located.home.pieces.iter().any(|(_, piece)| matches!(piece, Piece::Register(_)))
}

/// Returns the intersection of two ranges; `None` if it is empty.
pub(super) fn intersection(wanted: AddrRange, other: AddrRange) -> Option<AddrRange> {
    let (start, end) = (wanted.start.max(other.start), wanted.end.min(other.end));
    (start < end).then_some(AddrRange::new(start, end))
}

/// Returns the bytes of the place `part`, given the bytes of the place `whole`; `None` if `whole`
/// does not contain `part`. Of registers, only the offsets are compared: the caller has to pass
/// parts of the same one.
pub(super) fn part_of(bytes: &[u8], whole: ValuePlace, part: ValuePlace) -> Option<Vec<u8>> {
    let (start, size) = match (whole, part) {
        (ValuePlace::Memory(whole), ValuePlace::Memory(part)) => {
            (part.start.0.checked_sub(whole.start.0)?, part.size_bytes())
        }
        (ValuePlace::Register(whole), ValuePlace::Register(part)) => {
            (part.offset.checked_sub(whole.offset)?, part.size_bytes)
        }
        _ => return None,
    };
    let start = usize::try_from(start).ok()?;
    bytes.get(start..start.checked_add(usize::try_from(size).ok()?)?).map(<[u8]>::to_vec)
}
