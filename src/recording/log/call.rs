//! Encodes the entry of a system call without making an [`super::Entry`] first: most entries of
//! most logs are such calls.

use crate::common::{Addr, Tid};

/// A system call that changed no mappings, and no registers but those that every call changes: the
/// entry of a [`super::LogEvent::Call`].
#[derive(Clone, Copy, Debug)]
pub struct CallEntry<'a> {
    /// The thread that made the call.
    pub tid: Tid,
    /// The ticks that the thread executed since its last entry.
    pub ticks: u64,
    /// The hash of the thread's registers before the call ([`super::check_of`]).
    pub check: u32,
    /// The call's number.
    pub number: u64,
    /// RAX after the call.
    pub result: i64,
    /// The memory that the kernel wrote: the address of its first byte, and the bytes. No bytes are
    /// no write.
    pub written: (Addr, &'a [u8]),
}

/// The number of [`super::LogEvent::Call`] among the events.
const CALL: u64 = 2;
/// The maximum size of an encoded entry before its bytes: nine numbers of ten bytes.
const LARGEST_HEAD_BYTES: usize = 90;

impl CallEntry<'_> {
    /// Encodes the entry as postcard encodes the same [`super::Entry`], and appends it to `to`.
    pub(super) fn encode(&self, to: &mut Vec<u8>) {
        let &Self { tid, ticks, check, number, result, written: (addr, bytes) } = self;
        let mut head = Head { bytes: [0; LARGEST_HEAD_BYTES], len: 0 };
        for number in [zigzag(tid.0.into()), ticks, check.into(), CALL, number, zigzag(result)] {
            head.put(number);
        }
        head.put(u64::from(!bytes.is_empty()));
        if !bytes.is_empty() {
            head.put(addr.0);
            head.put(bytes.len() as u64);
        }
        to.extend_from_slice(&head.bytes[..head.len]);
        to.extend_from_slice(bytes);
        // No changes of the mappings, and no state.
        to.extend_from_slice(&[0, 0]);
    }
}

/// The beginning of an encoded entry.
struct Head {
    bytes: [u8; LARGEST_HEAD_BYTES],
    len: usize,
}

impl Head {
    /// Appends a number, seven bits a byte, the lowest first.
    fn put(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.push(number.to_le_bytes()[0] | 0x80);
            number >>= 7;
        }
        self.push(number.to_le_bytes()[0]);
    }

    fn push(&mut self, byte: u8) {
        self.bytes[self.len] = byte;
        self.len += 1;
    }
}

/// Returns a signed number as one whose lowest bit is the sign.
fn zigzag(number: i64) -> u64 {
    (number << 1 ^ number >> 63).cast_unsigned()
}

#[cfg(test)]
mod tests {
    use super::super::{self as log, Bytes, encode_entry};
    use super::*;

    #[test]
    fn it_is_encoded_like_the_entry() {
        for (bytes, number) in [(&[][..], 1), (&[1, 2, 3], 228), (&[7; 5000], u64::MAX)] {
            let written = (Addr(0x7fff_0000_1000), bytes);
            let (tid, ticks, check, result) = (Tid(77), 300, u32::MAX, i64::MIN / 3);
            let mut encoded = Vec::new();
            CallEntry { tid, ticks, check, number, result, written }.encode(&mut encoded);
            let write = || log::Write { addr: written.0, bytes: Bytes(bytes.to_vec()) };
            let writes = if bytes.is_empty() { Vec::new() } else { vec![write()] };
            let effects = log::CallEffects { result, writes, maps: Vec::new(), state: None };
            let event = log::LogEvent::Call { number, effects };
            let entry = log::Entry { tid, ticks, check, event };
            let mut expected = Vec::new();
            encode_entry(&entry, &mut expected);
            assert_eq!(encoded, expected);
        }
    }
}
