//! The modules of a process, queried by run-time address, by line and by name.

use crate::common::{Addr, AddrRange};
use crate::image::Bytes;
use crate::symbols::module::Module;
use crate::symbols::{Files, Frame, Location};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The function at an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Its demangled name; `name@plt` for a stub of the procedure linkage table.
    pub name: String,
    /// The address at which it is entered.
    pub start: Addr,
    /// Its size from `start` on, in bytes; zero if unknown, as for hand-written assembly. Leaves
    /// out parts of the function that are elsewhere.
    pub size_bytes: u64,
    /// The queried address minus `start`. It is at least `size_bytes` in a part that is elsewhere,
    /// and wraps around in one below `start`.
    pub offset: u64,
}

/// The symbols of all modules of a process.
pub struct Symbols {
    files: Arc<dyn Files>,
    /// The modules by the start of their ranges, which do not overlap.
    pub(super) modules: BTreeMap<Addr, Module>,
}

impl Symbols {
    /// Creates an empty set of modules. Separate debug files are opened through `files`.
    pub fn new(files: impl Files + 'static) -> Self {
        Self { files: Arc::new(files), modules: BTreeMap::new() }
    }

    /// Adds the program or library `bytes` with the path `name` at `range`; `bias` is its load
    /// bias. Reads nothing of it yet. Drops modules that overlap the range. Adds nothing if the
    /// range is empty.
    pub fn add_module(&mut self, name: &str, bytes: Bytes, bias: u64, range: AddrRange) {
        self.remove_modules(range);
        if !range.is_empty() {
            let module = Module::new(name, bytes.aligned(), bias, range, self.files.clone());
            self.modules.insert(range.start, module);
        }
    }

    /// Drops all modules that overlap `range`, as a whole.
    pub fn remove_modules(&mut self, range: AddrRange) {
        self.modules.retain(|_, module| !module.range.overlaps(range));
    }

    /// Returns the function that contains `addr`, from the ELF symbols, else from DWARF: not one
    /// that is inlined there. `None` if there is none, or no module.
    pub fn function_at(&self, addr: Addr) -> Option<Function> {
        self.module_at(addr)?.function_at(addr)
    }

    /// Returns the source location of the code at `addr`; `None` if no line table covers it.
    pub fn location_at(&self, addr: Addr) -> Option<Location> {
        self.module_at(addr)?.location_at(addr)
    }

    /// Returns the function at `addr` and those that it is inlined into, innermost first. Without
    /// debug information of the function, returns one frame with the ELF symbol and the line, if
    /// either is known; empty if nothing is known.
    pub fn frames_at(&self, addr: Addr) -> Vec<Frame> {
        self.module_at(addr).map(|module| module.frames_at(addr)).unwrap_or_default()
    }

    /// Returns the addresses at which gdb would break for a line: one in each function, inlined
    /// copy and block with its own variables that has code of the line. `file` is a path or its
    /// last components. If the line has no code, uses the next line that has; empty without one.
    pub fn addresses_of_line(&self, file: &str, line: u32) -> Vec<Addr> {
        let modules = self.modules.values();
        let next = modules.clone().filter_map(|module| module.next_line(file, line)).min();
        let Some(line) = next else { return Vec::new() };
        modules.flat_map(|module| module.addresses_of_line(file, line)).collect()
    }

    /// Returns the start addresses of functions with this name, including inlined copies; none if
    /// no function has it. A C++ or Rust name may omit the return type, parameters, template
    /// arguments and outer namespaces; `name@plt` denotes the stubs of `name`.
    pub fn addresses_of_function(&self, name: &str) -> Vec<Addr> {
        self.modules.values().flat_map(|module| module.addresses_of_function(name)).collect()
    }

    /// Returns the module whose range contains `addr`; `None` if there is none.
    pub(super) fn module_at(&self, addr: Addr) -> Option<&Module> {
        let (_, module) = self.modules.range(..=addr).next_back()?;
        module.range.contains(addr).then_some(module)
    }
}
