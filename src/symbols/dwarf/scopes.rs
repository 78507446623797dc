//! The functions of one unit, and what was inlined into them. Names are resolved elsewhere, when
//! asked for.

use super::Reader;
use super::units::{Ranges, is_sane};
use crate::symbols::spans::Spans;
use gimli::{DebuggingInformationEntry as Entry, UnitOffset, UnitRef};

/// The functions of a unit that have code.
#[derive(Debug, Default)]
pub(super) struct Scopes {
    scopes: Vec<Scope>,
    by_address: Spans,
}

/// A function, an inlined copy of one, or a block inside.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scope {
    /// Its entry in the unit.
    pub(super) entry: UnitOffset,
    /// Where it begins to execute.
    pub(super) start: u64,
    /// Bytes from `start` to the end of the range that holds it.
    pub(super) size_bytes: u64,
    pub(super) kind: Kind,
    /// The scope around it, by index.
    parent: Option<usize>,
}

/// What a scope is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    /// A function of its own.
    Function,
    /// A copy of a function, inlined at a call.
    Inlined(Call),
    /// A block of statements.
    Block {
        /// Whether it declares variables: gdb knows only blocks that do.
        has_variables: bool,
    },
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

    /// The innermost scope around `addr` and those around it, outwards, by index; without blocks
    /// that declare nothing.
    pub(super) fn at(&self, addr: u64) -> impl Iterator<Item = (usize, &Scope)> {
        let found = self.by_address.find(addr).and_then(|span| usize::try_from(span.value).ok());
        let with_scope = |index: usize| Some((index, self.scopes.get(index)?));
        // A parent comes before its child, so this ends.
        let outer = move |(_, scope): &(usize, &Scope)| scope.parent.and_then(with_scope);
        let scopes = std::iter::successors(found.and_then(with_scope), outer);
        scopes.filter(|(_, scope)| !matches!(scope.kind, Kind::Block { has_variables: false }))
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
            if !is_sane(abbreviation) {
                break;
            }
            while open.last().is_some_and(|(around, _)| *around >= depth) {
                open.pop();
            }
            if abbreviation.tag() == gimli::DW_TAG_variable {
                self.note_variable(open.last().copied(), depth);
            }
            if !is_scope(abbreviation.tag()) {
                entries.skip_attributes(abbreviation.attributes())?;
                continue;
            }
            entries.read_attributes(abbreviation.attributes(), &mut entry.attrs)?;
            let kind = kind(abbreviation.tag(), &entry);
            let is_inside = !matches!(kind, Kind::Function);
            let parent = open.last().map(|(_, index)| *index).filter(|_| is_inside);
            if let Some(index) = self.push(&entry, offset, kind, parent) {
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
        kind: Kind,
        parent: Option<usize>,
    ) -> Option<usize> {
        let index = self.scopes.len();
        let value = u32::try_from(index).ok()?;
        let (start, size_bytes) = self.ranges.push(self.unit, entry, self.code, value)?;
        self.scopes.push(Scope { entry: offset, start, size_bytes, kind, parent });
        Some(index)
    }

    /// A variable at `depth` belongs to the scope around it if nothing else lies between.
    fn note_variable(&mut self, around: Option<(isize, usize)>, depth: isize) {
        let around = around.filter(|(around, _)| around + 1 == depth);
        if let Some(scope) = around.and_then(|(_, index)| self.scopes.get_mut(index))
            && let Kind::Block { has_variables } = &mut scope.kind
        {
            *has_variables = true;
        }
    }
}

fn is_scope(tag: gimli::DwTag) -> bool {
    let scopes =
        [gimli::DW_TAG_subprogram, gimli::DW_TAG_inlined_subroutine, gimli::DW_TAG_lexical_block];
    scopes.contains(&tag)
}

fn kind(tag: gimli::DwTag, entry: &Entry<Reader>) -> Kind {
    let short = |name| number(entry, name).and_then(|n| n.try_into().ok()).unwrap_or(0);
    match tag {
        gimli::DW_TAG_inlined_subroutine => Kind::Inlined(Call {
            file: number(entry, gimli::DW_AT_call_file).unwrap_or(0),
            line: short(gimli::DW_AT_call_line),
            column: short(gimli::DW_AT_call_column),
        }),
        gimli::DW_TAG_lexical_block => Kind::Block { has_variables: false },
        _ => Kind::Function,
    }
}

fn number(entry: &Entry<Reader>, name: gimli::DwAt) -> Option<u64> {
    match entry.attr_value(name)? {
        gimli::AttributeValue::FileIndex(file) => Some(file),
        value => value.udata_value(),
    }
}
