//! One entry of DWARF, with the context of its references: its unit, or another one, or the file
//! shared by dwz.

use super::Reader;
use super::units::{Unit, Units, is_sane, text};
use crate::symbols::Files;
use gimli::{AttributeValue, DebuggingInformationEntry as Entry, DwAt, DwTag, UnitOffset, UnitRef};

/// The limit on references from one entry to the next. A longer chain is a loop.
const MAX_STEPS: usize = 16;
/// The limit on children of one entry. More are damage.
const MAX_CHILDREN: usize = 1 << 16;

/// The units that references lead to.
#[derive(Clone, Copy)]
pub(super) struct Context<'a> {
    pub(super) units: &'a Units,
    pub(super) supplement: Option<&'a Units>,
    /// Opens split files.
    pub(super) opener: &'a dyn Files,
}

impl<'a> Context<'a> {
    /// Returns the place of an entry.
    pub(super) fn place(self, id: EntryId) -> Option<Place<'a>> {
        let units = if id.is_shared { self.supplement? } else { self.units };
        let unit = units.find(id.unit).filter(|unit| unit.offset == id.unit)?;
        Some(Place { unit: unit.entries(&units.dwarf, self.opener), id })
    }

    /// Returns the place of the first entry of a unit of the module itself.
    pub(super) fn root(self, unit: &'a Unit) -> Place<'a> {
        let entries = unit.entries(&self.units.dwarf, self.opener);
        let entry = entries.header.root_offset().0;
        Place { unit: entries, id: EntryId { is_shared: false, unit: unit.offset, entry } }
    }
}

/// The identity of an entry in one module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::symbols) struct EntryId {
    /// True if the entry is in the file shared by dwz.
    pub(super) is_shared: bool,
    /// The offset of its unit in `.debug_info`.
    pub(super) unit: usize,
    /// Its offset in the unit, or in the unit's split file.
    pub(super) entry: usize,
}

/// An entry.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) unit: UnitRef<'a, Reader>,
    pub(super) id: EntryId,
}

impl<'a> Place<'a> {
    /// Returns its tag and its attributes.
    pub(super) fn read(&self) -> Option<Entry<Reader>> {
        let mut entries = self.unit.entries_raw(Some(UnitOffset(self.id.entry))).ok()?;
        let abbreviation = entries.read_abbreviation().ok()?.filter(|each| is_sane(each))?;
        let mut entry = Entry { tag: abbreviation.tag(), ..Entry::default() };
        entries.read_attributes(abbreviation.attributes(), &mut entry.attrs).ok()?;
        Some(entry)
    }

    /// Returns the entry in the same unit.
    pub(super) fn sibling(&self, entry: UnitOffset) -> Self {
        Self { id: EntryId { entry: entry.0, ..self.id }, ..*self }
    }

    /// Returns the entry that a reference leads to.
    pub(super) fn follow(
        &self,
        reference: &AttributeValue<Reader>,
        context: Context<'a>,
    ) -> Option<Self> {
        let (is_shared, offset) = match reference {
            AttributeValue::UnitRef(entry) => return Some(self.sibling(*entry)),
            AttributeValue::DebugInfoRef(offset) => (self.id.is_shared, *offset),
            AttributeValue::DebugInfoRefSup(offset) => (true, *offset),
            _ => return None,
        };
        let units = if is_shared { context.supplement? } else { context.units };
        let unit = units.find(offset.0)?;
        let entry = offset.to_unit_offset(&unit.head.header)?.0;
        let id = EntryId { is_shared, unit: unit.offset, entry };
        Some(Self { unit: unit.head.unit_ref(&units.dwarf), id })
    }

    /// Returns the first value of an attribute on the way from the entry to its abstract origin or
    /// declaration, and the entry that has it.
    pub(super) fn inherited(
        self,
        name: DwAt,
        context: Context<'a>,
    ) -> Option<(Self, AttributeValue<Reader>)> {
        let mut place = self;
        for _ in 0..MAX_STEPS {
            let entry = place.read()?;
            if let Some(value) = entry.attr_value(name) {
                return Some((place, value));
            }
            let origin = entry.attr_value(gimli::DW_AT_abstract_origin);
            let next = origin.or_else(|| entry.attr_value(gimli::DW_AT_specification));
            place = place.follow(&next?, context)?;
        }
        None
    }

    /// Returns the name of a variable, a member or a type.
    pub(super) fn name(self, context: Context<'a>) -> Option<String> {
        let (place, value) = self.inherited(gimli::DW_AT_name, context)?;
        text(place.unit, value)
    }

    /// Returns its direct children, with their tags and attributes.
    pub(super) fn children(&self) -> Vec<(Self, Entry<Reader>)> {
        let mut children = Vec::new();
        // On damage, keep the children before it.
        let _ = self.read_children(&mut children);
        children
    }

    fn read_children(&self, children: &mut Vec<(Self, Entry<Reader>)>) -> Option<()> {
        let mut entries = self.unit.entries_raw(Some(UnitOffset(self.id.entry))).ok()?;
        let root = entries.read_abbreviation().ok()??;
        if !root.has_children() || !is_sane(root) {
            return None;
        }
        entries.skip_attributes(root.attributes()).ok()?;
        while !entries.is_empty() && entries.next_depth() > 0 && children.len() < MAX_CHILDREN {
            let (depth, offset) = (entries.next_depth(), entries.next_offset());
            let Some(abbreviation) = entries.read_abbreviation().ok()? else { continue };
            if !is_sane(abbreviation) {
                return None;
            }
            if depth == 1 {
                let mut entry = Entry { tag: abbreviation.tag(), ..Entry::default() };
                entries.read_attributes(abbreviation.attributes(), &mut entry.attrs).ok()?;
                children.push((self.sibling(offset), entry));
            } else {
                entries.skip_attributes(abbreviation.attributes()).ok()?;
            }
        }
        Some(())
    }
}

/// Returns true if the entry is only a declaration of something elsewhere.
pub(super) fn is_declaration(entry: &Entry<Reader>) -> bool {
    entry.attr_value(gimli::DW_AT_declaration).is_some()
}

/// Returns true for the tags of types that have members.
pub(super) fn is_aggregate(tag: DwTag) -> bool {
    matches!(
        tag,
        gimli::DW_TAG_structure_type | gimli::DW_TAG_class_type | gimli::DW_TAG_union_type
    )
}
