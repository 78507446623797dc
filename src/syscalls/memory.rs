//! Reads the memory of the program that makes a system call.

use crate::common::Addr;

/// The memory of the program that makes a call.
pub trait CallerMemory {
    /// Copies bytes from `addr` on into `buf`, up to the first that cannot be read. Returns the
    /// number of bytes copied.
    fn read(&self, addr: Addr, buf: &mut [u8]) -> usize;
}

impl<F: Fn(Addr, &mut [u8]) -> usize> CallerMemory for F {
    fn read(&self, addr: Addr, buf: &mut [u8]) -> usize {
        self(addr, buf)
    }
}

/// Reads a little-endian number of `width_bytes` (at most 8); `None` if a part of it cannot be
/// read.
pub(super) fn read_number(
    memory: &dyn CallerMemory,
    addr: Addr,
    width_bytes: usize,
) -> Option<u64> {
    let mut bytes = [0; 8];
    let wanted = bytes.get_mut(..width_bytes)?;
    (memory.read(addr, wanted) == width_bytes).then(|| u64::from_le_bytes(bytes))
}

/// Reads `size_bytes`; `None` if a part of them cannot be read. The caller bounds the size.
pub(super) fn read_bytes(
    memory: &dyn CallerMemory,
    addr: Addr,
    size_bytes: usize,
) -> Option<Vec<u8>> {
    let mut bytes = vec![0; size_bytes];
    (memory.read(addr, &mut bytes) == size_bytes).then_some(bytes)
}
