//! Logs of exact recordings: what reads is written and read as the same.

use crate::traits::Traits;
use contraflow::recording::log::{Entry, Log, LogEvent, MapChange, encode};
use std::mem::discriminant;
use std::path::Path;

/// Kinds of payloads, lengths, tags of entries, sizes of LZ4 blocks.
pub(crate) const WORDS: &[&[u8]] = &[
    &[0],
    &[1],
    &[2],
    &[2, 0, 0],
    &[2, 0, 0, 9, 0],
    &[2, 0, 0, 7, 0, 0],
    &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01],
    &[0x80, 0x80, 0x80, 0x80, 0x10],
    &[1, 0, 0, 0x40, 0],
    &[1, 0xff, 0xff, 0xff, 0xff],
    &[0x1f, 0, 1, 0, 0xff, 0xff, 0xff],
];

const FRAME_HEADER_BYTES: usize = 8;

pub(crate) fn feed(bytes: &[u8], _: &Path, traits: &mut Traits) {
    let mut bytes = bytes.to_vec();
    let damaged = read(&bytes, traits);
    check(&damaged);
    // With right checksums, more is read.
    seal(&mut bytes);
    check(&read(&bytes, traits));
}

/// Reads all entries, up to the first that cannot be read.
fn read(bytes: &[u8], traits: &mut Traits) -> Vec<Entry> {
    let mut cursor = Log::of_bytes(bytes.to_vec()).cursor();
    let mut entries = Vec::new();
    loop {
        assert_eq!(cursor.index(), entries.len() as u64);
        match cursor.read() {
            Ok(Some(entry)) => {
                shape(&entry, traits);
                entries.push(entry);
            }
            Ok(None) => break,
            Err(error) => {
                traits.note(discriminant(&error.kind));
                break;
            }
        }
    }
    traits.magnitude("entries", entries.len());
    entries
}

/// Notes the kind of an entry and of its parts.
fn shape(entry: &Entry, traits: &mut Traits) {
    let kind = discriminant(&entry.event);
    let (writes, effects) = match &entry.event {
        LogEvent::Call { effects, .. } | LogEvent::Returns { effects } => {
            (&effects.writes, Some(effects))
        }
        LogEvent::Executes { writes, .. }
        | LogEvent::Signal { writes, .. }
        | LogEvent::Born { writes, .. }
        | LogEvent::Ends { writes } => (writes, None),
        _ => return traits.note(kind),
    };
    let bytes: usize = writes.iter().map(|write| write.bytes.0.len()).sum();
    traits.note((kind, writes.len().min(3), bytes.checked_ilog2()));
    let Some(effects) = effects else { return };
    traits.note((kind, effects.state.is_some(), effects.result.signum()));
    for change in &effects.maps {
        traits.note((kind, discriminant(change)));
        if let MapChange::Map(mapped) = change {
            traits.note((discriminant(&mapped.content), mapped.name.len()));
        }
    }
}

/// Checks that entries are read as they are written.
fn check(entries: &[Entry]) {
    let written = encode(entries);
    let log = Log::of_bytes(written);
    let totals = log.totals().expect("what is written is read");
    assert_eq!(totals.entries, entries.len() as u64);
    let mut cursor = log.cursor();
    for entry in entries {
        assert_eq!(cursor.read().expect("what is written is read").as_ref(), Some(entry));
    }
    assert!(cursor.read().expect("what is written is read").is_none());
}

/// Sets the checksums of all frames. The last frame gets all bytes that are left.
fn seal(bytes: &mut [u8]) {
    let mut rest = bytes;
    while let Some((header, payloads)) = rest.split_first_chunk_mut::<FRAME_HEADER_BYTES>() {
        let length = u32::from_le_bytes([header[0], header[1], header[2], header[3]]) as usize;
        let length = length.min(payloads.len());
        let (payload, after) = payloads.split_at_mut(length);
        let size = u32::try_from(length).expect("inputs are small");
        header[..4].copy_from_slice(&size.to_le_bytes());
        header[4..].copy_from_slice(&crc32(payload).to_le_bytes());
        rest = after;
    }
}

/// The checksum of IEEE 802.3.
fn crc32(bytes: &[u8]) -> u32 {
    let shift = |sum: u32| if sum & 1 == 0 { sum >> 1 } else { sum >> 1 ^ 0xedb8_8320 };
    let byte = |sum: u32, byte: &u8| (0..8).fold(sum ^ u32::from(*byte), |sum, _| shift(sum));
    !bytes.iter().fold(u32::MAX, byte)
}
