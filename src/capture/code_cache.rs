//! The code cache of a program, which is kept from one run to the next.

use super::space::MappingRecorder;
use crate::common::{Addr, AddrRange};
use crate::engine::{CacheUpdate, Error, TranslatedProcess};
use crate::recording::{CodeCache, Store};
use crate::sideband::Mapping;
use crate::tracee::Tracee;
use crate::translate::Module;

/// Lets `engine`, which has translated no code yet, begin with the cache that earlier runs of the
/// program left. The program's entry point is at `entry`. `tracee` is stopped in it. Returns the
/// place of the cache.
pub(super) fn resume(
    engine: &mut TranslatedProcess,
    files: &MappingRecorder,
    tracee: Tracee,
    store: &Store,
    entry: Addr,
) -> Result<Option<CodeCache>, Error> {
    let at_entry = engine.space.overlapping(AddrRange::sized(entry, 1)).next();
    let program = at_entry.and_then(|mapping| files.image(mapping));
    let (Some(program), Some(variant)) = (program, engine.code_variant()) else { return Ok(None) };
    let cache = CodeCache::of(store, &[program.0.as_bytes(), &variant]);
    if let Some((description, mut code)) = cache.as_ref().and_then(CodeCache::open) {
        engine.resume_code(tracee, &description, &mut code)?;
    }
    wake(engine, files, AddrRange::new(Addr(0), Addr(u64::MAX)));
    Ok(cache)
}

/// Keeps the code cache of `engine` for the next run of the program, if this one added to it.
pub(super) fn keep(engine: &TranslatedProcess, cache: &CodeCache) {
    match engine.updated_cache() {
        CacheUpdate::None => {}
        CacheUpdate::Replace(new) => cache.write(&new.description, &new.code),
        CacheUpdate::Remove => cache.remove(),
    }
}

/// Lets `engine` use the code that it has of the files that are newly mapped in `range`.
pub(super) fn wake(engine: &mut TranslatedProcess, files: &MappingRecorder, range: AddrRange) {
    for module in modules_in(engine, files, range) {
        engine.wake_code(&module);
    }
}

/// Returns the parts of stored files with code that are mapped in a range.
fn modules_in(
    engine: &TranslatedProcess,
    files: &MappingRecorder,
    range: AddrRange,
) -> Vec<Module> {
    let is_code = |mapping: &&Mapping| mapping.protection.execute && mapping.is_file();
    let module = |mapping: &Mapping| {
        let file = files.image(mapping)?.0.clone();
        Some(Module { range: mapping.range, offset: mapping.offset, file })
    };
    engine.space.overlapping(range).filter(is_code).filter_map(module).collect()
}
