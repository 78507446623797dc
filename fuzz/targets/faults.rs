//! What a target must not do, done on purpose: for the test that each of it is found. It is none
//! of the targets that are run.

use super::Target;
use crate::traits::Traits;
use std::hint::black_box;
use std::path::Path;
use std::time::Duration;

/// The first byte of an input says what it does.
pub(crate) const TARGET: Target = Target {
    name: "faults",
    seeds: || vec![b"fine".to_vec()],
    words: &[],
    feed,
    time_limit: Duration::from_millis(500),
    memory_limit_mib: 256,
};

fn feed(bytes: &[u8], _: &Path, _: &mut Traits) {
    match bytes.first() {
        Some(b'p') => panic!("as it was told to"),
        Some(b'h') => while black_box(true) {},
        Some(b'm') => drop(black_box(vec![1_u8; 1 << 30])),
        Some(b's') => drop(black_box(deep(u64::MAX))),
        _ => {}
    }
}

/// Each call keeps something on the stack.
fn deep(depth: u64) -> u64 {
    let kept = black_box([depth; 64]);
    if depth == 0 { 0 } else { deep(depth - 1) + kept[7] }
}
