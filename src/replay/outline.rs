//! The shape of the log, known without running anything.

use super::error::Error;
use super::position::Position;
use crate::common::{AddrRange, Tid};
use crate::recording::Reader;
use crate::recording::log::{Bytes, Content, Cursor, Happening, Log, MapChange, Mapped};
use crate::sideband::ImageId;
use crate::tracee::{SiginfoBytes, siginfo};
use std::collections::BTreeMap;

/// An act of the kernel that a debugger can stop at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelEvent {
    /// A system call is about to be made: its number.
    Call(u64),
    /// A system call has returned.
    Return(u64),
    /// A signal is about to be delivered to its handler.
    Signal(i32),
}

impl KernelEvent {
    /// Returns true for what is about to happen: a run ends before it, and the next one passes it.
    pub fn is_ahead(self) -> bool {
        matches!(self, Self::Call(_) | Self::Signal(_))
    }
}

/// The log's entries in short.
#[derive(Debug)]
pub(super) struct Outline {
    /// Where the programs begin.
    pub(super) starts: Vec<ProgramStart>,
    /// The first entries after their memory.
    begins: Vec<u64>,
    /// The number of entries before those of the log, which were dropped.
    first: u64,
    entries: Vec<Line>,
    total_ticks: u64,
    /// True if the last entry is that of the run's end, after which nothing is.
    is_finished: bool,
    files: BTreeMap<String, ImageId>,
    /// All addresses that each program ever has something at.
    ranges: Vec<Vec<AddrRange>>,
    /// Where the log goes on after each keyframe that is between two entries of it.
    keyframes: BTreeMap<u64, Cursor>,
    /// Memory that became foreign, with the numbers of its entries.
    foreign: Vec<(u64, AddrRange)>,
}

/// Where the recording has the beginning of a program.
#[derive(Debug)]
pub(super) enum ProgramStart {
    /// The log has it, from this entry on.
    Entry(Cursor),
    /// The log before a keyframe was dropped.
    Keyframe {
        /// The entries of the keyframe.
        start: Cursor,
        /// The first entry of the log.
        after: Cursor,
    },
}

impl ProgramStart {
    /// Returns a cursor at the entry `Start`.
    pub(super) fn cursor(&self) -> Cursor {
        match self {
            Self::Entry(start) | Self::Keyframe { start, .. } => start.clone(),
        }
    }

    /// Returns true if it is before an entry of the log.
    fn is_before(&self, entry: u64) -> bool {
        match self {
            Self::Entry(start) => start.index() < entry,
            Self::Keyframe { .. } => true,
        }
    }
}

/// An entry in short.
#[derive(Debug)]
struct Line {
    tid: Tid,
    /// The ticks of all threads before the interval that it ends.
    ticks_before: u64,
    act: Act,
}

/// The acts of the kernel that an entry records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    /// None that a debugger can stop at.
    Other,
    /// A system call, and its return.
    Call(u32),
    /// A system call that returns later.
    Enters(u32),
    /// The return of such a call.
    Returns(u32),
    /// A signal that has a handler.
    Signal(i32),
}

impl Outline {
    pub(super) fn of(log: &Log, reader: &Reader) -> Result<Self, Error> {
        let (mut cursor, mut files) = (log.cursor(), BTreeMap::new());
        let (mut ranges, mut kept): (Vec<Vec<AddrRange>>, _) = (Vec::new(), BTreeMap::new());
        let (mut starts, mut entries, mut total_ticks) = (Vec::new(), Vec::new(), 0_u64);
        let (mut begins, mut calls): (Vec<u64>, _) = (Vec::new(), OpenCalls::default());
        let (mut is_finished, mut foreign) = (false, Vec::new());
        let (first, keyframes) = (log.first(), reader.keyframes());
        if first > 0 {
            let mut before = reader.keyframe(first)?.cursor();
            starts.push(ProgramStart::Keyframe { start: before.clone(), after: cursor.clone() });
            begins.push(first);
            while let Some(entry) = before.current()? {
                match &entry.happening {
                    Happening::Start(start) => {
                        note_files(&start.mappings, &mut files);
                        ranges.push(start.mappings.iter().map(|mapped| mapped.range).collect());
                    }
                    Happening::Foreign { range } => foreign.push((first, *range)),
                    happening => _ = calls.act_of(entry.tid, happening),
                }
                before.skip()?;
            }
        }
        loop {
            let here = cursor.index();
            if keyframes.binary_search(&here).is_ok() {
                kept.insert(here, cursor.clone());
            }
            let Some(entry) = cursor.current()? else { break };
            if here == 0 {
                // Whatever it is: no program begins elsewhere.
                starts.push(ProgramStart::Entry(cursor.clone()));
            }
            is_finished = matches!(entry.happening, Happening::Finish { .. });
            if let Happening::Foreign { range } = entry.happening {
                foreign.push((here, range));
            }
            let act = calls.act_of(entry.tid, &entry.happening);
            entries.push(Line { tid: entry.tid, ticks_before: total_ticks, act });
            total_ticks = total_ticks.saturating_add(entry.ticks);
            if entry.happening.may_follow_start()
                && let Some(last) = begins.last_mut().filter(|last| **last == here)
            {
                *last += 1;
            }
            match &entry.happening {
                Happening::Start(start) => {
                    begins.push(here + 1);
                    if here > 0 {
                        starts.push(ProgramStart::Entry(cursor.clone()));
                    }
                    note_files(&start.mappings, &mut files);
                    ranges.push(start.mappings.iter().map(|mapped| mapped.range).collect());
                }
                Happening::Call { done, .. } | Happening::Returns { done } => {
                    let mapped = done.maps.iter().filter_map(|change| match change {
                        MapChange::Map(mapped) => Some(mapped),
                        _ => None,
                    });
                    note_files(mapped, &mut files);
                    if let Some(ranges) = ranges.last_mut() {
                        ranges.extend(done.maps.iter().filter_map(range_of));
                    }
                }
                _ => {}
            }
            cursor.skip()?;
        }
        ranges.iter_mut().for_each(join);
        let keyframes = kept;
        Ok(Self {
            starts,
            begins,
            first,
            entries,
            total_ticks,
            is_finished,
            files,
            ranges,
            keyframes,
            foreign,
        })
    }

    /// Returns the first position of a moment ([`Replay::moment`]), from an entry on.
    pub(super) fn position(&self, first: u64, moment: u64) -> Position {
        let begins = |entry: u64| self.moment(Position::after_entries(entry));
        // A run whose end is not recorded ends after its last entry.
        let (mut low, mut high) = (first, self.last() + 1);
        while low + 1 < high {
            let middle = low + (high - low) / 2;
            if begins(middle) <= moment {
                low = middle;
            } else {
                high = middle;
            }
        }
        Position { entry: low, ticks: moment.saturating_sub(begins(low)), instructions: 0 }
    }

    /// Returns the number of a position's moment ([`Replay::moment`]).
    pub(super) fn moment(&self, position: Position) -> u64 {
        let ticks = self.ticks_before(position.entry).saturating_add(position.ticks);
        ticks.saturating_add(position.entry.saturating_sub(self.first))
    }

    /// Returns the number of the log's first entry: that of the entries that were dropped.
    pub(super) fn first(&self) -> u64 {
        self.first
    }

    /// Returns the number of entries of the run.
    pub(super) fn len(&self) -> u64 {
        self.first + self.entries.len() as u64
    }

    /// Returns an entry in short.
    fn line(&self, entry: u64) -> Option<&Line> {
        let at = usize::try_from(entry.checked_sub(self.first)?).ok()?;
        self.entries.get(at)
    }

    /// Returns the number of entries before the end of the run.
    pub(super) fn last(&self) -> u64 {
        self.len().saturating_sub(self.is_finished.into())
    }

    /// Returns the thread of an entry.
    pub(super) fn thread_of(&self, entry: u64) -> Option<Tid> {
        self.line(entry).map(|line| line.tid)
    }

    /// Returns the last entry of a thread before an entry.
    pub(super) fn last_of(&self, tid: Tid, before: u64) -> Option<u64> {
        (self.first..before).rev().find(|entry| self.thread_of(*entry) == Some(tid))
    }

    /// Returns the next entry of a thread, from an entry on.
    pub(super) fn next_of(&self, tid: Tid, from: u64) -> Option<u64> {
        (from..self.len()).find(|entry| self.thread_of(*entry) == Some(tid))
    }

    /// Returns the number of the program that an entry belongs to: the last that began before it.
    pub(super) fn epoch_of(&self, entry: u64) -> usize {
        self.starts.partition_point(|start| start.is_before(entry)).saturating_sub(1)
    }

    /// Returns the number of the last program that executes something before a position.
    pub(super) fn epoch_before(&self, position: Position) -> usize {
        let begins = |entry: &u64| Position::after_entries(*entry) < position;
        self.begins.partition_point(begins).saturating_sub(1)
    }

    /// Returns the position of the first instruction of a program.
    pub(super) fn first_of(&self, number: usize) -> Position {
        Position::after_entries(self.begins.get(number).copied().unwrap_or(0))
    }

    /// Returns all addresses that a program ever has something at.
    pub(super) fn ranges_of(&self, number: usize) -> Vec<AddrRange> {
        self.ranges.get(number).cloned().unwrap_or_default()
    }

    /// Returns the last keyframe of a program at or before a position, and where the log goes on
    /// after it.
    pub(super) fn keyframe_before(
        &self,
        number: usize,
        position: Position,
    ) -> Option<(u64, Cursor)> {
        let first = self.first_of(number).entry;
        let (&entry, cursor) = self.keyframes.range(..=position.entry).next_back()?;
        (entry >= first).then(|| (entry, cursor.clone()))
    }

    /// Forgets a keyframe that is of no use.
    pub(super) fn forget_keyframe(&mut self, entry: u64) {
        self.keyframes.remove(&entry);
    }

    /// Returns the keyframes.
    pub(super) fn keyframes(&self) -> Vec<u64> {
        self.keyframes.keys().copied().collect()
    }

    /// Returns the act of the kernel right before an entry happens.
    pub(super) fn event_before(&self, entry: u64) -> Option<KernelEvent> {
        match self.act(entry) {
            Act::Call(number) | Act::Enters(number) => Some(KernelEvent::Call(number.into())),
            Act::Signal(number) => Some(KernelEvent::Signal(number)),
            Act::Other | Act::Returns(_) => None,
        }
    }

    /// Returns the act of the kernel after which an entry has happened.
    pub(super) fn event_after(&self, entry: u64) -> Option<KernelEvent> {
        match self.act(entry) {
            Act::Call(number) | Act::Returns(number) => Some(KernelEvent::Return(number.into())),
            Act::Other | Act::Enters(_) | Act::Signal(_) => None,
        }
    }

    fn act(&self, entry: u64) -> Act {
        self.line(entry).map_or(Act::Other, |line| line.act)
    }

    /// Returns the stored files that the programs mapped, by their paths; of several with one path
    /// the last.
    pub(super) fn files(&self) -> &BTreeMap<String, ImageId> {
        &self.files
    }

    /// Returns true if some of a range was foreign memory of a program, which had it, before an
    /// entry.
    pub(super) fn is_foreign(&self, number: usize, before: u64, range: AddrRange) -> bool {
        let begin = self.begins.get(number).copied().unwrap_or(0);
        let mut foreign = self.foreign.iter().filter(|(entry, _)| (begin..before).contains(entry));
        foreign.any(|(_, foreign)| foreign.overlaps(range))
    }

    /// Returns the ticks of all threads.
    pub(super) fn total_ticks(&self) -> u64 {
        self.total_ticks
    }

    /// Returns true if the entries from one on and before another are of one thread, which does not
    /// tick.
    pub(super) fn are_of_one_place(&self, first: u64, end: u64) -> bool {
        let index =
            |entry: u64| usize::try_from(entry.saturating_sub(self.first)).unwrap_or(usize::MAX);
        let lines = self.entries.get(index(first)..index(end)).unwrap_or_default();
        let is_one = lines.windows(2).all(|pair| pair[0].tid == pair[1].tid);
        is_one && !lines.is_empty() && self.ticks_before(first) == self.ticks_before(end)
    }

    /// Returns the ticks of all threads before the interval that an entry ends.
    pub(super) fn ticks_before(&self, entry: u64) -> u64 {
        let dropped = if entry < self.first { 0 } else { self.total_ticks };
        self.line(entry).map_or(dropped, |line| line.ticks_before)
    }
}

/// The system calls that threads are in.
#[derive(Default)]
struct OpenCalls(BTreeMap<Tid, u32>);

impl OpenCalls {
    fn act_of(&mut self, tid: Tid, happening: &Happening) -> Act {
        // The kernel looks at the low half of a number only.
        let low = |number: u64| u32::try_from(number & u64::from(u32::MAX)).unwrap_or(u32::MAX);
        match happening {
            Happening::Call { number, .. } => Act::Call(low(*number)),
            Happening::Enters { number } => {
                self.0.insert(tid, low(*number));
                Act::Enters(low(*number))
            }
            Happening::Returns { .. } => self.0.remove(&tid).map_or(Act::Other, Act::Returns),
            Happening::Changed { state: Some(_), .. } => {
                self.0.remove(&tid);
                Act::Other
            }
            Happening::Signal { siginfo: Bytes(info), handler: Some(_), .. } => {
                let info: Option<&SiginfoBytes> = info.first_chunk();
                info.map_or(Act::Other, |info| Act::Signal(siginfo::signal_of(info)))
            }
            _ => Act::Other,
        }
    }
}

/// Returns the addresses at which a change maps something.
fn range_of(change: &MapChange) -> Option<AddrRange> {
    match change {
        MapChange::Map(mapped) => Some(mapped.range),
        MapChange::Move { to, .. } => Some(*to),
        MapChange::Unmap(_) | MapChange::Protect { .. } | MapChange::Discard(_) => None,
    }
}

/// Sorts ranges, and joins those that meet.
fn join(ranges: &mut Vec<AddrRange>) {
    ranges.sort_by_key(|range| range.start);
    ranges.dedup_by(|next, last| {
        let joins = next.start <= last.end;
        if joins {
            last.end = last.end.max(next.end);
        }
        joins
    });
}

fn note_files<'a>(
    mapped: impl IntoIterator<Item = &'a Mapped>,
    files: &mut BTreeMap<String, ImageId>,
) {
    for mapped in mapped {
        if let Content::File { image, .. } = &mapped.content
            && mapped.name.starts_with('/')
        {
            files.insert(mapped.name.clone(), image.clone());
        }
    }
}
