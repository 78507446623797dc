//! Lists of mappings as the kernel writes them (`/proc/PID/maps`, `smaps`; proc(5)).

use crate::common::{Addr, AddrRange};

/// Returns a list of mappings without those that overlap a range of `hidden`, and without the lines
/// of `smaps` about them. A mapping that overlaps one in part is left out as a whole.
pub fn list_without(list: &str, hidden: &[AddrRange]) -> String {
    let mut is_hidden = false;
    let kept = list.split_inclusive('\n').filter(|line| {
        if let Some(range) = range_of(line) {
            is_hidden = hidden.iter().any(|hidden| hidden.overlaps(range));
        }
        !is_hidden
    });
    kept.collect()
}

/// Returns the range with which a line begins; `None` if the line is about the mapping above it.
fn range_of(line: &str) -> Option<AddrRange> {
    let (start, end) = line.split_once(' ')?.0.split_once('-')?;
    let number = |text| u64::from_str_radix(text, 16).ok().map(Addr);
    Some(AddrRange::new(number(start)?, number(end)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_of_hidden_mappings_are_left_out() {
        let smaps = "1000-3000 r-xp 0 00:00 0 /a\nSize: 8 kB\nVmFlags: rd ex\n\
                     3000-5000 rw-s 0 00:01 7 /memfd:x\nSize: 8 kB\nVmFlags: rd wr\n\
                     5000-6000 rw-p 0 00:00 0 \nSize: 4 kB\n";
        let hidden = [AddrRange::new(Addr(0x3000), Addr(0x5000))];
        let left = "1000-3000 r-xp 0 00:00 0 /a\nSize: 8 kB\nVmFlags: rd ex\n\
                    5000-6000 rw-p 0 00:00 0 \nSize: 4 kB\n";
        assert_eq!(list_without(smaps, &hidden), left);
        assert_eq!(list_without("", &hidden), "");
    }
}
