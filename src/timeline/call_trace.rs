//! A path as calls: the functions that it enters, and their depths. Does not name functions, since
//! the symbols belong to the caller.

use super::visit::Visit;
use crate::common::Addr;
use crate::flow::{EventKind, Exit};

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
    last: Transfer,
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
        Self { returns: Vec::new(), last: Transfer::Unknown }
    }
}

impl CallTrace {
    /// Returns the number of visited calls that have not returned.
    pub fn depth(&self) -> usize {
        self.returns.len()
    }

    /// Processes the next item of the path; returns an arrival if the item enters a function.
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
            Visit::Event { event, .. } => {
                match event.kind {
                    EventKind::AsyncDisabled { at, .. }
                    | EventKind::AsyncBranch { from: at, .. } => {
                        self.last = Transfer::Kernel { site: at, next: at };
                    }
                    EventKind::Overflow { .. } => self.last = Transfer::Unknown,
                    _ => {}
                }
                None
            }
            Visit::Gap { .. } => {
                self.last = Transfer::Unknown;
                None
            }
        }
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
            // A return, or sigreturn(2) at the end of a signal handler.
            Transfer::Kernel { .. } | Transfer::Return if self.return_to(ip) => return None,
            Transfer::Unknown => ArrivalKind::Start,
            Transfer::Return => ArrivalKind::Return,
            Transfer::Call { next } => {
                self.push(next);
                ArrivalKind::Call
            }
            Transfer::Kernel { next, .. } => {
                self.push(next);
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
        let Some(at) = self.returns.iter().rposition(|next| *next == ip) else { return false };
        self.returns.truncate(at);
        true
    }
}
