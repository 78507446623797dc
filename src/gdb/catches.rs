//! `QCatchSyscalls`: the system calls at which a program stops, live and in the past.

use super::hex;
use crate::session::{Catches, Run, Session, Stop, StopReason};
use std::collections::BTreeSet;

/// Sets the system calls at which the run stops, by `QCatchSyscalls:1[;NUMBER]...` or
/// `QCatchSyscalls:0`, and returns the reply. Returns `None` for other packets, and if the run does
/// not support it.
pub(super) fn answer<R: Run>(session: &mut Session<R>, body: &[u8]) -> Option<Vec<u8>> {
    let request = body.strip_prefix(b"QCatchSyscalls:")?;
    if !session.run().can_catch_calls() {
        return None;
    }
    let Some(catches) = parse(request) else { return Some(b"E01".to_vec()) };
    session.run_mut().catch_calls(catches);
    Some(b"OK".to_vec())
}

/// Returns a note for the user after a resume that ended with `stop`: how many system calls with
/// unknown numbers were skipped, and if the stop is at one. `None` if neither is so.
pub(super) fn unknown_calls_note<R: Run>(session: &Session<R>, stop: Stop) -> Option<String> {
    let gone_over = match session.run().unknown_calls() {
        0 => String::new(),
        1 => "contraflow: skipped a system call whose number is unknown\n".to_owned(),
        count => {
            format!("contraflow: skipped {count} system calls whose numbers are unknown\n")
        }
    };
    let unknown_here = match stop.reason {
        StopReason::Call(StopReason::UNKNOWN_CALL)
        | StopReason::CallReturn(StopReason::UNKNOWN_CALL) => {
            "contraflow: the number of this system call is unknown\n"
        }
        _ => "",
    };
    Some(gone_over + unknown_here).filter(|note| !note.is_empty())
}

/// Parses the text after `QCatchSyscalls:` into no system calls (`0`), all (`1`), or those listed;
/// `None` if it is malformed.
fn parse(request: &[u8]) -> Option<Catches> {
    match request {
        b"0" => Some(Catches::None),
        b"1" => Some(Catches::All),
        _ => {
            let list = request.strip_prefix(b"1;")?;
            let numbers: Option<BTreeSet<u64>> =
                list.split(|byte| *byte == b';').map(hex::number).collect();
            Some(Catches::Of(numbers?))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_calls() {
        assert_eq!(parse(b"0"), Some(Catches::None));
        assert_eq!(parse(b"1"), Some(Catches::All));
        assert_eq!(parse(b"1;1;3b"), Some(Catches::Of(BTreeSet::from([1, 59]))));
        for broken in [&b""[..], b"2", b"1;", b"1;x", b"01"] {
            assert_eq!(parse(broken), None);
        }
    }
}
