//! The tool `source`: lines of source files.

use super::answer::Answer;
use super::open_recording::{OpenRecording, page_rows};
use super::requests;
use crate::common::Addr;
use crate::session::is_source_at;
use crate::symbols::SourceLine;
use serde_json::json;
use std::fs;
use std::path::{Path, PathBuf};

/// The maximum number of characters of a line; a longer one is cut.
const LONGEST_LINE: usize = 300;

impl OpenRecording {
    /// Returns the source lines that have code, in the order of their addresses. Reads them at the
    /// first call.
    pub(super) fn lines(&self) -> &[SourceLine] {
        self.lines.get_or_init(|| {
            let mut lines = self.asked.symbols().source_lines();
            lines.sort_by_key(|line| line.range.start);
            lines
        })
    }

    /// Answers `source`: lines around the named or current one, from the file on this machine or in
    /// the recording. Fails if it is not a source file that can be read, or ends before all of
    /// these lines.
    pub(super) fn source(&self, wanted: &requests::Source) -> Answer {
        let (named, line) = match wanted.at.as_deref() {
            Some(at) => self.named_line(at)?,
            None => self.location_at(self.run().pc(self.session.last_stop().thread))?,
        };
        let path = self.local_path(&named);
        if !is_source_at(&named, &path) {
            return Err(format!("{}: there is no such source file here", path.display()));
        }
        let text = fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let text = String::from_utf8_lossy(&text);
        let limit = page_rows(wanted.limit);
        let line = line as usize;
        let first = line.saturating_sub(limit / 2).max(1);
        let shown = text.lines().skip(first - 1).take(limit);
        let shown: Vec<String> =
            shown.map(|line| line.chars().take(LONGEST_LINE).collect()).collect();
        let total = text.lines().count();
        if shown.is_empty() {
            return Err(format!("{} has {total} lines", path.display()));
        }
        Ok(json!({
            "file": path.display().to_string(),
            "line": line,
            "first": first,
            "lines": shown,
            "total": total,
        }))
    }

    /// Returns the file and line of the code at `addr`. Fails if it has none.
    fn location_at(&self, addr: Option<Addr>) -> Result<(PathBuf, u32), String> {
        let addr = addr.ok_or("the thread has no next instruction")?;
        let found = self.asked.symbols().location_at(addr);
        let found = found.map(|location| (PathBuf::from(&*location.file), location.line));
        found.ok_or_else(|| format!("the debug information has no line for {addr}"))
    }

    /// Returns the file (its path in the debug information) and line that `at` names: `FILE:LINE`,
    /// a function or an address. FILE may be the end of a path; the first file of the program with
    /// that end is used. Fails if there is no such code.
    fn named_line(&self, at: &str) -> Result<(PathBuf, u32), String> {
        if let Some((file, line)) = at.rsplit_once(':')
            && let Ok(line) = line.parse()
        {
            let known = self.lines().iter().map(|line| Path::new(&*line.file));
            let found = known.into_iter().find(|path| path.ends_with(file));
            let found = found.map(|path| (path.to_owned(), line));
            return found.ok_or_else(|| format!("the program has no code of a file {file:?}"));
        }
        let code = self.asked.addresses_of_code(at).map_err(|error| error.to_string())?;
        self.location_at(code.first().copied())
    }

    /// Returns the path of a source file on this machine, given its path in the debug information:
    /// in the recording if that contains its directory, or else the same path.
    fn local_path(&self, named: &Path) -> PathBuf {
        let moved = self.sources.iter().find_map(|(directory, unpacked)| {
            Some(unpacked.join(named.strip_prefix(directory).ok()?))
        });
        moved.unwrap_or_else(|| named.to_owned())
    }
}
