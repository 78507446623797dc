//! Code that a program is likely to execute, since earlier runs of the same files executed it. It
//! is translated early.

use super::space::MappingRecorder;
use crate::common::{Addr, AddrRange};
use crate::engine::TranslatedProcess;
use crate::recording::{self, Store, mapped_addresses};
use crate::sideband::{ImageId, Mapping};
use std::collections::BTreeMap;

/// The lists of code that earlier runs executed, for the files that a process maps.
#[derive(Debug)]
pub(super) struct KnownCode {
    lists: recording::KnownCode,
    /// The loaded lists: offsets in the file, by its content.
    loaded: BTreeMap<ImageId, Vec<u64>>,
}

impl KnownCode {
    /// Returns a value without loaded lists, for the process of `engine`. From now on the engine
    /// notes the code that the process executes.
    pub(super) fn start(store: &Store, engine: &mut TranslatedProcess) -> Self {
        engine.learn_code_order();
        Self { lists: recording::KnownCode::of(store), loaded: BTreeMap::new() }
    }

    /// Lets `engine` translate code early that earlier runs executed, of the files that are newly
    /// mapped in the ranges `mapped`.
    pub(super) fn translate_early(
        &mut self,
        engine: &mut TranslatedProcess,
        files: &MappingRecorder,
        mapped: &[AddrRange],
    ) {
        for range in mapped {
            let mappings: Vec<Mapping> = engine.space.overlapping(*range).cloned().collect();
            for mapping in mappings {
                let Some(image) = image_of(&mapping, files).cloned() else { continue };
                let load = |image: &ImageId| self.lists.load(image);
                let offsets = self.loaded.entry(image).or_insert_with_key(load);
                engine.expect_code(mapped_addresses(mapping.range, mapping.offset, offsets));
            }
        }
    }

    /// Adds the code that this run executed, and that is not in the lists yet, to the stored lists,
    /// for later runs.
    pub(super) fn add_executed(&self, engine: &TranslatedProcess, files: &MappingRecorder) {
        let mut executed: BTreeMap<&ImageId, Vec<u64>> = BTreeMap::new();
        let mappings: Vec<&Mapping> =
            engine.space.mappings().filter(|mapping| mapping.protection.execute).collect();
        for addr in engine.unexpected_code() {
            let after = mappings.partition_point(|mapping| mapping.range.start.0 <= *addr);
            let before = after.checked_sub(1).and_then(|at| mappings.get(at));
            let Some(mapping) = before.filter(|m| m.range.contains(Addr(*addr))) else { continue };
            if let Some(image) = image_of(mapping, files) {
                let offset = addr - mapping.range.start.0 + mapping.offset;
                executed.entry(image).or_default().push(offset);
            }
        }
        for (image, offsets) in executed {
            self.lists.add(image, &offsets);
        }
    }
}

/// Returns the stored content of the file that an executable mapping maps; `None` for other
/// mappings, and for files that are not stored.
fn image_of<'a>(mapping: &Mapping, files: &'a MappingRecorder) -> Option<&'a ImageId> {
    let is_code = mapping.protection.execute && mapping.is_file();
    files.image(mapping).filter(|_| is_code)
}
