//! The compilation units of a module: finds the one that covers an address, and reads its parts on
//! first use. `code` has the executable ranges of the module.

use super::lines::Lines;
use super::scopes::Scopes;
use super::{Reader, sections};
use crate::symbols::debug_file::normalized;
use crate::symbols::files::{Files, open};
use crate::symbols::spans::{Span, Spans};
use gimli::{AttributeValue, DebuggingInformationEntry as Entry, UnitRef};
use gimli::{Reader as _, Section as _};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, OnceLock};

/// The limit on address ranges of one unit, or of the list of units. More are damage.
const MAX_RANGES: usize = 1 << 22;

/// The limit on attributes of an entry. Compilers write at most thirty.
const MAX_ATTRIBUTES: usize = 256;

/// All units of one file, by their offset in `.debug_info`.
#[derive(Debug)]
pub(super) struct Units {
    pub(super) dwarf: gimli::Dwarf<Reader>,
    pub(super) units: Vec<Unit>,
}

/// One compilation unit.
#[derive(Debug)]
pub(super) struct Unit {
    /// Its offset in `.debug_info`.
    pub(super) offset: usize,
    /// The unit's header and root entry; for split DWARF, those of the skeleton unit.
    pub(super) head: gimli::Unit<Reader>,
    split: OnceLock<Option<Box<Split>>>,
    lines: OnceLock<Lines>,
    scopes: OnceLock<Scopes>,
}

/// The part of a unit that is in a separate file (`-gsplit-dwarf`).
#[derive(Debug)]
struct Split {
    dwarf: gimli::Dwarf<Reader>,
    unit: gimli::Unit<Reader>,
}

impl Units {
    /// Reads the header and the first entry of each unit. Leaves out damaged units, and all after a
    /// damaged header. A partial unit, such as dwz makes, has no line program here, whatever the
    /// file says.
    pub(super) fn parse(dwarf: gimli::Dwarf<Reader>) -> Self {
        let headers: Vec<_> = dwarf.units().map_while(Result::ok).collect();
        let tables = abbreviations(&dwarf, &headers);
        let parse = |header: gimli::UnitHeader<Reader>| {
            let offset = header.debug_info_offset()?.0;
            let table = tables.get(&header.debug_abbrev_offset().0)?.clone();
            let mut root = header.entries_raw(&table, None).ok()?;
            let root = root.read_abbreviation().ok()?.filter(|root| is_bounded(root))?;
            let mut head =
                gimli::Unit::new_with_abbreviations(&dwarf, header, table.clone()).ok()?;
            if root.tag() == gimli::DW_TAG_partial_unit {
                head.line_program = None; // It has no code; its includers have the same table.
            }
            Some(Unit::new(offset, head))
        };
        let units = headers.into_iter().filter_map(parse).collect();
        Self { dwarf, units }
    }

    /// Returns the last unit that begins at or before `offset` of `.debug_info`; `None` if `offset`
    /// is before the first one. Does not check the unit's end.
    pub(super) fn at_or_before(&self, offset: usize) -> Option<&Unit> {
        let next = self.units.partition_point(|unit| unit.offset <= offset);
        self.units.get(next.checked_sub(1)?)
    }

    /// Returns the address ranges of the units, without those that start outside `code`; from the
    /// line table for a unit without ranges. A span's value is the index of its unit in `units`.
    pub(super) fn by_address(&self, code: &Spans) -> Spans {
        let mut ranges = Ranges::default();
        for (index, unit) in (0_u32..).zip(&self.units) {
            let mut entries = unit.head.entries();
            let root = entries.next_dfs().ok().flatten();
            let unit_ref = unit.head.unit_ref(&self.dwarf);
            if root.and_then(|root| ranges.push(unit_ref, root, code, index)).is_none() {
                // Assemblers write line tables for units without a range.
                let lines = unit.lines(&self.dwarf, code);
                ranges.spans.extend(lines.sequences().map(|span| Span { value: index, ..span }));
            }
        }
        ranges.into_spans()
    }
}

impl Unit {
    fn new(offset: usize, head: gimli::Unit<Reader>) -> Self {
        let (split, lines, scopes) = (OnceLock::new(), OnceLock::new(), OnceLock::new());
        Self { offset, head, split, lines, scopes }
    }

    /// Returns the unit's line table, which the first call parses; later ones ignore `code`. It
    /// lacks sequences that start outside of `code`.
    pub(super) fn lines(&self, dwarf: &gimli::Dwarf<Reader>, code: &Spans) -> &Lines {
        self.lines.get_or_init(|| Lines::parse(self.head.unit_ref(dwarf), code))
    }

    /// Returns the unit's functions, with their inlined copies and blocks. The first call parses
    /// them; later ones ignore `code`.
    pub(super) fn scopes(
        &self,
        dwarf: &gimli::Dwarf<Reader>,
        code: &Spans,
        files: &dyn Files,
    ) -> &Scopes {
        self.scopes.get_or_init(|| Scopes::parse(self.entries_unit(dwarf, files), code))
    }

    /// Returns the unit that contains the entries: the one in the split file, which the first call
    /// opens, or this one if there is none that belongs to it.
    pub(super) fn entries_unit<'a>(
        &'a self,
        dwarf: &'a gimli::Dwarf<Reader>,
        files: &dyn Files,
    ) -> UnitRef<'a, Reader> {
        let split = self.split.get_or_init(|| self.load_split(dwarf, files).map(Box::new));
        match split {
            Some(split) => split.unit.unit_ref(&split.dwarf),
            None => self.head.unit_ref(dwarf),
        }
    }

    /// Loads the part in the separate file; `None` if the unit has none, or that file is absent, or
    /// belongs to another build by its ID.
    fn load_split(&self, dwarf: &gimli::Dwarf<Reader>, files: &dyn Files) -> Option<Split> {
        let id = self.head.dwo_id?;
        let unit = self.head.unit_ref(dwarf);
        let name = unit.attr_string(self.head.dwo_name().ok()??).ok()?;
        let directory = self.head.comp_dir.as_ref().map(gimli::Reader::to_slice);
        let directory = directory.and_then(Result::ok).unwrap_or_default();
        let name = gimli::Reader::to_slice(&name).ok()?;
        let path = Path::new(OsStr::from_bytes(&directory)).join(OsStr::from_bytes(&name));
        let mut split = sections::load_split(&open(files, &normalized(&path))?)?;
        // `make_dwo` shares the sections that stay in the main file.
        split.make_dwo(dwarf);
        let header = split.units().next().ok()??;
        let mut unit = split.unit(header).ok().filter(|unit| unit.dwo_id == Some(id))?;
        unit.copy_relocated_attributes(&self.head);
        Some(Split { dwarf: split, unit })
    }
}

/// Parses the tables of abbreviations (the lists of attributes of entries), by offset. Ends each
/// where the next one starts, since the units of a hostile file can refer to overlapping parts of
/// one long table. Leaves out damaged tables.
fn abbreviations(
    dwarf: &gimli::Dwarf<Reader>,
    headers: &[gimli::UnitHeader<Reader>],
) -> BTreeMap<usize, Arc<gimli::Abbreviations>> {
    let offsets = headers.iter().map(|header| header.debug_abbrev_offset().0);
    let offsets: BTreeSet<usize> = offsets.collect();
    let ends = offsets.iter().skip(1).copied().map(Some).chain([None]);
    let table = |(start, end): (&usize, Option<usize>)| {
        let mut section = dwarf.debug_abbrev.reader().clone();
        if let Some(end) = end {
            section.truncate(end).ok()?;
        }
        let section = gimli::DebugAbbrev::from(section);
        let table = section.abbreviations(gimli::DebugAbbrevOffset(*start)).ok()?;
        Some((*start, Arc::new(table)))
    };
    offsets.iter().zip(ends).filter_map(table).collect()
}

/// Returns true if the entries with this abbreviation (their list of attributes) can be read in
/// bounded time: it has at most [`MAX_ATTRIBUTES`]. The file's size is no bound, since some
/// attributes take no space in an entry.
pub(super) fn is_bounded(abbreviation: &gimli::Abbreviation) -> bool {
    abbreviation.attributes().len() <= MAX_ATTRIBUTES
}

/// Collects the address ranges of entries. Their number is bounded, because entries of a hostile
/// file can share one long list.
#[derive(Debug, Default)]
pub(super) struct Ranges {
    spans: Vec<Span>,
    /// The number of ranges that were read from lists, kept or not.
    visited: usize,
}

/// The part of a DWARF entry's code from the address at which it is entered to the end of the
/// contiguous range there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extent {
    /// The address at which the code is entered.
    pub(super) start: u64,
    /// The bytes from `start` to the end of the contiguous range that contains it.
    pub(super) size_bytes: u64,
}

impl Ranges {
    /// Appends the address ranges of `entry`, with `value`. Skips ranges that start outside `code`:
    /// they belong to functions that the linker dropped. Returns the address at which the code is
    /// entered (`DW_AT_entry_pc`, else `DW_AT_low_pc`; the start of the first range if no range has
    /// it), with the rest of the range around it; `None` if nothing was appended.
    pub(super) fn push(
        &mut self,
        unit: UnitRef<'_, Reader>,
        entry: &Entry<Reader>,
        code: &Spans,
        value: u32,
    ) -> Option<Extent> {
        let before = self.spans.len();
        let low = address(unit, entry, gimli::DW_AT_low_pc);
        let list = entry.attr_value(gimli::DW_AT_ranges);
        if let Some(list) = list.and_then(|list| unit.attr_ranges(list).ok().flatten()) {
            for range in list.map_while(Result::ok) {
                self.visited += 1;
                if self.visited > MAX_RANGES {
                    break;
                }
                self.push_span(Span { start: range.begin, end: range.end, value }, code);
            }
        } else if let Some(start) = low {
            let end = high_pc(unit, entry, start).unwrap_or(0);
            self.push_span(Span { start, end, value }, code);
        }
        let new = self.spans.get(before..)?;
        let start = address(unit, entry, gimli::DW_AT_entry_pc).or(low);
        let holding = |at| new.iter().find(|span| span.start <= at && at < span.end);
        let (start, span) = match start.and_then(|at| Some((at, holding(at)?))) {
            Some(found) => found,
            None => new.first().map(|span| (span.start, span))?,
        };
        Some(Extent { start, size_bytes: span.end - start })
    }

    /// Appends a span, unless it is empty or starts outside `code`.
    fn push_span(&mut self, span: Span, code: &Spans) {
        if span.start < span.end && code.find(span.start).is_some() {
            self.spans.push(span);
        }
    }

    /// Returns spans that do not overlap, each with the value of the innermost entry there.
    pub(super) fn into_spans(self) -> Spans {
        Spans::new(self.spans)
    }
}

/// Returns the address that is the value of an entry's attribute; `None` without one, also if it is
/// damaged.
fn address(unit: UnitRef<'_, Reader>, entry: &Entry<Reader>, name: gimli::DwAt) -> Option<u64> {
    unit.attr_address(entry.attr_value(name)?).ok()?
}

/// Returns the end address of an entry's code: `DW_AT_high_pc` is an address, or a size from
/// `start` on. `None` if it is absent or damaged.
fn high_pc(unit: UnitRef<'_, Reader>, entry: &Entry<Reader>, start: u64) -> Option<u64> {
    match entry.attr_value(gimli::DW_AT_high_pc)? {
        AttributeValue::Addr(_) | AttributeValue::DebugAddrIndex(_) => {
            address(unit, entry, gimli::DW_AT_high_pc)
        }
        size => start.checked_add(size.udata_value()?),
    }
}

/// Returns the string that is the value of an attribute, with bytes that are not UTF-8 replaced;
/// `None` if it is no string, or damaged.
pub(super) fn text(unit: UnitRef<'_, Reader>, value: AttributeValue<Reader>) -> Option<String> {
    let reader = unit.attr_string(value).ok()?;
    gimli::Reader::to_string_lossy(&reader).ok().map(std::borrow::Cow::into_owned)
}

/// Returns the path of the file with the number `index` in a line table, joined to its directory
/// and to the unit's compilation directory, without `.` and `..`. It is relative if these are
/// unknown. `None` if the table has no such file.
pub(super) fn file_path(
    unit: UnitRef<'_, Reader>,
    header: &gimli::LineProgramHeader<Reader>,
    index: u64,
) -> Option<Arc<str>> {
    let file = header.file(index)?;
    let directory = unit.comp_dir.as_ref().and_then(|dir| gimli::Reader::to_string_lossy(dir).ok());
    let mut path = Path::new(directory.as_deref().unwrap_or_default()).to_path_buf();
    // Directory 0 is that of the unit.
    if file.directory_index() != 0 {
        path.push(file.directory(header).and_then(|name| text(unit, name)).unwrap_or_default());
    }
    path.push(text(unit, file.path_name())?);
    Some(normalized(&path).to_string_lossy().into())
}
