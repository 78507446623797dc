//! Descriptors: making, copying, locking them, and the two calls with hundreds of requests.

use super::sizes::{FLOCK, INT, LONG};
use crate::syscalls::model::Property::{ChangesMappings, MayBlock, WritesFiles};
use crate::syscalls::model::{Model, Operation, Writes, by_int, call, multiplexed, op};
use crate::syscalls::write::structure;

pub(super) const CALLS: &[Model] = &[
    call(3, "close", &[], &[]),
    Model {
        number: 16,
        name: "ioctl",
        properties: &[MayBlock, ChangesMappings, WritesFiles],
        writes: Writes::Ioctl,
    },
    call(22, "pipe", &[structure(0, 2 * INT)], &[]),
    call(32, "dup", &[], &[]),
    call(33, "dup2", &[], &[]),
    multiplexed(72, "fcntl", by_int(1), FCNTL, &[MayBlock]),
    call(73, "flock", &[], &[MayBlock]),
    call(292, "dup3", &[], &[]),
    call(293, "pipe2", &[structure(0, 2 * INT)], &[]),
    call(319, "memfd_create", &[], &[]),
    call(436, "close_range", &[], &[]),
    call(438, "pidfd_getfd", &[], &[]),
    call(447, "memfd_secret", &[], &[]),
];

/// fcntl(2).
const FCNTL: &[Operation] = &[
    op(0, "F_DUPFD", &[]),
    op(1, "F_GETFD", &[]),
    op(2, "F_SETFD", &[]),
    op(3, "F_GETFL", &[]),
    op(4, "F_SETFL", &[]),
    op(5, "F_GETLK", &[structure(2, FLOCK)]),
    op(6, "F_SETLK", &[]),
    op(7, "F_SETLKW", &[]),
    op(8, "F_SETOWN", &[]),
    op(9, "F_GETOWN", &[]),
    op(10, "F_SETSIG", &[]),
    op(11, "F_GETSIG", &[]),
    op(15, "F_SETOWN_EX", &[]),
    op(16, "F_GETOWN_EX", &[structure(2, 2 * INT)]),
    op(17, "F_GETOWNER_UIDS", &[structure(2, 2 * INT)]),
    op(36, "F_OFD_GETLK", &[structure(2, FLOCK)]),
    op(37, "F_OFD_SETLK", &[]),
    op(38, "F_OFD_SETLKW", &[]),
    op(1024, "F_SETLEASE", &[]),
    op(1025, "F_GETLEASE", &[]),
    op(1026, "F_NOTIFY", &[]),
    op(1027, "F_DUPFD_QUERY", &[]),
    op(1028, "F_CREATED_QUERY", &[]),
    op(1029, "F_CANCELLK", &[]),
    op(1030, "F_DUPFD_CLOEXEC", &[]),
    op(1031, "F_SETPIPE_SZ", &[]),
    op(1032, "F_GETPIPE_SZ", &[]),
    op(1033, "F_ADD_SEALS", &[]),
    op(1034, "F_GET_SEALS", &[]),
    op(1035, "F_GET_RW_HINT", &[structure(2, LONG)]),
    op(1036, "F_SET_RW_HINT", &[]),
    op(1037, "F_GET_FILE_RW_HINT", &[structure(2, LONG)]),
    op(1038, "F_SET_FILE_RW_HINT", &[]),
    op(1039, "F_GETDELEG", &[structure(2, LONG)]),
    op(1040, "F_SETDELEG", &[]),
];
