//! Finds the separate debug file of a module and checks that it is the right one. Opens files
//! through the caller only. Searches gdb's locations (gdb manual, "Separate Debug Files").

use crate::image::Bytes;
use crate::image::elf::{DebugLink, Elf};
use crate::symbols::files::{Files, open};
use std::ffi::OsStr;
use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

const DEBUG_DIRECTORY: &str = "/usr/lib/debug";

/// A debug file and its path.
#[derive(Clone, Debug)]
pub(super) struct DebugFile {
    pub(super) path: PathBuf,
    pub(super) bytes: Bytes,
}

/// Finds the separate debug file of the module `elf` at `path`: by build ID, else by debug link.
/// `None` if there is none that belongs to this build of the module.
pub(super) fn find_debug_file(files: &dyn Files, path: &Path, elf: &Elf) -> Option<DebugFile> {
    let by_id = elf.build_id.as_deref().and_then(|id| open_by_id(files, id));
    by_id.or_else(|| find_linked(files, path, elf.debug_link.as_ref()?))
}

/// Opens the file that several debug files share (section `.gnu_debugaltlink`, made by dwz):
/// `name`, which may be relative to the directory of `of`, the debug file that names it; else the
/// one with the build ID in the global directory. `None` if neither has the build ID.
pub(super) fn open_supplement(
    files: &dyn Files,
    of: &Path,
    name: &[u8],
    build_id: &[u8],
) -> Option<Bytes> {
    let path = of.parent().unwrap_or(Path::new("/")).join(OsStr::from_bytes(name));
    let named = open(files, &normalized(&path)).filter(|bytes| has_id(bytes, build_id));
    named.or_else(|| open_by_id(files, build_id).map(|file| file.bytes))
}

/// Opens the debug file with this build ID in the global directory; `None` if it is not there, its
/// own ID is another one, or `id` is empty.
fn open_by_id(files: &dyn Files, id: &[u8]) -> Option<DebugFile> {
    let (first, rest) = id.split_first()?;
    let mut name = format!("{DEBUG_DIRECTORY}/.build-id/{first:02x}/");
    for byte in rest {
        write!(name, "{byte:02x}").ok()?;
    }
    name.push_str(".debug");
    let path = PathBuf::from(name);
    let bytes = open(files, &path).filter(|bytes| has_id(bytes, id))?;
    Some(DebugFile { path, bytes })
}

/// Returns true if a file is an ELF file with this build ID.
fn has_id(bytes: &Bytes, id: &[u8]) -> bool {
    Elf::parse(bytes).is_ok_and(|elf| elf.build_id.as_deref() == Some(id))
}

/// Finds the debug file that `link` names: in the module's directory, its `.debug`, or the global
/// directory. `None` if none there has the checksum, or the link is a path.
fn find_linked(files: &dyn Files, module: &Path, link: &DebugLink) -> Option<DebugFile> {
    let name = OsStr::from_bytes(&link.file_name);
    // The link must be a plain file name: the module may be hostile.
    if link.file_name.contains(&b'/') {
        return None;
    }
    let directory = module.parent()?;
    let global = Path::new(DEBUG_DIRECTORY);
    let relative = directory.strip_prefix("/").unwrap_or(directory);
    // /lib may be a link to /usr/lib, and the debug file may be installed under either name.
    let other = relative
        .strip_prefix("usr")
        .map_or_else(|_| Path::new("usr").join(relative), Path::to_path_buf);
    let directories = [
        directory.to_path_buf(),
        directory.join(".debug"),
        global.join(relative),
        global.join(other),
    ];
    directories.into_iter().map(|directory| normalized(&directory.join(name))).find_map(|path| {
        let bytes = open(files, &path).filter(|bytes| crc32fast::hash(bytes) == link.crc)?;
        Some(DebugFile { path, bytes })
    })
}

/// Removes `.` and `..` from the path lexically, without following links. A `..` at the start
/// stays.
pub(super) fn normalized(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir if normal.file_name().is_some() => {
                normal.pop();
            }
            other => normal.push(other),
        }
    }
    normal
}
