//! The replay of a recording: where it is, and how it gets elsewhere.

use super::diversion::Diverted;
use super::epoch::Epoch;
use super::error::Error;
use super::position::Position;
use super::row::Row;
use super::search::Hits;
use crate::common::Tid;
use crate::engine::CodeKind;
use crate::recording::Reader;
use crate::recording::log::{Content, Cursor, Happening, Log, MapChange, Mapped};
use crate::sideband::ImageId;
use std::collections::BTreeMap;
use std::time::Instant;

/// The shape of the log, known without running anything.
#[derive(Debug)]
pub(super) struct Outline {
    /// Where the programs begin.
    pub(super) starts: Vec<Cursor>,
    /// The first entries after their memory.
    begins: Vec<u64>,
    /// For each entry, its thread, and the ticks of all threads before the interval that it ends.
    entries: Vec<(Tid, u64)>,
    total_ticks: u64,
    files: BTreeMap<String, ImageId>,
}

/// A replay, at a position.
#[derive(Debug)]
pub struct Replay {
    pub(super) reader: Reader,
    /// The code that it executes.
    pub(super) code: CodeKind,
    pub(super) outline: Outline,
    pub(super) epoch: Epoch,
    /// The number of the epoch.
    pub(super) number: usize,
    pub(super) cursor: Cursor,
    /// The ticks of the thread of the next entry since the last one.
    pub(super) ticks: u64,
    /// Its instructions since the last tick; none where they were not counted.
    pub(super) instructions: Option<u64>,
    /// When the last checkpoint was kept.
    pub(super) kept: Instant,
    /// True where the run has no more instructions.
    pub(super) is_at_end: bool,
    first: Position,
    /// The instructions before the user's place.
    pub(super) row: Row,
    /// The hits of the last search backwards.
    pub(super) hits: Option<Hits>,
    /// The moment that was left in a diversion.
    pub(super) diverted: Option<Diverted>,
    /// The number of the entry where the run ends, as far as it is known.
    pub(super) end: u64,
}

impl Replay {
    /// Opens the replay of a recording, at the first instruction of its program.
    pub fn open(reader: Reader) -> Result<Self, Error> {
        Self::open_as(reader, CodeKind::Counting)
    }

    /// Opens the replay of a recording that executes code of this kind.
    pub(super) fn open_as(reader: Reader, code: CodeKind) -> Result<Self, Error> {
        let log = reader.log()?.ok_or(Error::NoLog)?;
        let outline = Outline::of(&log)?;
        let mut cursor = log.cursor();
        let epoch = Epoch::load(&mut cursor, &reader, code)?;
        let mut replay = Self {
            reader,
            code,
            outline,
            epoch,
            number: 0,
            cursor,
            ticks: 0,
            instructions: Some(0),
            kept: Instant::now(),
            is_at_end: false,
            first: Position::default(),
            row: Row::default(),
            hits: None,
            diverted: None,
            end: u64::MAX,
        };
        replay.first = replay.position();
        replay.keep_here()?;
        Ok(replay)
    }

    /// Returns the recording.
    pub fn reader(&self) -> &Reader {
        &self.reader
    }

    /// Returns the position; that of the last tick where the instructions since it were not counted.
    pub fn position(&self) -> Position {
        let (entry, ticks) = (self.cursor.index(), self.ticks);
        Position { entry, ticks, instructions: self.instructions.unwrap_or(0) }
    }

    /// Returns the position of the program's first instruction.
    pub fn first(&self) -> Position {
        self.first
    }

    /// Returns the number of a position's moment: the ticks and the entries before it. No two places
    /// between two ticks have the same.
    pub fn moment(&self, position: Position) -> u64 {
        self.ticks_before(position).saturating_add(position.entry)
    }

    /// Returns the first position of a moment.
    pub fn position_of_moment(&self, moment: u64) -> Position {
        self.outline.position(self.first.entry, moment)
    }

    /// Returns the number of the last moment.
    pub fn last_moment(&self) -> u64 {
        self.outline.total_ticks.saturating_add(self.outline.len().saturating_sub(1))
    }

    /// Returns the path of the program that runs here, and its auxiliary vector.
    pub fn program(&self) -> (String, Vec<u8>) {
        let start = self.outline.starts.get(self.number);
        let entry = start.and_then(|start| start.clone().read().ok().flatten());
        match entry.map(|entry| entry.happening) {
            Some(Happening::Start(start)) => (start.program, start.auxv.0),
            _ => (self.reader.manifest().program.clone(), Vec::new()),
        }
    }

    /// Ends the run before an entry: what comes there is not known.
    pub fn end_before(&mut self, entry: u64) {
        self.end = self.end.min(entry);
    }

    /// Returns true if the replay is where the run ends, or the recording does.
    pub fn is_at_end(&self) -> bool {
        self.is_at_end
    }

    /// Returns the stored files that the program mapped, by their paths; of several with one path
    /// the last.
    pub fn files(&self) -> &BTreeMap<String, ImageId> {
        &self.outline.files
    }

    /// Returns the ticks of all threads before a position.
    pub fn ticks_before(&self, position: Position) -> u64 {
        self.outline.ticks_before(position.entry).saturating_add(position.ticks)
    }

    /// Returns the ticks of all threads in the whole run.
    pub fn total_ticks(&self) -> u64 {
        self.outline.total_ticks
    }

    /// Returns the thread that executes next: that of the next entry.
    pub(super) fn next_thread(&mut self) -> Result<Option<Tid>, Error> {
        Ok(self.cursor.peek()?.map(|entry| entry.tid))
    }

    /// Keeps a checkpoint where the replay is, which is at a tick.
    pub(super) fn keep_here(&mut self) -> Result<(), Error> {
        if self.instructions == Some(0) {
            let position = self.position();
            self.epoch.keep(position, &self.cursor)?;
            self.kept = Instant::now();
        }
        Ok(())
    }
}

impl Outline {
    fn of(log: &Log) -> Result<Self, Error> {
        let (mut cursor, mut files) = (log.cursor(), BTreeMap::new());
        let (mut starts, mut entries, mut total_ticks) = (Vec::new(), Vec::new(), 0_u64);
        let mut begins: Vec<u64> = Vec::new();
        loop {
            let here = cursor.clone();
            let Some(entry) = cursor.peek()? else { break };
            entries.push((entry.tid, total_ticks));
            total_ticks = total_ticks.saturating_add(entry.ticks);
            match &entry.happening {
                Happening::Memory(_) => {
                    if let Some(last) = begins.last_mut().filter(|last| **last == here.index()) {
                        *last += 1;
                    }
                }
                Happening::Start(start) => {
                    begins.push(here.index() + 1);
                    starts.push(here);
                    note_files(&start.mappings, &mut files);
                }
                Happening::Call { done, .. } | Happening::Returns { done } => {
                    let mapped = done.maps.iter().filter_map(|change| match change {
                        MapChange::Map(mapped) => Some(mapped),
                        _ => None,
                    });
                    note_files(mapped, &mut files);
                }
                _ => {}
            }
            cursor.skip()?;
        }
        Ok(Self { starts, begins, entries, total_ticks, files })
    }

    /// Returns the first position of a moment ([`Replay::moment`]), from an entry on.
    fn position(&self, first: u64, moment: u64) -> Position {
        let begins = |entry: u64| self.ticks_before(entry).saturating_add(entry);
        let (mut low, mut high) = (first, self.len());
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

    /// Returns the number of entries.
    pub(super) fn len(&self) -> u64 {
        self.entries.len() as u64
    }

    /// Returns the thread of an entry.
    pub(super) fn thread_of(&self, entry: u64) -> Option<Tid> {
        let at = usize::try_from(entry).ok()?;
        self.entries.get(at).map(|(tid, _)| *tid)
    }

    /// Returns the last entry of a thread before an entry.
    pub(super) fn last_of(&self, tid: Tid, before: u64) -> Option<u64> {
        (0..before).rev().find(|entry| self.thread_of(*entry) == Some(tid))
    }

    /// Returns the next entry of a thread, from an entry on.
    pub(super) fn next_of(&self, tid: Tid, from: u64) -> Option<u64> {
        (from..self.len()).find(|entry| self.thread_of(*entry) == Some(tid))
    }

    /// Returns the number of the program that an entry belongs to: the last that began before it.
    pub(super) fn epoch_of(&self, entry: u64) -> usize {
        self.starts.partition_point(|start| start.index() < entry).saturating_sub(1)
    }

    /// Returns the number of the last program that executes something before a position.
    pub(super) fn epoch_before(&self, position: Position) -> usize {
        let begins = |entry: &u64| Position::after_entries(*entry) < position;
        self.begins.partition_point(begins).saturating_sub(1)
    }

    fn ticks_before(&self, entry: u64) -> u64 {
        let at = usize::try_from(entry).unwrap_or(usize::MAX);
        self.entries.get(at).map_or(self.total_ticks, |(_, ticks)| *ticks)
    }
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
