//! A path as calls: where it enters functions, and how deep. Names nothing: its caller has the
//! symbols.

use super::visit::Visit;
use crate::common::Addr;
use crate::flow::{EventKind, Exit};

/// A recursion without bound must not become memory without bound.
const DEPTH_LIMIT: usize = 4 << 20;

/// Somewhere that the path comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// The number of the first instruction there in its thread.
    pub index: u64,
    /// Calls that have not returned yet, of those that the path shows.
    pub depth: usize,
    /// The instruction.
    pub ip: Addr,
    /// How the path comes there.
    pub how: How,
}

/// How a path comes to an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// It begins there, or goes on there behind a gap.
    Start,
    /// By a call.
    Call,
    /// By a return to a function whose call the path does not show.
    Return,
    /// The kernel went on elsewhere than where it was entered: a signal handler.
    Signal,
}

/// Follows a path, block by block.
#[derive(Clone, Debug)]
pub struct CallTrace {
    returns: Vec<Addr>,
    left: Left,
}

/// How the path left the block before.
#[derive(Clone, Copy, Debug)]
enum Left {
    Unknown,
    Plain,
    Call { next: Addr },
    Return,
    Kernel { site: Addr, next: Addr },
}

impl Default for CallTrace {
    fn default() -> Self {
        Self { returns: Vec::new(), left: Left::Unknown }
    }
}

impl CallTrace {
    /// Takes what comes next; says where a function is entered.
    pub fn visit(&mut self, visit: &Visit<'_>) -> Option<Arrival> {
        match visit {
            Visit::Block { index, span, last, .. } => {
                let next = last.map_or(span.last, |last| last.end);
                let arrival = self.arrive(*index, span.ip);
                self.left = match span.exit {
                    Exit::Call => Left::Call { next },
                    Exit::Ret => Left::Return,
                    Exit::FarCall => Left::Kernel { site: span.last, next },
                    _ => Left::Plain,
                };
                arrival
            }
            Visit::Event { event, .. } => {
                match event.kind {
                    EventKind::AsyncDisabled { at, .. }
                    | EventKind::AsyncBranch { from: at, .. } => {
                        self.left = Left::Kernel { site: at, next: at };
                    }
                    EventKind::Overflow { .. } => self.left = Left::Unknown,
                    _ => {}
                }
                None
            }
            Visit::Gap { .. } => {
                self.left = Left::Unknown;
                None
            }
        }
    }

    fn arrive(&mut self, index: u64, ip: Addr) -> Option<Arrival> {
        let how = match std::mem::replace(&mut self.left, Left::Plain) {
            Left::Plain => return None,
            // A call to the next instruction reads the IP; nothing returns from it.
            Left::Call { next } if next == ip => return None,
            Left::Kernel { site, next } if ip == next || ip == site => return None,
            Left::Kernel { .. } | Left::Return if self.leave(ip) => return None,
            Left::Unknown => How::Start,
            Left::Return => How::Return,
            Left::Call { next } => {
                self.push(next);
                How::Call
            }
            Left::Kernel { next, .. } => {
                self.push(next);
                How::Signal
            }
        };
        Some(Arrival { index, depth: self.returns.len(), ip, how })
    }

    fn push(&mut self, next: Addr) {
        if self.returns.len() < DEPTH_LIMIT {
            self.returns.push(next);
        }
    }

    /// Leaves the innermost call that returns to `ip`, and all inside of it.
    fn leave(&mut self, ip: Addr) -> bool {
        let Some(at) = self.returns.iter().rposition(|next| *next == ip) else { return false };
        self.returns.truncate(at);
        true
    }
}
