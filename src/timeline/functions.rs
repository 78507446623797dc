//! Functions by address for the call stack, from the symbols in the code's own files. Opens no
//! debug files.

use crate::common::Addr;
use crate::image::Section;
use crate::image::elf::Elf;
use crate::symbols::Symbols;
use std::collections::HashMap;
use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

/// A function, or one of the parts into which a compiler split it.
#[derive(Clone, Debug)]
pub(super) struct Function {
    start: Addr,
    name: Arc<str>,
    is_part: bool,
}

impl Function {
    fn new(start: Addr, name: &str) -> Self {
        let whole_name = without_part_suffix(name);
        Self { start, name: Arc::from(whole_name), is_part: whole_name != name }
    }

    /// Returns true if both values belong to the same function. Compares start addresses, since
    /// instances of a generic function share a name; a split-off part can only be matched by name.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        if self.is_part || other.is_part {
            self.name == other.name
        } else {
            self.start == other.start
        }
    }
}

/// A lookup of functions, with the symbols of modules read so far and the results of earlier
/// lookups. Clones share these.
#[derive(Clone, Default)]
pub(super) struct Functions(Arc<Mutex<FunctionCache>>);

#[derive(Default)]
struct FunctionCache {
    functions: HashMap<Addr, Option<Function>>,
    /// The symbols of sections by start address; `None` for a section of no ELF file.
    modules: HashMap<Addr, Option<Symbols>>,
}

/// The maximum number of cached lookups: then all are dropped.
const ADDRS_LIMIT: usize = 1 << 16;

impl Functions {
    /// Returns the function at `addr`; `None` if no symbol covers it. `section` returns the section
    /// that contains `addr`, and is called only for an address that is not cached.
    pub(super) fn at<'a>(
        &self,
        addr: Addr,
        section: impl FnOnce() -> Option<&'a Section>,
    ) -> Option<Function> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(function) = known.functions.get(&addr) {
            return function.clone();
        }
        let section = section()?;
        let module = known.modules.entry(section.range.start).or_insert_with(|| symbols(section));
        let found = module.as_ref().and_then(|module| module.function_at(addr));
        let function = found.map(|function| Function::new(function.start, &function.name));
        if known.functions.len() >= ADDRS_LIMIT {
            known.functions.clear();
        }
        known.functions.insert(addr, function.clone());
        function
    }
}

impl fmt::Debug for Functions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Functions")
    }
}

/// Returns the symbols of the ELF file in a section; `None` if there is none.
fn symbols(section: &Section) -> Option<Symbols> {
    let bias = Elf::parse(&section.bytes).ok()?.bias(section.range.start, section.offset)?;
    let mut symbols = Symbols::new(|_: &Path| None);
    symbols.add_module(&section.name, section.bytes.clone(), bias, section.range);
    Some(symbols)
}

/// Returns the name without the suffix of a part: `main.cold`, or `f(int) [clone .cold]`.
fn without_part_suffix(name: &str) -> &str {
    [" [clone .cold", ".cold"]
        .iter()
        .find_map(|part| Some(name.split_once(part)?.0))
        .unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::Function;
    use crate::common::Addr;

    #[test]
    fn parts_of_a_function_are_it() {
        let function = |start, name| Function::new(Addr(start), name);
        let parse = function(0x1000, "parse(int)");
        assert!(parse.is_same(&function(0x1000, "parse(int)")));
        assert!(parse.is_same(&function(0x400, "parse(int) [clone .cold]")));
        assert!(!parse.is_same(&function(0x2000, "parse(int)")), "another instance");
        assert!(function(0x400, "main.cold.3").is_same(&function(0x3000, "main")));
    }
}
