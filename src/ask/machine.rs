//! A replay's state, as the values of expressions need it.

use crate::common::Addr;
use crate::insn::Registers;
use crate::insn::xsave::{SSE, XMM, XSTATE_BV};
use crate::replay::{Replay, ThreadView};
use crate::symbols::Machine;
use std::cell::OnceCell;

/// The thread that is about to execute in a replay.
pub(super) struct Stopped<'a> {
    pub(super) replay: &'a Replay,
    pub(super) registers: Registers,
    extended: OnceCell<Option<Vec<u8>>>,
}

impl<'a> Stopped<'a> {
    /// Returns the state of the thread that executes next.
    pub(super) fn of(replay: &'a Replay) -> Option<Self> {
        let registers = replay.loaded()?.registers;
        Some(Self { replay, registers, extended: OnceCell::new() })
    }

    /// Returns the state of a thread, whose registers are all known.
    pub(super) fn of_thread(replay: &'a Replay, thread: ThreadView) -> Self {
        let extended = OnceCell::from(thread.xstate);
        Self { replay, registers: thread.registers, extended }
    }

    fn extended(&self) -> Option<&[u8]> {
        let read = || {
            let tid = self.replay.loaded()?.tid;
            self.replay.thread(tid).ok().flatten()?.xstate
        };
        self.extended.get_or_init(read).as_deref()
    }
}

impl Machine for Stopped<'_> {
    fn register(&self, number: u16) -> Option<u64> {
        let r = &self.registers;
        // System V ABI for AMD64, figure 3.36.
        Some(match number {
            0 => r.rax,
            1 => r.rdx,
            2 => r.rcx,
            3 => r.rbx,
            4 => r.rsi,
            5 => r.rdi,
            6 => r.rbp,
            7 => r.rsp,
            8 => r.r8,
            9 => r.r9,
            10 => r.r10,
            11 => r.r11,
            12 => r.r12,
            13 => r.r13,
            14 => r.r14,
            15 => r.r15,
            16 => r.rip,
            _ => return None,
        })
    }

    fn vector(&self, number: u16) -> Option<[u8; 16]> {
        let at = XMM + 16 * usize::from(number.checked_sub(17).filter(|n| *n < 16)?);
        let area = self.extended()?;
        let is_used = u64::from(*area.get(XSTATE_BV)?) & SSE != 0;
        if is_used { area.get(at..)?.first_chunk().copied() } else { Some([0; 16]) }
    }

    fn read(&self, addr: Addr, buf: &mut [u8]) -> bool {
        self.replay.read(addr, buf) == buf.len()
    }
}
