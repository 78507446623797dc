//! The functions of one unit, and what was inlined into them. Names are resolved elsewhere, when
//! asked for.

use super::Reader;
use super::units::Ranges;
use crate::symbols::spans::Spans;
use gimli::{DebuggingInformationEntry as Entry, UnitOffset, UnitRef};

/// The functions of a unit that have code.
#[derive(Debug, Default)]
pub(super) struct Scopes {
    scopes: Vec<Scope>,
    by_address: Spans,
}

/// A function, or an inlined copy of one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scope {
    /// Its entry in the unit.
    pub(super) entry: UnitOffset,
    /// Where it begins to execute.
    pub(super) start: u64,
    /// Bytes from `start` to the end of the range that holds it.
    pub(super) size_bytes: u64,
    /// Where it was inlined; `None` for a function of its own.
    pub(super) call: Option<Call>,
    /// The scope around it, by index.
    parent: Option<usize>,
}

/// The place of an inlined call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call {
    /// Number of the file in the line table.
    pub(super) file: u64,
    /// Zero when it is not known.
    pub(super) line: u32,
    /// Zero when it is not known.
    pub(super) column: u32,
}

impl Scopes {
    /// Reads all entries of the unit, up to where they are damaged.
    pub(super) fn parse(unit: UnitRef<'_, Reader>, code: &Spans) -> Self {
        let mut builder = Builder { unit, code, ranges: Ranges::default(), scopes: Vec::new() };
        // Cut off where the damage begins, the rest stands.
        let _ = builder.read_entries();
        Self { scopes: builder.scopes, by_address: builder.ranges.into_spans() }
    }

    /// The innermost scope around `addr` and those around it, outwards, by index.
    pub(super) fn at(&self, addr: u64) -> impl Iterator<Item = (usize, &Scope)> {
        let found = self.by_address.find(addr).and_then(|span| usize::try_from(span.value).ok());
        let with_scope = |index: usize| Some((index, self.scopes.get(index)?));
        // A parent comes before its child, so this ends.
        let outer = move |(_, scope): &(usize, &Scope)| scope.parent.and_then(with_scope);
        std::iter::successors(found.and_then(with_scope), outer)
    }

    /// All scopes.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Scope> {
        self.scopes.iter()
    }
}

struct Builder<'a> {
    unit: UnitRef<'a, Reader>,
    code: &'a Spans,
    ranges: Ranges,
    scopes: Vec<Scope>,
}

impl Builder<'_> {
    fn read_entries(&mut self) -> gimli::Result<()> {
        let mut entries = self.unit.entries_raw(None)?;
        let mut entry = Entry::default();
        // Depth and index of each scope that is open.
        let mut open: Vec<(isize, usize)> = Vec::new();
        while !entries.is_empty() {
            let (depth, offset) = (entries.next_depth(), entries.next_offset());
            let Some(abbreviation) = entries.read_abbreviation()? else { continue };
            while open.last().is_some_and(|(around, _)| *around >= depth) {
                open.pop();
            }
            let tag = abbreviation.tag();
            if tag != gimli::DW_TAG_subprogram && tag != gimli::DW_TAG_inlined_subroutine {
                entries.skip_attributes(abbreviation.attributes())?;
                continue;
            }
            entries.read_attributes(abbreviation.attributes(), &mut entry.attrs)?;
            let is_inlined = tag == gimli::DW_TAG_inlined_subroutine;
            let parent = open.last().map(|(_, index)| *index).filter(|_| is_inlined);
            if let Some(index) = self.push(&entry, offset, is_inlined, parent) {
                open.push((depth, index));
            }
        }
        Ok(())
    }

    /// Appends a scope if it has code; gives its index.
    fn push(
        &mut self,
        entry: &Entry<Reader>,
        offset: UnitOffset,
        is_inlined: bool,
        parent: Option<usize>,
    ) -> Option<usize> {
        let index = self.scopes.len();
        let value = u32::try_from(index).ok()?;
        let (start, size_bytes) = self.ranges.push(self.unit, entry, self.code, value)?;
        let call = is_inlined.then(|| Call {
            file: number(entry, gimli::DW_AT_call_file).unwrap_or(0),
            line: number(entry, gimli::DW_AT_call_line)
                .and_then(|n| n.try_into().ok())
                .unwrap_or(0),
            column: number(entry, gimli::DW_AT_call_column)
                .and_then(|n| n.try_into().ok())
                .unwrap_or(0),
        });
        self.scopes.push(Scope { entry: offset, start, size_bytes, call, parent });
        Some(index)
    }
}

fn number(entry: &Entry<Reader>, name: gimli::DwAt) -> Option<u64> {
    match entry.attr_value(name)? {
        gimli::AttributeValue::FileIndex(file) => Some(file),
        value => value.udata_value(),
    }
}
