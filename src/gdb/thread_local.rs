//! `qGetTLSAddr`: the address of a thread-local variable. gdb sends the link map of the variable's
//! file and the offset. The C library's own symbols and structures determine the address.

use super::thread_id::{self, ThreadChoice};
use super::{frame, hex};
use crate::common::Addr;
use crate::session::{Run, Session};

/// Returns the reply to `qGetTLSAddr:THREAD,OFFSET,LINKMAP`: the address, or an error if it is
/// unknown or the packet is malformed. `None` for other packets.
pub(super) fn answer<R: Run>(session: &Session<R>, body: &[u8]) -> Option<Vec<u8>> {
    let request = body.strip_prefix(b"qGetTLSAddr:")?;
    let reply = || {
        let (thread, rest) = hex::split(request, b',')?;
        let (offset, link_map) = hex::split(rest, b',')?;
        let ThreadChoice::One(tid) = thread_id::parse(thread)? else { return None };
        let link_map = Addr(hex::number(link_map)?);
        let found = session.thread_local_address(tid, link_map, hex::number(offset)?);
        Some(match found {
            Ok(addr) => format!("{:x}", addr.0).into_bytes(),
            Err(error) => frame::error_text(&error.to_string()),
        })
    };
    Some(reply().unwrap_or_else(|| b"E01".to_vec()))
}
