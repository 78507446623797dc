//! The instructions right before the user's position, with the bytes that each of them overwrote:
//! stepping back among them takes no replay.

use super::error::Error;
use super::position::Position;
use super::process::Replay;
use crate::common::{Addr, AddrRange};
use crate::insn::{MAX_INSN_BYTES, Registers, may_write};
use crate::recording::log::{Bytes, Write};

const NT_X86_XSTATE: u32 = 0x202;
/// The number of ticks that a row reaches back.
const ROW_TICKS: u64 = 64;
/// The maximum number of bytes that an instruction of a row overwrites in one range.
const LARGEST_BYTES: u64 = 1 << 16;

/// The states before each of some consecutive instructions of a thread, in the order of execution.
#[derive(Debug, Default)]
pub(super) struct Row {
    instructions: Vec<Before>,
    /// The position after the last of these instructions.
    end: Position,
}

/// The state before an instruction.
#[derive(Debug)]
struct Before {
    position: Position,
    registers: Registers,
    extended: Bytes,
    /// The former bytes of the memory that the instruction may have overwritten.
    overwritten: Vec<Write>,
}

impl Replay {
    /// Moves back from `here`, the current position, by one instruction of the thread that
    /// executes, within its interval between two entries of the log. Returns false if there is none
    /// that can be undone.
    pub(super) fn undo_one(&mut self, here: Position) -> Result<bool, Error> {
        if self.row.end != here || self.row.instructions.is_empty() {
            self.fill_row(here)?;
        }
        let Some(before) = self.row.instructions.pop() else { return Ok(false) };
        self.epoch.apply_writes(&before.overwritten)?;
        let tracee = self.epoch.thread.tracee;
        tracee.set_extended_state(self.epoch.page, &before.extended.0)?;
        tracee.set_registers(&Registers { orig_rax: u64::MAX, ..before.registers })?;
        self.ticks = before.position.ticks;
        self.instructions = Some(before.position.instructions);
        self.row.end = before.position;
        Ok(true)
    }

    /// Replays up to `ROW_TICKS` ticks before a position once more, and keeps in the row the state
    /// before each of their instructions. Ends at the position again.
    fn fill_row(&mut self, here: Position) -> Result<(), Error> {
        self.row = Row::default();
        let ticks = here.ticks.saturating_sub(ROW_TICKS);
        self.seek(Position { entry: here.entry, ticks, instructions: 0 })?;
        self.switch_to_next_thread()?;
        let mut instructions = Vec::new();
        while self.position() < here {
            let position = self.position();
            match self.before_instruction(position)? {
                Some(before) => instructions.push(before),
                None => instructions.clear(),
            }
            if self.hook_here()?.is_some() || !self.step_one()? {
                break;
            }
        }
        if self.position() == here {
            self.row = Row { instructions, end: here };
        } else {
            self.seek(here)?;
        }
        Ok(())
    }

    /// Returns the state before the next instruction. `None` if the memory that it will write is
    /// not known, or is too much.
    fn before_instruction(&self, position: Position) -> Result<Option<Before>, Error> {
        let tracee = self.epoch.thread.tracee;
        let registers = tracee.registers()?;
        let mut bytes = [0; MAX_INSN_BYTES];
        let known = self.epoch.engine.memory.read(Addr(registers.rip), &mut bytes);
        let Some(ranges) = may_write(&bytes[..known], &registers) else { return Ok(None) };
        let mut overwritten = Vec::new();
        for range in ranges {
            if range.size_bytes() > LARGEST_BYTES {
                return Ok(None);
            }
            overwritten.extend(self.content(range));
        }
        let extended = Bytes(tracee.register_set(NT_X86_XSTATE)?);
        Ok(Some(Before { position, registers, extended, overwritten }))
    }

    /// Returns the current bytes of a range as a write, up to the first unknown one; `None` without
    /// any.
    fn content(&self, range: AddrRange) -> Option<Write> {
        let mut bytes = vec![0; usize::try_from(range.size_bytes()).unwrap_or(0)];
        let known = self.epoch.engine.memory.read(range.start, &mut bytes);
        bytes.truncate(known);
        (!bytes.is_empty()).then_some(Write { addr: range.start, bytes: Bytes(bytes) })
    }
}
