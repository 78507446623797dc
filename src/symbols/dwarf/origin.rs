//! Finds the name of a function's entry, which is often in another entry: its abstract origin or
//! its declaration, in the same unit, in another one, or in the file shared by dwz.

use super::die::{Context, Die};
use super::units::text;

/// Returns the linkage name of the function at `entry`, or its plain name if it has none.
pub(super) fn name(context: Context<'_>, entry: Die<'_>) -> Option<String> {
    let named = [gimli::DW_AT_linkage_name, gimli::DW_AT_MIPS_linkage_name, gimli::DW_AT_name];
    named.iter().find_map(|name| {
        let (place, value) = entry.inherited(*name, context)?;
        text(place.unit, value)
    })
}
