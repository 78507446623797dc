//! Separate debug files of this machine.

use super::Mapped;
use crate::image::Bytes;
use std::path::{Component, Path};

/// Where separate debug files are, besides the directories of what they belong to.
const DEBUG_DIR: &str = "/usr/lib/debug";

/// The contents of a separate debug file. The path may come from a hostile file: nothing is opened
/// but regular files that lie where debug files do.
pub fn debug_file(path: &Path) -> Option<Bytes> {
    let plain = path.components().all(|part| part != Component::ParentDir);
    let is_debug = path.starts_with(DEBUG_DIR) || path.extension().is_some_and(|e| e == "debug");
    let regular = std::fs::metadata(path).is_ok_and(|metadata| metadata.is_file());
    (plain && is_debug && regular).then(|| Mapped::open(path).ok().map(Bytes::new)).flatten()
}
