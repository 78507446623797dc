//! One order of the instructions of all threads, by the times in their traces.
//!
//! A *slice* is the part of a thread's path from one time in its trace to the next. Slices are
//! ordered by their start times; inside a slice, the thread's own order holds. For threads that ran
//! at the same time, this is one of the orders that the trace allows. A *position* is the number of
//! an instruction in this order. A thread is given by its index in the timeline.

use crate::common::Tsc;

/// Consecutive instructions of one thread, not interleaved with those of others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slice {
    /// The time at which the slice starts; 0 before the first time in the trace.
    pub(super) tsc: Tsc,
    /// The thread's index in the timeline.
    pub(super) thread: usize,
    /// The number of the thread's instructions before the slice.
    pub(super) first: u64,
    /// The number of instructions in the slice.
    pub(super) insns: u64,
    /// The number of all threads' instructions before the slice.
    pub(super) global: u64,
}

/// The slices of all threads in order.
#[derive(Clone, Debug, Default)]
pub(super) struct Order {
    slices: Vec<Slice>,
    /// For each thread, the indexes of its slices in `slices`.
    of_thread: Vec<Vec<u32>>,
    total: u64,
}

impl Order {
    /// Returns the order of the instructions of `threads`. Each thread is given by its instruction
    /// count, and its times in ascending order with the number of the next instruction.
    pub(super) fn new<'a>(threads: impl Iterator<Item = (u64, &'a [(u64, Tsc)])>) -> Self {
        let mut slices = Vec::new();
        let mut of_thread = Vec::new();
        for (thread, (insns, times)) in threads.enumerate() {
            of_thread.push(Vec::new());
            slices.extend(slices_of(thread, insns, times));
        }
        slices.sort_by_key(|slice: &Slice| (slice.tsc, slice.thread, slice.first));
        let mut total = 0;
        for (number, slice) in (0..).zip(&mut slices) {
            slice.global = total;
            total += slice.insns;
            if let Some(numbers) = of_thread.get_mut(slice.thread) {
                numbers.push(number);
            }
        }
        Self { slices, of_thread, total }
    }

    /// Returns the number of instructions of all threads.
    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// Returns the start times of the first and the last slice with a known time; `None` if no time
    /// is known.
    pub(super) fn times(&self) -> Option<(Tsc, Tsc)> {
        let mut known = self.slices.iter().map(|slice| slice.tsc).filter(|tsc| tsc.0 > 0);
        let first = known.next()?;
        Some((first, known.next_back().unwrap_or(first)))
    }

    /// Returns the slice that contains instruction `global`; `None` after the last instruction.
    pub(super) fn slice_at(&self, global: u64) -> Option<&Slice> {
        if global >= self.total {
            return None;
        }
        let following = self.slices.partition_point(|slice| slice.global <= global);
        self.slices.get(following.checked_sub(1)?)
    }

    /// Returns the last slice that starts at or before `global`, also at the end of the run.
    pub(super) fn slice_at_or_before(&self, global: u64) -> Option<&Slice> {
        let following = self.slices.partition_point(|slice| slice.global <= global);
        self.slices.get(following.checked_sub(1)?)
    }

    /// Returns the number of instructions that `thread` executed before position `global`; 0 for an
    /// unknown thread.
    pub(super) fn index_of(&self, thread: usize, global: u64) -> u64 {
        let Some(numbers) = self.of_thread.get(thread) else { return 0 };
        let slice = |number: &u32| self.slices.get(*number as usize);
        let following =
            numbers.partition_point(|n| slice(n).is_some_and(|slice| slice.global <= global));
        let last = following.checked_sub(1).and_then(|i| slice(numbers.get(i)?));
        last.map_or(0, |slice| slice.first + slice.insns.min(global - slice.global))
    }

    /// Returns the position of the thread's instruction `index` in the order of all threads; `None`
    /// after the last instruction.
    pub(super) fn global_of(&self, thread: usize, index: u64) -> Option<u64> {
        let numbers = self.of_thread.get(thread)?;
        let slice = |number: &u32| self.slices.get(*number as usize);
        let following =
            numbers.partition_point(|n| slice(n).is_some_and(|slice| slice.first <= index));
        let slice = slice(numbers.get(following.checked_sub(1)?)?)?;
        let inside = index - slice.first;
        (inside < slice.insns).then(|| slice.global + inside)
    }

    /// Returns the position at which the first slice of `thread` begins that starts at or after a
    /// time; `None` if all start before, or the thread is unknown.
    pub(super) fn first_position_from(&self, thread: usize, tsc: Tsc) -> Option<u64> {
        let numbers = self.of_thread.get(thread)?;
        let slice = |number: &u32| self.slices.get(*number as usize);
        let before = numbers.partition_point(|n| slice(n).is_some_and(|slice| slice.tsc < tsc));
        slice(numbers.get(before)?).map(|slice| slice.global)
    }

    /// Returns the time range of the slice of a thread's instruction `index`, if another thread may
    /// have executed instructions in the same range, in an unknown order; `None` otherwise.
    pub(super) fn overlap(&self, thread: usize, index: u64) -> Option<(Tsc, Tsc)> {
        let (slice, next) = self.slice_of(thread, index)?;
        let overlaps =
            |other: &usize| *other != thread && self.runs_within(*other, slice.tsc, next);
        (0..self.of_thread.len()).find(overlaps).map(|_| (slice.tsc, next))
    }

    /// Returns true if a thread may have executed instructions in the time range `from..to`.
    fn runs_within(&self, thread: usize, from: Tsc, to: Tsc) -> bool {
        let Some(numbers) = self.of_thread.get(thread) else { return false };
        let begins = |number: &u32| self.slices.get(*number as usize).map(|slice| slice.tsc);
        let before = numbers.partition_point(|n| begins(n).is_some_and(|tsc| tsc < to));
        let end = numbers.get(before).and_then(begins);
        before > 0 && end.is_none_or(|end| end > from)
    }

    /// Returns the thread's last slice that starts at or before its instruction `index`, and the
    /// start time of the thread's next slice; the maximum time if there is none.
    pub(super) fn slice_of(&self, thread: usize, index: u64) -> Option<(&Slice, Tsc)> {
        let numbers = self.of_thread.get(thread)?;
        let slice = |number: &u32| self.slices.get(*number as usize);
        let following =
            numbers.partition_point(|n| slice(n).is_some_and(|slice| slice.first <= index));
        let here = slice(numbers.get(following.checked_sub(1)?)?)?;
        let next = numbers.get(following).and_then(slice);
        Some((here, next.map_or(Tsc(u64::MAX), |next| next.tsc)))
    }
}

/// Returns the slices of one thread, from each of its `times` to the next, without empty ones;
/// instructions before the first time are a slice at time 0. `global` is not set yet: 0.
fn slices_of(
    thread: usize,
    insns: u64,
    times: &[(u64, Tsc)],
) -> impl Iterator<Item = Slice> + use<'_> {
    // Instructions before the first time come before all others.
    let head = times.first().is_none_or(|(at, _)| *at > 0).then_some((0, Tsc(0)));
    let starts = head.into_iter().chain(times.iter().copied());
    let ends = times.iter().map(|(at, _)| *at).skip(usize::from(head.is_none())).chain([insns]);
    let slices = starts.zip(ends).map(move |((first, tsc), end)| Slice {
        tsc,
        thread,
        first,
        insns: end.saturating_sub(first),
        global: 0,
    });
    slices.filter(|slice| slice.insns > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_thread() -> impl Strategy<Value = (u64, Vec<(u64, Tsc)>)> {
        proptest::collection::vec((1_u64..20, 1_u64..50), 0..8).prop_map(|steps| {
            let (mut at, mut tsc) = (0, 0);
            let mut times = Vec::new();
            for (insns, ticks) in steps {
                times.push((at, Tsc(tsc)));
                (at, tsc) = (at + insns, tsc + ticks);
            }
            (at, times)
        })
    }

    proptest! {
        #[test]
        fn every_instruction_has_one_place(
            threads in proptest::collection::vec(any_thread(), 1..4),
        ) {
            let order = Order::new(threads.iter().map(|(n, times)| (*n, times.as_slice())));
            prop_assert_eq!(order.total(), threads.iter().map(|(n, _)| n).sum::<u64>());
            let mut executed = vec![0; threads.len()];
            for global in 0..order.total() {
                let slice = order.slice_at(global).unwrap();
                for (thread, count) in executed.iter().enumerate() {
                    prop_assert_eq!(order.index_of(thread, global), *count);
                }
                let index = slice.first + (global - slice.global);
                prop_assert_eq!(index, executed[slice.thread]);
                prop_assert_eq!(order.global_of(slice.thread, index), Some(global));
                executed[slice.thread] += 1;
            }
        }
    }
}
