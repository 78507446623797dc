//! The program's files: by their paths, below a directory that represents the other machine's root,
//! or in perf's cache of build IDs.

use super::super::super::error::{Error, ErrorKind};
use super::super::super::export::VDSO_NAME;
use super::super::super::mapped::Mapped;
use super::{PerfOptions, open};
use crate::image::Bytes;
use crate::image::elf::Elf;
use crate::sideband::perf_data::{BuildId, PerfMap};
use std::collections::HashMap;
use std::fmt::Write;
use std::path::{Component, Path, PathBuf};

/// A finder of the program's files, which opens each file once, whatever its names.
pub(super) struct Binaries<'a> {
    options: &'a PerfOptions,
    /// The build IDs that perf.data lists, by file name.
    listed: HashMap<&'a str, &'a [u8]>,
    /// The opened files, by canonical path.
    opened: HashMap<PathBuf, Option<Bytes>>,
    /// The vdso of each build ID.
    vdsos: HashMap<Vec<u8>, Option<Bytes>>,
}

impl<'a> Binaries<'a> {
    pub(super) fn new(options: &'a PerfOptions, listed: &'a [BuildId]) -> Self {
        // If a name is listed repeatedly, the first entry counts.
        let listed = listed.iter().rev().map(|listed| (&*listed.name, &*listed.id)).collect();
        Self { options, listed, opened: HashMap::new(), vdsos: HashMap::new() }
    }

    /// Returns the contents of a mapping's file; `None` if it is not found. Fails if all files
    /// found have other build IDs, unless the user accepts all files.
    pub(super) fn of_map(&mut self, map: &PerfMap) -> Result<Option<Bytes>, Error> {
        let build_id = self.build_id(map);
        self.find(&map.name, &build_id)
    }

    /// Returns the vdso that the user gave, whatever its build ID, else the one in perf's cache
    /// with that of the mapping; `None` without either. Fails only if the user's cannot be opened.
    pub(super) fn vdso(&mut self, map: &PerfMap) -> Result<Option<Bytes>, Error> {
        let build_id = self.build_id(map);
        if let Some(known) = self.vdsos.get(&build_id) {
            return Ok(known.clone());
        }
        let found = if let Some(path) = &self.options.vdso {
            Some(open(path)?)
        } else {
            let kept = cached(&build_id, "vdso").and_then(|path| self.open(&path));
            kept.filter(|bytes| has_build_id(bytes, &build_id))
        };
        self.vdsos.insert(build_id, found.clone());
        Ok(found)
    }

    /// Returns the vdso that an export stored with the program's files, or the file with the
    /// mapping's build ID in perf's cache; `None` if neither is there. Fails if each has another
    /// build ID than the mapping, unless the user accepts all files.
    pub(super) fn exported_vdso(&mut self, map: &PerfMap) -> Result<Option<Bytes>, Error> {
        self.find(VDSO_NAME, &map.build_id)
    }

    /// Returns the build ID of a mapping's file, from the mapping or else from the list in
    /// perf.data; empty if unknown.
    fn build_id(&self, map: &PerfMap) -> Vec<u8> {
        if !map.build_id.is_empty() {
            return map.build_id.clone();
        }
        self.listed.get(&*map.name).map(|id| id.to_vec()).unwrap_or_default()
    }

    /// Returns the first file that is found for a name and has the build ID, or any file if the
    /// user accepts all; `None` if no file is found. Fails if all files found have other build IDs.
    fn find(&mut self, name: &str, build_id: &[u8]) -> Result<Option<Bytes>, Error> {
        let mut other = None;
        for path in places(name, build_id, self.options) {
            let Some(bytes) = self.open(&path) else { continue };
            if self.options.any_binary || has_build_id(&bytes, build_id) {
                return Ok(Some(bytes));
            }
            other.get_or_insert(path);
        }
        match other {
            Some(path) => Err(Error::new(&path, ErrorKind::OtherBinary)),
            None => Ok(None),
        }
    }

    /// Opens a file, unless it is open already, under this or another name; `None` if that fails.
    fn open(&mut self, path: &Path) -> Option<Bytes> {
        // One file can have any number of names, by links or by parts without effect (`/.`).
        let own = std::fs::canonicalize(path).ok()?;
        let opened = self.opened.entry(own);
        opened.or_insert_with_key(|own| Mapped::open(own).ok().map(Bytes::new)).clone()
    }
}

/// Returns the paths at which a file may be, in order of preference: its own, below the directory
/// `symfs` if the user gave that, then the one in perf's cache.
fn places(name: &str, build_id: &[u8], options: &PerfOptions) -> Vec<PathBuf> {
    let path = Path::new(name);
    let mut places = match &options.symfs {
        Some(root) => {
            // Hostile paths must not lead out of the root.
            let parts = path.components().filter(|part| matches!(part, Component::Normal(_)));
            vec![root.join(parts.collect::<PathBuf>())]
        }
        None => vec![path.to_owned()],
    };
    places.extend(cached(build_id, "elf"));
    places
}

/// Returns the path of a file in perf's cache: `~/.debug/.build-id/xx/yyyy/KIND`; `None` if the
/// build ID is empty or the cache's place unknown.
fn cached(build_id: &[u8], kind: &str) -> Option<PathBuf> {
    let (first, rest) = build_id.split_first()?;
    let root = match std::env::var_os("PERF_BUILDID_DIR") {
        Some(dir) => PathBuf::from(dir),
        None => PathBuf::from(std::env::var_os("HOME")?).join(".debug"),
    };
    let mut digits = String::new();
    for byte in rest {
        // Writes to a string cannot fail.
        let _ = write!(digits, "{byte:02x}");
    }
    Some(root.join(".build-id").join(format!("{first:02x}")).join(digits).join(kind))
}

/// Returns true if a file has the wanted build ID, or if either has none. perf pads short IDs with
/// zeros and cuts long ones, so the wanted ID may also be the beginning of the file's. A file that
/// is not ELF is right only if no ID is wanted.
fn has_build_id(bytes: &Bytes, wanted: &[u8]) -> bool {
    let Ok(elf) = Elf::parse(&bytes.clone().aligned()) else { return wanted.is_empty() };
    match elf.build_id {
        Some(found) if !wanted.is_empty() => {
            let padding = wanted.get(found.len()..).unwrap_or_default();
            wanted.get(..found.len()).unwrap_or(wanted)
                == found.get(..wanted.len()).unwrap_or(&found)
                && padding.iter().all(|byte| *byte == 0)
        }
        _ => true,
    }
}
