//! What calls that change mappings do to the content of memory.

use contraflow::common::{Addr, AddrRange};
use contraflow::syscalls::Call;

const MMAP: u64 = 9;
const MUNMAP: u64 = 11;
const BRK: u64 = 12;
const MREMAP: u64 = 25;
const MADVISE: u64 = 28;
const SHMAT: u64 = 30;
const SHMDT: u64 = 67;
const REMAP_FILE_PAGES: u64 = 216;

fn pages(start: u64, size_bytes: u64) -> AddrRange {
    AddrRange::sized(Addr(start), size_bytes.div_ceil(4096).saturating_mul(4096))
}

/// The ranges whose content a call replaced.
pub(super) fn replaced(call: &Call, result: i64) -> Vec<AddrRange> {
    let Ok(result) = u64::try_from(result) else { return Vec::new() };
    let [first, second, third, ..] = call.args;
    match call.number {
        MMAP => vec![pages(result, second)],
        MUNMAP | MADVISE | REMAP_FILE_PAGES => vec![pages(first, second)],
        // The result is the new end: what was above it is zeros, if it comes back.
        BRK => vec![pages(result & !0xfff, u64::MAX - (result | 0xfff))],
        MREMAP => vec![pages(first, second), pages(result, third)],
        SHMAT => vec![pages(result, u64::from(u32::MAX))],
        SHMDT => vec![pages(first, u64::from(u32::MAX))],
        _ => Vec::new(),
    }
}

/// The ranges whose content a call that has not ended may have replaced.
pub(super) fn replaced_meanwhile(call: &Call) -> Vec<AddrRange> {
    // A fixed address or an end of the heap is the result; other new memory was none before.
    let [first, ..] = call.args;
    if first == 0 { Vec::new() } else { replaced(call, first.cast_signed()) }
}
