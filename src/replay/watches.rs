//! Watched memory: by the debug registers of the replay's process, and around what the log says was
//! written.

use super::epoch::Epoch;
use super::error::Error;
use crate::common::{Addr, AddrRange};

/// The accesses that are watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchKind {
    /// Writes that change the value.
    Write,
    /// Reads.
    Read,
    /// Both, whatever the value.
    Access,
}

/// Watched memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watch {
    /// The bytes.
    pub range: AddrRange,
    /// The accesses.
    pub kind: WatchKind,
}

/// Debug registers of a CPU.
const REGISTERS: usize = 4;
const CONTROL: usize = 7;
const STATUS: usize = 6;
/// The fields of DR7 (SDM volume 3, "Debug Control Register").
const WRITES: u64 = 0b01;
const ACCESSES: u64 = 0b11;

/// A piece of watched memory that fits a debug register.
#[derive(Clone, Copy, Debug)]
struct Piece {
    addr: u64,
    bytes: u64,
    kind: WatchKind,
}

/// Watches that are set, with the bytes that they had.
#[derive(Debug, Default)]
pub(super) struct Watching {
    watches: Vec<(Watch, Vec<u8>)>,
    fits: bool,
}

impl Watching {
    /// Returns true if debug registers watch all of it.
    pub(super) fn fits(&self) -> bool {
        self.fits
    }

    /// Returns what is watched.
    pub(super) fn watches(&self) -> Vec<Watch> {
        self.watches.iter().map(|(watch, _)| *watch).collect()
    }
}

impl Epoch {
    /// Begins to watch.
    pub(super) fn watch(&mut self, watches: &[Watch]) -> Result<Watching, Error> {
        let pieces: Vec<Piece> = watches.iter().flat_map(pieces).collect();
        let fits = pieces.len() <= REGISTERS;
        if fits && !pieces.is_empty() {
            self.set_debug_registers(&pieces)?;
        }
        let watches = watches.iter().map(|watch| (*watch, self.bytes(watch.range))).collect();
        Ok(Watching { watches, fits })
    }

    fn set_debug_registers(&self, pieces: &[Piece]) -> Result<(), Error> {
        let tracee = self.thread.tracee;
        tracee.set_debug_register(CONTROL, 0)?;
        let mut control = 0;
        for (number, piece) in pieces.iter().enumerate() {
            tracee.set_debug_register(number, piece.addr)?;
            let kind = if piece.kind == WatchKind::Write { WRITES } else { ACCESSES };
            // 8 bytes are 0b10, the others their number less one.
            let size = if piece.bytes == 8 { 0b10 } else { piece.bytes - 1 };
            control |= 1 << (2 * number) | (kind | size << 2) << (16 + 4 * number);
        }
        tracee.set_debug_register(CONTROL, control)?;
        Ok(())
    }

    /// Ends all watching.
    pub(super) fn unwatch(&self) -> Result<(), Error> {
        Ok(self.thread.tracee.set_debug_register(CONTROL, 0)?)
    }

    fn bytes(&self, range: AddrRange) -> Vec<u8> {
        let mut bytes = vec![0; usize::try_from(range.size_bytes()).unwrap_or(0)];
        let known = self.engine.memory.read(range.start, &mut bytes);
        bytes.truncate(known);
        bytes
    }

    /// Returns the number of the watch that an access met, if the debug registers say so: the first
    /// whose value changed, or which asks for no change.
    pub(super) fn met(&self, watching: &mut Watching) -> Result<Option<usize>, Error> {
        let status = self.thread.tracee.debug_register(STATUS)?;
        self.thread.tracee.set_debug_register(STATUS, 0)?;
        let pieces = watching.watches.iter().enumerate();
        let pieces = pieces.flat_map(|(number, (watch, _))| pieces_of(number, watch));
        let hit: Vec<usize> = pieces
            .enumerate()
            .filter(|(register, _)| status & 1 << register != 0)
            .map(|(_, number)| number)
            .collect();
        let changed = self.changed(watching);
        let met = hit.into_iter().find(|number| match watching.watches[*number].0.kind {
            WatchKind::Write => changed.contains(number),
            WatchKind::Read | WatchKind::Access => true,
        });
        Ok(met.or_else(|| changed.first().copied()))
    }

    /// Returns the watches whose bytes are not what they were, and takes note of the new ones.
    pub(super) fn changed(&self, watching: &mut Watching) -> Vec<usize> {
        let mut changed = Vec::new();
        for (number, (watch, before)) in watching.watches.iter_mut().enumerate() {
            let now = self.bytes(watch.range);
            if now != *before {
                *before = now;
                if watch.kind != WatchKind::Read {
                    changed.push(number);
                }
            }
        }
        changed
    }
}

fn pieces_of(number: usize, watch: &Watch) -> impl Iterator<Item = usize> + use<> {
    pieces(watch).into_iter().map(move |_| number)
}

/// Divides watched memory into aligned pieces of 1, 2, 4 or 8 bytes.
fn pieces(watch: &Watch) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut at = watch.range.start.0;
    while Addr(at) < watch.range.end && pieces.len() <= REGISTERS {
        let left = watch.range.end.0 - at;
        let fits = |bytes: &u64| at.is_multiple_of(*bytes) && *bytes <= left;
        let bytes = [8, 4, 2, 1].into_iter().find(fits).unwrap_or(1);
        pieces.push(Piece { addr: at, bytes, kind: watch.kind });
        at += bytes;
    }
    pieces
}
