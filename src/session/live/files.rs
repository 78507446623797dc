//! The files of a live program that a debugger may read: mapped files, and some of those in
//! `/proc`, of the program and of processes beside it ([`Run::is_beside`]). The mappings that the
//! recorder made in the program's process are left out.

use super::Live;
use crate::session::{FileBytes, Region, Run};
use crate::tracee;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Files in `/proc/PID` and `/proc/PID/task/TID` that gdb reads, for the vdso and for `info proc`.
const PROC_FILES: [&str; 5] = ["maps", "cmdline", "comm", "stat", "status"];
const PROC_LINKS: [&str; 2] = ["cwd", "exe"];

impl Live {
    /// Returns the target of one of the [`PROC_LINKS`] of a debugged process in `/proc`, as it is
    /// now, also in the past; `None` for other paths.
    pub(super) fn link_of_program(&self, path: &Path) -> Option<PathBuf> {
        self.is_in_proc(path, &PROC_LINKS).then(|| fs::read_link(path).ok()).flatten()
    }

    /// Returns true if a path is that of one of `names` in `/proc/PID` or `/proc/PID/task/TID`, for
    /// the program or a process beside it.
    fn is_in_proc(&self, path: &Path, names: &[&str]) -> bool {
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

    /// Returns the present mappings of the program, without the recorder's; `None` if it is gone.
    pub(super) fn regions_of_program(&self) -> Option<Vec<Region>> {
        let mapped = tracee::mappings(self.process()?).ok()?;
        let hidden = self.program.borrow().hidden();
        let shown = mapped.into_iter().filter(|m| !hidden.iter().any(|own| own.overlaps(m.range)));
        Some(shown.map(Region::from).collect())
    }

    /// Reads one of the [`PROC_FILES`] in `/proc`; `None` if that fails. Removes the recorder's
    /// mappings from `maps` of the program.
    fn proc_file(&self, path: &Path) -> Option<Arc<[u8]>> {
        let text = fs::read(path).ok()?;
        let program = self.program.borrow();
        if !path.ends_with("maps") || !path.starts_with(format!("/proc/{}", program.pid())) {
            return Some(text.into());
        }
        let shown = tracee::list_without(&String::from_utf8_lossy(&text), &program.hidden());
        Some(shown.into_bytes().into())
    }

    /// Returns a file that the program has mapped now, also in the past, or one of the
    /// [`PROC_FILES`] in `/proc`, which in the past is that of the history. Returns `None` for
    /// other paths, and for files that only a process beside the program has mapped.
    pub(super) fn file_of_program(&self, path: &Path) -> Option<Box<dyn FileBytes>> {
        if self.is_in_proc(path, &PROC_FILES) {
            return match self.past_in_view() {
                Some(past) => past.file(path),
                None => Some(Box::new(self.proc_file(path)?)),
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
