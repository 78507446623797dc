//! Encodes packets to bytes, the inverse of decoding. Does not validate: bits that do not fit a
//! field are cut off, and reserved bits are 0.

use super::{ExecMode, IpCompression, IpPayload, PSB, Packet, PayloadSize, Tnt};

/// Appends the bytes of `packet` to `out`.
///
/// A short TNT packet must hold 1 to 6 branches, a long one 1 to 47: a debug build panics
/// otherwise. A release build writes only the newest of too many, and nothing if there is none.
pub fn encode(packet: &Packet, out: &mut Vec<u8>) {
    match *packet {
        Packet::Pad => out.push(0),
        Packet::Psb => out.extend_from_slice(&PSB),
        Packet::PsbEnd => out.extend_from_slice(&[0x02, 0x23]),
        Packet::TntShort(tnt) => {
            if let Some(payload) = tnt_payload(tnt, 6) {
                out.push(low_byte(payload << 1));
            }
        }
        Packet::TntLong(tnt) => {
            if let Some(payload) = tnt_payload(tnt, 47) {
                put_extended(out, 0xa3, payload, 6);
            }
        }
        Packet::Tip(ip) => put_ip(out, 0x0d, ip),
        Packet::TipPge(ip) => put_ip(out, 0x11, ip),
        Packet::TipPgd(ip) => put_ip(out, 0x01, ip),
        Packet::Fup(ip) => put_ip(out, 0x1d, ip),
        Packet::ModeExec { mode, interrupts } => {
            let code = match mode {
                ExecMode::Bits16 => 0,
                ExecMode::Bits64 => 1,
                ExecMode::Bits32 => 2,
            };
            out.extend_from_slice(&[0x99, code | u8::from(interrupts) << 2]);
        }
        Packet::ModeTsx { in_tx, aborted } => {
            out.extend_from_slice(&[0x99, 0x20 | u8::from(in_tx) | u8::from(aborted) << 1]);
        }
        Packet::Pip { cr3, non_root } => {
            put_extended(out, 0x43, cr3 >> 5 << 1 | u64::from(non_root), 6);
        }
        Packet::TraceStop => out.extend_from_slice(&[0x02, 0x83]),
        Packet::Ovf => out.extend_from_slice(&[0x02, 0xf3]),
        Packet::Vmcs(base) => put_extended(out, 0xc8, base >> 12, 5),
        Packet::Ptw { value, size, ip } => put_ptw(out, value, size, ip),
        _ => {
            if !put_time(packet, out) {
                put_rare(packet, out);
            }
        }
    }
}

/// Appends `packet` and returns true, if it is a timing packet.
fn put_time(packet: &Packet, out: &mut Vec<u8>) -> bool {
    match *packet {
        Packet::Tsc(tsc) => {
            out.push(0x19);
            put(out, tsc, 7);
        }
        Packet::Mtc(ctc) => out.extend_from_slice(&[0x59, ctc]),
        Packet::Tma { ctc, fast_counter } => {
            put_extended(out, 0x73, u64::from(ctc) | u64::from(fast_counter & 0x1ff) << 24, 5);
        }
        Packet::Cyc(cycles) => put_cyc(out, cycles),
        Packet::Cbr(ratio) => put_extended(out, 0x03, u64::from(ratio), 2),
        _ => return false,
    }
    true
}

/// Appends `packet` if it is a rare one: maintenance, power, block items, event trace or trigger.
fn put_rare(packet: &Packet, out: &mut Vec<u8>) {
    match *packet {
        Packet::Mnt(payload) => {
            put_extended(out, 0xc3, 0x88, 1);
            put(out, payload, 8);
        }
        Packet::ExStop { ip } => out.extend_from_slice(&[0x02, 0x62 | u8::from(ip) << 7]),
        Packet::Mwait { hints, extensions } => {
            put_extended(out, 0xc2, u64::from(extensions) << 32 | u64::from(hints), 8);
        }
        Packet::PwrE { hardware, state, sub_state } => {
            let states = state << 4 | sub_state & 0xf;
            out.extend_from_slice(&[0x02, 0x22, u8::from(hardware) << 7, states]);
        }
        Packet::PwrX { last, deepest, wake } => {
            let states = last << 4 | deepest & 0xf;
            out.extend_from_slice(&[0x02, 0xa2, states, wake & 0xf, 0, 0, 0]);
        }
        Packet::Bbp { kind, size } => {
            let four = u8::from(size == PayloadSize::Bytes4);
            out.extend_from_slice(&[0x02, 0x63, four << 7 | kind & 0x1f]);
        }
        Packet::Bip { id, value, size } => {
            out.push(id << 3 | 4);
            put(out, value, size_bytes(size));
        }
        Packet::Bep { ip } => out.extend_from_slice(&[0x02, 0x33 | u8::from(ip) << 7]),
        Packet::Cfe { kind, vector, ip } => {
            out.extend_from_slice(&[0x02, 0x13, u8::from(ip) << 7 | kind & 0x1f, vector]);
        }
        Packet::Evd { kind, payload } => {
            out.extend_from_slice(&[0x02, 0x53, kind & 0x3f]);
            put(out, payload, 8);
        }
        Packet::Trig { triggers, ip, multiple, instructions } => {
            let counted = u8::from(instructions.is_some());
            let flags = u8::from(ip) << 7 | counted << 6 | u8::from(multiple) << 5;
            out.extend_from_slice(&[0xd9, flags, triggers]);
            out.extend(instructions.map(u16::to_le_bytes).into_iter().flatten());
        }
        _ => {}
    }
}

/// Returns the payload of a TNT packet: the newest `capacity` bits, or all if there are fewer, and
/// a stop bit above them. `None` if there are no bits.
fn tnt_payload(tnt: Tnt, capacity: u8) -> Option<u64> {
    debug_assert!((1..=capacity).contains(&tnt.len), "a TNT of {} branches", tnt.len);
    let stop = 1_u64 << tnt.len.min(capacity);
    (tnt.len > 0).then_some(stop | tnt.bits & (stop - 1))
}

/// Appends a packet whose only payload is an IP. `opcode` is its first byte without `IPBytes`.
fn put_ip(out: &mut Vec<u8>, opcode: u8, ip: IpPayload) {
    let (ip_bytes, size) = match ip.compression {
        IpCompression::Suppressed => (0, 0),
        IpCompression::Update16 => (1, 2),
        IpCompression::Update32 => (2, 4),
        IpCompression::SignExtend48 => (3, 6),
        IpCompression::Update48 => (4, 6),
        IpCompression::Full => (6, 8),
    };
    out.push(ip_bytes << 5 | opcode);
    put(out, ip.value, size);
}

fn put_ptw(out: &mut Vec<u8>, value: u64, size: PayloadSize, ip: bool) {
    let wide = u8::from(size == PayloadSize::Bytes8);
    put_extended(out, 0x12 | wide << 5 | u8::from(ip) << 7, value, size_bytes(size));
}

/// Appends a CYC packet, as short as `cycles` allows.
fn put_cyc(out: &mut Vec<u8>, cycles: u64) {
    let mut rest = cycles >> 5;
    out.push(low_byte(cycles << 3) | u8::from(rest != 0) << 2 | 0x03);
    while rest != 0 {
        let bits = low_byte(rest << 1);
        rest >>= 7;
        out.push(bits | u8::from(rest != 0));
    }
}

/// Appends 02, `opcode`, and the low `size_bytes` bytes of `payload`, lowest first.
fn put_extended(out: &mut Vec<u8>, opcode: u8, payload: u64, size_bytes: usize) {
    out.extend_from_slice(&[0x02, opcode]);
    put(out, payload, size_bytes);
}

/// Appends the low `size_bytes` bytes of `value`, at most 8, lowest first.
fn put(out: &mut Vec<u8>, value: u64, size_bytes: usize) {
    out.extend(value.to_le_bytes().into_iter().take(size_bytes));
}

const fn size_bytes(size: PayloadSize) -> usize {
    match size {
        PayloadSize::Bytes4 => 4,
        PayloadSize::Bytes8 => 8,
    }
}

const fn low_byte(value: u64) -> u8 {
    value.to_le_bytes()[0]
}
