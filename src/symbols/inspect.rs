//! Variables, types and frames of a process, at run-time addresses.

use super::dwarf::{EntryId, LocationDescription};
use super::machine::{Home, Machine};
use super::module::Module;
use super::types::{Signature, SourceLine, Type, TypeId, Variable};
use super::{FrameRegisters, Symbols};
use crate::common::{Addr, AddrRange};

/// The description of where a variable is while the code at one address executes.
/// [`Symbols::home_of`] evaluates it in any state there.
#[derive(Clone, Debug)]
pub struct VariableLocation {
    module: Addr,
    entry: EntryId,
    description: LocationDescription,
}

impl Symbols {
    /// Returns true if the debug information describes the function at `addr`; its lines alone are
    /// not enough.
    pub fn has_debug_info(&self, addr: Addr) -> bool {
        !self.frames_at(addr).is_empty() && self.signature_at(addr).is_some()
    }

    /// Returns the variables and arguments that are visible at `addr` in the innermost function,
    /// inlined or not. Those of inner blocks come first.
    pub fn variables_at(&self, addr: Addr) -> Vec<Variable> {
        let found = self.module_at(addr).and_then(|module| {
            let at = addr.0.wrapping_sub(module.bias);
            Some(module.dwarf()?.variables_at(module.range.start, at, module.table().code()))
        });
        found.unwrap_or_default()
    }

    /// Returns the arguments and the result of the innermost function at `addr`, inlined or not;
    /// `None` if no function with debug information is there.
    pub fn signature_at(&self, addr: Addr) -> Option<Signature> {
        let module = self.module_at(addr)?;
        let at = addr.0.wrapping_sub(module.bias);
        module.dwarf()?.signature(module.range.start, at, module.table().code())
    }

    /// Returns all lines that have code, of the modules that have debug information in their own
    /// file: not of stripped libraries with separate debug files.
    pub fn source_lines(&self) -> Vec<SourceLine> {
        let of_module = |module: &Module| {
            let lines = module.own_dwarf().map(|dwarf| dwarf.source_lines(module.table().code()));
            let lines = lines.unwrap_or_default().into_iter();
            lines.map(|line| at_run_time(line, module.bias)).collect::<Vec<_>>()
        };
        self.modules.values().flat_map(of_module).collect()
    }

    /// Returns the source lines of the code in `range`, such as that of a function: of the
    /// compilation unit at its start, also from the module's separate debug file. The code of a
    /// line may reach out of `range`.
    pub fn source_lines_in(&self, range: AddrRange) -> Vec<SourceLine> {
        let Some(module) = self.module_at(range.start) else { return Vec::new() };
        let at = range.start.0.wrapping_sub(module.bias);
        let lines = module.dwarf().map(|dwarf| dwarf.unit_lines_at(at, module.table().code()));
        let lines = lines.unwrap_or_default().into_iter();
        let lines = lines.map(|line| at_run_time(line, module.bias));
        lines.filter(|line| line.range.overlaps(range)).collect()
    }

    /// Returns the first address at which the arguments of the function at `start` are where the
    /// debug information says: the end of the prologue if the compiler marked it, else the second
    /// row of the line table if the prologue stores arguments in its frame, else `start`. Also
    /// returns `start` without debug information.
    pub fn address_after_prologue(&self, start: Addr) -> Addr {
        let found = self.module_at(start).and_then(|module| {
            let at = start.0.wrapping_sub(module.bias);
            let size = module.function_at(start).map_or(0, |function| function.size_bytes);
            let function = at..at.saturating_add(size.max(1));
            module.dwarf()?.address_after_prologue(function, module.table().code())
        });
        let module = self.module_at(start);
        found.zip(module).map_or(start, |(at, module)| Addr(at.wrapping_add(module.bias)))
    }

    /// Returns the global variable that `name` means in the code at `addr`: one of the same
    /// compilation unit before one of the same module, before one of the other modules in the order
    /// of their addresses; `None` if there is none. `name` may omit outer namespaces, unless a
    /// module has several such variables.
    pub fn global_at(&self, addr: Addr, name: &str) -> Option<Variable> {
        let own = self.module_at(addr).and_then(|module| {
            let at = addr.0.wrapping_sub(module.bias);
            module.dwarf()?.global(module.range.start, Some(at), name, module.table().code())
        });
        own.or_else(|| {
            let mut others = self.modules.values();
            others.find_map(|module| {
                module.dwarf()?.global(module.range.start, None, name, module.table().code())
            })
        })
    }

    /// Reads a type. Returns `None` if it is void or damaged, or its module was removed.
    pub fn read_type(&self, type_id: TypeId) -> Option<Type> {
        let module = self.modules.get(&type_id.module)?;
        module.dwarf()?.read_type(type_id.module, type_id.entry)
    }

    /// Returns the description of where a variable is while the code at `addr` executes; `None` if
    /// its module was removed. If the variable has no location there, [`Self::home_of`] returns one
    /// that is optimized out.
    pub fn variable_location(&self, variable: &Variable, addr: Addr) -> Option<VariableLocation> {
        let module = self.modules.get(&variable.module)?;
        let at = addr.0.wrapping_sub(module.bias);
        let description =
            module.dwarf()?.location_description(variable.entry, at, module.table().code());
        Some(VariableLocation { module: variable.module, entry: variable.entry, description })
    }

    /// Returns the home of a variable's value in a state of the program; `None` if its module was
    /// removed. `frame` is the frame of the variable's function.
    pub fn home_of(
        &self,
        location: &VariableLocation,
        frame: &FrameRegisters,
        machine: &dyn Machine,
    ) -> Option<Home> {
        let module = self.modules.get(&location.module)?;
        let cfa = || self.cfa_of(frame, machine);
        module.dwarf()?.home(location.entry, &location.description, machine, &cfa, module.bias)
    }

    /// Returns the canonical frame address of a frame: the stack pointer before its call. `None` if
    /// no unwind table covers the frame's instruction, or a value is unknown.
    pub fn cfa_of(&self, frame: &FrameRegisters, machine: &dyn Machine) -> Option<u64> {
        let module = self.module_at(frame.lookup_pc()?)?;
        module.unwind_tables().cfa(frame, machine, module.bias)
    }

    /// Returns the registers of a frame's caller; `None` if the frame has no caller, or an unknown
    /// one, or one whose frame is not above it on the stack.
    pub fn caller_of(
        &self,
        frame: &FrameRegisters,
        machine: &dyn Machine,
    ) -> Option<FrameRegisters> {
        let module = self.module_at(frame.lookup_pc()?)?;
        module.unwind_tables().caller(frame, machine, module.bias)
    }
}

/// Returns a line of a module's file where it is in a process: `bias` bytes higher.
fn at_run_time(line: SourceLine, bias: u64) -> SourceLine {
    let at = |addr: Addr| addr.wrapping_add(bias);
    let range = AddrRange { start: at(line.range.start), end: at(line.range.end) };
    SourceLine { range, ..line }
}
