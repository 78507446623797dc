//! A second process of a replay, set aside at another position of the run than the replay's.

use super::epoch::Epoch;
use super::loading_keyframe::LoadingKeyframe;
use crate::recording::log::Cursor;

/// A process that is set aside, and its position. The fields are those of
/// [`Replay`](super::Replay), which swaps them with its own to continue there.
#[derive(Debug)]
pub(super) struct ParkedProcess {
    pub(super) epoch: Epoch,
    pub(super) number: usize,
    pub(super) cursor: Cursor,
    pub(super) ticks: u64,
    pub(super) instructions: Option<u64>,
}

/// A process into which a keyframe is being loaded, of program `number` of the run. The log goes on
/// at `cursor` after it.
#[derive(Debug)]
pub(super) struct LoadingProcess {
    pub(super) keyframe: LoadingKeyframe,
    pub(super) number: usize,
    pub(super) cursor: Cursor,
}

impl LoadingProcess {
    /// Returns the process, of which all must be loaded, at its beginning.
    pub(super) fn into_parked(self) -> ParkedProcess {
        let Self { keyframe, number, cursor } = self;
        let epoch = keyframe.into_loaded();
        ParkedProcess { epoch, number, cursor, ticks: 0, instructions: Some(0) }
    }
}

/// The state of the preparation for going back from the end ([`Replay::prepare`]).
///
/// [`Replay::prepare`]: super::Replay::prepare
#[derive(Debug, Default)]
pub(super) enum Preparation {
    /// No preparation is under way.
    #[default]
    Nothing,
    /// The preparation was interrupted while its process was being loaded. It can continue.
    Loading(Box<LoadingProcess>),
    /// The preparation was interrupted when its process was at this position. It can continue.
    Interrupted(Box<ParkedProcess>),
    /// The preparation failed. It is not tried again before the replay is extended, or loads
    /// another process since its own begins too late ([`Replay::load_before`]).
    ///
    /// [`Replay::load_before`]: super::Replay::load_before
    Failed,
}
