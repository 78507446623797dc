//! The code of a block that is being visited. Most visitors need little of it, so each part is
//! looked up when it is asked for.

use super::walk::Walker;
use crate::common::Addr;
use crate::flow::{Last, Span};
use std::cell::{OnceCell, RefCell};

/// The code of a block, at the time when the block was executed.
pub struct BlockCode<'a> {
    span: &'a Span,
    source: &'a dyn BlockSource,
    generation: u32,
    addrs: OnceCell<Vec<Addr>>,
}

/// A source of the code of blocks, at the time when they were executed.
pub(super) trait BlockSource {
    /// Returns the addresses of the instructions of a block.
    fn addrs(&self, span: &Span) -> Vec<Addr>;
    /// Returns the last instruction of a block; `None` if its code is unknown.
    fn last(&self, span: &Span) -> Option<Last>;
    /// Copies code bytes; returns how many are known.
    fn read(&self, addr: Addr, buf: &mut [u8]) -> usize;
}

impl<'a> BlockCode<'a> {
    pub(super) const fn new(span: &'a Span, source: &'a dyn BlockSource, generation: u32) -> Self {
        Self { span, source, generation, addrs: OnceCell::new() }
    }

    /// Returns the addresses of all instructions of the block. Empty in a raw trace that is visited
    /// without addresses.
    pub fn addrs(&self) -> &[Addr] {
        self.addrs.get_or_init(|| self.source.addrs(self.span))
    }

    /// Returns the last instruction of the block; `None` if its code is unknown.
    pub fn last(&self) -> Option<Last> {
        self.source.last(self.span)
    }

    /// Copies the code bytes at any address, also outside the block, at the time of the block;
    /// returns how many are known.
    pub fn read(&self, addr: Addr, buf: &mut [u8]) -> usize {
        self.source.read(addr, buf)
    }

    /// Returns the number of the code's generation, which grows when code changes. Blocks with the
    /// same addresses and generation have the same instructions.
    pub const fn generation(&self) -> u32 {
        self.generation
    }
}

impl BlockSource for RefCell<&mut Walker<'_>> {
    fn addrs(&self, span: &Span) -> Vec<Addr> {
        self.borrow_mut().addrs(span).collect()
    }

    fn last(&self, span: &Span) -> Option<Last> {
        self.borrow_mut().last(span)
    }

    fn read(&self, addr: Addr, buf: &mut [u8]) -> usize {
        self.borrow().read(addr, buf)
    }
}
