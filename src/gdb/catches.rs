//! `QCatchSyscalls`: the system calls at which a live program stops.

use super::hex;
use crate::session::{Catches, Run, Session};
use std::collections::BTreeSet;

/// The reply to `QCatchSyscalls:1[;NUMBER]...` or `QCatchSyscalls:0`; `None` for other packets, and
/// where nothing can be caught.
pub(super) fn answer<R: Run>(session: &mut Session<R>, body: &[u8]) -> Option<Vec<u8>> {
    let request = body.strip_prefix(b"QCatchSyscalls:")?;
    if !session.run().can_catch_calls() {
        return None;
    }
    let Some(catches) = parse(request) else { return Some(b"E01".to_vec()) };
    session.run_mut().catch_calls(catches);
    Some(b"OK".to_vec())
}

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
