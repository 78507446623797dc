//! Packet framing: `$body#checksum`, acknowledgements and the interrupt byte. The meaning of a
//! body is not looked at.

use super::hex;

/// The largest packet taken from a client, and the size announced to it.
pub(super) const PACKET_SIZE_BYTES: usize = 0x2_0000;

/// What came in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    /// The body of a packet with a good checksum, escapes left in.
    Packet(Vec<u8>),
    /// A packet whose checksum is wrong, or that is too long.
    Damaged,
    /// `+`.
    Ack,
    /// `-`.
    Nack,
    /// Ctrl-C.
    Interrupt,
}

/// Cuts a byte stream into units.
#[derive(Debug, Default)]
pub(super) struct Framer {
    input: Vec<u8>,
}

impl Framer {
    /// Takes bytes in.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
    }

    /// The next whole unit.
    pub(super) fn take(&mut self) -> Option<Unit> {
        while let Some(&first) = self.input.first() {
            let unit = match first {
                b'+' => Some(Unit::Ack),
                b'-' => Some(Unit::Nack),
                0x03 => Some(Unit::Interrupt),
                b'$' => return self.take_packet(),
                _ => None,
            };
            self.input.drain(..1);
            if unit.is_some() {
                return unit;
            }
        }
        None
    }

    /// Whether the user pressed Ctrl-C: drops acknowledgements on the way, stops at a packet.
    pub(super) fn take_interrupt(&mut self) -> bool {
        let quiet = self.input.iter().take_while(|byte| !matches!(byte, b'$' | 0x03)).count();
        self.input.drain(..quiet);
        let interrupted = self.input.first() == Some(&0x03);
        if interrupted {
            self.input.drain(..1);
        }
        interrupted
    }

    fn take_packet(&mut self) -> Option<Unit> {
        let Some(end) = self.input.iter().position(|byte| *byte == b'#') else {
            let too_long = self.input.len() > PACKET_SIZE_BYTES;
            return too_long.then(|| self.reject(self.input.len()));
        };
        let checksum = self.input.get(end + 1..end + 3)?;
        let checksum = hex::number(checksum);
        // A `$` never stands in a body unescaped: the client began afresh there.
        let start = self.input[..end].iter().rposition(|byte| *byte == b'$').unwrap_or(0) + 1;
        let body = self.input[start..end].to_vec();
        let good = checksum == Some(u64::from(sum(&body))) && body.len() <= PACKET_SIZE_BYTES;
        if !good {
            return Some(self.reject(end + 3));
        }
        self.input.drain(..end + 3);
        Some(Unit::Packet(body))
    }

    fn reject(&mut self, bytes: usize) -> Unit {
        self.input.drain(..bytes);
        Unit::Damaged
    }
}

/// A packet around a body.
pub(super) fn encode(body: &[u8]) -> Vec<u8> {
    let mut packet = Vec::with_capacity(body.len() + 4);
    packet.push(b'$');
    packet.extend_from_slice(body);
    packet.extend_from_slice(format!("#{:02x}", sum(body)).as_bytes());
    packet
}

/// The body of the first packet in framed bytes.
pub(super) fn first_body(packets: &[u8]) -> Option<Vec<u8>> {
    let mut framer = Framer { input: packets.to_vec() };
    std::iter::from_fn(|| framer.take()).find_map(|unit| match unit {
        Unit::Packet(body) => Some(body),
        _ => None,
    })
}

/// Binary data with `#`, `$`, `}` and `*` escaped.
pub(super) fn escape(bytes: &[u8]) -> Vec<u8> {
    let mut escaped = Vec::with_capacity(bytes.len() + bytes.len() / 16);
    for &byte in bytes {
        if matches!(byte, b'#' | b'$' | b'}' | b'*') {
            escaped.extend_from_slice(&[b'}', byte ^ 0x20]);
        } else {
            escaped.push(byte);
        }
    }
    escaped
}

/// Binary data as it was before it was escaped.
pub(super) fn unescape(bytes: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(bytes.len());
    let mut bytes = bytes.iter();
    while let Some(&byte) = bytes.next() {
        match byte {
            b'}' => plain.extend(bytes.next().map(|escaped| escaped ^ 0x20)),
            _ => plain.push(byte),
        }
    }
    plain
}

fn sum(body: &[u8]) -> u8 {
    body.iter().fold(0, |sum, byte| sum.wrapping_add(*byte))
}
