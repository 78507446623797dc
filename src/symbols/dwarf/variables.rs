//! Finds the variables that are visible at an address, the function that executes there, and the
//! variables outside of functions.

use super::Reader;
use super::die::{Context, Die, EntryId, is_aggregate, is_declaration};
use super::scopes::{Scope, ScopeKind};
use super::types::{Types, language_of};
use super::units::is_bounded;
use crate::common::Addr;
use crate::symbols::types::{Signature, Variable};
use gimli::{DebuggingInformationEntry as Entry, UnitOffset};
use std::collections::{HashMap, HashSet};

/// A reader of the variables of one unit.
pub(super) struct UnitVariables<'a> {
    /// The first entry of the unit.
    pub(super) root: Die<'a>,
    pub(super) context: Context<'a>,
}

impl<'a> UnitVariables<'a> {
    fn types(&self, module: Addr) -> Types<'a> {
        Types { module, context: self.context }
    }

    /// Returns the variables and arguments of the innermost function in `scopes`, and those of the
    /// blocks inside it, whose variables come first, so a shadowed variable is after the one that
    /// shadows it. `scopes` are those around an address, innermost first.
    pub(super) fn visible_variables<'s>(
        &self,
        module: Addr,
        scopes: impl Iterator<Item = &'s Scope>,
    ) -> Vec<Variable> {
        let mut variables = Vec::new();
        for scope in scopes {
            variables.extend(self.variables_of(module, self.root.in_same_unit(scope.entry)));
            if !matches!(scope.kind, ScopeKind::Block { .. }) {
                break;
            }
        }
        variables
    }

    /// Returns the arguments and the result of the innermost function in `scopes`, inlined or not;
    /// `None` if there is no function among them.
    pub(super) fn signature<'s>(
        &self,
        module: Addr,
        mut scopes: impl Iterator<Item = &'s Scope>,
    ) -> Option<Signature> {
        let function = scopes.find(|scope| !matches!(scope.kind, ScopeKind::Block { .. }))?;
        let die = self.root.in_same_unit(function.entry);
        let variables = self.variables_of(module, die);
        let arguments = variables.into_iter().filter(|variable| variable.is_argument).collect();
        let returns = self.types(module).referenced_type(die, gimli::DW_AT_type);
        Some(Signature { arguments, returns, language: language_of(die.unit) })
    }

    /// Returns the variables and arguments that are direct children of a scope, and those of its
    /// abstract origin to which no child of the scope refers.
    fn variables_of(&self, module: Addr, scope: Die<'a>) -> Vec<Variable> {
        let mut variables = Vec::new();
        let mut seen = HashSet::new();
        for (die, entry) in scope.children() {
            let origin = entry.attr_value(gimli::DW_AT_abstract_origin);
            seen.extend(origin.and_then(|origin| Some(die.follow(&origin, self.context)?.id)));
            variables.extend(self.variable(module, die, &entry));
        }
        let origin = scope.read().and_then(|entry| entry.attr_value(gimli::DW_AT_abstract_origin));
        let origin = origin.and_then(|origin| scope.follow(&origin, self.context));
        for (die, entry) in origin.iter().flat_map(Die::children) {
            if !seen.contains(&die.id) {
                variables.extend(self.variable(module, die, &entry));
            }
        }
        variables
    }

    /// Returns the variable or argument that an entry describes; `None` for other entries, and for
    /// one without a name.
    fn variable(&self, module: Addr, die: Die<'a>, entry: &Entry<Reader>) -> Option<Variable> {
        let is_argument = entry.tag == gimli::DW_TAG_formal_parameter;
        if !is_argument && entry.tag != gimli::DW_TAG_variable {
            return None;
        }
        // Go lists results among the arguments.
        let is_result = entry
            .attr_value(gimli::DW_AT_variable_parameter)
            .is_some_and(|value| !matches!(value, gimli::AttributeValue::Flag(false)));
        let name = die.name(self.context)?;
        let type_id = self.types(module).referenced_type(die, gimli::DW_AT_type);
        let is_argument = is_argument && !is_result;
        Some(Variable { name, is_argument, type_id, module, entry: die.id })
    }

    /// Returns the entry of the innermost function in `scopes` that is not inlined: it has the
    /// stack frame. `None` if there is none. `scopes` are innermost first.
    pub(super) fn function_with_frame<'s>(
        &self,
        mut scopes: impl Iterator<Item = &'s Scope>,
    ) -> Option<Die<'a>> {
        let function = scopes.find(|scope| matches!(scope.kind, ScopeKind::Function))?;
        Some(self.root.in_same_unit(function.entry))
    }
}

/// The variables of a module outside of functions, by their full names.
pub(super) type Globals = HashMap<String, Vec<EntryId>>;

/// Adds the variables of a unit that are defined outside of functions, also in namespaces and
/// classes, up to any damage. A definition without a name has that of its declaration, which must
/// precede it in the unit; otherwise it is left out.
pub(super) fn add_globals(root: Die<'_>, globals: &mut Globals) {
    // On damage, keep the entries before it.
    let _ = read_globals(root, globals);
}

/// Does what [`add_globals`] does; fails at damage, after the variables before it.
fn read_globals(root: Die<'_>, globals: &mut Globals) -> gimli::Result<()> {
    let mut entries = root.unit.entries_raw(None)?;
    let mut entry = Entry::default();
    // The names of open namespaces, and their depths.
    let mut open: Vec<(isize, String)> = Vec::new();
    // The depth of an entry whose children are skipped: a function, a variable, another type.
    let mut skipped: Option<isize> = None;
    // The full names of declarations, to which definitions refer, by offset.
    let mut declared: HashMap<usize, String> = HashMap::new();
    while !entries.is_empty() {
        let (depth, offset) = (entries.next_depth(), entries.next_offset());
        let Some(abbreviation) = entries.read_abbreviation()? else { continue };
        if !is_bounded(abbreviation) {
            break;
        }
        if skipped.is_some_and(|around| depth > around) {
            entries.skip_attributes(abbreviation.attributes())?;
            continue;
        }
        skipped = None;
        while open.last().is_some_and(|(around, _)| *around >= depth) {
            open.pop();
        }
        let tag = abbreviation.tag();
        let is_scope = tag == gimli::DW_TAG_namespace || is_aggregate(tag);
        let is_variable = tag == gimli::DW_TAG_variable || tag == gimli::DW_TAG_member;
        if !is_scope && !is_variable {
            skipped = (depth > 0).then_some(depth);
            entries.skip_attributes(abbreviation.attributes())?;
            continue;
        }
        entries.read_attributes(abbreviation.attributes(), &mut entry.attrs)?;
        let name = entry.attr_value(gimli::DW_AT_name);
        let name = name.and_then(|name| super::units::text(root.unit, name));
        if is_scope {
            open.push((depth, name.unwrap_or_default()));
            continue;
        }
        let UnitOffset(at) = offset;
        if let Some(name) = name {
            let around = open.iter().map(|(_, name)| name.as_str()).filter(|name| !name.is_empty());
            let path = around.chain([name.as_str()]).collect::<Vec<_>>().join("::");
            if tag == gimli::DW_TAG_member || is_declaration(&entry) {
                declared.insert(at, path);
            } else {
                globals.entry(path).or_default().push(root.in_same_unit(offset).id);
            }
        } else if let Some(gimli::AttributeValue::UnitRef(UnitOffset(of))) =
            entry.attr_value(gimli::DW_AT_specification)
            && let Some(path) = declared.get(&of)
        {
            globals.entry(path.clone()).or_default().push(root.in_same_unit(offset).id);
        }
        skipped = Some(depth);
    }
    Ok(())
}
