//! The effects of a segment on the call stack, computed without the stack at its start, so that
//! segments can be processed on all cores and joined with little work.
//!
//! A return pops the innermost frame that has its target as return address. If a function loads the
//! stack pointer and then branches (longjmp(3), exceptions, coroutines), the path shows only the
//! branch's target: [`Effect::Land`].

use super::segment::{Block, Segment, What, is_sigreturn};
use super::stack::Frame;
use crate::common::{Addr, Tsc};
use crate::flow::{CallWatch, Code, EventKind, Exit, Leaving, Span};
use serde::{Deserialize, Serialize};

/// A transfer of control whose target is not reached yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Left {
    /// A call.
    Call { site: Addr, return_address: Addr },
    /// A return.
    Return,
    /// An entry to the kernel by an instruction at `site`; if asynchronous, `site` is `next`.
    Kernel { site: Addr, next: Addr, sigreturn: bool },
    /// A return or a jump after a load of the stack pointer.
    Switch,
}

impl Left {
    /// Returns the effect of this transfer's arrival at `ip`, before instruction `index`; `None` if
    /// the call stack stays the same.
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
            // The kernel resumes after the call, or restarts it.
            Self::Kernel { site, next, .. } if ip == next || ip == site => None,
            Self::Kernel { site, next, .. } => {
                let frame = Frame { index, entry: ip, site, return_address: next, signal: true };
                Some(Effect::Push(frame))
            }
        }
    }
}

/// A change of the call stack. Instructions are counted from the segment's start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// A call, or the start of a signal handler.
    Push(Frame),
    /// A return to this address, if it cannot be matched with a call within the segment.
    Return(Addr),
    /// The end of a signal handler, after which the program resumes at this address, if it cannot
    /// be matched with the handler's start within the segment.
    Sigreturn(Addr),
    /// An arrival at an address with a loaded stack pointer.
    Land(Addr),
    /// A load of the stack pointer whose consequence the path does not show.
    Switch,
    /// A gap of the path before the instruction with this number.
    Hole { index: u64 },
    /// An arrival at an address after a transfer that precedes the segment.
    Arrive { ip: Addr, index: u64 },
    /// The last transfer of control up to here, for the arrival that follows; `None` if it does not
    /// matter or is unknown.
    Left(Option<Left>),
    /// The number of the thread's exec(2) calls up to here, which has grown.
    Execs(usize),
}

/// The last transfer of control, as far as it is known.
#[derive(Clone, Copy, Debug)]
enum Known {
    /// The transfer precedes the segment.
    Before,
    /// The transfer is in the segment; `None` if it does not matter or is unknown.
    Here(Option<Left>),
}

/// A collector of the effects of a segment, or of its beginning, on the call stack.
#[derive(Debug)]
pub(super) struct Effects<'a> {
    /// The effects so far.
    steps: Vec<Effect>,
    left: Known,
    /// True if the current block has loaded the stack pointer.
    has_loaded_sp: bool,
    /// The times of the thread's exec(2) calls, in ascending order.
    execs: &'a [Tsc],
    /// The number of `execs` that have happened by the last time in the trace.
    execs_over: usize,
    /// The number of instructions so far.
    index: u64,
}

impl<'a> Effects<'a> {
    /// Returns an empty list of effects.
    pub(super) fn new(execs: &'a [Tsc]) -> Self {
        let (steps, left) = (Vec::new(), Known::Before);
        Self { steps, left, has_loaded_sp: false, execs, execs_over: 0, index: 0 }
    }

    /// Returns all effects. The last one is the last transfer of control, if the segment has one.
    pub(super) fn finish(mut self) -> Vec<Effect> {
        self.emit_left();
        self.steps
    }
}

impl Effects<'_> {
    /// Returns the effects of a segment's first `limit` instructions and of the marks between them;
    /// if these are all instructions, of the marks after them as well.
    pub(super) fn of(segment: &Segment, limit: u64, execs: &[Tsc]) -> Vec<Effect> {
        let mut effects = Effects::new(execs);
        effects.walk(segment, limit);
        effects.finish()
    }

    /// Processes the first `limit` instructions of a segment, as [`Self::of`] describes.
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

    /// Processes a mark before instruction `index`.
    pub(super) fn mark_at(&mut self, index: u64, what: &What) {
        self.index = index;
        self.mark(what);
    }

    /// Processes an event or gap before the next instruction.
    fn mark(&mut self, what: &What) {
        match *what {
            // The interrupted instruction had been reached, though it did not execute.
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
            // Control may have moved anywhere in a gap.
            What::Gap(_) | What::Event(EventKind::Overflow { .. }) => {
                self.left = Known::Here(None);
                self.steps.push(Effect::Hole { index: self.index });
            }
            What::Event(_) => {}
        }
    }

    /// Emits the last transfer for the following segment, and resets it.
    fn emit_left(&mut self) {
        if let Known::Here(left) = std::mem::replace(&mut self.left, Known::Before) {
            self.steps.push(Effect::Left(left));
        }
    }

    /// Emits the exec(2) calls up to `now`: the new program has no activations of the old one.
    fn time_is(&mut self, now: Tsc) {
        let over = self.execs.partition_point(|exec| *exec <= now);
        if over > self.execs_over {
            self.execs_over = over;
            self.emit_left();
            self.steps.push(Effect::Execs(over));
        }
    }

    fn leave(&mut self, block: &Block) {
        self.has_loaded_sp = block.loads_sp;
        self.leave_at((block.last, block.end), block.exit, || block.sigreturn);
    }

    /// Processes a block's exit by the instruction at `site`; `next` is the address after it.
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

    /// Processes an arrival at `ip`: emits the effect of the last transfer, which is then over.
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

    /// Removes the frame that `effect` pops, and all frames inside it, if this segment pushed the
    /// frame and no step since depends on earlier segments. Emits the effect otherwise.
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

/// Skimming gives the same effects as a walk block by block.
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

    fn leave(&mut self, span: &Span, next: Addr, code: &Code<'_>) {
        let sigreturn = || is_sigreturn(&|addr, buf| code.read(addr, buf), span.last);
        self.leave_at((span.last, next), span.exit, sigreturn);
    }

    #[inline]
    fn leave_by(&mut self, by: Leaving) {
        self.left = Known::Here(match by {
            Leaving::Call { site, return_address } => Some(Left::Call { site, return_address }),
            Leaving::Return => Some(Left::Return),
        });
    }
}
