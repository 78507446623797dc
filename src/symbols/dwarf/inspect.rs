//! Queries the DWARF of one module about variables, types and the homes of values.

use super::die::{Context, EntryId};
use super::locate::{Located, State, is_stored, locate};
use super::query::Dwarf;
use super::scopes::Scope;
use super::types::Types;
use super::variables::{Around, Globals, note_globals};
use crate::common::{Addr, AddrRange};
use crate::symbols::machine::{Home, Machine};
use crate::symbols::spans::Spans;
use crate::symbols::types::{Signature, SourceLine, Type, Variable};
use std::ops::Range;
use std::sync::Arc;

impl Dwarf {
    pub(super) fn context(&self) -> Context<'_> {
        let supplement = self.supplement.as_ref();
        Context { units: &self.units, supplement, opener: &*self.files }
    }

    /// Returns the unit that covers `addr`, and the scopes that contain `addr`, innermost first.
    fn around(&self, addr: u64, code: &Spans) -> Option<(Around<'_>, Vec<&Scope>)> {
        let (unit, context) = (self.unit_at(addr)?, self.context());
        let scopes = unit.scopes(&self.units.dwarf, code, &*self.files).at(addr);
        let scopes = scopes.map(|(_, scope)| scope).collect();
        Some((Around { root: context.root(unit), context }, scopes))
    }

    /// Returns the variables of the innermost function at an address.
    pub(in crate::symbols) fn locals(
        &self,
        module: Addr,
        addr: u64,
        code: &Spans,
    ) -> Vec<Variable> {
        let found = self.around(addr, code);
        found.map_or_else(Vec::new, |(around, scopes)| around.locals(module, scopes.into_iter()))
    }

    /// Returns the arguments and the result of the innermost function at an address.
    pub(in crate::symbols) fn signature(
        &self,
        module: Addr,
        addr: u64,
        code: &Spans,
    ) -> Option<Signature> {
        let (around, scopes) = self.around(addr, code)?;
        around.signature(module, scopes.into_iter())
    }

    /// Returns the global variable called `name`, preferably of the unit at `addr`. `name` may omit
    /// outer namespaces.
    pub(in crate::symbols) fn global(
        &self,
        module: Addr,
        addr: Option<u64>,
        name: &str,
    ) -> Option<Variable> {
        let unit = addr.and_then(|addr| self.unit_at(addr)).map(|unit| unit.offset);
        let globals = self.globals.get_or_init(|| self.all_globals());
        // Go has a dot after the package.
        let suffixes = [format!("::{name}"), format!(".{name}")];
        let exact = globals.get(name).into_iter().flatten();
        let qualified =
            globals.iter().filter(|(path, _)| suffixes.iter().any(|suffix| path.ends_with(suffix)));
        let found: Vec<EntryId> =
            exact.chain(qualified.flat_map(|(_, entries)| entries)).copied().collect();
        let near = found.iter().find(|entry| Some(entry.unit) == unit && !entry.is_shared);
        let entry = *near.or(found.first())?;
        let place = self.context().die(entry)?;
        let type_id = self.types(module).reference(place, gimli::DW_AT_type);
        let name = name.to_owned();
        Some(Variable { name, is_argument: false, type_id, module, entry })
    }

    fn all_globals(&self) -> Globals {
        let mut globals = Globals::new();
        for unit in &self.units.units {
            note_globals(self.context().root(unit), &mut globals);
        }
        globals
    }

    fn types(&self, module: Addr) -> Types<'_> {
        Types { module, context: self.context() }
    }

    /// Reads the type at `entry`; `None` if it is void, or damaged.
    pub(in crate::symbols) fn type_of(&self, module: Addr, entry: EntryId) -> Option<Type> {
        self.types(module).read(self.context().die(entry)?)
    }

    /// Returns the description of where a variable is at an address, for [`Self::home`] to
    /// evaluate.
    pub(in crate::symbols) fn locate(&self, entry: EntryId, addr: u64, code: &Spans) -> Located {
        let context = self.context();
        let Some(variable) = context.die(entry) else { return Located::OptimizedOut };
        let around = self.around(addr, code);
        let function = around.and_then(|(around, scopes)| around.function(scopes.into_iter()));
        locate(context, variable, function, addr)
    }

    /// Returns the home of a variable's value in a state of the program. `cfa` computes the
    /// canonical frame address.
    pub(in crate::symbols) fn home(
        &self,
        entry: EntryId,
        located: &Located,
        machine: &dyn Machine,
        cfa: &dyn Fn() -> Option<u64>,
        bias: u64,
    ) -> Option<Home> {
        let unit = self.context().die(entry)?.unit;
        Some(State { machine, cfa, bias, unit }.home(located))
    }

    /// Returns the first address in a function at which its arguments are where the DWARF says:
    /// after the prologue, if the prologue stores them.
    pub(in crate::symbols) fn body_of(&self, function: Range<u64>, code: &Spans) -> Option<u64> {
        let (start, context) = (function.start, self.context());
        let lines = self.unit_at(start)?.lines(&self.units.dwarf, code);
        if let Some(end) = lines.prologue_end(function.clone()) {
            return Some(end);
        }
        let arguments = self.signature(Addr(0), start, code)?.arguments;
        let stores = arguments.iter().any(|argument| {
            context.die(argument.entry).is_some_and(|place| is_stored(context, place))
        });
        let next = lines.next_row(start).filter(|next| stores && *next < function.end);
        Some(next.unwrap_or(start))
    }

    /// Returns the address ranges of all code that has a source line, with their lines.
    pub(in crate::symbols) fn source_lines(&self, code: &Spans) -> Vec<SourceLine> {
        let units = self.units.units.iter();
        let lines = units.flat_map(|unit| unit.lines(&self.units.dwarf, code).ranges());
        let line = |(range, file, line): (Range<u64>, &Arc<str>, u32)| SourceLine {
            range: AddrRange { start: Addr(range.start), end: Addr(range.end) },
            file: file.clone(),
            line,
        };
        lines.map(line).filter(|line| !line.range.is_empty()).collect()
    }
}
