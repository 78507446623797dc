//! Code that can change: pages that code was translated from are write-protected where the program
//! could write them, and their translations are dropped when it does. In the address space, a page
//! is *masked* while it is write-protected. Pages of code that nothing can change are *stable*:
//! they are not protected, and their bytes are kept. Code is translated in *superblocks*, pieces
//! with one entry, which are in the *zones* of the code cache.

use super::code::CodeChange;
use super::error::{Error, checked, no_room};
use super::process::{Request, TranslatedProcess};
use super::window::ZONE_BYTES;
use crate::common::{Addr, AddrRange};
use crate::sideband::Protection;
use crate::tracee::call_numbers::MPROTECT;
use crate::tracee::{Tracee, mappings};
use crate::translate::{Bound, TranslateError};

const PAGE_BYTES: u64 = 0x1000;
const PROT_WRITE: u64 = 2;
pub(super) const EVERYWHERE: AddrRange = AddrRange::new(Addr(0), Addr(u64::MAX));
/// The maximum number of bytes that one store writes: a register of AVX-512.
const LARGEST_STORE_BYTES: u64 = 64;

/// Code that a thread is about to execute, as a translation is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WantedCode {
    /// The code that a thread in the cache asks for.
    Requested(Request),
    /// The code at an address.
    At(u64),
    /// The code at an address from which a thread resumes: it does not stop before the first
    /// instruction, even if threads are to stop there.
    PastStop(u64),
    /// The code at an address, up to a bound. Only for code that counts or records again.
    Bounded(u64, Bound),
}

/// Code that was translated.
#[derive(Debug)]
pub struct Translation {
    /// The number of the superblock.
    pub superblock: u32,
    /// The address in the cache at which the superblock is entered.
    pub address: u64,
    /// The addresses of the pages that it was translated from and that can change.
    pub pages: Vec<u64>,
    /// Bytes of these pages that changed since code was last translated from them.
    pub changes: Vec<CodeChange>,
    /// The number of edges before the translation, which is the number of the first new edge.
    pub first_edge: usize,
}

impl TranslatedProcess {
    /// Returns the program's address of code that is wanted.
    pub fn address_of(&self, wanted: WantedCode) -> u64 {
        match wanted {
            WantedCode::Requested(request) => self.requested_address(request),
            WantedCode::At(ip) | WantedCode::PastStop(ip) | WantedCode::Bounded(ip, _) => ip,
        }
    }

    /// Translates code, unless it is translated already. Adds a zone to the cache if there is no
    /// room, and fails with [`Error::NoRoom`] if it may not grow. The caller takes note of the
    /// changes and calls [`Self::write_protect`] for the pages before any thread executes the code.
    pub fn translate(&mut self, tracee: Tracee, wanted: WantedCode) -> Result<Translation, Error> {
        let first_edge = self.translator.edge_count();
        let mut changes = Vec::new();
        loop {
            let mut view = self.pages.view(&self.memory, &self.space);
            let translator = &mut self.translator;
            let result = match wanted {
                WantedCode::Requested(request) => {
                    translator.get_or_translate(request.address(translator), &mut view)
                }
                WantedCode::At(ip) => translator.get_or_translate(ip, &mut view),
                WantedCode::PastStop(ip) => translator.get_past_stop(ip, &mut view),
                WantedCode::Bounded(ip, bound) => translator.get_bounded(ip, bound, &mut view),
            };
            let (pages, news) = view.finish();
            // The next attempt knows the changes that this one found.
            changes.extend(news);
            let superblock = match result {
                Ok(superblock) => superblock,
                Err(TranslateError::NoZone(near)) => {
                    self.add_zone(tracee, near)?;
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            let address = self.entry_of(superblock, wanted);
            return Ok(Translation { superblock, address, pages, changes, first_edge });
        }
    }

    /// Returns the cache address at which a thread enters a superblock; 0 for an unknown one. After
    /// an indirect branch this is the entry that loads RCX and RDX from their slots first.
    fn entry_of(&self, superblock: u32, wanted: WantedCode) -> u64 {
        let is_indirect = matches!(wanted, WantedCode::Requested(request) if request.is_indirect());
        let entries = self.translator.superblock(superblock).map(|s| (s.accepted, s.body));
        entries.map_or(0, |(accepted, body)| if is_indirect { accepted } else { body })
    }

    /// Adds a zone to the code cache, in reach of `near`. Fails if the cache may not grow, or there
    /// is no free place.
    fn add_zone(&mut self, tracee: Tracee, near: u64) -> Result<(), Error> {
        if !self.translator.may_add_zone(near) {
            return Err(no_room());
        }
        let gadget = self.gadget();
        let (base, offset) = self.window.map_zone_near(tracee, gadget, near)?;
        self.translator.add_zone(base, ZONE_BYTES, offset);
        self.hide_new_ranges();
        Ok(())
    }

    /// Write-protects pages that code was translated from, and other mappings of the same parts of
    /// files, so that writes to them fault. Does so by calls of `tracee`, a stopped thread. Returns
    /// false if one was written since it was read: the code that was translated from it is dropped
    /// then, and has to be translated again.
    pub fn write_protect(&mut self, tracee: Tracee, pages: &[u64]) -> Result<bool, Error> {
        let mut is_current = true;
        for &page in pages {
            let range = AddrRange::sized(Addr(page), PAGE_BYTES);
            let mut was_open = self.write_protect_page(tracee, page)?;
            for alias in self.space.aliases(range) {
                was_open |= self.write_protect_page(tracee, alias.start.0)?;
            }
            if was_open && self.pages.is_overwritten(page, &self.memory) {
                self.forget_code(range);
                is_current = false;
            }
        }
        Ok(is_current)
    }

    /// Write-protects a page, and lets threads stop before calls that write memory from now on.
    /// Returns true if the program could write the page until now. If not, or if the page is closed
    /// foreign memory, does nothing.
    fn write_protect_page(&mut self, tracee: Tracee, page: u64) -> Result<bool, Error> {
        // Writes to closed memory are seen anyway.
        let is_closed = self.is_foreign(AddrRange::sized(Addr(page), PAGE_BYTES));
        let protection = self.space.protection(Addr(page)).filter(|_| !is_closed);
        let Some(protection) = protection.filter(|p| p.write && !self.space.is_masked(page)) else {
            return Ok(false);
        };
        self.space.mask(page);
        self.watch_kernel_writes();
        self.set_protection(tracee, page, prot_bits(protection) & !PROT_WRITE)?;
        Ok(true)
    }

    /// Restores the program's permission to write a page. Does nothing if the page is not
    /// write-protected.
    fn unprotect(&mut self, tracee: Tracee, page: u64) -> Result<(), Error> {
        match self.space.protection(Addr(page)) {
            Some(protection) if self.space.unmask(page) => {
                self.set_protection(tracee, page, prot_bits(protection))
            }
            _ => Ok(()),
        }
    }

    /// Restores the program's permissions on all pages, and opens all foreign memory. Keeps the
    /// translated code.
    pub fn unprotect_all(&mut self, tracee: Tracee) -> Result<(), Error> {
        self.open_foreign_range(tracee, EVERYWHERE)?;
        let pages = self.space.masked_in(EVERYWHERE);
        pages.into_iter().try_for_each(|page| self.unprotect(tracee, page))
    }

    /// Restores permissions in a child as [`Self::unprotect_all`] does. The child has a copy of the
    /// process's memory, and makes calls by the SYSCALL instruction at `gadget`. Ignores calls that
    /// fail.
    pub fn unprotect_child(&self, child: Tracee, gadget: Addr) -> Result<(), Error> {
        self.open_foreign_in_child(child, gadget)?;
        for page in self.space.masked_in(EVERYWHERE) {
            let protection = self.space.protection(Addr(page)).map_or(0, prot_bits);
            child.inject(gadget, MPROTECT, [page, PAGE_BYTES, protection, 0, 0, 0])?;
        }
        Ok(())
    }

    /// Restores the program's permissions on write-protected pages in `range`, and drops the code
    /// that was translated from them.
    pub fn unprotect_and_forget(&mut self, tracee: Tracee, range: AddrRange) -> Result<(), Error> {
        for page in self.space.masked_in(range) {
            self.unprotect(tracee, page)?;
            self.forget_code(AddrRange::sized(Addr(page), PAGE_BYTES));
        }
        Ok(())
    }

    /// Lets the program write the pages that a store at `addr` may reach, and drops the code that
    /// was translated from them.
    pub fn open_for_write(&mut self, tracee: Tracee, addr: Addr) -> Result<(), Error> {
        let last = addr.wrapping_add(LARGEST_STORE_BYTES - 1);
        self.unprotect_and_forget(tracee, AddrRange::sized(addr.page(), PAGE_BYTES))?;
        self.unprotect_and_forget(tracee, AddrRange::sized(last.page(), PAGE_BYTES))
    }

    /// Sets the protection of a page to `bits` (`PROT_*` of mprotect(2)). Does not note whether the
    /// page is write-protected then.
    pub fn set_protection(&self, tracee: Tracee, page: u64, bits: u64) -> Result<(), Error> {
        let args = [page, PAGE_BYTES, bits, 0, 0, 0];
        checked("mprotect", tracee.inject(self.gadget(), MPROTECT, args)?)?;
        Ok(())
    }

    /// Makes those of `pages` writable that are executable and not writable, and returns true if
    /// there were any. `pages` are those that a call unmapped, and that were write-protected when
    /// the call was seen to be done. If one is mapped, it is a new mapping: another thread mapped
    /// the same addresses after the call, and executed code there, so that it was protected.
    pub fn open_new_mappings(&mut self, tracee: Tracee, pages: &[u64]) -> Result<bool, Error> {
        let mut opened = false;
        for &page in pages {
            let protection = self.space.protection(Addr(page));
            let Some(protection) = protection.filter(|p| p.execute && !p.write) else { continue };
            self.set_protection(tracee, page, prot_bits(protection) | PROT_WRITE)?;
            opened = true;
        }
        Ok(opened)
    }

    /// Drops all that was translated from code in `range`, which changed, and in other mappings of
    /// the same parts of files. Forgets the bytes of stable pages there. Pages that are
    /// write-protected stay so.
    pub fn forget_code(&mut self, range: AddrRange) {
        let places: Vec<_> = std::iter::once(range).chain(self.space.aliases(range)).collect();
        for place in &places {
            self.translator.invalidate(place.start.0, place.end.0);
        }
        self.pages.forget_stable(|page| overlap_page(&places, page));
    }

    /// Forgets the bytes of stable pages that are in `changed`, or that are no longer stable. Drops
    /// no translations.
    pub fn forget_stable_code(&mut self, changed: &[AddrRange]) {
        let space = &self.space;
        self.pages.forget_stable(|page| !space.is_stable(page) || overlap_page(changed, page));
    }

    /// Returns the code pages that can change, were translated from, and begin in one of `ranges`,
    /// each with its bytes at the last translation.
    pub fn changing_code_in(&self, ranges: &[AddrRange]) -> Vec<CodeChange> {
        self.pages.changing_pages_in(ranges)
    }

    /// Returns true if the kernel's mapping at `addr` now allows loads and stores. On x86, each
    /// page that can be written can be read. Pages that the tracer write-protects are not writable.
    pub(super) fn is_writable(&self, addr: Addr) -> Result<bool, Error> {
        let maps = mappings(self.pid)?;
        let at = maps.iter().find(|mapping| mapping.range.contains(addr));
        Ok(at.is_some_and(|mapping| mapping.protection.write))
    }
}

/// Returns a protection as bits of mprotect(2) (`PROT_*`).
pub fn prot_bits(protection: Protection) -> u64 {
    u64::from(protection.read)
        | u64::from(protection.write) << 1
        | u64::from(protection.execute) << 2
}

/// Returns true if a part of a page is in one of the ranges.
fn overlap_page(ranges: &[AddrRange], page: Addr) -> bool {
    let page = AddrRange::sized(page, PAGE_BYTES);
    ranges.iter().any(|range| range.overlaps(page))
}
