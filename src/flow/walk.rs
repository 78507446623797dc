//! Executes code without the trace: walks from the current IP through direct branches to the
//! instruction that a packet binds to (SDM section "Packet Generation Scenarios", and TIP.PGD's
//! "Application"). No TNT bit or TIP is needed on the way.
//!
//! The path is planned before any of it is executed, so that a packet that binds nowhere yields no
//! invented instructions. Then each step executes one block, and at the end the packet is handled.

use super::block::{Block, BlockExit, End};
use super::code::Code;
use super::decoder::{Decoder, State};
use super::item::{EventKind, Exit, FlowItem, GapReason, Span};
use crate::common::Addr;
use crate::pt::PayloadSize;

/// The limit on blocks walked without a packet. No real code runs further, up to a million
/// instructions, without a conditional branch, but endless loops do.
const MAX_BLOCKS: u32 = 1 << 12;

/// The instruction to which a walk leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Goal {
    /// The instruction at this address, before it is executed.
    Ip(Addr),
    /// The next branch that takes a TIP, before it is executed.
    Tip,
    /// The branch to which a TIP.PGD with this IP belongs, after it is executed.
    Disable(Option<Addr>),
    /// The PTWRITE at this address, or else the next one, after it is executed.
    Ptwrite(Option<Addr>),
    /// The next MOV CR3 or VMPTRLD, after it is executed.
    Context,
    /// The next branch that needs the trace, or the end of the code.
    End,
}

/// The remaining path of a walk, and the action at its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PacketWalk {
    /// The number of whole blocks on the path.
    blocks: u32,
    /// The number of instructions to execute in the block after the whole ones.
    insns: u32,
    action: WalkAction,
}

/// The action at the end of a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WalkAction {
    /// Handle the next packet again, which is not taken yet.
    Bind,
    /// Handle a FUP at this offset, with this address.
    Fup(u64, Addr),
    /// Disable tracing, by a TIP.PGD at this offset with this address.
    Disable(u64, Option<Addr>),
    /// Yield a PTW at this offset with this operand, of the last executed PTWRITE.
    Ptwrite(u64, u64, PayloadSize),
    /// Start the segment of the PSB at this offset.
    Psb(usize),
    /// Lose the path, with a gap at this offset.
    Lose(usize, GapReason),
}

impl Decoder<'_> {
    /// Plans the walk to `goal`, where `action` happens, and makes the next steps execute it. If
    /// the goal cannot be reached, the walk goes as far as the code is certain, and ends with a gap
    /// at `offset`.
    pub(super) fn start_walk(
        &mut self,
        code: &mut Code<'_>,
        offset: usize,
        goal: Goal,
        action: WalkAction,
    ) {
        let walk = match self.plan_walk(code, goal) {
            Ok((blocks, insns)) => PacketWalk { blocks, insns, action },
            Err((blocks, reason)) => {
                PacketWalk { blocks, insns: 0, action: WalkAction::Lose(offset, reason) }
            }
        };
        self.state = State::Walk(walk);
    }

    /// Returns true if the code from the current IP on loops forever without a branch that needs
    /// the trace.
    pub(super) fn is_endless(&self, code: &mut Code<'_>) -> bool {
        matches!(self.plan_walk(code, Goal::End), Err((_, GapReason::Endless)))
    }

    /// Returns the numbers of whole blocks, and of instructions after them, that lead from the
    /// current IP to `goal`; or the number of blocks up to where the path is lost, and the reason.
    /// For an endless loop this number is 0. Executes nothing.
    fn plan_walk(&self, code: &mut Code<'_>, goal: Goal) -> Result<(u32, u32), (u32, GapReason)> {
        let (mut id, mut ip) = (self.hint, self.ip);
        for blocks in 0..MAX_BLOCKS {
            if goal == Goal::Ip(ip) {
                return Ok((blocks, 0));
            }
            id = code.find_near(id, ip, self.mode);
            if let Some(insns) = goal.ip().and_then(|addr| code.insns_before(id, addr)) {
                return Ok((blocks, insns));
            }
            let block = code.block(id).copied().unwrap_or(Block::empty(ip, self.mode));
            match self.walk_step_after(&block, goal) {
                WalkStep::Reached => return Ok((blocks + 1, 0)),
                WalkStep::ReachedBefore => return Ok((blocks, 0)),
                WalkStep::Lost(reason) => return Err((blocks + 1, reason)),
                WalkStep::Follow(exit) => {
                    ip = if exit == BlockExit::Branch { block.target } else { block.following() };
                    id = code.successor(id, exit, ip, self.mode);
                }
            }
        }
        // A loop: the number of its rounds is unknown.
        Err((0, GapReason::Endless))
    }

    /// Returns how a walk to `goal` continues at the end of `block`, with errata applied.
    fn walk_step_after(&self, block: &Block, goal: Goal) -> WalkStep {
        if goal == Goal::Disable(None) && self.may_disable_without_ip_skl014(block) {
            return WalkStep::Reached;
        }
        goal.walk_step_after(block)
    }

    /// Returns true if a walk from the current IP reaches `goal`. Executes nothing.
    pub(super) fn leads_to(&self, goal: Goal, code: &mut Code<'_>) -> bool {
        self.plan_walk(code, goal).is_ok()
    }

    /// Executes the next whole block of a walk, and returns its span. After the last one, executes
    /// the remaining instructions and the action, which ends the walk. `None` if no instruction was
    /// executed.
    pub(super) fn step_walk(&mut self, walk: PacketWalk, code: &mut Code<'_>) -> Option<FlowItem> {
        if walk.blocks > 0 {
            self.state = State::Walk(PacketWalk { blocks: walk.blocks - 1, ..walk });
            return self.run_walked_block(walk, code);
        }
        let span = self.run_block_start(walk.insns, code);
        self.state = State::On;
        self.finish_walk(walk.action, code);
        span
    }

    /// Executes the next whole block of a walk. Returns its span; `None` if it has no instructions.
    fn run_walked_block(&mut self, walk: PacketWalk, code: &mut Code<'_>) -> Option<FlowItem> {
        let current = self.current_block(code);
        let block = current.block;
        let exit = match block.end {
            End::Jmp => Exit::Jmp,
            End::Call | End::CallNext | End::CallIndirect => {
                self.push_call(current);
                Exit::Call
            }
            // A block inside the path falls through: `exit` returns `Next`. The last one leaves as
            // the action says.
            _ => walk.action.exit(&block),
        };
        match block.end.exit_by_code() {
            Some(BlockExit::Branch) => self.go_to_target(current, code),
            Some(BlockExit::Fall) => self.fall_through(current, code),
            // The last block: the action disables tracing or loses the path, so nothing is executed
            // at this address.
            None => self.set_ip(block.following()),
        }
        (block.insns > 0).then(|| self.finish_block(&block, exit))
    }

    /// Executes the first `insns` instructions of the block at the current IP, and returns their
    /// span; `None` if `insns` is 0.
    fn run_block_start(&mut self, insns: u32, code: &mut Code<'_>) -> Option<FlowItem> {
        let last = insns.checked_sub(1)?;
        let current = self.current_block(code);
        let ip = current.block.ip;
        self.last = code.insn_addr(current.id, last)?;
        self.set_ip(code.insn_addr(current.id, insns)?);
        let (last, mode, exit) = (self.last, self.mode, Exit::Next);
        Some(FlowItem::Block(Span { ip, last, insns, mode, exit }))
    }

    /// Performs the action at the end of a walk.
    fn finish_walk(&mut self, action: WalkAction, code: &mut Code<'_>) {
        match action {
            WalkAction::Bind => {}
            WalkAction::Fup(offset, ip) => {
                self.handle_reached_fup(offset, ip);
                self.undo_skd022(code);
            }
            WalkAction::Disable(offset, ip) => {
                self.queue_waiting(Some(self.last));
                self.queue_event(offset, EventKind::Disabled { at: self.last, ip });
                self.end_tracing();
            }
            WalkAction::Ptwrite(offset, value, size) => {
                self.queue_event(offset, EventKind::Ptwrite { ip: Some(self.last), value, size });
            }
            WalkAction::Psb(offset) => self.start_segment(offset),
            WalkAction::Lose(offset, reason) => self.lose_path((offset, reason)),
        }
    }
}

impl WalkAction {
    /// Returns the exit from `block` that is not a direct branch, if this action happens at its
    /// end. A conditional branch is taken or not as the address of a TIP.PGD shows, else unknown.
    fn exit(self, block: &Block) -> Exit {
        match (block.end, self) {
            (End::Jcc, Self::Disable(_, Some(to))) if to == block.target => Exit::Taken,
            (End::Jcc, Self::Disable(_, Some(to))) if to == block.following() => Exit::NotTaken,
            (End::Jcc, _) => Exit::Unknown,
            (End::Ret, _) => Exit::Ret,
            (End::JmpIndirect, _) => Exit::JmpIndirect,
            (End::FarCall, _) => Exit::FarCall,
            (End::FarReturn, _) => Exit::FarReturn,
            (End::FarJmp, _) => Exit::FarJmp,
            _ => Exit::Next,
        }
    }
}

/// The continuation of a walk after a block.
#[derive(Clone, Copy, Debug)]
enum WalkStep {
    /// The goal is reached after the block is executed.
    Reached,
    /// The goal is the block itself, before it is executed.
    ReachedBefore,
    /// The walk continues at the block after this exit.
    Follow(BlockExit),
    /// The walk ends here without reaching the goal, for this reason.
    Lost(GapReason),
}

impl Goal {
    /// Returns the address that is to be reached before it is executed; `None` for other goals.
    const fn ip(self) -> Option<Addr> {
        if let Self::Ip(addr) = self { Some(addr) } else { None }
    }

    /// Returns how a walk to this goal continues at the end of `block`: first the ends that reach
    /// it, then code that is unknown, then all other ends.
    fn walk_step_after(self, block: &Block) -> WalkStep {
        match (block.end, self) {
            // A direct branch has a TIP.PGD if its target is outside of the traced code.
            (End::Jmp | End::Call | End::CallNext, Self::Disable(Some(to)))
                if to == block.target =>
            {
                WalkStep::Reached
            }
            (End::Ptwrite, Self::Ptwrite(at)) if at.is_none_or(|at| at == block.last()) => {
                WalkStep::Reached
            }
            // A MOV CR3 has a TIP.PGD, without IP, if the new CR3 is not traced.
            (End::MovCr3, Self::Disable(None))
            | (End::MovCr3 | End::Vmptrld, Self::Context)
            | (End::NoCode | End::BadInsn, Self::End) => WalkStep::Reached,
            (End::NoCode, _) => WalkStep::Lost(GapReason::NoCode(block.following())),
            (End::BadInsn, _) => WalkStep::Lost(GapReason::BadInsn(block.following())),
            (end, goal) => match (end.exit_by_code(), goal) {
                (Some(exit), _) => WalkStep::Follow(exit),
                (None, Self::Ip(addr) | Self::Ptwrite(Some(addr))) => {
                    WalkStep::Lost(GapReason::NotReached(addr))
                }
                (None, Self::Tip) if end == End::Jcc => {
                    WalkStep::Lost(GapReason::NoBranchPacket(block.last()))
                }
                (None, Self::Tip) => WalkStep::ReachedBefore,
                (None, Self::Disable(_) | Self::End) => WalkStep::Reached,
                (None, Self::Ptwrite(None)) => WalkStep::Lost(GapReason::NoPtwrite),
                // Not reported: no walk to this goal starts unless `leads_to` returned true.
                (None, Self::Context) => WalkStep::Lost(GapReason::Endless),
            },
        }
    }
}
