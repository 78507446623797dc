//! Records: what a program may have written into its trace buffer gives well-formed packets; what
//! the encoder accepts decodes to the instructions that it counted, and to as many where the
//! filtered encoder takes the same records.

use crate::seeds::{Program, dictionary};
use crate::traits::Traits;
use contraflow::common::{Addr, AddrRange};
use contraflow::encode::{BadRecord, Chains, Dictionary, Ranges, Trace};
use contraflow::flow::{Code, Config, Decoder, FlowItem};
use contraflow::pt::Packets;
use std::mem::discriminant;
use std::path::Path;

/// Numbers of edges.
pub(crate) const WORDS: &[&[u8]] =
    &[&[1, 0, 0, 0], &[2, 0, 0, 0], &[3, 0, 0, 0], &[5, 0, 0, 0], &[8, 0, 0, 0], &[13, 0, 0, 0]];

/// The first bytes say where the thread enters the program, and how many records come at a time.
const HEADER_BYTES: usize = 4;
const PSB_PERIOD_BYTES: u32 = 256;

pub(crate) fn feed(bytes: &[u8], _: &Path, traits: &mut Traits) {
    let Some((header, records)) = bytes.split_first_chunk::<HEADER_BYTES>() else { return };
    let entry = Program::START.0 + u64::from(header[0]);
    let piece = usize::from(header[1]) + 64;
    let dictionary = dictionary();
    let whole = encode(&dictionary, &Ranges::default(), entry, piece, records);
    let all = AddrRange::new(Program::START, Addr(Program::START.0 + 0x100));
    let filtered =
        encode(&dictionary, &Ranges::new(true, vec![all], vec![]), entry, piece, records);
    let (whole, filtered) = match (whole, filtered) {
        (Ok(whole), Ok(filtered)) => (whole, filtered),
        (whole, filtered) => {
            assert_eq!(whole.is_ok(), filtered.is_ok());
            traits.note("bad");
            return;
        }
    };
    traits.magnitude("insns", usize::try_from(whole.instructions).unwrap_or(usize::MAX));
    assert_eq!(whole.instructions, filtered.instructions);
    assert_eq!(whole.instructions, decoded(&whole.packets, traits));
    assert_eq!(filtered.instructions, decoded(&filtered.packets, traits));
}

struct Encoded {
    instructions: u64,
    packets: Vec<u8>,
}

fn encode(
    dictionary: &Dictionary,
    ranges: &Ranges,
    entry: u64,
    piece: usize,
    mut records: &[u8],
) -> Result<Encoded, BadRecord> {
    let mut trace = Trace::new(PSB_PERIOD_BYTES, ranges);
    let mut chains = Chains::default();
    trace.return_from_kernel(entry, 1);
    let mut packets = Vec::new();
    let mut outcome = Ok(());
    while !records.is_empty() {
        let now = &records[..piece.min(records.len())];
        match trace.encode_records(dictionary, &mut chains, now) {
            // A record that is cut: the recorder takes the buffer for damaged, too.
            Ok(left) if left == now.len() => {
                outcome = Err(BadRecord);
                break;
            }
            Ok(left) => records = &records[now.len() - left..],
            Err(bad) => {
                outcome = Err(bad);
                break;
            }
        }
        packets.extend(trace.drain());
    }
    trace.end_history(dictionary);
    trace.flush();
    packets.extend(trace.drain());
    for (offset, packet) in Packets::new(&packets) {
        assert!(packet.is_ok(), "{packet:?} at {offset}");
    }
    outcome.map(|()| Encoded { instructions: trace.instructions(), packets })
}

/// The instructions that packets tell of, without a gap.
fn decoded(packets: &[u8], traits: &mut Traits) -> u64 {
    Packets::new(packets)
        .filter_map(|(_, packet)| packet.ok())
        .for_each(|packet| traits.note(discriminant(&packet)));
    let mut code = Code::new(&Program);
    let mut decoder = Decoder::new(packets, Config::new());
    let mut instructions = 0;
    while let Some(item) = decoder.next(&mut code) {
        match item {
            FlowItem::Block(span) => instructions += u64::from(span.insns),
            FlowItem::Event(_) => {}
            FlowItem::Gap(gap) => panic!("{gap:?}"),
        }
    }
    instructions
}
