//! Vectors that grow large, in large pages: some MiB of address space are reserved for each, so
//! that it need not move, and the kernel is asked to back all but its start with large pages.

use nix::sys::mman::{MmapAdvise, madvise};
use std::ptr::NonNull;

/// The address space that a vector begins with, in bytes. Only what is used becomes memory.
const ROOM_BYTES: usize = 16 << 20;
/// The first bytes of a vector are in small pages, so that small programs do not pay for large
/// ones.
const SMALL_BYTES: usize = 512 << 10;
const PAGE_BYTES: usize = 4096;
const LARGE_BYTES: usize = 2 << 20;

/// Returns an empty vector with room to grow. The kernel may back it with large pages, which saves
/// some thousand page faults.
pub(super) fn vector_with_room<T>() -> Vec<T> {
    let vector: Vec<T> = with_room(ROOM_BYTES);
    // The kernel places a mapping right below the last one, so a mapping that is larger by the
    // excess begins that much lower. Its small pages then end where a large page begins.
    let excess = first_large_page(&vector) % LARGE_BYTES;
    drop(vector);
    let vector = with_room(ROOM_BYTES + excess);
    advise(&vector);
    vector
}

/// Returns an empty vector with room for items of this many bytes; without room if there is too
/// little address space.
fn with_room<T>(bytes: usize) -> Vec<T> {
    let mut vector = Vec::new();
    let _ = vector.try_reserve_exact(bytes / size_of::<T>().max(1));
    vector
}

/// Returns the first address of a vector's memory that is to be in large pages.
fn first_large_page<T>(vector: &[T]) -> usize {
    (vector.as_ptr().addr() + SMALL_BYTES) & !(PAGE_BYTES - 1)
}

/// Advises the kernel to use large pages for a vector's memory, but for its first part.
fn advise<T>(vector: &Vec<T>) {
    let first = first_large_page(vector);
    let end = vector.as_ptr().addr() + vector.capacity() * size_of::<T>();
    let Some(size) = (end & !(PAGE_BYTES - 1)).checked_sub(first).filter(|size| *size > 0) else {
        return;
    };
    let Some(start) = NonNull::new(vector.as_ptr().cast_mut().with_addr(first).cast()) else {
        return;
    };
    // SAFETY: the pages belong to the vector as a whole. The advice changes neither what is in them
    // nor what may be done with them. Where the kernel has no large pages, it gives small ones.
    let _ = unsafe { madvise(start, size, MmapAdvise::MADV_HUGEPAGE) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roomy_vectors_are_vectors() {
        let mut numbers = vector_with_room();
        numbers.extend(0..3_000_000_u64);
        assert_eq!(numbers.iter().sum::<u64>(), 2_999_999 * 3_000_000 / 2);
        assert!(numbers.capacity() * size_of::<u64>() >= ROOM_BYTES);
        assert_eq!(vector_with_room::<()>().len(), 0);
    }
}
