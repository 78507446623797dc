//! `qSearch:memory` and `qCRC`: queries about memory that the client does not read itself.

use super::{frame, hex};
use crate::common::{Addr, Tid};
use crate::session::{Run, Session};

/// The maximum size of one read of memory.
const PIECE_BYTES: usize = 1 << 16;
/// The maximum size of a pattern.
const PATTERN_LIMIT_BYTES: usize = PIECE_BYTES / 2;
/// The maximum range of one request in bytes. A longer search ends there, and the client can
/// continue it; a longer CRC is refused.
const REACH_BYTES: u64 = 1 << 32;
/// The polynomial of gdb's CRC (IEEE 802.3, most significant bit first).
const POLYNOMIAL: u32 = 0x04c1_1db7;
/// The reply for unknown memory: `EFAULT`.
const UNKNOWN: &[u8] = b"E0e";

/// Returns the reply to `qSearch:memory` or `qCRC`, an error for a malformed one; `None` for other
/// packets. Calls `interrupted` regularly, and stops with an error if it returns true.
pub(super) fn answer<R: Run>(
    session: &Session<R>,
    tid: Tid,
    body: &[u8],
    interrupted: &dyn Fn() -> bool,
) -> Option<Vec<u8>> {
    let malformed = || b"E01".to_vec();
    if let Some(request) = body.strip_prefix(b"qSearch:memory:") {
        let found = search(session, tid, request, interrupted);
        return Some(found.unwrap_or_else(malformed));
    }
    let range = body.strip_prefix(b"qCRC:")?;
    Some(crc(session, tid, range, interrupted).unwrap_or_else(malformed))
}

/// Returns the reply to a search: the address of the first match before any unknown memory, or that
/// there is none, or an error if the first address is unknown or the search was interrupted.
/// Returns `None` for a malformed request and for a pattern that is empty or too long.
fn search<R: Run>(
    session: &Session<R>,
    tid: Tid,
    request: &[u8],
    interrupted: &dyn Fn() -> bool,
) -> Option<Vec<u8>> {
    let (start, rest) = hex::split(request, b';')?;
    let (length, pattern) = hex::split(rest, b';')?;
    let pattern = frame::unescape(pattern);
    let (start, length) = (hex::number(start)?, hex::number(length)?.min(REACH_BYTES));
    if pattern.is_empty() || pattern.len() > PATTERN_LIMIT_BYTES {
        return None;
    }
    let end = start.saturating_add(length);
    let mut at = start;
    let mut window = vec![0; PIECE_BYTES];
    while at < end && end - at >= pattern.len() as u64 {
        if interrupted() {
            return Some(b"E04".to_vec());
        }
        let wanted = usize::try_from(end - at).unwrap_or(usize::MAX).min(PIECE_BYTES);
        let known = session.run().read_memory(tid, Addr(at), &mut window[..wanted]);
        let found = window[..known].windows(pattern.len()).position(|bytes| bytes == pattern);
        if let Some(offset) = found {
            return Some(format!("1,{:x}", at + offset as u64).into_bytes());
        }
        if known < wanted {
            // The pattern may be in the unknown memory, so the search ends here.
            return Some(if known == 0 && at == start { UNKNOWN.to_vec() } else { b"0".to_vec() });
        }
        at += (wanted - (pattern.len() - 1)) as u64;
    }
    Some(b"0".to_vec())
}

/// Returns the reply with the CRC of a range, or an error if some of it is unknown or the work was
/// interrupted; `None` if the range is malformed or too long.
fn crc<R: Run>(
    session: &Session<R>,
    tid: Tid,
    range: &[u8],
    interrupted: &dyn Fn() -> bool,
) -> Option<Vec<u8>> {
    let (start, length) = hex::split(range, b',')?;
    let (start, length) = (hex::number(start)?, hex::number(length)?);
    if length > REACH_BYTES {
        return None;
    }
    let end = start.checked_add(length)?;
    let (mut at, mut sum) = (start, u32::MAX);
    let mut piece = vec![0; PIECE_BYTES];
    while at < end {
        let wanted = usize::try_from(end - at).unwrap_or(usize::MAX).min(PIECE_BYTES);
        let known = session.run().read_memory(tid, Addr(at), &mut piece[..wanted]);
        if known < wanted || interrupted() {
            return Some(UNKNOWN.to_vec());
        }
        sum = piece[..known].iter().fold(sum, |sum, byte| add(sum, *byte));
        at += known as u64;
    }
    Some(format!("C{sum:x}").into_bytes())
}

/// Returns the CRC of some bytes and one more, from the CRC of the former.
fn add(sum: u32, byte: u8) -> u32 {
    (0..8).fold(sum ^ u32::from(byte) << 24, |sum, _| {
        let carry = sum >> 31 == 1;
        sum << 1 ^ if carry { POLYNOMIAL } else { 0 }
    })
}
