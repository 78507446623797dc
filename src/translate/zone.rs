//! A stretch of code cache within reach of the code that is translated into it.

use super::emit::{Emitter, Gpr};
use super::slots;

/// Code and its RIP-relative data are within 2 GiB of each other; a zone is nearer than that to
/// all that is translated into it, so that most operands stay in reach.
const REACH_BYTES: u64 = 0x7000_0000;

/// A zone, with the code that its superblocks share at its start.
#[derive(Clone, Copy, Debug)]
pub struct Zone {
    /// Its address in the traced process.
    pub base: u64,
    /// Its size in bytes.
    pub size: u64,
    /// Where it is in the shared memory.
    pub offset: u64,
    /// Bytes in use.
    pub(super) used: u64,
    /// Takes a request in RCX to the tracer and goes on where the response says.
    pub(super) request: u64,
    /// Asks for the target in RDX.
    pub(super) miss: u64,
    /// `syscall; int3`, for system calls that the tracer makes the thread execute.
    pub gadget: u64,
}

impl Zone {
    /// Lays out a zone. Gives it and the code for its start.
    pub(super) fn new(base: u64, size: u64, offset: u64) -> (Self, Vec<u8>) {
        let mut emitter = Emitter::new(base, Vec::new());
        let request = emitter.here();
        emitter.store(Gpr::Rcx, slots::REQUEST);
        emitter.put(&[0xcc]);
        emitter.load(Gpr::Rcx, slots::RESPONSE);
        emitter.store(Gpr::Rcx, slots::JUMP);
        emitter.load(Gpr::Rcx, slots::RCX);
        emitter.jump_slot(slots::JUMP);
        let miss = emitter.here();
        emitter.store(Gpr::Rdx, slots::TARGET);
        // mov rcx, -1: slots::INDIRECT
        emitter.put(&[0x48, 0xc7, 0xc1, 0xff, 0xff, 0xff, 0xff]);
        emitter.jump(request);
        let gadget = emitter.here();
        emitter.put(&[0x0f, 0x05, 0xcc]);
        emitter.pad(16);
        let used = emitter.bytes.len() as u64;
        (Self { base, size, offset, used, request, miss, gadget }, emitter.bytes)
    }

    /// Whether code at `addr` can be translated into this zone.
    pub(super) fn reaches(&self, addr: u64) -> bool {
        addr.abs_diff(self.base) < REACH_BYTES
    }

    /// Whether `addr` is in the zone.
    pub fn contains(&self, addr: u64) -> bool {
        addr.wrapping_sub(self.base) < self.size
    }
}
