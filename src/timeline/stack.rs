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

/// A stack that shares its outer frames with others, so that one can be kept for each segment.
#[derive(Clone, Debug, Default)]
pub(super) struct Stack(Option<Arc<Node>>);

#[derive(Debug)]
struct Node {
    frame: Frame,
    depth: u32,
    outer: Stack,
}

/// A recursion without bound must not become one of ours.
const DEPTH_LIMIT: u32 = 4 << 20;

impl Stack {
    pub(super) fn push(&mut self, frame: Frame) {
        let depth = self.0.as_ref().map_or(0, |node| node.depth) + 1;
        if depth < DEPTH_LIMIT {
            let outer = std::mem::take(self);
            self.0 = Some(Arc::new(Node { frame, depth, outer }));
        }
    }

    /// Leaves the innermost frame that `is_left` names, and all inside of it. None is named: the
    /// stack stays.
    pub(super) fn leave(&mut self, is_left: impl Fn(&Frame) -> bool) -> bool {
        let mut at = &self.0;
        while let Some(node) = at {
            if is_left(&node.frame) {
                *self = node.outer.clone();
                return true;
            }
            at = &node.outer.0;
        }
        false
    }

    /// The frames, innermost first.
    pub(super) fn frames(&self) -> impl Iterator<Item = Frame> {
        let mut at = self.0.as_deref();
        std::iter::from_fn(move || {
            let node = at?;
            at = node.outer.0.as_deref();
            Some(node.frame)
        })
    }
}

impl Drop for Stack {
    /// One after the other: a deep stack must not overflow ours.
    fn drop(&mut self) {
        let mut next = self.0.take();
        while let Some(node) = next {
            next = Arc::into_inner(node).and_then(|mut node| node.outer.0.take());
        }
    }
}
