//! The call stack, derived from the path's calls and returns without reading memory.

use crate::common::Addr;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::sync::Arc;

/// An activation of a function or a signal handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Frame {
    /// The number of the call instruction, or of a signal handler's first instruction, counted per
    /// thread.
    pub index: u64,
    /// The address of the function's first instruction.
    pub entry: Addr,
    /// The address of the call instruction or of the interrupted one.
    pub site: Addr,
    /// The address at which the caller continues.
    pub return_address: Addr,
    /// True if a signal entered the function.
    pub signal: bool,
}

impl Frame {
    /// Returns true if a return to `ip` pops this frame.
    pub(super) fn is_returned_from(&self, ip: Addr) -> bool {
        !self.signal && self.return_address == ip
    }

    /// Returns true if the frame is a signal handler that returns to `ip`: after the interrupted
    /// system call, or at the call, to restart it.
    pub(super) fn is_resumed_at(&self, ip: Addr) -> bool {
        self.signal && (ip == self.return_address || ip == self.site)
    }
}

/// A call stack that shares its outer frames with others, so that the index can keep one per
/// segment.
#[derive(Clone, Debug, Default)]
pub(super) struct Stack(Option<Arc<Node>>);

#[derive(Debug)]
struct Node {
    frame: Frame,
    depth: u32,
    outer: Stack,
}

/// A bound on the depth, against unbounded recursion of the program.
const DEPTH_LIMIT: u32 = 4 << 20;

impl Stack {
    /// Adds the innermost frame; drops it if the stack is too deep.
    pub(super) fn push(&mut self, frame: Frame) {
        let depth = self.0.as_ref().map_or(0, |node| node.depth) + 1;
        if depth < DEPTH_LIMIT {
            let outer = std::mem::take(self);
            self.0 = Some(Arc::new(Node { frame, depth, outer }));
        }
    }

    /// Pops the innermost frame for which `is_last_popped` returns true, and all frames inside it.
    /// Returns false and leaves the stack unchanged if there is none.
    pub(super) fn pop_through(&mut self, is_last_popped: impl Fn(&Frame) -> bool) -> bool {
        let mut at = &self.0;
        while let Some(node) = at {
            if is_last_popped(&node.frame) {
                *self = node.outer.clone();
                return true;
            }
            at = &node.outer.0;
        }
        false
    }

    /// Returns the number of frames.
    pub(super) fn depth(&self) -> usize {
        self.0.as_ref().map_or(0, |node| node.depth as usize)
    }

    /// Returns the frames, innermost first.
    pub(super) fn frames(&self) -> impl Iterator<Item = Frame> {
        let mut at = self.0.as_deref();
        std::iter::from_fn(move || {
            let node = at?;
            at = node.outer.0.as_deref();
            Some(node.frame)
        })
    }
}

/// Stacks as a flat list of frames, each with its outer frame, so that shared frames are stored
/// once.
#[derive(Debug, Default)]
pub(super) struct FlatStacks {
    /// Each frame, and the number of its outer frame, counted from 1; 0 for none.
    pub(super) frames: Vec<(Frame, u32)>,
    known: HashMap<*const Node, u32>,
}

impl FlatStacks {
    /// Adds a stack and returns the number of its innermost frame, counted from 1; 0 for an empty
    /// stack. Frames are recognized by their addresses in memory: all added stacks must be kept
    /// alive.
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

    /// Returns the stack for each number of an innermost frame: first the empty stack, for 0. Returns
    /// `None` if a frame precedes its outer frame.
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
    /// Drops the frames iteratively: recursion would overflow our own stack for a deep one.
    fn drop(&mut self) {
        let mut next = self.0.take();
        while let Some(node) = next {
            next = Arc::into_inner(node).and_then(|mut node| node.outer.0.take());
        }
    }
}
