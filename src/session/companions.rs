//! The files of this machine that belong to a recording's debug information, for a packed
//! recording.

use crate::common::Visible;
use crate::image::Bytes;
use crate::recording::pack::Extra;
use crate::recording::{DEBUG_DIR, Reader, SOURCE_DIR, SOURCE_LIST, debug_file};
use crate::symbols::companions;
use crate::timeline::{Error, Images};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

/// The maximum size of a source file that is packed. Larger files are mostly generated tables.
const SOURCE_LIMIT_BYTES: u64 = 16 << 20;
/// Extensions of source files. The debug information of a hostile program may name any file.
const SOURCE_EXTENSIONS: [&str; 48] = [
    "C", "H", "S", "ada", "adb", "ads", "asm", "c", "c++", "cc", "cpp", "cu", "cuh", "cxx", "d",
    "def", "f", "f03", "f08", "f90", "f95", "for", "go", "h", "h++", "hh", "hpp", "hs", "hxx",
    "inc", "inl", "ipp", "l", "m", "ml", "mm", "nim", "p", "pas", "rs", "s", "sx", "swift", "tcc",
    "tpp", "v", "y", "zig",
];
/// The directory of headers without an extension, such as `vector`.
const HEADERS: &str = "/usr/include";

/// Returns the separate debug files of a recording's code; with `has_sources`, also the source
/// files that the debug information names, and their directories.
pub fn companions_of(reader: &Reader, has_sources: bool) -> Result<Vec<Extra>, Error> {
    let (images, _) = Images::load(reader, &reader.sideband()?)?;
    let mut debug_files: BTreeMap<Vec<u8>, Bytes> = BTreeMap::new();
    let (mut sources, mut directories) = (BTreeSet::new(), BTreeSet::new());
    for (path, bytes) in images.files() {
        let found = companions(&debug_file, Path::new(path), bytes);
        debug_files.extend(found.debug_files);
        for (directory, mut named) in found.sources.into_iter().filter(|_| has_sources) {
            named.retain(|path| sources.contains(path) || is_source(path));
            if !named.is_empty() {
                directories.insert(directory);
            }
            sources.extend(named);
        }
    }
    let debug_file = |(id, bytes): (Vec<u8>, Bytes)| {
        let id = id.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"));
        Extra::bytes(format!("{DEBUG_DIR}/{id}.debug"), bytes)
    };
    let mut extras: Vec<_> = debug_files.into_iter().map(debug_file).collect();
    if has_sources {
        directories.extend(sources.iter().filter_map(|path| path.parent().map(Path::to_owned)));
        extras.extend(sources.into_iter().filter_map(|path| {
            Some(Extra::file(format!("{SOURCE_DIR}/{}", inside(&path)?), path))
        }));
        let listed = directories.iter().filter_map(|dir| inside(dir));
        let list = listed.fold(String::new(), |list, dir| list + "/" + dir + "\n");
        extras.push(Extra::bytes(format!("{SOURCE_DIR}/{SOURCE_LIST}"), list.into_bytes().into()));
    }
    Ok(extras)
}

/// Returns an absolute path without its leading `/`; `None` if a packed recording cannot contain
/// the path.
fn inside(path: &Path) -> Option<&str> {
    let rest = path.to_str()?.strip_prefix('/')?;
    let is_plain = !rest.is_empty() && Visible(rest).to_string() == rest;
    is_plain.then_some(rest)
}

/// Returns true if a file of this machine is a source file, by its name and size. The debug
/// information of a hostile program may name any file.
pub fn is_source(path: &Path) -> bool {
    let extension = path.extension().and_then(OsStr::to_str);
    let is_named = extension.is_some_and(|name| SOURCE_EXTENSIONS.contains(&name));
    let is_header = extension.is_none() && path.starts_with(HEADERS);
    let is_small = |file: fs::Metadata| file.is_file() && file.len() <= SOURCE_LIMIT_BYTES;
    (is_named || is_header) && inside(path).is_some() && fs::metadata(path).is_ok_and(is_small)
}

/// A directory of source files, as the debug information names it, and where it is unpacked.
pub type SourceDirectory = (PathBuf, PathBuf);

/// Returns the outermost directories of source files in an unpacked recording: none lies in
/// another.
pub fn source_directories(reader: &Reader) -> Vec<SourceDirectory> {
    let mut outermost: Vec<SourceDirectory> = Vec::new();
    for dir in reader.source_directories() {
        let Some(rest) = dir.to_str().and_then(|_| inside(&dir)) else { continue };
        let place = reader.dir().join(SOURCE_DIR).join(rest);
        if !outermost.iter().any(|(outer, _)| dir.starts_with(outer)) {
            outermost.push((dir, place));
        }
    }
    outermost
}
