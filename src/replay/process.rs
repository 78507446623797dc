//! The replay of a recording, and its position.
//!
//! A [`Replay`] has one process at a time (`epoch`), which has the state of the program at the
//! position. Moves change that process, or replace it by another one. A replaced process may be
//! kept: *parked* ([`super::parked_processes`]). In two cases, its state is another one:
//! - In a *diversion* ([`super::diversion`]), the debugger has changed it. The caller ends the
//!   diversion before the next move.
//! - At a *glance* ([`super::glances`]), the loaded thread waits at a stop in the code cache while
//!   [`Goals::accepts`] is called, which decides whether it goes on. The thread is then further
//!   than the replay's `cursor` and `ticks`.
//!
//! [`Goals::accepts`]: super::Goals::accepts

use super::checkpoint_timer::CheckpointTimer;
use super::diversion::DiversionOrigin;
use super::epoch::Epoch;
use super::error::Error;
use super::glancing::GlancingThread;
use super::lent::Lent;
use super::outline::{Outline, ProgramStart};
use super::parked::Preparation;
use super::parked_processes::ParkedProcesses;
use super::position::Position;
use super::search::Hits;
use super::undo::UndoLog;
use crate::common::Tid;
use crate::engine::CodeKind;
use crate::insn::Registers;
use crate::recording::Reader;
use crate::recording::log::{Cursor, Entry, LogEvent};
use crate::sideband::ImageId;
use std::collections::BTreeMap;

/// A replay of an exact recording, at a position. It is given by `number`, `cursor`, `ticks` and
/// `instructions`; the process in `epoch` has the state there.
#[derive(Debug)]
pub struct Replay {
    pub(super) reader: Reader,
    /// The kind of translated code that the replay runs.
    pub(super) code: CodeKind,
    pub(super) outline: Outline,
    pub(super) epoch: Epoch,
    /// The number of the program (epoch) of the run that is loaded.
    pub(super) number: usize,
    /// The place in the log: its next entry is of the thread that executes now, and happens next.
    pub(super) cursor: Cursor,
    /// The ticks of the thread of the next entry since the last entry.
    pub(super) ticks: u64,
    /// The instructions of this thread since its last tick; `None` if they were not counted.
    pub(super) instructions: Option<u64>,
    pub(super) checkpoint_timer: CheckpointTimer,
    /// True if a move has found that the run has no more instructions.
    pub(super) is_at_end: bool,
    /// The position of the first instruction.
    first: Position,
    /// The instructions before the user's position that can be undone without a replay.
    pub(super) undo_log: UndoLog,
    /// The hits of the last search backwards that the user has not seen yet.
    pub(super) hits: Option<Hits>,
    /// The place at which the diversion began, if there is one.
    pub(super) diverted: Option<DiversionOrigin>,
    /// The memory that is lent to the debugger.
    pub(super) lent: Lent,
    /// The number of the entry before which the run ends; `u64::MAX` if no end is known yet.
    pub(super) end: u64,
    /// The processes that were left for others.
    pub(super) parked: ParkedProcesses,
    /// The preparation for going back from the end.
    pub(super) preparation: Preparation,
    /// The state of the loaded thread while it waits at a glance: a stop in the code cache, until
    /// the goals accept or pass it.
    pub(super) glancing: Option<GlancingThread>,
    /// The decision of the goals at the last glance, should the thread stop there: true if they
    /// accept the stop; `None` if they have to be asked at the stopped thread.
    pub(super) glance_verdict: Option<bool>,
}

impl Replay {
    /// Opens the replay of a recording, at its first position: the first instruction of its program
    /// or, if that is not recorded, where the log begins. Fails if the recording is not exact, or
    /// its log is empty.
    pub fn open(reader: Reader) -> Result<Self, Error> {
        Self::open_as(reader, CodeKind::Counting)
    }

    /// Opens the replay of a recording, as [`Self::open`], that executes translated code of this
    /// kind.
    pub(super) fn open_as(reader: Reader, code: CodeKind) -> Result<Self, Error> {
        let log = reader.log()?.ok_or(Error::NoLog)?;
        let outline = Outline::read(&log, &reader)?;
        let start = outline.starts.first().ok_or(Error::EmptyLog)?;
        let (epoch, cursor) = Epoch::load(start, &reader, code, outline.ranges_of(0))?;
        let checkpoint_timer = CheckpointTimer::start(epoch.pid());
        let mut replay = Self {
            reader,
            code,
            outline,
            epoch,
            number: 0,
            cursor,
            ticks: 0,
            instructions: Some(0),
            checkpoint_timer,
            is_at_end: false,
            first: Position::default(),
            undo_log: UndoLog::default(),
            hits: None,
            diverted: None,
            lent: Lent::default(),
            end: u64::MAX,
            parked: ParkedProcesses::default(),
            preparation: Preparation::default(),
            glancing: None,
            glance_verdict: None,
        };
        replay.first = replay.position();
        replay.keep_checkpoint_here()?;
        Ok(replay)
    }

    /// Returns the recording that is replayed.
    pub fn reader(&self) -> &Reader {
        &self.reader
    }

    /// Returns the position: that of the last tick if the instructions since then were not counted
    /// ([`Self::exact_position`] counts them), as also if a thread waits at a glance.
    pub fn position(&self) -> Position {
        if let Some(glanced) = &self.glancing {
            return glanced.position;
        }
        let (entry, ticks) = (self.cursor.index(), self.ticks);
        Position { entry, ticks, instructions: self.instructions.unwrap_or(0) }
    }

    /// Returns the position of the first recorded instruction, at which the replay was opened.
    pub fn first(&self) -> Position {
        self.first
    }

    /// Returns the number of a position's moment: the sum of the ticks and the entries before it.
    /// Each tick and each entry begins another moment.
    pub fn moment(&self, position: Position) -> u64 {
        self.outline.moment(position)
    }

    /// Returns the first position with this moment ([`Self::moment`]). For a moment after the run's
    /// last, it has ticks that the run does not have.
    pub fn position_of_moment(&self, moment: u64) -> Position {
        self.outline.position_of_moment(self.first.entry, moment)
    }

    /// Returns the number of the last moment of the run ([`Self::moment`]).
    pub fn last_moment(&self) -> u64 {
        let entries = self.outline.end_entry().saturating_sub(self.outline.first_entry());
        self.outline.total_ticks().saturating_add(entries)
    }

    /// Returns the first moment of each *interval*, the part of the run before an entry of the log,
    /// in order; then that of the part before the end; and last, the moment after the end.
    pub fn interval_starts(&self) -> Vec<u64> {
        let starts = (self.outline.first_entry()..=self.outline.end_entry() + 1)
            .map(Position::after_entries);
        starts.map(|at| self.moment(at)).collect()
    }

    /// Returns true if the program that runs here was recorded from its first instruction on: its
    /// start is in the log, and has the registers of a new program. The kernel clears all but RIP
    /// and RSP (`ELF_PLAT_INIT`).
    pub fn has_first_instruction(&self) -> bool {
        let Some(ProgramStart::Entry(start)) = self.outline.starts.get(self.number) else {
            return false;
        };
        let Ok(Some(Entry { event: LogEvent::Start(start), .. })) = start.clone().read() else {
            return false;
        };
        let r: Registers = start.state.registers.into();
        let low = r.rax | r.rbx | r.rcx | r.rdx | r.rsi | r.rdi | r.rbp;
        (low | r.r8 | r.r9 | r.r10 | r.r11 | r.r12 | r.r13 | r.r14 | r.r15) == 0
    }

    /// Returns the path of the program that runs here, and its auxiliary vector. If the log cannot
    /// be read, that of the manifest, and an empty vector.
    pub fn program(&self) -> (String, Vec<u8>) {
        let start = self.outline.starts.get(self.number);
        let entry = start.and_then(|start| start.cursor().read().ok().flatten());
        match entry.map(|entry| entry.event) {
            Some(LogEvent::Start(start)) => (start.program, start.auxv.0),
            _ => (self.reader.manifest().program.clone(), Vec::new()),
        }
    }

    /// Makes the run end before an entry, from now on: no move passes it, or uses a later keyframe.
    /// An earlier end stays. Called after a divergence, from which on the run is not known.
    pub fn end_before(&mut self, entry: u64) {
        self.end = self.end.min(entry);
        self.parked.end_all();
        for keyframe in self.outline.keyframes().into_iter().filter(|keyframe| *keyframe > entry) {
            self.outline.forget_keyframe(keyframe);
        }
    }

    /// Returns true if the last move tried to pass the end of the run: its recorded end, or one
    /// that [`Self::end_before`] set. False after a [`Self::seek`] to exactly that position, and at
    /// the end of a recording that was cut, where moves only return `MoveEnd::NoMoreHistory`.
    pub fn is_at_end(&self) -> bool {
        self.is_at_end
    }

    /// Returns the stored files that the programs of the run mapped, by their paths. If there are
    /// several with one path, it is the last.
    pub fn files(&self) -> &BTreeMap<String, ImageId> {
        self.outline.files()
    }

    /// Returns the ticks of all threads before a position, from the log's first entry on.
    pub fn ticks_before(&self, position: Position) -> u64 {
        self.outline.ticks_before(position.entry).saturating_add(position.ticks)
    }

    /// Returns the ticks of all threads in the run, from the log's first entry on.
    pub fn total_ticks(&self) -> u64 {
        self.outline.total_ticks()
    }

    /// Returns the thread that executes next, that of the next entry; `None` after the last entry.
    pub(super) fn next_thread(&mut self) -> Result<Option<Tid>, Error> {
        Ok(self.cursor.peek()?.map(|entry| entry.tid))
    }

    /// Keeps a regular checkpoint at the current position, if it is right after a tick or an entry,
    /// and restarts the timer for the next one. Before that, may end parked processes to make room.
    /// Otherwise does nothing.
    pub(super) fn keep_checkpoint_here(&mut self) -> Result<(), Error> {
        if self.instructions == Some(0) {
            self.parked.make_room();
            let position = self.position();
            self.epoch.keep_checkpoint(position, &self.cursor)?;
            self.checkpoint_timer = CheckpointTimer::start(self.epoch.pid());
        }
        Ok(())
    }

    /// Returns true if a run is to keep a checkpoint soon ([`CheckpointTimer::is_due`]).
    pub(super) fn is_checkpoint_due(&mut self) -> bool {
        self.checkpoint_timer.is_due(self.epoch.pid())
    }
}
