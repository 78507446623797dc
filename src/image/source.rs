//! The interface through which the decoder reads code bytes.

use crate::common::Addr;

/// A source of the bytes that the traced program could execute at an address.
pub trait CodeSource {
    /// Copies code bytes from `addr` on into `buf`, up to the first unknown one: it is not mapped,
    /// or no file has it. Returns the number of bytes copied.
    fn read(&self, addr: Addr, buf: &mut [u8]) -> usize;
}
