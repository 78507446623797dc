//! The signals that the code cache uses, and a program's actions for them. INT3s and steps of the
//! cache are SIGTRAPs; full buffers and written code are SIGSEGVs.

use crate::common::Tid;
use crate::tracee::{Signo, TRAP_BIT, dispositions};
use std::collections::BTreeMap;

pub(super) const SEGV_BIT: u64 = 1 << (libc::SIGSEGV - 1);
/// The mask of the signals in question.
pub const FORCED: u64 = TRAP_BIT | SEGV_BIT;
/// Bytes of the kernel's `struct sigaction`: handler, flags, restorer, mask.
pub(super) const ACTION_BYTES: usize = 32;

/// The program's actions for SIGTRAP and SIGSEGV; the default where none is here.
pub type Actions = BTreeMap<Signo, [u8; ACTION_BYTES]>;

/// Returns the bit of SIGTRAP or SIGSEGV in a mask of signals; 0 for others.
pub(super) const fn bit(signal: Signo) -> u64 {
    match signal {
        libc::SIGTRAP => TRAP_BIT,
        libc::SIGSEGV => SEGV_BIT,
        _ => 0,
    }
}

/// Returns a word of an action: handler, flags, restorer, mask.
pub(super) fn word(action: &[u8; ACTION_BYTES], index: usize) -> u64 {
    let bytes = action.as_chunks::<8>().0;
    u64::from_le_bytes(bytes[index])
}

/// Returns true for `SIG_IGN`.
pub(super) fn is_ignoring(action: &[u8; ACTION_BYTES]) -> bool {
    word(action, 0) == libc::SIG_IGN as u64
}

/// Returns the actions that a program begins with: handlers do not survive execve.
pub(super) fn inherited(tid: Tid) -> Actions {
    let ignored = dispositions(tid).map_or(0, |known| known.ignored);
    let mut ignore = [0; ACTION_BYTES];
    ignore[0] = 1;
    let signals = [libc::SIGTRAP, libc::SIGSEGV].into_iter();
    signals.filter(|&signal| ignored & bit(signal) != 0).map(|signal| (signal, ignore)).collect()
}
