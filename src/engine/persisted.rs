//! The code cache that an earlier run of the program left, and the one that this run leaves. The
//! cache is mapped in *zones*, which are used again only at their old addresses.

use super::error::Error;
use super::process::TranslatedProcess;
use super::shared::Shared;
use super::window::ZONE_BYTES;
use crate::common::Addr;
use crate::tracee::{AT_BASE, AT_ENTRY, Tracee, auxv_value};
use crate::translate::{Module, Persisted, PersistedCode};
use std::fs;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

/// The limit, in bytes, on the code of a persisted cache. Dropped code stays in it, so it grows
/// with each run that adds to it.
const MOST_CODE_BYTES: u64 = 48 << 20;
/// A cache is written if at least this share of its superblocks is new, and this many are.
const NEW_SHARE: usize = 16;
const FEW_NEW: usize = 64;

/// The fate of a program's persisted cache after a run.
#[derive(Debug)]
pub enum CacheUpdate {
    /// The run added little: it stays as it is.
    None,
    /// This takes its place.
    Replace(Persisted),
    /// It has grown too large: the next run begins without one.
    Remove,
}

impl TranslatedProcess {
    /// Returns the address near which the code cache of a program with this auxiliary vector is
    /// best made: where its dynamic linker is mapped, or its entry. That is the same in all of its
    /// runs without address space randomization, so that a persisted cache fits. `None` if the
    /// vector has neither.
    pub fn usual_cache_address(auxv: &[u8]) -> Option<u64> {
        [AT_BASE, AT_ENTRY].into_iter().find_map(|kind| auxv_value(auxv, kind))
    }

    /// Returns bytes that are equal for two processes if one can use the persisted cache of the
    /// other, as far as that does not depend on the program's code: the translator's build and
    /// settings. `None` if the code of this process cannot be persisted, or the build is unknown.
    pub fn code_variant(&self) -> Option<Vec<u8>> {
        let variant = self.translator.variant()?;
        Some([build_id()?, variant.into_bytes()].concat())
    }

    /// Takes over a persisted cache, given as its description and its code, if it is whole and can
    /// be mapped where it was; otherwise begins without. No code may be translated yet. The code is
    /// used once its files are mapped ([`Self::wake_code`]). `tracee` is stopped in the program.
    pub fn resume_code(
        &mut self,
        tracee: Tracee,
        description: &[u8],
        code: &mut dyn Read,
    ) -> Result<(), Error> {
        let persisted = PersistedCode::read::<Arc<Shared>>(description);
        if let Some(persisted) = persisted
            && self.make_zones(tracee, &persisted)?
        {
            self.translator.resume(persisted, code);
        }
        Ok(())
    }

    /// Maps the zones of a persisted cache that are not there yet. Returns false if one cannot be
    /// mapped where it was, or if the process has other zones.
    fn make_zones(&mut self, tracee: Tracee, persisted: &PersistedCode) -> Result<bool, Error> {
        let zones: Vec<(u64, u64)> = persisted.zones().collect();
        let own: Vec<(u64, u64)> =
            self.translator.zones().iter().map(|zone| (zone.base, zone.size)).collect();
        if zones.iter().any(|(_, size)| *size != ZONE_BYTES) || !zones.starts_with(&own) {
            return Ok(false);
        }
        for (base, _) in zones.into_iter().skip(own.len()) {
            let gadget = self.gadget();
            let offset = match self.window.map_zone_at(tracee, gadget, base) {
                Ok(offset) => offset,
                Err(error) if error.is_of_end() => return Err(error),
                Err(_) => return Ok(false),
            };
            self.translator.add_zone(base, ZONE_BYTES, offset);
            self.hide_new_ranges();
        }
        Ok(true)
    }

    /// Notes that a part of a file was just mapped: the code that a persisted cache has of it is
    /// used from now on, if it is mapped where it was.
    pub fn wake_code(&mut self, module: &Module) {
        let Self { translator, space, .. } = self;
        translator.wake(module, &|page| space.is_stable(Addr(page)));
    }

    /// Returns what the caller is to do with the persisted cache of the program, after the run.
    /// Writes nothing.
    pub fn updated_cache(&self) -> CacheUpdate {
        let (persisted, new) = self.translator.persisted_and_new();
        if new < FEW_NEW.max(persisted / NEW_SHARE) {
            return CacheUpdate::None;
        }
        if self.translator.used_bytes() > MOST_CODE_BYTES {
            return CacheUpdate::Remove;
        }
        let cache = self.translator.persist(&|page| self.space.is_stable(Addr(page)));
        cache.map_or(CacheUpdate::None, CacheUpdate::Replace)
    }
}

/// Returns a description of the file of this build of the translator: no other build has the same.
/// `None` if the file's metadata cannot be read.
fn build_id() -> Option<Vec<u8>> {
    let file = fs::metadata("/proc/self/exe").ok()?;
    let facts = [
        file.dev(),
        file.ino(),
        file.len(),
        file.mtime().cast_unsigned(),
        file.mtime_nsec().cast_unsigned(),
        file.ctime().cast_unsigned(),
        file.ctime_nsec().cast_unsigned(),
    ];
    Some(facts.iter().flat_map(|fact| fact.to_le_bytes()).collect())
}
