//! The program's code for the translator: pages of the process, read once where they cannot change
//! (they are *stable*), and at each translation where they can (*changing* pages).

use super::address_space::AddressSpace;
use crate::common::{Addr, AddrRange};
use crate::tracee::Memory;
use crate::translate::{AddressMap, ProgramCode};

const PAGE_BYTES: usize = 4096;

type Page = Box<[u8; PAGE_BYTES]>;

/// Pages of the program's code that were read, by address.
#[derive(Debug, Default)]
pub(super) struct CodePages {
    /// The pages that cannot change ([`AddressSpace::is_stable`]); `None` is one that cannot be
    /// read.
    stable: AddressMap<u64, Option<Page>>,
    /// The pages that can change and were translated from, with their bytes at the last
    /// translation.
    changing: AddressMap<u64, Page>,
}

/// New bytes of code, at their address: they changed, or were read for the first time.
#[derive(Debug, PartialEq, Eq)]
pub struct CodeChange {
    /// The address of the first byte.
    pub addr: Addr,
    /// The bytes as they are now.
    pub bytes: Vec<u8>,
}

impl CodePages {
    /// Forgets the bytes of the pages that cannot change for which `is_forgotten` returns true, by
    /// their addresses. They are read again when code there is next translated.
    pub(super) fn forget_stable(&mut self, is_forgotten: impl Fn(Addr) -> bool) {
        self.stable.retain(|page, _| !is_forgotten(Addr(*page)));
    }

    /// Returns the pages that can change, were translated from, and begin in one of `ranges`, each
    /// with its bytes at the last translation.
    pub(super) fn changing_pages_in(&self, ranges: &[AddrRange]) -> Vec<CodeChange> {
        let inside = |page: u64| ranges.iter().any(|range| range.contains(Addr(page)));
        let pages = self.changing.iter().filter(|(page, _)| inside(**page));
        pages.map(|(&page, bytes)| CodeChange { addr: Addr(page), bytes: bytes.to_vec() }).collect()
    }

    /// Returns the addresses of the pages that can change and were translated from.
    pub(super) fn changing_addresses(&self) -> Vec<u64> {
        self.changing.keys().copied().collect()
    }

    /// Returns true if code was translated from a page that can change.
    pub(super) fn has_changing(&self) -> bool {
        !self.changing.is_empty()
    }

    /// Returns the addresses of the pages that can change, were translated from, and begin in one
    /// of the ranges.
    pub(super) fn changing_addresses_in(&self, ranges: &[AddrRange]) -> Vec<u64> {
        let is_in = |page: &u64| ranges.iter().any(|range| range.contains(Addr(*page)));
        self.changing.keys().copied().filter(is_in).collect()
    }

    /// Forgets the bytes of a page that can change. The next translation from it reports the whole
    /// page as new.
    pub(super) fn forget_changing(&mut self, page: u64) {
        self.changing.remove(&page);
    }

    /// Returns true if the bytes of a page that can change are not those at its last translation.
    /// Returns false if no code was translated from the page, or it cannot be read. Keeps the bytes
    /// of the last translation.
    pub(super) fn is_overwritten(&self, page: u64, memory: &Memory) -> bool {
        let mut now = [0; PAGE_BYTES];
        let translated = self.changing.get(&page);
        translated.is_some_and(|translated| {
            memory.read(Addr(page), &mut now) == PAGE_BYTES && **translated != now
        })
    }

    /// Returns the program's code as one translation reads it.
    pub(super) fn view<'a>(
        &'a mut self,
        memory: &'a Memory,
        space: &'a AddressSpace,
    ) -> CodeView<'a> {
        CodeView { pages: self, memory, space, read: AddressMap::default() }
    }
}

/// The program's code during one translation. Each page is read once at most.
#[derive(Debug)]
pub(super) struct CodeView<'a> {
    pages: &'a mut CodePages,
    memory: &'a Memory,
    space: &'a AddressSpace,
    /// The pages that can change and were read in this translation; `None` for one that cannot be
    /// read.
    read: AddressMap<u64, Option<Page>>,
}

impl CodeView<'_> {
    /// Returns a page of code; `None` if it cannot be read, or is neither stable nor executable.
    fn page(&mut self, page: u64) -> Option<&[u8; PAGE_BYTES]> {
        let memory = self.memory;
        let read = || {
            let mut bytes = Box::new([0; PAGE_BYTES]);
            (memory.read(Addr(page), &mut bytes[..]) == PAGE_BYTES).then_some(bytes)
        };
        let known = if self.space.is_stable(Addr(page)) {
            self.pages.stable.entry(page).or_insert_with(read)
        } else if self.space.is_executable(Addr(page)) {
            self.read.entry(page).or_insert_with(read)
        } else {
            return None;
        };
        known.as_deref()
    }

    /// Ends the translation. Returns the addresses of the pages that were read and can change, and
    /// the changes of these pages since the last translation from them: the whole page if it is the
    /// first one, nothing for a page that cannot be read. Keeps their bytes, to find the next
    /// changes.
    pub(super) fn finish(self) -> (Vec<u64>, Vec<CodeChange>) {
        let mut changes = Vec::new();
        let mut pages = Vec::new();
        for (page, bytes) in self.read {
            pages.push(page);
            let Some(bytes) = bytes else { continue };
            let translated = self.pages.changing.get(&page);
            if translated.is_some_and(|translated| *translated == bytes) {
                continue;
            }
            changes.push(difference(
                page,
                translated.map(|translated| &translated[..]),
                &bytes[..],
            ));
            self.pages.changing.insert(page, bytes);
        }
        (pages, changes)
    }
}

impl ProgramCode for CodeView<'_> {
    fn is_fixed(&self, ip: u64) -> bool {
        self.space.is_stable(Addr(ip))
    }

    fn fetch(&mut self, ip: u64, buf: &mut [u8]) -> usize {
        let mut done = 0;
        while done < buf.len() {
            let at = ip.wrapping_add(done as u64);
            let Some(page) = self.page(at & !0xfff) else { break };
            let offset = usize::try_from(at & 0xfff).unwrap_or(0);
            let len = (PAGE_BYTES - offset).min(buf.len() - done);
            buf[done..done + len].copy_from_slice(&page[offset..offset + len]);
            done += len;
        }
        done
    }
}

/// Returns the shortest part of `new` that contains all bytes that differ from `old`; the whole
/// page without `old`.
fn difference(page: u64, old: Option<&[u8]>, new: &[u8]) -> CodeChange {
    let differs = |i: &usize| old.is_none_or(|old| old[*i] != new[*i]);
    let first = (0..new.len()).find(differs).unwrap_or(0);
    let last = (0..new.len()).rev().find(differs).unwrap_or(0);
    CodeChange { addr: Addr(page + first as u64), bytes: new[first..=last].to_vec() }
}
