//! The files that ran: by their paths, below a directory that stands for the other machine's root,
//! or in perf's cache of build ids.

use super::super::super::error::{Error, ErrorKind};
use super::super::super::mapped::Mapped;
use super::{Perf, open};
use crate::image::Bytes;
use crate::image::elf::Elf;
use std::fmt::Write;
use std::path::{Component, Path, PathBuf};

/// The file that was mapped as `name`; none where there is none.
pub(super) fn find(name: &str, build_id: &[u8], with: &Perf) -> Result<Option<Bytes>, Error> {
    let mut other = None;
    for path in places(name, build_id, with) {
        let Ok(mapped) = Mapped::open(&path) else { continue };
        let bytes = Bytes::new(mapped);
        if with.any_binary || has_build_id(&bytes, build_id) {
            return Ok(Some(bytes));
        }
        other.get_or_insert(path);
    }
    match other {
        Some(path) => Err(Error::new(&path, ErrorKind::OtherBinary)),
        None => Ok(None),
    }
}

/// The vdso that is given, or that perf kept.
pub(super) fn vdso(build_id: &[u8], with: &Perf) -> Result<Option<Bytes>, Error> {
    if let Some(path) = &with.vdso {
        return open(path).map(Some);
    }
    let kept = cached(build_id, "vdso").and_then(|path| Mapped::open(&path).ok());
    let kept = kept.map(Bytes::new);
    Ok(kept.filter(|bytes| has_build_id(bytes, build_id)))
}

fn places(name: &str, build_id: &[u8], with: &Perf) -> Vec<PathBuf> {
    let path = Path::new(name);
    let mut places = match &with.symfs {
        Some(root) => {
            // Whatever the file says, it is looked for below the root.
            let parts = path.components().filter(|part| matches!(part, Component::Normal(_)));
            vec![root.join(parts.collect::<PathBuf>())]
        }
        None => vec![path.to_owned()],
    };
    places.extend(cached(build_id, "elf"));
    places
}

/// Where perf's cache has the file of a build id: `~/.debug/.build-id/xx/yyyy/elf`.
fn cached(build_id: &[u8], kind: &str) -> Option<PathBuf> {
    let (first, rest) = build_id.split_first()?;
    let root = match std::env::var_os("PERF_BUILDID_DIR") {
        Some(dir) => PathBuf::from(dir),
        None => PathBuf::from(std::env::var_os("HOME")?).join(".debug"),
    };
    let mut digits = String::new();
    for byte in rest {
        // Writing to a string cannot fail.
        let _ = write!(digits, "{byte:02x}");
    }
    Some(root.join(".build-id").join(format!("{first:02x}")).join(digits).join(kind))
}

/// Whether a file has a build id, where one is wanted and the file has any. perf pads short ones
/// with zeros.
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
