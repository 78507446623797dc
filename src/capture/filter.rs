//! The filter that selects the code to trace, resolved to ranges of addresses of the running
//! program, as a PT unit interprets them (SDM section "Filtering by IP").

use super::error::Error;
use crate::common::AddrRange;
use crate::encode::{MOST_RANGES, Ranges};
use crate::image::Bytes;
use crate::image::elf::Elf;
use crate::recording::{Mapped, debug_file};
use crate::sideband::Mapping;
use crate::symbols::Symbols;
use std::path::Path;

/// A range of code, as a user names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Code {
    /// The code at these addresses.
    Range(AddrRange),
    /// The function of this name, in every program or library that has one.
    Function(String),
    /// The function of this name, in the program or library whose file has the second name.
    FunctionOf(String, String),
}

impl Code {
    /// Returns the code as words, for the manifest and errors: a range in hexadecimal, with its
    /// last address.
    pub(super) fn words(&self) -> String {
        match self {
            Self::Range(range) => format!("{:x}-{:x}", range.start.0, range.end.0 - 1),
            Self::Function(name) => name.clone(),
            Self::FunctionOf(name, file) => format!("{name}@{file}"),
        }
    }
}

/// A filter for the code to trace. Empty, it selects all code.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// The only code to trace; empty for all code.
    pub only: Vec<Code>,
    /// The code at which a thread's trace ends, by a branch to it (`TraceStop`).
    pub stop: Vec<Code>,
}

impl Filter {
    /// Returns the parts of the filter as words for the manifest.
    pub(super) fn words(&self) -> Vec<String> {
        let stop = self.stop.iter().map(|code| format!("up to {}", code.words()));
        self.only.iter().map(Code::words).chain(stop).collect()
    }
}

/// A search in a process for the functions that a filter names.
#[derive(Debug)]
pub(super) struct Resolver {
    filter: Filter,
    ranges: Ranges,
    /// The mappings that were searched, with their files.
    searched: Vec<(AddrRange, String)>,
    /// The names of functions in the filter, each with true if it was ever found.
    found: Vec<(String, bool)>,
}

impl Resolver {
    /// Returns a resolver that has found the ranges of the filter, but no function yet.
    pub(super) fn new(filter: &Filter) -> Self {
        let is_name = |code: &&Code| !matches!(code, Code::Range(_));
        let names = filter.only.iter().chain(&filter.stop).filter(is_name);
        let found = names.map(|code| (code.words(), false)).collect();
        let mut resolver =
            Self { filter: filter.clone(), ranges: Ranges::default(), searched: Vec::new(), found };
        resolver.start_over();
        resolver
    }

    /// Returns the ranges of the filter that are found so far.
    pub(super) fn ranges(&self) -> &Ranges {
        &self.ranges
    }

    /// Forgets the ranges of named functions and the searched mappings, since the process runs
    /// another program. Keeps the ranges that are given by address.
    pub(super) fn start_over(&mut self) {
        let fixed = |codes: &[Code]| {
            let range = |code: &Code| match code {
                Code::Range(range) => Some(*range),
                Code::Function(_) | Code::FunctionOf(..) => None,
            };
            codes.iter().filter_map(range).collect()
        };
        let filters = !self.filter.only.is_empty();
        self.ranges = Ranges::new(filters, fixed(&self.filter.only), fixed(&self.filter.stop));
        self.searched.clear();
    }

    /// Searches those of `mappings` that are of code files and were not searched before for the
    /// filter's functions, and adds their ranges. Returns true if the ranges changed.
    pub(super) fn search<'a>(&mut self, mappings: impl Iterator<Item = &'a Mapping>) -> bool {
        if self.found.is_empty() {
            return false;
        }
        let before = self.ranges.clone();
        for mapping in mappings.filter(|m| m.protection.execute && m.is_file()) {
            let key = (mapping.range, mapping.name.clone());
            if !self.searched.contains(&key) {
                self.searched.push(key);
                self.add_functions_in(mapping);
            }
        }
        self.ranges != before
    }

    /// Returns an error if there are more ranges than a PT unit has.
    pub(super) fn check_count(&self) -> Result<(), Error> {
        match self.count() {
            0..=MOST_RANGES => Ok(()),
            count => Err(Error::TooManyRanges { count }),
        }
    }

    /// Returns the number of ranges that are found so far.
    pub(super) fn count(&self) -> usize {
        self.ranges.only().len() + self.ranges.stop().len()
    }

    /// Returns true if the filter has functions that were not found yet, ever or in the current
    /// program.
    pub(super) fn has_missing_functions(&self) -> bool {
        let codes = self.filter.only.len() + self.filter.stop.len();
        self.count() < codes || self.found.iter().any(|(_, found)| !found)
    }

    /// Returns notes for the user: the names of the filter that were not found.
    pub(super) fn notes(&self) -> Vec<String> {
        let unknown = self.found.iter().filter(|(_, found)| !found);
        let note = |(name, _): &(String, bool)| {
            format!("no program or library had a function {name} for the filter")
        };
        unknown.map(note).collect()
    }

    /// Adds the ranges of all functions of the filter that the file of a mapping has.
    fn add_functions_in(&mut self, mapping: &Mapping) {
        let wanted = |code: &&Code| match code {
            Code::Range(_) => false,
            Code::Function(_) => true,
            Code::FunctionOf(_, file) => is_named(&mapping.name, file),
        };
        let codes = || self.filter.only.iter().chain(&self.filter.stop);
        if codes().find(wanted).is_none() {
            return;
        }
        let Some(symbols) = symbols(mapping) else { return };
        for (is_stop, codes) in [(false, &self.filter.only), (true, &self.filter.stop)] {
            for code in codes.iter().filter(wanted) {
                let (Code::Function(name) | Code::FunctionOf(name, _)) = code else { continue };
                for range in functions(&symbols, name) {
                    self.found.iter_mut().filter(|f| f.0 == code.words()).for_each(|f| f.1 = true);
                    self.ranges.add(range, is_stop);
                }
            }
        }
    }
}

/// Returns true if a file has this path or this name.
fn is_named(path: &str, name: &str) -> bool {
    path == name || Path::new(path).file_name().is_some_and(|file| file == name)
}

/// Returns the ranges of the functions of this name, without their inlined copies. A function of
/// unknown size has one byte.
fn functions(symbols: &Symbols, name: &str) -> Vec<AddrRange> {
    let starts = symbols.addresses_of_function(name).into_iter();
    let around = starts.filter_map(|at| symbols.function_at(at).filter(|f| f.start == at));
    around.map(|function| AddrRange::sized(function.start, function.size_bytes.max(1))).collect()
}

/// Reads the symbols of a mapped file; `None` if it cannot be read or is no ELF file.
fn symbols(mapping: &Mapping) -> Option<Symbols> {
    let bytes = Bytes::new(Mapped::open(Path::new(&mapping.name)).ok()?);
    let bias = Elf::parse(&bytes).ok()?.bias(mapping.range.start, mapping.offset)?;
    let mut symbols = Symbols::new(debug_file);
    symbols.add_module(&mapping.name, bytes, bias, mapping.range);
    Some(symbols)
}
