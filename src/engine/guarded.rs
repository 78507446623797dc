//! Calls of the program that change mappings. Those that would change the tracer's own mappings are
//! not made, and fail as they would if nothing were mapped there. Before the others are made, their
//! pages get the program's permissions again.

use super::error::Error;
use super::process::TranslatedProcess;
use crate::common::{Addr, AddrRange};
use crate::insn::Registers;
use crate::tracee::Tracee;
use crate::tracee::call_numbers::{
    MMAP, MPROTECT, MREMAP, MUNMAP, PKEY_MPROTECT, REMAP_FILE_PAGES,
};

const PAGE_BYTES: u64 = 0x1000;
const MAP_FIXED: u64 = libc::MAP_FIXED as u64;
/// With this flag, the kernel itself refuses addresses that are mapped.
const MAP_FIXED_NOREPLACE: u64 = libc::MAP_FIXED_NOREPLACE as u64;
const MREMAP_FIXED: u64 = libc::MREMAP_FIXED as u64;

impl TranslatedProcess {
    /// Returns the result that a thread gets for the call `number` if it would change the tracer's
    /// mappings: a negative error number. The thread is about to make the call, with these
    /// registers, and must not. `None` if the call changes none of them.
    pub fn own_mapping_error(&self, number: u64, registers: &Registers) -> Option<i64> {
        let own = &self.window.ranges;
        let reaches = |changed: AddrRange| own.iter().any(|own| own.overlaps(changed));
        let [first, second] = changed_ranges(number, registers);
        // mremap(2) knows no mapping at the old address.
        let error = match number {
            MREMAP if reaches(first) => libc::EFAULT,
            _ if reaches(first) || reaches(second) => libc::ENOMEM,
            _ => return None,
        };
        Some(i64::from(-error))
    }

    /// Prepares for the call `number`, which a thread is about to make with these registers: on the
    /// write-protected pages whose mappings it replaces, removes or changes, restores the program's
    /// permissions, since mremap(2) passes them on, and drops the code that was translated from
    /// them. Does nothing before other calls.
    pub fn unprotect_for_mapping_call(
        &mut self,
        tracee: Tracee,
        number: u64,
        registers: &Registers,
    ) -> Result<(), Error> {
        let changed = changed_ranges(number, registers);
        changed.into_iter().try_for_each(|range| self.unprotect_and_forget(tracee, range))
    }
}

/// Returns the ranges whose mappings a call with these registers replaces, removes or changes, in
/// whole pages, the old one of mremap(2) first. A range that does not exist is empty, as are both
/// for other calls. Without `MAP_FIXED`, mmap(2) changes none.
fn changed_ranges(number: u64, r: &Registers) -> [AddrRange; 2] {
    let pages = |start: u64, size: u64| {
        let end = start.saturating_add(size).checked_next_multiple_of(PAGE_BYTES);
        AddrRange::new(Addr(start), Addr(end.unwrap_or(u64::MAX)))
    };
    let is_fixed = r.r10 & MAP_FIXED != 0 && r.r10 & MAP_FIXED_NOREPLACE == 0;
    match number {
        MMAP if is_fixed => [pages(r.rdi, r.rsi), AddrRange::default()],
        MPROTECT | PKEY_MPROTECT | MUNMAP | REMAP_FILE_PAGES => {
            [pages(r.rdi, r.rsi), AddrRange::default()]
        }
        // An old size of 0 maps the pages a second time.
        MREMAP if r.r10 & MREMAP_FIXED != 0 => [pages(r.rdi, r.rsi.max(1)), pages(r.r8, r.rdx)],
        MREMAP => [pages(r.rdi, r.rsi.max(1)), AddrRange::default()],
        _ => [AddrRange::default(); 2],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(number: u64, [rdi, rsi, rdx, r10, r8]: [u64; 5]) -> [AddrRange; 2] {
        changed_ranges(number, &Registers { r10, r8, rdx, rsi, rdi, ..Registers::default() })
    }

    #[test]
    fn calls_change_whole_pages() {
        let range = |start, end| AddrRange::new(Addr(start), Addr(end));
        assert_eq!(call(MUNMAP, [0x1000, 1, 0, 0, 0])[0], range(0x1000, 0x2000));
        assert_eq!(call(MPROTECT, [0x1000, u64::MAX, 0, 0, 0])[0], range(0x1000, u64::MAX));
        assert!(call(MMAP, [0x1000, 0x1000, 0, 0, 0])[0].is_empty());
        assert_eq!(call(MMAP, [0x1000, 0x1000, 0, MAP_FIXED, 0])[0], range(0x1000, 0x2000));
        let moved = call(MREMAP, [0x1000, 0, 0x2000, MREMAP_FIXED, 0x8000]);
        assert_eq!(moved, [range(0x1000, 0x2000), range(0x8000, 0xa000)]);
    }
}
