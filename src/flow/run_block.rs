//! Executes one whole block, with any branch at its end; the slow counterpart of `run_cached`.
//! Takes the outcome of the branch from TNT bits or packets. Does not determine to which
//! instructions FUPs and other asynchronous packets bind: `bind` does.

use super::block::{Block, BlockExit, BlockId, End};
use super::code::Code;
use super::decoder::{Decoder, NextMode};
use super::item::{EventKind, Exit, FlowItem, GapReason};
use super::psb::Fault;
use crate::common::Addr;
use crate::pt::Packet;

/// The block at the current IP, about to be executed.
#[derive(Clone, Copy, Debug)]
pub(super) struct CurrentBlock {
    pub(super) id: BlockId,
    pub(super) block: Block,
}

impl Decoder<'_> {
    /// Returns the block at the current IP, decoding its code if it is not cached. It is empty if
    /// no code is known there.
    pub(super) fn current_block(&mut self, code: &mut Code<'_>) -> CurrentBlock {
        let id = code.find_near(self.hint, self.ip, self.mode);
        let block = code.block(id).copied().unwrap_or(Block::empty(self.ip, self.mode));
        CurrentBlock { id, block }
    }

    /// Executes the block at the current IP to its end, and returns its span. The outcome of its
    /// branch is in the unused TNT bits, or in the next packets. If it is in neither, the path is
    /// lost after the block, and `None` is returned for a block without instructions.
    pub(super) fn run_block(&mut self, code: &mut Code<'_>) -> Option<FlowItem> {
        let current = self.current_block(code);
        match self.execute_block_end(current, code) {
            Ok(exit) => Some(self.finish_block(&current.block, exit)),
            Err(fault) => self.lose_path_after(&current.block, fault),
        }
    }

    /// Executes the end of a block: moves to the next block by its branch, or falls through if it
    /// has none, and pushes the return address of a call. Returns the exit; the caller must call
    /// [`Self::finish_block`] then. Fails if the branch's packet is missing or contradicts it, if
    /// no code follows, or in an endless loop. The IP and the return stack may have changed by
    /// then: the caller must call [`Self::lose_path_after`].
    fn execute_block_end(
        &mut self,
        current: CurrentBlock,
        code: &mut Code<'_>,
    ) -> Result<Exit, Fault> {
        let block = current.block;
        let exit = match block.end {
            End::Jcc => return self.execute_jcc(current, code),
            End::Ret => return self.execute_ret(current, code),
            End::JmpIndirect => Exit::JmpIndirect,
            End::CallIndirect => {
                self.push_call(current);
                Exit::Call
            }
            End::FarCall => Exit::FarCall,
            End::FarReturn => Exit::FarReturn,
            End::FarJmp => Exit::FarJmp,
            End::NoCode => return Err(self.fault_here(GapReason::NoCode(block.following()))),
            End::BadInsn => return Err(self.fault_here(GapReason::BadInsn(block.following()))),
            End::Jmp | End::Call | End::CallNext => {
                self.push_call(current);
                self.go_to_target(current, code);
                self.check_endless_loop(code)?;
                return Ok(if block.end == End::Jmp { Exit::Jmp } else { Exit::Call });
            }
            End::Ptwrite | End::MovCr3 | End::Vmptrld | End::Limit => {
                self.fall_through(current, code);
                return Ok(Exit::Next);
            }
        };
        self.execute_tip_branch(current, code)?;
        Ok(exit)
    }

    /// Counts a direct jump or call. Fails if, after many in a row, they turn out to be an endless
    /// loop, in which no branch can use the next TNT bit.
    fn check_endless_loop(&mut self, code: &mut Code<'_>) -> Result<(), Fault> {
        self.direct_branches += 1;
        if self.direct_branches < super::run_cached::ENDLESS_CHECK_BLOCKS {
            return Ok(());
        }
        self.direct_branches = 0;
        if self.is_endless(code) { Err(self.fault_here(GapReason::Endless)) } else { Ok(()) }
    }

    /// Executes a conditional branch, with one TNT bit. Fails if there is none.
    fn execute_jcc(&mut self, current: CurrentBlock, code: &mut Code<'_>) -> Result<Exit, Fault> {
        self.direct_branches = 0;
        match self.tnt.pop() {
            Some(true) => {
                self.go_to_target(current, code);
                Ok(Exit::Taken)
            }
            Some(false) => {
                self.fall_through(current, code);
                Ok(Exit::NotTaken)
            }
            None => Err(self.fault_here(GapReason::NoBranchPacket(current.block.last()))),
        }
    }

    /// Executes a return: with a TNT bit if one is left, which means that it is compressed and goes
    /// to the address on the return stack; else with a TIP. Fails if the bit is 0, or the stack is
    /// empty.
    fn execute_ret(&mut self, current: CurrentBlock, code: &mut Code<'_>) -> Result<Exit, Fault> {
        let at = current.block.last();
        self.direct_branches = 0;
        match self.tnt.pop() {
            None => self.execute_tip_branch(current, code)?,
            Some(false) => return Err(self.fault_here(GapReason::ReturnNotTaken(at))),
            Some(true) => {
                let Some((to, call)) = self.stack.pop() else {
                    return Err(self.fault_here(GapReason::ReturnWithoutCall(at)));
                };
                self.ip = to;
                self.hint = code.return_successor(call, to, self.mode);
            }
        }
        Ok(Exit::Ret)
    }

    /// Executes a branch whose target is in a TIP. Applies a mode that waits for this TIP, and
    /// queues the waiting packets with the branch as their address. Fails if no TIP comes, or one
    /// without an address; only packets that [`Self::take_tip`] takes may precede it.
    fn execute_tip_branch(
        &mut self,
        current: CurrentBlock,
        code: &mut Code<'_>,
    ) -> Result<(), Fault> {
        self.ip = self.take_tip(current.block.last())?;
        self.direct_branches = 0;
        self.apply_next_mode();
        self.queue_waiting(Some(current.block.last()));
        self.hint = code.successor(current.id, BlockExit::Branch, self.ip, self.mode);
        Ok(())
    }

    /// Takes the TIP of the branch at `at`. Returns its target. Takes TNT bits and side packets
    /// before it, too: the CPU may defer a TIP until the TNT before it is full (SDM section
    /// "Deferred TIPs"). Fails at any other packet.
    fn take_tip(&mut self, at: Addr) -> Result<Addr, Fault> {
        loop {
            let Some(peeked) = self.cursor.peek()? else {
                return Err(self.fault_here(GapReason::NoBranchPacket(at)));
            };
            match peeked.packet {
                Packet::Tip(payload) => {
                    self.pass(&peeked);
                    let no_address = (peeked.offset, GapReason::NoAddress(peeked.packet));
                    return self.last_ip.reconstruct(payload).ok_or(no_address);
                }
                Packet::ModeExec { .. } => self.take_mode_exec(&peeked),
                Packet::TntShort(tnt) if self.tnt.has_room_for_short() => {
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

    /// Applies the mode of the last MODE.Exec, at the TIP, TIP.PGE or FUP for which it waited.
    /// Queues events for what it changes. Does nothing if no mode waits.
    pub(super) fn apply_next_mode(&mut self) {
        let Some(NextMode { offset, mode, interrupts }) = self.next_mode.take() else { return };
        if mode != self.mode {
            self.queue_event(offset, EventKind::ExecMode { mode });
            self.mode = mode;
            self.hint = BlockId::NONE;
        }
        if self.interrupts.is_some_and(|known| known != interrupts) {
            self.queue_event(offset, EventKind::Interrupts { enabled: interrupts });
        }
        self.interrupts = Some(interrupts);
    }

    /// Moves to the target of the direct branch at the block's end.
    pub(super) fn go_to_target(&mut self, current: CurrentBlock, code: &mut Code<'_>) {
        self.ip = current.block.target;
        self.hint = code.successor(current.id, BlockExit::Branch, self.ip, self.mode);
    }

    /// Moves to the instruction after the block.
    pub(super) fn fall_through(&mut self, current: CurrentBlock, code: &mut Code<'_>) {
        self.ip = current.block.following();
        self.hint = code.successor(current.id, BlockExit::Fall, self.ip, self.mode);
    }

    /// Pushes the return address if the block ends in a near call, except for a call to the next
    /// instruction: that pushes nothing for RET compression (SDM).
    pub(super) const fn push_call(&mut self, current: CurrentBlock) {
        if matches!(current.block.end, End::Call | End::CallIndirect) {
            self.stack.push(current.block.following(), current.id);
        }
    }

    /// Moves to `ip` in the same code width. Changes neither the state nor the return stack.
    pub(super) const fn set_ip(&mut self, ip: Addr) {
        self.ip = ip;
        self.hint = BlockId::NONE;
    }

    /// Sets the last executed instruction to the block's, and returns the span of the whole block.
    /// If that instruction changes the context, queues the events held for it. Does not move.
    pub(super) fn finish_block(&mut self, block: &Block, exit: Exit) -> FlowItem {
        self.last = block.last();
        if !self.held.is_empty() && block.end.changes_context() {
            self.queue.extend(self.held.drain(..).map(FlowItem::Event));
        }
        FlowItem::Block(block.span(exit))
    }

    /// Loses the path at the end of `block`, whose instructions were executed nevertheless: queues
    /// a gap, and returns the block's span; `None` if it has no instructions. If the packet of its
    /// branch is missing and an OVF comes next, handles the overflow and queues no gap.
    pub(super) fn lose_path_after(&mut self, block: &Block, fault: Fault) -> Option<FlowItem> {
        self.ip = block.following();
        let exit = if block.end.needs_trace() { Exit::Unknown } else { Exit::Next };
        let span = (block.insns > 0).then(|| self.finish_block(block, exit));
        match self.cursor.peek() {
            Ok(Some(peeked)) if peeked.packet == Packet::Ovf && is_packet_missing(fault) => {
                self.take_ovf(&peeked);
            }
            _ => self.lose_path(fault),
        }
        span
    }

    /// Returns a fault at the current trace offset. First takes the TNT packets there, since how
    /// many were taken before depends on the path through the decoder.
    pub(super) fn fault_here(&mut self, reason: GapReason) -> Fault {
        self.read_ahead();
        (self.cursor.offset(), reason)
    }
}

/// Returns true if the fault is a branch without its packet, which an overflow may have lost.
const fn is_packet_missing((_, reason): Fault) -> bool {
    matches!(reason, GapReason::NoBranchPacket(_))
}
