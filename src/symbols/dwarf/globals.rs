//! Finds the variables outside of functions. The entry that defines one often has no name, but
//! refers to the one that has: its declaration, which dwz may move to a partial unit, or, after
//! optimization at link time, its entry in the unit of its source file.

use super::Reader;
use super::die::{Context, Die, EntryId, is_aggregate, is_declaration};
use super::units::{is_bounded, text};
use gimli::DebuggingInformationEntry as Entry;
use std::collections::HashMap;

/// The limit on references from one entry to the next. A longer chain is a loop.
const MAX_REFERENCES: usize = 16;

/// The variables of a module outside of functions, by their full names.
pub(super) type Globals = HashMap<String, Vec<Global>>;

/// A variable that is defined outside of functions.
#[derive(Clone, Copy, Debug)]
pub(super) struct Global {
    /// The entry that has its location.
    pub(super) entry: EntryId,
    /// Its entry in the unit of its source file: the last of the abstract origins.
    pub(super) origin: EntryId,
}

/// An entry without a name that defines a variable.
struct Unnamed {
    entry: EntryId,
    /// The declaration or abstract origin of `entry`.
    target: EntryId,
    /// True if `target` is an abstract origin.
    is_copy: bool,
}

/// The variables outside of functions in the units read so far.
pub(super) struct GlobalsReader<'a> {
    context: Context<'a>,
    globals: Globals,
    /// The full names of declarations and definitions.
    names: HashMap<EntryId, String>,
    unnamed: Vec<Unnamed>,
}

impl<'a> GlobalsReader<'a> {
    pub(super) fn new(context: Context<'a>) -> Self {
        let (globals, names) = (Globals::new(), HashMap::new());
        Self { context, globals, names, unnamed: Vec::new() }
    }

    /// Adds the variables of a unit, also those in namespaces and classes, up to any damage.
    pub(super) fn read(&mut self, root: Die<'a>) {
        // On damage, keep the entries before it.
        let _ = self.read_entries(root);
    }

    /// Does what [`Self::read`] does; fails at damage, after the variables before it.
    fn read_entries(&mut self, root: Die<'a>) -> gimli::Result<()> {
        let mut entries = root.unit.entries_raw(None)?;
        let mut entry = Entry::default();
        // The names of open namespaces, and their depths.
        let mut open: Vec<(isize, String)> = Vec::new();
        // The depth of an entry whose children are skipped: a function, a variable, another type.
        let mut skipped: Option<isize> = None;
        while !entries.is_empty() {
            let (depth, offset) = (entries.next_depth(), entries.next_offset());
            let Some(abbreviation) = entries.read_abbreviation()? else { continue };
            if !is_bounded(abbreviation) {
                break;
            }
            if skipped.is_some_and(|around| depth > around) {
                entries.skip_attributes(abbreviation.attributes())?;
                continue;
            }
            skipped = None;
            while open.last().is_some_and(|(around, _)| *around >= depth) {
                open.pop();
            }
            let tag = abbreviation.tag();
            let is_scope = tag == gimli::DW_TAG_namespace || is_aggregate(tag);
            let is_variable = tag == gimli::DW_TAG_variable || tag == gimli::DW_TAG_member;
            if !is_scope && !is_variable {
                skipped = (depth > 0).then_some(depth);
                entries.skip_attributes(abbreviation.attributes())?;
                continue;
            }
            entries.read_attributes(abbreviation.attributes(), &mut entry.attrs)?;
            entry.tag = tag;
            if is_scope {
                let name = entry.attr_value(gimli::DW_AT_name);
                let name = name.and_then(|name| text(root.unit, name));
                open.push((depth, name.unwrap_or_default()));
                continue;
            }
            self.add(root.in_same_unit(offset), &entry, &open);
            skipped = Some(depth);
        }
        Ok(())
    }

    /// Adds the variable or member that `entry` describes, in the namespaces and classes `open`.
    fn add(&mut self, die: Die<'a>, entry: &Entry<Reader>, open: &[(isize, String)]) {
        let id = die.id;
        if let Some(name) = entry.attr_value(gimli::DW_AT_name)
            && let Some(name) = text(die.unit, name)
        {
            let around = open.iter().map(|(_, name)| name.as_str()).filter(|name| !name.is_empty());
            let path = around.chain([name.as_str()]).collect::<Vec<_>>().join("::");
            if entry.tag != gimli::DW_TAG_member && !is_declaration(entry) && !id.is_in_supplement {
                self.globals
                    .entry(path.clone())
                    .or_default()
                    .push(Global { entry: id, origin: id });
            }
            self.names.insert(id, path);
            return;
        }
        let origin = entry.attr_value(gimli::DW_AT_abstract_origin);
        let is_copy = origin.is_some();
        let has_value = [gimli::DW_AT_location, gimli::DW_AT_const_value]
            .iter()
            .any(|attribute| entry.attr_value(*attribute).is_some());
        // A copy without a value adds nothing to its origin.
        if let Some(reference) = origin.or_else(|| entry.attr_value(gimli::DW_AT_specification))
            && (has_value || !is_copy)
            && let Some(target) = die.follow(&reference, self.context)
        {
            self.unnamed.push(Unnamed { entry: id, target: target.id, is_copy });
        }
    }

    /// Returns the variables of all units. Leaves out definitions without a name if their
    /// references lead to none. A definition by an abstract origin replaces that one.
    pub(super) fn finish(mut self) -> Globals {
        let unnamed = std::mem::take(&mut self.unnamed);
        if unnamed.iter().any(|one| one.target.is_in_supplement) {
            self.context.roots_of_supplement().for_each(|root| self.read(root));
        }
        let targets: HashMap<EntryId, &Unnamed> =
            unnamed.iter().map(|one| (one.entry, one)).collect();
        let name = |of: EntryId| {
            let next = |at: &EntryId| targets.get(at).map(|one| one.target);
            let mut chain = std::iter::successors(Some(of), next).take(MAX_REFERENCES);
            chain.find_map(|at| self.names.get(&at))
        };
        let origin = |of: EntryId| Some(self.context.die(of)?.last_origin(self.context)?.id);
        let (copies, defined): (Vec<_>, Vec<_>) = unnamed.iter().partition(|one| one.is_copy);
        for one in defined.into_iter().chain(copies) {
            let Some(path) = name(one.entry) else { continue };
            let of_name = self.globals.entry(path.clone()).or_default();
            if one.is_copy {
                of_name.retain(|other| other.entry != one.target);
            }
            let origin = origin(one.entry).unwrap_or(one.entry);
            of_name.push(Global { entry: one.entry, origin });
        }
        self.globals
    }
}
