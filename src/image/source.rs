//! What the decoder asks of an image: code bytes at an address.

use crate::common::Addr;

/// Gives the bytes that the traced program could execute at an address.
pub trait CodeSource {
    /// Copies code bytes from `addr` on into `buf` and returns how many were known: the run ends
    /// at the first byte that is in no section. 0 means that nothing is mapped at `addr`.
    fn read(&self, addr: Addr, buf: &mut [u8]) -> usize;
}
