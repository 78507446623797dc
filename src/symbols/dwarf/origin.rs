//! Finds the name of a function's entry, which is often in another entry: its abstract origin or
//! its declaration, in the same unit, in another one, or in the file shared by dwz.

use super::Reader;
use super::units::{Units, is_sane, text};
use gimli::{AttributeValue, DebuggingInformationEntry as Entry, UnitOffset, UnitRef};

/// The limit on entries from one to its name. A longer chain is a loop.
const MAX_STEPS: usize = 16;

/// Returns the linkage name of the function at `entry` of `unit`, or its plain name if it has none.
pub(super) fn name(
    units: &Units,
    supplement: Option<&Units>,
    unit: UnitRef<'_, Reader>,
    entry: UnitOffset,
) -> Option<String> {
    let mut place = Place { units: Some(units), unit, entry };
    let mut plain = None;
    for _ in 0..MAX_STEPS {
        let Some(entry) = place.read() else { break };
        let attribute = |name| text(place.unit, entry.attr_value(name)?);
        let linkage = attribute(gimli::DW_AT_linkage_name);
        if let Some(name) = linkage.or_else(|| attribute(gimli::DW_AT_MIPS_linkage_name)) {
            return Some(name);
        }
        plain = plain.or_else(|| attribute(gimli::DW_AT_name));
        let origin = entry.attr_value(gimli::DW_AT_abstract_origin);
        let next = origin.or_else(|| entry.attr_value(gimli::DW_AT_specification));
        match next.and_then(|next| place.follow(&next, supplement)) {
            Some(next) => place = next,
            None => break,
        }
    }
    plain
}

/// An entry, with the context of its references.
struct Place<'a> {
    units: Option<&'a Units>,
    unit: UnitRef<'a, Reader>,
    entry: UnitOffset,
}

impl<'a> Place<'a> {
    fn read(&self) -> Option<Entry<Reader>> {
        let mut entries = self.unit.entries_raw(Some(self.entry)).ok()?;
        let abbreviation = entries.read_abbreviation().ok()?.filter(|each| is_sane(each))?;
        let mut entry = Entry::default();
        entries.read_attributes(abbreviation.attributes(), &mut entry.attrs).ok()?;
        Some(entry)
    }

    fn follow(
        &self,
        reference: &AttributeValue<Reader>,
        supplement: Option<&'a Units>,
    ) -> Option<Self> {
        let (units, offset) = match reference {
            AttributeValue::UnitRef(entry) => {
                return Some(Self { units: self.units, unit: self.unit, entry: *entry });
            }
            AttributeValue::DebugInfoRef(offset) => (self.units?, *offset),
            AttributeValue::DebugInfoRefSup(offset) => (supplement?, *offset),
            _ => return None,
        };
        let unit = units.find(offset.0)?;
        let entry = offset.to_unit_offset(&unit.head.header)?;
        Some(Self { units: Some(units), unit: unit.head.unit_ref(&units.dwarf), entry })
    }
}
