//! Watches memory: by the debug registers of the replay's process, by write-protecting its pages,
//! and by the writes in the log. A debug register or a page fault ends a run after a possible
//! access. Then [`Epoch::first_met`] decides, by the registers and by a comparison of the bytes,
//! whether a watch is *met*. Watches of reads without a debug register need every instruction
//! decoded.

use super::epoch::Epoch;
use super::error::Error;
use crate::common::AddrRange;
use crate::insn::{Registers, reads, writes};
use crate::recording::log::{LogEvent, Write};
use crate::tracee::{self, debug_registers, debug_registers::Watched};
use std::collections::BTreeSet;

/// The kind of accesses that meet a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchKind {
    /// Writes, by instructions or the kernel, that change the value.
    Write,
    /// All writes of instructions and of the kernel. If all debug registers are taken, only those
    /// that change the value.
    Store,
    /// Reads by instructions.
    Read,
    /// Reads and writes of instructions, whatever the value, and writes of the kernel that change
    /// it, as with debug registers in a live program.
    Access,
}

impl WatchKind {
    /// Returns true if reads meet such a watch.
    fn is_of_reads(self) -> bool {
        matches!(self, Self::Read | Self::Access)
    }
}

/// A range of memory whose accesses are to be found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watch {
    /// The watched bytes.
    pub range: AddrRange,
    /// The accesses that meet the watch.
    pub kind: WatchKind,
}

/// The maximum number of watched bytes in all: they are compared after each instruction.
const COMPARED_LIMIT_BYTES: u64 = 1 << 16;

const PAGE_BYTES: usize = 4096;

/// Watches that are set in a process.
#[derive(Debug, Default)]
pub(super) struct Watching {
    /// Each watch, with its bytes when they were last compared.
    watches: Vec<(Watch, Vec<u8>)>,
    /// The debug registers of the process, as they are set for these watches.
    registers: Watched,
    /// The addresses of pages that are write-protected, so that writes to them end a run.
    pages: Vec<u64>,
    /// True if something is watched for reads and does not fit the debug registers.
    needs_decoding: bool,
}

impl Watch {
    /// Returns the watch for debug registers: it reports all writes, and reads if these are
    /// watched.
    fn of_registers(&self) -> tracee::Watch {
        let reads = self.kind.is_of_reads();
        tracee::Watch { addr: self.range.start, size_bytes: self.range.size_bytes(), reads }
    }
}

/// Returns true if all these watches can be set at once: they have at most 64 KiB in sum.
pub fn can_watch(watches: &[Watch]) -> bool {
    let mut sizes = watches.iter().map(|watch| watch.range.size_bytes());
    let total = sizes.try_fold(0_u64, u64::checked_add);
    total.is_some_and(|total| total <= COMPARED_LIMIT_BYTES)
}

impl Watching {
    /// Returns true if nothing is watched.
    pub(super) fn is_empty(&self) -> bool {
        self.watches.is_empty()
    }

    /// Returns true if watched memory is on one of the pages of `range`.
    pub(super) fn is_on_pages_of(&self, range: AddrRange) -> bool {
        let mut watched = self.watches.iter().map(|(watch, _)| watch.range);
        watched
            .any(|watched| watched.start.page().0 < range.end.0 && range.start.page() < watched.end)
    }

    /// Returns the watches.
    pub(super) fn watches(&self) -> Vec<Watch> {
        self.watches.iter().map(|(watch, _)| *watch).collect()
    }

    /// Returns true if a watch is a [`WatchKind::Store`], which writes meet that do not change the
    /// value.
    pub(super) fn is_of_stores(&self) -> bool {
        self.watches.iter().any(|(watch, _)| watch.kind == WatchKind::Store)
    }

    /// Returns true if instructions must be executed one by one and decoded, to find reads.
    pub(super) fn needs_decoding(&self) -> bool {
        self.needs_decoding
    }

    /// Returns the index of the first watch that an executed instruction met by its accesses,
    /// whatever the value: a [`WatchKind::Read`] by a read, a [`WatchKind::Access`] by a read or a
    /// write. Other watches are found by their bytes ([`Epoch::changed`]).
    pub(super) fn first_access_by(&self, insn: &InsnAccesses) -> Option<usize> {
        let is_among = |ranges: &[AddrRange], watch: &Watch| {
            ranges.iter().any(|range| range.overlaps(watch.range))
        };
        self.watches.iter().position(|(watch, _)| match watch.kind {
            WatchKind::Write | WatchKind::Store => false,
            WatchKind::Read => is_among(&insn.reads, watch),
            WatchKind::Access => is_among(&insn.reads, watch) || is_among(&insn.writes, watch),
        })
    }
}

/// The memory that an executed instruction accessed.
#[derive(Debug)]
pub(super) struct InsnAccesses {
    reads: Vec<AddrRange>,
    writes: Vec<AddrRange>,
}

impl InsnAccesses {
    /// Returns the memory that the instruction in `bytes` accessed, by the registers before and
    /// after it.
    pub(super) fn of(bytes: &[u8], before: &Registers, after: &Registers) -> Self {
        Self { reads: reads(bytes, before, after), writes: writes(bytes, before, after) }
    }
}

impl Epoch {
    /// Begins to watch these ranges, until [`Self::unwatch`]: by debug registers as long as these
    /// suffice, reads first, and otherwise by the protection of pages. Notes the present bytes.
    pub(super) fn watch(&mut self, watches: &[Watch]) -> Result<Watching, Error> {
        let (mut by_registers, mut pages, mut needs_decoding) =
            (Vec::new(), BTreeSet::new(), false);
        let of_reads = |reads| watches.iter().filter(move |w| w.kind.is_of_reads() == reads);
        for watch in of_reads(true).chain(of_reads(false)) {
            by_registers.push(watch.of_registers());
            if !debug_registers::can_watch(&by_registers) {
                by_registers.pop();
                pages.extend(pages_of(watch.range));
                needs_decoding |= watch.kind.is_of_reads();
            }
        }
        let mut registers = Watched::default();
        registers.set(self.thread.tracee, &debug_registers::slots(&by_registers))?;
        let watches = watches.iter().map(|watch| (*watch, self.bytes(watch.range))).collect();
        let pages = pages.into_iter().collect();
        let watching = Watching { watches, registers, pages, needs_decoding };
        self.protect(&watching)?;
        Ok(watching)
    }

    /// Write-protects the watched pages, again where a write has opened them.
    fn protect(&mut self, watching: &Watching) -> Result<(), Error> {
        self.engine.write_protect(self.thread.tracee, &watching.pages)?;
        Ok(())
    }

    /// Clears the debug registers. Watched pages stay protected until they are written to.
    pub(super) fn unwatch(&self) -> Result<(), Error> {
        Ok(debug_registers::clear(self.thread.tracee)?)
    }

    /// Returns the bytes of a range, up to the first that is unreadable.
    fn bytes(&self, range: AddrRange) -> Vec<u8> {
        let mut bytes = vec![0; usize::try_from(range.size_bytes()).unwrap_or(0)];
        let known = self.engine.memory.read(range.start, &mut bytes);
        bytes.truncate(known);
        bytes
    }

    /// Returns the index of the first watch that was met since the last call, by the debug
    /// registers and by the bytes in memory. Clears these hits, notes the present bytes, and
    /// protects the watched pages again.
    pub(super) fn first_met(&mut self, watching: &mut Watching) -> Result<Option<usize>, Error> {
        self.protect(watching)?;
        let hits = watching.registers.take_hits(self.thread.tracee)?;
        let differing = self.differing(watching);
        let is_met = |(number, (watch, _)): (usize, &(Watch, Vec<u8>))| {
            let differs = differing.contains(&number);
            let is_hit = || hits.contains(&watch.of_registers());
            match watch.kind {
                WatchKind::Write => differs,
                // No debug register watches reads alone: what changed was written.
                WatchKind::Read => !differs && is_hit(),
                WatchKind::Store | WatchKind::Access => differs || is_hit(),
            }
        };
        Ok(watching.watches.iter().enumerate().position(is_met))
    }

    /// Returns the index of a watch that was met by an entry of the log which just happened: the
    /// first one by [`Self::first_met`], which this calls, or else the first [`WatchKind::Store`]
    /// to which the entry wrote, also if that changed nothing. Only one is returned if several were
    /// met.
    pub(super) fn first_met_by_entry(
        &mut self,
        event: &LogEvent,
        watching: &mut Watching,
    ) -> Result<Option<usize>, Error> {
        let met = self.first_met(watching)?;
        let is_stored = |(watch, _): &(Watch, Vec<u8>)| {
            let written = |write: &Write| AddrRange::sized(write.addr, write.bytes.0.len() as u64);
            let mut writes = event.writes().iter().map(written);
            watch.kind == WatchKind::Store && writes.any(|range| range.overlaps(watch.range))
        };
        Ok(met.or_else(|| watching.watches.iter().position(is_stored)))
    }

    /// Returns the indices of the watches whose bytes have changed since they were last compared,
    /// and takes note of the new bytes. Leaves out those of [`WatchKind::Read`].
    pub(super) fn changed(&self, watching: &mut Watching) -> Vec<usize> {
        let changed = self.differing(watching);
        changed.into_iter().filter(|n| watching.watches[*n].0.kind != WatchKind::Read).collect()
    }

    /// Returns the indices of the watches of any kind whose bytes have changed since they were last
    /// compared, and takes note of the new bytes.
    fn differing(&self, watching: &mut Watching) -> Vec<usize> {
        let mut differing = Vec::new();
        for (number, (watch, before)) in watching.watches.iter_mut().enumerate() {
            let now = self.bytes(watch.range);
            if now != *before {
                *before = now;
                differing.push(number);
            }
        }
        differing
    }
}

/// Returns the addresses of the pages that a range is on.
fn pages_of(range: AddrRange) -> impl Iterator<Item = u64> {
    (range.start.page().0..range.end.0).step_by(PAGE_BYTES)
}
