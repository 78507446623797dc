//! The code cache of a program (its translated code), which is stored at the end of a run, and
//! loaded at the start of the next.

use super::recorder::Recorder;
use super::space::MappingRecorder;
use crate::common::{Addr, AddrRange};
use crate::engine::{CacheUpdate, Error, TranslatedProcess};
use crate::recording::CodeCache;
use crate::sideband::{ImageId, Mapping};
use crate::tracee::{PageMap, PageState, Tracee};
use crate::translate::Module;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};

/// Loads the cache that earlier runs of the program stored, if there is one, into `engine`, which
/// has translated no code yet. The program's entry point is at `entry`; `tracee` is a stopped
/// thread of it. Returns where [`store`] stores the cache; `None` if the program's file is not
/// stored, or its cache cannot be.
pub(super) fn load(
    engine: &mut TranslatedProcess,
    files: &MappingRecorder,
    tracee: Tracee,
    recorder: &Recorder,
    entry: Addr,
) -> Result<Option<CodeCache>, Error> {
    let at_entry = engine.space.overlapping(AddrRange::sized(entry, 1)).next();
    let program = at_entry.and_then(|mapping| files.image(mapping));
    let (Some(program), Some(variant)) = (program, engine.code_variant()) else { return Ok(None) };
    let cache = CodeCache::of(&recorder.store, &[program.0.as_bytes(), &variant]);
    if let Some((description, mut code)) = cache.as_ref().and_then(CodeCache::open) {
        engine.resume_code(tracee, &description, &mut code)?;
    }
    use_unchanged_code(engine, files, recorder, AddrRange::new(Addr(0), Addr(u64::MAX)));
    Ok(cache)
}

/// Stores the code cache of `engine` for the next run of the program if this run added enough to
/// it, or removes the stored one if it has grown too large.
pub(super) fn store(engine: &TranslatedProcess, cache: &CodeCache) {
    match engine.updated_cache() {
        CacheUpdate::None => {}
        CacheUpdate::Replace(new) => cache.write(&new.description, &new.code),
        CacheUpdate::Remove => cache.remove(),
    }
}

/// Lets `engine` use the translations that it has loaded of files that are newly mapped in `range`,
/// for those mappings whose bytes are still those of the file: the process, or its parent, may have
/// changed them.
pub(super) fn use_unchanged_code(
    engine: &mut TranslatedProcess,
    files: &MappingRecorder,
    recorder: &Recorder,
    range: AddrRange,
) {
    let modules = modules_in(engine, files, range);
    let pages = if modules.is_empty() { None } else { PageMap::open(recorder.pid()) };
    for module in &modules {
        let touched = pages.as_ref().and_then(|pages| pages.touched(module.range));
        let is_unchanged = |(range, state): &(AddrRange, PageState)| {
            *state != PageState::Private || is_of_file(engine, module, recorder, *range)
        };
        if touched.is_some_and(|touched| touched.iter().all(is_unchanged)) {
            engine.wake_code(module);
        }
    }
}

/// Returns true if the bytes of a range are those of the module's file.
fn is_of_file(
    engine: &TranslatedProcess,
    module: &Module,
    recorder: &Recorder,
    range: AddrRange,
) -> bool {
    let path = recorder.writer().image_path(&ImageId(module.file.clone()));
    let Ok(file) = File::open(path) else { return false };
    let size = usize::try_from(range.size_bytes()).unwrap_or(0);
    let (mut there, mut stored) = (vec![0; size], Vec::new());
    let offset = module.offset + (range.start.0 - module.range.start.0);
    let is_read = (&file).seek(SeekFrom::Start(offset)).is_ok()
        && file.take(size as u64).read_to_end(&mut stored).is_ok();
    // There are zeros between the end of the file and that of its last page.
    stored.resize(size, 0);
    is_read && engine.memory.read(range.start, &mut there) == size && there == stored
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
