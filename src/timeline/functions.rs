//! Functions by address, where the call stack needs them: as the code's own symbols have them. Opens
//! no debug files.

use crate::common::Addr;
use crate::image::Section;
use crate::image::elf::Elf;
use crate::symbols::Symbols;
use std::collections::HashMap;
use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

/// A function, or one of the parts that a compiler splits it into.
#[derive(Clone, Debug)]
pub(super) struct Function {
    start: Addr,
    name: Arc<str>,
    is_part: bool,
}

impl Function {
    fn new(start: Addr, name: &str) -> Self {
        let whole = whole(name);
        Self { start, name: Arc::from(whole), is_part: whole != name }
    }

    /// Whether both are of one function. Instances of one generic function have one name; a part
    /// has nothing but its name.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        if self.is_part || other.is_part {
            self.name == other.name
        } else {
            self.start == other.start
        }
    }
}

/// Modules whose symbols were read, and the addresses that were asked for.
#[derive(Clone, Default)]
pub(super) struct Functions(Arc<Mutex<Known>>);

#[derive(Default)]
struct Known {
    functions: HashMap<Addr, Option<Function>>,
    /// By the beginning of their section.
    modules: HashMap<Addr, Option<Symbols>>,
}

/// Addresses that are kept.
const ADDRS_LIMIT: usize = 1 << 16;

impl Functions {
    /// The function around `addr`, which is in the section that `section` gives.
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

fn symbols(section: &Section) -> Option<Symbols> {
    let bias = Elf::parse(&section.bytes).ok()?.bias(section.range.start, section.offset)?;
    let mut symbols = Symbols::new(|_: &Path| None);
    symbols.add_module(&section.name, section.bytes.clone(), bias, section.range);
    Some(symbols)
}

/// The name without that of the part: `main.cold`, or `f(int) [clone .cold]`.
fn whole(name: &str) -> &str {
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
