//! A summary of the log, made without running the program: for each entry its thread, its ticks
//! (counted branches) and its act of the kernel, such as a system call; and the places where
//! programs and keyframes begin.
//!
//! A run consists of *programs*, from one execve(2) to the next, which are numbered from 0. Entries
//! are numbered over the whole run, from 0. An entry's *interval* is the part of the run between
//! the entry before it and the entry itself. A *keyframe* is a copy of the program's state between
//! two entries. To save space, the recorder may have dropped the log's beginning: the log then
//! begins at a keyframe, and its first entry has a later number.

use super::error::Error;
use super::position::Position;
use crate::common::{AddrRange, Tid};
use crate::recording::Reader;
use crate::recording::log::{Bytes, Content, Cursor, Entry, Log, LogEvent, MapChange, Mapped};
use crate::sideband::ImageId;
use crate::tracee::{SiginfoBytes, siginfo};
use std::collections::BTreeMap;

/// An act of the kernel that a debugger can stop at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelEvent {
    /// The system call with this number is about to be made.
    Call(u64),
    /// The system call with this number has returned.
    Return(u64),
    /// The signal with this number is about to be delivered to its handler.
    Signal(i32),
}

impl KernelEvent {
    /// Returns true if the act is about to happen, false if it has happened. A run that ends before
    /// an act has to pass it next (`Goals::passed`).
    pub fn is_ahead(self) -> bool {
        matches!(self, Self::Call(_) | Self::Signal(_))
    }
}

/// A summary of the log's entries.
#[derive(Debug)]
pub(super) struct Outline {
    /// The place of each program's beginning, in the order of the programs.
    pub(super) starts: Vec<ProgramStart>,
    /// For each program, the number of the first entry after those with its start and memory: from
    /// there on, it executes something.
    first_entries: Vec<u64>,
    /// The number of entries before the log's first one, which were dropped.
    first: u64,
    entries: Vec<EntrySummary>,
    total_ticks: u64,
    /// True if the last entry is the end of the run.
    is_finished: bool,
    /// The stored files that the programs mapped, by their paths.
    files: BTreeMap<String, ImageId>,
    /// For each program, all ranges that it ever maps.
    ranges: Vec<Vec<AddrRange>>,
    /// For each keyframe, by the number of entries before it, the place where the log continues
    /// after it. Includes the keyframe with which a log begins whose beginning was dropped.
    keyframes: BTreeMap<u64, Cursor>,
    /// The ranges that became foreign memory, which processes outside the recording may write, each
    /// with the number of its entry.
    foreign: Vec<(u64, AddrRange)>,
}

/// The place in the recording where a program begins.
#[derive(Debug)]
pub(super) enum ProgramStart {
    /// In the log, at this entry.
    Entry(Cursor),
    /// At a keyframe: the log before it was dropped.
    Keyframe {
        /// The first entry of the keyframe itself.
        start: Cursor,
        /// The first entry of the log.
        after: Cursor,
    },
}

impl ProgramStart {
    /// Returns a cursor at the entry `Start` with which the program begins.
    pub(super) fn cursor(&self) -> Cursor {
        match self {
            Self::Entry(start) | Self::Keyframe { start, .. } => start.clone(),
        }
    }

    /// Returns true if the program begins before an entry of the log.
    fn is_before(&self, entry: u64) -> bool {
        match self {
            Self::Entry(start) => start.index() < entry,
            Self::Keyframe { .. } => true,
        }
    }
}

/// The summary of an entry.
#[derive(Debug)]
struct EntrySummary {
    tid: Tid,
    /// The ticks of all threads before the interval that the entry ends.
    ticks_before: u64,
    act: Act,
}

/// The act of the kernel that an entry records. [`Outline::event_before`] and
/// [`Outline::event_after`] return its parts that a debugger can stop at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    /// No act that a debugger can stop at.
    Other,
    /// The system call with this number, and its return.
    Call(u32),
    /// The system call with this number, which returns later.
    Enters(u32),
    /// The return of the system call with this number, which began in an earlier entry.
    Returns(u32),
    /// The delivery of the signal with this number to its handler.
    Signal(i32),
}

impl Outline {
    /// Reads the whole log once. If the log's beginning was dropped, reads the keyframe first that
    /// precedes its first entry.
    pub(super) fn read(log: &Log, reader: &Reader) -> Result<Self, Error> {
        let mut outline = Self::empty(log.first());
        let (mut cursor, mut calls) = (log.cursor(), OpenCalls::default());
        if outline.first > 0 {
            let start = reader.open_keyframe(outline.first)?.cursor();
            let after = cursor.clone();
            outline.starts.push(ProgramStart::Keyframe { start: start.clone(), after });
            outline.first_entries.push(outline.first);
            outline.read_keyframe(start, &mut calls)?;
        }
        let keyframes = reader.keyframes();
        loop {
            if keyframes.binary_search(&cursor.index()).is_ok() {
                outline.keyframes.insert(cursor.index(), cursor.clone());
            }
            let Some(entry) = cursor.current()? else { break };
            outline.add(&entry, &cursor, &mut calls);
            cursor.skip()?;
        }
        outline.ranges.iter_mut().for_each(join);
        Ok(outline)
    }

    /// Returns the summary of a log without entries, whose first one will have this number.
    fn empty(first: u64) -> Self {
        Self {
            starts: Vec::new(),
            first_entries: Vec::new(),
            first,
            entries: Vec::new(),
            total_ticks: 0,
            is_finished: false,
            files: BTreeMap::new(),
            ranges: Vec::new(),
            keyframes: BTreeMap::new(),
            foreign: Vec::new(),
        }
    }

    /// Adds the mappings and foreign memory of the keyframe with which the log begins, and notes in
    /// `calls` the calls that threads are in there.
    fn read_keyframe(&mut self, mut cursor: Cursor, calls: &mut OpenCalls) -> Result<(), Error> {
        while let Some(entry) = cursor.current()? {
            match &entry.event {
                LogEvent::Start(start) => self.add_program(&start.mappings),
                LogEvent::Foreign { range } => self.foreign.push((self.first, *range)),
                event => _ = calls.next_act(entry.tid, event),
            }
            cursor.skip()?;
        }
        Ok(())
    }

    /// Adds the next entry of the log, at which `cursor` is.
    fn add(&mut self, entry: &Entry, cursor: &Cursor, calls: &mut OpenCalls) {
        let here = cursor.index();
        let event = &entry.event;
        let act = calls.next_act(entry.tid, event);
        self.entries.push(EntrySummary { tid: entry.tid, ticks_before: self.total_ticks, act });
        self.total_ticks = self.total_ticks.saturating_add(entry.ticks);
        // The last entry of the log decides.
        self.is_finished = matches!(event, LogEvent::Finish { .. });
        // Entries right after a start that belong to it move the program's beginning.
        if event.may_follow_start()
            && let Some(last) = self.first_entries.last_mut().filter(|last| **last == here)
        {
            *last += 1;
        }
        // If the first entry of all is no start, loading the program fails.
        if here == 0 || matches!(event, LogEvent::Start(_)) {
            self.starts.push(ProgramStart::Entry(cursor.clone()));
        }
        match event {
            LogEvent::Start(start) => {
                self.first_entries.push(here + 1);
                self.add_program(&start.mappings);
            }
            LogEvent::Call { effects, .. } | LogEvent::Returns { effects } => {
                self.add_maps(&effects.maps);
            }
            LogEvent::Foreign { range } => self.foreign.push((here, *range)),
            _ => {}
        }
    }

    /// Adds the files and ranges of a program that begins with these mappings.
    fn add_program(&mut self, mappings: &[Mapped]) {
        note_files(mappings, &mut self.files);
        self.ranges.push(mappings.iter().map(|mapped| mapped.range).collect());
    }

    /// Adds the changes of the last program's mappings that a call made.
    fn add_maps(&mut self, changes: &[MapChange]) {
        let mapped = changes.iter().filter_map(|change| match change {
            MapChange::Map(mapped) => Some(mapped),
            _ => None,
        });
        note_files(mapped, &mut self.files);
        if let Some(ranges) = self.ranges.last_mut() {
            ranges.extend(changes.iter().filter_map(range_of));
        }
    }

    /// Returns the number of a position's moment: the ticks of all threads and the entries before
    /// it, from the log's first entry on.
    pub(super) fn moment(&self, position: Position) -> u64 {
        let ticks = self.ticks_before(position.entry).saturating_add(position.ticks);
        ticks.saturating_add(position.entry.saturating_sub(self.first))
    }

    /// Returns the first position of a moment ([`Outline::moment`]), at or after entry number
    /// `first`: a position right after an entry or a tick. For a moment after the run's last, it
    /// has ticks that the run does not have.
    pub(super) fn position_of_moment(&self, first: u64, moment: u64) -> Position {
        // Searches for the last entry whose interval begins at or before the moment. The rest are
        // ticks in that interval.
        let start_of = |entry: u64| self.moment(Position::after_entries(entry));
        // A run whose end is not recorded ends after its last entry.
        let (mut low, mut high) = (first, self.end_entry() + 1);
        while low + 1 < high {
            let middle = low + (high - low) / 2;
            if start_of(middle) <= moment {
                low = middle;
            } else {
                high = middle;
            }
        }
        Position { entry: low, ticks: moment.saturating_sub(start_of(low)), instructions: 0 }
    }

    /// Returns the number of the log's first entry, which is the number of entries that were
    /// dropped.
    pub(super) fn first_entry(&self) -> u64 {
        self.first
    }

    /// Returns the number of entries of the run, including those that were dropped.
    pub(super) fn len(&self) -> u64 {
        self.first + self.entries.len() as u64
    }

    /// Returns the summary of an entry; `None` if the log does not have it.
    fn summary_of(&self, entry: u64) -> Option<&EntrySummary> {
        let at = usize::try_from(entry.checked_sub(self.first)?).ok()?;
        self.entries.get(at)
    }

    /// Returns the number of entries before the end of the run: all, including those that were
    /// dropped, but the one that records the end.
    pub(super) fn end_entry(&self) -> u64 {
        self.len().saturating_sub(self.is_finished.into())
    }

    /// Returns the thread of an entry; `None` if the log does not have the entry.
    pub(super) fn thread_of(&self, entry: u64) -> Option<Tid> {
        self.summary_of(entry).map(|entry| entry.tid)
    }

    /// Returns the number of a thread's last entry before entry number `before`; `None` if the log
    /// has none. Scans the entries between, so a loop of calls may be slow.
    pub(super) fn last_entry_of(&self, tid: Tid, before: u64) -> Option<u64> {
        (self.first..before).rev().find(|entry| self.thread_of(*entry) == Some(tid))
    }

    /// Returns the number of a thread's first entry from entry number `from` on; `None` if the
    /// thread has no more. Scans the entries between.
    pub(super) fn next_entry_of(&self, tid: Tid, from: u64) -> Option<u64> {
        (from..self.len()).find(|entry| self.thread_of(*entry) == Some(tid))
    }

    /// Returns the number of the program that an entry belongs to, which an [`super::epoch::Epoch`]
    /// repeats: the last one that began before the entry, or 0. An execve(2)'s own entry belongs to
    /// the program before.
    pub(super) fn epoch_of(&self, entry: u64) -> usize {
        self.starts.partition_point(|start| start.is_before(entry)).saturating_sub(1)
    }

    /// Returns the number of the last program that executes something before a position; 0 if none
    /// does.
    pub(super) fn epoch_before(&self, position: Position) -> usize {
        // A program that begins right at the position has executed nothing before it.
        let begins = |entry: &u64| Position::after_entries(*entry) < position;
        self.first_entries.partition_point(begins).saturating_sub(1)
    }

    /// Returns the position of the first instruction of a program; that before all entries if there
    /// is no such program.
    pub(super) fn first_position_of(&self, number: usize) -> Position {
        Position::after_entries(self.first_entries.get(number).copied().unwrap_or(0))
    }

    /// Returns all ranges that a program ever maps, ascending and joined; none if there is no such
    /// program.
    pub(super) fn ranges_of(&self, number: usize) -> Vec<AddrRange> {
        self.ranges.get(number).cloned().unwrap_or_default()
    }

    /// Returns the last keyframe of a program at or before a position, if there is one: the number
    /// of entries before it, and the place where the log continues. The position must not be in a
    /// later program, whose keyframe would be returned.
    pub(super) fn keyframe_before(
        &self,
        number: usize,
        position: Position,
    ) -> Option<(u64, Cursor)> {
        let first = self.first_position_of(number).entry;
        let (&entry, cursor) = self.keyframes.range(..=position.entry).next_back()?;
        (entry >= first).then(|| (entry, cursor.clone()))
    }

    /// Forgets the keyframe after `entry` entries, if there is one, so that no move loads it.
    pub(super) fn forget_keyframe(&mut self, entry: u64) {
        self.keyframes.remove(&entry);
    }

    /// Returns the number of entries before each keyframe that is not forgotten, ascending.
    pub(super) fn keyframes(&self) -> Vec<u64> {
        self.keyframes.keys().copied().collect()
    }

    /// Returns the system call that is about to be made, or the signal that is about to be
    /// delivered to a handler, right before an entry; `None` if the entry records no such act.
    pub(super) fn event_before(&self, entry: u64) -> Option<KernelEvent> {
        match self.act(entry) {
            Act::Call(number) | Act::Enters(number) => Some(KernelEvent::Call(number.into())),
            Act::Signal(number) => Some(KernelEvent::Signal(number)),
            Act::Other | Act::Returns(_) => None,
        }
    }

    /// Returns the system call that has returned right after an entry; `None` if the entry records
    /// no return.
    pub(super) fn event_after(&self, entry: u64) -> Option<KernelEvent> {
        match self.act(entry) {
            Act::Call(number) | Act::Returns(number) => Some(KernelEvent::Return(number.into())),
            Act::Other | Act::Enters(_) | Act::Signal(_) => None,
        }
    }

    /// Returns the act of an entry; [`Act::Other`] also if the log does not have the entry.
    fn act(&self, entry: u64) -> Act {
        self.summary_of(entry).map_or(Act::Other, |entry| entry.act)
    }

    /// Returns the stored files that the programs mapped, by their paths. If there are several with
    /// one path, it is the last.
    pub(super) fn files(&self) -> &BTreeMap<String, ImageId> {
        &self.files
    }

    /// Returns true if a part of a range became *foreign* memory of program `number` before entry
    /// `before`: processes outside the recording may write it.
    pub(super) fn is_foreign(&self, number: usize, before: u64, range: AddrRange) -> bool {
        let begin = self.first_entries.get(number).copied().unwrap_or(0);
        let mut foreign = self.foreign.iter().filter(|(entry, _)| (begin..before).contains(entry));
        foreign.any(|(_, foreign)| foreign.overlaps(range))
    }

    /// Returns the ticks of all threads in the run, from the log's first entry on.
    pub(super) fn total_ticks(&self) -> u64 {
        self.total_ticks
    }

    /// Returns true if all entries from number `first` to before `end` are of one thread, and no
    /// ticks are executed from the position after `first` entries to that after `end` entries: also
    /// none before entry `first` itself. False if there are no such entries, or the log ends before
    /// `end`. Entry `first` must not have been dropped.
    pub(super) fn are_at_one_place(&self, first: u64, end: u64) -> bool {
        let index =
            |entry: u64| usize::try_from(entry.saturating_sub(self.first)).unwrap_or(usize::MAX);
        let entries = self.entries.get(index(first)..index(end)).unwrap_or_default();
        let is_one = entries.windows(2).all(|pair| pair[0].tid == pair[1].tid);
        is_one && !entries.is_empty() && self.ticks_before(first) == self.ticks_before(end)
    }

    /// Returns the ticks of all threads up to the entry before entry number `entry`: without those
    /// of the interval between the two. After the last entry, those of the whole run; 0 for an
    /// entry that was dropped.
    pub(super) fn ticks_before(&self, entry: u64) -> u64 {
        let dropped = if entry < self.first { 0 } else { self.total_ticks };
        self.summary_of(entry).map_or(dropped, |entry| entry.ticks_before)
    }
}

/// The system calls that threads are in.
#[derive(Default)]
struct OpenCalls(BTreeMap<Tid, u32>);

impl OpenCalls {
    /// Returns the act that the next entry, of thread `tid`, records, and updates the calls that
    /// threads are in. To be called for all entries in order.
    fn next_act(&mut self, tid: Tid, event: &LogEvent) -> Act {
        // The kernel uses only the low half of a call's number.
        let low = |number: u64| u32::try_from(number & u64::from(u32::MAX)).unwrap_or(u32::MAX);
        match event {
            LogEvent::Call { number, .. } => Act::Call(low(*number)),
            LogEvent::Enters { number } => {
                self.0.insert(tid, low(*number));
                Act::Enters(low(*number))
            }
            LogEvent::Returns { .. } => self.0.remove(&tid).map_or(Act::Other, Act::Returns),
            // A thread whose state is replaced does not make the call that it was in.
            LogEvent::Changed { state: Some(_), .. } => {
                self.0.remove(&tid);
                Act::Other
            }
            LogEvent::Signal { siginfo: Bytes(info), handler: Some(_), .. } => {
                let info: Option<&SiginfoBytes> = info.first_chunk();
                info.map_or(Act::Other, |info| Act::Signal(siginfo::signal_of(info)))
            }
            _ => Act::Other,
        }
    }
}

/// Returns the range at which a change maps something; `None` if it maps nothing.
fn range_of(change: &MapChange) -> Option<AddrRange> {
    match change {
        MapChange::Map(mapped) => Some(mapped.range),
        MapChange::Move { to, .. } => Some(*to),
        MapChange::Unmap(_) | MapChange::Protect { .. } | MapChange::Discard(_) => None,
    }
}

/// Sorts ranges, and joins those that touch or overlap.
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

/// Adds the stored files among these mappings, by their paths; of several with one path, the last
/// stays. Leaves out names that are not absolute.
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
