//! Reads the records of a log of calls, which glue has written ([`super::emit_log_code`]). A record
//! is a header of words ([`Word`]) and a copy of the memory that the call wrote.
//!
//! Two words of a new record mean something for this process and its code cache only:
//! [`Word::Edge`], the number of the edge after the instruction, and [`Word::Budget`], which is R11
//! before it, an address from which the number of ticks that are left follows. To *settle* a record
//! is to replace them by the address of the instruction and by that number.

use super::{Counter, HEADER_BYTES, Word};
use crate::insn::Registers;

/// A call, or an instruction that read a counter, as the log has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoggedCall<'a> {
    /// The words of the record before its copied bytes.
    words: &'a [[u8; 8]],
    /// The bytes that the call wrote.
    pub written: &'a [u8],
}

impl<'a> LoggedCall<'a> {
    /// Returns the first record of a log, and the rest of the log; `None` if the log has no whole
    /// record. Checks no word but the size.
    pub fn first_of(log: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let (header, rest) = log.split_at_checked(HEADER_BYTES as usize)?;
        let words = header.as_chunks::<8>().0;
        let size = usize::try_from(value(words, Word::Size)).ok()?;
        let (written, rest) = rest.split_at_checked(size)?;
        Some((Self { words, written }, rest))
    }

    /// Settles the first record of a log: replaces its edge by `rip`, the address of its
    /// instruction, and R11 by `budget`, the number of ticks that were left before the instruction.
    /// Sets the size of the copied bytes to `written`; the caller removes the bytes after these.
    /// Does nothing if the log is too short.
    pub fn settle(log: &mut [u8], rip: u64, budget: u64, written: usize) {
        let Some(words) = log.get_mut(..HEADER_BYTES as usize) else { return };
        let words = words.as_chunks_mut::<8>().0;
        for (word, value) in
            [(Word::Edge, rip), (Word::Budget, budget), (Word::Size, written as u64)]
        {
            if let Some(bytes) = words.get_mut(word as usize) {
                *bytes = value.to_le_bytes();
            }
        }
    }

    /// Returns the registers before the instruction, with segments and the base of GS from `now`.
    /// The base of FS means something only where [`super::CallHandling::has_fs_base`]. Only a
    /// settled record has the program's instruction pointer: otherwise that is the number of the
    /// edge.
    #[inline]
    pub fn registers(&self, now: &Registers) -> Registers {
        registers(self.words, now)
    }

    /// Returns the budget before the instruction: in ticks if the record is settled, else R11.
    pub fn budget(&self) -> u64 {
        value(self.words, Word::Budget)
    }

    /// Returns the number of the edge after the instruction; in a settled record, the instruction's
    /// address.
    pub fn edge(&self) -> u64 {
        value(self.words, Word::Edge)
    }

    /// Returns the call's result, or the time-stamp counter that the instruction read.
    pub fn result(&self) -> i64 {
        value(self.words, Word::Result).cast_signed()
    }

    /// Returns the counter that the instruction read; `None` for a call.
    pub fn counter(&self) -> Option<Counter> {
        let mark = value(self.words, Word::Kind);
        Counter::ALL.into_iter().find(|counter| u64::from(counter.mark()) == mark)
    }

    /// Returns the address to which the call wrote; it means nothing if `written` is empty. For
    /// [`Counter::TscAux`], the processor's `IA32_TSC_AUX`.
    pub fn written_at(&self) -> u64 {
        value(self.words, Word::Address)
    }

    /// Returns true if the record lacks effects of the call, so that the thread stopped after the
    /// call.
    pub fn is_incomplete(&self) -> bool {
        value(self.words, Word::Kind) == 1
    }

    /// Returns the registers of a record that may be incomplete, as [`Self::registers`], but
    /// without segments and base of GS, and with an instruction pointer that means nothing; `None`
    /// if the record is shorter than a header.
    pub fn registers_of(record: &[u8]) -> Option<Registers> {
        let words = record.get(..HEADER_BYTES as usize)?.as_chunks::<8>().0;
        Some(registers(words, &Registers::default()))
    }

    /// Returns the budget in a record's header, as [`Self::budget`].
    pub fn budget_of(header: &[u8; HEADER_BYTES as usize]) -> u64 {
        value(header.as_chunks::<8>().0, Word::Budget)
    }
}

/// Returns a word; 0 if `words` are too few.
fn value(words: &[[u8; 8]], word: Word) -> u64 {
    words.get(word as usize).copied().map_or(0, u64::from_le_bytes)
}

/// Returns the registers in a record's words, with segments and the base of GS from `now`, and the
/// word of the edge as instruction pointer, which it is once settled.
#[inline]
fn registers(words: &[[u8; 8]], now: &Registers) -> Registers {
    let word = |word| value(words, word);
    let Registers { cs, ss, gs_base, ds, es, fs, gs, .. } = *now;
    Registers {
        cs,
        ss,
        gs_base,
        ds,
        es,
        fs,
        gs,
        rip: word(Word::Edge),
        rax: word(Word::Rax),
        rbx: word(Word::Rbx),
        rcx: word(Word::Rcx),
        rdx: word(Word::Rdx),
        rsi: word(Word::Rsi),
        rdi: word(Word::Rdi),
        rbp: word(Word::Rbp),
        rsp: word(Word::Rsp),
        r8: word(Word::R8),
        r9: word(Word::R9),
        r10: word(Word::R10),
        r11: word(Word::R11),
        r12: word(Word::R12),
        r13: word(Word::R13),
        r14: word(Word::R14),
        r15: word(Word::R15),
        eflags: word(Word::Flags),
        fs_base: word(Word::FsBase),
        orig_rax: u64::MAX,
    }
}
