//! System calls, and reads of counters, that are answered in the code cache, in a replay.
//!
//! An *answer* is the recorded result and the memory that the call wrote. Before a run, the caller
//! writes the next [`Answers`] to the thread's memory, at the address in its slot
//! [`slots::ANSWER`]. At a call, glue ([`emit_answer`]) does this:
//! 1. It writes the registers and flags to a record of the thread's log, so that the caller can
//!    compare them with the recorded ones after the run.
//! 2. It sets the result, and makes the writes of the answer.
//! 3. It moves the slots of the answer and of the log on to the next ones.
//!
//! This glue keeps the flags and the stack pointer of the program in the log, and uses the log as
//! its stack. Nothing may stop a thread in it.

use super::emit::{Emitter, Gpr};
use super::logged::{
    CallHandling, Counter, CounterCode, HEADER_BYTES, LOG_SCRATCH_BYTES, LogCode, R11, RAX, RCX,
    RDI, RSI, RSP, Word, emit_registers,
};
use super::slots;

/// Answers for the next calls of a thread, in the form that glue reads.
#[derive(Clone, Debug, Default)]
pub struct Answers {
    /// For each answer: the result, the writes, and a 0. A write is its size, its address, and its
    /// bytes, padded to a multiple of 8.
    bytes: Vec<u8>,
    /// The offset in bytes at which each answer begins.
    starts: Vec<usize>,
    /// The largest number of answers, and of their bytes.
    most: usize,
    most_bytes: usize,
}

impl Answers {
    /// Creates an empty list for at most `most` answers and `most_bytes` bytes.
    pub(crate) fn new(most: usize, most_bytes: usize) -> Self {
        Self { most, most_bytes, ..Self::default() }
    }

    /// Adds an answer: the call's result, and the memory that it writes; leaves out empty writes.
    /// Returns false, and adds nothing, if there is no room for it.
    pub fn push<'a>(
        &mut self,
        result: i64,
        writes: impl IntoIterator<Item = (u64, &'a [u8])>,
    ) -> bool {
        let start = self.bytes.len();
        self.bytes.extend(result.to_le_bytes());
        let mut fits = self.starts.len() < self.most;
        for (addr, bytes) in writes.into_iter().filter(|(_, bytes)| !bytes.is_empty()) {
            fits &= self.bytes.len().saturating_add(bytes.len()) < self.most_bytes;
            if !fits {
                break;
            }
            self.bytes.extend((bytes.len() as u64).to_le_bytes());
            self.bytes.extend(addr.to_le_bytes());
            self.bytes.extend(bytes);
            self.bytes.resize(self.bytes.len().next_multiple_of(8), 0);
        }
        self.bytes.extend([0; 8]);
        fits &= self.bytes.len() <= self.most_bytes;
        if fits {
            self.starts.push(start);
        } else {
            self.bytes.truncate(start);
        }
        fits
    }

    /// Removes the last answer, if there is one.
    pub fn pop(&mut self) {
        if let Some(start) = self.starts.pop() {
            self.bytes.truncate(start);
        }
    }

    /// Returns the number of answers.
    pub fn len(&self) -> usize {
        self.starts.len()
    }

    /// Returns true if there are no answers.
    pub fn is_empty(&self) -> bool {
        self.starts.is_empty()
    }

    /// Returns the bytes of all answers, in the form that glue reads.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// Emits the code that answers calls and instructions that read counters, and logs them. Returns
/// its addresses; those of the parts that only [`super::logged::emit_log_code`] emits mean nothing.
pub(super) fn emit_answer_code(emitter: &mut Emitter, handling: CallHandling) -> LogCode {
    let (start, end) = emit_answer(emitter, handling, None);
    let counters = Counter::ALL.map(|counter| {
        let (start, end) = emit_answer(emitter, handling, Some(counter));
        CounterCode { start, recorded: end, end }
    });
    LogCode { start, syscall: end, copy: end, stop: end, counters, ..LogCode::default() }
}

/// Emits the code that answers an instruction that reads a counter, or a system call if `counter`
/// is `None`. At its start, these are in their slots: the program's RCX and R11, the budget, the
/// number of the edge after the instruction, and the address to go on at. An answer must be left
/// ([`slots::LOG_ROOM`]), which the caller's code has checked. At the address to go on at, R11 is
/// the budget again. The code there sets RCX after a call, whose flags are in the slot of R11, as
/// SYSCALL leaves them in R11. After a counter, it loads RCX from its slot, which the answer may
/// have written. Returns the code's start and end.
fn emit_answer(
    emitter: &mut Emitter,
    handling: CallHandling,
    counter: Option<Counter>,
) -> (u64, u64) {
    let start = emitter.here();
    emit_registers(emitter, handling.has_fs_base);
    // RCX points to the record in the log, and R11 is free. The stack is after the record's header.
    // lea rsp, [rcx + header + scratch]; pushfq; mov r11, [rsp]; cld
    emitter.put(&[0x48, 0x8d, 0xa1]);
    emitter.put_u32(HEADER_BYTES + LOG_SCRATCH_BYTES);
    emitter.put(&[0x9c, 0x4c, 0x8b, 0x1c, 0x24, 0xfc]);
    emitter.store_at(R11, RCX, Word::Flags.offset());
    if counter.is_none() {
        emitter.store(Gpr::R11, slots::R11);
    }
    // R11 points to the answer: its result, its writes, and a 0.
    emitter.load(Gpr::R11, slots::ANSWER);
    emitter.load_at(RAX, R11, 0);
    emitter.store_at(RAX, RCX, Word::Result.offset());
    if counter.is_some() {
        // mov edx, [r11 + 4]; mov eax, eax
        emitter.put(&[0x41, 0x8b, 0x53, 4, 0x89, 0xc0]);
    }
    // add r11, 8
    emitter.put(&[0x49, 0x83, 0xc3, 8]);
    emit_copies(emitter);
    // add r11, 8
    emitter.put(&[0x49, 0x83, 0xc3, 8]);
    emitter.store(Gpr::R11, slots::ANSWER);
    emitter.load(Gpr::Rcx, slots::LOG);
    emitter.load_at(RSI, RCX, Word::Rsi.offset());
    emitter.load_at(RDI, RCX, Word::Rdi.offset());
    // xor r11d, r11d
    emitter.put(&[0x45, 0x31, 0xdb]);
    for word in [Word::Size, Word::Address, Word::Kind] {
        emitter.store_at(R11, RCX, word.offset());
    }
    // lea r11, [rcx + header]
    emitter.put(&[0x4c, 0x8d, 0x99]);
    emitter.put_u32(HEADER_BYTES);
    emitter.store(Gpr::R11, slots::LOG);
    // One answer less is left: here, the slot counts answers, not bytes. sub r11, 1
    emitter.load(Gpr::R11, slots::LOG_ROOM);
    emitter.put(&[0x49, 0x83, 0xeb, 1]);
    emitter.store(Gpr::R11, slots::LOG_ROOM);
    // popfq
    emitter.put(&[0x9d]);
    emitter.load_at(RSP, RCX, Word::Rsp.offset());
    emitter.load(Gpr::R11, slots::TRACE_POINTER);
    let end = emitter.here();
    emitter.jump_slot(slots::JUMP);
    (start, end)
}

/// Emits code that makes the memory writes of the answer at R11, and leaves R11 at the 0 that ends
/// them. It changes RCX, RSI, RDI and the flags.
fn emit_copies(emitter: &mut Emitter) {
    // mov rcx, [r11]; jrcxz to the end
    emitter.put(&[0x49, 0x8b, 0x0b, 0xe3, 20]);
    // mov rdi, [r11 + 8]; lea rsi, [r11 + 16]; rep movsb
    emitter.put(&[0x49, 0x8b, 0x7b, 8, 0x49, 0x8d, 0x73, 16, 0xf3, 0xa4]);
    // lea r11, [rsi + 7]; and r11, -8; jmp to the start
    emitter.put(&[0x4c, 0x8d, 0x5e, 7, 0x49, 0x83, 0xe3, 0xf8, 0xeb, 0xe7]);
}
