//! Decodes code bytes to blocks: an image with a block cache. Does no I/O and knows no packets.

use super::block::{Block, BlockCache, BlockDraft, BlockExit, BlockId, End};
use super::item::Span;
use crate::common::Addr;
use crate::image::CodeSource;
use crate::insn::{Class, ExecMode, Insn, MAX_INSN_BYTES, decode};
use std::fmt;

/// The number of code bytes read from the image at once.
const WINDOW_BYTES: usize = 256;

/// An image, and the blocks that were decoded from it.
pub struct Code<'i> {
    image: &'i dyn CodeSource,
    pub(super) cache: BlockCache,
}

impl fmt::Debug for Code<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Code").field("blocks", &self.cache.len()).finish_non_exhaustive()
    }
}

impl<'i> Code<'i> {
    /// Creates the code of `image`, with an empty cache of the default size.
    pub fn new(image: &'i dyn CodeSource) -> Self {
        Self::with_cache(image, BlockCache::default())
    }

    /// Creates the code of `image`, with a cache that the same image filled, or an empty one.
    pub const fn with_cache(image: &'i dyn CodeSource, cache: BlockCache) -> Self {
        Self { image, cache }
    }

    /// Returns the cache, for a later decoder of the same image.
    pub fn into_cache(self) -> BlockCache {
        self.cache
    }

    /// Returns a reference to the cache, for example to clone it for a decoder on another core.
    pub const fn cache(&self) -> &BlockCache {
        &self.cache
    }

    /// Returns `count` instructions in a straight line from `ip` on, decoded anew. Branches are not
    /// followed. Ends early where the code is unknown or not an instruction.
    pub fn insns(&self, ip: Addr, mode: ExecMode, count: u32) -> Insns<'_> {
        Insns { image: self.image, window: Window::default(), ip, mode, left: count }
    }

    /// Returns the addresses of `count` instructions in a straight line from `ip` on, such as those
    /// of a span. Faster for those of the block at `ip`, which is cached. Ends early where the code
    /// is unknown or not an instruction.
    pub fn addrs(&mut self, ip: Addr, mode: ExecMode, count: u32) -> Addrs<'_> {
        let id = self.find(ip, mode);
        let sizes = match self.cache.get(id) {
            Some(block) => self.cache.sizes(block),
            None => &[],
        };
        Addrs { sizes, ip, left: count, rest: Insns { ip, ..self.insns(ip, mode, 0) } }
    }

    /// Appends the addresses that [`Self::addrs`] returns to a list. Faster than that for a cached
    /// block.
    pub fn add_addrs(&mut self, ip: Addr, mode: ExecMode, count: u32, to: &mut Vec<Addr>) {
        let id = self.find(ip, mode);
        let sizes = match self.cache.get(id) {
            Some(block) => self.cache.sizes(block),
            None => &[],
        };
        let (mut next, mut left) = (ip, count);
        to.extend(sizes.iter().take(count as usize).map(|size| {
            let ip = next;
            (next, left) = (ip.wrapping_add(u64::from(*size)), left - 1);
            ip
        }));
        if left > 0 {
            // Beyond the cached block.
            let rest = self.insns(next, mode, 0);
            to.extend(Addrs { sizes: &[], ip: next, left, rest });
        }
    }

    /// Returns the last instruction of a span, without decoding it if it ends a cached block, as
    /// that of a span that was just decoded does. `None` if the code is unknown.
    pub fn last(&mut self, span: &Span) -> Option<Last> {
        let id = self.find(span.ip, span.mode);
        let block = self.cache.get(id).filter(|block| block.last() == span.last);
        if let Some(block) = block {
            let is_indirect_call = block.end == End::CallIndirect;
            return Some(Last { end: block.following(), is_indirect_call });
        }
        let insn = self.insns(span.last, span.mode, 1).next()?;
        let is_indirect_call = insn.class == Class::CallIndirect;
        Some(Last { end: insn.next(), is_indirect_call })
    }

    /// Returns true if an instruction in the block at the start of a span loads RSP, even one after
    /// the span; see [`Insn::loads_sp`].
    pub fn loads_sp(&mut self, span: &Span) -> bool {
        let id = self.find(span.ip, span.mode);
        self.block(id).is_some_and(|block| block.loads_sp)
    }

    /// Copies code bytes from `addr` on to `buf`. Returns the number of bytes copied, fewer than
    /// asked for where the code is unknown.
    pub fn read(&self, addr: Addr, buf: &mut [u8]) -> usize {
        self.image.read(addr, buf)
    }

    /// Returns true if VMLAUNCH or VMRESUME is at `ip`; false if the code is unknown.
    pub(super) fn is_vm_entry(&self, ip: Addr) -> bool {
        let mut bytes = [0; 3];
        let known = self.image.read(ip, &mut bytes);
        matches!(bytes.get(..known), Some([0x0f, 0x01, 0xc2 | 0xc3]))
    }

    /// Returns the block at `ip`, decoding and caching it if necessary; this may empty the cache
    /// first. The block is empty if no code is known there.
    pub(super) fn find(&mut self, ip: Addr, mode: ExecMode) -> BlockId {
        self.cache.find(ip, mode).unwrap_or_else(|| self.decode_block(ip, mode))
    }

    /// Returns the block at `ip` as [`Self::find`] does, but tries `hint` first, which may be any
    /// id.
    pub(super) fn find_near(&mut self, hint: BlockId, ip: Addr, mode: ExecMode) -> BlockId {
        self.cache.check(hint, ip, mode).unwrap_or_else(|| self.find(ip, mode))
    }

    /// Returns the cached block with this id; `None` if there is none.
    #[inline]
    pub(super) fn block(&self, id: BlockId) -> Option<&Block> {
        self.cache.get(id)
    }

    /// Returns the number of the block's instructions before `addr`; `None` if none of them starts
    /// there.
    pub(super) fn insns_before(&self, id: BlockId, addr: Addr) -> Option<u32> {
        let block = self.cache.get(id).filter(|block| block.covers(addr))?;
        let mut ip = block.ip;
        for (before, size) in (0..).zip(self.cache.sizes(block)) {
            if ip == addr {
                return Some(before);
            }
            ip = ip.wrapping_add(u64::from(*size));
        }
        None
    }

    /// Returns the address of the block's instruction number `index`, counted from 0; `None` if it
    /// has fewer. An index of one past the last gives the address after the block.
    pub(super) fn insn_addr(&self, id: BlockId, index: u32) -> Option<Addr> {
        let block = self.cache.get(id)?;
        let before = self.cache.sizes(block).get(..index as usize)?;
        Some(block.ip.wrapping_add(before.iter().map(|size| u64::from(*size)).sum()))
    }

    /// Returns the block at `to`, which control reached from the block `id` by this exit, and links
    /// it to `id` for later executions. Decodes it if necessary. `to` must be the real successor at
    /// this exit, except for an indirect branch, since other links are not checked later.
    pub(super) fn successor(
        &mut self,
        id: BlockId,
        exit: BlockExit,
        to: Addr,
        mode: ExecMode,
    ) -> BlockId {
        let link = self.cache.link(id, exit);
        if let Some(known) = self.cache.check(link, to, mode) {
            return known;
        }
        let from = self.cache.get(id).map(|block| block.ip);
        let next = self.find(to, mode);
        // Building may have emptied the cache: link only blocks that still exist.
        if from.is_some_and(|from| self.cache.check(id, from, mode).is_some()) {
            self.cache.set_link(id, exit, next);
        }
        next
    }

    /// Returns the block at `to`, the target of a return whose call is at the end of block `call`,
    /// as [`Self::successor`] does. `call` may be stale.
    pub(super) fn return_successor(&mut self, call: BlockId, to: Addr, mode: ExecMode) -> BlockId {
        // The id may predate the last emptying of the cache, and denote some other block.
        let is_call = |block: &Block| block.following() == to && block.mode == mode;
        if self.cache.get(call).is_some_and(is_call) {
            self.successor(call, BlockExit::Fall, to, mode)
        } else {
            self.find(to, mode)
        }
    }

    /// Decodes the block at `ip`, and adds it to the cache, which may be emptied first. It is empty
    /// if no code is known there.
    fn decode_block(&mut self, ip: Addr, mode: ExecMode) -> BlockId {
        let mut draft = BlockDraft::new(ip, mode);
        let mut window = Window::default();
        loop {
            match window.decode(self.image, draft.next_ip(), mode) {
                Ok(insn) if draft.push(&insn) => break,
                Ok(_) => {}
                Err(end) => {
                    draft.end_with(end);
                    break;
                }
            }
        }
        self.cache.add(&draft)
    }
}

/// The last instruction of a span; see [`Code::last`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Last {
    /// The address after the instruction.
    pub end: Addr,
    /// True if the instruction is an indirect near call.
    pub is_indirect_call: bool,
}

/// A window of code bytes read ahead.
#[derive(Clone, Copy, Debug)]
struct Window {
    bytes: [u8; WINDOW_BYTES],
    start: Addr,
    len: usize,
}

impl Default for Window {
    fn default() -> Self {
        Self { bytes: [0; WINDOW_BYTES], start: Addr(0), len: 0 }
    }
}

impl Window {
    /// Returns the instruction at `ip`, or the reason why a block ends before it: no code where
    /// fewer bytes are known than the longest instruction has, else a bad instruction. Moves the
    /// window if necessary.
    fn decode(&mut self, image: &dyn CodeSource, ip: Addr, mode: ExecMode) -> Result<Insn, End> {
        if self.bytes_from(ip).len() < MAX_INSN_BYTES {
            self.fill(image, ip);
        }
        let bytes = self.bytes_from(ip);
        let known = bytes.len();
        decode(bytes, ip, mode).ok_or(match known {
            0..MAX_INSN_BYTES => End::NoCode,
            _ => End::BadInsn,
        })
    }

    /// Returns the bytes in the window from `ip` on; none if it is outside.
    fn bytes_from(&self, ip: Addr) -> &[u8] {
        let known = self.bytes.get(..self.len).unwrap_or_default();
        usize::try_from(ip.wrapping_sub(self.start.0).0)
            .ok()
            .and_then(|offset| known.get(offset..))
            .unwrap_or_default()
    }

    /// Moves the window to `ip` and reads its bytes, as many as are known.
    fn fill(&mut self, image: &dyn CodeSource, ip: Addr) {
        self.start = ip;
        self.len = image.read(ip, &mut self.bytes).min(WINDOW_BYTES);
    }
}

/// Instructions in a straight line; see [`Code::insns`].
pub struct Insns<'c> {
    image: &'c dyn CodeSource,
    window: Window,
    ip: Addr,
    mode: ExecMode,
    left: u32,
}

impl fmt::Debug for Insns<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Insns")
            .field("ip", &self.ip)
            .field("left", &self.left)
            .finish_non_exhaustive()
    }
}

impl Iterator for Insns<'_> {
    type Item = Insn;

    fn next(&mut self) -> Option<Insn> {
        self.left = self.left.checked_sub(1)?;
        let insn = self.window.decode(self.image, self.ip, self.mode).ok()?;
        self.ip = insn.next();
        Some(insn)
    }
}

/// Addresses of instructions in a straight line; see [`Code::addrs`].
#[derive(Debug)]
pub struct Addrs<'c> {
    sizes: &'c [u8],
    ip: Addr,
    left: u32,
    /// Decodes instructions beyond the cached block.
    rest: Insns<'c>,
}

impl Iterator for Addrs<'_> {
    type Item = Addr;

    fn next(&mut self) -> Option<Addr> {
        self.left = self.left.checked_sub(1)?;
        let ip = self.ip;
        let size = if let Some((size, sizes)) = self.sizes.split_first() {
            self.sizes = sizes;
            *size
        } else {
            (self.rest.ip, self.rest.left) = (ip, 1);
            self.rest.next()?.len
        };
        self.ip = ip.wrapping_add(u64::from(size));
        Some(ip)
    }
}
