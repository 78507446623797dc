//! What is fed. Each target checks, besides not panicking, what must hold for any input.

mod faults;
mod flow;
mod gdb;
mod image;
mod import;
mod log;
mod packets;
mod perf;
mod records;

use crate::seeds;
use crate::traits::Traits;
use std::path::Path;
use std::time::Duration;

/// A reader of hostile bytes.
pub(crate) struct Target {
    pub name: &'static str,
    /// Valid inputs to begin with.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Pieces that inputs are made of.
    pub words: &'static [&'static [u8]],
    /// Feeds an input. What is to be on disk goes into a directory that is the worker's own.
    pub feed: fn(&[u8], &Path, &mut Traits),
    /// An input that takes more CPU time hangs.
    pub time_limit: Duration,
    /// What a worker may have mapped in all, its code and its corpus included.
    pub memory_limit_mib: u64,
}

/// All of them.
pub(crate) const ALL: [Target; 8] = [
    Target {
        name: "packets",
        seeds: seeds::traces,
        words: packets::WORDS,
        feed: packets::feed,
        time_limit: Duration::from_secs(2),
        memory_limit_mib: 512,
    },
    Target {
        name: "flow",
        seeds: seeds::traces,
        words: packets::WORDS,
        feed: flow::feed,
        time_limit: Duration::from_secs(5),
        memory_limit_mib: 512,
    },
    Target {
        name: "image",
        seeds: seeds::images,
        words: image::WORDS,
        feed: image::feed,
        time_limit: Duration::from_secs(2),
        memory_limit_mib: 512,
    },
    Target {
        name: "import",
        seeds: seeds::imports,
        words: import::WORDS,
        feed: import::feed,
        time_limit: Duration::from_secs(10),
        memory_limit_mib: 1024,
    },
    Target {
        name: "perf",
        seeds: seeds::perf_data,
        words: perf::WORDS,
        feed: perf::feed,
        time_limit: Duration::from_secs(10),
        memory_limit_mib: 1024,
    },
    Target {
        name: "records",
        seeds: seeds::records,
        words: records::WORDS,
        feed: records::feed,
        time_limit: Duration::from_secs(2),
        memory_limit_mib: 512,
    },
    Target {
        name: "log",
        seeds: seeds::logs,
        words: log::WORDS,
        feed: log::feed,
        time_limit: Duration::from_secs(2),
        memory_limit_mib: 512,
    },
    Target {
        name: "gdb",
        seeds: seeds::sessions,
        words: gdb::WORDS,
        feed: gdb::feed,
        time_limit: Duration::from_secs(5),
        memory_limit_mib: 512,
    },
];

/// The target of that name.
pub(crate) fn named(name: &str) -> Option<&'static Target> {
    const TARGETS: &[Target] = &ALL;
    const FAULTS: &Target = &faults::TARGET;
    TARGETS.iter().chain([FAULTS]).find(|target| target.name == name)
}
