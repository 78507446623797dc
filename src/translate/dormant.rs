//! Superblocks of a persisted cache whose code is not mapped yet: they are *dormant*. A *module* is
//! a part of a file with code that is mapped at an address. A superblock can be used once all
//! modules with its code are mapped where they were.

use super::builder::Exit;
use crate::common::AddrRange;
use std::ops::Range;

/// A part of a file with code, and where it is mapped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Module {
    /// The addresses of the mapping.
    pub range: AddrRange,
    /// The offset in the file of the first byte.
    pub offset: u64,
    /// The identifier of the file's content, which its name and place do not change.
    pub file: String,
}

/// A superblock of a persisted cache, of code that is not mapped yet.
#[derive(Debug)]
pub(super) struct DormantSuperblock {
    pub(super) number: u32,
    /// Its pages and its exits, as indexes in the vectors of [`Dormant`].
    pub(super) pages: Range<usize>,
    pub(super) exits: Range<usize>,
}

/// The superblocks with code of the same modules.
#[derive(Debug)]
pub(super) struct Group {
    /// The numbers of the modules, in order.
    pub(super) modules: Vec<usize>,
    pub(super) members: Vec<DormantSuperblock>,
}

/// The superblocks of a persisted cache that are not in use, and what is needed to use them.
#[derive(Debug, Default)]
pub(super) struct Dormant {
    pub(super) modules: Vec<Module>,
    pub(super) groups: Vec<Group>,
    /// The pages and the exits of all superblocks, for [`DormantSuperblock`].
    pub(super) pages: Vec<u64>,
    pub(super) exits: Vec<Exit>,
    /// The number of superblocks that came with the persisted cache, in use or not.
    pub(super) persisted_count: usize,
}

impl Dormant {
    /// Removes and returns the superblocks whose modules are all in `present`, with equal ranges,
    /// offsets and files. Their pages and exits stay in the vectors here.
    pub(super) fn take_ready(&mut self, present: &[Module]) -> Vec<DormantSuperblock> {
        let is_present: Vec<bool> =
            self.modules.iter().map(|module| present.contains(module)).collect();
        let groups = self.groups.iter_mut();
        let of_present = groups.filter(|group| group.modules.iter().all(|of| is_present[*of]));
        of_present.flat_map(|group| std::mem::take(&mut group.members)).collect()
    }

    /// Forgets all of these superblocks, with their modules and the number that came, as the cache
    /// is used anew from its start.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}
