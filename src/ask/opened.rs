//! A recording that is open for questions.

use super::clock::Places;
use super::error::Error;
use super::functions::Functions;
use super::place::Place;
use super::walk::Path;
use crate::common::{Addr, Tid};
use crate::recording::Reader;
use crate::replay::Replay;
use crate::session::{Position, symbols_of};
use crate::symbols::Symbols;
use crate::timeline::{Options, Timeline};
use std::panic::resume_unwind;
use std::sync::Arc;
use std::thread::{self, ScopedJoinHandle};

/// The maximum number of threads whose paths are walked at the same time.
const AT_A_TIME: usize = 8;

/// The files of a recording: its path, and its log if it is exact.
#[derive(Debug)]
pub struct Recorded {
    /// The recording of the path, or the path of an exact one.
    pub path: Reader,
    /// The exact recording; `None` if only the path was recorded.
    pub exact: Option<Reader>,
}

/// A recording that is open for questions.
pub struct Asked {
    pub(super) timeline: Timeline,
    /// The places of an exact recording.
    pub(super) places: Option<Places>,
    /// The replay of an exact recording. A question that moves it takes it out and puts it back.
    pub(super) replay: Option<Replay>,
    pub(super) symbols: Symbols,
}

impl Asked {
    /// Opens a recording for questions, and stores the index of its path for the next open.
    pub fn open(recorded: Recorded) -> Result<Self, Error> {
        let replay = recorded.exact.map(Replay::open).transpose()?;
        let places = match &replay {
            Some(replay) => Some(Places::new(&recorded.path.path_places()?, replay)),
            None => None,
        };
        let timeline = Timeline::open(recorded.path, Options::default())?;
        // If it cannot be stored, the next open builds it again.
        let _ = timeline.save_index();
        let symbols = symbols_of(timeline.images());
        Ok(Self { timeline, places, replay, symbols })
    }

    /// Returns the timeline of the recording's path.
    pub fn timeline(&self) -> &Timeline {
        &self.timeline
    }

    /// Returns the symbols of all code that the run mapped.
    pub fn symbols(&self) -> &Symbols {
        &self.symbols
    }

    /// Returns the function and line of an address.
    pub fn place(&self, addr: Addr) -> Arc<Place> {
        self.functions().place(addr)
    }

    /// Returns true if all values of the run are known.
    pub fn is_exact(&self) -> bool {
        self.replay.is_some()
    }

    /// Formats a position as users read and write it.
    pub fn text_of(&self, position: u64) -> String {
        Position::text(position, self.is_exact())
    }

    /// Parses a position that [`Self::text_of`] returned, or a user wrote.
    pub fn position_of(&self, text: &str) -> Result<u64, Error> {
        let position = Position::parse(text, self.is_exact());
        position.ok_or_else(|| Error::NoPosition(text.to_owned()))
    }

    /// Returns the last position of the run.
    pub fn last_position(&self) -> u64 {
        match &self.replay {
            Some(replay) => Position::exact(replay.last_moment(), 0),
            None => self.timeline.total(),
        }
    }

    /// Returns the highest number of a position in the last moment of an exact run. For callers
    /// that have taken the replay out of `self`.
    pub(super) fn last_position_of(replay: &Replay) -> u64 {
        Position::exact(replay.last_moment(), u64::MAX)
    }

    pub(super) fn tids(&self) -> Vec<Tid> {
        self.timeline.threads().collect()
    }

    /// Calls `walk` for each thread, for several at the same time, and passes the results to `take`
    /// in the order of the threads. Returns false if `is_over` returned true between them: then
    /// results may be missing.
    pub(super) fn each_thread<T: Send>(
        &self,
        walk: impl Fn(Tid) -> T + Sync,
        mut take: impl FnMut(T),
        is_over: &dyn Fn() -> bool,
    ) -> bool {
        for tids in self.tids().chunks(AT_A_TIME) {
            let results = thread::scope(|scope| {
                let walk = &walk;
                let walks: Vec<_> =
                    tids.iter().map(|tid| scope.spawn(move || walk(*tid))).collect();
                let join = |walk: ScopedJoinHandle<'_, T>| walk.join();
                walks.into_iter().map(join).collect::<Vec<_>>()
            });
            for result in results {
                take(result.unwrap_or_else(|panic| resume_unwind(panic)));
            }
            if is_over() {
                return false;
            }
        }
        true
    }

    /// Returns the path of a thread.
    pub(super) fn path(&self, tid: Tid) -> Path<'_> {
        Path { timeline: &self.timeline, places: self.places.as_ref(), tid }
    }

    pub(super) fn functions(&self) -> Functions<'_> {
        Functions::new(&self.symbols)
    }

    /// Returns the addresses that `what` names: those of a line (`FILE:LINE`), that after the
    /// prologue of each function with a name, or an address (`0x401136`), which is not checked.
    /// Fails if there are none.
    pub fn code_of(&self, what: &str) -> Result<Vec<Addr>, Error> {
        let text = what.strip_prefix('*').unwrap_or(what);
        if let Some(digits) = text.strip_prefix("0x") {
            let addr = u64::from_str_radix(digits, 16).map(Addr);
            return Ok(vec![addr.map_err(|_| Error::NoCode(what.to_owned()))?]);
        }
        let mut addrs = match what.rsplit_once(':') {
            Some((file, line)) if line.bytes().all(|byte| byte.is_ascii_digit()) => {
                let line = line.parse();
                line.map_or_else(|_| Vec::new(), |line| self.symbols.addresses_of_line(file, line))
            }
            _ => {
                let starts = self.symbols.addresses_of_function(what);
                starts.into_iter().map(|start| self.symbols.address_after_prologue(start)).collect()
            }
        };
        addrs.sort_unstable();
        addrs.dedup();
        if addrs.is_empty() { Err(Error::NoCode(what.to_owned())) } else { Ok(addrs) }
    }
}
