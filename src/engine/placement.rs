//! Chooses the addresses of the tracer's mappings in a process: away from the places that the
//! kernel takes for the program, and near the code that is translated.

use super::shared::LARGE_PAGE_BYTES;
use crate::common::AddrRange;

/// The lowest address that is used. It is above the kernel's limit (`vm.mmap_min_addr`), which is
/// 64 KiB by default.
const LOWEST: u64 = 0x10_0000;
/// The end of the addresses that are used, which is that of a program's (`TASK_SIZE_MAX` of the
/// kernel).
const HIGHEST: u64 = 0x7fff_ffff_f000;
/// All addresses are multiples of this, so that the kernel can use large pages.
const ALIGNMENT: u64 = LARGE_PAGE_BYTES as u64;
/// The bytes that are left free on both sides of the tracer's mappings, if there is room.
const MARGIN: u64 = 0x10_0000;
/// Code below this address is that of a program at a fixed low address, which has its heap after
/// it: the cache goes above both.
const LOW_PROGRAM: u64 = 0x2000_0000;
const ABOVE_LOW_PROGRAM: u64 = 0x5000_0000;
/// The bytes that are left free between the cache and the code above it, for libraries and heaps
/// that are mapped later.
const BELOW_CODE: u64 = 0x1800_0000;

/// Returns a free address for `size` bytes, all of them nearer than `reach` to `near`, and outside
/// the ranges `taken`; `None` if there is none. Prefers addresses some distance below `near`, or
/// above low programs.
pub(super) fn choose_address(taken: &[AddrRange], near: u64, size: u64, reach: u64) -> Option<u64> {
    let preferred = if near < LOW_PROGRAM {
        ABOVE_LOW_PROGRAM
    } else {
        near.saturating_sub(BELOW_CODE + size).max(LOWEST)
    };
    let preferred = preferred - preferred % ALIGNMENT;
    let in_reach = |addr: &u64| {
        let inside = *addr >= LOWEST && *addr <= HIGHEST - size;
        inside && addr.abs_diff(near).saturating_add(size) < reach
    };
    [MARGIN, 0].into_iter().find_map(|margin| {
        let candidates = free_near(taken, preferred, size, margin);
        candidates.into_iter().filter(in_reach).min_by_key(|addr| addr.abs_diff(preferred))
    })
}

/// Returns true if [`choose_address`] may place a mapping at `range`, by the addresses alone: it is
/// aligned, and between the limits. The caller checks that the range is free and in reach.
pub(super) fn is_eligible(range: AddrRange) -> bool {
    let start = range.start.0;
    start >= LOWEST && range.end.0 <= HIGHEST && start.is_multiple_of(ALIGNMENT)
}

/// Returns the addresses of candidates for `size` free bytes with `margin` around them:
/// `preferred`, and places right below and above the mappings.
fn free_near(taken: &[AddrRange], preferred: u64, size: u64, margin: u64) -> Vec<u64> {
    let free = |addr: &u64| {
        let wanted = AddrRange::sized(addr.saturating_sub(margin).into(), size + 2 * margin);
        !taken.iter().any(|range| range.overlaps(wanted))
    };
    let edges = taken.iter().flat_map(|range| {
        let below = range.start.0.saturating_sub(size + margin);
        let above = range.end.0.saturating_add(margin + ALIGNMENT - 1);
        [below, above].map(|addr| addr - addr % ALIGNMENT)
    });
    std::iter::once(preferred).chain(edges).filter(free).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(maps: &str) -> Vec<AddrRange> {
        let maps = crate::sideband::parse_maps(maps).unwrap();
        maps.into_iter().map(|mapping| mapping.range).collect()
    }

    const REACH: u64 = 0x6000_0000;

    #[test]
    fn the_cache_keeps_its_distance() {
        let maps = taken(
            "555555554000-555555560000 r-xp 0 00:00 1 /bin/p\n\
             555555560000-555555590000 rw-p 0 00:00 0 [heap]\n\
             7ffff7dd0000-7ffff7fff000 r-xp 0 00:00 2 /lib/ld\n\
             7ffffffde000-7ffffffff000 rw-p 0 00:00 0 [stack]\n",
        );
        let size = 0x400_0000;
        for near in [0x5555_5555_4000, 0x7fff_f7dd_0000] {
            let at = choose_address(&maps, near, size, REACH).unwrap();
            assert!(at + size + BELOW_CODE <= near && near - at < REACH, "{at:#x}");
        }
        assert_eq!(choose_address(&maps, 0x40_0000, size, REACH), Some(ABOVE_LOW_PROGRAM));
    }

    // In a replay. The recorder's zone was there, and the program's mappings are right beside it.
    #[test]
    fn a_gap_that_just_fits_is_used() {
        let maps = taken(
            "7ffabbe00000-7fffdbe00000 rwxp 0 00:00 0 \n\
             7fffdfe00000-7ffffffff000 rw-p 0 00:00 0 \n",
        );
        let at = choose_address(&maps, 0x7fff_dbc0_0000, 0x400_0000, REACH);
        assert_eq!(at, Some(0x7fff_dbe0_0000));
        assert_eq!(choose_address(&maps, 0x7fff_dbc0_0000, 0x420_0000, REACH), None);
    }

    #[test]
    fn a_full_neighbourhood_is_left_for_the_next_gap() {
        let maps = taken("7fff00000000-7ffff7fff000 rw-p 0 00:00 0 \n");
        let at = choose_address(&maps, 0x7fff_0000_0000, 0x100_0000, REACH).unwrap();
        assert!(at + 0x100_0000 <= 0x7fff_0000_0000);
        let full = taken("100000-7ffffffff000 rw-p 0 00:00 0 \n");
        assert_eq!(choose_address(&full, 0x7fff_0000_0000, 0x1000, REACH), None);
    }
}
