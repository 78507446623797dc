//! Formats ranges of code for `PERF_EVENT_IOC_SET_FILTER` (`perf_event_parse_addr_filter` in
//! kernel/events/core.c). The kernel identifies a program's code by the mapped file.

use crate::capture::perf_error::Error;
use crate::common::AddrRange;
use crate::encode::Ranges;
use crate::sideband::Mapping;

/// Returns the filter text for these ranges as they are mapped, empty if all code is to be traced;
/// `None` if nothing may be traced yet, since the kernel traces everything without a filter. Fails
/// if the kernel cannot filter by one of the ranges.
pub(super) fn filter_text(ranges: &Ranges, maps: &[Mapping]) -> Result<Option<String>, Error> {
    let only = ranges.only().iter().map(|range| range_text("filter", *range, maps));
    let stop = ranges.stop().iter().map(|range| range_text("stop", *range, maps));
    let words = only.chain(stop).collect::<Result<Vec<_>, _>>()?;
    let is_nothing_yet = ranges.has_filter() && ranges.only().is_empty();
    Ok((!is_nothing_yet).then(|| words.join(" ")))
}

/// Returns the part of the filter text for one range; an error if the kernel cannot filter by it.
fn range_text(action: &str, range: AddrRange, maps: &[Mapping]) -> Result<String, Error> {
    let refused = |why| Error::Filter { range: range.to_string(), why };
    let holds = |m: &&Mapping| m.range.start <= range.start && range.end <= m.range.end;
    let mapping = maps.iter().find(holds).filter(|m| m.is_file());
    let mapping =
        mapping.ok_or_else(|| refused("the kernel filters by code of one mapped file only"))?;
    let is_hard = |c: char| c.is_whitespace() || matches!(c, ',' | '@');
    if mapping.name.split('/').any(|part| part.contains(is_hard)) {
        return Err(refused("the kernel rejects files whose path has spaces, commas or @"));
    }
    let offset = mapping.offset + (range.start.0 - mapping.range.start.0);
    Ok(format!("{action} {offset:#x}/{:#x}@{}", range.size_bytes(), mapping.name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capture::filter::{Code, Filter, Resolver};
    use crate::common::Addr;
    use crate::sideband::parse_maps;

    const MAPS: &str = "400000-402000 r-xp 00001000 00:00 7 /bin/x\n\
                        500000-501000 r-xp 00000000 00:00 0 \n\
                        600000-601000 r-xp 00000000 00:00 8 /bin/a b\n";

    fn filter(only: &[(u64, u64)], stop: &[(u64, u64)]) -> Result<Option<String>, String> {
        let code =
            |(start, end): &(u64, u64)| Code::Range(AddrRange::new(Addr(*start), Addr(*end)));
        let (only, stop) = (only.iter().map(code).collect(), stop.iter().map(code).collect());
        let resolver = Resolver::new(&Filter { only, stop });
        let maps = parse_maps(MAPS).unwrap();
        filter_text(resolver.ranges(), &maps).map_err(|error| error.to_string())
    }

    #[test]
    fn ranges_are_named_by_their_file() {
        assert_eq!(filter(&[], &[]), Ok(Some(String::new())));
        let both =
            filter(&[(0x40_0010, 0x40_0020), (0x40_1000, 0x40_2000)], &[(0x40_0100, 0x40_0104)]);
        let expected =
            "filter 0x1010/0x10@/bin/x filter 0x2000/0x1000@/bin/x stop 0x1100/0x4@/bin/x";
        assert_eq!(both, Ok(Some(expected.to_owned())));
    }

    #[test]
    fn what_the_kernel_does_not_take_is_refused() {
        assert!(filter(&[(0x50_0000, 0x50_0010)], &[]).unwrap_err().contains("one mapped file"));
        assert!(filter(&[(0x40_1000, 0x40_3000)], &[]).unwrap_err().contains("one mapped file"));
        assert!(filter(&[(0x60_0000, 0x60_0010)], &[]).unwrap_err().contains("spaces"));
    }

    #[test]
    fn a_function_that_is_not_there_yet_means_nothing_and_not_all() {
        let only = vec![Code::Function("later".to_owned())];
        let resolver = Resolver::new(&Filter { only, stop: Vec::new() });
        assert_eq!(filter_text(resolver.ranges(), &[]).unwrap(), None);
    }
}
