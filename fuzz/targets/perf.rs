//! perf.data: read from memory, and imported with the program that ran beside it.

use super::import::recorded;
use crate::seeds;
use crate::traits::Traits;
use contraflow::recording::import::{PerfOptions, open_perf};
use contraflow::sideband::perf_data::{PerfData, PerfEvent};
use std::fs;
use std::mem::discriminant;
use std::path::Path;

/// Magics, types and sizes of records, flags, names.
pub(crate) const WORDS: &[&[u8]] = &[
    b"PERFILE2",
    b"2ELIFREP",
    &[104, 0, 0, 0, 0, 0, 0, 0],
    &[16, 0, 0, 0, 0, 0, 0, 0],
    &[1, 0, 0, 0, 0, 0, 48, 0],
    &[3, 0, 0, 0, 0, 0x20, 48, 0],
    &[7, 0, 0, 0, 0, 0, 80, 0],
    &[10, 0, 0, 0, 2, 0x40, 112, 0],
    &[11, 0, 0, 0, 0, 0, 72, 0],
    &[12, 0, 0, 0, 0, 0, 56, 0],
    &[14, 0, 0, 0, 0, 0x20, 48, 0],
    &[15, 0, 0, 0, 0, 0, 56, 0],
    &[64, 0, 0, 0, 0, 0, 128, 0],
    &[70, 0, 0, 0, 0, 0, 48, 0],
    &[71, 0, 0, 0, 0, 0, 48, 0],
    &[80, 0, 0, 0, 0, 0, 32, 0],
    &[81, 0, 0, 0, 0, 0, 32, 0],
    &[0x28, 0xb5, 0x2f, 0xfd],
    &[0xff; 8],
    &[0; 8],
    b"/program\0",
    b"[vdso]\0",
    b"/[code]\0",
    b"/../../program\0",
];

/// A file, or the orders that make one. Damage has a place in the file, and what reads is no more than the file; what is imported is
/// walked from end to end.
pub(crate) fn feed(input: &[u8], dir: &Path, traits: &mut Traits) {
    let orders = input.strip_prefix(seeds::MADE);
    let made = orders.map(seeds::made);
    let bytes = made.as_deref().unwrap_or(input);
    let data = match PerfData::parse(bytes) {
        Ok(data) => data,
        Err(bad) => {
            assert!(bad.offset <= bytes.len() as u64 && bad.to_string().lines().count() == 1);
            traits.note(("bad", bad.what));
            return;
        }
    };
    assert!(data.aux_traces.iter().all(|area| area.start + area.size_bytes <= bytes.len()));
    for pair in data.records.windows(2) {
        traits.note(("records", [0, 1].map(|n: usize| discriminant(&pair[n].event))));
    }
    let maps = data.records.iter().filter_map(|record| match &record.event {
        PerfEvent::Map(map) => Some(map.name.len()),
        _ => None,
    });
    assert!(maps.sum::<usize>() <= bytes.len().saturating_mul(64).max(1 << 20));
    let (root, core) = (dir.join("root"), dir.join("core"));
    if !root.exists() {
        fs::create_dir(&root).expect("a place for the files");
        for (name, content) in seeds::files() {
            fs::write(root.join(name), content).expect("a place for a file");
        }
        fs::write(&core, seeds::core_file()).expect("a place for the core");
    }
    let core = Some(core).filter(|_| orders.is_some_and(seeds::has_core));
    let path = dir.join("perf.data");
    fs::write(&path, bytes).expect("a place for the file");
    match open_perf(&path, &PerfOptions { core, symfs: Some(root), ..PerfOptions::default() }) {
        Ok(imported) => {
            let size: u64 = imported.traces.iter().map(|(_, trace)| trace.size_bytes()).sum();
            // Each loss adds an OVF, and has a record of its own.
            assert!(size <= bytes.len() as u64);
            traits.magnitude("notes", imported.notes.len());
            recorded(&imported, dir, traits);
        }
        Err(error) => traits.note(("refused", discriminant(&error.kind))),
    }
}
