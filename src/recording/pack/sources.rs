//! The source files of a packed recording.

use super::super::format::{SOURCE_DIR, SOURCE_LIST, TEXT_LIMIT_BYTES};
use super::super::reader::Reader;
use super::super::regular::read_limited;
use super::contents::is_known;
use std::path::PathBuf;

impl Reader {
    /// Returns the directories of source files as the debug information names them, in order; empty
    /// if the recording has no source files. Leaves out relative paths, and those with `..`.
    pub fn source_directories(&self) -> Vec<PathBuf> {
        let list = self.dir().join(SOURCE_DIR).join(SOURCE_LIST);
        let text = read_limited(&list, TEXT_LIMIT_BYTES).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        // The recording may be hostile: no name may lead out of its directory.
        let is_inside = |dir: &&str| {
            dir.strip_prefix('/').is_some_and(|rest| is_known(&format!("{SOURCE_DIR}/{rest}")))
        };
        text.lines().filter(is_inside).map(PathBuf::from).collect()
    }
}
