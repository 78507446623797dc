//! Searches for executions of an address, forward or backward. The index skips the segments that
//! did not execute it, and the others are decoded.

use super::line::{Thread, Timeline};
use super::segment::Segment;
use crate::common::{Addr, Tid};
use std::collections::BTreeSet;
use std::ops::Range;

/// A direction through time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// The order of execution.
    Forward,
    /// The reverse order of execution.
    Backward,
}

/// A search among the instructions of all threads or of one, for the execution of an address.
#[derive(Clone, Debug)]
pub struct Search<'a> {
    /// The positions to search, in the order of all threads.
    pub within: Range<u64>,
    /// The direction of the search.
    pub direction: Direction,
    /// The only thread to search, if given.
    pub only: Option<Tid>,
    /// The addresses to find.
    pub addrs: &'a BTreeSet<Addr>,
}

/// The result of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// The position of the nearest hit.
    At(u64),
    /// No hit.
    Nothing,
    /// The caller interrupted: there is no hit from the start of the search up to this position.
    /// [`Timeline::find`] returns the start itself, as it searches one thread after the other.
    Interrupted(u64),
}

impl<'a> Search<'a> {
    /// Returns a search from position `from`, excluded, to position `until`, included. The search
    /// is empty if `until` does not lie in `direction`.
    pub fn beyond(
        from: u64,
        until: u64,
        direction: Direction,
        only: Option<Tid>,
        addrs: &'a BTreeSet<Addr>,
    ) -> Self {
        let within = match direction {
            Direction::Forward => from.saturating_add(1)..until.saturating_add(1),
            Direction::Backward => until..from,
        };
        Self { within, direction, only, addrs }
    }
}

impl Timeline {
    /// Returns the hit of a search that is nearest to its start. Calls `interrupted` after each
    /// segment decoded without a hit and at intervals between skipped ones, and stops if it returns
    /// true.
    pub fn find(&self, search: &Search<'_>, interrupted: &dyn Fn() -> bool) -> Found {
        let mut within = search.within.clone();
        let mut found = Found::Nothing;
        for (number, thread) in self.threads.iter().enumerate() {
            if search.only.is_some_and(|only| only != thread.tid) {
                continue;
            }
            let own =
                self.order.index_of(number, within.start)..self.order.index_of(number, within.end);
            match self.find_in_thread(number, thread, own, search, interrupted) {
                // A hit of another thread must be nearer than this.
                ThreadResult::At(index) => {
                    let Some(global) = self.order.global_of(number, index) else { continue };
                    found = Found::At(global);
                    match search.direction {
                        Direction::Forward => within.end = global,
                        Direction::Backward => within.start = global + 1,
                    }
                }
                ThreadResult::Nothing => {}
                ThreadResult::Interrupted => {
                    return Found::Interrupted(match search.direction {
                        Direction::Forward => search.within.start,
                        Direction::Backward => search.within.end,
                    });
                }
            }
        }
        found
    }

    /// Returns the nearest hit among the instructions `own`, by their indexes, of the thread with
    /// index `number`.
    fn find_in_thread(
        &self,
        number: usize,
        thread: &Thread,
        own: Range<u64>,
        search: &Search<'_>,
        interrupted: &dyn Fn() -> bool,
    ) -> ThreadResult {
        if own.is_empty() {
            return ThreadResult::Nothing;
        }
        let blocks = thread.path.index.blocks_with(search.addrs);
        if blocks.iter().all(BTreeSet::is_empty) {
            return ThreadResult::Nothing;
        }
        let entries = &thread.path.index.entries;
        let from = entries.partition_point(|entry| entry.first + entry.insns <= own.start);
        let to = entries.partition_point(|entry| entry.first < own.end);
        let forward = search.direction == Direction::Forward;
        for step in 0..to.saturating_sub(from) {
            if step % SEGMENTS_PER_CHECK == 0 && interrupted() {
                return ThreadResult::Interrupted;
            }
            let at = if forward { from + step } else { to - 1 - step };
            let Some(entry) = entries.get(at).filter(|entry| entry.executed_any(&blocks)) else {
                continue;
            };
            let Some(segment) = self.segment(number, at) else { continue };
            let first = entry.first;
            let inside = own.start.saturating_sub(first)..own.end - first;
            if let Some(hit) = find_in_segment(&segment, &inside, search) {
                return ThreadResult::At(first + hit);
            }
            if interrupted() {
                return ThreadResult::Interrupted;
            }
        }
        ThreadResult::Nothing
    }
}

/// The number of skipped segments between two calls of `interrupted`.
const SEGMENTS_PER_CHECK: usize = 1024;

/// The result of a search in one thread. A hit has the number of the instruction in the thread.
enum ThreadResult {
    At(u64),
    Nothing,
    Interrupted,
}

/// Returns the search's nearest hit among the instructions `inside` of a segment, counted from the
/// segment's start.
fn find_in_segment(segment: &Segment, inside: &Range<u64>, search: &Search<'_>) -> Option<u64> {
    let hits: Vec<Vec<u64>> = segment
        .blocks
        .iter()
        .map(|block| {
            let addrs = (0..).zip(segment.block_addrs(block));
            addrs.filter(|(_, addr)| search.addrs.contains(addr)).map(|(i, _)| i).collect()
        })
        .collect();
    let of_run = |run: &super::segment::BlockExecution| {
        let first = run.first;
        let hits = hits.get(run.block as usize).map_or(&[][..], Vec::as_slice);
        hits.iter().map(move |i| first + i)
    };
    let start = segment.execution_of(inside.start).unwrap_or(segment.executions.len());
    match search.direction {
        Direction::Forward => {
            let runs = segment.executions.get(start..)?;
            let mut hits = runs.iter().take_while(|run| run.first < inside.end).flat_map(of_run);
            hits.find(|hit| inside.contains(hit))
        }
        Direction::Backward => {
            let end = segment.executions.partition_point(|run| run.first < inside.end);
            let runs = segment.executions.get(start.min(end)..end)?;
            runs.iter().rev().find_map(|run| of_run(run).rev().find(|hit| inside.contains(hit)))
        }
    }
}
