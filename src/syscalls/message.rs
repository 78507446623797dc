//! The areas of vectors of buffers (`struct iovec`) and of messages of sockets (`struct msghdr`).

use super::area::{Area, Count, Counted, Size};
use super::memory::{CallerMemory, read_bytes};
use super::write::{MAX_RW_BYTES, When};
use crate::common::Addr;

/// The maximum number of elements of a vector, and of messages of an array
/// (include/uapi/linux/uio.h, `UIO_MAXIOV`).
const MAX_COUNT: u64 = 1024;
/// `struct iovec`: pointer, length.
const IOVEC_BYTES: u64 = 16;
/// The size of `struct msghdr`, and the offsets of its fields: name, name's length, vector, number
/// of elements, control data, their length; then come the flags (include/linux/socket.h, `struct
/// user_msghdr`).
const MSGHDR_BYTES: usize = 56;
const NAME: usize = 0;
const NAME_LENGTH: usize = 8;
const VECTOR: usize = 16;
const VECTOR_COUNT: usize = 24;
const CONTROL: usize = 32;
const CONTROL_LENGTH: usize = 40;
/// `struct mmsghdr`: the header, and how many bytes were received.
const MMSGHDR_BYTES: u64 = 64;
/// The size of `struct sockaddr_storage`, which no address exceeds.
const MAX_NAME_BYTES: u64 = 128;

/// Adds the buffers of a vector, at most `MAX_RW_BYTES` in all. With a `count`, so many bytes in
/// all are written to them, in order; without it, they are written whole. Adds nothing if the
/// vector has too many elements or cannot be read.
pub(super) fn add_vector(
    at: Addr,
    elements: u64,
    count: Option<Count>,
    memory: &dyn CallerMemory,
    areas: &mut Vec<Area>,
) {
    let size_bytes = elements.min(MAX_COUNT + 1) * IOVEC_BYTES;
    let bytes = usize::try_from(size_bytes).ok().filter(|_| elements <= MAX_COUNT);
    let Some(bytes) = bytes.and_then(|size| read_bytes(memory, at, size)) else { return };
    let mut skip_bytes = 0;
    for element in bytes.chunks_exact(16) {
        let limit_bytes = word(element, 8).min(MAX_RW_BYTES - skip_bytes);
        let counted = |count| Counted { count, header_bytes: 0, unit_bytes: 1, skip_bytes };
        let size = count.map_or(Size::Whole, |count| Size::Counted(counted(count)));
        let start = Addr(word(element, 0));
        areas.push(Area { start, limit_bytes, size, when: When::Success, least_result: 0 });
        skip_bytes += limit_bytes;
    }
}

/// Adds the areas that recvmsg(2) writes: the buffers, with `received` bytes in all, the sender's
/// name, control data, and the lengths and flags of the header itself.
pub(super) fn add_message(
    at: Addr,
    received: Count,
    memory: &dyn CallerMemory,
    areas: &mut Vec<Area>,
) {
    let Some(header) = read_bytes(memory, at, MSGHDR_BYTES) else { return };
    let name_bytes = (word(&header, NAME_LENGTH) & 0xffff_ffff).min(MAX_NAME_BYTES);
    let control_bytes = word(&header, CONTROL_LENGTH);
    let mut add = |pointer: u64, limit_bytes: u64, length: Option<(usize, usize)>| {
        let size = length.map_or(Size::Whole, |(offset, width_bytes)| {
            let count = Count::Word { at: at.wrapping_add(offset as u64), width_bytes };
            Size::Counted(Counted { count, header_bytes: 0, unit_bytes: 1, skip_bytes: 0 })
        });
        let start = Addr(pointer);
        areas.push(Area { start, limit_bytes, size, when: When::Success, least_result: 0 });
    };
    add(word(&header, NAME), name_bytes, Some((NAME_LENGTH, 4)));
    add(word(&header, CONTROL), control_bytes, Some((CONTROL_LENGTH, 8)));
    add(at.wrapping_add(NAME_LENGTH as u64).0, 4, None);
    // The length of the control data, and the flags after it.
    add(at.wrapping_add(CONTROL_LENGTH as u64).0, 12, None);
    let (vector, elements) = (Addr(word(&header, VECTOR)), word(&header, VECTOR_COUNT));
    add_vector(vector, elements, Some(received), memory, areas);
}

/// Adds the areas that recvmmsg(2) may write for the array of `messages` elements at `at`. Those of
/// an element count only if the result, the number of messages received, includes it.
pub(super) fn add_messages(
    at: Addr,
    messages: u64,
    memory: &dyn CallerMemory,
    areas: &mut Vec<Area>,
) {
    for index in 0..messages.min(MAX_COUNT) {
        let header = at.wrapping_add(index * MMSGHDR_BYTES);
        let length = header.wrapping_add(MSGHDR_BYTES as u64);
        let first = areas.len();
        add_message(header, Count::Word { at: length, width_bytes: 4 }, memory, areas);
        areas.push(Area {
            start: length,
            limit_bytes: 4,
            size: Size::Whole,
            when: When::Success,
            least_result: 0,
        });
        for area in &mut areas[first..] {
            area.least_result = index + 1;
        }
    }
}

/// Returns the 8 bytes at an offset of a structure that was read; 0 if they are not all in it.
fn word(bytes: &[u8], offset: usize) -> u64 {
    let word = bytes.get(offset..offset + 8).and_then(|word| word.try_into().ok());
    word.map_or(0, u64::from_le_bytes)
}
