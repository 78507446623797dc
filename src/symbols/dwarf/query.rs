//! Queries the DWARF of one module by address, line or function.

use super::globals::Globals;
use super::scopes::{Call, Scope, ScopeKind};
use super::units::{Unit, Units, file_path};
use super::{origin, sections};
use crate::symbols::debug_file::{self, DebugFile, normalized};
use crate::symbols::spans::Spans;
use crate::symbols::{Files, names};
use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::{Arc, OnceLock};

/// A source location.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// The path of the file. A relative path was joined to the compilation directory.
    pub file: Arc<str>,
    /// The line, from 1.
    pub line: u32,
    /// The column in bytes, from 1, if known.
    pub column: Option<u32>,
}

/// The function at an address, or a function that it is inlined into.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The demangled name of the function; `None` if it is unknown.
    pub function: Option<String>,
    /// For the innermost function, the source location of the address; for the others, that of the
    /// call that was inlined. `None` if it is unknown.
    pub location: Option<Location>,
}

/// The DWARF of one module. The parameter `code` of its methods is the module's executable ranges.
pub(in crate::symbols) struct Dwarf {
    pub(super) units: Units,
    /// The units of the supplement, the file into which dwz moved entries that several debug files
    /// have in common.
    pub(super) supplement: Option<Units>,
    /// The code of the units: the value of each span is an index in `units`.
    by_address: Spans,
    pub(super) files: Arc<dyn Files>,
    /// The addresses at which functions are entered, by linkage name, else by plain name.
    by_name: OnceLock<HashMap<String, Vec<u64>>>,
    /// The variables outside of functions, by name.
    pub(super) globals: OnceLock<Globals>,
}

impl Dwarf {
    /// Reads the list of units in `file`; `None` if it is not a 64-bit little-endian ELF file.
    /// `code` are the code sections of the module.
    pub(in crate::symbols) fn parse(
        file: &DebugFile,
        code: &Spans,
        files: Arc<dyn Files>,
    ) -> Option<Self> {
        let mut dwarf = sections::load(&file.bytes)?;
        let supplement = sections::supplement_link(&file.bytes).and_then(|(name, build_id)| {
            debug_file::open_supplement(&*files, &file.path, &name, &build_id)
        });
        if let Some(shared) = supplement.as_ref().and_then(sections::load) {
            dwarf.set_sup(shared);
        }
        // The units of the supplement are separate, with their own sections.
        let supplement = supplement.and_then(|bytes| sections::load(&bytes));
        let units = Units::parse(dwarf);
        let by_address = units.by_address(code);
        Some(Self {
            units,
            supplement: supplement.map(Units::parse),
            by_address,
            files,
            by_name: OnceLock::new(),
            globals: OnceLock::new(),
        })
    }

    /// Returns the source location of the code at `addr`; `None` if no line table covers it, or the
    /// path of the file is damaged.
    pub(in crate::symbols) fn location_at(&self, addr: u64, code: &Spans) -> Option<Location> {
        let lines = self.unit_at(addr)?.lines(&self.units.dwarf, code);
        let row = lines.row_at(addr)?;
        let file = lines.file(row.file)?.clone();
        Some(Location { file, line: row.line, column: (row.column > 0).then_some(row.column) })
    }

    /// Returns the function at `addr` and those that it is inlined into, innermost first; empty if
    /// there is none.
    pub(in crate::symbols) fn frames_at(&self, addr: u64, code: &Spans) -> Vec<Frame> {
        let Some(unit) = self.unit_at(addr) else { return Vec::new() };
        let mut location = self.location_at(addr, code);
        let mut frames = Vec::new();
        for (_, scope) in unit.scopes(&self.units.dwarf, code, &*self.files).at(addr) {
            let caller = match scope.kind {
                ScopeKind::Block { .. } => continue,
                ScopeKind::Inlined(call) => self.call_location(unit, call),
                ScopeKind::Function => None,
            };
            let function = self.name_of(unit, scope).map(|name| names::demangle(&name));
            frames.push(Frame { function, location: std::mem::replace(&mut location, caller) });
        }
        frames
    }

    /// Returns the non-inlined function that contains `addr`: its demangled name, the address at
    /// which it is entered, and the bytes from there to the end of the contiguous range around it.
    /// `addr` may be outside of that range, also below it, in a cold part. The function is the
    /// outermost of the scopes at `addr`. `None` if there is none, or it has no name.
    pub(in crate::symbols) fn function_at(
        &self,
        addr: u64,
        code: &Spans,
    ) -> Option<(String, u64, u64)> {
        let unit = self.unit_at(addr)?;
        let (_, scope) = unit.scopes(&self.units.dwarf, code, &*self.files).at(addr).last()?;
        let name = names::demangle(&self.name_of(unit, scope)?);
        Some((name, scope.start, scope.size_bytes))
    }

    /// Returns the addresses at which the functions that `query` matches are entered, including
    /// inlined copies, in no certain order. The first call reads all units.
    pub(in crate::symbols) fn addresses_of_function(&self, query: &str, code: &Spans) -> Vec<u64> {
        let query = names::Query::new(query);
        let by_name = self.by_name.get_or_init(|| self.functions_by_name(code));
        let meant = by_name.iter().filter(|(name, _)| query.matches(name));
        meant.flat_map(|(_, starts)| starts).copied().collect()
    }

    /// Lists the addresses at which all functions, and their inlined copies, are entered, by
    /// linkage name or, without one, by plain name. Leaves out functions without a name. Reads all
    /// units.
    fn functions_by_name(&self, code: &Spans) -> HashMap<String, Vec<u64>> {
        let mut by_name: HashMap<String, Vec<u64>> = HashMap::new();
        for unit in &self.units.units {
            let scopes = unit.scopes(&self.units.dwarf, code, &*self.files).iter();
            for scope in scopes.filter(|scope| !matches!(scope.kind, ScopeKind::Block { .. })) {
                if let Some(name) = self.name_of(unit, scope) {
                    by_name.entry(name).or_default().push(scope.start);
                }
            }
        }
        by_name
    }

    /// Returns the first line, from `line` on, that has code for a breakpoint in a file that `file`
    /// matches; `None` if there is none.
    pub(in crate::symbols) fn next_line(&self, file: &str, line: u32, code: &Spans) -> Option<u32> {
        let lines = self.units.units.iter().flat_map(|unit| {
            let rows =
                unit.lines(&self.units.dwarf, code).breakpoint_rows(|path| is_file(file, path));
            rows.map(|row| row.line).filter(|found| *found >= line)
        });
        lines.min()
    }

    /// Returns the addresses at which to break for exactly this line: the first one in each
    /// function, inlined copy and block that declares variables, and for each unit the first one in
    /// none of these. Empty if the line has no code.
    pub(in crate::symbols) fn addresses_of_line(
        &self,
        file: &str,
        line: u32,
        code: &Spans,
    ) -> Vec<u64> {
        let mut addresses = Vec::new();
        for unit in &self.units.units {
            let lines = unit.lines(&self.units.dwarf, code);
            let rows =
                lines.breakpoint_rows(|path| is_file(file, path)).filter(|row| row.line == line);
            let mut found: Vec<u64> = rows.map(|row| row.address).collect();
            found.sort_unstable();
            let scopes = unit.scopes(&self.units.dwarf, code, &*self.files);
            let mut seen = HashSet::new();
            found.retain(|addr| seen.insert(scopes.at(*addr).next().map(|(index, _)| index)));
            addresses.extend(found);
        }
        addresses
    }

    /// Returns the unit that covers `addr`; `None` if there is none.
    pub(super) fn unit_at(&self, addr: u64) -> Option<&Unit> {
        let index = usize::try_from(self.by_address.find(addr)?.value).ok()?;
        self.units.units.get(index)
    }

    /// Returns the linkage name of a scope's function, or its plain name if it has none; `None`
    /// without either.
    fn name_of(&self, unit: &Unit, scope: &Scope) -> Option<String> {
        let context = self.context();
        origin::function_name(context, context.root(unit).in_same_unit(scope.entry))
    }

    /// Returns the source location of an inlined call; `None` if its file or line is unknown.
    fn call_location(&self, unit: &Unit, call: Call) -> Option<Location> {
        let entries = unit.entries_unit(&self.units.dwarf, &*self.files);
        let main = unit.head.unit_ref(&self.units.dwarf);
        // Entries of a split file may use the file numbers of the main file's table.
        let numbered = if entries.line_program.is_some() { entries } else { main };
        let file = file_path(numbered, numbered.line_program.as_ref()?.header(), call.file)?;
        let column = (call.column > 0).then_some(call.column);
        (call.line > 0).then_some(Location { file, line: call.line, column })
    }
}

/// Returns true if `path` ends with the components of `query`, a user's name of a file. An empty
/// query matches no file.
fn is_file(query: &str, path: &str) -> bool {
    let query = normalized(Path::new(query));
    query.components().next().is_some() && Path::new(path).ends_with(query)
}

#[cfg(test)]
mod tests {
    use super::is_file;

    #[test]
    fn a_file_is_named_by_its_last_components() {
        for query in ["a.c", "src/a.c", "/src/a.c", "./a.c", "x/../a.c"] {
            assert!(is_file(query, "/src/a.c"), "{query}");
        }
        for query in ["", ".", "./", "b.c", "c/a.c", ".c"] {
            assert!(!is_file(query, "/src/a.c"), "{query}");
        }
    }
}
