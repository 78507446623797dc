//! Decodes the code of a process: once where it cannot change, and at each step where it can.

use crate::common::Addr;
use crate::insn::{ExecMode, Insn, MAX_INSN_BYTES, decode};
use crate::tracee::Memory;
use std::collections::HashMap;

const PAGE_BYTES: usize = 4096;

/// The decoded instructions of code that cannot change, and the recorded pages of code that can.
#[derive(Debug, Default)]
pub(super) struct DecodedCode {
    stable: HashMap<Addr, Option<Insn>>,
    pages: HashMap<Addr, Box<[u8; PAGE_BYTES]>>,
}

/// Bytes of code that changed and are not recorded yet.
#[derive(Debug)]
pub(super) struct Change {
    pub(super) addr: Addr,
    pub(super) bytes: Vec<u8>,
}

impl DecodedCode {
    /// Forgets all instructions and known pages, since the mappings of code changed.
    pub(super) fn clear(&mut self) {
        self.stable.clear();
        self.pages.clear();
    }

    /// Returns the instruction at `ip`, in memory that cannot change; `None` if it is invalid.
    pub(super) fn stable(&mut self, ip: Addr, memory: &Memory) -> Option<Insn> {
        *self.stable.entry(ip).or_insert_with(|| read_insn(ip, memory))
    }

    /// Returns the instruction at `ip`, in memory that can change (`None` if it is invalid), and
    /// the changes of its pages since the last call for them: the whole page at the first one.
    pub(super) fn changing(&mut self, ip: Addr, memory: &Memory) -> (Option<Insn>, Vec<Change>) {
        let insn = read_insn(ip, memory);
        let len = u64::from(insn.map_or(1, |insn| insn.len));
        let last = ip.wrapping_add(len - 1);
        let mut changes = self.page_change(ip, ip.page(), memory);
        if last.page() != ip.page() {
            changes.extend(self.page_change(last.page(), last.page(), memory));
        }
        (insn, changes)
    }

    /// Compares the bytes at `at`, which are in `page`, with the known bytes of that page. If they
    /// differ, or the page is not known, reads the whole page, and returns its change. Otherwise,
    /// or if it cannot be read, returns nothing.
    fn page_change(&mut self, at: Addr, page: Addr, memory: &Memory) -> Vec<Change> {
        let offset = usize::try_from(at.0 - page.0).unwrap_or(0);
        let end = (offset + MAX_INSN_BYTES).min(PAGE_BYTES);
        let mut now = [0; MAX_INSN_BYTES];
        let now = &mut now[..end - offset];
        if memory.read(at, now) < now.len() {
            return Vec::new();
        }
        if self.pages.get(&page).is_some_and(|known| known[offset..end] == *now) {
            return Vec::new();
        }
        let mut fresh = Box::new([0; PAGE_BYTES]);
        if memory.read(page, &mut fresh[..]) < PAGE_BYTES {
            return Vec::new();
        }
        let change = difference(page, self.pages.get(&page).map(|known| &known[..]), &fresh[..]);
        self.pages.insert(page, fresh);
        vec![change]
    }
}

/// Returns the smallest run of bytes that contains all changes; the whole page without `old`.
fn difference(page: Addr, old: Option<&[u8]>, new: &[u8]) -> Change {
    let differs = |i: &usize| old.is_none_or(|old| old[*i] != new[*i]);
    let first = (0..new.len()).find(differs).unwrap_or(0);
    let last = (0..new.len()).rev().find(differs).unwrap_or(0);
    Change { addr: page.wrapping_add(first as u64), bytes: new[first..=last].to_vec() }
}

/// Reads and decodes the instruction at an address; `None` if it cannot be read, or is invalid.
fn read_insn(ip: Addr, memory: &Memory) -> Option<Insn> {
    let mut bytes = [0; MAX_INSN_BYTES];
    let known = memory.read(ip, &mut bytes);
    decode(&bytes[..known], ip, ExecMode::Bits64)
}
