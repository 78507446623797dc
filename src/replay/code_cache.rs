//! The code cache of a replay, which is kept in the user's store for the next one of the same
//! program. Its code is *loaded* at the start (`resume_code` of the engine), and not executed until
//! the file that it was translated from is mapped: then it is *enabled* (`wake_code`).

use super::epoch::Epoch;
use super::error::Error;
use crate::common::Addr;
use crate::engine::CacheUpdate;
use crate::recording::log::{Content, Mapped, Start};
use crate::recording::{CodeCache, Reader, Store};
use crate::tracee::{AT_ENTRY, auxv_value};
use crate::translate::Module;

impl Epoch {
    /// Loads the code cache that earlier replays of the program left, if there is one, and enables
    /// its code of the mapped files. Notes where this replay's cache is to be kept. Does nothing if
    /// the program's entry point is in no stored file. Called when the process has its first
    /// mappings, and before any code is translated.
    pub(super) fn load_code_cache(&mut self, start: &Start, reader: &Reader) -> Result<(), Error> {
        let entry = Addr(auxv_value(&start.auxv.0, AT_ENTRY).unwrap_or(0));
        let at_entry = start.mappings.iter().find(|mapped| mapped.range.contains(entry));
        if let Some(Content::File { image, .. }) = at_entry.map(|mapped| &mapped.content) {
            let Some(variant) = self.engine.code_variant() else { return Ok(()) };
            let facts: [&[u8]; 2] = [image.0.as_bytes(), &variant];
            self.code_cache = CodeCache::of(&Store::of_user(), &facts);
            if let Some((description, mut code)) =
                self.code_cache.as_ref().and_then(CodeCache::open)
            {
                self.engine.resume_code(self.thread.tracee, &description, &mut code)?;
            }
            for mapped in &start.mappings {
                self.enable_cached_code(mapped, reader);
            }
        }
        Ok(())
    }

    /// Saves the code cache for the next replay of the program if this one added to it, or removes
    /// the saved one if it has grown too large. Called when the process is parked or ends.
    pub(super) fn save_code_cache(&self) {
        let Some(cache) = &self.code_cache else { return };
        match self.engine.updated_cache() {
            CacheUpdate::None => {}
            CacheUpdate::Replace(new) => cache.write(&new.description, &new.code),
            CacheUpdate::Remove => cache.remove(),
        }
    }

    /// Enables the translated code that the loaded cache has of a file that was just mapped, if the
    /// mapping is executable and the file was stored by this user's recorder: a recording from
    /// elsewhere may have other code under the same name.
    pub(super) fn enable_cached_code(&mut self, mapped: &Mapped, reader: &Reader) {
        let Content::File { image, offset } = &mapped.content else { return };
        let is_own = || {
            let path = reader.image_path(image);
            path.is_ok_and(|path| Store::of_user().is_intact_image(image, &path))
        };
        if mapped.protection.execute && is_own() {
            let (range, file) = (mapped.range, image.0.clone());
            self.engine.wake_code(&Module { range, offset: *offset, file });
        }
    }
}
