//! Who the process is: numbers of processes, users, groups, sessions; capabilities.

use super::sizes::INT;
use crate::syscalls::model::{Model, call};
use crate::syscalls::write::{Write, filled_array, structure};

/// `struct __user_cap_header_struct`, whose version the kernel corrects.
const CAP_HEADER: u64 = 8;

pub(super) const CALLS: &[Model] = &[
    call(39, "getpid", &[], &[]),
    call(102, "getuid", &[], &[]),
    call(104, "getgid", &[], &[]),
    call(105, "setuid", &[], &[]),
    call(106, "setgid", &[], &[]),
    call(107, "geteuid", &[], &[]),
    call(108, "getegid", &[], &[]),
    call(109, "setpgid", &[], &[]),
    call(110, "getppid", &[], &[]),
    call(111, "getpgrp", &[], &[]),
    call(112, "setsid", &[], &[]),
    call(113, "setreuid", &[], &[]),
    call(114, "setregid", &[], &[]),
    call(115, "getgroups", &[filled_array(1, 0, INT)], &[]),
    call(116, "setgroups", &[], &[]),
    call(117, "setresuid", &[], &[]),
    call(118, "getresuid", &[structure(0, INT), structure(1, INT), structure(2, INT)], &[]),
    call(119, "setresgid", &[], &[]),
    call(120, "getresgid", &[structure(0, INT), structure(1, INT), structure(2, INT)], &[]),
    call(121, "getpgid", &[], &[]),
    call(122, "setfsuid", &[], &[]),
    call(123, "setfsgid", &[], &[]),
    call(124, "getsid", &[], &[]),
    call(125, "capget", CAPGET, &[]),
    call(126, "capset", &[structure(0, CAP_HEADER).always()], &[]),
    call(186, "gettid", &[], &[]),
];

/// The header, and `struct __user_cap_data_struct`: three sets of 32 bits, in later versions twice.
const CAPGET: &[Write] = &[structure(0, CAP_HEADER).always(), structure(1, 2 * 3 * 4)];
