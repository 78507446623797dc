//! System calls that threads made and logged in the code cache, after they were moved out of a
//! thread's log. To *settle* a record is to replace its references to the process: an edge by an
//! instruction's address, a value of R11 by a budget. Then another thread of the recorder may read
//! it.

use crate::common::Addr;
use crate::insn::Registers;
use crate::translate::{Counter, LoggedCall};

/// System calls of a thread that were moved out of its log.
#[derive(Debug, Default)]
pub struct LoggedCalls {
    /// The records, settled ([`LoggedCall::settle`]).
    log: Vec<u8>,
    /// The offsets in `log` of the last record, and of the one before.
    last: usize,
    before_last: usize,
    count: u64,
    /// The registers of the thread, with its own GS base.
    now: Registers,
    /// True if the records have the base of FS.
    has_fs_base: bool,
}

/// A call, or an instruction that read a counter.
#[derive(Clone, Copy, Debug)]
pub struct MadeCall<'a> {
    /// The program's registers before the instruction.
    pub registers: Registers,
    /// The budget that was left before the instruction.
    pub budget: u64,
    /// The call's result, or the time-stamp counter.
    pub result: i64,
    /// The counter that the instruction read; `None` for a call.
    pub counter: Option<Counter>,
    /// The address to which the call wrote, and the bytes. For [`Counter::TscAux`], the processor's
    /// `IA32_TSC_AUX` and no bytes.
    pub written: (Addr, &'a [u8]),
}

/// The process that wrote records: it resolves their references to its code and its memory.
pub(super) trait RecordResolver {
    /// Returns the address of the call whose record has this edge; 0 if the edge is unknown.
    fn address(&self, edge: u64) -> u64;

    /// Returns the budget that is left at a value of R11.
    fn budget(&self, pointer: u64) -> u64;

    /// Returns how many of the bytes at `addr` come before the first one that is the tracer's own.
    fn visible_bytes(&self, addr: Addr, size_bytes: usize) -> usize;
}

impl LoggedCalls {
    /// Settles the records of a log, up to the first damaged one, which is dropped with the rest.
    /// Removes the tracer's own memory from the bytes that calls wrote.
    pub(super) fn settle(
        mut log: Vec<u8>,
        now: Registers,
        has_fs_base: bool,
        resolver: &impl RecordResolver,
    ) -> Self {
        let (mut at, mut last, mut before_last, mut count) = (0, 0, 0, 0);
        while let Some((call, rest)) = LoggedCall::first_of(&log[at..]) {
            let size = log.len() - at - rest.len();
            let (rip, budget) = (resolver.address(call.edge()), resolver.budget(call.budget()));
            let written = call.written.len();
            let visible = match written {
                0 => 0,
                written => resolver.visible_bytes(Addr(call.written_at()), written),
            };
            LoggedCall::settle(&mut log[at..], rip, budget, visible);
            if visible < written {
                log.drain(at + size - (written - visible)..at + size);
            }
            (before_last, last, at) = (last, at, at + size - (written - visible));
            count += 1;
        }
        log.truncate(at);
        Self { log, last, before_last, count, now, has_fs_base }
    }

    /// Returns the number of calls.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the size of all records in bytes.
    pub fn size_bytes(&self) -> usize {
        self.log.len()
    }

    /// Returns the budget that was left before the last call; `None` if there are no calls.
    pub fn last_budget(&self) -> Option<u64> {
        LoggedCall::first_of(&self.log[self.last..]).map(|(call, _)| call.budget())
    }

    /// Removes and returns the last call, if its record lacks effects, so that the thread stopped
    /// after it; only the last can. `None` if it has all, or there are no calls.
    pub fn split_off_incomplete(&mut self) -> Option<Self> {
        let (last, _) = LoggedCall::first_of(&self.log[self.last..])?;
        if !last.is_incomplete() {
            return None;
        }
        self.count -= 1;
        let log = self.log.split_off(self.last);
        self.last = self.before_last;
        Some(Self { log, last: 0, before_last: 0, count: 1, ..*self })
    }

    /// Returns all calls, the oldest first.
    pub fn iter(&self) -> impl Iterator<Item = MadeCall<'_>> {
        let mut rest = &self.log[..];
        std::iter::from_fn(move || {
            let (call, after) = LoggedCall::first_of(rest)?;
            rest = after;
            let mut registers = call.registers(&self.now);
            if !self.has_fs_base {
                registers.fs_base = self.now.fs_base;
            }
            Some(MadeCall {
                registers,
                budget: call.budget(),
                result: call.result(),
                counter: call.counter(),
                written: (Addr(call.written_at()), call.written),
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::translate::HEADER_BYTES;
    use proptest::collection::vec;
    use proptest::prelude::*;

    /// The code before edge N is at 0x1000 * N. The last page of the address space is hidden.
    struct Code;

    impl RecordResolver for Code {
        fn address(&self, edge: u64) -> u64 {
            edge << 12
        }

        fn budget(&self, pointer: u64) -> u64 {
            pointer.wrapping_sub(100)
        }

        fn visible_bytes(&self, addr: Addr, size_bytes: usize) -> usize {
            let visible = (u64::MAX - 0xfff).saturating_sub(addr.0);
            size_bytes.min(usize::try_from(visible).unwrap())
        }
    }

    /// Returns a record: its words by their order in [`crate::translate`], and its bytes.
    fn record(budget: u64, edge: u64, written: (u64, &[u8]), stops: u64) -> Vec<u8> {
        let mut words = vec![0; HEADER_BYTES as usize / 8];
        let last = words.len();
        words[last - 8] = budget;
        words[last - 7] = edge;
        words[last - 3] = written.1.len() as u64;
        words[last - 2] = written.0;
        words[last - 1] = stops;
        let words = words.into_iter().flat_map(u64::to_le_bytes);
        words.chain(written.1.iter().copied()).collect()
    }

    fn calls(log: &[Vec<u8>]) -> LoggedCalls {
        LoggedCalls::settle(
            log.concat(),
            Registers { cs: 0x33, ..Registers::default() },
            true,
            &Code,
        )
    }

    fn seen(calls: &LoggedCalls) -> Vec<(u64, u64, Vec<u8>)> {
        calls.iter().map(|c| (c.registers.rip, c.budget, c.written.1.to_vec())).collect()
    }

    #[test]
    fn the_last_call_is_split_off_if_it_stopped() {
        let log = [record(190, 1, (8, b"one"), 0), record(170, 2, (8, b""), 0)];
        let mut calls = calls(&[log[0].clone(), log[1].clone(), record(150, 3, (8, b"three"), 1)]);
        assert_eq!((calls.count(), calls.last_budget()), (3, Some(50)));
        let stopped = calls.split_off_incomplete().unwrap();
        assert_eq!(seen(&stopped), [(0x3000, 50, b"three".to_vec())]);
        assert_eq!((calls.count(), calls.last_budget()), (2, Some(70)));
        assert!(calls.split_off_incomplete().is_none());
        assert_eq!(seen(&calls), [(0x1000, 90, b"one".to_vec()), (0x2000, 70, Vec::new())]);
        assert!(calls.iter().all(|call| call.registers.cs == 0x33));
    }

    #[test]
    fn a_call_that_stopped_may_be_the_only_one() {
        let mut calls = calls(&[record(150, 3, (8, b"x"), 1)]);
        assert_eq!(calls.split_off_incomplete().map(|calls| calls.count()), Some(1));
        assert_eq!((calls.count(), calls.last_budget()), (0, None));
        assert_eq!(seen(&calls), []);
    }

    #[test]
    fn hidden_bytes_are_removed_and_damage_ends_the_calls() {
        let hidden = (u64::MAX - 0xfff - 2, &b"abcd"[..]);
        let mut broken = record(130, 3, (8, b"lost"), 0);
        broken.pop();
        let calls = calls(&[record(190, 1, hidden, 0), record(150, 2, (8, b"next"), 0), broken]);
        let expected = [(0x1000, 90, b"ab".to_vec()), (0x2000, 50, b"next".to_vec())];
        assert_eq!(seen(&calls), expected);
        assert_eq!(calls.last_budget(), Some(50));
    }

    proptest! {
        // A program can write to its log.
        #[test]
        fn any_bytes_are_calls_or_dropped(
            words in vec(prop_oneof![Just(0), Just(1), 0..300_u64, any::<u64>()], 0..200),
            end in vec(any::<u8>(), 0..8),
        ) {
            let bytes = words.into_iter().flat_map(u64::to_le_bytes).chain(end).collect();
            let mut calls = LoggedCalls::settle(bytes, Registers::default(), false, &Code);
            prop_assert_eq!(calls.iter().count() as u64, calls.count());
            prop_assert_eq!(calls.iter().last().map(|call| call.budget), calls.last_budget());
            let before = calls.count();
            let split = calls.split_off_incomplete().map_or(0, |calls| calls.iter().count() as u64);
            prop_assert_eq!(calls.iter().count() as u64 + split, before);
        }
    }
}
