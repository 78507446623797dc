//! What a segment does to the call stack, without knowing the stack at its start: so that segments
//! can be looked at on all cores, and joined by little work.
//!
//! A return leaves the innermost frame that has its target as return address. Where a function
//! loads the stack pointer and then branches (longjmp(3), exceptions, coroutines), the branch's
//! target is all that the path tells: [`Effect::Land`].

use super::segment::{Block, Segment, What, is_sigreturn};
use super::stack::Frame;
use crate::common::{Addr, Tsc};
use crate::flow::{CallWatch, Code, EventKind, Exit, Leaving, Span};
use serde::{Deserialize, Serialize};

/// How control left what came before, until it is known where to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Left {
    /// By a call.
    Call { site: Addr, return_address: Addr },
    /// By a return.
    Return,
    /// Into the kernel, by an instruction (at `site`) or without one (`site` is next then).
    Kernel { site: Addr, next: Addr, sigreturn: bool },
    /// By a return or a jump behind a load of the stack pointer.
    Switch,
}

impl Left {
    /// What it means that control arrives at `ip`, before instruction `index`.
    pub(super) fn arrive(self, ip: Addr, index: u64) -> Option<Effect> {
        match self {
            // A call to the next instruction reads the IP; nothing returns from it.
            Self::Call { return_address, .. } if return_address == ip => None,
            Self::Call { site, return_address } => {
                let index = index.saturating_sub(1);
                let frame = Frame { index, entry: ip, site, return_address, signal: false };
                Some(Effect::Push(frame))
            }
            Self::Return => Some(Effect::Return(ip)),
            Self::Switch => Some(Effect::Land(ip)),
            Self::Kernel { sigreturn: true, .. } => Some(Effect::Sigreturn(ip)),
            // The kernel goes on where it was called, or calls again.
            Self::Kernel { site, next, .. } if ip == next || ip == site => None,
            Self::Kernel { site, next, .. } => {
                let frame = Frame { index, entry: ip, site, return_address: next, signal: true };
                Some(Effect::Push(frame))
            }
        }
    }
}

/// A step of the call stack. Instructions are counted from the segment's start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    Push(Frame),
    Return(Addr),
    Sigreturn(Addr),
    /// Control goes on at an address with a stack pointer that was loaded.
    Land(Addr),
    /// The stack pointer was loaded, and the path does not tell where that leads.
    Switch,
    /// The path is lost before the instruction of this number.
    Hole {
        index: u64,
    },
    /// Control arrives at an address, and how it left is known only from what came before.
    Arrive {
        ip: Addr,
        index: u64,
    },
    /// How control left is known from here on.
    Left(Option<Left>),
    /// So many of the process's exec(2) calls are over.
    Execs(usize),
}

/// What is known of how control left.
#[derive(Clone, Copy, Debug)]
enum Known {
    /// Only what came before the segment can tell.
    Before,
    Here(Option<Left>),
}

/// What a segment, or its beginning, does.
#[derive(Debug)]
pub(super) struct Effects<'a> {
    steps: Vec<Effect>,
    left: Known,
    /// The stack pointer was loaded in the block that control is in.
    has_loaded_sp: bool,
    /// When another program began.
    execs: &'a [Tsc],
    execs_over: usize,
    /// Instructions so far.
    index: u64,
}

impl<'a> Effects<'a> {
    /// Nothing yet.
    pub(super) fn new(execs: &'a [Tsc]) -> Self {
        let (steps, left) = (Vec::new(), Known::Before);
        Self { steps, left, has_loaded_sp: false, execs, execs_over: 0, index: 0 }
    }

    /// All of them.
    pub(super) fn finish(mut self) -> Vec<Effect> {
        self.tell_left();
        self.steps
    }
}

impl Effects<'_> {
    /// Those of the first `limit` instructions of a segment, and of what stands before the next
    /// one.
    pub(super) fn of(segment: &Segment, limit: u64, execs: &[Tsc]) -> Vec<Effect> {
        let mut effects = Effects::new(execs);
        effects.walk(segment, limit);
        effects.finish()
    }

    fn walk(&mut self, segment: &Segment, limit: u64) {
        let mut marks = segment.marks.iter().peekable();
        for (number, run) in segment.runs.iter().enumerate() {
            while let Some(mark) = marks.next_if(|mark| mark.run as usize <= number) {
                self.mark(&mark.what);
            }
            let Some(block) = segment.block(run).filter(|_| run.first < limit) else { break };
            self.arrive(block.ip);
            self.index = run.first + u64::from(block.insns);
            if self.index > limit {
                return;
            }
            self.leave(block);
        }
        if limit >= segment.insns {
            marks.for_each(|mark| self.mark(&mark.what));
        } else if let Some(addr) = segment.addr(limit) {
            self.arrive(addr);
        }
    }

    /// Something stands before instruction `index`.
    pub(super) fn mark_at(&mut self, index: u64, what: &What) {
        self.index = index;
        self.mark(what);
    }

    fn mark(&mut self, what: &What) {
        match *what {
            // What was interrupted had been arrived at, though nothing was executed there.
            What::Event(EventKind::AsyncDisabled { at, .. }) => {
                self.arrive(at);
                self.left =
                    Known::Here(Some(Left::Kernel { site: at, next: at, sigreturn: false }));
            }
            What::Event(EventKind::AsyncBranch { from, to }) => {
                self.arrive(from);
                let left = Left::Kernel { site: from, next: from, sigreturn: false };
                self.left = Known::Here(Some(left));
                self.arrive(to);
            }
            What::Event(EventKind::Enabled { ip }) => self.arrive(ip),
            What::Event(EventKind::Tsc(now)) => self.time_is(now),
            // What happened in a hole is not known.
            What::Gap(_) | What::Event(EventKind::Overflow { .. }) => {
                self.left = Known::Here(None);
                self.steps.push(Effect::Hole { index: self.index });
            }
            What::Event(_) => {}
        }
    }

    /// Makes what is known here known to whom it matters, who may know better from then on.
    fn tell_left(&mut self) {
        if let Known::Here(left) = std::mem::replace(&mut self.left, Known::Before) {
            self.steps.push(Effect::Left(left));
        }
    }

    /// Another program has no activations of the one before.
    fn time_is(&mut self, now: Tsc) {
        let over = self.execs.partition_point(|exec| *exec <= now);
        if over > self.execs_over {
            self.execs_over = over;
            self.tell_left();
            self.steps.push(Effect::Execs(over));
        }
    }

    fn leave(&mut self, block: &Block) {
        self.has_loaded_sp = block.loads_sp;
        self.leave_at((block.last, block.end), block.exit, || block.sigreturn);
    }

    /// Control leaves by the instruction at `site`; `next` is behind it.
    fn leave_at(&mut self, (site, next): (Addr, Addr), exit: Exit, sigreturn: impl Fn() -> bool) {
        let switches = std::mem::take(&mut self.has_loaded_sp);
        if switches && !matches!(exit, Exit::Ret | Exit::Jmp | Exit::JmpIndirect) {
            self.steps.push(Effect::Switch);
        }
        self.left = Known::Here(match exit {
            Exit::Ret | Exit::Jmp | Exit::JmpIndirect if switches => Some(Left::Switch),
            Exit::Call => Some(Left::Call { site, return_address: next }),
            Exit::Ret => Some(Left::Return),
            Exit::FarCall => Some(Left::Kernel { site, next, sigreturn: sigreturn() }),
            _ => None,
        });
    }

    #[inline]
    fn arrive(&mut self, ip: Addr) {
        if !matches!(self.left, Known::Here(None)) {
            self.arrive_from(ip);
        }
    }

    fn arrive_from(&mut self, ip: Addr) {
        let Known::Here(left) = std::mem::replace(&mut self.left, Known::Here(None)) else {
            self.steps.push(Effect::Arrive { ip, index: self.index });
            return;
        };
        match left.and_then(|left| left.arrive(ip, self.index)) {
            Some(Effect::Return(to)) => {
                self.leave_frame(Effect::Return(to), |frame| frame.is_returned_from(to));
            }
            Some(Effect::Sigreturn(to)) => {
                self.leave_frame(Effect::Sigreturn(to), |frame| frame.is_resumed_at(to));
            }
            effect => self.steps.extend(effect),
        }
    }

    /// Takes the frame that is left, and all inside of it, back again if it was pushed here and
    /// nothing since then depends on what came before.
    fn leave_frame(&mut self, effect: Effect, is_left: impl Fn(&Frame) -> bool) {
        for (number, step) in self.steps.iter().enumerate().rev() {
            match step {
                Effect::Push(frame) if is_left(frame) => return self.steps.truncate(number),
                Effect::Push(_) => {}
                _ => break,
            }
        }
        self.steps.push(effect);
    }
}

/// What is skimmed comes to the same as what is walked block by block.
impl CallWatch for Effects<'_> {
    #[inline]
    fn arrive(&mut self, ip: Addr, index: u64) {
        if !matches!(self.left, Known::Here(None)) {
            self.index = index;
            self.arrive_from(ip);
        }
    }

    fn call(&mut self, index: u64, site: Addr, return_address: Addr, entry: Addr) {
        let frame = Frame { index, entry, site, return_address, signal: false };
        self.steps.push(Effect::Push(frame));
    }

    fn loads_sp(&mut self) {
        self.has_loaded_sp = true;
    }

    fn leave(&mut self, span: &Span, behind: Addr, code: &Code<'_>) {
        let sigreturn = || is_sigreturn(&|addr, buf| code.read(addr, buf), span.last);
        self.leave_at((span.last, behind), span.exit, sigreturn);
    }

    #[inline]
    fn leave_by(&mut self, by: Leaving) {
        self.left = Known::Here(match by {
            Leaving::Call { site, return_address } => Some(Left::Call { site, return_address }),
            Leaving::Return => Some(Left::Return),
        });
    }
}
