//! A DWARF entry (DIE), and the units to which its references lead: its own unit, another one, or
//! one in the file shared by dwz.

use super::Reader;
use super::units::{Unit, Units, is_sane, text};
use crate::symbols::Files;
use gimli::{AttributeValue, DebuggingInformationEntry as Entry, DwAt, DwTag, UnitOffset, UnitRef};

/// The limit on references from one entry to the next. A longer chain is a loop.
const MAX_STEPS: usize = 16;
/// The limit on children of one entry. More are damage.
const MAX_CHILDREN: usize = 1 << 16;

/// The units to which references of entries lead.
#[derive(Clone, Copy)]
pub(super) struct Context<'a> {
    pub(super) units: &'a Units,
    /// The units of the file shared by dwz.
    pub(super) supplement: Option<&'a Units>,
    /// Opens split DWARF files.
    pub(super) opener: &'a dyn Files,
}

impl<'a> Context<'a> {
    /// Returns an entry; `None` if there is no such unit.
    pub(super) fn die(self, id: EntryId) -> Option<Die<'a>> {
        let units = if id.is_shared { self.supplement? } else { self.units };
        let unit = units.find(id.unit).filter(|unit| unit.offset == id.unit)?;
        Some(Die { unit: unit.entries(&units.dwarf, self.opener), id })
    }

    /// Returns the first entry of a unit of the module itself.
    pub(super) fn root(self, unit: &'a Unit) -> Die<'a> {
        let entries = unit.entries(&self.units.dwarf, self.opener);
        let entry = entries.header.root_offset().0;
        Die { unit: entries, id: EntryId { is_shared: false, unit: unit.offset, entry } }
    }
}

/// The identity of a DWARF entry (DIE) in one module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::symbols) struct EntryId {
    /// True if the entry is in the file shared by dwz.
    pub(super) is_shared: bool,
    /// The offset of its unit in `.debug_info`.
    pub(super) unit: usize,
    /// Its offset in the unit, or in the unit's split file.
    pub(super) entry: usize,
}

/// A DWARF entry (DIE) in its unit, which is read on demand.
#[derive(Clone, Copy)]
pub(super) struct Die<'a> {
    pub(super) unit: UnitRef<'a, Reader>,
    pub(super) id: EntryId,
}

impl<'a> Die<'a> {
    /// Reads the tag and the attributes of the entry; `None` if it is damaged.
    pub(super) fn read(&self) -> Option<Entry<Reader>> {
        let mut entries = self.unit.entries_raw(Some(UnitOffset(self.id.entry))).ok()?;
        let abbreviation = entries.read_abbreviation().ok()?.filter(|each| is_sane(each))?;
        let mut entry = Entry { tag: abbreviation.tag(), ..Entry::default() };
        entries.read_attributes(abbreviation.attributes(), &mut entry.attrs).ok()?;
        Some(entry)
    }

    /// Returns another entry of the same unit.
    pub(super) fn sibling(&self, entry: UnitOffset) -> Self {
        Self { id: EntryId { entry: entry.0, ..self.id }, ..*self }
    }

    /// Returns the entry to which a reference leads; `None` if the attribute is not a reference.
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

    /// Returns the value of an attribute, and the entry that has it: this one, or the nearest one
    /// in the chain of its abstract origins and declarations.
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

    /// Returns the direct children of the entry, with their tags and attributes.
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

/// Returns true if the entry only declares something that another entry defines.
pub(super) fn is_declaration(entry: &Entry<Reader>) -> bool {
    entry.attr_value(gimli::DW_AT_declaration).is_some()
}

/// Returns true if `tag` is that of a type with members.
pub(super) fn is_aggregate(tag: DwTag) -> bool {
    matches!(
        tag,
        gimli::DW_TAG_structure_type | gimli::DW_TAG_class_type | gimli::DW_TAG_union_type
    )
}
