//! An undo log of the instructions right before the user's position: the registers before each of
//! them, and the bytes that it overwrote. The first step back from a position fills it, by a replay
//! of the last [`UNDO_TICKS`] ticks (counted branches) in single steps, but not past an entry of
//! the log. Each further step back takes one instruction from it, and no replay.

use super::error::Error;
use super::position::Position;
use super::process::Replay;
use crate::common::{Addr, AddrRange};
use crate::insn::{MAX_INSN_BYTES, Registers, may_write};
use crate::recording::log::{Bytes, Write};

/// The number of the extended state (XSAVE area) as a register set of ptrace(2).
const NT_X86_XSTATE: u32 = 0x202;
/// The number of ticks that the undo log reaches back.
const UNDO_TICKS: u64 = 64;
/// The maximum number of bytes that an instruction in the log overwrites in one range.
const LARGEST_BYTES: u64 = 1 << 16;

/// The states before each of some consecutive instructions of a thread, in the order of execution.
#[derive(Debug, Default)]
pub(super) struct UndoLog {
    instructions: Vec<StateBefore>,
    /// The position after the last of these instructions: the log is usable there only.
    end: Position,
}

/// The state before an instruction, as far as the instruction may change it.
#[derive(Debug)]
struct StateBefore {
    position: Position,
    registers: Registers,
    extended: Bytes,
    /// The former bytes of the memory that the instruction may have overwritten.
    overwritten: Vec<Write>,
}

impl Replay {
    /// Moves back from `here`, the current position, by one instruction of the thread that
    /// executes, within its interval between two entries of the log: restores the state before it.
    /// Fills the undo log first if it is not of `here`. Returns false, and stays, if there is no
    /// instruction that can be undone.
    pub(super) fn undo_one(&mut self, here: Position) -> Result<bool, Error> {
        if self.undo_log.end != here || self.undo_log.instructions.is_empty() {
            self.refill_undo_log(here)?;
        }
        let Some(before) = self.undo_log.instructions.pop() else { return Ok(false) };
        self.epoch.apply_writes(&before.overwritten)?;
        let tracee = self.epoch.thread.tracee;
        tracee.set_extended_state(self.epoch.page, &before.extended.0)?;
        tracee.set_registers(&Registers { orig_rax: u64::MAX, ..before.registers })?;
        self.ticks = before.position.ticks;
        self.instructions = Some(before.position.instructions);
        self.undo_log.end = before.position;
        Ok(true)
    }

    /// Replays the last `UNDO_TICKS` ticks before a position once more, by single steps, and keeps
    /// the state before each of their instructions. Ends at the position again. If an instruction
    /// cannot be undone, the undo log begins after it.
    fn refill_undo_log(&mut self, here: Position) -> Result<(), Error> {
        self.undo_log = UndoLog::default();
        let ticks = here.ticks.saturating_sub(UNDO_TICKS);
        self.seek(Position { entry: here.entry, ticks, instructions: 0 })?;
        self.switch_to_next_thread()?;
        let mut instructions = Vec::new();
        while self.position() < here {
            let position = self.position();
            match self.state_before_next(position)? {
                Some(before) => instructions.push(before),
                None => instructions.clear(),
            }
            if self.hook_here()?.is_some() || !self.step_insn()? {
                break;
            }
        }
        if self.position() == here {
            self.undo_log = UndoLog { instructions, end: here };
        } else {
            self.seek(here)?;
        }
        Ok(())
    }

    /// Returns the state at `position`, the current one, before the next instruction. `None` if the
    /// memory that this will write is not known, or is too much.
    fn state_before_next(&self, position: Position) -> Result<Option<StateBefore>, Error> {
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
            overwritten.extend(self.current_bytes(range));
        }
        let extended = Bytes(tracee.register_set(NT_X86_XSTATE)?);
        Ok(Some(StateBefore { position, registers, extended, overwritten }))
    }

    /// Returns a write that restores the current bytes of a range, up to the first unreadable one;
    /// `None` if none is readable.
    fn current_bytes(&self, range: AddrRange) -> Option<Write> {
        let mut bytes = vec![0; usize::try_from(range.size_bytes()).unwrap_or(0)];
        let known = self.epoch.engine.memory.read(range.start, &mut bytes);
        bytes.truncate(known);
        (!bytes.is_empty()).then_some(Write { addr: range.start, bytes: Bytes(bytes) })
    }
}
