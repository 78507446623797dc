//! System V objects, POSIX message queues, futexes.

use super::sizes::{INT, LONG, MQ_ATTR};
use crate::syscalls::model::Property::{ChangesMappings, KeepsPointer, MayBlock};
use crate::syscalls::model::{
    Model, Operation, by_bits, by_int, call, multiplexed, op, unknown_op,
};
use crate::syscalls::write::{Write, filled, structure};

pub(super) const CALLS: &[Model] = &[
    call(29, "shmget", &[], &[]),
    call(30, "shmat", &[], &[ChangesMappings]),
    multiplexed(31, "shmctl", by_int(1), SHMCTL, &[]),
    call(64, "semget", &[], &[]),
    call(65, "semop", &[], &[MayBlock]),
    multiplexed(66, "semctl", by_int(2), SEMCTL, &[]),
    call(67, "shmdt", &[], &[ChangesMappings]),
    call(68, "msgget", &[], &[]),
    call(69, "msgsnd", &[], &[MayBlock]),
    // The type of the message comes first.
    call(70, "msgrcv", &[filled(1, 2).after_header(LONG)], &[MayBlock]),
    multiplexed(71, "msgctl", by_int(1), MSGCTL, &[]),
    multiplexed(202, "futex", by_bits(1, 0, 0x7f), FUTEX, &[MayBlock]),
    call(220, "semtimedop", &[], &[MayBlock]),
    call(240, "mq_open", &[], &[]),
    call(241, "mq_unlink", &[], &[]),
    call(242, "mq_timedsend", &[], &[MayBlock]),
    call(243, "mq_timedreceive", &[filled(1, 2), structure(3, INT)], &[MayBlock]),
    call(244, "mq_notify", &[], &[]),
    call(245, "mq_getsetattr", &[structure(2, MQ_ATTR)], &[]),
    call(273, "set_robust_list", &[], &[KeepsPointer]),
    call(274, "get_robust_list", &[structure(1, LONG), structure(2, LONG)], &[]),
    call(449, "futex_waitv", &[], &[MayBlock]),
    call(454, "futex_wake", &[], &[]),
    call(455, "futex_wait", &[], &[MayBlock]),
    call(456, "futex_requeue", &[], &[]),
];

const SHMID_DS: u64 = 112;
const SEMID_DS: u64 = 104;
const MSQID_DS: u64 = 120;

/// shmctl(2).
const SHMCTL: &[Operation] = &[
    op(0, "IPC_RMID", &[]),
    op(1, "IPC_SET", &[]),
    op(2, "IPC_STAT", &[structure(2, SHMID_DS)]),
    op(3, "IPC_INFO", &[structure(2, 72)]),
    op(11, "SHM_LOCK", &[]),
    op(12, "SHM_UNLOCK", &[]),
    op(13, "SHM_STAT", &[structure(2, SHMID_DS)]),
    op(14, "SHM_INFO", &[structure(2, 48)]),
    op(15, "SHM_STAT_ANY", &[structure(2, SHMID_DS)]),
];

/// semctl(2).
const SEMCTL: &[Operation] = &[
    op(0, "IPC_RMID", &[]),
    op(1, "IPC_SET", &[]),
    op(2, "IPC_STAT", &[structure(3, SEMID_DS)]),
    op(3, "IPC_INFO", &[structure(3, 40)]),
    op(11, "GETPID", &[]),
    op(12, "GETVAL", &[]),
    // Only the kernel knows the number of semaphores.
    unknown_op(13, "GETALL"),
    op(14, "GETNCNT", &[]),
    op(15, "GETZCNT", &[]),
    op(16, "SETVAL", &[]),
    op(17, "SETALL", &[]),
    op(18, "SEM_STAT", &[structure(3, SEMID_DS)]),
    op(19, "SEM_INFO", &[structure(3, 40)]),
    op(20, "SEM_STAT_ANY", &[structure(3, SEMID_DS)]),
];

/// msgctl(2).
const MSGCTL: &[Operation] = &[
    op(0, "IPC_RMID", &[]),
    op(1, "IPC_SET", &[]),
    op(2, "IPC_STAT", &[structure(2, MSQID_DS)]),
    op(3, "IPC_INFO", &[structure(2, 32)]),
    op(11, "MSG_STAT", &[structure(2, MSQID_DS)]),
    op(12, "MSG_INFO", &[structure(2, 32)]),
    op(13, "MSG_STAT_ANY", &[structure(2, MSQID_DS)]),
];

/// futex(2), without its flags. For locks, the kernel writes their words itself, even if the call
/// fails.
const FUTEX: &[Operation] = &[
    op(0, "FUTEX_WAIT", &[]),
    op(1, "FUTEX_WAKE", &[]),
    op(2, "FUTEX_FD", &[]),
    op(3, "FUTEX_REQUEUE", &[]),
    op(4, "FUTEX_CMP_REQUEUE", &[]),
    op(5, "FUTEX_WAKE_OP", &[SECOND_WORD]),
    op(6, "FUTEX_LOCK_PI", &[FIRST_WORD]),
    op(7, "FUTEX_UNLOCK_PI", &[FIRST_WORD]),
    op(8, "FUTEX_TRYLOCK_PI", &[FIRST_WORD]),
    op(9, "FUTEX_WAIT_BITSET", &[]),
    op(10, "FUTEX_WAKE_BITSET", &[]),
    op(11, "FUTEX_WAIT_REQUEUE_PI", &[SECOND_WORD]),
    op(12, "FUTEX_CMP_REQUEUE_PI", &[SECOND_WORD]),
    op(13, "FUTEX_LOCK_PI2", &[FIRST_WORD]),
];
const FIRST_WORD: Write = structure(0, INT).always();
const SECOND_WORD: Write = structure(4, INT).always();
