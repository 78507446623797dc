//! Mappings as the program made them, from those that the kernel reports: the recorder took the
//! write permission of some pages away, to see code being written. These pages are *masked*.

use crate::common::{Addr, AddrRange};
use crate::sideband::Mapping;
use std::collections::BTreeSet;

const PAGE_BYTES: u64 = 0x1000;

/// Returns the mappings, which the kernel reports, with write permission on the pages whose
/// addresses are in `masked`, joined again where its removal had split them.
pub(super) fn restore_writes(maps: Vec<Mapping>, masked: &BTreeSet<u64>) -> Vec<Mapping> {
    if masked.is_empty() {
        return maps;
    }
    let mut joined: Vec<(Mapping, bool)> = Vec::with_capacity(maps.len());
    for mapping in maps {
        let range = mapping.range;
        let touched = masked.range(range.start.0..range.end.0).next().is_some();
        if mapping.protection.write || !touched {
            join(&mut joined, mapping, false);
            continue;
        }
        let mut start = range.start.0;
        while start < range.end.0 {
            let is_masked = masked.contains(&start);
            let mut end = start;
            while end < range.end.0 && masked.contains(&end) == is_masked {
                end += PAGE_BYTES;
            }
            let mut part = mapping.clone();
            part.range = AddrRange::new(Addr(start), Addr(end));
            part.offset += start - range.start.0;
            part.protection.write |= is_masked;
            join(&mut joined, part, is_masked);
            start = end;
        }
    }
    joined.into_iter().map(|(mapping, _)| mapping).collect()
}

/// Appends a mapping, or joins it to the last one, if they fit together and one of the two is a
/// part that was split off: `touched`, and the second of each pair of `joined`.
pub(super) fn join(joined: &mut Vec<(Mapping, bool)>, mapping: Mapping, touched: bool) {
    if let Some((last, last_touched)) = joined.last_mut() {
        let goes_on = last.offset + last.range.size_bytes() == mapping.offset;
        let same = last.protection == mapping.protection
            && (last.device, last.inode, &last.name)
                == (mapping.device, mapping.inode, &mapping.name)
            && (mapping.inode == 0 || goes_on);
        if (touched || *last_touched) && same && last.range.end == mapping.range.start {
            last.range.end = mapping.range.end;
            *last_touched = true;
            return;
        }
    }
    joined.push((mapping, touched));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sideband::parse_maps;

    #[test]
    fn a_masked_page_is_what_the_program_made_it() {
        let before = parse_maps("10000-14000 rwxp 0 00:00 0 \n20000-21000 r-xp 0 00:00 0 \n");
        let split = "10000-12000 rwxp 0 00:00 0 \n12000-13000 r-xp 0 00:00 0 \n\
                     13000-14000 rwxp 0 00:00 0 \n20000-21000 r-xp 0 00:00 0 \n";
        let seen = restore_writes(parse_maps(split).unwrap(), &BTreeSet::from([0x12000]));
        assert_eq!(seen, before.unwrap());
    }

    #[test]
    fn a_page_that_was_never_writable_stays_so() {
        let text = "10000-12000 r-xp 3000 00:00 7 /x\n";
        let seen = restore_writes(parse_maps(text).unwrap(), &BTreeSet::from([0x11000]));
        let writable: Vec<_> =
            seen.iter().map(|m| (m.range.start.0, m.offset, m.protection.write)).collect();
        assert_eq!(writable, [(0x10000, 0x3000, false), (0x11000, 0x4000, true)]);
    }
}
