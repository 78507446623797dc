//! The signals that the code cache uses, and a program's actions for them. INT3s and single steps
//! of the cache raise SIGTRAP. Full trace buffers, spent budgets, and accesses to pages that the
//! tracer protects raise SIGSEGV.

use crate::common::Tid;
use crate::tracee::{Signo, TRAP_BIT, dispositions};
use std::collections::BTreeMap;

/// SIGSEGV's bit in a mask of signals.
pub(super) const SEGV_BIT: u64 = 1 << (libc::SIGSEGV - 1);
/// The signals that the code cache raises, SIGTRAP and SIGSEGV, as a mask: bit N - 1 is signal N.
pub const CACHE_SIGNALS: u64 = TRAP_BIT | SEGV_BIT;
/// Bytes of the kernel's `struct sigaction`: handler, flags, restorer, mask.
pub(super) const ACTION_BYTES: usize = 32;

/// The program's actions for SIGTRAP and SIGSEGV (sigaction(2)). A signal that is absent has the
/// default action.
pub type Actions = BTreeMap<Signo, [u8; ACTION_BYTES]>;

/// Returns the bit of SIGTRAP or SIGSEGV in a mask of signals; 0 for others.
pub(super) const fn cache_signal_bit(signal: Signo) -> u64 {
    match signal {
        libc::SIGTRAP => TRAP_BIT,
        libc::SIGSEGV => SEGV_BIT,
        _ => 0,
    }
}

/// Returns the word with this index of an action: 0 is the handler, 1 the flags, 2 the restorer, 3
/// the mask. Panics for others.
pub(super) fn action_word(action: &[u8; ACTION_BYTES], index: usize) -> u64 {
    let bytes = action.as_chunks::<8>().0;
    u64::from_le_bytes(bytes[index])
}

/// Returns true if an action ignores its signal (`SIG_IGN`).
pub(super) fn is_ignoring(action: &[u8; ACTION_BYTES]) -> bool {
    action_word(action, 0) == libc::SIG_IGN as u64
}

/// Returns the actions for SIGTRAP and SIGSEGV of a process that has just executed execve(2): a
/// signal that the kernel reports as ignored stays ignored, and the other has the default action,
/// since handlers do not survive. Both have it if the kernel's report cannot be read.
pub(super) fn actions_after_exec(tid: Tid) -> Actions {
    let ignored = dispositions(tid).map_or(0, |known| known.ignored);
    let mut ignore = [0; ACTION_BYTES];
    ignore[0] = 1;
    let signals = [libc::SIGTRAP, libc::SIGSEGV].into_iter();
    signals
        .filter(|&signal| ignored & cache_signal_bit(signal) != 0)
        .map(|signal| (signal, ignore))
        .collect()
}
