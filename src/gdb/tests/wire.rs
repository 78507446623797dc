//! Broken, strange and hostile input.

use super::*;
use proptest::prelude::*;

#[test]
fn kinds_of_leaving_are_distinguished() {
    let leave = |packet: &[u8]| exchange_bytes(&Options::default(), vec![frame::encode(packet)]);
    assert_eq!(leave(b"D").1, ConnectionEnd::Detached);
    assert_eq!(leave(b"D;1").1, ConnectionEnd::Detached);
    assert_eq!(leave(b"k"), (b"+".to_vec(), ConnectionEnd::Killed));
    assert_eq!(bodies(&leave(b"vKill;1").0), ["OK"]);
    assert_eq!(leave(b"?").1, ConnectionEnd::Gone);
}

#[test]
fn damaged_packets_are_sent_again_in_both_directions() {
    let input = vec![b"$qC#00".to_vec(), frame::encode(b"qC"), b"-".to_vec(), b"+".to_vec()];
    let (output, _) = exchange_bytes(&Options::default(), input);
    assert_eq!(output, b"-+$QC1#c5$QC1#c5");
    let input = vec![
        frame::encode(b"QStartNoAckMode"),
        b"+".to_vec(),
        b"$qC#00".to_vec(),
        frame::encode(b"qC"),
    ];
    let (output, _) = exchange_bytes(&Options::default(), input);
    assert_eq!(output, b"+$OK#9a$QC1#c5");
}

#[test]
fn packets_may_come_in_any_pieces() {
    let stream = [frame::encode(b"qC"), b"\x03+".to_vec(), frame::encode(b"qC")].concat();
    let bytes = stream.iter().map(|byte| vec![*byte]).collect();
    assert_eq!(bodies(&exchange_bytes(&Options::default(), bytes).0), ["QC1", "QC1"]);
    assert_eq!(bodies(&exchange_bytes(&Options::default(), vec![stream]).0), ["QC1", "QC1"]);
    // An incomplete packet: the next one starts at its `$`.
    let broken = vec![b"$m1000,$qC#b4".to_vec()];
    assert_eq!(bodies(&exchange_bytes(&Options::default(), broken).0), ["QC1"]);
}

#[test]
fn what_ends_gdbstub_does_not_end_the_session() {
    for packet in [
        "Hg-1",
        "Hc-1",
        "vCont;t",
        "vCont;x",
        "vCont;s",
        "vCont;s:0",
        "T-1",
        "H",
        "G",
        "p",
        "Z",
        "qRcmd,zz",
        "vFile:pread:0",
        "D1",
        "s1000",
        "-",
    ] {
        let replies =
            exchange_with(&Options::default(), &[packet.as_bytes(), b"qC", b"g", b"m1000,1"]);
        assert!(replies.len() >= 3, "{packet}: {replies:?}");
        assert_eq!(replies.last().unwrap(), "90", "{packet}: {replies:?}");
    }
    let long = vec![b'q'; 2 * frame::PACKET_SIZE_BYTES];
    let input = vec![frame::encode(&long), frame::encode(b"qC")];
    assert!(exchange_bytes(&Options::default(), input).0.ends_with(b"+$QC1#c5"));
}

const SEEDS: [&str; 44] = [
    "qSupported:swbreak+",
    "?",
    "g",
    "G00",
    "p10",
    "P10=00",
    "m1000,10",
    "M1000,1:00",
    "X1000,1:a",
    "Z0,1010,1",
    "z0,1010,1",
    "Z1,2000,1",
    "Z2,1,1",
    "vCont?",
    "vCont;c",
    "vCont;s:1;c",
    "vCont;r1,2:1",
    "bc",
    "bs",
    "c",
    "s",
    "C05",
    "S05",
    "Hg1",
    "Hg-1",
    "Hc0",
    "Hcp1.2",
    "T1",
    "qC",
    "qfThreadInfo",
    "qsThreadInfo",
    "qThreadExtraInfo,1",
    "qRcmd,7768656e",
    "qRcmd,7365656b2033",
    "qXfer:features:read:target.xml:0,fff",
    "qXfer:threads:read::0,fff",
    "qXfer:btrace:read:all:0,f",
    "vFile:open:2f62696e2f74727565,0,0",
    "vFile:pread:0,10,0",
    "vFile:fstat:0",
    "vFile:close:0",
    "qContraflow.stack:1,0,10",
    "Qbtrace:pt",
    "QStartNoAckMode",
];

/// Returns a strategy for packets, often nearly valid.
fn packet() -> impl Strategy<Value = Vec<u8>> {
    let seed = prop::sample::select(SEEDS.map(str::as_bytes).map(<[u8]>::to_vec).to_vec());
    let digits = prop::sample::select(b"0123456789abcdef-,;:.p#$}*\x03\xff".to_vec());
    let changes = prop::collection::vec((any::<prop::sample::Index>(), digits, 0..3u8), 0..4);
    let mutated = (seed, changes).prop_map(|(mut bytes, changes)| {
        for (at, byte, how) in changes {
            let at = at.index(bytes.len() + 1);
            match how {
                0 => bytes.insert(at, byte),
                1 if at < bytes.len() => bytes[at] = byte,
                _ => bytes.truncate(at.max(1)),
            }
        }
        bytes
    });
    prop_oneof![8 => mutated, 1 => prop::collection::vec(any::<u8>(), 0..40)]
}

proptest! {
    /// Checks that the next client is served after any input in any frames.
    #[test]
    fn nothing_ends_the_server(packets in prop::collection::vec((packet(), any::<u8>()), 1..30)) {
        let mut served = Served::new(Session::new(Recorded::at_end(history())));
        let options = Options::default();
        let mut wire = Wire::default();
        for (body, framing) in packets {
            let mut bytes = frame::encode(&body);
            if framing < 10 {
                bytes.truncate(usize::from(framing));
            }
            wire.input.push_back(bytes);
        }
        Client::new(&mut served, &mut wire, &options).serve().unwrap();
        served.forget_client();
        let mut wire = Wire::default();
        wire.input.extend([frame::encode(b"?"), frame::encode(b"m1000,1"), frame::encode(b"bc")]);
        Client::new(&mut served, &mut wire, &options).serve().unwrap();
        let replies = bodies(&wire.output);
        prop_assert_eq!(replies.len(), 3);
        prop_assert!(replies[0].starts_with("T05thread:"));
        prop_assert_eq!(&replies[1], "90");
        prop_assert!(replies[2].contains("replaylog:begin;"));
    }

    /// Checks that escaped bytes survive a frame.
    #[test]
    fn frames_carry_any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let escaped = frame::escape(&bytes);
        let mut framer = Framer::default();
        framer.push(&frame::encode(&escaped));
        prop_assert_eq!(framer.take_unit(), Some(Unit::Packet(escaped)));
        prop_assert_eq!(framer.take_unit(), None);
    }
}
