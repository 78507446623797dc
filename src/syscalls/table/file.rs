//! Files by name: opening, attributes, directories, links.

use super::sizes::{INT, LONG, STAT, STATX};
use crate::syscalls::model::Property::{MayBlock, WritesFiles};
use crate::syscalls::model::{Model, call};
use crate::syscalls::value::{Value, u32_at, u64_at};
use crate::syscalls::write::{at_pointer, filled, sized, structure};

/// `AT_HANDLE_MNT_ID_UNIQUE`: the mount's number has 8 bytes.
const UNIQUE_MOUNT_ID: u64 = 1;
/// The size of `struct file_handle` without the bytes of the handle.
const HANDLE_HEADER: u64 = 8;

pub(super) const CALLS: &[Model] = &[
    // Opening a FIFO waits for its other end; O_TRUNC empties a file.
    call(2, "open", &[], &[MayBlock, WritesFiles]),
    call(4, "stat", &[structure(1, STAT)], &[]),
    call(5, "fstat", &[structure(1, STAT)], &[]),
    call(6, "lstat", &[structure(1, STAT)], &[]),
    call(21, "access", &[], &[]),
    call(76, "truncate", &[], &[WritesFiles]),
    call(77, "ftruncate", &[], &[WritesFiles]),
    call(78, "getdents", &[filled(1, 2)], &[]),
    call(79, "getcwd", &[filled(0, 1)], &[]),
    call(80, "chdir", &[], &[]),
    call(81, "fchdir", &[], &[]),
    call(82, "rename", &[], &[]),
    call(83, "mkdir", &[], &[]),
    call(84, "rmdir", &[], &[]),
    call(85, "creat", &[], &[MayBlock, WritesFiles]),
    call(86, "link", &[], &[]),
    call(87, "unlink", &[], &[]),
    call(88, "symlink", &[], &[]),
    call(89, "readlink", &[filled(1, 2)], &[]),
    call(90, "chmod", &[], &[]),
    call(91, "fchmod", &[], &[]),
    call(92, "chown", &[], &[]),
    call(93, "fchown", &[], &[]),
    call(94, "lchown", &[], &[]),
    call(95, "umask", &[], &[]),
    call(132, "utime", &[], &[]),
    call(133, "mknod", &[], &[]),
    call(188, "setxattr", &[], &[]),
    call(189, "lsetxattr", &[], &[]),
    call(190, "fsetxattr", &[], &[]),
    call(191, "getxattr", &[filled(2, 3)], &[]),
    call(192, "lgetxattr", &[filled(2, 3)], &[]),
    call(193, "fgetxattr", &[filled(2, 3)], &[]),
    call(194, "listxattr", &[filled(1, 2)], &[]),
    call(195, "llistxattr", &[filled(1, 2)], &[]),
    call(196, "flistxattr", &[filled(1, 2)], &[]),
    call(197, "removexattr", &[], &[]),
    call(198, "lremovexattr", &[], &[]),
    call(199, "fremovexattr", &[], &[]),
    call(212, "lookup_dcookie", &[filled(1, 2)], &[]),
    call(217, "getdents64", &[filled(1, 2)], &[]),
    call(235, "utimes", &[], &[]),
    call(257, "openat", &[], &[MayBlock, WritesFiles]),
    call(258, "mkdirat", &[], &[]),
    call(259, "mknodat", &[], &[]),
    call(260, "fchownat", &[], &[]),
    call(261, "futimesat", &[], &[]),
    call(262, "newfstatat", &[structure(2, STAT)], &[]),
    call(263, "unlinkat", &[], &[]),
    call(264, "renameat", &[], &[]),
    call(265, "linkat", &[], &[]),
    call(266, "symlinkat", &[], &[]),
    call(267, "readlinkat", &[filled(2, 3)], &[]),
    call(268, "fchmodat", &[], &[]),
    call(269, "faccessat", &[], &[]),
    call(280, "utimensat", &[], &[]),
    call(285, "fallocate", &[], &[WritesFiles]),
    // struct file_handle at argument 2: the handle's size (before the call, the room for it), its
    // type, its bytes. Argument 3 points to the mount's number, which has 4 bytes without the flag.
    call(
        303,
        "name_to_handle_at",
        &[
            at_pointer(Value::Arg(2), u32_at(2, 0), 1).after_header(HANDLE_HEADER),
            structure(3, INT),
            structure(3, LONG).if_bits(Value::Arg(4), UNIQUE_MOUNT_ID),
        ],
        &[],
    ),
    call(304, "open_by_handle_at", &[], &[MayBlock, WritesFiles]),
    call(316, "renameat2", &[], &[]),
    call(332, "statx", &[structure(4, STATX)], &[]),
    call(437, "openat2", &[], &[MayBlock, WritesFiles]),
    call(439, "faccessat2", &[], &[]),
    call(452, "fchmodat2", &[], &[]),
    call(463, "setxattrat", &[], &[]),
    // struct xattr_args at argument 4: pointer to the value, size of its buffer, flags.
    call(464, "getxattrat", &[at_pointer(u64_at(4, 0), u32_at(4, 8), 1).counted_by_result()], &[]),
    call(465, "listxattrat", &[filled(3, 4)], &[]),
    call(466, "removexattrat", &[], &[]),
    call(468, "file_getattr", &[sized(2, 3)], &[]),
    call(469, "file_setattr", &[], &[]),
];
