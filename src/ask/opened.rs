//! A recording that is open for questions. Positions are numbers. In a path, they number the
//! instructions in the order of all threads. In an exact recording, the *moment* of a position is
//! the number of log entries and ticks (counted branches) before it, so each of these begins
//! another moment; the position is its moment and the number of instructions since that began
//! ([`Position::exact`]).

use super::clock::TimedPlaces;
use super::error::Error;
use super::functions::Functions;
use super::place::Place;
use super::walk::ThreadPath;
use crate::common::{Addr, Tid};
use crate::recording::Reader;
use crate::replay::Replay;
use crate::session::{Position, symbols_of};
use crate::symbols::Symbols;
use crate::timeline::{Options, Timeline};
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread::{self, ScopedJoinHandle};
use std::time::Duration;

/// The maximum number of threads whose paths are walked at the same time.
const AT_A_TIME: usize = 8;
/// The time between two checks for an interrupt while paths are walked.
const CHECK_PERIOD: Duration = Duration::from_millis(20);

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
    /// The points of an exact recording's path whose moments are known (not [`Place`]s of code);
    /// `None` for a path recording.
    pub(super) places: Option<TimedPlaces>,
    /// The replay of an exact recording; `None` for a path recording. A question that moves it
    /// takes it out and puts it back.
    pub(super) replay: Option<Replay>,
    /// The symbols of all code that the run mapped.
    pub(super) symbols: Symbols,
}

impl Asked {
    /// Opens a recording for questions, and stores the index of its path in the recording, so that
    /// the next open is fast; it is no error if the index cannot be stored.
    pub fn open(recorded: Recorded) -> Result<Self, Error> {
        let replay = recorded.exact.map(Replay::open).transpose()?;
        let places = match &replay {
            Some(replay) => Some(TimedPlaces::new(&recorded.path.path_places()?, replay)),
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

    /// Returns the function and line of an address, as far as they are known. Looks them up anew
    /// each time; for many addresses, keep a cache (`Self::functions`).
    pub fn place(&self, addr: Addr) -> Arc<Place> {
        self.functions().place(addr)
    }

    /// Returns true if the recording is exact, so that all values of the run are known.
    pub fn is_exact(&self) -> bool {
        self.replay.is_some()
    }

    /// Formats a position as users read and write it: `1234`, or `1234.5` in an exact recording.
    pub fn text_of(&self, position: u64) -> String {
        Position::text(position, self.is_exact())
    }

    /// Parses a position that [`Self::text_of`] returned, or a user wrote. Fails with
    /// [`Error::NoPosition`] if the text is none, such as `1234.5` for a path recording; does not
    /// check whether the run is as long.
    pub fn position_of(&self, text: &str) -> Result<u64, Error> {
        let position = Position::parse(text, self.is_exact());
        position.ok_or_else(|| Error::NoPosition(text.to_owned()))
    }

    /// Returns the position at the end of the run: of a path recording, the number of all
    /// instructions; of an exact one, the start of its last moment.
    pub fn last_position(&self) -> u64 {
        match &self.replay {
            Some(replay) => Position::exact(replay.last_moment(), 0),
            None => self.timeline.total(),
        }
    }

    /// Returns the highest number of a position in the last moment of an exact run, whose start is
    /// [`Self::last_position`]. For callers that have taken the replay out of `self`.
    pub(super) fn highest_position_of(replay: &Replay) -> u64 {
        Position::exact(replay.last_moment(), u64::MAX)
    }

    /// Returns the threads in the order of their beginnings.
    pub(super) fn tids(&self) -> Vec<Tid> {
        self.timeline.threads().collect()
    }

    /// Calls `walk` for each thread of the run, for several at the same time in threads that it
    /// starts, and passes the results to `consume` in the order of the threads. Calls `interrupted`
    /// regularly; once it returns true, sets the flag that `walk` gets, and returns false: then
    /// results may be missing. Passes a panic of `walk` on.
    pub(super) fn for_each_thread<T: Send>(
        &self,
        walk: impl Fn(Tid, &AtomicBool) -> T + Sync,
        mut consume: impl FnMut(T),
        interrupted: &dyn Fn() -> bool,
    ) -> bool {
        let is_to_end = AtomicBool::new(false);
        for tids in self.tids().chunks(AT_A_TIME) {
            let results = thread::scope(|scope| {
                let (walk, is_to_end) = (&walk, &is_to_end);
                // Nothing is sent: the channel closes when all walks have ended.
                let (open, closed) = channel::<()>();
                let start = |tid: &Tid| {
                    let (tid, open) = (*tid, open.clone());
                    scope.spawn(move || {
                        let _open = open;
                        walk(tid, is_to_end)
                    })
                };
                let walks: Vec<_> = tids.iter().map(start).collect();
                drop(open);
                while closed.recv_timeout(CHECK_PERIOD) == Err(RecvTimeoutError::Timeout) {
                    is_to_end.fetch_or(interrupted(), Ordering::Relaxed);
                }
                let join = |walk: ScopedJoinHandle<'_, T>| walk.join();
                walks.into_iter().map(join).collect::<Vec<_>>()
            });
            for result in results {
                consume(result.unwrap_or_else(|panic| resume_unwind(panic)));
            }
            if is_to_end.load(Ordering::Relaxed) || interrupted() {
                return false;
            }
        }
        true
    }

    /// Returns the path of a thread. The positions of a walk are those of the recording.
    pub(super) fn path(&self, tid: Tid) -> ThreadPath<'_> {
        ThreadPath { timeline: &self.timeline, places: self.places.as_ref(), tid }
    }

    /// Returns a new, empty cache of functions and lines; it can be used by one thread only.
    pub(super) fn functions(&self) -> Functions<'_> {
        Functions::new(&self.symbols)
    }

    /// Returns the addresses that `code` names, ascending. For `FILE:LINE`, those at which the line
    /// begins; for the name of functions, those after the prologue of each; for `0x401136` or
    /// `*0x401136`, this address, whether there is code or not. Fails with [`Error::NoCode`] if
    /// there are none.
    pub fn addresses_of_code(&self, code: &str) -> Result<Vec<Addr>, Error> {
        let text = code.strip_prefix('*').unwrap_or(code);
        if let Some(digits) = text.strip_prefix("0x") {
            let addr = u64::from_str_radix(digits, 16).map(Addr);
            return Ok(vec![addr.map_err(|_| Error::NoCode(code.to_owned()))?]);
        }
        let mut addrs = match code.rsplit_once(':') {
            Some((file, line)) if line.bytes().all(|byte| byte.is_ascii_digit()) => {
                let line = line.parse();
                line.map_or_else(|_| Vec::new(), |line| self.symbols.addresses_of_line(file, line))
            }
            _ => {
                let starts = self.symbols.addresses_of_function(code);
                starts.into_iter().map(|start| self.symbols.address_after_prologue(start)).collect()
            }
        };
        addrs.sort_unstable();
        addrs.dedup();
        if addrs.is_empty() { Err(Error::NoCode(code.to_owned())) } else { Ok(addrs) }
    }
}
