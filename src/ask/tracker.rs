//! The calls of a thread that are open, as its path is walked.
//!
//! An activation is one run of a function, from its entry to its return or loss. [`CallTrace`]
//! counts the depth of the calls that the path shows; a tail call begins another activation at the
//! same depth. An activation is open as long as the depth is not lower than its own, and the path
//! does not continue in the midst of a function outside it, as after longjmp(3) and exceptions. An
//! *arrival* is a point where [`CallTrace`] sees an entry into a function. Beyond [`OPEN_LIMIT`],
//! activations begin without becoming open.
//!
//! For each item of the path, [`Tracker::process`] first shows it to [`CallTrace`], which sets the
//! depth and may return an arrival. Then, in this order:
//! 1. If the path continues in the midst of an open function outside, the activations inside end
//!    (`end_calls_inside`). Such an arrival begins nothing.
//! 2. The activations that are deeper than the depth end (`end_returned`).
//! 3. One begins if there is an arrival, or if a jump led to the start of another function: a tail
//!    call.

use super::walk::PathItem;
use crate::common::Addr;
use crate::flow::Exit;
use crate::timeline::{Arrival, ArrivalKind, CallTrace, Visit};

/// The maximum number of calls that are kept open: it bounds the memory for an endless recursion.
const OPEN_LIMIT: usize = 1 << 22;

/// An activation of a function that has not ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct OpenActivation<T> {
    /// The value of [`CallTrace::depth`] in the activation: at a lower one it has ended.
    trace_depth: usize,
    /// True if the function is a signal handler.
    is_signal: bool,
    /// The address of the activation's first instruction in the path.
    pub(super) ip: Addr,
    /// The start of the function; `None` if the code has no symbols.
    function: Option<Addr>,
    /// The data that the caller of [`Tracker::process`] keeps with the activation.
    pub(super) data: T,
}

/// An activation that begins.
#[derive(Clone, Copy, Debug)]
pub(super) struct NewActivation {
    /// The address of its first instruction in the path.
    pub(super) ip: Addr,
    /// The number of this instruction, counted per thread.
    pub(super) index: u64,
    /// The number of open activations around the new one: [`OPEN_LIMIT`] at most.
    pub(super) depth: usize,
    pub(super) entry: EntryKind,
    /// The address of the call, jump or interrupted instruction that led to it; `None` if it is
    /// [`EntryKind::Start`].
    pub(super) site: Option<Addr>,
}

/// The way in which control entered an activation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EntryKind {
    /// The path begins, or goes on after a gap or in a function that was called before.
    Start,
    /// A CALL instruction.
    Call,
    /// A jump to another function, in place of a call and a return.
    TailCall,
    /// A signal handler.
    Signal,
}

/// A tracker of the open activations of a thread, which follows a walk of its path.
#[derive(Debug)]
pub(super) struct Tracker<T> {
    trace: CallTrace,
    /// The open activations, outermost first: at most [`OPEN_LIMIT`].
    open: Vec<OpenActivation<T>>,
    /// The end of the last block, or the instruction that was interrupted since.
    last_end: BlockEnd,
}

/// The end of a block; all `None` if there was no block yet. An instruction that is interrupted
/// before it executes counts as a block without an exit.
#[derive(Debug, Default)]
struct BlockEnd {
    /// The address of the block's last instruction.
    site: Option<Addr>,
    exit: Option<Exit>,
    /// The start of the function with that instruction; `None` if the code has no symbols.
    function: Option<Addr>,
}

/// A change of the open activations.
pub(super) enum Change<T> {
    /// An activation ended. If the path shows its return, the number is that of the thread's next
    /// instruction; else `None`.
    Ended(OpenActivation<T>, Option<u64>),
    /// An activation begins.
    Began(NewActivation),
}

impl<T> Default for Tracker<T> {
    fn default() -> Self {
        Self { trace: CallTrace::default(), open: Vec::new(), last_end: BlockEnd::default() }
    }
}

impl<T> Tracker<T> {
    /// Returns the number of open activations around the innermost one; 0 also if none is open.
    pub(super) fn depth(&self) -> usize {
        self.open.len().saturating_sub(1)
    }

    /// Returns the innermost open activation; `None` if none is open.
    pub(super) fn innermost(&mut self) -> Option<&mut OpenActivation<T>> {
        self.open.last_mut()
    }

    /// Processes the next item of the path. Calls `changed` with each change that happened before
    /// the item: first the ends, innermost first, then a beginning. For [`Change::Began`],
    /// `changed` returns the data to keep. The end of an activation beyond [`OPEN_LIMIT`] is not
    /// reported, nor that of one for which it returns `None`: these never become open. For
    /// [`Change::Ended`], the result is ignored. To be called for all items of the path, in order.
    #[inline]
    pub(super) fn process(
        &mut self,
        item: &PathItem<'_>,
        changed: &mut impl FnMut(Change<T>) -> Option<T>,
    ) {
        let arrival = self.trace.visit(item.visit);
        let (Visit::Block { index, span, .. }, Some(block)) = (item.visit, item.block) else {
            return self.process_event(arrival, item, changed);
        };
        let is_tail_call = self.last_end.is_tail_call(span.ip, block.function);
        let is_left = self.last_end.jumps_into(span.ip, block.function, arrival)
            && self.end_calls_inside(block.function, changed);
        let arrival = arrival.filter(|_| !is_left);
        let depth = self.trace.depth();
        // Most blocks change nothing.
        if arrival.is_some()
            || is_tail_call
            || self.open.last().is_some_and(|of| of.trace_depth > depth)
        {
            self.end_and_begin(arrival, is_tail_call, (span.ip, *index, block.function), changed);
        }
        self.last_end = BlockEnd {
            site: Some(span.last),
            exit: Some(span.exit),
            function: block.last_function,
        };
    }

    /// Processes an event. If it interrupts an instruction, the path had reached that: a call or
    /// return that led there is complete before the event. After other events and gaps, the next
    /// block shows the changes.
    #[inline(never)]
    fn process_event(
        &mut self,
        arrival: Option<Arrival>,
        item: &PathItem<'_>,
        changed: &mut dyn FnMut(Change<T>) -> Option<T>,
    ) {
        let (Visit::Event { index, .. }, Some(ip)) = (item.visit, item.ip()) else { return };
        let function = item.functions.at(ip).map(|function| function.start);
        let is_tail_call = self.last_end.is_tail_call(ip, function);
        self.end_and_begin(arrival, is_tail_call, (ip, *index, function), changed);
        self.last_end = BlockEnd { site: Some(ip), exit: None, function };
    }

    /// Ends the activations inside the innermost one of `function`, in whose midst the path
    /// continues: none of them returned. Also corrects the depth of the [`CallTrace`]. Returns
    /// false, and changes nothing, if no activation of `function` is open.
    #[inline(never)]
    fn end_calls_inside(
        &mut self,
        function: Option<Addr>,
        changed: &mut dyn FnMut(Change<T>) -> Option<T>,
    ) -> bool {
        let Some(place) = self.open.iter().rposition(|open| open.function == function) else {
            return false;
        };
        self.trace.leave_calls(self.open[place].trace_depth);
        while self.open.len() > place + 1
            && let Some(open) = self.open.pop()
        {
            changed(Change::Ended(open, None));
        }
        true
    }

    /// Ends the activations that were left before the thread's instruction `index`, which is at
    /// `ip` in `function`, and begins one if there is an arrival or `is_tail_call`.
    #[inline(never)]
    fn end_and_begin(
        &mut self,
        arrival: Option<Arrival>,
        is_tail_call: bool,
        (ip, index, function): (Addr, u64, Option<Addr>),
        changed: &mut dyn FnMut(Change<T>) -> Option<T>,
    ) {
        self.end_returned(index, arrival.is_none(), changed);
        if let Some(arrival) = arrival {
            self.begin_at_arrival(arrival, function, changed);
        } else if is_tail_call {
            self.begin(EntryKind::TailCall, (ip, index, function), changed);
        }
    }

    /// Ends the activations that the path has left, before the thread's instruction `index`. If the
    /// path `goes_on` in an open activation, those that it called directly (a function with its
    /// tail calls) have returned; deeper ones have not.
    fn end_returned(
        &mut self,
        index: u64,
        goes_on: bool,
        changed: &mut dyn FnMut(Change<T>) -> Option<T>,
    ) {
        let depth = self.trace.depth();
        while let Some(open) = self.open.pop_if(|open| open.trace_depth > depth) {
            // Activations inside the one that returned were left by longjmp(3) or an exception.
            let returned = goes_on && open.trace_depth == depth + 1;
            changed(Change::Ended(open, returned.then_some(index)));
        }
    }

    /// Begins an activation at an arrival. If no call and no signal led there, ends those at the
    /// same depth first: they are lost, except for a handler that returned.
    fn begin_at_arrival(
        &mut self,
        arrival: Arrival,
        function: Option<Addr>,
        changed: &mut dyn FnMut(Change<T>) -> Option<T>,
    ) {
        let entry = match arrival.kind {
            ArrivalKind::Start | ArrivalKind::Return => EntryKind::Start,
            ArrivalKind::Call => EntryKind::Call,
            ArrivalKind::Signal => EntryKind::Signal,
        };
        if entry == EntryKind::Start {
            let depth = self.trace.depth();
            // Activations of the same depth are lost.
            while let Some(open) = self.open.pop_if(|open| open.trace_depth >= depth) {
                // A handler returns to the code that calls sigreturn(2).
                let returned = arrival.kind == ArrivalKind::Return
                    && open.is_signal
                    && open.trace_depth == depth
                    && self.last_end.exit == Some(Exit::Ret);
                changed(Change::Ended(open, returned.then_some(arrival.index)));
            }
        }
        self.begin(entry, (arrival.ip, arrival.index, function), changed);
    }

    /// Begins an activation of `function` at the thread's instruction `index`, which is at `ip`.
    /// Keeps it open unless `changed` returns no data for it, or [`OPEN_LIMIT`] are open.
    fn begin(
        &mut self,
        entry: EntryKind,
        (ip, index, function): (Addr, u64, Option<Addr>),
        changed: &mut dyn FnMut(Change<T>) -> Option<T>,
    ) {
        let site = self.last_end.site.filter(|_| entry != EntryKind::Start);
        let begins = NewActivation { ip, index, depth: self.open.len(), entry, site };
        if let Some(data) = changed(Change::Began(begins))
            && self.open.len() < OPEN_LIMIT
        {
            let is_signal = entry == EntryKind::Signal;
            let trace_depth = self.trace.depth();
            self.open.push(OpenActivation { trace_depth, is_signal, ip, function, data });
        }
    }

    /// Ends all activations, innermost first, at the end of the path. None of them returned.
    pub(super) fn finish(&mut self, changed: &mut dyn FnMut(Change<T>) -> Option<T>) {
        while let Some(open) = self.open.pop() {
            changed(Change::Ended(open, None));
        }
    }
}

impl BlockEnd {
    /// Returns true if an indirect jump, or a return to no known call, at the end of this block led
    /// to `ip`, which is in the midst of `function`, another one than that of the block.
    fn jumps_into(&self, ip: Addr, function: Option<Addr>, arrival: Option<Arrival>) -> bool {
        let is_return = arrival.is_some_and(|arrival| arrival.kind == ArrivalKind::Return);
        let is_jump = arrival.is_none() && self.exit == Some(Exit::JmpIndirect);
        (is_return || is_jump)
            && function.is_some_and(|function| function != ip && self.function != Some(function))
    }

    /// Returns true if a jump at the end of this block led to `ip`, which is in `function` and is
    /// the first instruction of another function than the jump's.
    fn is_tail_call(&self, ip: Addr, function: Option<Addr>) -> bool {
        function == Some(ip)
            && matches!(self.exit, Some(Exit::Jmp | Exit::JmpIndirect | Exit::Taken))
            && self.function.is_some_and(|own| own != ip)
    }
}

impl Tracker<Option<Addr>> {
    /// Returns the address from which the innermost function was called, for callers that keep this
    /// address as data. `None` if the path does not show a call, or no function is open.
    pub(super) fn call_site(&self) -> Option<Addr> {
        self.open.last()?.data
    }
}
