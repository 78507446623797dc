//! Walking without the trace: from the current IP through direct branches to the place that a
//! packet binds to (SDM section "Packet Generation Scenarios", and TIP.PGD's "Application").
//! The way is looked over before any of it is given out, so that a packet that binds nowhere
//! costs no made-up instructions.

use super::block::{Block, End, Way};
use super::code::Code;
use super::decoder::{Decoder, State};
use super::item::{EventKind, Exit, FlowItem, GapReason, Span};
use crate::common::Addr;
use crate::pt::PayloadSize;

/// Blocks that are walked at most without a packet. Straight code beyond it, a million
/// instructions without a conditional branch, is not to be found; endless loops are.
const MAX_BLOCKS: u32 = 1 << 12;

/// What is walked to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Goal {
    /// This instruction, not yet executed.
    Ip(Addr),
    /// The next branch that takes a TIP; it is left to be executed.
    Tip,
    /// The branch that a TIP.PGD with this payload belongs to.
    Disable(Option<Addr>),
    /// Behind the next PTWRITE, or behind the one at this address.
    Ptwrite(Option<Addr>),
    /// Behind the next MOV CR3 or VMPTRLD.
    Context,
    /// The next branch that needs the trace, or the end of the code.
    End,
}

/// A way that leads to a goal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lead {
    /// Whole blocks on it.
    blocks: u32,
    /// Instructions of the block behind them.
    insns: u32,
    then: Then,
}

/// What to do at the end of the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Then {
    /// Look at the packet again, which is not taken yet.
    Bind,
    /// A FUP at this offset, with this address, stands here.
    Fup(u64, Addr),
    /// A TIP.PGD at this offset, with this address, disables tracing.
    Disable(u64, Option<Addr>),
    /// A PTW, at this offset and with this operand, is of the PTWRITE that was executed last.
    Ptwrite(u64, u64, PayloadSize),
    /// A PSB at this offset begins the next segment.
    Psb(usize),
    /// The path is lost at this offset.
    Lose(usize, GapReason),
}

impl Decoder<'_> {
    /// Starts on the way to `goal`. Where no way leads there, goes as far as the code is certain.
    pub(super) fn set_out(&mut self, code: &mut Code<'_>, offset: usize, goal: Goal, then: Then) {
        let lead = match self.look_over(code, goal) {
            Ok((blocks, insns)) => Lead { blocks, insns, then },
            Err((blocks, reason)) => Lead { blocks, insns: 0, then: Then::Lose(offset, reason) },
        };
        self.state = State::Lead(lead);
    }

    /// Whether the code goes on for ever without a branch that needs the trace.
    pub(super) fn is_endless(&self, code: &mut Code<'_>) -> bool {
        matches!(self.look_over(code, Goal::End), Err((_, GapReason::Endless)))
    }

    /// How many whole blocks, and instructions behind them, lead to `goal`; or how many lead to
    /// where the way is lost.
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
                    ip = if way == Way::Branch { block.target } else { block.fall() };
                    id = code.follow(id, way, ip, self.mode);
                }
            }
        }
        // A circle: how often it was run is not known.
        Err((0, GapReason::Endless))
    }

    /// What the end of `block` means for `goal`, errata included.
    fn at_end_of(&self, block: &Block, goal: Goal) -> AtEnd {
        if goal == Goal::Disable(None) && self.is_skl014(block) {
            return AtEnd::Reached;
        }
        goal.at_end_of(block)
    }

    /// Whether `goal` can be walked to.
    pub(super) fn leads_to(&self, goal: Goal, code: &mut Code<'_>) -> bool {
        self.look_over(code, goal).is_ok()
    }

    /// Goes one block on its way.
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

    /// Executes a whole block whose branch needs nothing of the trace, or is the goal.
    fn run_direct(&mut self, lead: Lead, code: &mut Code<'_>) -> Option<FlowItem> {
        let here = self.here(code);
        let block = here.block;
        let exit = match block.end {
            End::Jmp => Exit::Jmp,
            End::Call | End::CallNext | End::CallIndirect => {
                self.push_call(here);
                Exit::Call
            }
            _ => lead.then.exit(&block),
        };
        match block.end.straight() {
            Some(Way::Branch) => self.jump(here, code),
            Some(Way::Fall) => self.fall(here, code),
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

    fn arrive(&mut self, then: Then, code: &mut Code<'_>) {
        match then {
            Then::Bind => {}
            Then::Fup(offset, ip) => {
                self.at_fup(offset, ip);
                self.undo_skd022(code);
            }
            Then::Disable(offset, ip) => {
                self.place_bound(Some(self.last));
                self.event(offset, EventKind::Disabled { at: self.last, ip });
                self.switch_off();
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
    /// How control leaves `block`, at whose end this happens.
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

/// What the end of a block means for a goal.
#[derive(Clone, Copy, Debug)]
enum AtEnd {
    /// The goal is reached once the block is executed.
    Reached,
    /// The goal is the block itself.
    ReachedBefore,
    /// Control goes on this way.
    Follow(Way),
    /// No way leads on.
    Lost(GapReason),
}

impl Goal {
    const fn ip(self) -> Option<Addr> {
        if let Self::Ip(addr) = self { Some(addr) } else { None }
    }

    fn at_end_of(self, block: &Block) -> AtEnd {
        match (block.end, self) {
            (End::Jmp | End::Call | End::CallNext, Self::Disable(Some(to)))
                if to == block.target =>
            {
                AtEnd::Reached
            }
            (End::Ptwrite, Self::Ptwrite(at)) if at.is_none_or(|at| at == block.last()) => {
                AtEnd::Reached
            }
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
                (None, Self::Context) => AtEnd::Lost(GapReason::Endless),
            },
        }
    }
}
