//! One mapped file: reads its symbols and its DWARF on first use; its addresses are run-time ones.

use crate::common::{Addr, AddrRange};
use crate::image::Bytes;
use crate::image::elf::Elf;
use crate::symbols::debug_file::{self, DebugFile};
use crate::symbols::dwarf::{Dwarf, Frame, Location, has_dwarf};
use crate::symbols::table::SymbolTable;
use crate::symbols::unwind::UnwindTables;
use crate::symbols::{Files, Function, names};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

/// A program or library, and its mapping.
pub(super) struct Module {
    /// The run-time addresses of the mapping.
    pub(super) range: AddrRange,
    path: PathBuf,
    bytes: Bytes,
    /// The load bias: the run-time address of a byte minus its address in the file.
    pub(super) bias: u64,
    files: Arc<dyn Files>,
    debug_file: OnceLock<Option<DebugFile>>,
    table: OnceLock<SymbolTable>,
    dwarf: OnceLock<Option<Dwarf>>,
    unwind: OnceLock<UnwindTables>,
}

impl Module {
    /// Creates the module `bytes` with the path `name`, mapped at `range`. Reads nothing of it yet.
    pub(super) fn new(
        name: &str,
        bytes: Bytes,
        bias: u64,
        range: AddrRange,
        files: Arc<dyn Files>,
    ) -> Self {
        Self {
            range,
            path: PathBuf::from(name),
            bytes,
            bias,
            files,
            debug_file: OnceLock::new(),
            table: OnceLock::new(),
            dwarf: OnceLock::new(),
            unwind: OnceLock::new(),
        }
    }

    /// Returns the function that contains `addr`: from the ELF symbols, else from DWARF, by which
    /// `addr` may be outside of the returned range ([`Dwarf::function_at`]). `None` if neither has
    /// one.
    pub(super) fn function_at(&self, addr: Addr) -> Option<Function> {
        let at = addr.0.wrapping_sub(self.bias);
        let (name, start, size_bytes) = match self.table().function_at(at) {
            Some(found) => (found.name, found.start, found.size_bytes),
            None => self.dwarf()?.function_at(at, self.table().code())?,
        };
        let start = Addr(start.wrapping_add(self.bias));
        Some(Function { name, start, size_bytes, offset: addr.0.wrapping_sub(start.0) })
    }

    /// Returns the source location of the code at `addr`; `None` if no line table covers it.
    pub(super) fn location_at(&self, addr: Addr) -> Option<Location> {
        self.dwarf()?.location_at(addr.0.wrapping_sub(self.bias), self.table().code())
    }

    /// Returns the function at `addr` and those that it is inlined into, innermost first. Without
    /// DWARF of the function, returns one frame with its ELF symbol and line, if either is known.
    pub(super) fn frames_at(&self, addr: Addr) -> Vec<Frame> {
        let at = addr.0.wrapping_sub(self.bias);
        let mut frames = self.dwarf().map(|dwarf| dwarf.frames_at(at, self.table().code()));
        if let Some(outermost) = frames.as_mut().and_then(|frames| frames.last_mut()) {
            self.qualify(outermost, at);
        }
        frames.filter(|frames| !frames.is_empty()).unwrap_or_else(|| {
            let function = self.function_at(addr).map(|function| function.name);
            let location = self.location_at(addr);
            let is_known = function.is_some() || location.is_some();
            is_known.then_some(Frame { function, location }).into_iter().collect()
        })
    }

    /// Replaces the name of a frame's function by that of its ELF symbol, which has the namespace,
    /// if the frame has no name or the last part of that one. DWARF has no linkage name for local
    /// functions.
    fn qualify(&self, frame: &mut Frame, at: u64) {
        let Some(symbol) = self.table().function_at(at) else { return };
        let full = names::without_parameters(&symbol.name);
        let is_same =
            |name: &String| full.strip_suffix(&**name).is_some_and(|before| before.ends_with("::"));
        if frame.function.as_ref().is_none_or(is_same) {
            frame.function = Some(symbol.name);
        }
    }

    /// Returns the start addresses of the functions that `query` matches.
    pub(super) fn addresses_of_function(&self, query: &str) -> Vec<Addr> {
        let mut found: Vec<u64> = self.table().addresses_of_function(query).collect();
        if let Some(dwarf) = self.dwarf() {
            found.extend(dwarf.addresses_of_function(query, self.table().code()));
        }
        self.at_run_time(found)
    }

    /// Returns the first line, from `line` on, that has code for a breakpoint in a file that `file`
    /// matches; `None` if there is none.
    pub(super) fn next_line(&self, file: &str, line: u32) -> Option<u32> {
        self.dwarf()?.next_line(file, line, self.table().code())
    }

    /// Returns the addresses at which to break for exactly this line.
    pub(super) fn addresses_of_line(&self, file: &str, line: u32) -> Vec<Addr> {
        let code = self.table().code();
        let found = self.dwarf().map(|dwarf| dwarf.addresses_of_line(file, line, code));
        self.at_run_time(found.unwrap_or_default())
    }

    /// Converts addresses of the file to run-time ones, sorted and without duplicates.
    fn at_run_time(&self, mut addresses: Vec<u64>) -> Vec<Addr> {
        addresses.sort_unstable();
        addresses.dedup();
        addresses.into_iter().map(|addr| Addr(addr.wrapping_add(self.bias))).collect()
    }

    /// Finds the separate debug file, at the first call; `None` if there is none.
    fn debug_file(&self) -> Option<&DebugFile> {
        let find = || {
            debug_file::find_debug_file(&*self.files, &self.path, &Elf::parse(&self.bytes).ok()?)
        };
        self.debug_file.get_or_init(find).as_ref()
    }

    /// Returns the ELF symbols of the module and of its separate debug file.
    pub(super) fn table(&self) -> &SymbolTable {
        self.table.get_or_init(|| {
            let separate = self.debug_file().map(|file| file.bytes.clone());
            SymbolTable::parse([self.bytes.clone()].into_iter().chain(separate).collect())
        })
    }

    /// Returns the DWARF in the module or in its separate debug file; `None` if there is none.
    pub(super) fn dwarf(&self) -> Option<&Dwarf> {
        let load = || {
            let own = || DebugFile { path: self.path.clone(), bytes: self.bytes.clone() };
            let file = has_dwarf(&self.bytes).then(own);
            let file = file.or_else(|| self.debug_file().cloned())?;
            Dwarf::parse(&file, self.table().code(), self.files.clone())
        };
        self.dwarf.get_or_init(load).as_ref()
    }

    /// Returns the DWARF in the module itself; `None` if it is in another file, or absent.
    pub(super) fn own_dwarf(&self) -> Option<&Dwarf> {
        self.dwarf().filter(|_| has_dwarf(&self.bytes))
    }

    /// Returns the module's unwind tables, which the first call reads.
    pub(super) fn unwind_tables(&self) -> &UnwindTables {
        self.unwind.get_or_init(|| {
            UnwindTables::parse(&self.bytes, self.debug_file().map(|file| &file.bytes))
        })
    }
}
