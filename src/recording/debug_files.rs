//! Separate debug files of this machine.

use super::Mapped;
use crate::image::Bytes;
use std::path::{Component, Path};

/// The directory of separate debug files; others are beside their programs.
const DEBUG_DIR: &str = "/usr/lib/debug";

/// Maps a separate debug file, and returns its contents; `None` if it is refused or cannot be read.
/// The path may come from a hostile file, so only regular files in `/usr/lib/debug` or with the
/// extension `debug` are opened, and no path with `..`.
pub fn debug_file(path: &Path) -> Option<Bytes> {
    let plain = path.components().all(|part| part != Component::ParentDir);
    let is_debug = path.starts_with(DEBUG_DIR) || path.extension().is_some_and(|e| e == "debug");
    let regular = std::fs::metadata(path).is_ok_and(|metadata| metadata.is_file());
    (plain && is_debug && regular).then(|| Mapped::open(path).ok().map(Bytes::new)).flatten()
}
