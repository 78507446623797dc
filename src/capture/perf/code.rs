//! Records the mapped code of a process, as the kernel's sideband records report it, and stores the
//! mapped files.

use crate::capture::Error;
use crate::capture::recorder::Recorder;
use crate::common::{AddrRange, Pid, Tid, Tsc};
use crate::image::Bytes;
use crate::image::Floors;
use crate::image::elf::Elf;
use crate::recording::{Links, Mapped, open_regular};
use crate::sideband::perf_data::PerfMap;
use crate::sideband::{Backing, Event, FileId, Mapping, Protection};
use crate::tracee::{Memory, mappings};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The mapped code of a process, as recorded so far.
#[derive(Debug)]
pub(super) struct CodeMap {
    pid: Pid,
    floors: Floors,
    files: Vec<CodeFile>,
    /// The current mappings of code, in the order in which they were made.
    mapped: Vec<(AddrRange, String)>,
    /// True if code without a file was mapped: only its bytes at the end are known.
    pub(super) has_anonymous_code: bool,
}

#[derive(Debug)]
struct CodeFile {
    path: String,
    build_id: Vec<u8>,
    inode: Option<u64>,
    id: FileId,
    is_stored: bool,
}

/// A mapping of code, from the kernel's record of it or from a list of all mappings.
#[derive(Clone, Debug)]
struct CodeMapping {
    range: AddrRange,
    offset: u64,
    protection: Protection,
    name: String,
    build_id: Vec<u8>,
    inode: Option<u64>,
}

impl CodeMap {
    /// Returns the map of a process of which nothing is recorded yet.
    pub(super) fn new(pid: Pid) -> Self {
        let (files, mapped) = (Vec::new(), Vec::new());
        Self { pid, floors: Floors::default(), files, mapped, has_anonymous_code: false }
    }

    /// Reads the process's current mappings, and records mapped code that is not recorded yet, with
    /// the time `tsc`. Does nothing if the process is gone.
    pub(super) fn refresh(
        &mut self,
        recorder: &mut Recorder,
        tsc: Tsc,
        tid: Tid,
    ) -> Result<(), Error> {
        // A process that is gone has no mappings.
        let Ok(maps) = mappings(self.pid) else { return Ok(()) };
        for mapping in maps.iter().filter(|m| m.protection.execute) {
            let key = (mapping.range, mapping.name.clone());
            if mapping.name != "[vsyscall]" && !self.mapped.contains(&key) {
                self.record_mapping(recorder, tsc, tid, &CodeMapping::of_list(mapping))?;
            }
        }
        Ok(())
    }

    /// Records a mapping that the kernel reported, if it is of code.
    pub(super) fn record_if_code(
        &mut self,
        recorder: &mut Recorder,
        tsc: Tsc,
        tid: Tid,
        map: &PerfMap,
    ) -> Result<(), Error> {
        if !map.executable {
            return Ok(());
        }
        self.record_mapping(recorder, tsc, tid, &CodeMapping::of_record(map))
    }

    /// Records an execve(2) of the program at `path`, and forgets all mappings.
    pub(super) fn record_exec(
        &mut self,
        recorder: &mut Recorder,
        tsc: Tsc,
        tid: Tid,
        path: String,
    ) -> Result<(), Error> {
        let tsc = self.floors.exec(tsc);
        self.mapped.clear();
        Ok(recorder.record_event_at(tsc, tid, Event::Exec { path })?)
    }

    /// Records a mapping of code, which replaces the mappings that it overlaps.
    fn record_mapping(
        &mut self,
        recorder: &mut Recorder,
        tsc: Tsc,
        tid: Tid,
        mapping: &CodeMapping,
    ) -> Result<(), Error> {
        let tsc = self.floors.map(tsc, mapping.range);
        self.mapped.retain(|(range, _)| !range.overlaps(mapping.range));
        self.mapped.push((mapping.range, mapping.name.clone()));
        let backing = self.store_backing(recorder, tsc, tid, mapping)?;
        let CodeMapping { range, protection, .. } = *mapping;
        Ok(recorder.record_event_at(tsc, tid, Event::Map { range, protection, backing })?)
    }

    /// Returns the backing of a mapping of code, for its event: the file, which is stored when it
    /// is first seen; for anonymous memory and the heap, the final state (sets
    /// `has_anonymous_code`); for all else (the kernel's own code, `[stack]`, files that are gone),
    /// the bytes there now, none if unreadable.
    fn store_backing(
        &mut self,
        recorder: &mut Recorder,
        tsc: Tsc,
        tid: Tid,
        mapping: &CodeMapping,
    ) -> Result<Backing, Error> {
        if mapping.is_file() {
            let at = self.record_file(recorder, tsc, tid, mapping)?;
            let known = self.files.get(at).filter(|file| file.is_stored);
            if let Some(file) = known {
                return Ok(Backing::File { file: file.id, offset: mapping.offset });
            }
        } else if mapping.is_anonymous() {
            self.has_anonymous_code = true;
            return Ok(Backing::Core);
        }
        // Store the current bytes of the kernel's own code, and of files that are gone.
        let image = match read_memory(self.pid, mapping.range) {
            Some(bytes) => Some(recorder.writer().image_from_bytes(&bytes)?),
            None => None,
        };
        Ok(Backing::Special { name: mapping.name.clone(), image })
    }

    /// Returns the index in `files` of the file that a mapping is of. Records and stores the file
    /// when it is first seen. A file that is gone or was replaced since is recorded, but not
    /// stored.
    fn record_file(
        &mut self,
        recorder: &mut Recorder,
        tsc: Tsc,
        tid: Tid,
        mapping: &CodeMapping,
    ) -> Result<usize, Error> {
        let inode = mapping.inode.or_else(|| self.mapped_inode(mapping));
        let is_same = |file: &CodeFile| {
            let same_id = !mapping.build_id.is_empty() && file.build_id == mapping.build_id;
            file.path == mapping.name && (same_id || inode.is_some() && file.inode == inode)
        };
        if let Some(at) = self.files.iter().position(is_same) {
            return Ok(at);
        }
        let id = FileId(u32::try_from(self.files.len()).unwrap_or(u32::MAX));
        let path = mapping.name.clone();
        recorder.record_event_at(tsc, tid, Event::File { file: id, path: path.clone() })?;
        let image = match open_regular(Path::new(&path), Links::Follow) {
            Ok(mut file) if is_mapped_file(&path, &file, &mapping.build_id, inode) => {
                Some(recorder.writer().image_from_file(&mut file)?)
            }
            _ => None,
        };
        let is_stored = image.is_some();
        if let Some(image) = image {
            recorder.record_event_at(tsc, tid, Event::Image { file: id, image })?;
        }
        let build_id = mapping.build_id.clone();
        self.files.push(CodeFile { path, build_id, inode, id, is_stored });
        Ok(self.files.len() - 1)
    }

    /// Returns the inode of the file that is mapped at the mapping's address now; `None` if that is
    /// another file, or nothing is mapped there any more.
    fn mapped_inode(&self, mapping: &CodeMapping) -> Option<u64> {
        let maps = mappings(self.pid).ok()?;
        let now = maps.iter().find(|m| m.range.contains(mapping.range.start));
        now.filter(|m| m.is_file() && m.name == mapping.name).map(|m| m.inode)
    }
}

impl CodeMapping {
    /// Returns a mapping as `/proc/PID/maps` lists it.
    fn of_list(mapping: &Mapping) -> Self {
        Self {
            range: mapping.range,
            offset: mapping.offset,
            protection: mapping.protection,
            name: mapping.name.clone(),
            build_id: Vec::new(),
            inode: Some(mapping.inode),
        }
    }

    /// Returns a mapping as a record of the kernel reports it. It counts as readable.
    fn of_record(map: &PerfMap) -> Self {
        let (write, shared) = (map.writable, map.shared);
        Self {
            range: map.range,
            offset: map.file_offset,
            protection: Protection { read: true, write, execute: true, shared },
            name: if map.name == "//anon" { String::new() } else { map.name.clone() },
            build_id: map.build_id.clone(),
            inode: None,
        }
    }

    /// Returns true if the program's own memory is mapped, without a file. A list of mappings has
    /// the name that the program gave it (`PR_SET_VMA_ANON_NAME` of prctl(2)), the kernel's record
    /// has none.
    fn is_anonymous(&self) -> bool {
        let name = &self.name;
        let is_special = name.starts_with('[') && name != "[heap]" && !name.starts_with("[anon:");
        !self.is_file() && !is_special
    }

    /// Returns true if a file is mapped, as its name is a path.
    fn is_file(&self) -> bool {
        self.name.starts_with('/') && !self.name.starts_with("//")
    }
}

/// Returns true if the file at `path` is the one that was mapped, by its build ID or else its
/// inode; also if neither is known (`build_id` is empty then).
fn is_mapped_file(path: &str, file: &std::fs::File, build_id: &[u8], inode: Option<u64>) -> bool {
    if !build_id.is_empty() {
        let mapped = Mapped::open(Path::new(path)).map(Bytes::new);
        let found = mapped.ok().and_then(|bytes| Elf::parse(&bytes).ok()?.build_id);
        return found.is_some_and(|found| found == build_id);
    }
    inode.is_none_or(|inode| file.metadata().is_ok_and(|data| data.ino() == inode))
}

/// Reads memory of a process. Returns a prefix of the range if not all is readable, or if it is
/// larger than `MOST_BYTES`; `None` if nothing is readable.
fn read_memory(pid: Pid, range: AddrRange) -> Option<Vec<u8>> {
    /// The maximum size that is read, larger than any code.
    const MOST_BYTES: u64 = 1 << 30;
    let size = usize::try_from(range.size_bytes().min(MOST_BYTES)).ok()?;
    let mut bytes = vec![0; size];
    let known = Memory::open(pid).ok()?.read(range.start, &mut bytes);
    bytes.truncate(known);
    (known > 0).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sideband::parse_maps;

    #[test]
    fn memory_that_the_program_named_is_anonymous() {
        let maps = "\
10000-11000 r-xp 00000000 00:00 0
20000-21000 rwxp 00000000 00:00 0 [anon:v8]
30000-31000 rwxp 00000000 00:00 0 [heap]
40000-41000 r-xp 00000000 00:00 0 [vdso]
50000-51000 r-xp 00000000 08:01 7 /bin/sh
";
        let maps = parse_maps(maps).unwrap();
        let are_anonymous = maps.iter().map(|m| CodeMapping::of_list(m).is_anonymous());
        assert_eq!(are_anonymous.collect::<Vec<_>>(), [true, true, true, false, false]);
    }
}
