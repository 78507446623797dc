//! Queries the DWARF of one module about variables, types and the homes of values. `code` has the
//! executable ranges of the module.

use super::die::{Context, EntryId};
use super::globals::{Global, Globals, GlobalsReader};
use super::locate::{LocationDescription, State, is_stored, location_description};
use super::query::Dwarf;
use super::scopes::Scope;
use super::types::Types;
use super::units::Unit;
use super::variables::UnitVariables;
use crate::common::{Addr, AddrRange};
use crate::symbols::machine::{Home, Machine};
use crate::symbols::spans::Spans;
use crate::symbols::types::{Signature, SourceLine, Type, Variable};
use std::ops::Range;
use std::sync::Arc;

impl Dwarf {
    /// Returns the units to which references of entries lead.
    pub(super) fn context(&self) -> Context<'_> {
        let supplement = self.supplement.as_ref();
        Context { units: &self.units, supplement, opener: &*self.files }
    }

    /// Returns the unit that covers `addr`, and the scopes that contain `addr`, innermost first,
    /// perhaps none; `None` without a unit.
    fn unit_and_scopes_at(
        &self,
        addr: u64,
        code: &Spans,
    ) -> Option<(UnitVariables<'_>, Vec<&Scope>)> {
        let (unit, context) = (self.unit_at(addr)?, self.context());
        let scopes = unit.scopes(&self.units.dwarf, code, &*self.files).at(addr);
        let scopes = scopes.map(|(_, scope)| scope).collect();
        Some((UnitVariables { root: context.root(unit), context }, scopes))
    }

    /// Returns the variables and arguments that are visible at an address in the innermost
    /// function, inlined or not; those of inner blocks come first. `module` is the start of the
    /// module's range, a part of the identities of its variables.
    pub(in crate::symbols) fn variables_at(
        &self,
        module: Addr,
        addr: u64,
        code: &Spans,
    ) -> Vec<Variable> {
        let found = self.unit_and_scopes_at(addr, code);
        found.map_or_else(Vec::new, |(unit, scopes)| {
            unit.visible_variables(module, scopes.into_iter())
        })
    }

    /// Returns the arguments and the result of the innermost function at an address, inlined or
    /// not; `None` if no function with DWARF is there.
    pub(in crate::symbols) fn signature(
        &self,
        module: Addr,
        addr: u64,
        code: &Spans,
    ) -> Option<Signature> {
        let (unit, scopes) = self.unit_and_scopes_at(addr, code)?;
        unit.signature(module, scopes.into_iter())
    }

    /// Returns the global variable called `name`, under that name. `name` may omit outer
    /// namespaces. Of several, prefers one of the unit that has the source of the function at
    /// `addr`, then one of the unit that covers `addr`, then one whose full name is `name`. `None`
    /// if there is none, or if only longer names are left, and several of them.
    pub(in crate::symbols) fn global(
        &self,
        module: Addr,
        addr: Option<u64>,
        name: &str,
        code: &Spans,
    ) -> Option<Variable> {
        let found = addr.and_then(|addr| self.unit_and_scopes_at(addr, code));
        let source = found.as_ref().and_then(|(unit, scopes)| unit.source_unit(scopes));
        let unit = found.as_ref().map(|(unit, _)| unit.root.id.unit);
        let globals = self.globals.get_or_init(|| self.all_globals());
        // Go has a dot after the package.
        let suffixes = [format!("::{name}"), format!(".{name}")];
        let exact = globals.get(name).map_or(&[][..], Vec::as_slice);
        let qualified: Vec<&[Global]> = globals
            .iter()
            .filter(|(path, _)| suffixes.iter().any(|suffix| path.ends_with(suffix)))
            .map(|(_, entries)| entries.as_slice())
            .collect();
        let nearest = |is_near: &dyn Fn(&Global) -> bool| {
            let near = |of: &&[Global]| of.iter().copied().find(is_near);
            near(&exact).or_else(|| only(qualified.iter().filter_map(near)))
        };
        let of_source =
            || nearest(&|of| !of.origin.is_in_supplement && Some(of.origin.unit) == source);
        let of_unit = || nearest(&|of| Some(of.entry.unit) == unit);
        let first = || exact.first().copied();
        let any = || only(qualified.iter().filter_map(|of| of.first().copied()));
        let Global { entry, .. } = of_source().or_else(of_unit).or_else(first).or_else(any)?;
        let die = self.context().die(entry)?;
        let type_id = self.types(module).referenced_type(die, gimli::DW_AT_type);
        let name = name.to_owned();
        Some(Variable { name, is_argument: false, type_id, module, entry })
    }

    /// Lists the variables outside of functions, of all units.
    fn all_globals(&self) -> Globals {
        let mut reader = GlobalsReader::new(self.context());
        for unit in &self.units.units {
            reader.read(self.context().root(unit));
        }
        reader.finish()
    }

    fn types(&self, module: Addr) -> Types<'_> {
        Types { module, context: self.context() }
    }

    /// Reads the type at `entry`; `None` if it is void, or damaged.
    pub(in crate::symbols) fn read_type(&self, module: Addr, entry: EntryId) -> Option<Type> {
        self.types(module).read_type(self.context().die(entry)?)
    }

    /// Returns the description of where a variable is while the code at `addr` executes, for
    /// [`Self::home`] to evaluate: optimized out if there is no such entry.
    pub(in crate::symbols) fn location_description(
        &self,
        entry: EntryId,
        addr: u64,
        code: &Spans,
    ) -> LocationDescription {
        let context = self.context();
        let Some(variable) = context.die(entry) else { return LocationDescription::OptimizedOut };
        let found = self.unit_and_scopes_at(addr, code);
        let function =
            found.and_then(|(unit, scopes)| unit.function_with_frame(scopes.into_iter()));
        location_description(context, variable, function, addr)
    }

    /// Returns the home of a variable's value in a state of the program. `cfa` computes the
    /// canonical frame address of the variable's frame: the stack pointer before its call. `None`
    /// if the variable's unit is missing; does not read the entry itself.
    pub(in crate::symbols) fn home(
        &self,
        entry: EntryId,
        description: &LocationDescription,
        machine: &dyn Machine,
        cfa: &dyn Fn() -> Option<u64>,
        bias: u64,
    ) -> Option<Home> {
        let unit = self.context().die(entry)?.unit;
        Some(State { machine, cfa, bias, unit }.home(description))
    }

    /// Returns the first address in a function at which its arguments are where the DWARF says: the
    /// end of the prologue if the compiler marked it, else the second row of the line table if the
    /// function keeps arguments in its frame, else the start. `None` without DWARF of the function.
    pub(in crate::symbols) fn address_after_prologue(
        &self,
        function: Range<u64>,
        code: &Spans,
    ) -> Option<u64> {
        let (start, context) = (function.start, self.context());
        let lines = self.unit_at(start)?.lines(&self.units.dwarf, code);
        if let Some(end) = lines.prologue_end(function.clone()) {
            return Some(end);
        }
        let arguments = self.signature(Addr(0), start, code)?.arguments;
        let stores_arguments = arguments
            .iter()
            .any(|argument| context.die(argument.entry).is_some_and(|die| is_stored(context, die)));
        let next = lines.next_row(start).filter(|next| stores_arguments && *next < function.end);
        Some(next.unwrap_or(start))
    }

    /// Returns the address ranges of all code that has a source line, with their lines.
    pub(in crate::symbols) fn source_lines(&self, code: &Spans) -> Vec<SourceLine> {
        self.units.units.iter().flat_map(|unit| self.lines_of(unit, code)).collect()
    }

    /// Returns the lines of the compilation unit at an address; none if there is no unit.
    pub(in crate::symbols) fn unit_lines_at(&self, addr: u64, code: &Spans) -> Vec<SourceLine> {
        self.unit_at(addr).into_iter().flat_map(|unit| self.lines_of(unit, code)).collect()
    }

    /// Returns the address ranges of a unit's rows, without empty ones, with their lines.
    fn lines_of<'a>(
        &'a self,
        unit: &'a Unit,
        code: &Spans,
    ) -> impl Iterator<Item = SourceLine> + 'a {
        let line = |(range, file, line): (Range<u64>, &Arc<str>, u32)| SourceLine {
            range: AddrRange { start: Addr(range.start), end: Addr(range.end) },
            file: file.clone(),
            line,
        };
        let lines = unit.lines(&self.units.dwarf, code).row_ranges();
        lines.map(line).filter(|line| !line.range.is_empty())
    }
}

/// Returns the only item; `None` if there are none or several.
fn only<T>(mut items: impl Iterator<Item = T>) -> Option<T> {
    items.next().filter(|_| items.next().is_none())
}
