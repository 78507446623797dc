//! Waiting for descriptors, and asynchronous input and output.
//!
//! In `filled_array(3, 2, SIZE)`, argument 3 points to the array, argument 2 is its capacity, and
//! the result counts the elements that are written. Of an `int_array`, all are written. Calls that
//! let the kernel write later, outside of calls, are `Denied`.

use super::sizes::{EPOLL_EVENT, IO_EVENT, LONG, POLLFD, TIMESPEC, TIMEVAL, descriptor_set};
use crate::syscalls::model::Property::{ChangesMappings, Denied, KeepsPointer, MayBlock};
use crate::syscalls::model::{Model, call};
use crate::syscalls::write::{Write, computed, filled_array, int_array, structure};

pub(super) const CALLS: &[Model] = &[
    call(7, "poll", &[POLL], &[MayBlock]),
    call(23, "select", &[SETS[0], SETS[1], SETS[2], SELECT_LEFT], &[MayBlock]),
    call(206, "io_setup", &[structure(1, LONG)], &[Denied, ChangesMappings]),
    call(207, "io_destroy", &[], &[Denied, ChangesMappings]),
    call(208, "io_getevents", &[filled_array(3, 2, IO_EVENT)], &[Denied, MayBlock]),
    call(209, "io_submit", &[], &[Denied, KeepsPointer]),
    call(210, "io_cancel", &[structure(2, IO_EVENT)], &[Denied]),
    call(213, "epoll_create", &[], &[]),
    call(214, "epoll_ctl_old", &[], &[]),
    call(215, "epoll_wait_old", &[], &[]),
    call(232, "epoll_wait", &[EPOLL], &[MayBlock]),
    call(233, "epoll_ctl", &[], &[]),
    call(270, "pselect6", &[SETS[0], SETS[1], SETS[2], PSELECT_LEFT], &[MayBlock]),
    call(271, "ppoll", &[POLL, structure(2, TIMESPEC).always()], &[MayBlock]),
    call(281, "epoll_pwait", &[EPOLL], &[MayBlock]),
    call(284, "eventfd", &[], &[]),
    call(290, "eventfd2", &[], &[]),
    call(291, "epoll_create1", &[], &[]),
    call(333, "io_pgetevents", &[filled_array(3, 2, IO_EVENT)], &[Denied, MayBlock]),
    call(425, "io_uring_setup", &[structure(1, 120)], &[Denied]),
    call(426, "io_uring_enter", &[], &[Denied, MayBlock]),
    call(427, "io_uring_register", &[], &[Denied, KeepsPointer]),
    call(441, "epoll_pwait2", &[EPOLL], &[MayBlock]),
];

/// `revents` is written even where a signal ends the wait.
const POLL: Write = int_array(0, 1, POLLFD).always();
const EPOLL: Write = filled_array(1, 2, EPOLL_EVENT);
const SETS: [Write; 3] =
    [computed(1, descriptor_set), computed(2, descriptor_set), computed(3, descriptor_set)];
/// The time that is left of the timeout.
const SELECT_LEFT: Write = structure(4, TIMEVAL).always();
const PSELECT_LEFT: Write = structure(4, TIMESPEC).always();
