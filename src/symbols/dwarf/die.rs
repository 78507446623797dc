//! A DWARF entry (debugging information entry, DIE), and the units to which its references lead:
//! its own unit, another one, or one in the *supplement*. That is a file into which dwz moved the
//! entries that several debug files have in common.

use super::Reader;
use super::units::{Unit, Units, is_bounded, text};
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
    /// The units of the supplement; `None` if there is none.
    pub(super) supplement: Option<&'a Units>,
    /// Opens split DWARF files.
    pub(super) opener: &'a dyn Files,
}

impl<'a> Context<'a> {
    /// Returns the entry with an identity; `None` if no unit begins where the identity says. Does
    /// not read the entry.
    pub(super) fn die(self, id: EntryId) -> Option<Die<'a>> {
        let units = if id.is_in_supplement { self.supplement? } else { self.units };
        let unit = units.at_or_before(id.unit).filter(|unit| unit.offset == id.unit)?;
        Some(Die { unit: unit.entries_unit(&units.dwarf, self.opener), id })
    }

    /// Returns the first entry of `unit`, or of its split file if that can be opened, unread. The
    /// unit must be one of the module, not of the supplement.
    pub(super) fn root(self, unit: &'a Unit) -> Die<'a> {
        let entries = unit.entries_unit(&self.units.dwarf, self.opener);
        let entry = entries.header.root_offset().0;
        Die { unit: entries, id: EntryId { is_in_supplement: false, unit: unit.offset, entry } }
    }

    /// Returns the first entry of each unit of the supplement, unread; none if there is none.
    pub(super) fn roots_of_supplement(self) -> impl Iterator<Item = Die<'a>> {
        let units = self.supplement.into_iter().flat_map(|supplement| {
            supplement.units.iter().map(move |unit| (unit, unit.head.unit_ref(&supplement.dwarf)))
        });
        units.map(|(unit, entries)| {
            let entry = entries.header.root_offset().0;
            Die { unit: entries, id: EntryId { is_in_supplement: true, unit: unit.offset, entry } }
        })
    }
}

/// The identity of a DWARF entry in one module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::symbols) struct EntryId {
    /// True if the entry is in the supplement.
    pub(super) is_in_supplement: bool,
    /// The offset of its unit in `.debug_info`.
    pub(super) unit: usize,
    /// Its offset in the unit, or in the unit's split file.
    pub(super) entry: usize,
}

/// Where a DWARF entry is: its unit, and its offset there, perhaps a wrong one. An [`Entry`] is
/// what [`Die::read`] reads there: a tag and attributes.
#[derive(Clone, Copy)]
pub(super) struct Die<'a> {
    pub(super) unit: UnitRef<'a, Reader>,
    pub(super) id: EntryId,
}

impl<'a> Die<'a> {
    /// Reads the tag and the attributes of the entry; `None` if it is damaged, or has so many
    /// attributes that this counts as damage ([`is_bounded`]).
    pub(super) fn read(&self) -> Option<Entry<Reader>> {
        let mut entries = self.unit.entries_raw(Some(UnitOffset(self.id.entry))).ok()?;
        let abbreviation = entries.read_abbreviation().ok()?.filter(|each| is_bounded(each))?;
        let mut entry = Entry { tag: abbreviation.tag(), ..Entry::default() };
        entries.read_attributes(abbreviation.attributes(), &mut entry.attrs).ok()?;
        Some(entry)
    }

    /// Returns the entry at an offset in the same unit, unread and unchecked.
    pub(super) fn in_same_unit(&self, entry: UnitOffset) -> Self {
        Self { id: EntryId { entry: entry.0, ..self.id }, ..*self }
    }

    /// Returns the entry to which the value of an attribute leads, unread; `None` if the value is
    /// no reference, leads to no unit, or is the signature of a type unit, which is not supported.
    /// A reference to another unit counts as an offset in `.debug_info` of the module or of the
    /// supplement: references between the units of a split file are not supported.
    pub(super) fn follow(
        &self,
        reference: &AttributeValue<Reader>,
        context: Context<'a>,
    ) -> Option<Self> {
        let (is_in_supplement, offset) = match reference {
            AttributeValue::UnitRef(entry) => return Some(self.in_same_unit(*entry)),
            AttributeValue::DebugInfoRef(offset) => (self.id.is_in_supplement, *offset),
            AttributeValue::DebugInfoRefSup(offset) => (true, *offset),
            _ => return None,
        };
        let units = if is_in_supplement { context.supplement? } else { context.units };
        let unit = units.at_or_before(offset.0)?;
        let entry = offset.to_unit_offset(&unit.head.header)?.0;
        let id = EntryId { is_in_supplement, unit: unit.offset, entry };
        Some(Self { unit: unit.head.unit_ref(&units.dwarf), id })
    }

    /// Returns the value of an attribute, and the entry that has it: this one, or the nearest one
    /// in the chain of its abstract origins and declarations, of which an entry's origin comes
    /// first. `None` if none of them has it, one before it is damaged, or the chain is longer than
    /// [`MAX_STEPS`].
    pub(super) fn inherited_attribute(
        self,
        attribute: DwAt,
        context: Context<'a>,
    ) -> Option<(Self, AttributeValue<Reader>)> {
        let mut die = self;
        for _ in 0..MAX_STEPS {
            let entry = die.read()?;
            if let Some(value) = entry.attr_value(attribute) {
                return Some((die, value));
            }
            let origin = entry.attr_value(gimli::DW_AT_abstract_origin);
            let next = origin.or_else(|| entry.attr_value(gimli::DW_AT_specification));
            die = die.follow(&next?, context)?;
        }
        None
    }

    /// Returns the last entry in the chain of abstract origins, this one if it has none; `None` if
    /// one of them is damaged, or the chain is longer than [`MAX_STEPS`].
    pub(super) fn last_origin(self, context: Context<'a>) -> Option<Self> {
        let mut die = self;
        for _ in 0..MAX_STEPS {
            match die.read()?.attr_value(gimli::DW_AT_abstract_origin) {
                Some(origin) => die = die.follow(&origin, context)?,
                None => return Some(die),
            }
        }
        None
    }

    /// Returns the entry's plain name (`DW_AT_name`), inherited or not; `None` if it has none, or
    /// the name cannot be read.
    pub(super) fn name(self, context: Context<'a>) -> Option<String> {
        let (die, value) = self.inherited_attribute(gimli::DW_AT_name, context)?;
        text(die.unit, value)
    }

    /// Returns the direct children of the entry, with their tags and attributes, up to any damage
    /// ([`is_bounded`]) and at most [`MAX_CHILDREN`]; none if the entry has none, or is damaged.
    pub(super) fn children(&self) -> Vec<(Self, Entry<Reader>)> {
        let mut children = Vec::new();
        // On damage, keep the children before it.
        let _ = self.read_children(&mut children);
        children
    }

    /// Appends the direct children, as [`Self::children`] says; `None` after damage, or if the
    /// entry has none.
    fn read_children(&self, children: &mut Vec<(Self, Entry<Reader>)>) -> Option<()> {
        let mut entries = self.unit.entries_raw(Some(UnitOffset(self.id.entry))).ok()?;
        let root = entries.read_abbreviation().ok()??;
        if !root.has_children() || !is_bounded(root) {
            return None;
        }
        entries.skip_attributes(root.attributes()).ok()?;
        while !entries.is_empty() && entries.next_depth() > 0 && children.len() < MAX_CHILDREN {
            let (depth, offset) = (entries.next_depth(), entries.next_offset());
            let Some(abbreviation) = entries.read_abbreviation().ok()? else { continue };
            if !is_bounded(abbreviation) {
                return None;
            }
            if depth == 1 {
                let mut entry = Entry { tag: abbreviation.tag(), ..Entry::default() };
                entries.read_attributes(abbreviation.attributes(), &mut entry.attrs).ok()?;
                children.push((self.in_same_unit(offset), entry));
            } else {
                entries.skip_attributes(abbreviation.attributes()).ok()?;
            }
        }
        Some(())
    }
}

/// Returns true if the entry only declares something that another entry defines: it has
/// `DW_AT_declaration`, with any value.
pub(super) fn is_declaration(entry: &Entry<Reader>) -> bool {
    entry.attr_value(gimli::DW_AT_declaration).is_some()
}

/// Returns true if `tag` is that of a structure, class or union.
pub(super) fn is_aggregate(tag: DwTag) -> bool {
    matches!(
        tag,
        gimli::DW_TAG_structure_type | gimli::DW_TAG_class_type | gimli::DW_TAG_union_type
    )
}
