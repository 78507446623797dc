//! Digests as text.

/// Returns bytes in hexadecimal, as two lowercase digits each.
pub(super) fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}
