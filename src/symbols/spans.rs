//! Finds the innermost of nested ranges around an address. Does not interpret the values of the
//! ranges.

use std::cmp::Reverse;

/// A range of addresses and its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) value: u32,
}

/// Pieces of ranges that do not overlap, in ascending order, each with the value of the innermost
/// range there.
#[derive(Debug, Default)]
pub(super) struct Spans(Vec<Span>);

impl Spans {
    /// Creates the pieces of `ranges`, without empty ones. Of two that overlap, the one that starts
    /// later is the inner one; of two with the same start, the shorter one; of two equal ones, the
    /// later one in the list.
    pub(super) fn new(mut ranges: Vec<Span>) -> Self {
        ranges.retain(|range| range.start < range.end);
        ranges.sort_by_key(|range| (range.start, Reverse(range.end)));
        let mut sweep = Sweep::default();
        for range in ranges {
            sweep.emit_until(range.start);
            sweep.at = range.start;
            sweep.open.push(range);
        }
        sweep.emit_until(u64::MAX);
        Self(sweep.done)
    }

    /// Returns the piece that contains `addr`; `None` outside of all ranges.
    pub(super) fn find(&self, addr: u64) -> Option<Span> {
        let next = self.0.partition_point(|span| span.start <= addr);
        self.0.get(next.checked_sub(1)?).copied().filter(|span| addr < span.end)
    }

    /// Returns all pieces in the order of their addresses.
    pub(super) fn iter(&self) -> impl Iterator<Item = Span> {
        self.0.iter().copied()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// A sweep over ranges in the order of their starts.
#[derive(Default)]
struct Sweep {
    done: Vec<Span>,
    /// The ranges around `at`, the innermost one last.
    open: Vec<Span>,
    /// The address up to which the pieces are `done`.
    at: u64,
}

impl Sweep {
    /// Emits the pieces of open ranges from `at` up to `until`, and drops those that end by then.
    fn emit_until(&mut self, until: u64) {
        while let Some(inner) = self.open.last().copied() {
            let end = inner.end.min(until);
            if self.at < end {
                self.done.push(Span { start: self.at, end, ..inner });
                self.at = end;
            }
            if inner.end > until {
                break;
            }
            self.open.pop();
        }
    }
}
