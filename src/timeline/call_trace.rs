//! A path as calls: the functions that it enters, and their depths. Does not name functions, since
//! the symbols belong to the caller.

use super::visit::Visit;
use crate::common::Addr;
use crate::flow::{EventKind, Exit};
use crate::insn::MAX_INSN_BYTES;

/// A bound on the memory that an unbounded recursion takes.
const DEPTH_LIMIT: usize = 4 << 20;

/// An arrival of the path at a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// The number of the instruction at which the path arrives, counted per thread.
    pub index: u64,
    /// The number of visited calls that have not returned. An arrival by a call counts that call.
    pub depth: usize,
    /// The address of the instruction at which the path arrives.
    pub ip: Addr,
    /// The kind of arrival.
    pub kind: ArrivalKind,
}

/// The kind of a path's arrival at an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArrivalKind {
    /// The path begins here, or continues here after a gap.
    Start,
    /// A call.
    Call,
    /// A return to a function whose call is not in the path.
    Return,
    /// The kernel resumed at another address than expected: a signal handler.
    Signal,
}

/// A tracker of calls, which follows a path block by block.
#[derive(Clone, Debug)]
pub struct CallTrace {
    /// The return addresses of the open calls, innermost last. A signal handler counts as a call,
    /// from the instruction that it interrupted.
    returns: Vec<Addr>,
    /// The signal handlers among the open calls, innermost last.
    handlers: Vec<OpenHandler>,
    last: Transfer,
}

/// An open signal handler.
#[derive(Clone, Copy, Debug)]
struct OpenHandler {
    /// The handler's place among the open calls.
    place: usize,
    /// The address of the instruction that the signal interrupted.
    site: Addr,
}

/// The last transfer of control, from which the kind of the next arrival follows.
#[derive(Clone, Copy, Debug)]
enum Transfer {
    /// Unknown: the path begins, or has a gap.
    Unknown,
    /// A call, with the address after it.
    Call { next: Addr },
    /// A return.
    Return,
    /// An entry into the kernel at the instruction `site`. The kernel usually resumes at `next`, or
    /// at `site` to begin a system call again.
    Kernel { site: Addr, next: Addr },
    /// A transfer within a function, such as a branch: no arrival follows.
    Within,
}

impl Default for CallTrace {
    fn default() -> Self {
        Self { returns: Vec::new(), handlers: Vec::new(), last: Transfer::Unknown }
    }
}

impl CallTrace {
    /// Returns the number of visited calls that have not returned.
    pub fn depth(&self) -> usize {
        self.returns.len()
    }

    /// Processes the next item of the path; returns an arrival if the item enters a function. The
    /// item may be an event that interrupts the function before its first instruction executes.
    #[inline]
    pub fn visit(&mut self, visit: &Visit<'_>) -> Option<Arrival> {
        match visit {
            Visit::Block { index, span, code, .. } => {
                let next = || code.last().map_or(span.last, |last| last.end);
                // The usual case first: a walk passes many blocks.
                let is_within = matches!(self.last, Transfer::Within);
                let arrival = if is_within { None } else { self.arrive(*index, span.ip) };
                match span.exit {
                    Exit::Call => self.last = Transfer::Call { next: next() },
                    Exit::Ret => self.last = Transfer::Return,
                    Exit::FarCall => {
                        self.last = Transfer::Kernel { site: span.last, next: next() };
                    }
                    _ => {}
                }
                arrival
            }
            Visit::Event { index, event, .. } => match event.kind {
                // The interrupted instruction had been reached, though it did not execute.
                EventKind::AsyncDisabled { at, .. } | EventKind::AsyncBranch { from: at, .. } => {
                    let arrival = self.arrive(*index, at);
                    self.last = Transfer::Kernel { site: at, next: at };
                    arrival
                }
                EventKind::Overflow { .. } => {
                    self.last = Transfer::Unknown;
                    None
                }
                _ => None,
            },
            Visit::Gap { .. } => {
                self.last = Transfer::Unknown;
                None
            }
        }
    }

    /// Forgets the calls inside the outermost `depth` ones: the path left them without a return, as
    /// longjmp(3) and exceptions do.
    pub fn leave_calls(&mut self, depth: usize) {
        self.truncate(depth);
    }

    /// Processes the last transfer, which led to `ip`: pushes or pops its return address. Returns
    /// the arrival if it is a call, a signal handler, a return to no known call, or the start of a
    /// path; `None` for a return to a known call or a transfer within a function.
    fn arrive(&mut self, index: u64, ip: Addr) -> Option<Arrival> {
        let kind = match std::mem::replace(&mut self.last, Transfer::Within) {
            Transfer::Within => return None,
            // A call to the next instruction reads the IP; nothing returns from it.
            Transfer::Call { next } if next == ip => return None,
            Transfer::Kernel { site, next } if ip == next || ip == site => return None,
            // sigreturn(2) at the end of a signal handler.
            Transfer::Kernel { .. } if self.resume_at(ip) => return None,
            Transfer::Return if self.return_to(ip) => return None,
            Transfer::Unknown => ArrivalKind::Start,
            Transfer::Return => ArrivalKind::Return,
            Transfer::Call { next } => {
                self.push(next);
                ArrivalKind::Call
            }
            Transfer::Kernel { site, next } => {
                self.handlers.push(OpenHandler { place: self.returns.len(), site });
                self.push(next);
                // Drops the handler if its call exceeds the bound.
                self.truncate(self.returns.len());
                ArrivalKind::Signal
            }
        };
        Some(Arrival { index, depth: self.returns.len(), ip, kind })
    }

    fn push(&mut self, next: Addr) {
        if self.returns.len() < DEPTH_LIMIT {
            self.returns.push(next);
        }
    }

    /// Pops the innermost call that returns to `ip`, and all calls inside it. Returns false if
    /// there is none.
    fn return_to(&mut self, ip: Addr) -> bool {
        let Some(place) = self.returns.iter().rposition(|next| *next == ip) else { return false };
        self.truncate(place);
        true
    }

    /// Pops the innermost signal handler that resumes the program at `ip`, and all calls inside it:
    /// the kernel restarts the interrupted instruction or continues after it, and a handler of a
    /// fault may skip it. Returns false if there is none.
    fn resume_at(&mut self, ip: Addr) -> bool {
        let is_resumed =
            |handler: &&OpenHandler| ip.wrapping_sub(handler.site.0).0 <= MAX_INSN_BYTES as u64;
        let Some(place) = self.handlers.iter().rev().find(is_resumed).map(|found| found.place)
        else {
            return false;
        };
        self.truncate(place);
        true
    }

    /// Drops all open calls but the outermost `count`.
    fn truncate(&mut self, count: usize) {
        self.returns.truncate(count);
        while self.handlers.pop_if(|handler| handler.place >= count).is_some() {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::Event;

    const CALL: Addr = Addr(0x100);
    const NEXT: Addr = Addr(0x105);
    const FUNCTION: Addr = Addr(0x200);
    const HANDLER: Addr = Addr(0x300);

    /// Interrupts the instruction at `at`; returns the kind of arrival there.
    fn interrupt(trace: &mut CallTrace, at: Addr) -> Option<ArrivalKind> {
        let event = Event { offset: 0, kind: EventKind::AsyncDisabled { at, ip: None } };
        let visit = Visit::Event { index: 0, event, moment: crate::flow::Timing::default() };
        trace.visit(&visit).map(|arrival| arrival.kind)
    }

    /// Arrives at `ip`, after `last` if the transfer is not known yet; returns the kind of arrival.
    fn arrive(trace: &mut CallTrace, last: Option<Transfer>, ip: Addr) -> Option<ArrivalKind> {
        trace.last = last.unwrap_or(trace.last);
        trace.arrive(0, ip).map(|arrival| arrival.kind)
    }

    #[test]
    fn a_call_is_complete_before_its_target_is_interrupted() {
        let mut trace = CallTrace { last: Transfer::Call { next: NEXT }, ..CallTrace::default() };
        assert_eq!(interrupt(&mut trace, FUNCTION), Some(ArrivalKind::Call));
        assert_eq!(arrive(&mut trace, None, HANDLER), Some(ArrivalKind::Signal));
        assert_eq!(trace.depth(), 2);
        let sigreturn = Transfer::Kernel { site: Addr(0x400), next: Addr(0x402) };
        assert_eq!(arrive(&mut trace, Some(sigreturn), FUNCTION), None);
        assert_eq!(trace.depth(), 1);
        // The target of the return is interrupted, too.
        trace.last = Transfer::Return;
        assert_eq!(interrupt(&mut trace, NEXT), None);
        assert_eq!(arrive(&mut trace, None, NEXT), None);
        assert_eq!(trace.depth(), 0);
    }

    #[test]
    fn a_handler_ends_where_the_program_continues() {
        let (site, next) = (CALL, Addr(0x102));
        let sigreturn = Transfer::Kernel { site: Addr(0x400), next: Addr(0x402) };
        // The system call restarts or is over; or the handler skips a faulting instruction.
        for resumed in [site, next, Addr(0x107)] {
            let mut trace = CallTrace { last: Transfer::Within, ..CallTrace::default() };
            let system_call = Transfer::Kernel { site, next };
            assert_eq!(arrive(&mut trace, Some(system_call), HANDLER), Some(ArrivalKind::Signal));
            assert_eq!(arrive(&mut trace, Some(sigreturn), resumed), None);
            assert_eq!((trace.depth(), trace.handlers.len()), (0, 0));
        }
    }

    #[test]
    fn a_return_around_a_handler_ends_it() {
        let mut trace = CallTrace { last: Transfer::Call { next: NEXT }, ..CallTrace::default() };
        interrupt(&mut trace, FUNCTION);
        arrive(&mut trace, None, HANDLER);
        assert_eq!(arrive(&mut trace, Some(Transfer::Return), NEXT), None);
        assert_eq!((trace.depth(), trace.handlers.len()), (0, 0));
    }
}
