//! Records the changes of a process's mappings, and stores the mapped files that contain code.

use super::code_files::CodeFiles;
use super::error::Error;
use super::recorder::Recorder;
use crate::common::{AddrRange, Tid};
use crate::engine::{AddressSpace, MappingChanges};
use crate::sideband::{Backing, Event, ImageId, Mapping};
use crate::tracee::{Memory, PageMap, PageState};

const PAGE_BYTES: u64 = 4096;

/// The recorder of the mappings of one process.
#[derive(Debug, Default)]
pub(super) struct MappingRecorder {
    files: CodeFiles,
}

/// The changes of mapped code that a refresh found.
#[derive(Debug, Default)]
pub(super) struct Changes {
    /// True if decoded or translated code may be out of date.
    pub(super) code: bool,
    /// The ranges of mappings of code that are gone, new or changed.
    pub(super) changed: Vec<AddrRange>,
    /// The ranges of mappings of code that are new, or whose extent or protection changed.
    pub(super) mapped: Vec<AddrRange>,
}

impl MappingRecorder {
    /// Creates a recorder that stores all mapped files, with code or without.
    pub(super) fn of_all_files() -> Self {
        Self { files: CodeFiles::with_data() }
    }

    /// Forgets files whose content differs from the stored content now, so that they are stored
    /// again when they are mapped.
    pub(super) fn forget_changed_files(&mut self) {
        self.files.take_overwritten();
    }

    /// Returns the stored content of the file that `mapping` maps; `None` if it is not stored.
    pub(super) fn image(&self, mapping: &Mapping) -> Option<&ImageId> {
        self.files.image(mapping)
    }

    /// Reads the mappings again, and records the changes of code and of mapped files
    /// ([`is_recorded`]), as events of the thread `tid`. Updates `space` for all mappings.
    pub(super) fn refresh(
        &mut self,
        space: &mut AddressSpace,
        recorder: &mut Recorder,
        memory: &Memory,
        tid: Tid,
    ) -> Result<Changes, Error> {
        let seen = space.refresh(recorder.pid())?;
        self.record(&seen, space, recorder, memory, tid)
    }

    /// Reads the mappings in `ranges` again after a change there, and records those that changed.
    pub(super) fn refresh_in(
        &mut self,
        ranges: &[AddrRange],
        space: &mut AddressSpace,
        recorder: &mut Recorder,
        memory: &Memory,
        tid: Tid,
    ) -> Result<Changes, Error> {
        let seen = space.refresh_in(recorder.pid(), ranges)?;
        self.record(&seen, space, recorder, memory, tid)
    }

    /// Records the changes that a refresh of `space` found, and stores new mapped files.
    fn record(
        &mut self,
        seen: &MappingChanges,
        space: &mut AddressSpace,
        recorder: &mut Recorder,
        memory: &Memory,
        tid: Tid,
    ) -> Result<Changes, Error> {
        let mut changes = Changes::default();
        for mapping in seen.gone.iter().filter(|m| is_recorded(m)) {
            if mapping.protection.execute {
                changes.changed.push(mapping.range);
            }
            recorder.record_event(tid, Event::Unmap { range: mapping.range })?;
        }
        for mapping in seen.new.iter().filter(|m| is_recorded(m)) {
            if mapping.protection.execute {
                changes.changed.push(mapping.range);
                changes.mapped.push(mapping.range);
            }
            let backing = self.store_backing(mapping, recorder, memory, tid)?;
            let (range, protection) = (mapping.range, mapping.protection);
            recorder.record_event(tid, Event::Map { range, protection, backing })?;
        }
        changes.code = self.mark_stored_mappings(space) || !changes.changed.is_empty();
        Ok(changes)
    }

    /// Looks for code that changed though its mapping did not, and records it: its file was written
    /// to, or it was written despite its protection, as a debugger does. Returns true if there was
    /// any.
    pub(super) fn record_changed_code(
        &mut self,
        space: &mut AddressSpace,
        recorder: &mut Recorder,
        memory: &Memory,
        tid: Tid,
    ) -> Result<bool, Error> {
        let files = self.unback_overwritten_files(space, recorder, tid)?;
        let patched = self.patched_pages(space, recorder);
        for (page, _) in &patched {
            let mut bytes = vec![0; usize::try_from(page.size_bytes()).unwrap_or(0)];
            let known = memory.read(page.start, &mut bytes);
            bytes.truncate(known);
            recorder.record_event(tid, Event::Code { addr: page.start, bytes })?;
        }
        let changed = files || !patched.is_empty();
        space.add_altered(patched);
        Ok(changed)
    }

    /// Marks the mappings in `space` whose content is stored: those of stored files, and the vdso.
    /// Returns true if the marks changed.
    fn mark_stored_mappings(&self, space: &mut AddressSpace) -> bool {
        space.update_stable(|mapping| mapping.name == "[vdso]" || self.files.is_stored(mapping))
    }

    /// Records that mappings of files whose content has changed since it was stored are no longer
    /// backed by it: as anonymous memory from now on. Returns true if one of them is code.
    fn unback_overwritten_files(
        &mut self,
        space: &mut AddressSpace,
        recorder: &mut Recorder,
        tid: Tid,
    ) -> Result<bool, Error> {
        let mut changed = false;
        for file in self.files.take_overwritten() {
            let of_file: Vec<_> =
                space.mappings().filter(|m| file.is_mapped_by(m)).cloned().collect();
            for mapping in &of_file {
                let (range, protection) = (mapping.range, mapping.protection);
                let backing = Backing::Anonymous;
                recorder.record_event(tid, Event::Unmap { range })?;
                recorder.record_event(tid, Event::Map { range, protection, backing })?;
                changed |= protection.execute;
            }
            space.add_altered(of_file.into_iter().map(|mapping| (mapping.range, mapping)));
        }
        if changed {
            self.mark_stored_mappings(space);
        }
        Ok(changed)
    }

    /// Returns pages of stored files that the process has private copies of, though they are not
    /// writable: something else wrote to them. Omits pages that are known already.
    fn patched_pages(
        &self,
        space: &AddressSpace,
        recorder: &Recorder,
    ) -> Vec<(AddrRange, Mapping)> {
        // Without the kernel's page map, no such pages are known.
        let Some(pages) = PageMap::open(recorder.pid()) else { return Vec::new() };
        let fixed = |m: &&Mapping| {
            let p = m.protection;
            p.read && !p.write && !p.shared && m.is_file() && self.files.is_stored(m)
        };
        let mut patched = Vec::new();
        for mapping in space.mappings().filter(fixed) {
            let touched = pages.touched(mapping.range).unwrap_or_default();
            let private = touched.into_iter().filter(|(_, state)| *state == PageState::Private);
            for range in private.map(|(range, _)| range) {
                let pages = 0..range.size_bytes() / PAGE_BYTES;
                let starts = pages.map(|number| range.start.wrapping_add(number * PAGE_BYTES));
                for start in starts.filter(|start| !space.is_altered(*start)) {
                    patched.push((AddrRange::sized(start, PAGE_BYTES), mapping.clone()));
                }
            }
        }
        patched
    }

    /// Returns the backing of a mapping, for its event. Stores the mapped file if necessary, and
    /// the memory of the vdso.
    fn store_backing(
        &mut self,
        mapping: &Mapping,
        recorder: &mut Recorder,
        memory: &Memory,
        tid: Tid,
    ) -> Result<Backing, Error> {
        if mapping.is_file() {
            let file = self.files.file_id(mapping, recorder, tid)?;
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
}

/// Returns true if a mapping is recorded: code, and mapped files, which may contain code. Heaps are
/// not.
pub(super) fn is_recorded(mapping: &Mapping) -> bool {
    mapping.protection.execute || mapping.is_file()
}

/// Stores the memory in a range, as far as it can be read, as an image, and returns the image.
fn store_memory(range: AddrRange, recorder: &Recorder, memory: &Memory) -> Result<ImageId, Error> {
    let mut bytes = vec![0; usize::try_from(range.size_bytes()).unwrap_or(0)];
    let known = memory.read(range.start, &mut bytes);
    bytes.truncate(known);
    Ok(recorder.writer().image_from_bytes(&bytes)?)
}
