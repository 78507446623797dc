//! The calls of a thread that are open, as its path is walked.

use super::blocks::BlockFacts;
use super::walk::Passed;
use crate::common::Addr;
use crate::flow::Exit;
use crate::timeline::{Arrival, ArrivalKind, CallTrace, Visit};

/// The maximum number of calls that are kept open: it bounds the memory for an endless recursion.
const OPEN_LIMIT: usize = 1 << 22;

/// An activation of a function that has not ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Open<T> {
    /// The value of [`CallTrace::depth`] in the activation: at a lower one it has ended.
    depth: usize,
    /// True if the function is a signal handler.
    is_signal: bool,
    /// The address of the activation's first instruction in the path.
    pub(super) ip: Addr,
    /// The data that the user of the tracker keeps with the activation.
    pub(super) kept: T,
}

/// The beginning of an activation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Begins {
    pub(super) ip: Addr,
    pub(super) index: u64,
    /// The number of open activations around the new one.
    pub(super) depth: usize,
    pub(super) how: Beginning,
    /// The address of the call, jump or interrupted instruction that led to it; `None` if it is
    /// [`Beginning::Start`].
    pub(super) site: Option<Addr>,
}

/// A kind of beginning of an activation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Beginning {
    /// The path begins, or goes on after a gap or in a function that was called before.
    Start,
    /// A CALL instruction.
    Call,
    /// A jump to another function, in place of a call and a return.
    TailCall,
    /// A signal handler.
    Signal,
}

/// A tracker of the open calls of a thread, which follows a walk of its path.
#[derive(Debug)]
pub(super) struct Tracker<T> {
    trace: CallTrace,
    open: Vec<Open<T>>,
    left: Left,
}

/// The end of the last block; nothing if there is none.
#[derive(Debug, Default)]
struct Left {
    /// The address of the block's last instruction.
    site: Option<Addr>,
    exit: Option<Exit>,
    /// The start of the function with that instruction; `None` if the code has no symbols.
    function: Option<Addr>,
}

/// A change of the open activations.
pub(super) enum Change<T> {
    /// An activation ended. The number is that of the thread's next instruction after a return;
    /// `None` where the path does not show a return.
    Ended(Open<T>, Option<u64>),
    /// An activation begins.
    Began(Begins),
}

impl<T> Default for Tracker<T> {
    fn default() -> Self {
        Self { trace: CallTrace::default(), open: Vec::new(), left: Left::default() }
    }
}

impl<T> Tracker<T> {
    /// Returns the number of open activations around the innermost one.
    pub(super) fn depth(&self) -> usize {
        self.open.len().saturating_sub(1)
    }

    /// Returns the innermost open activation.
    pub(super) fn innermost(&mut self) -> Option<&mut Open<T>> {
        self.open.last_mut()
    }

    /// Processes the next item of the path. Calls `changed` with each change before the item; for
    /// [`Change::Began`], `changed` returns the data to keep, or `None` to skip the activation.
    #[inline]
    pub(super) fn pass(
        &mut self,
        passed: &Passed<'_>,
        changed: &mut impl FnMut(Change<T>) -> Option<T>,
    ) {
        let arrival = self.trace.visit(passed.visit);
        let (Visit::Block { index, span, .. }, Some(block)) = (passed.visit, passed.block) else {
            return;
        };
        let is_tail_call = self.left.is_tail_call(span.ip, block);
        let depth = self.trace.depth();
        // Most blocks change nothing.
        if arrival.is_some() || is_tail_call || self.open.last().is_some_and(|of| of.depth > depth)
        {
            self.change(arrival, is_tail_call, (span.ip, *index), changed);
        }
        self.left =
            Left { site: Some(span.last), exit: Some(span.exit), function: block.last_function };
    }

    /// Ends and begins activations before the thread's instruction `index`, which is at `ip`.
    #[inline(never)]
    fn change(
        &mut self,
        arrival: Option<Arrival>,
        is_tail_call: bool,
        (ip, index): (Addr, u64),
        changed: &mut dyn FnMut(Change<T>) -> Option<T>,
    ) {
        self.end_returned(index, arrival.is_none(), changed);
        if let Some(arrival) = arrival {
            self.arrive(arrival, changed);
        } else if is_tail_call {
            self.begin(Beginning::TailCall, ip, index, changed);
        }
    }

    /// Ends the activations that the path has left. If the path `goes_on` in an open activation,
    /// the outermost of them returned to it at the thread's instruction `index`, with its tail
    /// calls.
    fn end_returned(
        &mut self,
        index: u64,
        goes_on: bool,
        changed: &mut dyn FnMut(Change<T>) -> Option<T>,
    ) {
        let depth = self.trace.depth();
        while let Some(open) = self.open.pop_if(|open| open.depth > depth) {
            // Activations inside the one that returned were left by longjmp(3) or an exception.
            let returned = goes_on && open.depth == depth + 1;
            changed(Change::Ended(open, returned.then_some(index)));
        }
    }

    /// Begins an activation at an arrival. If no call and no signal led there, ends those at the
    /// same depth first.
    fn arrive(&mut self, arrival: Arrival, changed: &mut dyn FnMut(Change<T>) -> Option<T>) {
        let how = match arrival.kind {
            ArrivalKind::Start | ArrivalKind::Return => Beginning::Start,
            ArrivalKind::Call => Beginning::Call,
            ArrivalKind::Signal => Beginning::Signal,
        };
        if how == Beginning::Start {
            let depth = self.trace.depth();
            // Activations of the same depth are lost.
            while let Some(open) = self.open.pop_if(|open| open.depth >= depth) {
                // A handler returns to the code that calls sigreturn(2).
                let returned = arrival.kind == ArrivalKind::Return
                    && open.is_signal
                    && open.depth == depth
                    && self.left.exit == Some(Exit::Ret);
                changed(Change::Ended(open, returned.then_some(arrival.index)));
            }
        }
        self.begin(how, arrival.ip, arrival.index, changed);
    }

    /// Begins an activation at the thread's instruction `index`, which is at `ip`.
    fn begin(
        &mut self,
        how: Beginning,
        ip: Addr,
        index: u64,
        changed: &mut dyn FnMut(Change<T>) -> Option<T>,
    ) {
        let site = self.left.site.filter(|_| how != Beginning::Start);
        let begins = Begins { ip, index, depth: self.open.len(), how, site };
        if let Some(kept) = changed(Change::Began(begins))
            && self.open.len() < OPEN_LIMIT
        {
            let is_signal = how == Beginning::Signal;
            self.open.push(Open { depth: self.trace.depth(), is_signal, ip, kept });
        }
    }

    /// Ends all activations: the path is over.
    pub(super) fn finish(&mut self, changed: &mut dyn FnMut(Change<T>) -> Option<T>) {
        while let Some(open) = self.open.pop() {
            changed(Change::Ended(open, None));
        }
    }
}

impl Left {
    /// Returns true if a jump at the end of this block led to the first instruction of another
    /// function, at `ip`.
    fn is_tail_call(&self, ip: Addr, block: &BlockFacts) -> bool {
        block.function == Some(ip)
            && matches!(self.exit, Some(Exit::Jmp | Exit::JmpIndirect | Exit::Taken))
            && self.function.is_some_and(|own| own != ip)
    }
}

impl Tracker<Option<Addr>> {
    /// Returns the address from which the innermost function was called; `None` if the path does
    /// not show a call.
    pub(super) fn caller(&self) -> Option<Addr> {
        self.open.last()?.kept
    }
}
