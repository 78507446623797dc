//! Signals.

use super::sizes::{SIGACTION, SIGINFO, SIGSET, STACK};
use crate::syscalls::model::Property::{KeepsPointer, MayBlock, SetsRegisters};
use crate::syscalls::model::{Model, call};
use crate::syscalls::write::{sized, structure};

pub(super) const CALLS: &[Model] = &[
    call(13, "rt_sigaction", &[structure(2, SIGACTION)], &[]),
    call(14, "rt_sigprocmask", &[structure(2, SIGSET)], &[]),
    call(15, "rt_sigreturn", &[], &[SetsRegisters]),
    call(34, "pause", &[], &[MayBlock]),
    call(62, "kill", &[], &[]),
    call(127, "rt_sigpending", &[sized(0, 1)], &[]),
    call(128, "rt_sigtimedwait", &[structure(1, SIGINFO)], &[MayBlock]),
    call(129, "rt_sigqueueinfo", &[], &[]),
    call(130, "rt_sigsuspend", &[], &[MayBlock]),
    // The kernel will write signal frames to this stack.
    call(131, "sigaltstack", &[structure(1, STACK)], &[KeepsPointer]),
    call(200, "tkill", &[], &[]),
    call(234, "tgkill", &[], &[]),
    call(282, "signalfd", &[], &[]),
    call(289, "signalfd4", &[], &[]),
    call(297, "rt_tgsigqueueinfo", &[], &[]),
];
