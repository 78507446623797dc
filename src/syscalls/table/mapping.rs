//! Memory: mappings, protection, advice, policy.

use super::sizes::{INT, byte_per_page, node_mask};
use crate::syscalls::model::Property::{
    ChangesMappings, Denied, MayBlock, WritesFiles, WritesOthers,
};
use crate::syscalls::model::{Model, call};
use crate::syscalls::value::Value;
use crate::syscalls::write::{array, computed, structure, whole_vector};

pub(super) const CALLS: &[Model] = &[
    call(9, "mmap", &[], &[ChangesMappings]),
    call(10, "mprotect", &[], &[ChangesMappings]),
    call(11, "munmap", &[], &[ChangesMappings]),
    call(12, "brk", &[], &[ChangesMappings]),
    call(25, "mremap", &[], &[ChangesMappings]),
    call(26, "msync", &[], &[]),
    call(27, "mincore", &[computed(2, byte_per_page)], &[]),
    // MADV_REMOVE punches a hole into the file.
    call(28, "madvise", &[], &[ChangesMappings, WritesFiles]),
    call(149, "mlock", &[], &[]),
    call(150, "munlock", &[], &[]),
    call(151, "mlockall", &[], &[]),
    call(152, "munlockall", &[], &[]),
    call(216, "remap_file_pages", &[], &[ChangesMappings]),
    call(237, "mbind", &[], &[]),
    call(238, "set_mempolicy", &[], &[]),
    call(239, "get_mempolicy", &[structure(0, INT), computed(1, node_mask)], &[]),
    call(256, "migrate_pages", &[], &[]),
    call(279, "move_pages", &[array(4, 1, INT)], &[]),
    // The kernel may write more of the local vector than the result says.
    call(310, "process_vm_readv", &[whole_vector(Value::Arg(1), Value::Arg(2))], &[]),
    call(311, "process_vm_writev", &[], &[WritesOthers]),
    call(323, "userfaultfd", &[], &[Denied]),
    call(325, "mlock2", &[], &[]),
    call(329, "pkey_mprotect", &[], &[ChangesMappings]),
    call(330, "pkey_alloc", &[], &[]),
    call(331, "pkey_free", &[], &[]),
    call(440, "process_madvise", &[], &[ChangesMappings, WritesOthers]),
    call(448, "process_mrelease", &[], &[MayBlock]),
    call(450, "set_mempolicy_home_node", &[], &[]),
    call(453, "map_shadow_stack", &[], &[ChangesMappings]),
    call(462, "mseal", &[], &[ChangesMappings]),
];
