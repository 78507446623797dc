//! Functions and source lines of a recording's code.

use crate::common::AddrRange;
use crate::image::elf::Elf;
use crate::image::{Bytes, Image, Section};
use crate::recording::debug_file;
use crate::symbols::{Files, Symbols};
use crate::timeline::Images;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;

/// The symbols of all code that a run mapped. Where two files were at one place, the later one's.
pub(super) fn symbols(images: &Images) -> Symbols {
    let stored = images.files().map(|(path, bytes)| (path.to_owned(), bytes.clone())).collect();
    of_images(stored, images.epochs().iter().map(|epoch| &*epoch.image))
}

/// The symbols of the code in images one after the other, with the files that it is from.
pub(super) fn of_images<'a>(
    stored: HashMap<String, Bytes>,
    images: impl Iterator<Item = &'a Image>,
) -> Symbols {
    let mut symbols = Symbols::new(RecordedFiles { stored });
    let mut added = HashMap::new();
    for image in images {
        let mut modules: BTreeMap<(&str, u64), (AddrRange, &Section)> = BTreeMap::new();
        for section in image.sections() {
            let Some(bias) = bias(section) else { continue };
            let entry = modules.entry((&section.name, bias)).or_insert((section.range, section));
            entry.0.end = entry.0.end.max(section.range.end);
        }
        for ((name, bias), (range, section)) in modules {
            // One path may have had several contents.
            let this = (range, name.to_owned(), bias, section.bytes.as_ptr());
            if added.insert(range.start, this.clone()) != Some(this) {
                symbols.add_module(name, section.bytes.clone(), bias, range);
            }
        }
    }
    symbols
}

/// What is added to the file's addresses where a section is mapped.
fn bias(section: &Section) -> Option<u64> {
    Elf::parse(&section.bytes).ok()?.bias(section.range.start, section.offset)
}

/// The recording's own files, and for separate debug files this machine's. A recording may name
/// any path, so no other files are opened for it.
struct RecordedFiles {
    stored: HashMap<String, Bytes>,
}

impl Files for RecordedFiles {
    fn open(&self, path: &Path) -> Option<Bytes> {
        if let Some(stored) = path.to_str().and_then(|path| self.stored.get(path)) {
            return Some(stored.clone());
        }
        debug_file(path)
    }
}
