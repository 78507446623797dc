//! The current place of the session in its history, in the form in which the client shows it.

use crate::gdb::position_text;
use crate::session::{AnySession, Ending, StopReason};
use serde_json::{Value, json};

/// The current place of the session in its history, with the reason of its stop.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct CurrentPlace {
    /// The position, and the last position of the history; `None` without a history.
    at: Option<(u64, u64)>,
    /// True if the registers and memory of the past are known.
    pub(super) is_exact: bool,
    /// The ID of the thread that stopped.
    pub(super) thread: i32,
    /// The reason of the last stop.
    pub(super) reason: StopReason,
    /// The estimated time since the start of the run; `None` if it is unknown.
    time_ns: Option<u64>,
    /// The end of the run, also if the position is before it.
    pub(super) ending: Ending,
    /// The signal that killed the program, if the position is at this end.
    pub(super) fatal: Option<i32>,
    /// True if the program has not ended.
    pub(super) is_running: bool,
}

impl CurrentPlace {
    /// Reads the current place from the session. Nothing moves.
    pub(super) fn of(session: &mut dyn AnySession) -> Self {
        let stop = session.last_stop();
        let run = session.run();
        let ending = run.describe().ending;
        Self {
            at: run.position().map(|position| (position.at, position.total)),
            is_exact: run.is_exact(),
            thread: stop.thread.0,
            reason: stop.reason,
            time_ns: run.time_ns(),
            ending,
            fatal: run.fatal_signal().map(|(_, signal)| signal),
            is_running: ending == Ending::Running,
        }
    }

    /// Returns true if another place has the same position and thread. Its reason may differ: calls
    /// of functions by gdb change it.
    pub(super) fn is_same_place(&self, other: &Self) -> bool {
        (self.at, self.thread) == (other.at, other.thread)
    }

    /// Returns true if the position is before the end of the history; false without a history.
    pub(super) fn is_past(&self) -> bool {
        self.at.is_some_and(|(at, total)| at < total)
    }

    /// Returns true if the position is at the end of the history; false without a history.
    pub(super) fn is_at_end(&self) -> bool {
        self.at.is_some_and(|(at, total)| at >= total)
    }

    /// Returns the share of the history before the position; `None` without a history.
    fn share(&self) -> Option<f64> {
        self.at.map(|(at, total)| share(at, total))
    }

    /// Describes the position for a user if it is in the past; `None` at the end of the history,
    /// and without one.
    pub(super) fn past_text(&self) -> Option<String> {
        let (at, total) = self.at.filter(|_| self.is_past())?;
        let [at, total] = [at, total].map(|at| position_text(at, self.is_exact));
        let percent = self.share().unwrap_or_default() * 100.0;
        Some(format!("in the past: position {at} of {total} ({percent:.2}%)"))
    }

    /// Returns the place in the form of the answer to `contraflow/when`.
    pub(super) fn json(&self) -> Value {
        let text = |at| position_text(at, self.is_exact);
        json!({
            "position": self.at.map(|(at, _)| text(at)),
            "end": self.at.map(|(_, total)| text(total)),
            "share": self.share(),
            "thread": self.thread,
            "timeNs": self.time_ns,
            "isPast": self.is_past(),
            "isExact": self.is_exact,
            "isLive": self.is_running,
            "ending": self.ending.to_string(),
        })
    }
}

/// Returns the share of a history that is before a position: from 0 at its beginning to 1 at its
/// end and more beyond it, or 1 for an empty history.
pub(super) fn share(at: u64, total: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "it is shown with few decimals")]
    if total == 0 { 1.0 } else { at as f64 / total as f64 }
}
