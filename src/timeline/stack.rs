//! The call stack as the path's calls and returns make it: no memory is read.

use crate::common::Addr;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::sync::Arc;

/// An activation: of a function, or of a signal handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
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

impl Frame {
    /// Whether a return to `ip` leaves it.
    pub(super) fn is_returned_from(&self, ip: Addr) -> bool {
        !self.signal && self.return_address == ip
    }

    /// Whether a signal handler that interrupted the program there returns to `ip`: behind the
    /// system call that it interrupted, or to the call, to make it again.
    pub(super) fn is_resumed_at(&self, ip: Addr) -> bool {
        self.signal && (ip == self.return_address || ip == self.site)
    }
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

    /// How many frames it has.
    pub(super) fn depth(&self) -> usize {
        self.0.as_ref().map_or(0, |node| node.depth as usize)
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

/// Stacks as a flat list of frames, each with the one outside of it: frames that stacks share are
/// there once.
#[derive(Debug, Default)]
pub(super) struct Forest {
    /// A frame, and the number of the frame outside of it counted from 1; 0 for none.
    pub(super) frames: Vec<(Frame, u32)>,
    known: HashMap<*const Node, u32>,
}

impl Forest {
    /// The number of a stack's innermost frame, counted from 1; 0 for an empty stack. The stacks
    /// must live as long as the forest grows.
    pub(super) fn add(&mut self, stack: &Stack) -> u32 {
        let mut fresh = Vec::new();
        let mut outer = 0;
        let mut at = stack.0.as_ref();
        while let Some(node) = at {
            if let Some(number) = self.known.get(&Arc::as_ptr(node)) {
                outer = *number;
                break;
            }
            fresh.push(node);
            at = node.outer.0.as_ref();
        }
        for node in fresh.into_iter().rev() {
            self.frames.push((node.frame, outer));
            outer = u32::try_from(self.frames.len()).unwrap_or(u32::MAX);
            self.known.insert(Arc::as_ptr(node), outer);
        }
        outer
    }

    /// The stacks again, by the numbers of their innermost frames. None if a frame is not behind
    /// the one outside of it.
    pub(super) fn stacks(frames: &[(Frame, u32)]) -> Option<Vec<Stack>> {
        let mut stacks = vec![Stack::default()];
        for (frame, outer) in frames {
            let mut stack: Stack = stacks.get(*outer as usize)?.clone();
            stack.push(*frame);
            stacks.push(stack);
        }
        Some(stacks)
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
