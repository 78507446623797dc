//! Clocks, timers, sleeping.

use super::sizes::{INT, ITIMERSPEC, ITIMERVAL, LONG, TIMESPEC, TIMEVAL, TIMEX, TIMEZONE, TMS};
use crate::syscalls::model::Property::MayBlock;
use crate::syscalls::model::{Model, Writes, call};
use crate::syscalls::write::structure;

pub(super) const CALLS: &[Model] = &[
    call(35, "nanosleep", &[structure(1, TIMESPEC).also_interrupted()], &[MayBlock]),
    call(36, "getitimer", &[structure(1, ITIMERVAL)], &[]),
    call(37, "alarm", &[], &[]),
    call(38, "setitimer", &[structure(2, ITIMERVAL)], &[]),
    call(96, "gettimeofday", &[structure(0, TIMEVAL), structure(1, TIMEZONE)], &[]),
    call(100, "times", &[structure(0, TMS)], &[]),
    call(159, "adjtimex", &[structure(0, TIMEX)], &[]),
    call(164, "settimeofday", &[], &[]),
    call(201, "time", &[structure(0, LONG)], &[]),
    // The interrupted call continues, so the effects are those of that call.
    Model {
        number: 219,
        name: "restart_syscall",
        properties: &[MayBlock],
        writes: Writes::Unknown,
    },
    // The kernel writes the timer's ID before the clock can refuse the timer.
    call(222, "timer_create", &[structure(2, INT).always()], &[]),
    call(223, "timer_settime", &[structure(3, ITIMERSPEC)], &[]),
    call(224, "timer_gettime", &[structure(1, ITIMERSPEC)], &[]),
    call(225, "timer_getoverrun", &[], &[]),
    call(226, "timer_delete", &[], &[]),
    call(227, "clock_settime", &[], &[]),
    call(228, "clock_gettime", &[structure(1, TIMESPEC)], &[]),
    call(229, "clock_getres", &[structure(1, TIMESPEC)], &[]),
    call(230, "clock_nanosleep", &[structure(3, TIMESPEC).also_interrupted()], &[MayBlock]),
    call(283, "timerfd_create", &[], &[]),
    call(286, "timerfd_settime", &[structure(3, ITIMERSPEC)], &[]),
    call(287, "timerfd_gettime", &[structure(1, ITIMERSPEC)], &[]),
    call(305, "clock_adjtime", &[structure(1, TIMEX)], &[]),
];
