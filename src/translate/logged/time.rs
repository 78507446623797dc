//! Glue that reads the time-stamp counter in the place of RDTSC or RDTSCP (SDM volume 2), and
//! writes a record of that to the log of calls.

use super::super::emit::{Emitter, Gpr};
use super::super::slots;
use super::{
    CallHandling, HEADER_BYTES, LOG_SCRATCH_BYTES, R11, RCX, RSP, Word, emit_commit, emit_registers,
};
use iced_x86::{Code, Instruction};

/// An instruction that reads the time-stamp counter, of those with `Hook::Time`. (The instructions
/// with `Hook::Counter`, RDPMC and RDPRU, read other counters.)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counter {
    /// RDTSC.
    Tsc = 0,
    /// RDTSCP, which also reads `IA32_TSC_AUX` into RCX.
    TscAux = 1,
}

/// The addresses of the code that reads and logs a counter.
#[derive(Clone, Copy, Debug, Default)]
pub struct CounterCode {
    /// The start of the code. From here to `recorded`, all registers but RCX and R11 are the
    /// program's.
    pub start: u64,
    /// From here to `end`, the program's registers are in the record.
    pub recorded: u64,
    /// The address of the code that adds the record to the log.
    pub end: u64,
}

impl Counter {
    /// Both counters, in the order of their numbers.
    pub(in super::super) const ALL: [Self; 2] = [Self::Tsc, Self::TscAux];

    /// Returns the counter that an instruction reads; `None` if it is neither RDTSC nor RDTSCP, or
    /// has prefixes.
    pub(in super::super) fn of(insn: &Instruction) -> Option<Self> {
        let counter = match insn.code() {
            Code::Rdtsc => Self::Tsc,
            Code::Rdtscp => Self::TscAux,
            _ => return None,
        };
        (insn.len() == counter.insn().len()).then_some(counter)
    }

    /// Returns the bytes of the instruction.
    pub const fn insn(self) -> &'static [u8] {
        match self {
            Self::Tsc => &[0x0f, 0x31],
            Self::TscAux => &[0x0f, 0x01, 0xf9],
        }
    }

    /// Returns the counter whose instruction these bytes, the last before an address, end with;
    /// `None` if they end with another one. Bytes that only look like it count too.
    pub fn before(bytes: [u8; 3]) -> Option<Self> {
        Self::ALL.into_iter().find(|counter| bytes.ends_with(counter.insn()))
    }

    /// Returns the value of [`Word::Kind`] in a record of this counter.
    pub(super) const fn mark(self) -> u8 {
        2 + self as u8
    }
}

/// Emits the code that reads a counter and logs that. At its start, the program's RCX and R11 and
/// the budget are in their slots, as are the number of the edge after the instruction, and the
/// address to go on at. At that address, R11 is the budget again, and the code there loads RCX from
/// its slot, which RDTSCP has set. Emits nothing, and returns zeros, for an instruction that the
/// processor does not have.
pub(super) fn emit_counter_code(
    emitter: &mut Emitter,
    counter: Counter,
    handling: CallHandling,
) -> CounterCode {
    if counter == Counter::TscAux && !handling.has_tsc_aux {
        return CounterCode::default();
    }
    let start = emitter.here();
    emit_registers(emitter, handling.has_fs_base);
    let recorded = emitter.here();
    // lea rsp, [rcx + header + scratch]; pushfq; pop r11
    emitter.put(&[0x48, 0x8d, 0xa1]);
    emitter.put_u32(HEADER_BYTES + LOG_SCRATCH_BYTES);
    emitter.put(&[0x9c, 0x41, 0x5b]);
    emitter.store_at(R11, RCX, Word::Flags.offset());
    emitter.load_at(RSP, RCX, Word::Rsp.offset());
    for (word, value) in [(Word::Size, 0), (Word::Address, 0), (Word::Kind, counter.mark())] {
        // mov r11d, value
        emitter.put(&[0x41, 0xbb, value, 0, 0, 0]);
        emitter.store_at(R11, RCX, word.offset());
    }
    emitter.put(counter.insn());
    emitter.load(Gpr::R11, slots::LOG);
    // mov [r11 + result], eax; mov [r11 + result + 4], edx
    emitter.put(&[0x41, 0x89, 0x83]);
    emitter.put_u32(Word::Result.offset());
    emitter.put(&[0x41, 0x89, 0x93]);
    emitter.put_u32(Word::Result.offset() + 4);
    if counter == Counter::TscAux {
        emitter.store_at(RCX, R11, Word::Address.offset());
        // The last instruction before the record is added: up to there, the slot has the old value.
        emitter.store(Gpr::Rcx, slots::RCX);
    }
    let end = emitter.here();
    emit_commit(emitter);
    emitter.jump_slot(slots::JUMP);
    CounterCode { start, recorded, end }
}
