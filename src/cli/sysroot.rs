//! A recording's files as links at their original paths, for gdb's sysroot.

use super::Failure;
use crate::recording::{DEBUG_DIR, Reader};
use crate::session::final_state;
use crate::sideband::{Event, FileId, ImageId};
use crate::timeline::Images;
use std::collections::HashMap;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::{fs, io};

/// The directory of separate debug files by build ID (gdb manual, "Separate Debug Files").
const BUILD_ID_DIR: &str = "/usr/lib/debug/.build-id";

/// A directory of links to a recording's files, for gdb's `set sysroot`.
pub(super) struct Sysroot {
    dir: PathBuf,
    program: Option<PathBuf>,
}

impl Sysroot {
    /// Creates the links in `dir` to the files of the recording, at each path that gdb may look
    /// for: that of the mapping, those that the dynamic linker uses, and usual names of libraries.
    pub(super) fn make(reader: &Reader, dir: PathBuf) -> Result<Self, Failure> {
        let mut sysroot = Self { dir, program: None };
        let records = reader.sideband()?;
        let mut paths: HashMap<FileId, String> = HashMap::new();
        let mut stored: HashMap<String, ImageId> = HashMap::new();
        let mut last_exec = reader.manifest().program.clone();
        for record in &records {
            match &record.event {
                Event::File { file, path } => {
                    paths.insert(*file, path.clone());
                }
                Event::Image { file, image } => {
                    if let Some(path) = paths.get(file) {
                        stored.insert(path.clone(), image.clone());
                    }
                }
                Event::Exec { path } => last_exec.clone_from(path),
                _ => {}
            }
        }
        // Damaged files are omitted; the server reports them.
        let (images, _) = Images::load(reader, &records)?;
        stored.retain(|path, _| images.file(path).is_some());
        // These are linked first, so that names that are known replace guessed ones.
        for (name, image) in usual_names(&stored) {
            sysroot.link_image(reader.dir(), &name, image)?;
        }
        for (path, image) in &stored {
            sysroot.link_image(reader.dir(), path, image)?;
            // Where /lib is a link, the dynamic linker and so gdb use the shorter name. A recording
            // without a final state has no list of these names.
            let short = path.strip_prefix("/usr").filter(|short| short.starts_with("/lib"));
            if let Some(short) = short.filter(|short| !stored.contains_key(*short)) {
                sysroot.link_image(reader.dir(), short, image)?;
            }
        }
        // The dynamic linker, and so gdb, uses other names of libraries than the kernel.
        let last = images.last().cloned().unwrap_or_default();
        let state = final_state(reader).unwrap_or_default();
        let named = |library: &crate::state::Library| !library.map.name.is_empty();
        let libraries = state.libraries(&last, Some(&last_exec)).unwrap_or_default();
        // The first of the libraries is the program, which has no name.
        let first = libraries.first().filter(|library| !named(library));
        let running = first.map(|library| PathBuf::from(&*library.file));
        for library in libraries.into_iter().filter(named) {
            if let Some(image) = stored.get(&*library.file) {
                sysroot.link_image(reader.dir(), library.path(), image)?;
            }
        }
        sysroot.link_debug_files(reader.dir())?;
        // The kernel reports canonical paths of mappings, and execve(2) may have been given another
        // path. On another machine this path may lead nowhere, but the running program is known.
        let canonical = fs::canonicalize(&last_exec).ok();
        let paths = [canonical, running, Some(PathBuf::from(last_exec))];
        let mut shown = paths.into_iter().flatten().map(|path| sysroot.path_in_sysroot(&path));
        sysroot.program = shown.find(|path| path.exists());
        Ok(sysroot)
    }

    /// Returns the directory of the links.
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns the link to the program that ran last; `None` if the recording does not have its
    /// file.
    pub(super) fn program(&self) -> Option<&Path> {
        self.program.as_deref()
    }

    /// Returns the path in the sysroot for an original path, without its `..`. It may not exist.
    fn path_in_sysroot(&self, path: &Path) -> PathBuf {
        let relative = path.strip_prefix("/").unwrap_or(path);
        // A path of a hostile recording must not lead out of the directory.
        let normal =
            relative.components().filter(|part| matches!(part, std::path::Component::Normal(_)));
        self.dir.join(normal.collect::<PathBuf>())
    }

    /// Links the image of a recording's file at `path` in the sysroot.
    fn link_image(&self, recording: &Path, path: &str, image: &ImageId) -> io::Result<()> {
        self.link(Path::new(path), &recording.join("images").join(&image.0))
    }

    /// Links the debug files of a packed recording where gdb looks for those of a sysroot.
    fn link_debug_files(&self, recording: &Path) -> io::Result<()> {
        for entry in fs::read_dir(recording.join(DEBUG_DIR)).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let Some((first, rest)) = name.to_str().and_then(|name| name.split_at_checked(2))
            else {
                continue;
            };
            self.link(&Path::new(BUILD_ID_DIR).join(first).join(rest), &entry.path())?;
        }
        Ok(())
    }

    /// Creates a link at `path` in the sysroot to `target`, with its parent directories. Replaces a
    /// file that is there.
    fn link(&self, path: &Path, target: &Path) -> io::Result<()> {
        let link = self.path_in_sysroot(path);
        if let Some(parent) = link.parent() {
            fs::create_dir_all(parent)?;
        }
        // If several files have one path, the last one counts.
        let _ = fs::remove_file(&link);
        symlink(target, link)
    }
}

/// Returns the names by which programs usually load versioned libraries: `libz.so.1` is a link to
/// `libz.so.1.2.13`. A running process shows only the names of files. Names that two files could
/// have are left out.
fn usual_names(stored: &HashMap<String, ImageId>) -> HashMap<String, &ImageId> {
    let mut names: HashMap<String, Vec<&ImageId>> = HashMap::new();
    for (path, image) in stored {
        let short = path.strip_prefix("/usr").filter(|short| short.starts_with("/lib"));
        for path in [Some(path.as_str()), short].into_iter().flatten() {
            let Some((base, version)) = path.rsplit_once(".so.") else { continue };
            if version.split('.').any(|part| part.parse::<u64>().is_err()) {
                continue;
            }
            for (at, _) in version.match_indices('.') {
                names.entry(format!("{base}.so.{}", &version[..at])).or_default().push(image);
            }
        }
    }
    let only = |(name, images): (String, Vec<_>)| match images[..] {
        [image] if !stored.contains_key(&name) => Some((name, image)),
        _ => None,
    };
    names.into_iter().filter_map(only).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_have_their_shorter_names_unless_two_could_have_them() {
        let image = |name: &str| ImageId(name.to_owned());
        let stored = [
            ("/usr/lib/libz.so.1.2.13", "z"),
            ("/opt/libq.so.1.1", "old"),
            ("/opt/libq.so.1.2", "new"),
            ("/opt/libr.so.2", "short"),
            ("/opt/libr.so.2.1", "long"),
            ("/opt/libs.so.x.1", "odd"),
        ];
        let stored = stored.map(|(path, name)| (path.to_owned(), image(name))).into();
        let names = usual_names(&stored);
        let mut names: Vec<_> = names.iter().map(|(name, id)| (name.as_str(), &*id.0)).collect();
        names.sort_unstable();
        let z =
            ["/lib/libz.so.1", "/lib/libz.so.1.2", "/usr/lib/libz.so.1", "/usr/lib/libz.so.1.2"];
        assert_eq!(names, z.map(|name| (name, "z")));
    }
}
