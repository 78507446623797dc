//! The calls of a thread that are open, as its path is walked.

use super::walk::Passed;
use crate::common::Addr;
use crate::flow::Exit;
use crate::timeline::{CallTrace, How, Visit};

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
    /// Of the last block: the address of its last instruction, the address after it, and the kind
    /// of exit.
    left: Option<(Addr, Addr, Exit)>,
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
        Self { trace: CallTrace::default(), open: Vec::new(), left: None }
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
    /// `starts` returns the start of the function at an address: it is needed to see tail calls.
    pub(super) fn pass(
        &mut self,
        passed: &Passed<'_>,
        starts: &dyn Fn(Addr) -> Option<Addr>,
        changed: &mut dyn FnMut(Change<T>) -> Option<T>,
    ) {
        let arrival = self.trace.visit(passed.visit);
        let Visit::Block { index, span, last, .. } = passed.visit else { return };
        let left =
            self.left.replace((span.last, last.map_or(span.last, |last| last.end), span.exit));
        // The calls that returned.
        let depth = self.trace.depth();
        let goes_on = arrival.is_none();
        while let Some(open) = self.open.pop_if(|open| open.depth > depth) {
            // Activations inside the one that returned were left by longjmp(3) or an exception.
            let returned = goes_on && open.depth == depth + 1;
            changed(Change::Ended(open, returned.then_some(*index)));
        }
        let begins = match arrival {
            Some(arrival) => {
                let how = match arrival.how {
                    How::Start | How::Return => Beginning::Start,
                    How::Call => Beginning::Call,
                    How::Signal => Beginning::Signal,
                };
                if how == Beginning::Start {
                    // Activations of the same depth are lost.
                    while let Some(open) = self.open.pop_if(|open| open.depth >= depth) {
                        // A handler returns to the code that calls sigreturn(2).
                        let returned = arrival.how == How::Return
                            && open.is_signal
                            && open.depth == depth
                            && matches!(left, Some((.., Exit::Ret)));
                        changed(Change::Ended(open, returned.then_some(*index)));
                    }
                }
                Some(how)
            }
            None => is_tail_call(left, span.ip, starts).then_some(Beginning::TailCall),
        };
        let Some(how) = begins else { return };
        let site = left.map(|(site, ..)| site).filter(|_| how != Beginning::Start);
        let begins = Begins { ip: span.ip, index: *index, depth: self.open.len(), how, site };
        if let Some(kept) = changed(Change::Began(begins))
            && self.open.len() < OPEN_LIMIT
        {
            let is_signal = how == Beginning::Signal;
            self.open.push(Open { depth, is_signal, ip: span.ip, kept });
        }
    }

    /// Ends all activations: the path is over.
    pub(super) fn finish(&mut self, changed: &mut dyn FnMut(Change<T>) -> Option<T>) {
        while let Some(open) = self.open.pop() {
            changed(Change::Ended(open, None));
        }
    }
}

/// Returns true if a jump led to the first instruction of another function.
fn is_tail_call(
    left: Option<(Addr, Addr, Exit)>,
    ip: Addr,
    starts: &dyn Fn(Addr) -> Option<Addr>,
) -> bool {
    let Some((site, _, Exit::Jmp | Exit::JmpIndirect | Exit::Taken)) = left else {
        return false;
    };
    starts(ip) == Some(ip) && starts(site).is_some_and(|own| own != ip)
}

impl Tracker<Option<Addr>> {
    /// Returns the address from which the innermost function was called; `None` if the path does
    /// not show a call.
    pub(super) fn caller(&self) -> Option<Addr> {
        self.open.last()?.kept
    }
}
