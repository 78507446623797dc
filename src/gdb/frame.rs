//! Packet framing: `$body#checksum`, acknowledgements and the interrupt byte. Bodies are not
//! interpreted.

use super::hex;

/// The maximum size of a packet's body from a client, which is announced to the client.
pub(super) const PACKET_SIZE_BYTES: usize = 0x2_0000;

/// An element of a client's byte stream: a packet, an acknowledgement or Ctrl-C.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    /// The body of a packet with a valid checksum, still escaped.
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

/// A splitter of a byte stream into units.
#[derive(Debug, Default)]
pub(super) struct Framer {
    /// The bytes that were not taken yet.
    input: Vec<u8>,
}

impl Framer {
    /// Appends input.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
    }

    /// Returns true if there is input that was not taken yet.
    pub(super) fn has_input(&self) -> bool {
        !self.input.is_empty()
    }

    /// Removes and returns the next unit; `None` if there is no whole one yet. Drops bytes that
    /// belong to no unit.
    pub(super) fn take_unit(&mut self) -> Option<Unit> {
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

    /// Returns true, and removes the Ctrl-C, if there is one before the next packet. Drops the
    /// acknowledgements before it or before that packet in any case, but no packet.
    pub(super) fn take_interrupt(&mut self) -> bool {
        let quiet = self.input.iter().take_while(|byte| !matches!(byte, b'$' | 0x03)).count();
        self.input.drain(..quiet);
        let interrupted = self.input.first() == Some(&0x03);
        if interrupted {
            self.input.drain(..1);
        }
        interrupted
    }

    /// Removes and returns the packet at the start of the input, [`Unit::Damaged`] if its checksum
    /// is wrong or it is too long; `None` if it is not whole yet. If another `$` is in it, returns
    /// the packet after the last one.
    fn take_packet(&mut self) -> Option<Unit> {
        let Some(end) = self.input.iter().position(|byte| *byte == b'#') else {
            let too_long = self.input.len() > PACKET_SIZE_BYTES;
            return too_long.then(|| self.reject(self.input.len()));
        };
        let digits = self.input.get(end + 1..end + 3)?;
        // A body contains no unescaped `$`: the client started a new packet there.
        let start = self.input[..end].iter().rposition(|byte| *byte == b'$').unwrap_or(0) + 1;
        let body = self.input[start..end].to_vec();
        let good = hex::number(digits) == Some(u64::from(checksum(&body)))
            && body.len() <= PACKET_SIZE_BYTES;
        if !good {
            return Some(self.reject(end + 3));
        }
        self.input.drain(..end + 3);
        Some(Unit::Packet(body))
    }

    /// Drops so many bytes of the input, which are a damaged packet.
    fn reject(&mut self, bytes: usize) -> Unit {
        self.input.drain(..bytes);
        Unit::Damaged
    }
}

/// Returns a body, which is escaped already, framed as a packet: with `$` and its checksum.
pub(super) fn encode(body: &[u8]) -> Vec<u8> {
    let mut packet = Vec::with_capacity(body.len() + 4);
    packet.push(b'$');
    packet.extend_from_slice(body);
    packet.extend_from_slice(format!("#{:02x}", checksum(body)).as_bytes());
    packet
}

/// The minimum size of replies that are compressed.
const COMPRESSED_FROM_BYTES: usize = 64;
/// The offset of a run-length count's character, which is `~` at most.
const COUNT_OFFSET: u8 = 29;
/// The maximum number of copies after the first byte that one count can encode.
const MOST_REPEATED: usize = (b'~' - COUNT_OFFSET) as usize;
/// The minimum number of such copies for which a count is shorter.
const LEAST_REPEATED: usize = 3;

/// Returns framed packets with run-length encoding (gdb manual, "Overview" of the remote protocol),
/// or as they are if they are short ([`COMPRESSED_FROM_BYTES`]) or that saves less than a quarter.
pub(super) fn encode_run_lengths(packets: Vec<u8>) -> Vec<u8> {
    if packets.len() < COMPRESSED_FROM_BYTES {
        return packets;
    }
    let mut compressed = Vec::with_capacity(packets.len() / 2);
    let mut rest = packets.as_slice();
    while let Some(end) = rest.iter().position(|byte| *byte == b'#') {
        let (packet, following) = rest.split_at((end + 3).min(rest.len()));
        let body = packet.get(1..end).unwrap_or_default();
        compressed.extend(encode(&run_length_body(body)));
        rest = following;
    }
    // Short texts stay readable.
    if compressed.len() * 4 > packets.len() * 3 { packets } else { compressed }
}

/// Returns a body with run-length encoding. Never repeats an escaped byte: LLDB would repeat the
/// decoded byte, and gdb the encoded one.
fn run_length_body(body: &[u8]) -> Vec<u8> {
    let mut written = Vec::with_capacity(body.len() / 2);
    let mut rest = body;
    while let Some(&byte) = rest.first() {
        if byte == b'}' {
            let (pair, following) = rest.split_at(rest.len().min(2));
            written.extend_from_slice(pair);
            rest = following;
            continue;
        }
        let same = rest.iter().take_while(|other| **other == byte).count();
        let mut repeated = (same - 1).min(MOST_REPEATED);
        written.push(byte);
        if repeated >= LEAST_REPEATED {
            while matches!(count_character(repeated), b'#' | b'$' | b'+' | b'-') {
                repeated -= 1;
            }
            written.extend_from_slice(&[b'*', count_character(repeated)]);
        } else {
            repeated = 0;
        }
        rest = &rest[1 + repeated..];
    }
    written
}

/// Returns the character for `repeated` more copies of a byte, at most [`MOST_REPEATED`], which is
/// not checked. It may be `#`, `$`, `+` or `-`, which must not be sent.
fn count_character(repeated: usize) -> u8 {
    u8::try_from(repeated).unwrap_or(0).saturating_add(COUNT_OFFSET)
}

/// Returns the body of the first packet in framed bytes, still escaped; `None` if there is no whole
/// one.
pub(super) fn first_body(packets: &[u8]) -> Option<Vec<u8>> {
    let mut framer = Framer { input: packets.to_vec() };
    std::iter::from_fn(|| framer.take_unit()).find_map(|unit| match unit {
        Unit::Packet(body) => Some(body),
        _ => None,
    })
}

/// Escapes `#`, `$`, `}` and `*` in binary data.
pub(super) fn escape(bytes: &[u8]) -> Vec<u8> {
    let mut escaped = Vec::with_capacity(bytes.len() + bytes.len() / 16);
    for &byte in bytes {
        if is_reserved(byte) {
            escaped.extend_from_slice(&[b'}', byte ^ 0x20]);
        } else {
            escaped.push(byte);
        }
    }
    escaped
}

/// Returns the reply for a failed packet with a text for the user. gdb shows the text as it is, so
/// characters that the protocol reserves are not escaped as in binary data, but written as `\xNN`.
pub(super) fn error_text(text: &str) -> Vec<u8> {
    let mut reply = b"E.".to_vec();
    for &byte in text.as_bytes() {
        if is_reserved(byte) {
            reply.extend_from_slice(format!("\\x{byte:02x}").as_bytes());
        } else {
            reply.push(byte);
        }
    }
    reply
}

/// Returns true if a packet's body may only contain this byte escaped.
fn is_reserved(byte: u8) -> bool {
    matches!(byte, b'#' | b'$' | b'}' | b'*')
}

/// Reverses [`escape`]. Drops a `}` at the end, which escapes nothing.
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

/// Returns the sum of the bytes, modulo 256.
fn checksum(body: &[u8]) -> u8 {
    body.iter().fold(0, |sum, byte| sum.wrapping_add(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Expands a body like a client: in one pass, or runs before escapes.
    fn expand(body: &[u8], at_once: bool) -> Vec<u8> {
        let mut plain: Vec<u8> = Vec::new();
        let mut bytes = body.iter().copied();
        while let Some(byte) = bytes.next() {
            match byte {
                b'*' => {
                    let repeated = usize::from(bytes.next().unwrap() - COUNT_OFFSET);
                    plain.extend(std::iter::repeat_n(*plain.last().unwrap(), repeated));
                }
                b'}' if at_once => plain.push(bytes.next().unwrap() ^ 0x20),
                _ => plain.push(byte),
            }
        }
        if at_once { plain } else { unescape(&plain) }
    }

    proptest! {
        #[test]
        fn every_client_expands_what_is_compressed(
            pieces in proptest::collection::vec((any::<u8>(), 1_usize..300), 1..20),
        ) {
            let data: Vec<u8> =
                pieces.iter().flat_map(|(byte, count)| vec![*byte; *count]).collect();
            let packets = encode_run_lengths(encode(&escape(&data)));
            let body = first_body(&packets).unwrap();
            prop_assert!(packets.len() == encode(&body).len());
            prop_assert_eq!(expand(&body, true), data.as_slice());
            prop_assert_eq!(expand(&body, false), data.as_slice());
        }
    }

    #[test]
    fn errors_have_no_reserved_characters() {
        assert_eq!(error_text("/a#b$ *}: gone"), b"E./a\\x23b\\x24 \\x2a\\x7d: gone");
    }

    #[test]
    fn runs_are_counted_without_signs_of_the_protocol() {
        assert_eq!(run_length_body(b"0000"), b"0* ");
        assert_eq!(run_length_body(b"000"), b"000");
        // Seven and eight zeros would need the counts `#` and `$`.
        assert_eq!(run_length_body(b"0000000"), b"0*\"0");
        assert_eq!(run_length_body(b"00000000"), b"0*\"00");
        assert_eq!(run_length_body(&[b'x'; 98]), b"x*~");
        let many = [encode(&[b'0'; 80]), encode(b"OK")].concat();
        assert_eq!(encode_run_lengths(many), b"$0*l#c6$OK#9a".to_vec());
        assert_eq!(encode_run_lengths(encode(b"0000000000")), encode(b"0000000000"));
    }
}
