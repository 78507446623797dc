//! The other files of a module's debug information: separate debug files, and the sources that it
//! names.

use super::sections;
use super::units::{Units, file_path};
use crate::image::Bytes;
use crate::image::elf::Elf;
use crate::symbols::Files;
use crate::symbols::debug_file::{find_debug_file, normalized, open_supplement};
use gimli::Reader as _;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The files that belong to a module, apart from itself.
#[derive(Debug, Default)]
pub struct Companions {
    /// The separate debug files, each with its build ID.
    pub debug_files: Vec<(Vec<u8>, Bytes)>,
    /// The source files that the module's line tables name, by compilation directory. Their paths
    /// are already joined to it.
    pub sources: BTreeMap<PathBuf, BTreeSet<PathBuf>>,
}

/// Returns the separate debug files of the module at `path`: the one that was split off it, and the
/// supplements, into which dwz moved what several debug files have in common. A supplement has the
/// ID of the link to it. Also returns the sources that the line tables of the module and of the
/// first of these files name. Leaves out split DWARF (`.dwo`), and a debug file without a build ID,
/// but not its sources.
pub fn companions(files: &dyn Files, path: &Path, module: &Bytes) -> Companions {
    let mut companions = Companions::default();
    let separate = Elf::parse(module).ok().and_then(|elf| find_debug_file(files, path, &elf));
    let mut of_module = vec![(path.to_owned(), module.clone())];
    if let Some(file) = separate {
        let id = Elf::parse(&file.bytes).ok().and_then(|elf| elf.build_id);
        companions.debug_files.extend(id.map(|id| (id, file.bytes.clone())));
        of_module.push((file.path, file.bytes));
    }
    for (path, bytes) in of_module {
        companions.add_sources(&bytes);
        let supplement = sections::supplement_link(&bytes)
            .and_then(|(name, id)| Some((open_supplement(files, &path, &name, &id)?, id)));
        if let Some((bytes, id)) = supplement {
            companions.add_sources(&bytes);
            companions.debug_files.push((id, bytes));
        }
    }
    companions
}

impl Companions {
    /// Adds the source files that the line tables of `file` name. Adds none of partial units, and
    /// so none of a supplement ([`Units::parse`]).
    fn add_sources(&mut self, file: &Bytes) {
        let Some(units) = sections::load(file).map(Units::parse) else { return };
        for unit in &units.units {
            let unit = unit.head.unit_ref(&units.dwarf);
            let directory = unit.comp_dir.as_ref().and_then(|dir| dir.to_string_lossy().ok());
            let directory = directory.map(|dir| normalized(Path::new(&*dir))).unwrap_or_default();
            let sources = self.sources.entry(directory).or_default();
            let Some(program) = &unit.line_program else { continue };
            let header = program.header();
            // File numbers start at 0 or 1, by the version of DWARF.
            for index in 0..=header.file_names().len() as u64 {
                let path = file_path(unit, header, index);
                sources.extend(path.map(|path| PathBuf::from(&*path)));
            }
        }
    }
}
