//! Finds the name of a function's entry, which is often in another entry: its abstract origin or
//! its declaration, in the same unit, in another one, or in the file shared by dwz.

use super::die::{Context, Die};
use super::units::text;

/// Returns the linkage name of the entry `function`, mangled as it is, or its plain name if it has
/// none; `None` without either.
pub(super) fn function_name(context: Context<'_>, function: Die<'_>) -> Option<String> {
    let named = [gimli::DW_AT_linkage_name, gimli::DW_AT_MIPS_linkage_name, gimli::DW_AT_name];
    named.iter().find_map(|name| {
        let (die, value) = function.inherited_attribute(*name, context)?;
        text(die.unit, value)
    })
}
