//! The stack of return addresses for RET compression (SDM section "Indirect Transfer Compression
//! for Returns (RET)").

use crate::common::Addr;

/// The depth that the SDM specifies.
const DEPTH: usize = 64;

/// The return addresses of the innermost 64 calls since the last PSB. A further call evicts the
/// outermost one.
#[derive(Clone, Debug)]
pub(super) struct ReturnStack {
    slots: [Addr; DEPTH],
    top: usize,
    len: usize,
}

impl ReturnStack {
    /// Creates an empty stack.
    pub(super) const fn new() -> Self {
        Self { slots: [Addr(0); DEPTH], top: 0, len: 0 }
    }

    /// Removes all return addresses.
    pub(super) fn clear(&mut self) {
        self.len = 0;
    }

    /// Pushes the return address of a call.
    pub(super) fn push(&mut self, address: Addr) {
        self.top = (self.top + 1) % DEPTH;
        self.slots[self.top] = address;
        self.len = (self.len + 1).min(DEPTH);
    }

    /// Pops the newest return address and returns true, if it is `target`: the return to `target`
    /// can be compressed. Otherwise, also on an empty stack, clears the stack and returns false.
    ///
    /// A mismatch clears it, since some decoders drop the call that the return does not match and
    /// some keep it, and the calls kept here must be on top of both their stacks.
    pub(super) fn pop_if_match(&mut self, target: Addr) -> bool {
        if self.len == 0 || self.slots[self.top] != target {
            self.clear();
            return false;
        }
        self.top = (self.top + DEPTH - 1) % DEPTH;
        self.len -= 1;
        true
    }
}
