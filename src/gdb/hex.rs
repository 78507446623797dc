//! Hexadecimal numbers and bytes of packets. Malformed digits give `None`.

use std::fmt::Write;

/// Returns the value of hex digits, the most significant first; `None` if there is none, if another
/// byte is among them, or if the value is larger than 64 bits.
pub(super) fn number(digits: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(digits).ok()?;
    let plain = text.bytes().all(|byte| byte.is_ascii_hexdigit());
    u64::from_str_radix(text, 16).ok().filter(|_| plain)
}

/// Encodes bytes as two lower-case digits each.
pub(super) fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        // Writes to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// Returns the parts before and after the first `separator`; `None` if there is none.
pub(super) fn split(bytes: &[u8], separator: u8) -> Option<(&[u8], &[u8])> {
    let at = bytes.iter().position(|byte| *byte == separator)?;
    Some((&bytes[..at], &bytes[at + 1..]))
}

/// Returns the bytes of these digits, two for each byte; `None` for an odd number of digits, or
/// others.
pub(super) fn decode(digits: &[u8]) -> Option<Vec<u8>> {
    let byte = |pair: &[u8]| u8::try_from(number(pair)?).ok();
    if !digits.len().is_multiple_of(2) {
        return None;
    }
    digits.chunks_exact(2).map(byte).collect()
}
