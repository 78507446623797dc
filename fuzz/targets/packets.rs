//! Packets: what decodes encodes to something that decodes to the same.

use crate::traits::Traits;
use contraflow::pt::{BlockContext, Packets, decode_in, encode, find_psb};
use std::mem::discriminant;
use std::path::Path;

/// First bytes of packets.
pub(crate) const WORDS: &[&[u8]] = &[
    &[
        0x02, 0x82, 0x02, 0x82, 0x02, 0x82, 0x02, 0x82, 0x02, 0x82, 0x02, 0x82, 0x02, 0x82, 0x02,
        0x82,
    ],
    &[0x02, 0x23],
    &[0x02, 0x03],
    &[0x02, 0x43],
    &[0x02, 0x73],
    &[0x02, 0x83],
    &[0x02, 0xa3],
    &[0x02, 0xc3, 0x88],
    &[0x02, 0xc8],
    &[0x02, 0xf3],
    &[0x02, 0x12],
    &[0x02, 0x32],
    &[0x02, 0x62],
    &[0x02, 0xe2],
    &[0x02, 0xc2],
    &[0x02, 0xa2],
    &[0x02, 0x22],
    &[0x02, 0x63],
    &[0x02, 0x33],
    &[0x02, 0x13],
    &[0x02, 0x53],
    &[0x02, 0xd3],
    &[0x99, 0x01],
    &[0x99, 0x02],
    &[0x99, 0x20],
    &[0x99, 0x21],
    &[0x19, 1, 2, 3, 4, 5, 6, 7],
    &[0x59, 1],
    &[0x03],
    &[0x2d, 0x05, 0x10],
    &[0x31, 0x00, 0x10],
    &[0x3d, 0x05, 0x10],
    &[0x6d, 0x05, 0x10, 0, 0, 0, 0],
    &[0x71, 0x00, 0x10, 0, 0, 0, 0],
    &[0x7d, 0x05, 0x10, 0, 0, 0, 0],
    &[0x01],
];

pub(crate) fn feed(bytes: &[u8], _: &Path, traits: &mut Traits) {
    let mut last = None;
    let mut before = None;
    let mut context = BlockContext::None;
    for (offset, packet) in Packets::new(bytes) {
        assert!(last.is_none_or(|last| last < offset) && offset < bytes.len() as u64);
        last = Some(offset);
        let packet = match packet {
            Ok(packet) => packet,
            Err(error) => {
                traits.note(("no packet", discriminant(&error), before));
                (before, context) = (None, BlockContext::None);
                continue;
            }
        };
        traits.note((context, discriminant(&packet)));
        before = Some(discriminant(&packet));
        let mut again = Vec::new();
        encode(&packet, &mut again);
        let decoded = decode_in(&again, &mut context);
        assert_eq!(decoded, Ok((packet, again.len())));
    }
    // A reader that looks for the first PSB finds it.
    let first = Packets::synced(bytes).next().map(|(offset, _)| offset);
    assert_eq!(first, find_psb(bytes, 0).map(|offset| offset as u64));
}
