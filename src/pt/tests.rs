//! Tests packets: round trips of all of them, hostile bytes, and synchronization against a simple
//! slow search.

use super::{
    BlockContext, Errata, Erratum, ExecMode, IpCompression, IpPayload, LastIp, PSB, Packet,
    PacketError, Packets, PayloadSize, Tnt, decode, decode_in, encode, find_psb, find_psb_back,
};
use crate::common::Addr;
use proptest::prelude::*;

fn tnt(max_len: u8) -> impl Strategy<Value = Tnt> {
    (1..=max_len, any::<u64>()).prop_map(|(len, bits)| Tnt { bits: bits & ((1 << len) - 1), len })
}

fn payload() -> impl Strategy<Value = IpPayload> {
    let forms = [
        (IpCompression::Suppressed, 0),
        (IpCompression::Update16, 0xffff),
        (IpCompression::Update32, 0xffff_ffff),
        (IpCompression::SignExtend48, 0xffff_ffff_ffff),
        (IpCompression::Update48, 0xffff_ffff_ffff),
        (IpCompression::Full, u64::MAX),
    ];
    (prop::sample::select(forms.to_vec()), any::<u64>())
        .prop_map(|((compression, mask), ip)| IpPayload { compression, value: ip & mask })
}

fn exec_mode() -> impl Strategy<Value = ExecMode> {
    prop::sample::select(vec![ExecMode::Bits16, ExecMode::Bits32, ExecMode::Bits64])
}

fn sized_value() -> impl Strategy<Value = (PayloadSize, u64)> {
    prop_oneof![
        any::<u32>().prop_map(|value| (PayloadSize::Bytes4, u64::from(value))),
        any::<u64>().prop_map(|value| (PayloadSize::Bytes8, value)),
    ]
}

fn flow_packet() -> impl Strategy<Value = Packet> {
    prop_oneof![
        Just(Packet::Pad),
        Just(Packet::Psb),
        Just(Packet::PsbEnd),
        Just(Packet::Ovf),
        Just(Packet::TraceStop),
        tnt(6).prop_map(Packet::TntShort),
        tnt(47).prop_map(Packet::TntLong),
        payload().prop_map(Packet::Tip),
        payload().prop_map(Packet::TipPge),
        payload().prop_map(Packet::TipPgd),
        payload().prop_map(Packet::Fup),
        (exec_mode(), any::<bool>())
            .prop_map(|(mode, interrupts)| Packet::ModeExec { mode, interrupts }),
        (0..3_u8).prop_map(|n| Packet::ModeTsx { in_tx: n == 1, aborted: n == 2 }),
        (any::<u64>(), any::<bool>())
            .prop_map(|(cr3, non_root)| Packet::Pip { cr3: cr3 & 0x000f_ffff_ffff_ffe0, non_root }),
        any::<u64>().prop_map(|base| Packet::Vmcs(base & 0x000f_ffff_ffff_f000)),
    ]
}

fn time_packet() -> impl Strategy<Value = Packet> {
    prop_oneof![
        any::<u64>().prop_map(|tsc| Packet::Tsc(tsc >> 8)),
        any::<u8>().prop_map(Packet::Mtc),
        (any::<u16>(), 0..512_u16)
            .prop_map(|(ctc, fast_counter)| Packet::Tma { ctc, fast_counter }),
        (any::<u64>(), 0..64_u32).prop_map(|(cycles, shift)| Packet::Cyc(cycles >> shift)),
        any::<u8>().prop_map(Packet::Cbr),
    ]
}

fn rare_packet() -> impl Strategy<Value = Packet> {
    let nibble = 0..16_u8;
    prop_oneof![
        any::<u64>().prop_map(Packet::Mnt),
        (sized_value(), any::<bool>()).prop_map(|((size, value), ip)| Packet::Ptw {
            value,
            size,
            ip
        }),
        any::<bool>().prop_map(|ip| Packet::ExStop { ip }),
        (any::<u32>(), any::<u32>())
            .prop_map(|(hints, extensions)| Packet::Mwait { hints, extensions }),
        (any::<bool>(), nibble.clone(), nibble.clone())
            .prop_map(|(hardware, state, sub_state)| Packet::PwrE { hardware, state, sub_state }),
        (nibble.clone(), nibble.clone(), nibble).prop_map(|(last, deepest, wake)| Packet::PwrX {
            last,
            deepest,
            wake
        }),
        (0..32_u8, sized_value()).prop_map(|(kind, (size, _))| Packet::Bbp { kind, size }),
        (0..32_u8, sized_value()).prop_map(|(id, (size, value))| Packet::Bip { id, value, size }),
        any::<bool>().prop_map(|ip| Packet::Bep { ip }),
        (0..32_u8, any::<u8>(), any::<bool>()).prop_map(|(kind, vector, ip)| Packet::Cfe {
            kind,
            vector,
            ip
        }),
        (0..64_u8, any::<u64>()).prop_map(|(kind, payload)| Packet::Evd { kind, payload }),
        (any::<u8>(), any::<bool>(), any::<bool>(), any::<Option<u16>>()).prop_map(
            |(triggers, ip, multiple, instructions)| Packet::Trig {
                triggers,
                ip,
                multiple,
                instructions
            }
        ),
    ]
}

fn packet() -> impl Strategy<Value = Packet> {
    prop_oneof![flow_packet(), time_packet(), rare_packet()]
}

/// Returns the context in which `packet` can be decoded.
fn context_for(packet: &Packet) -> BlockContext {
    match *packet {
        Packet::Bip { size, .. } => BlockContext::Block(size),
        _ => BlockContext::None,
    }
}

fn encoded(packet: &Packet) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(packet, &mut bytes);
    bytes
}

proptest! {
    #[test]
    fn decode_undoes_encode(packet in packet(), tail in prop::collection::vec(any::<u8>(), 0..12)) {
        let mut bytes = encoded(&packet);
        let len = bytes.len();
        bytes.extend(tail);
        prop_assert_eq!(decode_in(&bytes, &mut context_for(&packet)), Ok((packet, len)));
    }

    #[test]
    fn a_cut_packet_is_truncated(packet in packet(), cut in any::<prop::sample::Index>()) {
        let bytes = encoded(&packet);
        let part = &bytes[..cut.index(bytes.len())];
        let decoded = decode_in(part, &mut context_for(&packet));
        prop_assert_eq!(decoded, Err(PacketError::Truncated));
    }

    #[test]
    fn any_bytes_decode_to_something(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        let mut end = 0;
        for (offset, decoded) in Packets::new(&bytes) {
            prop_assert!(offset >= end && offset < bytes.len() as u64);
            end = offset + u64::from(decoded.is_ok());
        }
    }

    #[test]
    fn a_stream_gives_its_packets_back(
        packets in prop::collection::vec(prop_oneof![flow_packet(), time_packet()], 0..40),
    ) {
        let mut bytes = Vec::new();
        for packet in &packets {
            encode(packet, &mut bytes);
        }
        let decoded: Vec<_> = Packets::new(&bytes).filter_map(|(_, packet)| packet.ok()).collect();
        prop_assert_eq!(decoded, packets);
    }

    #[test]
    fn reconstruct_undoes_compress(
        ips in prop::collection::vec((any::<u64>(), 0..64_u32, any::<bool>()), 1..40),
    ) {
        let (mut writer, mut reader) = (LastIp::new(), LastIp::new());
        let mut last = 0_u64;
        for (bits, shift, reset) in ips {
            if reset {
                writer.reset();
                reader.reset();
            }
            // Differs from the last IP in all positions, so that every form occurs.
            last ^= bits >> shift;
            let payload = writer.compress(Addr(last));
            prop_assert_eq!(reader.reconstruct(payload), Some(Addr(last)));
            prop_assert_eq!(reader, writer);
        }
    }

    #[test]
    fn psb_search_is_the_slow_search(
        pieces in prop::collection::vec(
            prop_oneof![
                Just(PSB.to_vec()),
                (1..18_usize).prop_map(|n| PSB.iter().copied().cycle().take(n).collect()),
                Just(vec![0x82]),
                prop::collection::vec(any::<u8>(), 0..20),
            ],
            0..8,
        ),
        from in 0..80_usize,
    ) {
        let bytes = pieces.concat();
        prop_assert_eq!(find_psb(&bytes, from), slow_find(&bytes, from, bytes.len()).first().copied());
        prop_assert_eq!(find_psb_back(&bytes, from), slow_find(&bytes, 0, from).last().copied());
    }
}

/// Returns every PSB that starts in `from..before`. One that 02 82 follows is the start of a later
/// PSB, and is not returned.
fn slow_find(bytes: &[u8], from: usize, before: usize) -> Vec<usize> {
    (from..before)
        .filter(|&at| bytes.get(at..).is_some_and(|rest| rest.starts_with(&PSB)))
        .filter(|&at| !bytes[at + PSB.len()..].starts_with(&PSB[..2]))
        .collect()
}

#[test]
fn known_bytes_are_known_packets() {
    let tip = |value, compression| Packet::Tip(IpPayload { compression, value });
    let cases: &[(&[u8], Packet)] = &[
        (&[0x06], Packet::TntShort(Tnt { bits: 1, len: 1 })),
        (&[0x84], Packet::TntShort(Tnt { bits: 2, len: 6 })),
        (&[0x2d, 0x34, 0x12], tip(0x1234, IpCompression::Update16)),
        (&[0x0d], tip(0, IpCompression::Suppressed)),
        (&[0x99, 0x01], Packet::ModeExec { mode: ExecMode::Bits64, interrupts: false }),
        (&[0x99, 0x22], Packet::ModeTsx { in_tx: false, aborted: true }),
        (&[0x02, 0x03, 0x1a, 0x00], Packet::Cbr(0x1a)),
        (
            &[0x02, 0x73, 0x0d, 0xf0, 0, 0x02, 0x01],
            Packet::Tma { ctc: 0xf00d, fast_counter: 0x102 },
        ),
        (&[0xfb], Packet::Cyc(31)),
        (&[0x07, 0x02], Packet::Cyc(32)),
        (&[0x02, 0x43, 3, 0, 0, 0, 0, 0], Packet::Pip { cr3: 0x20, non_root: true }),
        (&[0x02, 0x22, 0x80, 0x21], Packet::PwrE { hardware: true, state: 2, sub_state: 1 }),
    ];
    for (bytes, packet) in cases {
        assert_eq!(decode(bytes), Ok((*packet, bytes.len())), "{bytes:02x?}");
    }
}

#[test]
fn reserved_encodings_are_refused() {
    let cases: &[(&[u8], PacketError)] = &[
        (&[], PacketError::Truncated),
        (&[0x05], PacketError::UnknownOpcode(0x05)),
        (&[0xb9], PacketError::UnknownOpcode(0xb9)),
        (&[0x02, 0x04], PacketError::UnknownExtendedOpcode(0x04)),
        (&[0x02, 0xc3, 0x01], PacketError::UnknownExtendedOpcode(0x01)),
        (&[0xad, 0, 0, 0, 0, 0, 0, 0, 0], PacketError::BadIpBytes(5)),
        (&[0xfd, 0, 0, 0, 0, 0, 0, 0, 0], PacketError::BadIpBytes(7)),
        (&[0x02, 0x82, 0x02, 0x83], PacketError::BrokenPsb),
        (&[0x02, 0xa3, 1, 0, 0, 0, 0, 0], PacketError::EmptyTnt),
        (&[0x99, 0x03], PacketError::BadMode(0x03)),
        (&[0x99, 0x40], PacketError::BadMode(0x40)),
        (&[0x99, 0x23], PacketError::BadMode(0x23)),
        (&[0x02, 0x73, 0, 0, 1, 0, 0], PacketError::BadTma),
        (&[0x02, 0x52, 0, 0, 0, 0], PacketError::BadPtwSize(2)),
        (&[0xff; 12], PacketError::CycTooLong),
    ];
    for (bytes, error) in cases {
        assert_eq!(decode(bytes), Err(*error), "{bytes:02x?}");
    }
}

#[test]
fn a_fault_costs_the_packets_up_to_the_next_psb() {
    let bytes = [&[0x05, 0x06, 0x06][..], &PSB, &[0x06]].concat();
    let found: Vec<_> = Packets::new(&bytes).collect();
    let tnt = Packet::TntShort(Tnt { bits: 1, len: 1 });
    let expected =
        [(0, Err(PacketError::UnknownOpcode(0x05))), (3, Ok(Packet::Psb)), (19, Ok(tnt))];
    assert_eq!(found, expected);
}

#[test]
fn a_psb_whose_beginning_a_cut_packet_swallowed_is_found() {
    // The first bytes of a TIP with 6 bytes of IP.
    let bytes = [&[0x6d, 1, 2][..], &PSB, &[0x06]].concat();
    let found: Vec<_> = Packets::new(&bytes).skip(1).collect();
    let tnt = Packet::TntShort(Tnt { bits: 1, len: 1 });
    let fault = PacketError::BrokenPsb;
    assert_eq!(found, [(7, Err(fault)), (19, Ok(tnt))]);
}

#[test]
fn packets_are_those_of_the_processor() {
    let found = |bytes: &[u8], erratum| -> Vec<_> {
        Packets::new(bytes).with_errata(Errata::NONE.with(erratum)).collect()
    };
    assert_eq!(found(&[0x07, 0x02, 0xf3], Erratum::Skd007), [(1, Ok(Packet::Ovf))]);
    let tma = [0x02, 0x73, 1, 1, 1, 1, 0, 0xd5, 0x02, 0x83];
    let expected = [(0, Ok(Packet::Pad)), (8, Ok(Packet::TraceStop))];
    assert_eq!(found(&tma, Erratum::Skz84), expected);
    assert!(found(&tma, Erratum::Skd007)[0].1.is_err());
}

#[test]
fn block_items_are_items_only_inside_a_block() {
    let bytes = [0x0c, 0x02, 0x63, 0x84, 0x0c, 1, 2, 3, 4, 0x02, 0x33, 0x0c];
    let found: Vec<_> = Packets::new(&bytes).filter_map(|(_, packet)| packet.ok()).collect();
    let tnt = Packet::TntShort(Tnt { bits: 2, len: 2 });
    let size = PayloadSize::Bytes4;
    let expected = [
        tnt,
        Packet::Bbp { kind: 4, size },
        Packet::Bip { id: 1, value: 0x0403_0201, size },
        Packet::Bep { ip: false },
        tnt,
    ];
    assert_eq!(found, expected);
}
