//! The call stack as the path's calls and returns make it: no memory is read.

use crate::common::Addr;
use std::sync::Arc;

/// An activation: of a function, or of a signal handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The number of the call instruction in its thread, or of the instruction that the signal
    /// interrupted.
    pub index: u64,
    /// Where the function begins.
    pub entry: Addr,
    /// The call instruction, or the interrupted one.
    pub site: Addr,
    /// Where the caller goes on.
    pub return_address: Addr,
    /// Entered by a signal.
    pub signal: bool,
}

/// A stack that is kept: it shares its outer frames with others, so that there can be one for
/// each segment.
#[derive(Clone, Debug, Default)]
pub(super) struct Snapshot(Option<Arc<Node>>);

#[derive(Debug)]
struct Node {
    frame: Frame,
    outer: Snapshot,
}

/// A stack that changes.
#[derive(Clone, Debug, Default)]
pub(super) struct Stack {
    /// The frames, outermost first; those that were in a snapshot with their nodes.
    frames: Vec<(Frame, Option<Arc<Node>>)>,
}

/// A recursion without bound must not become one of ours.
const DEPTH_LIMIT: usize = 4 << 20;

impl Stack {
    /// Goes on from a snapshot.
    pub(super) fn of(snapshot: &Snapshot) -> Self {
        let mut frames = Vec::new();
        let mut at = &snapshot.0;
        while let Some(node) = at {
            frames.push((node.frame, Some(node.clone())));
            at = &node.outer.0;
        }
        frames.reverse();
        Self { frames }
    }

    /// What it is now. Costs as much as was pushed since the last snapshot and is still there.
    pub(super) fn snapshot(&mut self) -> Snapshot {
        let is_new = |(_, node): &&mut (Frame, Option<Arc<Node>>)| node.is_none();
        let new = self.frames.iter_mut().rev().take_while(is_new).count();
        let start = self.frames.len() - new;
        let outer = start.checked_sub(1).and_then(|last| self.frames.get(last));
        let mut outer = outer.and_then(|(_, node)| node.clone());
        for (frame, node) in self.frames.iter_mut().skip(start) {
            outer = Some(Arc::new(Node { frame: *frame, outer: Snapshot(outer) }));
            node.clone_from(&outer);
        }
        Snapshot(outer)
    }

    pub(super) fn push(&mut self, frame: Frame) {
        if self.frames.len() < DEPTH_LIMIT {
            self.frames.push((frame, None));
        }
    }

    /// Leaves the innermost frame that `is_left` names, and all inside of it. None is named: the
    /// stack stays.
    pub(super) fn leave(&mut self, is_left: impl Fn(&Frame) -> bool) -> bool {
        let found = self.frames.iter().rposition(|(frame, _)| is_left(frame));
        if let Some(found) = found {
            self.frames.truncate(found);
        }
        found.is_some()
    }

    /// Leaves all frames.
    pub(super) fn clear(&mut self) {
        self.frames.clear();
    }

    /// The frames, innermost first.
    pub(super) fn frames(&self) -> impl Iterator<Item = Frame> {
        self.frames.iter().rev().map(|(frame, _)| *frame)
    }
}

impl Drop for Snapshot {
    /// One after the other: a deep stack must not overflow ours.
    fn drop(&mut self) {
        let mut next = self.0.take();
        while let Some(node) = next {
            next = Arc::into_inner(node).and_then(|mut node| node.outer.0.take());
        }
    }
}
