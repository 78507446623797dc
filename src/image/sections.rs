//! The image of a process at one time: the section at each address. Immutable; a changed copy is
//! cheap.

use super::tree::{self, Link};
use crate::common::{Addr, AddrRange};
use crate::image::{Bytes, CodeSource, Section};
use std::cell::Cell;
use std::sync::Arc;

/// The sections mapped at one time. Clones and changed copies share all unchanged parts.
#[derive(Clone, Debug, Default)]
pub struct Image {
    root: Link,
}

impl Image {
    /// Creates the image of `sections`, mapped in order: where they overlap, the later one wins.
    pub fn new(sections: impl IntoIterator<Item = Section>) -> Self {
        sections.into_iter().fold(Self::default(), |image, section| image.with(section))
    }

    /// Returns a copy with `section` mapped over any previous contents.
    #[must_use]
    pub fn with(&self, section: Section) -> Self {
        let range = section.range;
        self.replace(range, |_| tree::single(section))
    }

    /// Returns a copy with nothing mapped in `range`.
    #[must_use]
    pub fn without(&self, range: AddrRange) -> Self {
        self.replace(range, |_| None)
    }

    /// Returns a copy with the protection of all mappings in `range` changed, as by `mprotect`.
    /// Those that are or were writable count as altered ([`Section::altered`]).
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

    /// Returns a copy with `bytes` written at `addr`, as an altered section without a build ID. All
    /// of it gets the name and protection of the section at `addr`; without one, it is writable and
    /// executable.
    #[must_use]
    pub fn with_written(&self, addr: Addr, bytes: Bytes) -> Self {
        let range = AddrRange::sized(addr, bytes.len() as u64);
        let around = self.section_at(addr).cloned().unwrap_or_else(|| Section {
            writable: true,
            executable: true,
            ..Section::default()
        });
        self.with(Section { range, bytes, offset: 0, altered: true, build_id: None, ..around })
    }

    /// Returns the section that contains `addr`; `None` if nothing is mapped there.
    pub fn section_at(&self, addr: Addr) -> Option<&Section> {
        tree::find(&self.root, addr)
    }

    /// Returns all sections, by address. They do not overlap.
    pub fn sections(&self) -> impl Iterator<Item = &Section> {
        tree::iter(&self.root)
    }

    /// Copies bytes from `addr` on into `buf`, up to the first that is not in a file mapping which
    /// the program could never write to: those are valid at any time. Returns the number of bytes
    /// copied.
    pub fn read_file_data(&self, addr: Addr, buf: &mut [u8]) -> usize {
        fill(addr, buf, |addr| self.section_at(addr).filter(|section| section.is_file_data()))
    }

    /// Creates a reader for one thread that caches the section it read last, so that neighbouring
    /// reads need no search.
    pub fn reader(self: &Arc<Self>) -> Reader<'_> {
        Reader { image: self, last: Cell::new(None) }
    }

    /// Returns how many distinct nodes `images` have in total.
    #[cfg(test)]
    pub(super) fn count_nodes<'a>(images: impl Iterator<Item = &'a Self>) -> usize {
        let mut seen = std::collections::HashSet::new();
        images.for_each(|image| tree::tests::collect(&image.root, &mut seen));
        seen.len()
    }

    /// Asserts that the tree is consistent.
    #[cfg(test)]
    pub(super) fn check(&self) {
        tree::tests::check(&self.root);
    }

    /// Returns a copy in which the sections in `range`, cut at its ends, are replaced by the result
    /// of `with` for them. An empty range changes nothing.
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

/// A reader of an [`Image`] that caches the section of the last read. For one thread.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    image: &'a Image,
    last: Cell<Option<&'a Section>>,
}

impl<'a> Reader<'a> {
    /// Returns the section that contains `addr`; `None` if nothing is mapped there.
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

/// Fills `buf` from consecutive sections, which `find` returns by address, up to the first unknown
/// byte. Returns the number of bytes filled.
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
