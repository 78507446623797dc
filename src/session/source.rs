//! Functions and source lines of a recording's code.

use super::Place;
use crate::common::{Addr, AddrRange};
use crate::image::elf::Elf;
use crate::image::{Bytes, Image, Section};
use crate::recording::debug_file;
use crate::symbols::{Files, Symbols};
use crate::timeline::Images;
use std::cell::OnceCell;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::path::Path;

/// The symbols of all code that a run mapped. Where two files were at one place, the later one's.
pub fn symbols_of(images: &Images) -> Symbols {
    let stored = images.files().map(|(path, bytes)| (path.to_owned(), bytes.clone()));
    symbols_of_images(stored, images.epochs().iter().map(|epoch| &*epoch.image))
}

/// The symbols of the code in images one after the other, with the files that it is from.
pub fn symbols_of_images<'a>(
    stored: impl IntoIterator<Item = (String, Bytes)>,
    images: impl Iterator<Item = &'a Image>,
) -> Symbols {
    let mut symbols = Symbols::new(RecordedFiles { stored: stored.into_iter().collect() });
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

/// The symbols of a recording, once they are asked for.
#[derive(Default)]
pub(super) struct RecordedSource(OnceCell<Source>);

impl RecordedSource {
    pub(super) fn get(&self, symbols: impl FnOnce() -> Symbols) -> &Source {
        self.0.get_or_init(|| Source(symbols()))
    }
}

impl fmt::Debug for RecordedSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.get().is_some() { "read" } else { "not read" })
    }
}

/// Symbols, asked as people ask.
pub(super) struct Source(Symbols);

impl Source {
    pub(super) fn place(&self, addr: Addr) -> Option<Place> {
        let function = self.0.function_at(addr)?;
        let location = self.0.location_at(addr);
        let line = location.and_then(|location| {
            let file = Path::new(&*location.file).file_name()?.to_str()?.to_owned();
            Some((file, location.line))
        });
        Some(Place { function: function.name, offset: function.offset, line })
    }

    /// The addresses of a function, of `FILE:LINE`, or of `*ADDRESS`.
    pub(super) fn code_of(&self, what: &str) -> Vec<Addr> {
        let mut addrs = match (what.strip_prefix('*'), what.rsplit_once(':')) {
            (Some(text), _) => {
                let digits = text.trim_start_matches("0x");
                u64::from_str_radix(digits, 16).map(Addr).into_iter().collect()
            }
            (None, Some((file, line))) if line.bytes().all(|byte| byte.is_ascii_digit()) => {
                let line = line.parse();
                line.map_or_else(|_| Vec::new(), |line| self.0.addresses_of_line(file, line))
            }
            _ => self.0.addresses_of_function(what),
        };
        addrs.sort_unstable();
        addrs.dedup();
        addrs
    }
}
