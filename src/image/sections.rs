//! The image of a process at one time: which section holds which address. Immutable; a changed
//! copy is cheap.

use super::tree::{self, Link};
use crate::common::{Addr, AddrRange};
use crate::image::{Bytes, CodeSource, Section};
use std::cell::Cell;
use std::sync::Arc;

/// The sections that were mapped at one time. Cloning, and making a changed copy, share all that
/// is the same.
#[derive(Clone, Debug, Default)]
pub struct Image {
    root: Link,
}

impl Image {
    /// The image of `sections`, mapped one after another: where they overlap, the later one wins.
    pub fn new(sections: impl IntoIterator<Item = Section>) -> Self {
        sections.into_iter().fold(Self::default(), |image, section| image.with(section))
    }

    /// A copy with `section` mapped over whatever was there.
    #[must_use]
    pub fn with(&self, section: Section) -> Self {
        let range = section.range;
        self.replace(range, |_| tree::single(section))
    }

    /// A copy with nothing mapped in `range`.
    #[must_use]
    pub fn without(&self, range: AddrRange) -> Self {
        self.replace(range, |_| None)
    }

    /// A copy with the protection of all that is mapped in `range` changed, as `mprotect` does.
    #[must_use]
    pub fn with_protection(&self, range: AddrRange, writable: bool, executable: bool) -> Self {
        let change = |section: &Section| Section {
            writable,
            executable,
            altered: section.altered || section.writable || writable,
            ..section.clone()
        };
        self.replace(range, |inside| tree::map(inside, &change))
    }

    /// A copy where `bytes` were written at `addr`. What was mapped there keeps its name and its
    /// protection; where nothing was, they become a writable and executable section.
    #[must_use]
    pub fn with_written(&self, addr: Addr, bytes: Bytes) -> Self {
        let range = AddrRange::sized(addr, bytes.len() as u64);
        let below = self.section_at(addr).cloned().unwrap_or_else(|| Section {
            writable: true,
            executable: true,
            ..Section::default()
        });
        self.with(Section { range, bytes, offset: 0, altered: true, build_id: None, ..below })
    }

    /// The section that holds `addr`.
    pub fn section_at(&self, addr: Addr) -> Option<&Section> {
        tree::find(&self.root, addr)
    }

    /// All sections, by address. They do not overlap.
    pub fn sections(&self) -> impl Iterator<Item = &Section> {
        tree::iter(&self.root)
    }

    /// Copies bytes from `addr` on into `buf`, but only from mappings of files that the program
    /// could never write to, so that they hold at any time; returns how many are known.
    pub fn read_file_data(&self, addr: Addr, buf: &mut [u8]) -> usize {
        fill(addr, buf, |addr| self.section_at(addr).filter(|section| section.is_file_data()))
    }

    /// A reader for one thread that remembers the section it read last: neighbouring reads then
    /// need no search.
    pub fn reader(self: &Arc<Self>) -> Reader<'_> {
        Reader { image: self, last: Cell::new(None) }
    }

    /// How many nodes all of `images` have between them.
    #[cfg(test)]
    pub(super) fn count_nodes<'a>(images: impl Iterator<Item = &'a Self>) -> usize {
        let mut seen = std::collections::HashSet::new();
        images.for_each(|image| tree::tests::collect(&image.root, &mut seen));
        seen.len()
    }

    /// Asserts that the tree is sound.
    #[cfg(test)]
    pub(super) fn check(&self) {
        tree::tests::check(&self.root);
    }

    fn replace(&self, range: AddrRange, with: impl FnOnce(&Link) -> Link) -> Self {
        if range.is_empty() {
            return self.clone();
        }
        let (low, rest) = tree::split(&self.root, range.start);
        let (inside, high) = tree::split(&rest, range.end);
        Self { root: tree::concat(tree::concat(low, with(&inside)), high) }
    }
}

impl FromIterator<Section> for Image {
    fn from_iter<I: IntoIterator<Item = Section>>(sections: I) -> Self {
        Self::new(sections)
    }
}

impl CodeSource for Image {
    fn read(&self, addr: Addr, buf: &mut [u8]) -> usize {
        fill(addr, buf, |addr| self.section_at(addr))
    }
}

/// Reads an [`Image`] and remembers the section of the last read. For one thread.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    image: &'a Image,
    last: Cell<Option<&'a Section>>,
}

impl<'a> Reader<'a> {
    /// The section that holds `addr`.
    pub fn section_at(&self, addr: Addr) -> Option<&'a Section> {
        if let Some(last) = self.last.get().filter(|last| last.range.contains(addr)) {
            return Some(last);
        }
        let found = self.image.section_at(addr);
        self.last.set(found);
        found
    }
}

impl CodeSource for Reader<'_> {
    fn read(&self, addr: Addr, buf: &mut [u8]) -> usize {
        fill(addr, buf, |addr| self.section_at(addr))
    }
}

/// Fills `buf` from one section after another up to the first byte that none of them knows.
fn fill<'a>(addr: Addr, buf: &mut [u8], find: impl Fn(Addr) -> Option<&'a Section>) -> usize {
    let mut filled = 0;
    while let Some(rest) = buf.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        let Some(next) = addr.0.checked_add(filled as u64).map(Addr) else { break };
        match find(next).map_or(0, |section| section.read(next, rest)) {
            0 => break,
            read => filled += read,
        }
    }
    filled
}
