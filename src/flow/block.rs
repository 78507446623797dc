//! Basic blocks and their cache: code is decoded once and executed many times. Knows no packets and
//! reads no code.

use super::chains::Chains;
use super::item::{Exit, Span};
use crate::common::Addr;
use crate::insn::{Class, ExecMode, Insn};

/// The reason why a block ends. Up to [`Self::Vmptrld`], it is the kind of the last instruction
/// ([`Class`]): a branch, or an instruction to which a packet may bind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum End {
    Jcc,
    Jmp,
    Call,
    /// A call to the next instruction: no return matches it.
    CallNext,
    JmpIndirect,
    CallIndirect,
    Ret,
    FarCall,
    FarReturn,
    FarJmp,
    /// PTWRITE, to which a PTW binds.
    Ptwrite,
    /// MOV CR3, to which a PIP binds.
    MovCr3,
    /// VMPTRLD, to which a VMCS binds.
    Vmptrld,
    /// The block has reached its size limit; the code continues.
    Limit,
    /// No code bytes are known after the block.
    NoCode,
    /// The bytes after the block are not an instruction.
    BadInsn,
}

impl End {
    /// Returns the end of a block whose last instruction this is; `None` if it does not end a
    /// block.
    fn of(insn: &Insn) -> Option<Self> {
        Some(match insn.class {
            Class::Other => return None,
            Class::Jcc { .. } => Self::Jcc,
            Class::Jmp { .. } => Self::Jmp,
            Class::Call { target } if target == insn.next() => Self::CallNext,
            Class::Call { .. } => Self::Call,
            Class::JmpIndirect => Self::JmpIndirect,
            Class::CallIndirect => Self::CallIndirect,
            Class::Ret => Self::Ret,
            Class::FarCall => Self::FarCall,
            Class::FarReturn => Self::FarReturn,
            Class::FarJmp => Self::FarJmp,
            Class::Ptwrite => Self::Ptwrite,
            Class::MovCr3 => Self::MovCr3,
            Class::Vmptrld => Self::Vmptrld,
        })
    }
}

impl End {
    /// Returns the exit from the block if the code alone determines it: a direct jump or call, or
    /// no branch. `None` if a TNT bit or TIP does, or no code follows.
    pub(super) const fn exit_by_code(self) -> Option<BlockExit> {
        match self {
            Self::Jmp | Self::Call | Self::CallNext => Some(BlockExit::Branch),
            Self::Ptwrite | Self::MovCr3 | Self::Vmptrld | Self::Limit => Some(BlockExit::Fall),
            _ => None,
        }
    }

    /// Returns true if the last instruction can change CR3 or the VMCS, so that preceding PIP and
    /// VMCS packets belong to it.
    pub(super) const fn changes_context(self) -> bool {
        matches!(
            self,
            Self::FarCall | Self::FarReturn | Self::FarJmp | Self::MovCr3 | Self::Vmptrld
        )
    }

    /// Returns true if the last instruction is a branch whose target is in a TIP; that of a return
    /// need not be.
    pub(super) const fn takes_tip(self) -> bool {
        self.needs_trace() && !matches!(self, Self::Jcc)
    }

    /// Returns true if the last instruction is a branch that needs a TNT bit or a TIP.
    pub(super) const fn needs_trace(self) -> bool {
        self.exit_by_code().is_none() && !matches!(self, Self::NoCode | Self::BadInsn)
    }
}

/// The index of a block in its cache. Stale once the cache was emptied, so users must check the
/// block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BlockId(u32);

impl BlockId {
    /// The id of no block.
    pub(super) const NONE: Self = Self(u32::MAX);
}

/// Instructions in a straight line from `ip` on, up to and including a branch or another [`End`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Block {
    /// The address of the first instruction.
    pub(super) ip: Addr,
    /// The target of the direct branch at the end; zero if there is none.
    pub(super) target: Addr,
    /// The offset of the last instruction from `ip`, in bytes.
    last_offset: u16,
    /// The size of all instructions in bytes.
    size_bytes: u16,
    /// The number of instructions.
    pub(super) insns: u16,
    pub(super) end: End,
    /// The width of the code.
    pub(super) mode: ExecMode,
    /// True if one of its instructions loads RSP; see [`Insn::loads_sp`].
    pub(super) loads_sp: bool,
    /// The index of the size of the block's first instruction in the cache's `sizes`.
    sizes: u32,
    /// The successor blocks: after falling through, and after branching.
    links: [BlockId; 2],
    /// The identifier of the [`ExecutedCode`](super::ExecutedCode) that numbered the block last,
    /// and the block's number there.
    pub(super) numbered: (u32, u32),
}

impl Block {
    /// Creates a block without instructions at `ip`, where no code is known.
    pub(super) const fn empty(ip: Addr, mode: ExecMode) -> Self {
        Self {
            ip,
            target: Addr(0),
            last_offset: 0,
            size_bytes: 0,
            insns: 0,
            end: End::NoCode,
            mode,
            loads_sp: false,
            sizes: 0,
            links: [BlockId::NONE; 2],
            numbered: (0, 0),
        }
    }

    /// Returns the address of the last instruction, or of the block if it is empty.
    pub(super) const fn last(&self) -> Addr {
        self.ip.wrapping_add(self.last_offset as u64)
    }

    /// Returns the address after the last instruction.
    pub(super) const fn following(&self) -> Addr {
        self.ip.wrapping_add(self.size_bytes as u64)
    }

    /// Returns true if this is the block at `ip` in code of this width.
    #[inline]
    pub(super) fn is_at(&self, ip: Addr, mode: ExecMode) -> bool {
        self.ip == ip && self.mode == mode
    }

    /// Returns the successor block at this exit, or [`BlockId::NONE`] if it is not linked yet.
    #[inline]
    pub(super) const fn link(&self, exit: BlockExit) -> BlockId {
        self.links[exit as usize]
    }

    /// Returns the span of the whole block, which control left by `exit`.
    #[inline]
    pub(super) const fn span(&self, exit: Exit) -> Span {
        let (ip, last, insns) = (self.ip, self.last(), self.insns as u32);
        Span { ip, last, insns, mode: self.mode, exit }
    }

    /// Returns true if `addr` lies in the block, on an instruction boundary or not.
    pub(super) const fn covers(&self, addr: Addr) -> bool {
        addr.0.wrapping_sub(self.ip.0) < self.size_bytes as u64
    }
}

/// One of the two exits of a block: to the instruction after it, or by its branch to another place.
/// The kind of branch is in [`Exit`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BlockExit {
    /// To the instruction after the block.
    Fall = 0,
    /// To the target of its branch, direct or indirect.
    Branch = 1,
}

impl BlockExit {
    /// Returns the exit by a conditional branch: to its target if it is `taken`, else to the next
    /// instruction.
    #[inline]
    pub(super) const fn of(taken: bool) -> Self {
        if taken { Self::Branch } else { Self::Fall }
    }
}

/// The blocks of one image. Outlives decoders: pass it to [`super::Code::with_cache`] again, or
/// clone it for a decoder on another core. Valid only for the image that filled it.
#[derive(Clone, Debug)]
pub struct BlockCache {
    blocks: Vec<Block>,
    /// Sizes of instructions in bytes, in the order of the blocks.
    sizes: Vec<u8>,
    /// A hash table of indices in `blocks`, by address, with linear probing; `u32::MAX` if free.
    slots: Vec<u32>,
    pub(super) chains: Chains,
    /// The number of times that the cache was emptied.
    pub(super) emptied: u32,
    /// The number of blocks at which the cache is full.
    limit: usize,
}

const FIRST_SLOTS: usize = 1 << 10;
const FREE: u32 = u32::MAX;

impl Default for BlockCache {
    /// Creates a cache of up to a million blocks, some 60 MiB.
    fn default() -> Self {
        Self::with_limit(1 << 20)
    }
}

impl BlockCache {
    /// The limit on instructions in a block, which keeps its size in bytes within 16 bits.
    pub(super) const BLOCK_INSNS: u16 = 1024;

    /// Creates an empty cache for up to `blocks` blocks, from 16 to 2^28. A full cache is emptied
    /// before the next block is added.
    pub fn with_limit(blocks: usize) -> Self {
        let limit = blocks.clamp(16, 1 << 28);
        let slots = vec![FREE; FIRST_SLOTS];
        let chains = Chains::default();
        Self { blocks: Vec::new(), sizes: Vec::new(), slots, chains, emptied: 0, limit }
    }

    /// Returns the number of cached blocks.
    pub fn len(&self) -> usize {
        self.blocks.len()
    }

    /// Returns true if no block is cached.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Returns the block with this id; `None` if there is none.
    #[inline]
    pub(super) fn get(&self, id: BlockId) -> Option<&Block> {
        self.blocks.get(id.0 as usize)
    }

    /// Returns the block with this id, for changes of its number; `None` if there is none.
    #[inline]
    pub(super) fn get_mut(&mut self, id: BlockId) -> Option<&mut Block> {
        self.blocks.get_mut(id.0 as usize)
    }

    /// Returns `id` if that is the id of the block at `ip` in code of this width; else `None`.
    #[inline]
    pub(super) fn check(&self, id: BlockId, ip: Addr, mode: ExecMode) -> Option<BlockId> {
        self.get(id).is_some_and(|block| block.ip == ip && block.mode == mode).then_some(id)
    }

    /// Returns the block that starts at `ip` in code of this width; `None` if it is not cached.
    #[inline]
    pub(super) fn find(&self, ip: Addr, mode: ExecMode) -> Option<BlockId> {
        let mut slot = self.first_slot(ip, mode);
        loop {
            let id = BlockId(*self.slots.get(slot)?);
            let block = self.get(id)?;
            if block.ip == ip && block.mode == mode {
                return Some(id);
            }
            slot = (slot + 1) & (self.slots.len() - 1);
        }
    }

    /// Returns the sizes of the block's instructions, in bytes.
    pub(super) fn sizes(&self, block: &Block) -> &[u8] {
        let start = block.sizes as usize;
        self.sizes.get(start..start + usize::from(block.insns)).unwrap_or_default()
    }

    /// Returns the successor block at this exit of a block, or [`BlockId::NONE`] if it is not
    /// linked yet.
    pub(super) fn link(&self, id: BlockId, exit: BlockExit) -> BlockId {
        self.get(id).map_or(BlockId::NONE, |block| block.links[exit as usize])
    }

    /// Links a block to its successor at this exit, in place of an earlier link. Does nothing if
    /// there is no such block.
    pub(super) fn set_link(&mut self, id: BlockId, exit: BlockExit, to: BlockId) {
        if let Some(block) = self.blocks.get_mut(id.0 as usize) {
            block.links[exit as usize] = to;
        }
    }

    /// Adds a finished block and returns its id. Empties the cache first if that is full.
    pub(super) fn add(&mut self, draft: &BlockDraft) -> BlockId {
        if self.blocks.len() >= self.limit || self.sizes.len() > u32::MAX as usize / 2 {
            self.clear();
        }
        if (self.blocks.len() + 1) * 2 > self.slots.len() {
            self.grow();
        }
        #[expect(clippy::cast_possible_truncation, reason = "bounded by the limits above")]
        let (id, sizes) = (BlockId(self.blocks.len() as u32), self.sizes.len() as u32);
        self.sizes.extend_from_slice(&draft.sizes);
        self.blocks.push(Block { sizes, ..draft.block });
        self.take_slot(id, draft.block.ip, draft.block.mode);
        id
    }

    /// Empties the cache, chains included.
    fn clear(&mut self) {
        self.emptied = self.emptied.wrapping_add(1);
        self.blocks.clear();
        self.sizes.clear();
        self.chains.clear();
        self.slots.fill(FREE);
    }

    /// Doubles the size of the hash table.
    fn grow(&mut self) {
        let slots = self.slots.len() * 2;
        self.slots.clear();
        self.slots.resize(slots, FREE);
        for number in 0..self.blocks.len() {
            let Block { ip, mode, .. } = self.blocks[number];
            #[expect(clippy::cast_possible_truncation, reason = "bounded by the limit")]
            self.take_slot(BlockId(number as u32), ip, mode);
        }
    }

    /// Enters a block in the hash table.
    fn take_slot(&mut self, id: BlockId, ip: Addr, mode: ExecMode) {
        let mut slot = self.first_slot(ip, mode);
        while self.slots[slot] != FREE {
            slot = (slot + 1) & (self.slots.len() - 1);
        }
        self.slots[slot] = id.0;
    }

    /// Returns the slot where the search for a block begins. The high bits of the product are the
    /// well-mixed ones.
    #[expect(clippy::cast_possible_truncation, reason = "the shift leaves an index")]
    fn first_slot(&self, ip: Addr, mode: ExecMode) -> usize {
        let key = ip.0 ^ ((mode as u64) << 62);
        let shift = 64 - self.slots.len().trailing_zeros();
        (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> shift) as usize
    }
}

/// A block under construction.
#[derive(Debug)]
pub(super) struct BlockDraft {
    block: Block,
    sizes: Vec<u8>,
}

impl BlockDraft {
    /// Creates a block at `ip` without instructions so far.
    pub(super) fn new(ip: Addr, mode: ExecMode) -> Self {
        let block = Block { end: End::Limit, ..Block::empty(ip, mode) };
        Self { block, sizes: Vec::with_capacity(16) }
    }

    /// Returns the address of the next instruction to append.
    pub(super) const fn next_ip(&self) -> Addr {
        self.block.following()
    }

    /// Appends `insn`. Returns true if that ends the block: by its kind, or by the limit.
    pub(super) fn push(&mut self, insn: &Insn) -> bool {
        self.sizes.push(insn.len);
        self.block.last_offset = self.block.size_bytes;
        self.block.size_bytes += u16::from(insn.len);
        self.block.insns += 1;
        self.block.loads_sp |= insn.loads_sp;
        let Some(end) = End::of(insn) else {
            return self.block.insns == BlockCache::BLOCK_INSNS;
        };
        self.block.end = end;
        self.block.target = insn.class.target().unwrap_or_default();
        true
    }

    /// Ends the block after the last appended instruction, for the reason `end`: no instruction
    /// follows.
    pub(super) fn end_with(&mut self, end: End) {
        self.block.end = end;
    }
}
