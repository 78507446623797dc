//! Finds the variables that are visible at an address, and the function that executes there.

use super::Reader;
use super::die::{Context, Die, EntryId};
use super::scopes::{Scope, ScopeKind};
use super::types::{Types, language_of};
use crate::common::Addr;
use crate::symbols::types::{Signature, Variable};
use gimli::DebuggingInformationEntry as Entry;
use std::collections::HashSet;

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

    /// Returns the offset of the unit that has the source of the innermost function in `scopes`,
    /// inlined or not: that of its abstract origin, if it has one. `None` if there is no function,
    /// or the origin is damaged, or in the supplement.
    pub(super) fn source_unit(&self, scopes: &[&Scope]) -> Option<usize> {
        let is_function = |scope: &&&Scope| !matches!(scope.kind, ScopeKind::Block { .. });
        let function = self.root.in_same_unit(scopes.iter().find(is_function)?.entry);
        let EntryId { is_in_supplement, unit, .. } = function.last_origin(self.context)?.id;
        (!is_in_supplement).then_some(unit)
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
