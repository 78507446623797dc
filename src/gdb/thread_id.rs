//! Thread IDs of packets, `TID` or `pPID.TID` in hex. Thread IDs are unique, so the process matters
//! only without a thread.

use super::hex;
use crate::common::{Pid, Tid};

/// The threads that a packet names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ThreadChoice {
    /// All threads (`-1`).
    All,
    /// Any thread (`0`).
    Any,
    /// This thread.
    One(Tid),
}

/// Parses a thread ID; `None` if its thread is malformed. The process is ignored, malformed or not;
/// without a thread (`pPID`), it means all threads.
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

/// Returns the process of a thread ID that names all threads of one process (`pPID` or `pPID.-1`);
/// `None` for others.
pub(super) fn whole_process(text: &[u8]) -> Option<Pid> {
    let both = text.strip_prefix(b"p")?;
    let (pid, tid) = hex::split(both, b'.').unwrap_or((both, b"-1"));
    (tid == b"-1").then(|| process(pid)).flatten()
}

/// Parses the ID of a process, in hex; `None` if it is malformed or too large. Does not check that
/// there is such a process.
pub(super) fn process(text: &[u8]) -> Option<Pid> {
    hex::number(text).and_then(|pid| i32::try_from(pid).ok()).map(Pid)
}

/// Formats a thread ID with its process, `pPID.TID`, for clients that handle several processes.
pub(super) fn format_with_process(pid: Pid, tid: Tid) -> String {
    format!("p{:x}.{:x}", pid.0, tid.0)
}

/// Formats a thread ID without its process.
pub(super) fn format(tid: Tid) -> String {
    format!("{:x}", tid.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_with_and_without_a_process() {
        for (text, choice) in [
            (&b"1f"[..], ThreadChoice::One(Tid(31))),
            (b"p2.1f", ThreadChoice::One(Tid(31))),
            (b"p2", ThreadChoice::All),
            (b"p2.-1", ThreadChoice::All),
            (b"-1", ThreadChoice::All),
            (b"p2.0", ThreadChoice::Any),
        ] {
            assert_eq!(parse(text), Some(choice));
        }
        for broken in [&b""[..], b"p", b"p2.", b"x", b"p2.x", b"fffffffff"] {
            assert!(parse(broken).is_none() || whole_process(broken).is_none());
        }
        assert_eq!(whole_process(b"p2.-1"), Some(Pid(2)));
        assert_eq!(whole_process(b"p2"), Some(Pid(2)));
        for other in [&b"p2.1f"[..], b"-1", b"2", b"p-1.-1", b"p"] {
            assert_eq!(whole_process(other), None);
        }
        assert_eq!(parse(format_with_process(Pid(2), Tid(31)).as_bytes()), parse(b"1f"));
    }
}
