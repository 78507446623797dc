//! `m` and `x`: reads of memory up to the first unknown byte. gdbstub's own `m` would accept any
//! length, and pads short reads.

use super::{frame, hex};
use crate::common::{Addr, Tid};
use crate::session::{Run, Session};

/// `EFAULT`: no byte is known at the address.
const UNKNOWN: &[u8] = b"E0e";
/// The maximum size of a read: its reply, with two digits per byte, fits a packet.
const MAX_READ_BYTES: u64 = (frame::PACKET_SIZE_BYTES as u64 - 16) / 2;

/// Returns the reply to `mADDR,LENGTH` or `xADDR,LENGTH`: the bytes up to the first unknown one, at
/// most [`MAX_READ_BYTES`], or an error if the byte at ADDR is unknown, unless LENGTH is 0. `None`
/// for other packets and malformed ones. With `hides_data`, writable memory counts as unknown.
pub(super) fn answer<R: Run>(
    session: &Session<R>,
    tid: Tid,
    body: &[u8],
    hides_data: bool,
) -> Option<Vec<u8>> {
    let (&kind @ (b'm' | b'x'), range) = body.split_first()? else { return None };
    let (addr, length) = hex::split(range, b',')?;
    let (addr, length) = (hex::number(addr)?, hex::number(length)?);
    let shown = if hides_data { bytes_to_writable(session, Addr(addr)) } else { u64::MAX };
    let size = length.min(MAX_READ_BYTES).min(shown);
    let mut bytes = vec![0; usize::try_from(size).unwrap_or(0)];
    let known = session.run().read_memory(tid, Addr(addr), &mut bytes);
    bytes.truncate(known);
    Some(match kind {
        _ if bytes.is_empty() && length > 0 => UNKNOWN.to_vec(),
        b'm' => hex::encode(&bytes).into_bytes(),
        // gdb 16 and newer expect a `b` before the data.
        _ => [b"b", &*frame::escape(&bytes)].concat(),
    })
}

/// Returns the distance from `addr` to the next writable byte; 0 if it is at `addr`, and `u64::MAX`
/// if there is none or the mappings are unknown.
fn bytes_to_writable<R: Run>(session: &Session<R>, addr: Addr) -> u64 {
    let regions = session.run().regions().unwrap_or_default();
    let writable = regions.iter().filter(|region| region.protection.write);
    let after = writable.filter(|region| region.range.end > addr);
    after.map(|region| region.range.start.0.saturating_sub(addr.0)).min().unwrap_or(u64::MAX)
}
