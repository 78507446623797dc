//! The *companions* of a recording: files of this machine that belong to its debug information,
//! which are separate debug files and source files. A packed recording contains them, for use on
//! other machines, where [`source_directories`] finds the source files.

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

/// Returns the files to pack with a recording: the separate debug files of its code, and, if
/// `with_sources`, the source files that the debug information names (`is_source`) and a list of
/// the directories of those and of the compilations. Source files are read when they are packed.
pub fn companions_of(reader: &Reader, with_sources: bool) -> Result<Vec<Extra>, Error> {
    let (images, _) = Images::load(reader, &reader.sideband()?)?;
    let mut debug_files: BTreeMap<Vec<u8>, Bytes> = BTreeMap::new();
    let (mut sources, mut directories) = (BTreeSet::new(), BTreeSet::new());
    for (path, bytes) in images.files() {
        let found = companions(&debug_file, Path::new(path), bytes);
        debug_files.extend(found.debug_files);
        for (directory, mut named) in found.sources.into_iter().filter(|_| with_sources) {
            named.retain(|path| sources.contains(path) || is_source(path));
            if !named.is_empty() {
                directories.insert(directory);
            }
            sources.extend(named);
        }
    }
    let debug_extra = |(id, bytes): (Vec<u8>, Bytes)| {
        let id = id.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"));
        Extra::bytes(format!("{DEBUG_DIR}/{id}.debug"), bytes)
    };
    let mut extras: Vec<_> = debug_files.into_iter().map(debug_extra).collect();
    if with_sources {
        directories.extend(sources.iter().filter_map(|path| path.parent().map(Path::to_owned)));
        extras.extend(sources.into_iter().filter_map(|path| {
            Some(Extra::file(format!("{SOURCE_DIR}/{}", packed_path(&path)?), path))
        }));
        let listed = directories.iter().filter_map(|dir| packed_path(dir));
        let list = listed.fold(String::new(), |list, dir| list + "/" + dir + "\n");
        extras.push(Extra::bytes(format!("{SOURCE_DIR}/{SOURCE_LIST}"), list.into_bytes().into()));
    }
    Ok(extras)
}

/// Returns an absolute path without its leading `/`, as source files are named in a packed
/// recording; `None` for `/`, a relative path, or one with invisible characters or not in UTF-8.
fn packed_path(path: &Path) -> Option<&str> {
    let rest = path.to_str()?.strip_prefix('/')?;
    let is_plain = !rest.is_empty() && Visible(rest).to_string() == rest;
    is_plain.then_some(rest)
}

/// Returns true if an absolute path names an existing source file of this machine, by its name and
/// size; false for others, since the debug information of a hostile program may name any file. Also
/// false for paths that a packed recording cannot have: relative ones, and those with invisible
/// characters or not in UTF-8.
fn is_source(path: &Path) -> bool {
    is_source_at(path, path)
}

/// Returns true if `path` is one that is packed (`packed_path`), has the extension of a source
/// file, or none below /usr/include, and a file of at most `SOURCE_LIMIT_BYTES` is at `local`.
/// `path` is that of the debug information, without `..`; `local` is the same or where the file is
/// unpacked.
pub fn is_source_at(path: &Path, local: &Path) -> bool {
    let extension = path.extension().and_then(OsStr::to_str);
    let is_named = extension.is_some_and(|name| SOURCE_EXTENSIONS.contains(&name));
    let is_header = extension.is_none() && path.starts_with(HEADERS);
    let is_small = |file: fs::Metadata| file.is_file() && file.len() <= SOURCE_LIMIT_BYTES;
    (is_named || is_header)
        && packed_path(path).is_some()
        && fs::metadata(local).is_ok_and(is_small)
}

/// A directory of source files: its path in the debug information, and the path where it is
/// unpacked.
pub type SourceDirectory = (PathBuf, PathBuf);

/// Returns the outermost directories of source files in an unpacked recording: none lies in
/// another, as the recording lists each before those in it. Leaves out paths under which nothing
/// can be packed, such as relative ones. Does not check that the directories exist.
pub fn source_directories(reader: &Reader) -> Vec<SourceDirectory> {
    let mut outermost: Vec<SourceDirectory> = Vec::new();
    for dir in reader.source_directories() {
        let Some(rest) = dir.to_str().and_then(|_| packed_path(&dir)) else { continue };
        let unpacked = reader.dir().join(SOURCE_DIR).join(rest);
        if !outermost.iter().any(|(outer, _)| dir.starts_with(outer)) {
            outermost.push((dir, unpacked));
        }
    }
    outermost
}
