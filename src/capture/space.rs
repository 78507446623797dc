//! Watches a process's mappings, tells the sideband what changed, and stores the files that code
//! came from. Says which code can change under the decoder's feet.

use super::error::Error;
use super::recorder::Recorder;
use crate::common::{Addr, AddrRange, Tid};
use crate::recording::{Links, open_regular};
use crate::sideband::{Backing, Event, FileId, ImageId, Mapping, MappingSet};
use crate::tracee::{Memory, mappings};
use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The mappings of one process.
#[derive(Debug, Default)]
pub(super) struct Space {
    set: MappingSet,
    files: HashMap<(String, u64), FileState>,
    /// Code that was writable once: its bytes need not be the file's.
    dirty: Vec<AddrRange>,
}

#[derive(Clone, Debug)]
struct FileState {
    id: FileId,
    image: Option<ImageId>,
}

impl Space {
    /// Reads the mappings again and records what changed. Gives whether code may have changed.
    pub(super) fn refresh(
        &mut self,
        recorder: &mut Recorder,
        memory: &Memory,
        tid: Tid,
    ) -> Result<bool, Error> {
        let (gone, new) = self.set.update(mappings(recorder.pid())?);
        self.note_dirty(&gone, &new);
        let mut code_changed = false;
        for mapping in gone.iter().filter(|m| concerns(m)) {
            code_changed |= mapping.protection.execute;
            recorder.event(tid, Event::Unmap { range: mapping.range })?;
        }
        for mapping in new.iter().filter(|m| concerns(m)) {
            code_changed |= mapping.protection.execute;
            let backing = self.backing(mapping, recorder, memory, tid)?;
            let (range, protection) = (mapping.range, mapping.protection);
            recorder.event(tid, Event::Map { range, protection, backing })?;
        }
        Ok(code_changed)
    }

    /// Forgets everything: another program runs.
    pub(super) fn exec(&mut self) {
        (self.set, self.dirty) = (MappingSet::default(), Vec::new());
    }

    /// Whether the bytes at `addr` are those of a stored image as long as the mapping stands.
    pub(super) fn is_stable(&self, addr: Addr) -> bool {
        let Some(mapping) = self.set.at(addr) else { return false };
        let protection = mapping.protection;
        if protection.write || protection.shared || self.dirty.iter().any(|d| d.contains(addr)) {
            return false;
        }
        let stored = self.files.get(&key(mapping)).is_some_and(|file| file.image.is_some());
        stored || mapping.name == "[vdso]"
    }

    /// Code that stands where something writable was may hold what was written there.
    fn note_dirty(&mut self, gone: &[Mapping], new: &[Mapping]) {
        let was_written = |m: &&Mapping| {
            gone.iter().any(|g| g.protection.write && g.range.overlaps(m.range) && key(g) == key(m))
        };
        let written = new.iter().filter(|m| m.protection.execute).filter(was_written);
        self.dirty.extend(written.map(|m| m.range));
    }

    fn backing(
        &mut self,
        mapping: &Mapping,
        recorder: &mut Recorder,
        memory: &Memory,
        tid: Tid,
    ) -> Result<Backing, Error> {
        if mapping.is_file() {
            let file = self.file(mapping, recorder, tid)?;
            return Ok(Backing::File { file, offset: mapping.offset });
        }
        if mapping.name.starts_with('[') {
            let image = if mapping.name == "[vdso]" {
                Some(store_memory(mapping.range, recorder, memory)?)
            } else {
                None
            };
            return Ok(Backing::Special { name: mapping.name.clone(), image });
        }
        Ok(Backing::Anonymous)
    }

    /// The file's number; its content is stored when it is first mapped as code.
    fn file(
        &mut self,
        mapping: &Mapping,
        recorder: &mut Recorder,
        tid: Tid,
    ) -> Result<FileId, Error> {
        let fresh = FileId(u32::try_from(self.files.len()).unwrap_or(u32::MAX));
        let known = self.files.get(&key(mapping)).cloned();
        let mut state = known.clone().unwrap_or(FileState { id: fresh, image: None });
        if known.is_none() {
            recorder.event(tid, Event::File { file: fresh, path: mapping.name.clone() })?;
        }
        if mapping.protection.execute && state.image.is_none() {
            state.image = store_file(mapping, recorder)?;
            if let Some(image) = state.image.clone() {
                recorder.event(tid, Event::Image { file: state.id, image })?;
            }
        }
        let id = state.id;
        self.files.insert(key(mapping), state);
        Ok(id)
    }
}

fn key(mapping: &Mapping) -> (String, u64) {
    (mapping.name.clone(), mapping.inode)
}

/// Code, and what may become known as data of a file with code, is recorded; heaps are not.
fn concerns(mapping: &Mapping) -> bool {
    mapping.protection.execute || mapping.is_file()
}

/// Stores a mapped file, if its path still leads to it; of others the code is stored as it is
/// executed.
fn store_file(mapping: &Mapping, recorder: &Recorder) -> Result<Option<ImageId>, Error> {
    let Ok(mut file) = open_regular(Path::new(&mapping.name), Links::Follow) else {
        return Ok(None);
    };
    let same = file.metadata().is_ok_and(|m| m.ino() == mapping.inode);
    if same { Ok(Some(recorder.writer().image_from_file(&mut file)?)) } else { Ok(None) }
}

fn store_memory(range: AddrRange, recorder: &Recorder, memory: &Memory) -> Result<ImageId, Error> {
    let mut bytes = vec![0; usize::try_from(range.size_bytes()).unwrap_or(0)];
    let known = memory.read(range.start, &mut bytes);
    bytes.truncate(known);
    Ok(recorder.writer().image_from_bytes(&bytes)?)
}
