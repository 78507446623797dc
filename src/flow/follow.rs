//! Executes one whole block, with any branch at its end; the slow counterpart of `fast`. Takes the
//! outcome from TNT bits or packets. Does not determine what asynchronous packets bind to.

use super::block::{Block, BlockExit, BlockId, End};
use super::code::Code;
use super::decoder::{Decoder, NextMode};
use super::item::{EventKind, Exit, FlowItem, GapReason};
use super::psb::Fault;
use crate::common::Addr;
use crate::pt::Packet;

/// The block at the current IP, about to be executed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Here {
    pub(super) id: BlockId,
    pub(super) block: Block,
}

impl Decoder<'_> {
    /// Returns the block at the current IP.
    pub(super) fn here(&mut self, code: &mut Code<'_>) -> Here {
        let id = code.find_near(self.hint, self.ip, self.mode);
        let block = code.block(id).copied().unwrap_or(Block::none(self.ip, self.mode));
        Here { id, block }
    }

    /// Executes the block at the current IP to its end. The outcome of its branch is in the unused
    /// TNT bits, or in the next packets.
    pub(super) fn run_block(&mut self, code: &mut Code<'_>) -> Option<FlowItem> {
        let here = self.here(code);
        match self.leave(here, code) {
            Ok(exit) => Some(self.span(&here.block, exit)),
            Err(fault) => self.lose(&here.block, fault),
        }
    }

    /// Takes the branch at the end of a block, and moves to the next block. Returns how control
    /// left. Does not note the block as executed: see [`Self::span`].
    fn leave(&mut self, here: Here, code: &mut Code<'_>) -> Result<Exit, Fault> {
        let block = here.block;
        let exit = match block.end {
            End::Jcc => return self.leave_jcc(here, code),
            End::Ret => return self.leave_ret(here, code),
            End::JmpIndirect => Exit::JmpIndirect,
            End::CallIndirect => {
                self.push_call(here);
                Exit::Call
            }
            End::FarCall => Exit::FarCall,
            End::FarReturn => Exit::FarReturn,
            End::FarJmp => Exit::FarJmp,
            End::NoCode => return Err(self.here_is(GapReason::NoCode(block.fall()))),
            End::BadInsn => return Err(self.here_is(GapReason::BadInsn(block.fall()))),
            End::Jmp | End::Call | End::CallNext => {
                self.push_call(here);
                self.jump(here, code);
                self.check_end_of_circle(code)?;
                return Ok(if block.end == End::Jmp { Exit::Jmp } else { Exit::Call });
            }
            End::Ptwrite | End::MovCr3 | End::Vmptrld | End::Limit => {
                self.fall(here, code);
                return Ok(Exit::Next);
            }
        };
        self.leave_by_tip(here, code)?;
        Ok(exit)
    }

    /// Detects an endless loop of direct jumps, in which the unused TNT bits have no branch.
    fn check_end_of_circle(&mut self, code: &mut Code<'_>) -> Result<(), Fault> {
        self.without_bit += 1;
        if self.without_bit < super::fast::CIRCLE_BLOCKS {
            return Ok(());
        }
        self.without_bit = 0;
        if self.is_endless(code) { Err(self.here_is(GapReason::Endless)) } else { Ok(()) }
    }

    /// Executes a conditional branch, with one TNT bit.
    fn leave_jcc(&mut self, here: Here, code: &mut Code<'_>) -> Result<Exit, Fault> {
        self.without_bit = 0;
        match self.tnt.pop() {
            Some(true) => {
                self.jump(here, code);
                Ok(Exit::Taken)
            }
            Some(false) => {
                self.fall(here, code);
                Ok(Exit::NotTaken)
            }
            None => Err(self.here_is(GapReason::NoBranchPacket(here.block.last()))),
        }
    }

    /// Executes a return: compressed if there is a TNT bit for it, else with a TIP.
    fn leave_ret(&mut self, here: Here, code: &mut Code<'_>) -> Result<Exit, Fault> {
        let at = here.block.last();
        self.without_bit = 0;
        match self.tnt.pop() {
            None => self.leave_by_tip(here, code)?,
            Some(false) => return Err(self.here_is(GapReason::ReturnNotTaken(at))),
            Some(true) => {
                let Some((to, call)) = self.stack.pop() else {
                    return Err(self.here_is(GapReason::ReturnWithoutCall(at)));
                };
                self.ip = to;
                self.hint = code.follow_return(call, to, self.mode);
            }
        }
        Ok(Exit::Ret)
    }

    /// Executes a branch whose target is in a TIP.
    fn leave_by_tip(&mut self, here: Here, code: &mut Code<'_>) -> Result<(), Fault> {
        self.ip = self.take_tip(here.block.last())?;
        self.without_bit = 0;
        self.take_next_mode();
        self.queue_waiting(Some(here.block.last()));
        self.hint = code.follow(here.id, BlockExit::Branch, self.ip, self.mode);
        Ok(())
    }

    /// Takes the TIP of the branch at `at`. Returns its target. TNT bits may precede it: the CPU
    /// may defer a TIP until the TNT before it is full (SDM section "Deferred TIPs").
    fn take_tip(&mut self, at: Addr) -> Result<Addr, Fault> {
        loop {
            let Some(peeked) = self.cursor.peek()? else {
                return Err(self.here_is(GapReason::NoBranchPacket(at)));
            };
            match peeked.packet {
                Packet::Tip(payload) => {
                    self.pass(&peeked);
                    let no_address = (peeked.offset, GapReason::NoAddress(peeked.packet));
                    return self.last_ip.reconstruct(payload).ok_or(no_address);
                }
                Packet::ModeExec { .. } => self.pass_mode(&peeked),
                Packet::TntShort(tnt) if self.tnt.has_room() => {
                    self.pass(&peeked);
                    self.tnt.append(tnt);
                }
                Packet::TntLong(tnt) if self.tnt.has_room_for_long() => {
                    self.pass(&peeked);
                    self.tnt.append(tnt);
                }
                _ => {
                    if !self.take_side_packet(&peeked) {
                        return Err((peeked.offset, GapReason::NoBranchPacket(at)));
                    }
                }
            }
        }
    }

    /// Applies the mode that a MODE.Exec announced for this TIP, TIP.PGE or FUP.
    pub(super) fn take_next_mode(&mut self) {
        let Some(NextMode { offset, mode, interrupts }) = self.next_mode.take() else { return };
        if mode != self.mode {
            self.event(offset, EventKind::ExecMode { mode });
            self.mode = mode;
            self.hint = BlockId::NONE;
        }
        if self.interrupts.is_some_and(|known| known != interrupts) {
            self.event(offset, EventKind::Interrupts { enabled: interrupts });
        }
        self.interrupts = Some(interrupts);
    }

    pub(super) fn jump(&mut self, here: Here, code: &mut Code<'_>) {
        self.ip = here.block.target;
        self.hint = code.follow(here.id, BlockExit::Branch, self.ip, self.mode);
    }

    pub(super) fn fall(&mut self, here: Here, code: &mut Code<'_>) {
        self.ip = here.block.fall();
        self.hint = code.follow(here.id, BlockExit::Fall, self.ip, self.mode);
    }

    /// Pushes the return address if the block ends in a near call. A call to the next instruction
    /// is not returned from.
    pub(super) const fn push_call(&mut self, here: Here) {
        if matches!(here.block.end, End::Call | End::CallIndirect) {
            self.stack.push(here.block.fall(), here.id);
        }
    }

    /// Moves to `ip` in the same code width, with no block known.
    pub(super) const fn go_on_at(&mut self, ip: Addr) {
        self.ip = ip;
        self.hint = BlockId::NONE;
    }

    /// Notes a whole block as executed, and returns its span. If its last instruction changes the
    /// context, queues the events held for it.
    pub(super) fn span(&mut self, block: &Block, exit: Exit) -> FlowItem {
        self.last = block.last();
        if !self.held.is_empty() && block.end.changes_context() {
            self.queue.extend(self.held.drain(..).map(FlowItem::Event));
        }
        FlowItem::Block(block.span(exit))
    }

    /// Loses the path at the end of `block`, whose instructions were executed nevertheless: returns
    /// its span, and queues a gap. If an overflow took the missing packet, handles that instead.
    pub(super) fn lose(&mut self, block: &Block, fault: Fault) -> Option<FlowItem> {
        self.ip = block.fall();
        let exit = if block.end.needs_trace() { Exit::Unknown } else { Exit::Next };
        let span = (block.insns > 0).then(|| self.span(block, exit));
        match self.cursor.peek() {
            Ok(Some(peeked)) if peeked.packet == Packet::Ovf && is_packet_missing(fault) => {
                self.overflow(&peeked);
            }
            _ => self.gap(fault),
        }
        span
    }

    /// Returns a fault at the current offset in the trace, which it first moves past the TNT
    /// packets there.
    pub(super) fn here_is(&mut self, reason: GapReason) -> Fault {
        self.read_ahead();
        (self.cursor.offset(), reason)
    }
}

/// Returns true if a branch lacks its packet, which an overflow may have lost.
const fn is_packet_missing((_, reason): Fault) -> bool {
    matches!(reason, GapReason::NoBranchPacket(_))
}
