//! Walks without the trace, from the current IP through direct branches to the place that a packet
//! binds to (SDM section "Packet Generation Scenarios", and TIP.PGD's "Application"). Checks the
//! path before executing any of it, so that a packet that binds nowhere yields no invented
//! instructions.

use super::block::{Block, BlockExit, End};
use super::code::Code;
use super::decoder::{Decoder, State};
use super::item::{EventKind, Exit, FlowItem, GapReason, Span};
use crate::common::Addr;
use crate::pt::PayloadSize;

/// The limit on blocks walked without a packet. No real code runs further, up to a million
/// instructions, without a conditional branch, but endless loops do.
const MAX_BLOCKS: u32 = 1 << 12;

/// The place in the code to which a walk leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Goal {
    /// The instruction at this address, before it is executed.
    Ip(Addr),
    /// The next branch that takes a TIP, before it is executed.
    Tip,
    /// The end of the branch to which a TIP.PGD with this IP belongs.
    Disable(Option<Addr>),
    /// The end of the next PTWRITE, or of the one at this address.
    Ptwrite(Option<Addr>),
    /// The end of the next MOV CR3 or VMPTRLD.
    Context,
    /// The next branch that needs the trace, or the end of the code.
    End,
}

/// The path of a walk, and the action at its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lead {
    /// The number of whole blocks on the path.
    blocks: u32,
    /// The number of instructions to execute in the block after the whole ones.
    insns: u32,
    then: Then,
}

/// The action at the end of a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Then {
    /// Handle the next packet again, which is not taken yet.
    Bind,
    /// Handle a FUP at this offset, with this address.
    Fup(u64, Addr),
    /// Disable tracing, by a TIP.PGD at this offset with this address.
    Disable(u64, Option<Addr>),
    /// Yield a PTW at this offset with this operand, of the last executed PTWRITE.
    Ptwrite(u64, u64, PayloadSize),
    /// Begin the next segment at a PSB at this offset.
    Psb(usize),
    /// Lose the path at this offset.
    Lose(usize, GapReason),
}

impl Decoder<'_> {
    /// Starts the walk to `goal`, where the action `then` happens. If the goal cannot be reached,
    /// walks as far as the code is certain, and then reports a gap at `offset`.
    pub(super) fn start_walk(
        &mut self,
        code: &mut Code<'_>,
        offset: usize,
        goal: Goal,
        then: Then,
    ) {
        let lead = match self.look_over(code, goal) {
            Ok((blocks, insns)) => Lead { blocks, insns, then },
            Err((blocks, reason)) => Lead { blocks, insns: 0, then: Then::Lose(offset, reason) },
        };
        self.state = State::Lead(lead);
    }

    /// Returns true if the code loops forever without a branch that needs the trace.
    pub(super) fn is_endless(&self, code: &mut Code<'_>) -> bool {
        matches!(self.look_over(code, Goal::End), Err((_, GapReason::Endless)))
    }

    /// Returns how many whole blocks, and instructions after them, lead to `goal`; or how many
    /// blocks lead to where the path is lost, and why. Executes nothing.
    fn look_over(&self, code: &mut Code<'_>, goal: Goal) -> Result<(u32, u32), (u32, GapReason)> {
        let (mut id, mut ip) = (self.hint, self.ip);
        for blocks in 0..MAX_BLOCKS {
            if goal == Goal::Ip(ip) {
                return Ok((blocks, 0));
            }
            id = code.find_near(id, ip, self.mode);
            if let Some(insns) = goal.ip().and_then(|addr| code.insns_before(id, addr)) {
                return Ok((blocks, insns));
            }
            let block = code.block(id).copied().unwrap_or(Block::none(ip, self.mode));
            match self.at_end_of(&block, goal) {
                AtEnd::Reached => return Ok((blocks + 1, 0)),
                AtEnd::ReachedBefore => return Ok((blocks, 0)),
                AtEnd::Lost(reason) => return Err((blocks + 1, reason)),
                AtEnd::Follow(way) => {
                    ip = if way == BlockExit::Branch { block.target } else { block.fall() };
                    id = code.follow(id, way, ip, self.mode);
                }
            }
        }
        // A loop: the number of its rounds is unknown.
        Err((0, GapReason::Endless))
    }

    /// Returns what the end of `block` means for `goal`, with errata applied.
    fn at_end_of(&self, block: &Block, goal: Goal) -> AtEnd {
        if goal == Goal::Disable(None) && self.is_skl014(block) {
            return AtEnd::Reached;
        }
        goal.at_end_of(block)
    }

    /// Returns true if the walk to `goal` succeeds.
    pub(super) fn leads_to(&self, goal: Goal, code: &mut Code<'_>) -> bool {
        self.look_over(code, goal).is_ok()
    }

    /// Executes the next whole block of a walk. After the last one, executes the remaining
    /// instructions and the action.
    pub(super) fn lead(&mut self, lead: Lead, code: &mut Code<'_>) -> Option<FlowItem> {
        if lead.blocks > 0 {
            self.state = State::Lead(Lead { blocks: lead.blocks - 1, ..lead });
            return self.run_direct(lead, code);
        }
        let span = self.run_part(lead.insns, code);
        self.state = State::On;
        self.arrive(lead.then, code);
        span
    }

    /// Executes a whole block of the path. Returns its span; `None` if it has no instructions.
    fn run_direct(&mut self, lead: Lead, code: &mut Code<'_>) -> Option<FlowItem> {
        let here = self.here(code);
        let block = here.block;
        let exit = match block.end {
            End::Jmp => Exit::Jmp,
            End::Call | End::CallNext | End::CallIndirect => {
                self.push_call(here);
                Exit::Call
            }
            // A block inside the path falls through: `exit` returns `Next`. The last one leaves as
            // the action says.
            _ => lead.then.exit(&block),
        };
        match block.end.straight() {
            Some(BlockExit::Branch) => self.jump(here, code),
            Some(BlockExit::Fall) => self.fall(here, code),
            // The last block: the action disables tracing or loses the path, so nothing is executed
            // at this address.
            None => self.go_on_at(block.fall()),
        }
        (block.insns > 0).then(|| self.span(&block, exit))
    }

    /// Executes the first `insns` instructions of the block at the current IP.
    fn run_part(&mut self, insns: u32, code: &mut Code<'_>) -> Option<FlowItem> {
        let last = insns.checked_sub(1)?;
        let here = self.here(code);
        let ip = here.block.ip;
        self.last = code.insn_addr(here.id, last)?;
        self.go_on_at(code.insn_addr(here.id, insns)?);
        let (last, mode, exit) = (self.last, self.mode, Exit::Next);
        Some(FlowItem::Block(Span { ip, last, insns, mode, exit }))
    }

    /// Performs the action at the end of a walk, with tracing on.
    fn arrive(&mut self, then: Then, code: &mut Code<'_>) {
        match then {
            Then::Bind => {}
            Then::Fup(offset, ip) => {
                self.reach_fup(offset, ip);
                self.undo_skd022(code);
            }
            Then::Disable(offset, ip) => {
                self.queue_waiting(Some(self.last));
                self.event(offset, EventKind::Disabled { at: self.last, ip });
                self.end_tracing();
            }
            Then::Ptwrite(offset, value, size) => {
                self.event(offset, EventKind::Ptwrite { ip: Some(self.last), value, size });
            }
            Then::Psb(offset) => self.enter(offset),
            Then::Lose(offset, reason) => self.gap((offset, reason)),
        }
    }
}

impl Then {
    /// Returns how control leaves `block`, at whose end this action happens.
    fn exit(self, block: &Block) -> Exit {
        match (block.end, self) {
            (End::Jcc, Self::Disable(_, Some(to))) if to == block.target => Exit::Taken,
            (End::Jcc, Self::Disable(_, Some(to))) if to == block.fall() => Exit::NotTaken,
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

/// The outcome of a block in a walk to a goal: the walk ends, or continues.
#[derive(Clone, Copy, Debug)]
enum AtEnd {
    /// The goal is reached after the block is executed.
    Reached,
    /// The goal is the block itself, before it is executed.
    ReachedBefore,
    /// The path continues in this direction.
    Follow(BlockExit),
    /// The path ends here, for this reason.
    Lost(GapReason),
}

impl Goal {
    const fn ip(self) -> Option<Addr> {
        if let Self::Ip(addr) = self { Some(addr) } else { None }
    }

    /// Returns how a walk to this goal continues at the end of `block`: first the ends that reach
    /// it, then code that is unknown, then all other ends.
    fn at_end_of(self, block: &Block) -> AtEnd {
        match (block.end, self) {
            // A direct branch has a TIP.PGD if its target is outside of the traced code.
            (End::Jmp | End::Call | End::CallNext, Self::Disable(Some(to)))
                if to == block.target =>
            {
                AtEnd::Reached
            }
            (End::Ptwrite, Self::Ptwrite(at)) if at.is_none_or(|at| at == block.last()) => {
                AtEnd::Reached
            }
            // A MOV CR3 has a TIP.PGD, without IP, if the new CR3 is not traced.
            (End::MovCr3, Self::Disable(None))
            | (End::MovCr3 | End::Vmptrld, Self::Context)
            | (End::NoCode | End::BadInsn, Self::End) => AtEnd::Reached,
            (End::NoCode, _) => AtEnd::Lost(GapReason::NoCode(block.fall())),
            (End::BadInsn, _) => AtEnd::Lost(GapReason::BadInsn(block.fall())),
            (end, goal) => match (end.straight(), goal) {
                (Some(way), _) => AtEnd::Follow(way),
                (None, Self::Ip(addr) | Self::Ptwrite(Some(addr))) => {
                    AtEnd::Lost(GapReason::NotReached(addr))
                }
                (None, Self::Tip) if end == End::Jcc => {
                    AtEnd::Lost(GapReason::NoBranchPacket(block.last()))
                }
                (None, Self::Tip) => AtEnd::ReachedBefore,
                (None, Self::Disable(_) | Self::End) => AtEnd::Reached,
                (None, Self::Ptwrite(None)) => AtEnd::Lost(GapReason::NoPtwrite),
                // Not reported: no walk to this goal starts unless `leads_to` has found a way.
                (None, Self::Context) => AtEnd::Lost(GapReason::Endless),
            },
        }
    }
}
