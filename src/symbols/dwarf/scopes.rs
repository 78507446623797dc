//! The scopes of one unit: functions, the functions inlined into them, and blocks. Names are
//! resolved elsewhere, on demand.

use super::Reader;
use super::units::{Extent, Ranges, is_bounded};
use crate::symbols::spans::Spans;
use gimli::{DebuggingInformationEntry as Entry, UnitOffset, UnitRef};

/// The functions of a unit that have code, with their inlined copies and blocks.
#[derive(Debug, Default)]
pub(super) struct Scopes {
    scopes: Vec<Scope>,
    /// The value of each span is an index in `scopes`.
    by_address: Spans,
}

/// A function, an inlined copy of one, or a block inside.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scope {
    /// The offset of the scope's entry in the unit.
    pub(super) entry: UnitOffset,
    /// The address at which the scope is entered.
    pub(super) start: u64,
    /// The bytes from `start` to the end of the contiguous range that contains it: the code can
    /// have more ranges.
    pub(super) size_bytes: u64,
    pub(super) kind: ScopeKind,
    /// The index of the enclosing scope; `None` for a function that is not inlined.
    parent: Option<usize>,
}

/// The kind of a scope.
#[derive(Clone, Copy, Debug)]
pub(super) enum ScopeKind {
    /// A function that is not inlined.
    Function,
    /// A copy of a function, inlined at a call.
    Inlined(Call),
    /// A block of statements.
    Block {
        /// True if it declares variables: gdb ignores blocks that do not.
        has_variables: bool,
    },
}

/// The source position of an inlined call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call {
    /// The number of the file in the line table.
    pub(super) file: u64,
    /// The line, from 1; zero if it is unknown.
    pub(super) line: u32,
    /// The column, from 1; zero if it is unknown.
    pub(super) column: u32,
}

impl Scopes {
    /// Reads all entries of the unit, up to any damage. Leaves out scopes without code that starts
    /// in `code`.
    pub(super) fn parse(unit: UnitRef<'_, Reader>, code: &Spans) -> Self {
        let mut builder = Builder { unit, code, ranges: Ranges::default(), scopes: Vec::new() };
        // On damage, keep the entries before it.
        let _ = builder.read_entries();
        Self { scopes: builder.scopes, by_address: builder.ranges.into_spans() }
    }

    /// Returns the innermost scope at `addr` and the enclosing ones, from inside out, by index.
    /// Omits blocks that declare nothing.
    pub(super) fn at(&self, addr: u64) -> impl Iterator<Item = (usize, &Scope)> {
        let found = self.by_address.find(addr).and_then(|span| usize::try_from(span.value).ok());
        let with_scope = |index: usize| Some((index, self.scopes.get(index)?));
        // A parent precedes its child, so this ends.
        let outer = move |(_, scope): &(usize, &Scope)| scope.parent.and_then(with_scope);
        let scopes = std::iter::successors(found.and_then(with_scope), outer);
        scopes.filter(|(_, scope)| !matches!(scope.kind, ScopeKind::Block { has_variables: false }))
    }

    /// Returns all scopes that have code, each after its parent, also blocks that declare nothing.
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
    /// Appends the scopes of the unit, each after its parent, up to any damage.
    fn read_entries(&mut self) -> gimli::Result<()> {
        let mut entries = self.unit.entries_raw(None)?;
        let mut entry = Entry::default();
        // The depth and index of each open scope.
        let mut open: Vec<(isize, usize)> = Vec::new();
        while !entries.is_empty() {
            let (depth, offset) = (entries.next_depth(), entries.next_offset());
            let Some(abbreviation) = entries.read_abbreviation()? else { continue };
            if !is_bounded(abbreviation) {
                break;
            }
            while open.last().is_some_and(|(around, _)| *around >= depth) {
                open.pop();
            }
            if abbreviation.tag() == gimli::DW_TAG_variable {
                self.mark_block_with_variable(open.last().copied(), depth);
            }
            if !is_scope(abbreviation.tag()) {
                entries.skip_attributes(abbreviation.attributes())?;
                continue;
            }
            entries.read_attributes(abbreviation.attributes(), &mut entry.attrs)?;
            let kind = scope_kind(abbreviation.tag(), &entry);
            let is_inside = !matches!(kind, ScopeKind::Function);
            let parent = open.last().map(|(_, index)| *index).filter(|_| is_inside);
            if let Some(index) = self.push(&entry, offset, kind, parent) {
                open.push((depth, index));
            }
        }
        Ok(())
    }

    /// Appends a scope if it has code, and returns its index; `None` if it has none.
    fn push(
        &mut self,
        entry: &Entry<Reader>,
        offset: UnitOffset,
        kind: ScopeKind,
        parent: Option<usize>,
    ) -> Option<usize> {
        let index = self.scopes.len();
        let value = u32::try_from(index).ok()?;
        let Extent { start, size_bytes } = self.ranges.push(self.unit, entry, self.code, value)?;
        self.scopes.push(Scope { entry: offset, start, size_bytes, kind, parent });
        Some(index)
    }

    /// Notes that the scope `around`, given by its depth and index, declares a variable, if it is a
    /// block. Ignores a variable at `depth` that is not its direct child.
    fn mark_block_with_variable(&mut self, around: Option<(isize, usize)>, depth: isize) {
        let around = around.filter(|(around, _)| around + 1 == depth);
        if let Some(scope) = around.and_then(|(_, index)| self.scopes.get_mut(index))
            && let ScopeKind::Block { has_variables } = &mut scope.kind
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

/// Returns the kind of a scope. `has_variables` of a block is false at first; unknown numbers of a
/// call are 0.
fn scope_kind(tag: gimli::DwTag, entry: &Entry<Reader>) -> ScopeKind {
    let short = |name| number(entry, name).and_then(|n| n.try_into().ok()).unwrap_or(0);
    match tag {
        gimli::DW_TAG_inlined_subroutine => ScopeKind::Inlined(Call {
            file: number(entry, gimli::DW_AT_call_file).unwrap_or(0),
            line: short(gimli::DW_AT_call_line),
            column: short(gimli::DW_AT_call_column),
        }),
        gimli::DW_TAG_lexical_block => ScopeKind::Block { has_variables: false },
        _ => ScopeKind::Function,
    }
}

/// Returns the number, not negative, that is the value of an entry's attribute; `None` without one.
fn number(entry: &Entry<Reader>, name: gimli::DwAt) -> Option<u64> {
    match entry.attr_value(name)? {
        gimli::AttributeValue::FileIndex(file) => Some(file),
        value => value.udata_value(),
    }
}
