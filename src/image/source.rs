//! The interface through which the decoder reads code bytes.

use crate::common::Addr;

/// A source of the bytes that the traced program could execute at an address.
pub trait CodeSource {
    /// Copies code bytes from `addr` on into `buf`, up to the first byte outside all sections.
    /// Returns the number of known bytes; 0 if nothing is mapped at `addr`.
    fn read(&self, addr: Addr, buf: &mut [u8]) -> usize;
}
