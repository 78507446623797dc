//! The files of a live program that a debugger may read.

use super::Live;
use crate::session::{FileBytes, Region, Run};
use crate::tracee;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Files in `/proc/PID` and `/proc/PID/task/TID` that gdb reads, for the vdso and for `info proc`.
const DESCRIPTIONS: [&str; 5] = ["maps", "cmdline", "comm", "stat", "status"];
const LINKS: [&str; 2] = ["cwd", "exe"];

impl Live {
    /// Returns the target of one of the process's links in `/proc`.
    pub(super) fn link_of_program(&self, path: &Path) -> Option<PathBuf> {
        self.describes_process(path, &LINKS).then(|| fs::read_link(path).ok()).flatten()
    }

    /// Returns true if a path is one of `names` in `/proc` for the program or a process beside it.
    fn describes_process(&self, path: &Path, names: &[&str]) -> bool {
        let program = self.program.borrow();
        let own = program.threads().into_iter().map(|tid| (tid, program.pid()));
        let mut tids = own.chain(program.beside());
        tids.any(|(tid, pid)| {
            names.iter().any(|name| {
                path == Path::new(&format!("/proc/{pid}/{name}"))
                    || path == Path::new(&format!("/proc/{pid}/task/{tid}/{name}"))
            })
        })
    }

    /// Returns the mappings of the process, without the recorder's.
    pub(super) fn regions_of_program(&self) -> Option<Vec<Region>> {
        let mapped = tracee::mappings(self.process()?).ok()?;
        let hidden = self.program.borrow().hidden();
        let shown = mapped.into_iter().filter(|m| !hidden.iter().any(|own| own.overlaps(m.range)));
        Some(shown.map(Region::from).collect())
    }

    /// Returns the content of one of the process's files in `/proc`, without the recorder's
    /// mappings.
    fn description(&self, path: &Path) -> Option<Arc<[u8]>> {
        let text = fs::read(path).ok()?;
        let program = self.program.borrow();
        if !path.ends_with("maps") || !path.starts_with(format!("/proc/{}", program.pid())) {
            return Some(text.into());
        }
        let shown = tracee::list_without(&String::from_utf8_lossy(&text), &program.hidden());
        Some(shown.into_bytes().into())
    }

    /// Returns a mapped file, or one of the process's files in `/proc`.
    pub(super) fn file_of_program(&self, path: &Path) -> Option<Box<dyn FileBytes>> {
        if self.describes_process(path, &DESCRIPTIONS) {
            return match self.past_in_view() {
                Some(past) => past.file(path),
                None => Some(Box::new(self.description(path)?)),
            };
        }
        let program = self.program.borrow();
        let mapped = tracee::mappings(program.pid()).unwrap_or_default();
        let real = fs::canonicalize(path).ok()?;
        // A debugger may read only files that the program has mapped.
        mapped.iter().find(|mapping| Path::new(&mapping.name) == real)?;
        let file = File::open(real).ok().filter(|f| f.metadata().is_ok_and(|m| m.is_file()));
        Some(Box::new(file?))
    }
}
