//! A raw trace, which is a file of PT packets and nothing else, and its code: opens the files that
//! the command line names.

use super::raw_arguments::{CodeAt, ElfAt, Raw, hexadecimal};
use super::remedies::with_remedy;
use super::{Failure, say};
use crate::common::{Addr, AddrRange};
use crate::flow::Config;
use crate::image::core::Core;
use crate::image::elf::load_at;
use crate::image::{Bytes, Image, Section};
use crate::pt::{ClockConfig, Errata};
use crate::recording::Mapped;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// Maps a file as [`Bytes`]; an error names the path.
pub(super) fn open_bytes(path: &Path) -> Result<Bytes, Failure> {
    map_file(path).map(Bytes::new)
}

/// Maps a file that is read from start to end; an error names the path.
pub(super) fn map_file(path: &Path) -> Result<Mapped, Failure> {
    let refused = |error: std::io::Error| format!("{}: {error}", path.display());
    Ok(Mapped::open(path).map_err(refused)?)
}

impl Raw {
    /// Returns the image of all code. Where addresses overlap, code of files hides that of the core
    /// file.
    pub(super) fn image(&self) -> Result<Image, Failure> {
        let core = self.core()?;
        let of_core = core.iter().flat_map(|(_, core)| core.memory().sections().cloned());
        Ok(Image::new(of_core.chain(self.file_sections()?)))
    }

    /// Returns the core file and its bytes, if one is given.
    pub(super) fn core(&self) -> Result<Option<(Bytes, Core)>, Failure> {
        let Some(path) = &self.core else { return Ok(None) };
        let bytes = open_bytes(path)?;
        let core = Core::parse(&bytes);
        Ok(Some((
            bytes,
            core.map_err(|error| format!("{}: {}", path.display(), with_remedy(&error)))?,
        )))
    }

    /// Returns the code of ELF files, of the list's files, and of single parts of files, in this
    /// order, named by full paths. Where addresses overlap, later sections hide earlier ones; the
    /// lines of the list are reversed, so that a line hides those after it. Fails if a file cannot
    /// be read, or is too short for its part.
    pub(super) fn file_sections(&self) -> Result<Vec<Section>, Failure> {
        let mut sections = Vec::new();
        for elf in &self.elf {
            sections.extend(elf_sections(elf)?);
        }
        if let Some(list) = &self.code_list {
            sections.extend(list_sections(list)?.into_iter().rev());
        }
        for code in &self.code {
            sections.push(code_section(code, &open_bytes(&code.path)?)?);
        }
        Ok(sections)
    }

    /// Prints a message if errata cannot be worked around.
    pub(super) fn report_errata(&self) {
        match self.cpu.map(|cpu| (cpu, Errata::of(cpu))) {
            None => say(&"no --cpu is given, so no errata are worked around"),
            Some((cpu, None)) => say(&format!("no errata are known for processor {cpu}")),
            Some((_, Some(_))) => {}
        }
    }

    /// Returns the decoder's settings, without the clock ([`Self::clocks`]). Each call reports on
    /// stderr if errata cannot be worked around.
    pub(super) fn config(&self) -> Config {
        self.report_errata();
        Config {
            errata: self.cpu.and_then(Errata::of).unwrap_or(Errata::NONE),
            filter: self.filter_range.iter().map(|filter| filter.0).collect(),
            ..Config::new()
        }
    }

    /// Returns the known settings of the trace's clocks; `None` if nothing is known.
    pub(super) fn clocks(&self) -> Option<ClockConfig> {
        let known = self.mtc_freq.is_some() || self.cpuid_15.is_some() || self.nom_freq.is_some();
        known.then(|| ClockConfig {
            crystal_ratio: self.cpuid_15.and_then(|ratio| ratio.0.usable()),
            mtc_freq: self.mtc_freq,
            nominal_ratio: self.nom_freq,
        })
    }
}

/// Returns the sections of a program or library, at the address that the user gave, or else at its
/// linked one.
fn elf_sections(at: &ElfAt) -> Result<Vec<Section>, Failure> {
    load_at(&open_bytes(&at.path)?, at.addr, &full_path(&at.path))
        .map_err(|error| format!("{}: {}", at.path.display(), with_remedy(&error)).into())
}

/// Returns a file's full path, which gdb and symbols use; the path itself if the file is not there.
pub(super) fn full_path(path: &Path) -> String {
    path.canonicalize().unwrap_or_else(|_| path.to_owned()).to_string_lossy().into_owned()
}

/// Returns the section of a part of a file, or of all of it. Fails if the file is too short.
fn code_section(code: &CodeAt, bytes: &Bytes) -> Result<Section, Failure> {
    let (offset, size) = code.part.unwrap_or((0, bytes.len() as u64));
    let end = offset.checked_add(size);
    if end.is_none_or(|end| end > bytes.len() as u64) {
        let path = code.path.display();
        return Err(format!("{path}: {offset:#x}:{size:#x} is outside the file").into());
    }
    Ok(Section {
        range: AddrRange::sized(code.addr, size),
        bytes: bytes.clone(),
        offset,
        executable: true,
        name: full_path(&code.path).into(),
        ..Section::default()
    })
}

/// Returns the sections of code that a list names, in its order. Skips empty lines. Fails at a
/// damaged line, or at a file that cannot be read or is too short.
fn list_sections(list: &Path) -> Result<Vec<Section>, Failure> {
    let bytes = open_bytes(list)?;
    let text = std::str::from_utf8(&bytes);
    let text = text.map_err(|_| format!("{}: not text", list.display()))?;
    let dir = list.parent().unwrap_or(Path::new(""));
    let mut files: HashMap<PathBuf, Bytes> = HashMap::new();
    let mut sections = Vec::new();
    for (number, line) in (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty()) {
        let wrong = || format!("{}: line {number}: not ADDR SIZE OFFSET PATH", list.display());
        let code = list_entry(line, dir).ok_or_else(wrong)?;
        if !files.contains_key(&code.path) {
            files.insert(code.path.clone(), open_bytes(&code.path)?);
        }
        let bytes = files.get(&code.path).cloned().unwrap_or_default();
        sections.push(code_section(&code, &bytes)?);
    }
    Ok(sections)
}

/// Parses a line of the list, ADDR SIZE OFFSET PATH with hexadecimal numbers; `None` if it is
/// damaged. A path that does not exist is relative to the list's directory.
fn list_entry(line: &str, dir: &Path) -> Option<CodeAt> {
    let mut rest = line.trim();
    let mut number = || {
        let (word, following) = rest.split_once(char::is_whitespace)?;
        rest = following.trim_start();
        hexadecimal(word)
    };
    let (addr, size, offset) = (number()?, number()?, number()?);
    let path = if Path::new(rest).exists() { rest.into() } else { dir.join(rest) };
    (!rest.is_empty()).then_some(CodeAt { path, addr: Addr(addr), part: Some((offset, size)) })
}
