//! Derives the libraries and the auxiliary vector from the mapped ELF files, for a recording
//! without a final state (truncated, imported): it has no memory with the dynamic linker's list.

use super::link_map::{Library, LinkMap};
use crate::common::Addr;
use crate::image::elf::{Elf, FileType};
use crate::image::{Image, PAGE_SIZE_BYTES};
use std::path::Path;
use std::sync::Arc;

const AT_NULL: u64 = 0;
const AT_PHDR: u64 = 3;
const AT_PHENT: u64 = 4;
const AT_PHNUM: u64 = 5;
const AT_PAGESZ: u64 = 6;
const AT_BASE: u64 = 7;
const AT_ENTRY: u64 = 9;
const PROGRAM_HEADER_BYTES: u64 = 56;

/// An ELF file and its load bias.
struct Module {
    file: Arc<str>,
    elf: Elf,
    bias: u64,
}

impl Module {
    /// Returns the address in memory of an offset in the file; `None` if no segment contains it.
    fn address_of(&self, offset: u64) -> Option<Addr> {
        let holds = |segment: &&crate::image::elf::Segment| {
            (segment.offset..segment.offset.saturating_add(segment.file_size_bytes))
                .contains(&offset)
        };
        let segment = self.elf.segments.iter().find(holds)?;
        Some(segment.start.wrapping_add(offset - segment.offset).wrapping_add(self.bias))
    }

    /// Returns true for programs, as opposed to libraries.
    fn is_program(&self) -> bool {
        self.elf.is_pie || self.elf.file_type == FileType::Executable
    }
}

/// The program and the libraries of a process.
pub(super) struct Modules {
    program: Module,
    libraries: Vec<Module>,
}

impl Modules {
    /// Finds the files whose code is mapped. The program is the one at `path`; without a path, or
    /// if it is not mapped, the first one that is a program. Returns `None` if no program is
    /// mapped.
    pub(super) fn of(image: &Image, path: Option<&str>) -> Option<Self> {
        let mut modules = files(image);
        let named = modules.iter().position(|module| Some(&*module.file) == path);
        let program = named.or_else(|| modules.iter().position(Module::is_program))?;
        let program = modules.remove(program);
        Some(Self { program, libraries: modules })
    }

    /// Returns the libraries, by address. The loader has the name that the program requests, as in
    /// the dynamic linker's list; the others have their files' names. Omits those without a dynamic
    /// section.
    pub(super) fn libraries(&self) -> Vec<Library> {
        let library = |module: &Module| {
            let dynamic = module.elf.dynamic?.wrapping_add(module.bias);
            let loader = self.interpreter().filter(|_| self.is_loader(module));
            let name = loader.unwrap_or(&module.file).to_owned();
            // The link map is unknown. The address of the dynamic section is as unique, and a query
            // for a thread-local variable by it fails.
            let namespace = Addr(0);
            let map = LinkMap { addr: dynamic, namespace, load_bias: module.bias, name, dynamic };
            Some(Library { map, file: module.file.clone() })
        };
        self.libraries.iter().filter_map(library).collect()
    }

    /// Returns the entries of the auxiliary vector that follow from the program's mapping
    /// (`create_elf_tables` in `fs/binfmt_elf.c`).
    pub(super) fn auxv(&self) -> Vec<u8> {
        let Module { elf, bias, .. } = &self.program;
        let (offset, count) = elf.program_headers;
        let loader = self.libraries.iter().find(|module| self.is_loader(module));
        let entries = [
            (AT_PHDR, self.program.address_of(offset).map(|addr| addr.0)),
            (AT_PHENT, Some(PROGRAM_HEADER_BYTES)),
            (AT_PHNUM, Some(count)),
            (AT_PAGESZ, Some(PAGE_SIZE_BYTES)),
            (AT_BASE, loader.map(|module| module.bias)),
            (AT_ENTRY, Some(elf.entry.wrapping_add(*bias).0)),
            (AT_NULL, Some(0)),
        ];
        let known = entries.into_iter().filter_map(|(tag, value)| Some([tag, value?]));
        known.flatten().flat_map(u64::to_le_bytes).collect()
    }

    /// Returns the path of the dynamic linker that the program requests; `None` for a static
    /// program, or if the path is no UTF-8.
    fn interpreter(&self) -> Option<&str> {
        std::str::from_utf8(self.program.elf.interpreter.as_deref()?).ok()
    }

    /// Returns true if a module is the dynamic linker that the program requests. The requested path
    /// is often a link: to a file of the same name or, with older C libraries, to `ld-VERSION.so`.
    fn is_loader(&self, module: &Module) -> bool {
        let name = |path| Path::new(path).file_name();
        let Some(wanted) = self.interpreter().and_then(name) else { return false };
        let file = name(&module.file);
        file == Some(wanted)
            || file.and_then(|file| file.to_str()).is_some_and(|file| file.starts_with("ld-"))
    }
}

/// Returns the 64-bit ELF files whose code is mapped, each once per load bias, by address.
fn files(image: &Image) -> Vec<Module> {
    let mut modules: Vec<Module> = Vec::new();
    let code =
        image.sections().filter(|section| section.executable && section.name.starts_with('/'));
    for section in code {
        let Ok(elf) = Elf::parse(&section.bytes) else { continue };
        let Some(bias) = elf.bias(section.range.start, section.offset).filter(|_| elf.is_64) else {
            continue;
        };
        if !modules.iter().any(|known| known.file == section.name && known.bias == bias) {
            modules.push(Module { file: section.name.clone(), elf, bias });
        }
    }
    modules
}
