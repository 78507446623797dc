//! The calls of a thread that are open, as its path is walked.

use super::walk::Passed;
use crate::common::Addr;
use crate::flow::Exit;
use crate::timeline::{CallTrace, How, Visit};

/// The most calls that are kept open: a bound on the memory that an unbounded recursion takes.
const OPEN_LIMIT: usize = 1 << 22;

/// An activation of a function that has not ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Open<T> {
    /// The depth at which it ends.
    depth: usize,
    /// True if it is a signal handler.
    is_signal: bool,
    /// The address of its first instruction in the path.
    pub(super) ip: Addr,
    /// The user's part.
    pub(super) kept: T,
}

/// The beginning of an activation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Begins {
    pub(super) ip: Addr,
    pub(super) index: u64,
    /// The number of open calls around it.
    pub(super) depth: usize,
    pub(super) how: Beginning,
    /// The instruction that led to it.
    pub(super) site: Option<Addr>,
}

/// A kind of beginning of an activation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Beginning {
    /// The path begins, or goes on after a gap or in a function that was called before.
    Start,
    /// A call.
    Call,
    /// A jump to another function, in place of a call and a return.
    TailCall,
    /// A signal handler.
    Signal,
}

/// The calls of a thread.
#[derive(Debug)]
pub(super) struct Tracker<T> {
    trace: CallTrace,
    open: Vec<Open<T>>,
    /// The last block's last instruction, the next address, and how it ended.
    left: Option<(Addr, Addr, Exit)>,
}

/// A change of the open calls.
pub(super) enum Change<T> {
    /// An activation ended; the number of the thread's next instruction. It is `None` where the
    /// path does not show a return.
    Ended(Open<T>, Option<u64>),
    /// One begins.
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
    /// one that begins, it returns what is kept of it. `starts` returns the start of the function
    /// at an address, for jumps.
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
            // Those inside it were left by longjmp(3) or an exception.
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
                    // Those of the same depth are lost.
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

/// Returns true if a jump leads to the beginning of another function.
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
    /// Returns the instruction that called the innermost function.
    pub(super) fn caller(&self) -> Option<Addr> {
        self.open.last()?.kept
    }
}
