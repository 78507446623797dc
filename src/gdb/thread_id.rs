//! Thread ids of packets, `TID` or `pPID.TID` in hex. One process is served, so its number is not
//! looked at.

use super::hex;
use crate::common::Tid;

/// Which threads a packet means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ThreadChoice {
    /// `-1`.
    All,
    /// `0`.
    Any,
    /// This one.
    One(Tid),
}

/// Reads a thread id.
pub(super) fn parse(text: &[u8]) -> Option<ThreadChoice> {
    let tid = match text.strip_prefix(b"p") {
        // A process without a thread means all of its threads.
        Some(both) => hex::split(both, b'.').map_or(&b"-1"[..], |(_, tid)| tid),
        None => text,
    };
    match tid {
        b"-1" => Some(ThreadChoice::All),
        digits => match i32::try_from(hex::number(digits)?).ok()? {
            0 => Some(ThreadChoice::Any),
            tid => Some(ThreadChoice::One(Tid(tid))),
        },
    }
}

/// Writes a thread id.
pub(super) fn format(tid: Tid) -> String {
    format!("{:x}", tid.0)
}
