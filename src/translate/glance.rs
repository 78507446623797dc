//! Glances: a thread of a replay that reaches a stop shows its registers to its tracer, and waits
//! for the answer in the cache. That takes a microsecond where a stop takes fifty, and a search
//! passes most stops. A tracer that does not wait, or takes long, finds the thread at an INT3.
//!
//! This glue keeps the registers of the program in the thread's area, which it uses as its stack.
//! Nothing may stop a thread in it.

use super::emit::{Emitter, Gpr};
use super::logged::CallHandling;
use super::slots;
use crate::insn::Registers;

/// Value of [`slots::GLANCE`]: the thread shows its registers and waits. Other values are 0, if it
/// shows none, and answers ([`GlanceAnswer`]).
pub const GLANCE_POSTED: u64 = 1;

/// The answer to a glance, as its slot has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GlanceAnswer {
    /// The thread goes on.
    Pass = 2,
    /// The thread stops.
    Stop = 3,
}

/// The number of times that a thread looks for an answer, some ten nanoseconds each.
const ANSWER_READS: u32 = 4000;
/// The numbers (in the encoding) of the registers that are pushed after the flags: all but RSP.
const PUSHED: [u8; 15] = [0, 1, 2, 3, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];
/// The indexes of pushed words, in the order of the pushes: of the flags, R11 (the budget), the
/// base of FS, and the program's instruction pointer.
const FLAGS: usize = 0;
const BUDGET: usize = 11;
const FS_BASE: usize = 1 + PUSHED.len();
const ADDRESS: usize = 2 + PUSHED.len();
/// The number of pushed words.
const PUSHED_WORDS: u32 = 18;
const _: () = assert!(PUSHED_WORDS as usize == ADDRESS + 1);
const WORD_BYTES: u32 = 8;
/// The offset in a thread's area of the lowest word that is pushed: the address of the code.
const LOWEST: u32 = slots::GLANCE_END - PUSHED_WORDS * WORD_BYTES;
/// Bytes of an action for `rt_sigaction`.
const ACTION_BYTES: u32 = 32;
const _: () = assert!(
    slots::GLANCE_STACK + WORD_BYTES <= slots::ACTION && slots::ACTION + ACTION_BYTES <= LOWEST
);

/// Emits a glance: code that shows the registers of a thread at `ip` and waits for an answer, if
/// its tracer wants glances. A thread continues after this code if it is to stop, has no answer in
/// time, or its tracer wants no glances. Otherwise it takes the returned jump, which the caller
/// aims. Its registers and flags are restored in all cases; the slots of RCX and RSP are used. Of
/// `handling`, only `has_fs_base` matters.
pub(super) fn emit_glance(emitter: &mut Emitter, handling: CallHandling, ip: u64) -> usize {
    emitter.store(Gpr::Rcx, slots::RCX);
    emitter.load(Gpr::Rcx, slots::WANTS_GLANCES);
    let unwanted = emitter.jump_if_rcx_is_0();
    emitter.load(Gpr::Rcx, slots::RCX);
    emit_pushes(emitter, handling, ip);
    emitter.store_value(1, slots::GLANCE);
    emit_wait(emitter);
    // cmp eax, pass; jne
    emitter.put(&[0x83, 0xf8, GlanceAnswer::Pass as u8, 0x0f, 0x85]);
    let stops = emitter.reserve_rel32();
    emit_pops(emitter);
    let passes = emitter.jump_from_here();
    emitter.aim_here(stops);
    emit_pops(emitter);
    // jmp over the next load
    emitter.put(&[0xeb, 9]);
    emitter.aim_here(unwanted);
    emitter.load(Gpr::Rcx, slots::RCX);
    passes
}

/// Emits pushes of the flags, the registers, the base of FS and the program's instruction pointer
/// to the thread's area. Where programs cannot read the base of FS, RAX is in its place. RSP points
/// to the last word then, and RAX and RCX are overwritten.
fn emit_pushes(emitter: &mut Emitter, handling: CallHandling, ip: u64) {
    emitter.store(Gpr::Rsp, slots::RSP);
    emitter.load(Gpr::Rsp, slots::GLANCE_STACK);
    // pushfq
    emitter.put(&[0x9c]);
    for register in PUSHED {
        emit_push_or_pop(emitter, 0x50, register);
    }
    if handling.has_fs_base {
        // rdfsbase rax
        emitter.put(&[0xf3, 0x48, 0x0f, 0xae, 0xc0]);
    }
    emit_push_or_pop(emitter, 0x50, 0);
    emitter.set_rcx(ip);
    emit_push_or_pop(emitter, 0x50, 1);
}

/// Emits the restoration of the flags and of all registers, with RSP as [`emit_pushes`] leaves it.
fn emit_pops(emitter: &mut Emitter) {
    // The address and the base of FS.
    emit_push_or_pop(emitter, 0x58, 0);
    emit_push_or_pop(emitter, 0x58, 0);
    for register in PUSHED.into_iter().rev() {
        emit_push_or_pop(emitter, 0x58, register);
    }
    // popfq
    emitter.put(&[0x9d]);
    emitter.load(Gpr::Rsp, slots::RSP);
}

/// Emits a PUSH or POP of a register, by its opcode for RAX.
fn emit_push_or_pop(emitter: &mut Emitter, opcode: u8, register: u8) {
    if register >= 8 {
        emitter.put(&[0x41]);
    }
    emitter.put(&[opcode | register & 7]);
}

/// Emits the wait for an answer, which is in EAX then, and may stay in the slot. If none arrived in
/// time, EAX is [`GLANCE_POSTED`], the slot is 0, and a later answer is too late. Changes RAX, ECX
/// and the flags.
fn emit_wait(emitter: &mut Emitter) {
    // mov ecx, reads
    emitter.put(&[0xb9]);
    emitter.put_u32(ANSWER_READS);
    let again = emitter.len();
    emitter.load(Gpr::Rax, slots::GLANCE);
    // cmp eax, posted; jne to the end; pause; dec ecx; jnz
    emitter.put(&[0x83, 0xf8, 1, 0x75, 17, 0xf3, 0x90, 0xff, 0xc9, 0x75]);
    let back = again.wrapping_sub(emitter.len() + 1).to_le_bytes()[0];
    // xor eax, eax; xchg gs:[glance], rax
    emitter.put(&[back, 0x31, 0xc0, 0x65, 0x48, 0x87, 0x04, 0x25]);
    emitter.put_u32(slots::GLANCE);
}

/// Returns the registers that a thread shows at a glance, and the R11 of its code, from which its
/// budget follows. The thread has posted the glance and waits for the answer. `word` loads the word
/// at an offset of the thread's area. `now` has the registers that are not shown: segments, the
/// base of GS, and that of FS unless `has_fs_base`.
pub fn glance_registers(
    word: impl Fn(u32) -> u64,
    has_fs_base: bool,
    now: &Registers,
) -> (Registers, u64) {
    let at = |number: usize| {
        let below = u32::try_from(number + 1).unwrap_or(0) * WORD_BYTES;
        word(slots::GLANCE_END - below)
    };
    let of = |register: u8| {
        let place = PUSHED.iter().position(|pushed| *pushed == register);
        place.map_or(0, |place| at(place + 1))
    };
    let registers = Registers {
        rax: of(0),
        rcx: of(1),
        rdx: of(2),
        rbx: of(3),
        rsp: word(slots::RSP),
        rbp: of(5),
        rsi: of(6),
        rdi: of(7),
        r8: of(8),
        r9: of(9),
        r10: of(10),
        r11: word(slots::R11),
        r12: of(12),
        r13: of(13),
        r14: of(14),
        r15: of(15),
        rip: at(ADDRESS),
        eflags: at(FLAGS),
        fs_base: if has_fs_base { at(FS_BASE) } else { now.fs_base },
        ..*now
    };
    (registers, at(BUDGET))
}
