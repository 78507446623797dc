//! The machine and the kernel itself: names, logs, modules, tracing; and calls that are gone.

use super::bpf::BPF;
use super::sizes::{INT, SYSINFO, UTSNAME};
use crate::syscalls::model::Property::{ChangesMappings, Denied, MayBlock};
use crate::syscalls::model::{Model, Operation, by_int, call, multiplexed, op};
use crate::syscalls::write::{filled, structure};

pub(super) const CALLS: &[Model] = &[
    call(63, "uname", &[structure(0, UTSNAME)], &[]),
    call(99, "sysinfo", &[structure(0, SYSINFO)], &[]),
    multiplexed(103, "syslog", by_int(0), SYSLOG, &[MayBlock]),
    call(134, "uselib", &[], &[ChangesMappings]),
    call(153, "vhangup", &[], &[]),
    call(156, "_sysctl", &[], &[]),
    call(163, "acct", &[], &[]),
    call(169, "reboot", &[], &[]),
    call(170, "sethostname", &[], &[]),
    call(171, "setdomainname", &[], &[]),
    call(172, "iopl", &[], &[]),
    call(173, "ioperm", &[], &[]),
    call(174, "create_module", &[], &[]),
    call(175, "init_module", &[], &[]),
    call(176, "delete_module", &[], &[]),
    call(177, "get_kernel_syms", &[], &[]),
    call(178, "query_module", &[], &[]),
    call(180, "nfsservctl", &[], &[]),
    call(181, "getpmsg", &[], &[]),
    call(182, "putpmsg", &[], &[]),
    call(183, "afs_syscall", &[], &[]),
    call(184, "tuxcall", &[], &[]),
    call(236, "vserver", &[], &[]),
    call(246, "kexec_load", &[], &[]),
    // The kernel writes the event's ring buffer at any time. It answers a wrong size with the right
    // one, and fails with E2BIG.
    call(298, "perf_event_open", &[structure(0, INT).at_offset(4).always()], &[Denied]),
    call(313, "finit_module", &[], &[]),
    call(318, "getrandom", &[filled(0, 1)], &[MayBlock]),
    call(320, "kexec_file_load", &[], &[]),
    multiplexed(321, "bpf", by_int(0), BPF, &[]),
    // Only code that the kernel puts into the program for its probes makes these calls.
    call(335, "uretprobe", &[], &[]),
    call(336, "uprobe", &[], &[]),
];

/// syslog(2).
const SYSLOG: &[Operation] = &[
    op(0, "SYSLOG_ACTION_CLOSE", &[]),
    op(1, "SYSLOG_ACTION_OPEN", &[]),
    op(2, "SYSLOG_ACTION_READ", &[filled(1, 2)]),
    op(3, "SYSLOG_ACTION_READ_ALL", &[filled(1, 2)]),
    op(4, "SYSLOG_ACTION_READ_CLEAR", &[filled(1, 2)]),
    op(5, "SYSLOG_ACTION_CLEAR", &[]),
    op(6, "SYSLOG_ACTION_CONSOLE_OFF", &[]),
    op(7, "SYSLOG_ACTION_CONSOLE_ON", &[]),
    op(8, "SYSLOG_ACTION_CONSOLE_LEVEL", &[]),
    op(9, "SYSLOG_ACTION_SIZE_UNREAD", &[]),
    op(10, "SYSLOG_ACTION_SIZE_BUFFER", &[]),
];
