//! The files of a live program that a debugger may read.

use super::Live;
use crate::session::FileBytes;
use crate::tracee;
use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;

impl Live {
    /// A file that is mapped, or the list of what is mapped, by which gdb finds the vdso.
    pub(super) fn file_of_program(&self, path: &Path) -> Option<Box<dyn FileBytes>> {
        let program = self.program.borrow();
        let beside = program.beside();
        let mut pids = beside.iter().map(|(_, pid)| *pid).chain([program.pid()]);
        let maps = |pid| [format!("/proc/{pid}/maps"), format!("/proc/{pid}/task/{pid}/maps")];
        if pids.any(|pid| maps(pid).iter().any(|maps| Path::new(maps) == path)) {
            let text: Arc<[u8]> = fs::read(path).ok()?.into();
            return Some(Box::new(text));
        }
        let mapped = tracee::mappings(program.pid()).unwrap_or_default();
        let real = fs::canonicalize(path).ok()?;
        // Only what is mapped is the program's.
        mapped.iter().find(|mapping| Path::new(&mapping.name) == real)?;
        let file = File::open(real).ok().filter(|f| f.metadata().is_ok_and(|m| m.is_file()));
        Some(Box::new(file?))
    }
}
