//! Where the value of a question is: in which memory or register.

use super::{Did, Following, OriginQuestion, OriginStep, Wanted};
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

impl Following<'_> {
    /// Evaluates the value of a question at the replay's position, and returns it as the first
    /// step.
    pub(super) fn asked_value(
        &mut self,
        question: &OriginQuestion<'_>,
    ) -> Result<OriginStep, Error> {
        let position = self.position()?;
        let executing = self.replay.loaded().map(|thread| thread.tid);
        let tid = question.thread.or(executing).ok_or(Error::NoValues)?;
        let thread = self.replay.thread(tid)?.ok_or(Error::NoThread(tid))?;
        let state = StoppedThread::of_thread(self.replay, thread);
        match question.value {
            Wanted::Memory(range) if range.is_empty() => Err(Error::NoMemory(range.start)),
            Wanted::Memory(range) if range.size_bytes() > LARGEST_VALUE_BYTES => {
                Err(Error::TooLarge(LARGEST_VALUE_BYTES))
            }
            Wanted::Memory(range) => {
                let at = ValuePlace::Memory(range);
                let shown = Shown::Missing(Missing::Unavailable);
                let pc = Addr(state.registers.rip);
                Ok(self.step(tid, pc, position, at, Did::Asked(shown), &state))
            }
            Wanted::Expression { text, frame } => {
                let (located, pc) = self.locate(text, frame, &state)?;
                let at = self.place_of(&located, pc)?;
                Ok(self.step(tid, pc, position, at, Did::Asked(located.shown), &state))
            }
        }
    }

    /// Evaluates an expression in frame number `frame`, or else in the innermost frame that knows
    /// its names; frames of the program's own file come before those of libraries. Also returns a
    /// code address in the frame that was used. Fails if the value is in a register of an outer
    /// frame.
    fn locate(
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
            let own = self.own_mappings();
            frames.sort_by_key(|(.., pc)| !own.iter().any(|range| range.contains(*pc)));
        }
        let mut refused = Error::NoFrame(frame.unwrap_or(0));
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
                Err(error) if matches!(refused, Error::NoFrame(_)) => refused = error.into(),
                Err(_) => {}
            }
        }
        Err(refused)
    }

    /// Returns the ranges where the program's own file is mapped, code and data, at the replay's
    /// position.
    fn own_mappings(&self) -> Vec<AddrRange> {
        let (program, _) = self.replay.program();
        let mappings = self.replay.mappings().into_iter();
        mappings.filter(|mapping| mapping.name == program).map(|mapping| mapping.range).collect()
    }

    /// Returns the memory or register that holds a value. Fails if the value is in several parts.
    fn place_of(&self, located: &Located, pc: Addr) -> Result<ValuePlace, Error> {
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
