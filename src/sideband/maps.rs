//! Parses the kernel's list of mappings (`/proc/PID/maps`, proc(5)), and compares two such lists.
//! Reads no file.

use super::Protection;
use crate::common::{Addr, AddrRange};

/// One line of `/proc/PID/maps`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mapping {
    /// The mapped addresses.
    pub range: AddrRange,
    /// The permissions of its pages.
    pub protection: Protection,
    /// The file offset of the first byte, in bytes.
    pub offset: u64,
    /// The number of the file's device: the major one in the upper half, and the minor one.
    pub device: u64,
    /// The file's inode; 0 without a file.
    pub inode: u64,
    /// The path, a name in brackets, or empty.
    pub name: String,
}

impl Mapping {
    /// Returns true if a file with a path backs the mapping: it has an inode, and its name begins
    /// with `/`.
    pub fn is_file(&self) -> bool {
        self.inode != 0 && self.name.starts_with('/')
    }

    /// Returns true if both mappings have the same device, inode and name, as mappings of one file
    /// have; so do anonymous ones. Ignores the mark that the kernel adds to the name of a removed
    /// file.
    pub fn is_same_file(&self, other: &Self) -> bool {
        fn name(mapping: &Mapping) -> &str {
            mapping.name.strip_suffix(" (deleted)").unwrap_or(&mapping.name)
        }
        (self.device, self.inode) == (other.device, other.inode) && name(self) == name(other)
    }
}

/// A malformed line of a maps file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a line of /proc/PID/maps: {line:?}")]
pub struct ParseMapsError {
    /// The line.
    pub line: String,
}

/// Parses the text of `/proc/PID/maps`. Returns the mappings in the order of its lines, or the
/// first malformed line.
pub fn parse_maps(text: &str) -> Result<Vec<Mapping>, ParseMapsError> {
    text.lines()
        .map(|line| parse_line(line).ok_or_else(|| ParseMapsError { line: line.to_owned() }))
        .collect()
}

/// Parses a line; `None` if it is malformed.
fn parse_line(line: &str) -> Option<Mapping> {
    let mut fields = line.splitn(6, ' ');
    let (start, end) = fields.next()?.split_once('-')?;
    let flags = fields.next()?.as_bytes();
    let offset = u64::from_str_radix(fields.next()?, 16).ok()?;
    let (major, minor) = fields.next()?.split_once(':')?;
    let inode = fields.next()?.parse().ok()?;
    let name = fields.next().unwrap_or("").trim_start().to_owned();
    let hex = |s| u64::from_str_radix(s, 16).ok().map(Addr);
    let part = |s| u32::from_str_radix(s, 16).ok().map(u64::from);
    Some(Mapping {
        range: AddrRange::new(hex(start)?, hex(end)?),
        protection: Protection {
            read: *flags.first()? == b'r',
            write: *flags.get(1)? == b'w',
            execute: *flags.get(2)? == b'x',
            shared: *flags.get(3)? == b's',
        },
        offset,
        device: part(major)? << 32 | part(minor)?,
        inode,
        name,
    })
}

/// The last known mappings of a process, kept to detect changes.
#[derive(Clone, Debug, Default)]
pub struct MappingSet {
    mappings: Vec<Mapping>,
}

impl MappingSet {
    /// Replaces the set by `now`, which is sorted by address. Returns the mappings that were
    /// removed (those not in `now`), and those that were added. A mapping of which anything
    /// changed, such as its extent or protection, is in both.
    pub fn update(&mut self, now: Vec<Mapping>) -> (Vec<Mapping>, Vec<Mapping>) {
        let gone = self.mappings.iter().filter(|m| !contains(&now, m)).cloned().collect();
        let new = now.iter().filter(|m| !contains(&self.mappings, m)).cloned().collect();
        self.mappings = now;
        (gone, new)
    }

    /// Replaces the mappings that share a byte with `range` by `now`: all mappings there now,
    /// sorted by address. None in `now` may share a byte with another mapping of the set, so
    /// `range` must contain all old and new mappings that it touches. Returns the removed and the
    /// added ones, as [`update`](Self::update) does. An empty range counts as sharing a byte with
    /// the mapping around it.
    pub fn update_in(&mut self, range: AddrRange, now: &[Mapping]) -> (Vec<Mapping>, Vec<Mapping>) {
        let first = self.mappings.partition_point(|m| m.range.end <= range.start);
        let end = self.mappings.partition_point(|m| m.range.start < range.end).max(first);
        let new = now.iter().filter(|m| !contains(&self.mappings[first..end], m)).cloned();
        let new: Vec<Mapping> = new.collect();
        let before: Vec<Mapping> = self.mappings.splice(first..end, now.iter().cloned()).collect();
        let gone = before.into_iter().filter(|m| !contains(now, m)).collect();
        (gone, new)
    }

    /// Returns all mappings, by address.
    pub fn iter(&self) -> impl Iterator<Item = &Mapping> {
        self.mappings.iter()
    }

    /// Returns the mappings that share a byte with `range`, by address; none if it is empty.
    pub fn overlapping(&self, range: AddrRange) -> impl Iterator<Item = &Mapping> {
        let first = self.mappings.partition_point(|m| m.range.end <= range.start);
        let shares_byte = move |m: &&Mapping| m.range.start < range.end && !range.is_empty();
        self.mappings[first..].iter().take_while(shares_byte)
    }

    /// Returns the mapping that contains `addr`; `None` if nothing is mapped there.
    pub fn at(&self, addr: Addr) -> Option<&Mapping> {
        let i = self.mappings.partition_point(|m| m.range.end <= addr);
        self.mappings.get(i).filter(|m| m.range.contains(addr))
    }
}

/// Returns true if a mapping equal to `wanted` is in the list, which is sorted by address.
fn contains(sorted: &[Mapping], wanted: &Mapping) -> bool {
    sorted.binary_search_by_key(&wanted.range.start, |m| m.range.start).is_ok_and(|i| {
        // The search found this index.
        sorted.get(i) == Some(wanted)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &str = "\
00400000-00401000 r--p 00000000 08:01 123 /bin/a b
00401000-00402000 r-xp 00001000 08:01 123 /bin/a b
7ffd0000-7ffe0000 rw-p 00000000 00:00 0                  [stack]
";

    #[test]
    fn a_path_may_hold_spaces() {
        let maps = parse_maps(BEFORE).unwrap();
        assert_eq!(maps[1].name, "/bin/a b");
        assert!(maps[1].is_file() && maps[1].protection.execute);
        assert_eq!(maps[2].name, "[stack]");
        assert!(!maps[2].is_file());
    }

    #[test]
    fn a_changed_protection_is_gone_and_new() {
        let mut set = MappingSet::default();
        let (gone, new) = set.update(parse_maps(BEFORE).unwrap());
        assert_eq!((gone.len(), new.len()), (0, 3));
        let after = BEFORE.replace("r-xp", "rwxp");
        let (gone, new) = set.update(parse_maps(&after).unwrap());
        assert_eq!((gone.len(), new.len()), (1, 1));
        assert!(new[0].protection.write);
        assert_eq!(set.at(Addr(0x0040_1fff)).unwrap().range.start, Addr(0x0040_1000));
        assert!(set.at(Addr(0x0040_2000)).is_none());
    }

    #[test]
    fn a_part_is_replaced_as_the_whole_is() {
        let (mut whole, mut part) = (MappingSet::default(), MappingSet::default());
        whole.update(parse_maps(BEFORE).unwrap());
        part.update(parse_maps(BEFORE).unwrap());
        let after = BEFORE.replace("r-xp", "rwxp").replace("00402000", "00403000");
        let now = parse_maps(&after).unwrap();
        let range = AddrRange::new(Addr(0x0040_1000), Addr(0x0040_3000));
        assert_eq!(part.update_in(range, &now[1..2]), whole.update(now.clone()));
        assert!(part.iter().eq(&now) && whole.iter().eq(&now));
        let (gone, new) = part.update_in(range, &[]);
        assert_eq!((gone, new), (now[1..2].to_vec(), Vec::new()));
        // Between others, where nothing was.
        let (gone, new) = part.update_in(range, &now[1..2]);
        assert_eq!((gone, new), (Vec::new(), now[1..2].to_vec()));
        assert!(part.iter().eq(&now));
    }

    #[test]
    fn an_empty_range_shares_no_byte_with_a_mapping() {
        let mut set = MappingSet::default();
        set.update(parse_maps(BEFORE).unwrap());
        let inside = Addr(0x7ffd_8000);
        assert_eq!(set.overlapping(AddrRange::sized(inside, 1)).count(), 1);
        assert_eq!(set.overlapping(AddrRange::sized(inside, 0)).count(), 0);
    }

    #[test]
    fn nonsense_is_refused_with_its_line() {
        assert_eq!(parse_maps("what\n").unwrap_err().line, "what");
    }
}
