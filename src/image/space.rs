//! The image of a process over time. Reads no trace: the caller supplies each change and its time.

use crate::common::{Addr, AddrRange, Tsc};
use crate::image::{Bytes, Image, Section};
use std::sync::{Arc, OnceLock};

/// The mappings of one process over time, built from changes. Changes may come in any order;
/// changes at the same time apply in the order given. A forked child starts with a clone of its
/// parent's address space.
///
/// A change in order of time costs O(log n) in time and memory. Changes out of order are sorted at
/// the next query.
#[derive(Clone, Debug, Default)]
pub struct AddressSpace {
    /// The changes in the order given.
    changes: Vec<(Tsc, Change)>,
    /// The images after the changes, by time; empty until the next query.
    epochs: OnceLock<Vec<(Tsc, Arc<Image>)>>,
}

/// A change of the mappings.
#[derive(Clone, Debug)]
enum Change {
    Map(Section),
    Unmap(AddrRange),
    /// Unmaps everything.
    Exec,
    Protect {
        range: AddrRange,
        writable: bool,
        executable: bool,
    },
    /// Writes bytes at an address.
    Poke(Addr, Bytes),
}

impl AddressSpace {
    /// Creates an empty address space.
    pub fn new() -> Self {
        Self::default()
    }

    /// Maps `section` at time `at`, over any previous contents.
    pub fn map(&mut self, at: Tsc, section: Section) {
        self.change(at, Change::Map(section));
    }

    /// Unmaps everything in `range` at time `at`.
    pub fn unmap(&mut self, at: Tsc, range: AddrRange) {
        self.change(at, Change::Unmap(range));
    }

    /// Executes another program at time `at`: nothing stays mapped.
    pub fn exec(&mut self, at: Tsc) {
        self.change(at, Change::Exec);
    }

    /// Changes the protection of all mappings in `range` at time `at`.
    pub fn protect(&mut self, at: Tsc, range: AddrRange, writable: bool, executable: bool) {
        self.change(at, Change::Protect { range, writable, executable });
    }

    /// Writes `bytes` at `addr` at time `at`: code that was created or changed at run time.
    pub fn poke(&mut self, at: Tsc, addr: Addr, bytes: impl Into<Bytes>) {
        self.change(at, Change::Poke(addr, bytes.into()));
    }

    /// Returns the image at time `at`, with all changes up to and including that time; empty before
    /// the first one.
    pub fn image_at(&self, at: Tsc) -> Arc<Image> {
        let epochs = self.epochs();
        let next = epochs.partition_point(|(start, _)| *start <= at);
        let epoch = next.checked_sub(1).and_then(|last| epochs.get(last));
        epoch.map(|(_, image)| image.clone()).unwrap_or_default()
    }

    /// Returns each time at which the image changed, and the image from then on. Times increase
    /// strictly; before the first one nothing is mapped.
    pub fn epochs(&self) -> &[(Tsc, Arc<Image>)] {
        self.epochs.get_or_init(|| {
            let mut sorted: Vec<_> = self.changes.iter().collect();
            sorted.sort_by_key(|(at, _)| *at);
            let mut epochs = Vec::new();
            for (at, change) in sorted {
                push_epoch(&mut epochs, *at, change);
            }
            epochs
        })
    }

    /// Adds a change. Extends the epochs if they are known, but discards them if the change is
    /// before the last one.
    fn change(&mut self, at: Tsc, change: Change) {
        if let Some(epochs) = self.epochs.get_mut() {
            if epochs.last().is_none_or(|(last, _)| *last <= at) {
                push_epoch(epochs, at, &change);
            } else {
                self.epochs = OnceLock::new();
            }
        }
        self.changes.push((at, change));
    }
}

/// Appends the image after `change`; a change at the time of the last epoch updates that epoch.
fn push_epoch(epochs: &mut Vec<(Tsc, Arc<Image>)>, at: Tsc, change: &Change) {
    let before = epochs.last().map(|(_, image)| image.clone()).unwrap_or_default();
    let image = Arc::new(change.apply(&before));
    match epochs.last_mut() {
        Some((last, slot)) if *last == at => *slot = image,
        _ => epochs.push((at, image)),
    }
}

impl Change {
    /// Returns a copy of `image` with the change made.
    fn apply(&self, image: &Image) -> Image {
        match self {
            Self::Map(section) => image.with(section.clone()),
            Self::Unmap(range) => image.without(*range),
            Self::Exec => Image::default(),
            Self::Protect { range, writable, executable } => {
                image.with_protection(*range, *writable, *executable)
            }
            Self::Poke(addr, bytes) => image.with_written(*addr, bytes.clone()),
        }
    }
}
