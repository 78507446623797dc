//! The functions whose calls are wanted.

use super::error::Error;
use super::opened::Asked;
use crate::common::{Addr, AddrRange};
use std::collections::BTreeSet;

/// A set of functions, by the addresses of their first instructions.
#[derive(Debug, Default)]
pub(super) struct WantedFunctions {
    /// The addresses of functions with wanted names; `None` for all names.
    starts: Option<BTreeSet<Addr>>,
    /// The code in which wanted functions begin; `None` for all code.
    own: Option<Vec<AddrRange>>,
}

impl WantedFunctions {
    /// Returns true if the set contains the function that begins at an address.
    pub(super) fn contains(&self, start: Addr) -> bool {
        self.starts.as_ref().is_none_or(|starts| starts.contains(&start))
            && self.own.as_ref().is_none_or(|own| own.iter().any(|range| range.contains(start)))
    }
}

impl Asked {
    /// Returns the functions with some names, or all functions if there are no names; with
    /// `in_program_file`, only those in the program's own file. Fails at a name that no function
    /// has.
    pub(super) fn wanted_functions(
        &self,
        names: &[String],
        in_program_file: bool,
    ) -> Result<WantedFunctions, Error> {
        let mut starts = BTreeSet::new();
        for name in names {
            let found = self.symbols.addresses_of_function(name);
            if found.is_empty() {
                return Err(Error::NoCode(name.to_owned()));
            }
            starts.extend(found);
        }
        let starts = (!names.is_empty()).then_some(starts);
        Ok(WantedFunctions { starts, own: in_program_file.then(|| self.own_code()) })
    }

    /// Returns the ranges in which the file of the recorded program is mapped as executable code,
    /// over the whole run; not those of other programs that it executes.
    fn own_code(&self) -> Vec<AddrRange> {
        let program = &self.timeline.reader().manifest().program;
        let epochs = self.timeline.images().epochs().iter();
        let sections = epochs.flat_map(|epoch| epoch.image.sections());
        let own = sections.filter(|section| section.executable && *section.name == **program);
        let own: BTreeSet<(Addr, Addr)> =
            own.map(|section| (section.range.start, section.range.end)).collect();
        own.into_iter().map(|(start, end)| AddrRange { start, end }).collect()
    }
}
