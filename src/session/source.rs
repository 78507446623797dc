//! The functions and source lines of a recording's code, from the debug information of the files
//! stored in the recording, and of separate debug files of this machine. An *image* is the code
//! that a process had mapped for some time; a *module* is one file in it.

use super::CodeLocation;
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

/// Returns the symbols of all files that a run mapped. At an address where several were mapped over
/// time, the last one counts.
pub fn symbols_of(images: &Images) -> Symbols {
    let stored = images.files().map(|(path, bytes)| (path.to_owned(), bytes.clone()));
    symbols_of_images(stored, images.epochs().iter().map(|epoch| &*epoch.image))
}

/// Returns the symbols of the files mapped in successive images of a process's memory, of which
/// later ones replace earlier ones at an address. `stored` are the files of the recording, by path,
/// in which debug files are looked for. Leaves out mapped files that are no ELF files.
pub fn symbols_of_images<'a>(
    stored: impl IntoIterator<Item = (String, Bytes)>,
    images: impl Iterator<Item = &'a Image>,
) -> Symbols {
    let mut symbols = Symbols::new(RecordedFiles { stored: stored.into_iter().collect() });
    let mut added = HashMap::new();
    for image in images {
        // The sections of one file with the same load bias are one module.
        let mut modules: BTreeMap<(&str, u64), (AddrRange, &Section)> = BTreeMap::new();
        let mut biases = HashMap::new();
        for section in image.sections() {
            let before = biases.get(&*section.name).copied();
            let Some(bias) = bias(section, before) else { continue };
            biases.insert(&*section.name, bias);
            let entry = modules.entry((&section.name, bias)).or_insert((section.range, section));
            entry.0.end = entry.0.end.max(section.range.end);
        }
        for ((name, bias), (range, section)) in modules {
            // One path may have had different contents over time.
            let this = (range, name.to_owned(), bias, section.bytes.as_ptr());
            if added.insert(range.start, this.clone()) != Some(this) {
                symbols.add_module(name, section.bytes.clone(), bias, range);
            }
        }
    }
    symbols
}

/// Returns the load bias of a section: its address in memory less that in the file; `None` if its
/// bytes are no ELF file, or no segment fits. Prefers `before`, the bias of the file's previous
/// section, if several segments fit.
fn bias(section: &Section, before: Option<u64>) -> Option<u64> {
    let elf = Elf::parse(&section.bytes).ok()?;
    let biases = elf.biases(section.range.start, section.offset, section.executable);
    before.filter(|before| biases.contains(before)).or(biases.first().copied())
}

/// The files of the recording itself, and separate debug files of this machine. A recording may
/// name any path, so no other files are opened for it.
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

/// The symbols of a recording's code, read on first use.
#[derive(Default)]
pub(super) struct LazySymbols(OnceCell<CodeSymbols>);

impl LazySymbols {
    /// Returns the symbols. Calls `read` for them the first time.
    pub(super) fn get(&self, read: impl FnOnce() -> Symbols) -> &CodeSymbols {
        self.0.get_or_init(|| CodeSymbols(read()))
    }
}

impl fmt::Debug for LazySymbols {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.get().is_some() { "read" } else { "not read" })
    }
}

/// Symbols, for two lookups: the function and line of an address, and the addresses of code that a
/// user names.
pub(super) struct CodeSymbols(Symbols);

impl CodeSymbols {
    /// Returns the function at an address, and the line if it is known; `None` without a function.
    pub(super) fn location_of(&self, addr: Addr) -> Option<CodeLocation> {
        let function = self.0.function_at(addr)?;
        let location = self.0.location_at(addr);
        let line = location.and_then(|location| {
            let file = Path::new(&*location.file).file_name()?.to_str()?.to_owned();
            Some((file, location.line))
        });
        Some(CodeLocation { function: function.name, offset: function.offset, line })
    }

    /// Returns the code addresses that a user names by a location, sorted: a function, `FILE:LINE`,
    /// or `*ADDRESS` in hexadecimal. Returns none if there is no such code.
    pub(super) fn addresses_of(&self, location: &str) -> Vec<Addr> {
        let mut addrs = match (location.strip_prefix('*'), location.rsplit_once(':')) {
            (Some(text), _) => {
                let digits = text.trim_start_matches("0x");
                u64::from_str_radix(digits, 16).map(Addr).into_iter().collect()
            }
            (None, Some((file, line))) if line.bytes().all(|byte| byte.is_ascii_digit()) => {
                let line = line.parse();
                line.map_or_else(|_| Vec::new(), |line| self.0.addresses_of_line(file, line))
            }
            _ => self.0.addresses_of_function(location),
        };
        addrs.sort_unstable();
        addrs.dedup();
        addrs
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::elf::load;
    use std::process::Command;

    /// Links a program and loads it like the kernel. Returns `None` if the linker is missing.
    fn loaded(linker: &str) -> Option<(Bytes, Image)> {
        let dir = tempfile::tempdir().unwrap();
        let (source, program) = (dir.path().join("program.c"), dir.path().join("program"));
        let functions = "int counter = 1;\nint one(void) { return counter; }\n\
                         int main(void) { return one(); }\n";
        std::fs::write(&source, functions).unwrap();
        let compiled = Command::new("gcc").arg(linker).arg("-o").arg(&program).arg(source).output();
        if !compiled.is_ok_and(|output| output.status.success()) {
            return None;
        }
        let bytes = Bytes::from(std::fs::read(&program).unwrap());
        let sections = load(&bytes, 0x5555_0000_0000, "/program").unwrap();
        Some((bytes, Image::new(sections)))
    }

    #[test]
    fn functions_are_where_the_linker_put_them() {
        // The linkers put segments on separate pages, on shared pages, or in lld's layout.
        for linker in ["-Wl,-z,separate-code", "-Wl,-z,noseparate-code", "-fuse-ld=lld"] {
            let Some((bytes, image)) = loaded(linker) else { continue };
            let stored = [("/program".to_owned(), bytes)];
            let symbols = symbols_of_images(stored, std::iter::once(&image));
            for name in ["one", "main", "_start"] {
                let found = symbols.addresses_of_function(name);
                let [addr] = found.as_slice() else { panic!("{linker}: {name} at {found:?}") };
                let function = symbols.function_at(*addr).map(|function| function.name);
                assert_eq!(function.as_deref(), Some(name), "{linker}");
                assert!(image.section_at(*addr).is_some_and(|section| section.executable));
            }
        }
    }
}
