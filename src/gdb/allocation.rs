//! `_M` and `_m`: LLDB allocates memory for the results of expressions and for code.

use super::hex;
use crate::common::Addr;
use crate::session::{Protection, Run, Session};

/// Allocates or frees memory by `_MSIZE,PERMISSIONS` or `_mADDR`, and returns the reply: the
/// address or `OK`, or an error if that failed or a number is malformed. Returns `None` for other
/// packets, for `_M` without a comma, and if LLDB has to let the program allocate the memory.
pub(super) fn answer<R: Run>(session: &mut Session<R>, body: &[u8]) -> Option<Vec<u8>> {
    if let Some(addr) = body.strip_prefix(b"_m") {
        let is_freed = hex::number(addr).is_some_and(|addr| session.run_mut().free(Addr(addr)));
        let reply: &[u8] = if is_freed { b"OK" } else { b"E01" };
        return Some(reply.to_vec());
    }
    let (size, permissions) = hex::split(body.strip_prefix(b"_M")?, b',')?;
    let allows = |letter| permissions.contains(&letter);
    let protection = Protection { read: allows(b'r'), write: allows(b'w'), execute: allows(b'x') };
    let Some(size) = hex::number(size) else { return Some(b"E01".to_vec()) };
    let allocated = session.run_mut().allocate(size, protection)?;
    // LLDB would take the E of an error with a text for an address.
    Some(allocated.map_or_else(|_| b"E0c".to_vec(), |addr| format!("{:x}", addr.0).into_bytes()))
}
