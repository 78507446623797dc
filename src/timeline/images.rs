//! The code of a recording over time, from its sideband and its stored images. Executed code of a
//! file that is not stored is a gap of the path.

use super::Error;
use super::functions::{Function, Functions};
use crate::common::{Addr, AddrRange, Tsc};
use crate::image::core::Core;
use crate::image::{AddressSpace, Bytes, Image, RangeSet, Section};
use crate::recording::Reader;
use crate::sideband::{Backing, Event, FileId, ImageId, Protection, Record};
use std::collections::HashMap;
use std::sync::Arc;

/// The image between two successive changes of the mappings.
#[derive(Clone, Debug)]
pub struct Epoch {
    /// The beginning of the epoch.
    pub start: Tsc,
    /// The mapped code.
    pub image: Arc<Image>,
    /// A number that grows when code is changed or removed: blocks decoded in one generation are
    /// valid in all of its epochs.
    pub generation: u32,
}

/// The images of a process over time, and their files.
#[derive(Clone, Debug, Default)]
pub struct Images {
    epochs: Vec<Epoch>,
    files: HashMap<String, Bytes>,
    functions: Functions,
}

impl Images {
    /// Opens the images of a recording, and computes the epochs from its sideband's `records`.
    /// Returns the errors of missing images, too.
    pub fn load(
        reader: &Reader,
        records: &[Record],
    ) -> Result<(Self, Vec<crate::recording::Error>), Error> {
        let mut files = Files::load(reader, records);
        let mut space = AddressSpace::new();
        let mut code = CodeRanges::default();
        for record in records {
            code.note(record);
            apply(record, &mut space, &files);
        }
        let generations = code.changes;
        let generation = |at: Tsc| {
            u32::try_from(generations.partition_point(|change| *change <= at)).unwrap_or(u32::MAX)
        };
        let epoch = |(start, image): &(Tsc, Arc<Image>)| Epoch {
            start: *start,
            image: image.clone(),
            generation: generation(*start),
        };
        let epochs = space.epochs().iter().map(epoch).collect();
        let missing = std::mem::take(&mut files.missing);
        Ok((Self::new(epochs, files.by_path()), missing))
    }

    /// Returns images with these epochs, in order of time, and these files by path.
    pub(super) fn new(epochs: Vec<Epoch>, files: HashMap<String, Bytes>) -> Self {
        Self { epochs, files, functions: Functions::default() }
    }

    /// Returns the epochs in order of time.
    pub fn epochs(&self) -> &[Epoch] {
        &self.epochs
    }

    /// Returns the index of the epoch at a time; 0 for a time before the first epoch.
    pub fn epoch_at(&self, at: Tsc) -> usize {
        self.epochs.partition_point(|epoch| epoch.start <= at).saturating_sub(1)
    }

    /// Returns the image at the end of the run; `None` if there is no image at all.
    pub fn last(&self) -> Option<&Arc<Image>> {
        self.epochs.last().map(|epoch| &epoch.image)
    }

    /// Returns the function at an address, in the code that was mapped there last; `None` if no
    /// symbol covers it.
    pub(super) fn function_at(&self, addr: Addr) -> Option<Function> {
        self.functions
            .at(addr, || self.epochs.iter().rev().find_map(|epoch| epoch.image.section_at(addr)))
    }

    /// Returns a stored file by its path on the machine of the recording.
    pub fn file(&self, path: &str) -> Option<&Bytes> {
        self.files.get(path)
    }

    /// Returns all stored files with their paths.
    pub fn files(&self) -> impl Iterator<Item = (&str, &Bytes)> {
        self.files.iter().map(|(path, bytes)| (path.as_str(), bytes))
    }
}

/// The mapped files with their stored contents. A file is often mapped before the recorder sees
/// that it contains code, and stored only then.
#[derive(Default)]
struct Files {
    paths: HashMap<FileId, String>,
    contents: HashMap<FileId, Bytes>,
    /// All images opened so far: those of files, and of special mappings such as the vDSO.
    images: HashMap<ImageId, Bytes>,
    /// The memory of the core file, for code that is mapped with [`Backing::Core`].
    core: Option<Image>,
    missing: Vec<crate::recording::Error>,
}

impl Files {
    /// Opens the images to which the records refer.
    fn load(reader: &Reader, records: &[Record]) -> Self {
        let mut files = Self::default();
        for record in records {
            match &record.event {
                Event::File { file, path } => {
                    files.paths.insert(*file, path.clone());
                }
                Event::Image { file, image } => {
                    if let Some(bytes) = files.open(reader, image) {
                        files.contents.insert(*file, bytes);
                    }
                }
                Event::Map { backing: Backing::Special { image: Some(image), .. }, .. } => {
                    files.open(reader, image);
                }
                Event::Map { backing: Backing::Core, .. } => {
                    files.core.get_or_insert_with(|| core_memory(reader));
                }
                _ => {}
            }
        }
        files
    }

    /// Opens an image, unless it is open already, and returns its bytes. Notes the error in
    /// `missing` and returns `None` if it cannot be opened.
    fn open(&mut self, reader: &Reader, id: &ImageId) -> Option<Bytes> {
        if let Some(bytes) = self.images.get(id) {
            return Some(bytes.clone());
        }
        match reader.image(id) {
            Ok(mapped) => {
                let bytes = Bytes::new(mapped);
                self.images.insert(id.clone(), bytes.clone());
                Some(bytes)
            }
            Err(error) => {
                self.missing.push(error);
                None
            }
        }
    }

    /// Returns the contents of the stored files by their paths.
    fn by_path(self) -> HashMap<String, Bytes> {
        let mut contents: Vec<_> = self.contents.into_iter().collect();
        // For a file that was overwritten in place, the contents mapped last count.
        contents.sort_unstable_by_key(|(file, _)| *file);
        let path = |(file, bytes)| Some((self.paths.get(&file)?.clone(), bytes));
        contents.into_iter().filter_map(path).collect()
    }
}

/// Returns the memory of the core file; empty if it is unreadable, which opening the final state
/// reports.
fn core_memory(reader: &Reader) -> Image {
    let core = reader.core().ok().flatten().map(Bytes::new);
    let core = core.and_then(|bytes| Core::parse(&bytes).ok());
    core.map(|core| core.memory().clone()).unwrap_or_default()
}

/// Applies a record to the address space. A mapping without stored contents only removes the code
/// that was mapped there.
fn apply(record: &Record, space: &mut AddressSpace, files: &Files) {
    let at = record.tsc;
    match &record.event {
        Event::Map { range, protection, backing } => {
            match section(*range, *protection, backing, files) {
                Some(section) => space.map(at, section),
                None => space.unmap(at, *range),
            }
        }
        Event::Unmap { range } => space.unmap(at, *range),
        Event::Code { addr, bytes } => space.poke(at, *addr, bytes.clone()),
        Event::Exec { .. } => space.exec(at),
        _ => {}
    }
}

/// Returns the section of a mapping; `None` if its contents are not stored.
fn section(
    range: AddrRange,
    protection: Protection,
    backing: &Backing,
    files: &Files,
) -> Option<Section> {
    let (name, bytes, offset) = match backing {
        Backing::File { file, offset } => {
            (files.paths.get(file)?.as_str(), files.contents.get(file)?, *offset)
        }
        Backing::Special { name, image } => (name.as_str(), files.images.get(image.as_ref()?)?, 0),
        Backing::Anonymous => return None,
        Backing::Core => return files.core.as_ref()?.section_at(range.start)?.cut(range),
    };
    Some(Section {
        range,
        bytes: bytes.clone(),
        offset,
        writable: protection.write,
        executable: protection.execute,
        altered: false,
        name: name.into(),
        build_id: None,
    })
}

/// The present and former ranges of code, to find the changes that invalidate decoded blocks. A
/// range that is wrongly taken for code only costs a second decoding.
#[derive(Default)]
struct CodeRanges {
    ranges: RangeSet,
    /// The times of the changes.
    changes: Vec<Tsc>,
}

impl CodeRanges {
    /// Notes the changes of code by a record.
    fn note(&mut self, record: &Record) {
        match &record.event {
            Event::Exec { .. } => {
                self.ranges.clear();
                self.changes.push(record.tsc);
            }
            Event::Unmap { range } => self.touch(record.tsc, *range),
            Event::Map { range, protection, .. } => {
                self.touch(record.tsc, *range);
                if protection.execute {
                    self.ranges.insert(*range);
                }
            }
            Event::Code { addr, bytes } => {
                let range = AddrRange::sized(*addr, bytes.len() as u64);
                self.touch(record.tsc, range);
                self.ranges.insert(range);
            }
            _ => {}
        }
    }

    /// Notes a change of `range` at time `at`. If the range held code, blocks decoded before are
    /// invalid.
    fn touch(&mut self, at: Tsc, range: AddrRange) {
        if self.ranges.overlaps(range) {
            self.changes.push(at);
        }
    }
}
