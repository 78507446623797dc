//! The system calls of keys, sandboxes and security modules.

use crate::syscalls::model::Property::MayBlock;
use crate::syscalls::model::{Model, Operation, by_int, call, multiplexed, op};
use crate::syscalls::value::{Value, u32_at};
use crate::syscalls::write::{Write, at_pointer, by_length, filled, length_word, sized, structure};

pub(super) const CALLS: &[Model] = &[
    call(185, "security", &[], &[]),
    call(248, "add_key", &[], &[]),
    call(249, "request_key", &[], &[MayBlock]),
    multiplexed(250, "keyctl", by_int(0), KEYCTL, &[MayBlock]),
    multiplexed(317, "seccomp", by_int(0), SECCOMP, &[]),
    call(444, "landlock_create_ruleset", &[], &[]),
    call(445, "landlock_add_rule", &[], &[]),
    call(446, "landlock_restrict_self", &[], &[]),
    call(459, "lsm_get_self_attr", &[length_word(2), by_length(1, 2)], &[]),
    call(460, "lsm_set_self_attr", &[], &[]),
    call(461, "lsm_list_modules", &[length_word(1), by_length(0, 1)], &[]),
];

/// seccomp(2).
const SECCOMP: &[Operation] = &[
    op(0, "SECCOMP_SET_MODE_STRICT", &[]),
    op(1, "SECCOMP_SET_MODE_FILTER", &[]),
    op(2, "SECCOMP_GET_ACTION_AVAIL", &[]),
    op(3, "SECCOMP_GET_NOTIF_SIZES", &[structure(2, 6)]),
];

/// `struct keyctl_pkey_query`.
const PKEY_QUERY: u64 = 56;
/// `struct keyctl_pkey_params` at argument 1 has the size of the buffer at argument 4.
const PKEY_OUTPUT: Write = at_pointer(Value::Arg(4), u32_at(1, 8), 1).counted_by_result();

/// keyctl(2).
const KEYCTL: &[Operation] = &[
    op(0, "KEYCTL_GET_KEYRING_ID", &[]),
    op(1, "KEYCTL_JOIN_SESSION_KEYRING", &[]),
    op(2, "KEYCTL_UPDATE", &[]),
    op(3, "KEYCTL_REVOKE", &[]),
    op(4, "KEYCTL_CHOWN", &[]),
    op(5, "KEYCTL_SETPERM", &[]),
    op(6, "KEYCTL_DESCRIBE", &[filled(2, 3)]),
    op(7, "KEYCTL_CLEAR", &[]),
    op(8, "KEYCTL_LINK", &[]),
    op(9, "KEYCTL_UNLINK", &[]),
    op(10, "KEYCTL_SEARCH", &[]),
    op(11, "KEYCTL_READ", &[filled(2, 3)]),
    op(12, "KEYCTL_INSTANTIATE", &[]),
    op(13, "KEYCTL_NEGATE", &[]),
    op(14, "KEYCTL_SET_REQKEY_KEYRING", &[]),
    op(15, "KEYCTL_SET_TIMEOUT", &[]),
    op(16, "KEYCTL_ASSUME_AUTHORITY", &[]),
    op(17, "KEYCTL_GET_SECURITY", &[filled(2, 3)]),
    op(18, "KEYCTL_SESSION_TO_PARENT", &[]),
    op(19, "KEYCTL_REJECT", &[]),
    op(20, "KEYCTL_INSTANTIATE_IOV", &[]),
    op(21, "KEYCTL_INVALIDATE", &[]),
    op(22, "KEYCTL_GET_PERSISTENT", &[]),
    op(23, "KEYCTL_DH_COMPUTE", &[filled(2, 3)]),
    op(24, "KEYCTL_PKEY_QUERY", &[structure(4, PKEY_QUERY)]),
    op(25, "KEYCTL_PKEY_ENCRYPT", &[PKEY_OUTPUT]),
    op(26, "KEYCTL_PKEY_DECRYPT", &[PKEY_OUTPUT]),
    op(27, "KEYCTL_PKEY_SIGN", &[PKEY_OUTPUT]),
    op(28, "KEYCTL_PKEY_VERIFY", &[]),
    op(29, "KEYCTL_RESTRICT_KEYRING", &[]),
    op(30, "KEYCTL_MOVE", &[]),
    // The rest of the buffer is set to zeros.
    op(31, "KEYCTL_CAPABILITIES", &[sized(1, 2)]),
    op(32, "KEYCTL_WATCH_KEY", &[]),
];
