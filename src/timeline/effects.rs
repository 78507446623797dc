//! The effects of a segment on the call stack, computed without the stack at its start, so that
//! segments can be processed on all cores and joined with little work.
//!
//! A block ends with a transfer of control, such as a call. It is *pending* until the path arrives
//! somewhere: the two together give the effect. A return pops the innermost frame that has its
//! target as return address. If a function loads the stack pointer and then branches (longjmp(3),
//! exceptions, coroutines), the path shows only the branch's target:
//! [`Effect::ArriveAfterSpLoad`].

use super::segment::{Block, MarkContent, Segment, is_sigreturn};
use super::stack::Frame;
use crate::common::{Addr, Tsc};
use crate::flow::{CallWatch, Code, EventKind, Exit, Leaving, Span};
use serde::{Deserialize, Serialize};

/// A transfer of control whose target is not reached yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum PendingTransfer {
    /// A call.
    Call { site: Addr, return_address: Addr },
    /// A return.
    Return,
    /// An entry to the kernel by an instruction at `site`; if asynchronous, `site` is `next`.
    Kernel { site: Addr, next: Addr, sigreturn: bool },
    /// A return or a jump after a load of the stack pointer.
    AfterSpLoad,
}

impl PendingTransfer {
    /// Returns the effect of this transfer if it leads to `ip`, the address of instruction `index`;
    /// `None` if the call stack stays the same.
    pub(super) fn effect_of_arrival(self, ip: Addr, index: u64) -> Option<Effect> {
        match self {
            // A call to the next instruction reads the IP; nothing returns from it.
            Self::Call { return_address, .. } if return_address == ip => None,
            Self::Call { site, return_address } => {
                let index = index.saturating_sub(1);
                let frame = Frame { index, entry: ip, site, return_address, signal: false };
                Some(Effect::Push(frame))
            }
            Self::Return => Some(Effect::Return(ip)),
            Self::AfterSpLoad => Some(Effect::ArriveAfterSpLoad(ip)),
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
    ArriveAfterSpLoad(Addr),
    /// A load of the stack pointer whose consequence the path does not show: all frames become
    /// unknown.
    SwitchStack,
    /// A gap of the path before the instruction with this number.
    Gap { index: u64 },
    /// An arrival at an address after a transfer that precedes the segment, or after
    /// [`Self::Pending`].
    Arrive { ip: Addr, index: u64 },
    /// The last transfer of control up to here, for the arrival that follows; `None` if it does not
    /// matter or is unknown.
    Pending(Option<PendingTransfer>),
    /// The number of the thread's exec(2) calls up to here, which has grown.
    Execs(usize),
}

/// The last transfer of control, as far as it is known.
#[derive(Clone, Copy, Debug)]
enum LastTransfer {
    /// The transfer precedes the segment, or was emitted as [`Effect::Pending`]: the arrival is
    /// emitted, too.
    Elsewhere,
    /// The transfer is in the segment; `None` if it does not matter or is unknown.
    InSegment(Option<PendingTransfer>),
}

/// A collector of the effects of a segment, or of its beginning, on the call stack.
#[derive(Debug)]
pub(super) struct Effects<'a> {
    /// The effects so far.
    emitted: Vec<Effect>,
    /// The last transfer of control, for the next arrival.
    last: LastTransfer,
    /// True if the current block has loaded the stack pointer.
    has_loaded_sp: bool,
    /// The times of the thread's exec(2) calls, in ascending order.
    execs: &'a [Tsc],
    /// The number of `execs` that have happened by the last time in the trace.
    execs_so_far: usize,
    /// The number of instructions so far.
    index: u64,
}

impl<'a> Effects<'a> {
    /// Returns an empty list of effects.
    pub(super) fn new(execs: &'a [Tsc]) -> Self {
        let (emitted, last) = (Vec::new(), LastTransfer::Elsewhere);
        Self { emitted, last, has_loaded_sp: false, execs, execs_so_far: 0, index: 0 }
    }

    /// Returns all effects. The transfer that is still pending is among them, as
    /// [`Effect::Pending`].
    pub(super) fn finish(mut self) -> Vec<Effect> {
        self.emit_pending();
        self.emitted
    }
}

impl Effects<'_> {
    /// Returns the effects of a segment's first `limit` instructions and of the marks (events and
    /// gaps) between them, and of the arrival at the next instruction; if these are all
    /// instructions, of the marks after them instead.
    pub(super) fn of(segment: &Segment, limit: u64, execs: &[Tsc]) -> Vec<Effect> {
        let mut effects = Effects::new(execs);
        effects.add_segment(segment, limit);
        effects.finish()
    }

    /// Adds the effects of the first `limit` instructions of a segment, as [`Self::of`] describes.
    fn add_segment(&mut self, segment: &Segment, limit: u64) {
        let mut marks = segment.marks.iter().peekable();
        for (number, execution) in segment.executions.iter().enumerate() {
            while let Some(mark) = marks.next_if(|mark| mark.next_execution as usize <= number) {
                self.process_mark(&mark.content);
            }
            let Some(block) = segment.block(execution).filter(|_| execution.first < limit) else {
                break;
            };
            self.arrive_here(block.ip);
            self.index = execution.first + u64::from(block.insns);
            if self.index > limit {
                return;
            }
            self.exit_block(block);
        }
        if limit >= segment.insns {
            marks.for_each(|mark| self.process_mark(&mark.content));
        } else if let Some(addr) = segment.addr(limit) {
            self.arrive_here(addr);
        }
    }

    /// Processes a mark before instruction `index`.
    pub(super) fn mark_at(&mut self, index: u64, what: &MarkContent) {
        self.index = index;
        self.process_mark(what);
    }

    /// Processes an event or gap before the next instruction.
    fn process_mark(&mut self, what: &MarkContent) {
        match *what {
            // The interrupted instruction had been reached, though it did not execute.
            MarkContent::Event(EventKind::AsyncDisabled { at, .. }) => {
                self.arrive_here(at);
                self.last = LastTransfer::InSegment(Some(PendingTransfer::Kernel {
                    site: at,
                    next: at,
                    sigreturn: false,
                }));
            }
            MarkContent::Event(EventKind::AsyncBranch { from, to }) => {
                self.arrive_here(from);
                let pending = PendingTransfer::Kernel { site: from, next: from, sigreturn: false };
                self.last = LastTransfer::InSegment(Some(pending));
                self.arrive_here(to);
            }
            MarkContent::Event(EventKind::Enabled { ip }) => self.arrive_here(ip),
            MarkContent::Event(EventKind::Tsc(now)) => self.process_time(now),
            // Control may have moved anywhere in a gap.
            MarkContent::Gap(_) | MarkContent::Event(EventKind::Overflow { .. }) => {
                self.last = LastTransfer::InSegment(None);
                self.emitted.push(Effect::Gap { index: self.index });
            }
            MarkContent::Event(_) => {}
        }
    }

    /// Emits the last transfer, for an arrival that follows after the effects so far, and forgets
    /// it here.
    fn emit_pending(&mut self) {
        if let LastTransfer::InSegment(pending) =
            std::mem::replace(&mut self.last, LastTransfer::Elsewhere)
        {
            self.emitted.push(Effect::Pending(pending));
        }
    }

    /// Emits the number of the exec(2) calls up to `now`, if it has grown: the new program has no
    /// activations of the old one.
    fn process_time(&mut self, now: Tsc) {
        let over = self.execs.partition_point(|exec| *exec <= now);
        if over > self.execs_so_far {
            self.execs_so_far = over;
            self.emit_pending();
            self.emitted.push(Effect::Execs(over));
        }
    }

    /// Processes the exit of a block.
    fn exit_block(&mut self, block: &Block) {
        self.has_loaded_sp = block.loads_sp;
        self.exit_at((block.last, block.end), block.exit, || block.sigreturn);
    }

    /// Makes the exit of a block by the instruction at `site` the last transfer, pending until the
    /// next arrival; `next` is the address after it. If the block has loaded the stack pointer and
    /// ends neither with a return nor a jump, emits [`Effect::SwitchStack`]. `sigreturn` returns
    /// true if an entry to the kernel is sigreturn(2).
    fn exit_at(&mut self, (site, next): (Addr, Addr), exit: Exit, sigreturn: impl Fn() -> bool) {
        let switches = std::mem::take(&mut self.has_loaded_sp);
        if switches && !matches!(exit, Exit::Ret | Exit::Jmp | Exit::JmpIndirect) {
            self.emitted.push(Effect::SwitchStack);
        }
        self.last = LastTransfer::InSegment(match exit {
            Exit::Ret | Exit::Jmp | Exit::JmpIndirect if switches => {
                Some(PendingTransfer::AfterSpLoad)
            }
            Exit::Call => Some(PendingTransfer::Call { site, return_address: next }),
            Exit::Ret => Some(PendingTransfer::Return),
            Exit::FarCall => Some(PendingTransfer::Kernel { site, next, sigreturn: sigreturn() }),
            _ => None,
        });
    }

    /// Processes an arrival at `ip`, before instruction `self.index`. The usual case is first:
    /// after a branch, nothing happens. For others, see [`Self::resolve_transfer`].
    #[inline]
    fn arrive_here(&mut self, ip: Addr) {
        if !matches!(self.last, LastTransfer::InSegment(None)) {
            self.resolve_transfer(ip);
        }
    }

    /// Processes an arrival at `ip`: emits the effect of the last transfer, which is then over, or
    /// [`Effect::Arrive`] if that is [`LastTransfer::Elsewhere`]. A return to a call within the
    /// segment removes the call's frame instead.
    fn resolve_transfer(&mut self, ip: Addr) {
        let LastTransfer::InSegment(pending) =
            std::mem::replace(&mut self.last, LastTransfer::InSegment(None))
        else {
            self.emitted.push(Effect::Arrive { ip, index: self.index });
            return;
        };
        match pending.and_then(|pending| pending.effect_of_arrival(ip, self.index)) {
            Some(Effect::Return(to)) => {
                self.pop_frame(Effect::Return(to), |frame| frame.is_returned_from(to));
            }
            Some(Effect::Sigreturn(to)) => {
                self.pop_frame(Effect::Sigreturn(to), |frame| frame.is_resumed_at(to));
            }
            effect => self.emitted.extend(effect),
        }
    }

    /// Removes the frame that `effect` pops, and all frames inside it, if this segment pushed the
    /// frame and no effect since depends on earlier segments. Emits the effect otherwise.
    fn pop_frame(&mut self, effect: Effect, is_last_popped: impl Fn(&Frame) -> bool) {
        for (number, earlier) in self.emitted.iter().enumerate().rev() {
            match earlier {
                Effect::Push(frame) if is_last_popped(frame) => {
                    return self.emitted.truncate(number);
                }
                Effect::Push(_) => {}
                _ => break,
            }
        }
        self.emitted.push(effect);
    }
}

/// The decoder reports calls and transfers while it tallies blocks: the effects are the same as of
/// [`Effects::of`]. The target of a reported call is known, so `call` does not wait for an arrival.
impl CallWatch for Effects<'_> {
    // As `arrive_here`, but stores the index only where it is needed.
    #[inline]
    fn arrive(&mut self, ip: Addr, index: u64) {
        if !matches!(self.last, LastTransfer::InSegment(None)) {
            self.index = index;
            self.resolve_transfer(ip);
        }
    }

    fn call(&mut self, index: u64, site: Addr, return_address: Addr, entry: Addr) {
        let frame = Frame { index, entry, site, return_address, signal: false };
        self.emitted.push(Effect::Push(frame));
    }

    fn loads_sp(&mut self) {
        self.has_loaded_sp = true;
    }

    fn leave(&mut self, span: &Span, next: Addr, code: &Code<'_>) {
        let sigreturn = || is_sigreturn(&|addr, buf| code.read(addr, buf), span.last);
        self.exit_at((span.last, next), span.exit, sigreturn);
    }

    #[inline]
    fn leave_by(&mut self, by: Leaving) {
        self.last = LastTransfer::InSegment(match by {
            Leaving::Call { site, return_address } => {
                Some(PendingTransfer::Call { site, return_address })
            }
            Leaving::Return => Some(PendingTransfer::Return),
        });
    }
}
