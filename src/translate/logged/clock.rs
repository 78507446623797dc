//! Glue that reads the clock by the kernel's vdso (vdso(7)) in the place of a system call, on a
//! stack in the thread's log. The function changes nothing but registers, flags and that stack, so
//! the call can be begun anew wherever a thread stops before the time is stored.

use super::super::emit::{Emitter, Gpr};
use super::super::slots;
use super::table::CLOCKS;
use super::{HEADER_BYTES, R8, R9, R10, R11, RAX, RCX, RDI, RDX, RSI, RSP, Word};

/// The size of the stack. The function needs far less.
const STACK_BYTES: u32 = 0x4000;
const WORD_BYTES: u32 = 8;

/// The addresses of the code that reads a clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct ClockCode {
    /// The start of the code. From here to `saved`, the program's RSP is in the record only.
    pub start: u64,
    /// From here to `end`, all registers and flags of the program are in the record only.
    pub saved: u64,
    /// From here to `stored`, the time is stored in the program's memory. The stores may fault.
    pub end: u64,
    /// The address after these stores.
    pub stored: u64,
}

/// The functions of the vdso that are used, in the order of their addresses in the table.
#[derive(Clone, Copy)]
pub(super) enum Clock {
    /// `__vdso_clock_gettime`.
    GetTime = 0,
    /// `__vdso_gettimeofday`.
    TimeOfDay = 1,
}

/// The jumps out of the code that reads a clock.
pub(super) struct Jumps {
    /// The jump to the system call, which is made if the function fails.
    pub(super) to_call: usize,
    /// The field of the jump that is taken after a success: to the code that adds the record to the
    /// log.
    pub(super) done: usize,
}

/// Emits two jumps: one that is taken if the table has no function of the vdso for a clock, and one
/// that is taken if it has. Returns both, in this order. Destroys RCX.
pub(super) fn emit_choice(emitter: &mut Emitter, clock: Clock) -> (usize, usize) {
    emitter.load(Gpr::Rcx, slot_of(clock));
    (emitter.jump_if_rcx_is_0(), emitter.jump_from_here())
}

/// Emits the code that reads a clock, after the registers are in the record. The function writes
/// the time to the record, after its header. If it succeeds, the code copies the time to the
/// program's memory and completes the record. If it fails, the code jumps to the system call, with
/// the call's arguments in their registers again.
pub(super) fn emit_clock(emitter: &mut Emitter, clock: Clock) -> (ClockCode, Jumps) {
    let start = emitter.here();
    emitter.load(Gpr::Rcx, slots::LOG);
    // lea rsp, [rcx + header + stack]; pushfq; pop r11
    emitter.put(&[0x48, 0x8d, 0xa1]);
    emitter.put_u32(HEADER_BYTES + STACK_BYTES);
    emitter.put(&[0x9c, 0x41, 0x5b]);
    emitter.store_at(R11, RCX, Word::Flags.offset());
    let saved = emitter.here();
    // and rsp, -16
    emitter.put(&[0x48, 0x83, 0xe4, 0xf0]);
    // The address for the time, the program's argument in `out`, is replaced by one in the record.
    let out = match clock {
        Clock::GetTime => {
            // lea rsi, [rcx + header]
            emitter.put(&[0x48, 0x8d, 0xb1]);
            emitter.put_u32(HEADER_BYTES);
            RSI
        }
        Clock::TimeOfDay => {
            // xor esi, esi; lea rdi, [rcx + header]
            emitter.put(&[0x31, 0xf6, 0x48, 0x8d, 0xb9]);
            emitter.put_u32(HEADER_BYTES);
            RDI
        }
    };
    // call gs:[function]
    emitter.put(&[0x65, 0xff, 0x14, 0x25]);
    emitter.put_u32(slot_of(clock));
    emitter.load(Gpr::Rcx, slots::LOG);
    // push [rcx + flags]; popfq; mov r11, rax
    emitter.put(&[0xff, 0xb1]);
    emitter.put_u32(Word::Flags.offset());
    emitter.put(&[0x9d, 0x49, 0x89, 0xc3]);
    for (register, word) in [
        (RAX, Word::Rax),
        (RSP, Word::Rsp),
        (RDX, Word::Rdx),
        (RSI, Word::Rsi),
        (RDI, Word::Rdi),
        (R8, Word::R8),
        (R9, Word::R9),
        (R10, Word::R10),
    ] {
        emitter.load_at(register, RCX, word.offset());
    }
    // The result is in R11: 0 after a success. mov rcx, r11
    emitter.put(&[0x4c, 0x89, 0xd9]);
    let reads = emitter.jump_if_rcx_is_0();
    let to_call = emitter.jump_from_here();
    emitter.aim_here(reads);
    emitter.load(Gpr::Rcx, slots::LOG);
    let end = emitter.here();
    for offset in [0, WORD_BYTES] {
        emitter.load_at(R11, RCX, HEADER_BYTES + offset);
        emitter.store_at(R11, out, offset);
    }
    let stored = emitter.here();
    emit_record(emitter, out);
    let done = emitter.jump_from_here();
    (ClockCode { start, saved, end, stored }, Jumps { to_call, done })
}

/// Emits code that completes the record, at RCX, of a call that has succeeded, and wrote a time at
/// `out`. Leaves the result in RAX and the flags in the slot of R11, as after the system call.
/// Destroys R11.
fn emit_record(emitter: &mut Emitter, out: u8) {
    emitter.load_at(R11, RCX, Word::Flags.offset());
    emitter.store(Gpr::R11, slots::R11);
    // An xor would change the flags. mov eax, 0; mov r11d, bytes
    emitter.put(&[0xb8, 0, 0, 0, 0, 0x41, 0xbb]);
    emitter.put_u32(2 * WORD_BYTES);
    emitter.store_at(R11, RCX, Word::Size.offset());
    emitter.store_at(out, RCX, Word::Address.offset());
    for word in [Word::Result, Word::Kind] {
        emitter.store_at(RAX, RCX, word.offset());
    }
}

/// Returns the offset in a thread's area of the address of a clock's function.
fn slot_of(clock: Clock) -> u32 {
    slots::SYSCALL_CLASSES + CLOCKS + clock as u32 * WORD_BYTES
}
