//! A part of the code cache within reach of the code that is translated into it.

use super::answered::emit_answer_code;
use super::emit::{Emitter, Gpr};
use super::logged::{CallHandling, LogCode, emit_log_code};
use super::repeats::{RepeatCopy, emit_repeats, repeat_copy};
use super::slots;

/// The largest distance from a zone to code translated into it. RIP-relative operands reach 2 GiB;
/// a smaller distance keeps most of them in reach from the cache.
const REACH_BYTES: u64 = 0x7000_0000;

/// A contiguous part of the code cache, which starts with code that its superblocks share.
#[derive(Clone, Copy, Debug)]
pub struct Zone {
    /// The zone's address in the traced process.
    pub base: u64,
    /// The zone's size in bytes.
    pub size: u64,
    /// The zone's offset in the shared memory.
    pub offset: u64,
    /// The size in bytes of the code that the zone's superblocks share.
    pub(super) shared: u64,
    /// The number of bytes in use, from the zone's start on.
    pub(super) used: u64,
    /// Address of the code that passes a request in RCX to the tracer, and resumes at the response.
    pub(super) request: u64,
    /// Address of the code that requests the target in RDX.
    pub(super) miss: u64,
    /// Address of `syscall; int3`, for system calls that the tracer injects.
    pub gadget: u64,
    /// Address of the copies of repeated instructions.
    repeats: u64,
    /// The addresses of the code that makes and logs system calls, or answers them; `None` if calls
    /// always stop.
    pub log: Option<LogCode>,
}

impl Zone {
    /// Lays out a zone. Returns the zone, and the code for its start, which the caller writes
    /// there. With `call_handling`, that code logs or answers system calls. The size is not
    /// checked.
    pub(super) fn new(
        base: u64,
        size: u64,
        offset: u64,
        call_handling: Option<CallHandling>,
    ) -> (Self, Vec<u8>) {
        let mut emitter = Emitter::new(base, Vec::new());
        let request = emitter.here();
        // In code that counts, R11 is the budget at the request.
        emitter.store(Gpr::R11, slots::COUNTER);
        emitter.store(Gpr::Rcx, slots::REQUEST);
        // int3
        emitter.put(&[0xcc]);
        emitter.load(Gpr::Rcx, slots::RESPONSE);
        emitter.store(Gpr::Rcx, slots::JUMP);
        emitter.load(Gpr::Rcx, slots::RCX);
        emitter.jump_slot(slots::JUMP);
        let miss = emitter.here();
        emitter.store(Gpr::Rdx, slots::TARGET);
        // mov rcx, -1 (slots::INDIRECT)
        emitter.put(&[0x48, 0xc7, 0xc1, 0xff, 0xff, 0xff, 0xff]);
        emitter.jump(request);
        let gadget = emitter.here();
        // syscall; int3
        emitter.put(&[0x0f, 0x05, 0xcc]);
        let repeats = emitter.here();
        emit_repeats(&mut emitter);
        let log = call_handling.map(|handling| {
            let emit = if handling.answers { emit_answer_code } else { emit_log_code };
            emit(&mut emitter, handling)
        });
        emitter.pad(16);
        let shared = emitter.bytes.len() as u64;
        let used = shared;
        let zone = Self { base, size, offset, shared, used, request, miss, gadget, repeats, log };
        (zone, emitter.bytes)
    }

    /// Returns true if `addr` is near enough for its code to be translated into this zone, which
    /// may have no room left. An operand of that code may still be out of reach.
    pub fn reaches(&self, addr: u64) -> bool {
        addr.abs_diff(self.base) < REACH_BYTES
    }

    /// Returns the zone's copy of the string instruction with a REP prefix that `code` begins with;
    /// `None` if that has no copy: only MOVS and STOS have.
    pub fn repeat_copy(&self, code: &[u8]) -> Option<RepeatCopy> {
        repeat_copy(self.repeats, code)
    }

    /// Returns true if `addr` is in the zone.
    pub fn contains(&self, addr: u64) -> bool {
        addr.wrapping_sub(self.base) < self.size
    }
}
