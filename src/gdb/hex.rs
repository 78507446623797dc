//! Hexadecimal as packets write it. Malformed digits are `None`.

use std::fmt::Write;

/// The value of big-endian hex digits, at least one and at most sixteen.
pub(super) fn number(digits: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(digits).ok()?;
    let plain = text.bytes().all(|byte| byte.is_ascii_hexdigit());
    u64::from_str_radix(text, 16).ok().filter(|_| plain)
}

/// Two digits a byte.
pub(super) fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// The part before `separator` and the part behind it.
pub(super) fn split(bytes: &[u8], separator: u8) -> Option<(&[u8], &[u8])> {
    let at = bytes.iter().position(|byte| *byte == separator)?;
    Some((&bytes[..at], &bytes[at + 1..]))
}

/// The bytes of two digits each.
pub(super) fn decode(digits: &[u8]) -> Option<Vec<u8>> {
    let byte = |pair: &[u8]| u8::try_from(number(pair)?).ok();
    if !digits.len().is_multiple_of(2) {
        return None;
    }
    digits.chunks_exact(2).map(byte).collect()
}
