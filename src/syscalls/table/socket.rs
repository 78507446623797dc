//! Sockets. An operation of setsockopt(2) or getsockopt(2) is `at(LEVEL, NAME)`: the option's level
//! and name as one number.

use super::sizes::{INT, TIMESPEC};
use crate::syscalls::model::Property::MayBlock;
use crate::syscalls::model::{Model, Operation, by_computed, call, multiplexed_or, op, unknown_op};
use crate::syscalls::value::{Value, u32_at, u64_at};
use crate::syscalls::write::{
    Write, at_pointer, by_length, filled, filled_array, length_word, message, messages, structure,
};

pub(super) const CALLS: &[Model] = &[
    call(41, "socket", &[], &[]),
    call(42, "connect", &[], &[MayBlock]),
    call(43, "accept", &[length_word(2), by_length(1, 2)], &[MayBlock]),
    call(44, "sendto", &[], &[MayBlock]),
    call(45, "recvfrom", &[filled(1, 2), length_word(5), by_length(4, 5)], &[MayBlock]),
    call(46, "sendmsg", &[], &[MayBlock]),
    call(47, "recvmsg", &[message(1)], &[MayBlock]),
    call(48, "shutdown", &[], &[]),
    call(49, "bind", &[], &[]),
    call(50, "listen", &[], &[]),
    call(51, "getsockname", &[length_word(2), by_length(1, 2)], &[]),
    call(52, "getpeername", &[length_word(2), by_length(1, 2)], &[]),
    // The kernel writes the numbers of the descriptors before it makes the sockets.
    call(53, "socketpair", &[structure(3, 2 * INT).always()], &[]),
    multiplexed_or(54, "setsockopt", &[], by_computed(option_of), SETSOCKOPT),
    multiplexed_or(
        55,
        "getsockopt",
        &[length_word(4), by_length(3, 4)],
        by_computed(option_of),
        GETSOCKOPT,
    ),
    call(288, "accept4", &[length_word(2), by_length(1, 2)], &[MayBlock]),
    call(299, "recvmmsg", RECVMMSG, &[MayBlock]),
    // How much of each message was sent is at the end of its struct mmsghdr.
    call(307, "sendmmsg", &[filled_array(1, 2, 64)], &[MayBlock]),
];

const RECVMMSG: &[Write] = &[messages(1, 2), structure(4, TIMESPEC).always()];

const SOL_IP: u64 = 0;
const SOL_SOCKET: u64 = 1;
const SOL_TCP: u64 = 6;
const SOL_IPV6: u64 = 41;

/// These options replace a table. The kernel writes the counters of the old table to a buffer:
/// `struct xt_counters`.
const SETSOCKOPT: &[Operation] = &[
    op(
        option_number(SOL_IP, 64),
        "IPT_SO_SET_REPLACE",
        &[at_pointer(u64_at(3, 88), u32_at(3, 84), 16)],
    ),
    op(
        option_number(SOL_IP, 96),
        "ARPT_SO_SET_REPLACE",
        &[at_pointer(u64_at(3, 72), u32_at(3, 68), 16)],
    ),
    op(
        option_number(SOL_IP, 128),
        "EBT_SO_SET_ENTRIES",
        &[at_pointer(u64_at(3, 104), u32_at(3, 96), 16)],
    ),
    op(
        option_number(SOL_IPV6, 64),
        "IP6T_SO_SET_REPLACE",
        &[at_pointer(u64_at(3, 88), u32_at(3, 84), 16)],
    ),
];

const GETSOCKOPT: &[Operation] = &[
    // The length counts instructions of 8 bytes: before the call those that fit, after it those
    // that were written.
    op(
        option_number(SOL_SOCKET, 26),
        "SO_GET_FILTER",
        &[length_word(4), at_pointer(Value::Arg(3), u32_at(4, 0), 8).counted_by(u32_at(4, 0))],
    ),
    // The option maps pages of the socket's data.
    unknown_op(option_number(SOL_TCP, 35), "TCP_ZEROCOPY_RECEIVE"),
];

/// Returns the level and the name of an option as one number.
const fn option_number(level: u64, name: u64) -> u64 {
    level << 32 | name
}

/// Returns the option that the arguments name, as one number.
fn option_of(args: &[u64; 6]) -> u64 {
    option_number(args[1] & 0xffff_ffff, args[2] & 0xffff_ffff)
}
