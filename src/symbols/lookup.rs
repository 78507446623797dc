//! The modules of a process, asked by run-time address, by line and by name.

use crate::common::{Addr, AddrRange};
use crate::image::Bytes;
use crate::symbols::module::Module;
use crate::symbols::{Files, Frame, Location};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A function by address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Its demangled name; `name@plt` for a stub of the procedure linkage table.
    pub name: String,
    /// Where it begins.
    pub start: Addr,
    /// Its size; zero when it is not known, as for hand-written assembly.
    pub size_bytes: u64,
    /// How far into it the address lies that was asked for, in bytes.
    pub offset: u64,
}

/// The symbols of all modules of a process.
pub struct Symbols {
    files: Arc<dyn Files>,
    /// By start of their range; ranges do not overlap.
    modules: BTreeMap<Addr, Module>,
}

impl Symbols {
    /// No modules yet. Separate debug files will be asked of `files`.
    pub fn new(files: impl Files + 'static) -> Self {
        Self { files: Arc::new(files), modules: BTreeMap::new() }
    }

    /// Adds the program or library `bytes`, whose path is `name`, at `range`; `bias` is what is
    /// added to its file's addresses. Reads nothing of it yet. Modules that were in the range are
    /// dropped.
    pub fn add_module(&mut self, name: &str, bytes: Bytes, bias: u64, range: AddrRange) {
        self.remove_modules(range);
        if !range.is_empty() {
            let module = Module::new(name, bytes.aligned(), bias, range, self.files.clone());
            self.modules.insert(range.start, module);
        }
    }

    /// Drops all modules that overlap `range`.
    pub fn remove_modules(&mut self, range: AddrRange) {
        self.modules.retain(|_, module| !module.range.overlaps(range));
    }

    /// The function around `addr`.
    pub fn function_at(&self, addr: Addr) -> Option<Function> {
        self.module_at(addr)?.function_at(addr)
    }

    /// The place in the source of the code at `addr`.
    pub fn location_at(&self, addr: Addr) -> Option<Location> {
        self.module_at(addr)?.location_at(addr)
    }

    /// The functions that execute at `addr`: the innermost inlined one first, the one that was
    /// called last.
    pub fn frames_at(&self, addr: Addr) -> Vec<Frame> {
        self.module_at(addr).map(|module| module.frames_at(addr)).unwrap_or_default()
    }

    /// Where to break for a line: once in each function, inlined copy and block with variables of
    /// its own that has code of it, as gdb does. `file` is a path or its last components. When no code is of the line, the next line
    /// that has code counts.
    pub fn addresses_of_line(&self, file: &str, line: u32) -> Vec<Addr> {
        let modules = self.modules.values();
        let next = modules.clone().filter_map(|module| module.next_line(file, line)).min();
        let Some(line) = next else { return Vec::new() };
        modules.flat_map(|module| module.addresses_of_line(file, line)).collect()
    }

    /// Where functions of this name begin, inlined copies too. A C++ or Rust name may leave out
    /// the parameters and outer namespaces; `name@plt` means the stubs that lead to `name`.
    pub fn addresses_of_function(&self, name: &str) -> Vec<Addr> {
        self.modules.values().flat_map(|module| module.addresses_of_function(name)).collect()
    }

    fn module_at(&self, addr: Addr) -> Option<&Module> {
        let (_, module) = self.modules.range(..=addr).next_back()?;
        module.range.contains(addr).then_some(module)
    }
}
