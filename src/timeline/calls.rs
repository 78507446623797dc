//! From the runs and events of segments to the call stack.
//!
//! A return leaves the innermost frame that has its target as return address, so frames that
//! longjmp(3) or an exception skipped go with it; a return to nowhere known (a coroutine switch,
//! the dynamic linker's trampoline) is taken as a jump.

use super::segment::{Block, Mark, Segment, What};
use super::stack::{Frame, Snapshot, Stack};
use crate::common::{Addr, Tsc};
use crate::flow::{EventKind, Exit};

/// How control left what came before, until it is known where to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
    Call {
        site: Addr,
        return_address: Addr,
    },
    Return,
    /// Into the kernel, by an instruction (at `site`) or without one (`site` is next then).
    Kernel {
        site: Addr,
        next: Addr,
        sigreturn: bool,
    },
}

/// The call stack while the path is walked.
#[derive(Clone, Debug, Default)]
pub(super) struct Calls {
    pub(super) stack: Stack,
    left: Option<Left>,
    /// When another program began, latest first.
    execs: Vec<Tsc>,
    /// Instructions of the thread so far.
    index: u64,
}

/// A place of the walk to go on from.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    stack: Snapshot,
    left: Option<Left>,
    execs: Vec<Tsc>,
    index: u64,
}

impl Calls {
    /// At a thread's start. `execs` are the times at which another program began.
    pub(super) fn new(execs: &[Tsc]) -> Self {
        let execs = execs.iter().rev().copied().collect();
        Self { execs, ..Self::default() }
    }

    /// Goes on where they were kept.
    pub(super) fn of(kept: &Kept) -> Self {
        let Kept { stack, left, execs, index } = kept;
        Self { stack: Stack::of(stack), left: *left, execs: execs.clone(), index: *index }
    }

    /// What to go on from later.
    pub(super) fn keep(&mut self) -> Kept {
        let (left, execs, index) = (self.left, self.execs.clone(), self.index);
        Kept { stack: self.stack.snapshot(), left, execs, index }
    }

    /// Walks the first `limit` instructions of a segment, and what stands before the next one.
    pub(super) fn walk(&mut self, segment: &Segment, limit: u64) {
        let start = self.index;
        let mut marks = segment.marks.iter().peekable();
        for (number, run) in segment.runs.iter().enumerate() {
            while let Some(mark) = marks.next_if(|mark| mark.run as usize <= number) {
                self.mark(mark);
            }
            let Some(block) = segment.block(run).filter(|_| run.first < limit) else { break };
            self.arrive(block.ip);
            self.index = start + run.first + u64::from(block.insns);
            if self.index > start + limit {
                self.index = start + limit;
                return;
            }
            self.leave(block);
        }
        if limit >= segment.insns {
            marks.for_each(|mark| self.mark(mark));
            self.index = start + segment.insns;
        } else if let Some(addr) = segment.addr(limit) {
            self.arrive(addr);
        }
    }

    fn mark(&mut self, mark: &Mark) {
        match mark.what {
            What::Event(EventKind::AsyncDisabled { at, .. }) => {
                self.left = Some(Left::Kernel { site: at, next: at, sigreturn: false });
            }
            What::Event(EventKind::AsyncBranch { from, to }) => {
                self.left = Some(Left::Kernel { site: from, next: from, sigreturn: false });
                self.arrive(to);
            }
            What::Event(EventKind::Enabled { ip }) => self.arrive(ip),
            What::Event(EventKind::Tsc(now)) => self.time_is(now),
            // What happened in a hole is not known: only a matching return tells again.
            What::Gap(_) | What::Event(EventKind::Overflow { .. }) => self.left = None,
            What::Event(_) => {}
        }
    }

    /// Another program has no activations of the one before.
    fn time_is(&mut self, now: Tsc) {
        while self.execs.pop_if(|exec| *exec <= now).is_some() {
            self.stack.clear();
            self.left = None;
        }
    }

    fn leave(&mut self, block: &Block) {
        let (site, next) = (block.last, block.end);
        self.left = match block.exit {
            Exit::Call => Some(Left::Call { site, return_address: next }),
            Exit::Ret => Some(Left::Return),
            Exit::FarCall => Some(Left::Kernel { site, next, sigreturn: block.sigreturn }),
            _ => None,
        };
    }

    fn arrive(&mut self, ip: Addr) {
        match self.left.take() {
            // A call to the next instruction reads the IP; nothing returns from it.
            Some(Left::Call { return_address, .. }) if return_address == ip => {}
            Some(Left::Call { site, return_address }) => {
                let index = self.index.saturating_sub(1);
                self.stack.push(Frame { index, entry: ip, site, return_address, signal: false });
            }
            Some(Left::Return) => {
                self.stack.leave(|frame| !frame.signal && frame.return_address == ip);
            }
            Some(Left::Kernel { sigreturn: true, .. }) => {
                let resumes = |frame: &Frame| frame.signal && frame.resumes_at(ip);
                // A handler may change where the program goes on.
                if !self.stack.leave(resumes) {
                    self.stack.leave(|frame| frame.signal);
                }
            }
            // The kernel goes on where it was called, or calls again.
            Some(Left::Kernel { site, next, .. }) if ip == next || ip == site => {}
            Some(Left::Kernel { site, next, .. }) => self.stack.push(Frame {
                index: self.index,
                entry: ip,
                site,
                return_address: next,
                signal: true,
            }),
            None => {}
        }
    }
}

impl Frame {
    /// Whether a signal handler that interrupted the program there returns to `ip`: behind the
    /// system call that it interrupted, or to the call, to make it again.
    fn resumes_at(&self, ip: Addr) -> bool {
        ip == self.return_address || ip == self.site
    }
}
