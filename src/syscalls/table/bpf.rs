//! The commands of bpf(2). Keys and values of maps have sizes that only the kernel knows.

use crate::syscalls::model::{Operation, op, unknown_op};
use crate::syscalls::value::{u32_at, u64_at};
use crate::syscalls::write::{Write, at_pointer, int_sized, structure};

/// The command's `union bpf_attr`, to which the kernel writes results.
const ATTR: Write = int_sized(1, 2);
/// Fields of `union bpf_attr` that the kernel writes whatever size the caller states.
const NEXT_ID: Write = structure(1, 4).at_offset(4);
const BATCH_COUNT: Write = structure(1, 4).at_offset(32).always();

pub(super) const BPF: &[Operation] = &[
    op(0, "BPF_MAP_CREATE", &[ATTR]),
    unknown_op(1, "BPF_MAP_LOOKUP_ELEM"),
    op(2, "BPF_MAP_UPDATE_ELEM", &[]),
    op(3, "BPF_MAP_DELETE_ELEM", &[]),
    unknown_op(4, "BPF_MAP_GET_NEXT_KEY"),
    // The verifier writes its log and the log's size, even if it refuses the program.
    op(5, "BPF_PROG_LOAD", &[ATTR.always(), at_pointer(u64_at(1, 32), u32_at(1, 28), 1).always()]),
    op(6, "BPF_OBJ_PIN", &[]),
    op(7, "BPF_OBJ_GET", &[]),
    op(8, "BPF_PROG_ATTACH", &[]),
    op(9, "BPF_PROG_DETACH", &[]),
    unknown_op(10, "BPF_PROG_TEST_RUN"),
    op(11, "BPF_PROG_GET_NEXT_ID", &[NEXT_ID]),
    op(12, "BPF_MAP_GET_NEXT_ID", &[NEXT_ID]),
    op(13, "BPF_PROG_GET_FD_BY_ID", &[]),
    op(14, "BPF_MAP_GET_FD_BY_ID", &[]),
    unknown_op(15, "BPF_OBJ_GET_INFO_BY_FD"),
    unknown_op(16, "BPF_PROG_QUERY"),
    op(17, "BPF_RAW_TRACEPOINT_OPEN", &[]),
    op(18, "BPF_BTF_LOAD", &[ATTR.always(), at_pointer(u64_at(1, 8), u32_at(1, 20), 1).always()]),
    op(19, "BPF_BTF_GET_FD_BY_ID", &[]),
    unknown_op(20, "BPF_TASK_FD_QUERY"),
    unknown_op(21, "BPF_MAP_LOOKUP_AND_DELETE_ELEM"),
    op(22, "BPF_MAP_FREEZE", &[]),
    op(23, "BPF_BTF_GET_NEXT_ID", &[NEXT_ID]),
    unknown_op(24, "BPF_MAP_LOOKUP_BATCH"),
    unknown_op(25, "BPF_MAP_LOOKUP_AND_DELETE_BATCH"),
    op(26, "BPF_MAP_UPDATE_BATCH", &[BATCH_COUNT]),
    op(27, "BPF_MAP_DELETE_BATCH", &[BATCH_COUNT]),
    op(28, "BPF_LINK_CREATE", &[]),
    op(29, "BPF_LINK_UPDATE", &[]),
    op(30, "BPF_LINK_GET_FD_BY_ID", &[]),
    op(31, "BPF_LINK_GET_NEXT_ID", &[NEXT_ID]),
    op(32, "BPF_ENABLE_STATS", &[]),
    op(33, "BPF_ITER_CREATE", &[]),
    op(34, "BPF_LINK_DETACH", &[]),
    op(35, "BPF_PROG_BIND_MAP", &[]),
    op(36, "BPF_TOKEN_CREATE", &[]),
];
