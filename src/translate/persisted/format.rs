//! Constants of the description of a persisted cache, for its reader and its writer.

use super::super::edge::EdgeKind;

/// The size of the literal with the next superblock of a bucket, and of the displacement of a jump.
pub(super) const WORD_BYTES: u64 = 8;
pub(super) const FIELD_BYTES: u64 = 4;

/// The code is read in parts of this size.
pub(super) const PART_BYTES: usize = 128 << 10;

/// The bit of a superblock's facts for `Superblock::native`.
pub(super) const NATIVE: u64 = 1;
/// Bits of an edge's facts: its kind, and what else is true of it.
pub(super) const KIND_BITS: u64 = 7;
pub(super) const IS_BRANCH: u64 = 8;
pub(super) const HAS_TARGET: u64 = 16;
pub(super) const KINDS: [EdgeKind; 5] = [
    EdgeKind::Direct,
    EdgeKind::Return,
    EdgeKind::Indirect,
    EdgeKind::Syscall,
    EdgeKind::SyscallReturn,
];

/// The address of a zone, and its sizes in bytes: the whole zone, the code that its superblocks
/// share, and all code.
#[derive(Clone, Copy, Debug)]
pub(super) struct ZoneSizes {
    pub(super) base: u64,
    pub(super) size: u64,
    pub(super) shared: u64,
    pub(super) used: u64,
}
