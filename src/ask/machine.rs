//! A replay's registers and memory, as the evaluation of expressions needs them. None of these
//! functions moves the replay, except [`seek`].

use crate::common::Addr;
use crate::insn::xsave::{SSE, XMM, XSTATE_BV};
use crate::insn::{MAX_INSN_BYTES, Registers, ValuePlace};
use crate::replay::{self, Replay, ThreadView};
use crate::session::Position;
use crate::symbols::{Machine, XMM0};
use std::cell::OnceCell;

/// The registers of a stopped thread of a replay, and the replay's memory.
pub(super) struct StoppedThread<'a> {
    pub(super) replay: &'a Replay,
    pub(super) registers: Registers,
    /// The thread's XSAVE area, read at its first use; `None` in it if it is unknown.
    xsave_area: OnceCell<Option<Vec<u8>>>,
}

impl<'a> StoppedThread<'a> {
    /// Returns the state of the loaded thread ([`Replay::loaded`]): after a seek or at a stop, the
    /// one that executes next. `None` if no thread is loaded. Vector registers are read when they
    /// are needed.
    pub(super) fn next(replay: &'a Replay) -> Option<Self> {
        let registers = replay.loaded()?.registers;
        Some(Self { replay, registers, xsave_area: OnceCell::new() })
    }

    /// Returns the state of the thread of `thread`, which need not be the one that executes next.
    pub(super) fn of_thread(replay: &'a Replay, thread: ThreadView) -> Self {
        let xsave_area = OnceCell::from(thread.xstate);
        Self { replay, registers: thread.registers, xsave_area }
    }

    fn xsave_area(&self) -> Option<&[u8]> {
        let read = || {
            let tid = self.replay.loaded()?.tid;
            self.replay.thread(tid).ok().flatten()?.xstate
        };
        self.xsave_area.get_or_init(read).as_deref()
    }
}

impl Machine for StoppedThread<'_> {
    fn register(&self, number: u16) -> Option<u64> {
        self.registers.by_dwarf_number(number)
    }

    fn vector(&self, number: u16) -> Option<[u8; 16]> {
        let at = XMM + 16 * usize::from(number.checked_sub(XMM0).filter(|n| *n < 16)?);
        let area = self.xsave_area()?;
        let is_used = u64::from(*area.get(XSTATE_BV)?) & SSE != 0;
        if is_used { area.get(at..)?.first_chunk().copied() } else { Some([0; 16]) }
    }

    fn read(&self, addr: Addr, buf: &mut [u8]) -> bool {
        self.replay.read(addr, buf) == buf.len()
    }
}

/// Moves a replay to a position ([`Position::exact`]); to the end of the run if it is after that.
pub(super) fn seek(replay: &mut Replay, position: u64) -> Result<(), replay::Error> {
    let (moment, instructions) = Position::parts(position);
    let at = replay.position_of_moment(moment);
    replay.seek(replay::Position { instructions, ..at })
}

/// Returns the bytes at an address, as many as the longest instruction has, or fewer where memory
/// ends.
pub(super) fn code_at(replay: &Replay, addr: Addr) -> Vec<u8> {
    let mut code = vec![0; MAX_INSN_BYTES];
    let known = replay.read(addr, &mut code);
    code.truncate(known);
    code
}

/// Reads the bytes of a memory range or of a part of a register; `None` if they are not all known:
/// of a vector register, only the first 16 bytes are.
pub(super) fn read_value(state: &StoppedThread<'_>, at: ValuePlace) -> Option<Vec<u8>> {
    match at {
        ValuePlace::Memory(range) => {
            let mut bytes = vec![0; usize::try_from(range.size_bytes()).ok()?];
            state.read(range.start, &mut bytes).then_some(bytes)
        }
        ValuePlace::Register(part) => {
            let all = match part.of.vector_number() {
                Some(number) => state.vector(XMM0 + u16::try_from(number).ok()?)?.to_vec(),
                None => part.of.value(&state.registers)?.to_le_bytes().to_vec(),
            };
            let start = usize::try_from(part.offset).ok()?;
            let end = start.checked_add(usize::try_from(part.size_bytes).ok()?)?;
            all.get(start..end).map(<[u8]>::to_vec)
        }
    }
}
